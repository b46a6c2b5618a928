//! The commands and the worker library, known by a token, and etcd's own credentials.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::{Guarded, entry, root, token_of};
use crate::servers::etcd::Etcd;
use crate::support::certificates::Authority;
use crate::support::command::{Ended, fencegate, run};
use crate::support::downstream::Downstream;
use crate::support::wait_until;

fn told(args: &[&str]) -> Ended {
    run(fencegate(Path::new("/"), args))
}

#[test]
fn a_new_credential_is_a_token_in_a_file_and_an_entry_that_works() {
    let api = Downstream::start();
    let guarded = Guarded::start(api.address, "", "");
    let token_file = guarded.dir.path().join("ann");
    let path = token_file.to_str().unwrap();
    let args = ["credential", "new", "--name", "ann", "--resource", "job:*", "--token-file", path];
    let ended = told(&args);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let token = fs::read_to_string(&token_file).unwrap();
    assert!(token.starts_with("fgt_") && token.trim().len() == 68, "{token:?}");
    assert!(!ended.stdout.contains(token.trim()));
    assert_eq!(token_file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    // A second one does not take the place of the first.
    assert_eq!(told(&args).code, Some(71));
    assert_eq!(fs::read_to_string(&token_file).unwrap(), token);

    fs::write(guarded.credentials_file(), &ended.stdout).unwrap();
    let leases = format!("http://{}", guarded.gateway.leases);
    let acquire = |resource: &str, owner: &str, token_file: &str| {
        told(&[
            "lease",
            "acquire",
            "--leases",
            &leases,
            "--resource",
            resource,
            "--owner",
            owner,
            "--token-file",
            token_file,
        ])
    };
    wait_until("the entry is known", || acquire("job:1", "ann", path).code == Some(0));
    let refused = acquire("other", "ann", path);
    assert_eq!(refused.code, Some(69), "{refused:?}");
    assert!(refused.stderr.contains("forbidden"), "{refused:?}");
    let nobody = told(&["lease", "list", "--leases", &leases]);
    assert_eq!(nobody.code, Some(69), "{nobody:?}");
    assert!(nobody.stderr.contains("unauthenticated"), "{nobody:?}");
    let missing = acquire("job:1", "ann", "/nowhere");
    assert_eq!(missing.code, Some(64), "{missing:?}");

    let both = told(&["credential", "new", "--name", "bob", "--may", "admin.metrics"]);
    let (token, entry) = both.stdout.split_once("\n\n").unwrap();
    assert!(token.starts_with("fgt_") && entry.starts_with("[[credential]]\nname = \"bob\""));
    assert!(!entry.contains(token));
    for (args, words) in [
        (&["--name", "x"][..], "resources is missing"),
        (&["--name", "x y", "--resource", "*"], "a name is"),
        (&["--name", "x", "--may", "fly", "--resource", "*"], "is none of"),
        (&["--name", "x", "--resource", "a*b"], "no pattern"),
    ] {
        let ended = told(&[&["credential", "new"], args].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(64), ""));
        assert!(ended.stderr.contains(words), "{ended:?}");
    }
}

#[test]
fn a_command_runs_under_a_lease_of_a_known_worker() {
    let api = Downstream::start();
    let rest =
        "may = [\"lease.acquire\", \"lease.renew\", \"lease.release\"]\nresources = [\"/x\"]";
    let guarded = Guarded::start(api.address, &(entry("ann", rest) + &root()), "");
    let (proxy, leases) = (guarded.gateway.proxy, guarded.gateway.leases);
    let token_file = guarded.token_file("ann");
    let script =
        format!("env; exec curl -q -sS -x \"$FENCING_PROXY\" -T - http://{proxy}/x </dev/null");
    let run_as = |owner: &[&str], token_file: Option<&Path>| {
        let mut command = fencegate(Path::new("/"), &["run", "--resource", "/x", "--ttl", "2s"]);
        command.args(["--leases", &format!("http://{leases}")]).args(owner);
        command.args(["--", "sh", "-c", &script]);
        if let Some(file) = token_file {
            command.env("FENCEGATE_TOKEN_FILE", file);
        }
        run(command)
    };
    let ended = run_as(&["--owner-prefix", "ann"], Some(&token_file));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(api.seen().len(), 1);
    assert!(!ended.stdout.contains(&token_of("ann")), "the command is not told the token");
    assert_eq!(api.seen()[0].header("authorization"), None, "nor is the API");
    let audit = guarded.audit();
    assert!(audit[0]["owner"].as_str().unwrap().starts_with("ann:"), "{audit:?}");

    assert_eq!(run_as(&["--owner", "bob"], Some(&token_file)).code, Some(69));
    let nobody = run_as(&[], None);
    assert_eq!(nobody.code, Some(69), "{nobody:?}");
    assert!(nobody.stderr.contains("unauthenticated"), "{nobody:?}");
    assert_eq!(api.seen().len(), 1);
}

