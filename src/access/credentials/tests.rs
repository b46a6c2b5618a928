use super::*;
use crate::fence::{Owner, Resource};

const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn worker(rest: &str) -> String {
    format!("[[credential]]\nname = \"w\"\nsha256 = \"{ABC}\"\n{rest}\n")
}

#[track_caller]
fn mistakes(text: &str) -> Vec<String> {
    Credentials::parse(text).expect_err("it is wrong")
}

fn of(text: &str) -> Arc<Credential> {
    let credentials = Credentials::parse(text).unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
    Arc::clone(credentials.of_token(b"abc").expect("it is known"))
}

fn may_acquire(credential: &Credential, resource: &str, owner: &str) -> bool {
    let (resource, owner) = (Resource::new(resource).unwrap(), Owner::new(owner).unwrap());
    credential.check(Verb::LeaseAcquire, Scope::Lease(&resource, &owner)).is_ok()
}

#[test]
fn a_token_is_known_by_its_hash_and_no_other_is() {
    let other = ABC.replace('b', "c");
    let text = format!(
        "{}\n[[credential]]\nname = \"two\"\nsha256 = [\"{other}\"]\nmay = \"admin.metrics\"\n",
        worker("may = [\"lease.read\"]\nresources = \"*\"")
    );
    let credentials = Credentials::parse(&text).unwrap();
    assert_eq!(credentials.of_token(b"abc").unwrap().name(), "w");
    for unknown in [&b""[..], b"ab", b"abcd", ABC.as_bytes()] {
        assert!(credentials.of_token(unknown).is_none());
    }
    assert!(Credentials::parse("").unwrap().of_token(b"abc").is_none());
}

#[test]
fn a_credential_may_what_is_listed_and_nothing_else() {
    let credential = of(&worker("may = [\"lease.acquire\"]\nresources = [\"job:*\", \"x\"]"));
    assert!(may_acquire(&credential, "job:1", "w"));
    assert!(may_acquire(&credential, "x", "w:host:1"));
    for (resource, owner) in
        [("x1", "w"), ("jo", "w"), ("y", "w"), ("x", "v"), ("x", "w2"), ("x", "")]
    {
        if let (Ok(resource), Ok(owner)) = (Resource::new(resource), Owner::new(owner)) {
            let scope = Scope::Lease(&resource, &owner);
            assert!(credential.check(Verb::LeaseAcquire, scope).is_err(), "{resource} {owner}");
        }
    }
    let x = Resource::new("x").unwrap();
    for verb in Verb::ALL.iter().filter(|verb| **verb != Verb::LeaseAcquire) {
        assert!(credential.check(*verb, Scope::Resource(&x)).is_err(), "{verb:?}");
    }
}

#[test]
fn a_list_of_all_is_for_those_who_may_see_all() {
    let some = of(&worker("may = \"lease.read\"\nresources = [\"a*\"]"));
    let all = of(&worker("may = \"lease.read\"\nresources = [\"a*\", \"*\"]"));
    assert!(some.check(Verb::LeaseRead, Scope::AllResources).is_err());
    assert!(all.check(Verb::LeaseRead, Scope::AllResources).is_ok());
}

#[test]
fn owners_that_are_given_replace_the_own_name() {
    let rest = "may = \"lease.acquire\"\nresources = \"*\"\nowners = [\"a\", \"b-*\"]";
    let credential = of(&worker(rest));
    assert!(may_acquire(&credential, "r", "a") && may_acquire(&credential, "r", "b-1"));
    assert!(!may_acquire(&credential, "r", "w"));
}

#[test]
fn every_mistake_is_told_with_its_line_and_without_the_hash() {
    let text = "x = 1\n[[credential]]\nname = \"a b\"\nsha256 = \"0123\"\nmay = [\"lease.steal\"]\n\
                resources = [\"a*b\"]\ncolour = 1\n[[credential]]\n";
    let found = mistakes(text);
    let expected = [
        ("line 1: ", "unknown key \"x\""),
        ("line 7: ", "unknown key \"colour\""),
        ("line 3: ", "a name is"),
        ("line 4: ", "64 hexadecimal digits"),
        ("line 5: ", "\"lease.steal\" is none of lease.acquire"),
        ("line 6: ", "no pattern"),
        ("line 8: ", "name is missing"),
        ("line 8: ", "sha256 is missing, which"),
        ("line 8: ", "may is missing"),
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (line, (place, words)) in found.iter().zip(expected) {
        assert!(line.starts_with(place) && line.contains(words), "{line}");
        assert!(!line.contains("0123"), "{line}");
    }
    let twice = format!("{0}{0}", worker("may = \"admin.metrics\""));
    assert_eq!(mistakes(&twice).len(), 2, "name and hash");
    let no_resources = worker("may = \"admin.raise\"");
    assert!(mistakes(&no_resources)[0].contains("resources is missing"));
    assert!(mistakes("credential = 1")[0].contains("two brackets"));
    assert!(mistakes("fgt_secret")[0].starts_with("line 1: this is not TOML"));
    assert!(!mistakes("fgt_secret")[0].contains("fgt_secret"));
}

#[test]
fn a_certificate_is_known_by_its_names_with_their_kind_unless_they_are_of_several() {
    let of = |name: &str, certificate: &str| {
        format!(
            "[[credential]]\nname = \"{name}\"\ncertificate = {certificate}\nmay = \"admin.metrics\"\n"
        )
    };
    let text = of("a", "[\"URI:spiffe://x/a\", \"DNS:a.example\"]") + &of("b", "\"CN=b\"");
    let credentials = Credentials::parse(&text).unwrap();
    let named = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        credentials.of_certificate(&names).map(|found| found.name().to_owned())
    };
    assert_eq!(named(&["CN=x", "URI:spiffe://x/a", "DNS:a.example"]).as_deref(), Some("a"));
    assert_eq!(named(&["CN=b"]).as_deref(), Some("b"));
    for nobody in [&[][..], &["DNS:b"], &["CN=a.example"], &["CN=b", "DNS:a.example"]] {
        assert_eq!(named(nobody), None, "{nobody:?}");
    }
    assert!(mistakes(&of("c", "\"c\""))[0].contains("is not a name behind one of"));
    assert!(mistakes(&(of("c", "\"CN=c\"") + &of("d", "\"CN=c\"")))[0].contains("given before"));
}