#[test]
fn admin_commands_are_known_by_a_token() {
    let api = Downstream::start();
    let rest = "may = [\"admin.read\"]\nresources = [\"*\"]";
    let guarded = Guarded::start(api.address, &(entry("ann", rest) + &root()), "");
    let admin = format!("http://{}", guarded.gateway.admin);
    let (ann, root) = (guarded.token_file("ann"), guarded.token_file("root"));
    let ask = |token_file: &Path, args: &[&str]| {
        let mut command: Command = fencegate(Path::new("/"), args);
        command.args(["--admin", &admin]).arg("--token-file").arg(token_file);
        run(command)
    };
    let raise = ["fence", "raise", "--resource", "r", "--token", "7"];
    assert_eq!(ask(&root, &raise).code, Some(0));
    assert_eq!(ask(&ann, &["fence", "show", "--resource", "r"]).code, Some(0));
    assert_eq!(ask(&ann, &["coordinator", "show"]).code, Some(0));
    let higher = ["fence", "raise", "--resource", "r", "--token", "9"];
    let refused = ask(&ann, &higher);
    assert_eq!(refused.code, Some(69), "{refused:?}");
    assert!(refused.stderr.contains("forbidden"), "{refused:?}");
    let nobody = told(&["fence", "list", "--admin", &admin]);
    assert_eq!(nobody.code, Some(69), "{nobody:?}");
    assert!(nobody.stderr.contains("unauthenticated"), "{nobody:?}");
}

#[test]
fn leases_come_from_an_etcd_that_wants_a_user_and_a_password() {
    let etcd = Etcd::single();
    for args in [
        &["user", "add", "root:rootword"][..],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        etcd.ctl(args);
    }
    let password = etcd.directory().join("password");
    fs::write(&password, "rootword\n").unwrap();
    let at = etcd.endpoints().join(",");
    let acquire = ["lease", "acquire", "--resource", "r", "--owner", "me", "--etcd", &at];
    let user = ["--etcd-username", "root", "--etcd-password-file", password.to_str().unwrap()];
    assert_eq!(told(&acquire).code, Some(69));
    let ended = told(&[&acquire[..], &user].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let half = told(&[&acquire[..], &user[..2]].concat());
    assert_eq!(half.code, Some(64), "{half:?}");
}

#[test]
fn leases_come_from_an_etcd_that_wants_tls_and_a_certificate() {
    let authority = Authority::new();
    let (ca, pair) = (authority.ca(), authority.sign("etcd"));
    let [ca, certificate, key] = [&ca, &pair.cert, &pair.key].map(|path| path.to_str().unwrap());
    let etcd = Etcd::with_tls(Path::new(ca), Path::new(certificate), Path::new(key));
    let at = etcd.endpoints().join(",");
    let acquire = ["lease", "acquire", "--resource", "r", "--owner", "me", "--etcd", &at];
    let tls = ["--etcd-ca-file", ca, "--etcd-cert-file", certificate, "--etcd-key-file", key];
    let ended = told(&[&acquire[..], &tls].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(told(&[&acquire[..], &tls[..2]].concat()).code, Some(69), "without a certificate");
    let half = told(&[&acquire[..], &tls[..4]].concat());
    assert_eq!(half.code, Some(64), "{half:?}");
    let no_ca = told(&[&acquire[..], &tls[2..]].concat());
    assert!(no_ca.code == Some(64) && no_ca.stderr.contains("--etcd-ca-file"), "{no_ca:?}");
}

/// A lease of 3 s, renewed each second by a worker whose token file is a pipe that nobody writes to: like a file on a
/// network that is down, it holds up whoever reads it.
#[test]
fn a_token_file_that_hangs_holds_up_neither_the_renewals_nor_the_end() {
    let api = Downstream::start();
    let rest =
        "may = [\"lease.acquire\", \"lease.renew\", \"lease.release\"]\nresources = [\"/x\"]";
    let guarded = Guarded::start(api.address, &(entry("ann", rest) + &root()), "");
    let token_file = guarded.token_file("ann");
    let mut command = fencegate(Path::new("/"), &["run", "--resource", "/x", "--ttl", "3s"]);
    command.args(["--leases", &format!("http://{}", guarded.gateway.leases)]);
    command.args(["--owner-prefix", "ann"]).arg("--token-file").arg(&token_file);
    let file = token_file.display();
    command.args(["--", "sh", "-c", &format!("rm {file} && mkfifo {file} && sleep 8")]);
    let ended = run(command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}
