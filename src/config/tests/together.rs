//! What shows only when values are seen together, and many mistakes at once.

use super::{Given, SMALL, assert_lines};
use crate::config::{Fenced, Mode, Store, Tokens};

#[test]
fn all_mistakes_are_reported_at_once_and_sorted_by_place() {
    let text = r#"
[listen]
proxy = "127.0.0.1"
port  = 8080

[stoer]
url = "sqlite:a.db"

[[upstream]]
name    = "ledger"
url     = "http://127.0.0.1:9000/v1"
timeout = 30

[[route]]
name   = "accounts"
path   = "/accounts/{account}"
fenced = [
  "POST",
  "put",
  "TRACE",
]

[[route]]
path = "/accounts/{id}"
"#;
    let given = Given::file(text)
        .variable("FENCEGATE_LIMITS__WAITERS", "none")
        .variable("FENCEGATE_LISTEN__PROXI", "127.0.0.1:80")
        .flag("--admin", "listen.admin", "9090");
    assert_lines(
        &given.mistakes(),
        &[
            ("fencegate.toml:3", "listen.proxy: \"127.0.0.1\" is no IP address and port"),
            ("fencegate.toml:4", "unknown key \"port\" in [listen]"),
            ("fencegate.toml:6", "unknown key \"stoer\"; did you mean [store]?"),
            ("fencegate.toml:11", "upstream.url"),
            ("fencegate.toml:12", "upstream.timeout: 30 has no unit"),
            ("fencegate.toml:19", "route.fenced: methods are upper case"),
            ("fencegate.toml:20", "route.fenced: TRACE is never forwarded"),
            ("fencegate.toml:23", "route.name is missing; add for example name = \"accounts\""),
            (
                "fencegate.toml:24",
                "\"/accounts/{id}\" conflicts with \"/accounts/{account}\" (fencegate.toml:16)",
            ),
            ("FENCEGATE_LIMITS__WAITERS", "limits.waiters: \"none\" is no whole number"),
            ("FENCEGATE_LISTEN__PROXI", "did you mean FENCEGATE_LISTEN__PROXY?"),
            ("--admin", "listen.admin: \"9090\" is no IP address and port; for example"),
        ],
    );
}

#[test]
fn the_whole_of_a_file_is_read() {
    let text = r#"
[store]
url = "sqlite:/var/lib/fencegate/fences.db"

[[upstream]]
name = "ledger"
url  = "http://127.0.0.1:9000"

[[upstream]]
name   = "files"
url    = "http://127.0.0.1:9001"
settle = "1500ms"

[[route]]
name     = "accounts"
path     = "/accounts/{account}/{*rest}"
resource = "account:{account}"
upstream = "ledger"
tokens   = "ordered"
buffer   = 1000

[[route]]
name     = "files"
path     = "/files/{*name}"
upstream = "files"
fenced   = ["PUT", "GET"]
mode     = "observe"
"#;
    let config = Given::file(text).loaded().config;
    let Store::Sqlite(path) = &config.store else { panic!("another store") };
    assert_eq!(path.to_str(), Some("/var/lib/fencegate/fences.db"));
    assert_eq!(config.upstreams[1].settle.as_millis(), 1500);
    let [accounts, files] = &config.routes[..] else { panic!("{:?}", config.routes) };
    assert_eq!((accounts.upstream, files.upstream), (0, 1));
    assert_eq!((accounts.tokens, files.tokens), (Tokens::Ordered, Tokens::Held));
    assert_eq!((accounts.mode, files.mode), (Mode::Enforce, Mode::Observe));
    assert_eq!(accounts.fenced, Fenced::Writes);
    assert_eq!(files.fenced, Fenced::Only(vec!["PUT".into(), "GET".into()]));
    assert_eq!((accounts.buffer_bytes, files.buffer_bytes), (1000, 65_536));
}

#[test]
fn a_configuration_that_fences_nothing_is_refused() {
    let no_route = SMALL.split("[[route]]").next().unwrap();
    assert_lines(
        &Given::file(no_route).mistakes(),
        &[("fencegate.toml", "nothing is fenced: there is no route")],
    );
    assert_lines(
        &Given::file(&format!("{SMALL}fenced = []\n")).mistakes(),
        &[("fencegate.toml:6", "nothing is fenced: `fenced` is empty in every route")],
    );
    let one_is = "name = 'a'\nfenced = []\n[[route]]\nname = 'b'\npath = '/b'\n";
    Given::file(&format!("{SMALL}{one_is}")).loaded();
}

#[test]
fn an_upstream_is_needed_and_only_the_only_one_may_be_left_unnamed() {
    let message = "there is no upstream";
    assert_lines(&Given::file("").mistakes(), &[("fencegate.toml", message)]);
    assert_lines(&Given::nothing().mistakes(), &[("--upstream", message)]);
    let two = "[[upstream]]\nname = 'a'\nurl = 'http://a'\n[[upstream]]\nname = 'a'\n\
               url = 'http://b'\n[[route]]\npath = '/a'\n[[route]]\nname = 'x'\npath = '/b'\n\
               upstream = 'a'\n";
    assert_lines(
        &Given::file(two).mistakes(),
        &[
            (
                "fencegate.toml:5",
                "\"a\" is the name of another upstream already (fencegate.toml:2)",
            ),
            ("fencegate.toml:7", "route.name is missing"),
            ("fencegate.toml:7", "route.upstream is missing"),
        ],
    );
}

#[test]
fn listeners_on_one_port_of_one_address_are_refused() {
    let credentials = tempfile::NamedTempFile::new().unwrap();
    let credentials = credentials.path().to_str().unwrap();
    let refused = |leases: &str| {
        let text = format!("{SMALL}[listen]\nleases = '{leases}'\n");
        let given = Given::file(&text).variable("FENCEGATE_ACCESS__CREDENTIALS", credentials);
        assert_lines(
            &given.mistakes(),
            &[("fencegate.toml:7", "and listen.proxy = \"127.0.0.1:8080\" overlap")],
        );
    };
    for leases in ["127.0.0.1:8080", "0.0.0.0:8080", "[::]:8080", "[::ffff:127.0.0.1]:8080"] {
        refused(leases);
    }
    for leases in ["127.0.0.2:8080", "[::1]:8080", "127.0.0.1:0"] {
        let proxy = if leases.ends_with(":0") { "proxy = '127.0.0.1:0'\n" } else { "" };
        Given::file(&format!("{SMALL}[listen]\n{proxy}leases = '{leases}'\n")).loaded();
    }
    // The place is where somebody wrote something.
    let text = format!("{SMALL}[listen]\nproxy = '0.0.0.0:9090'\n");
    assert_lines(&Given::file(&text).mistakes(), &[("fencegate.toml:7", "listen.admin")]);
}

#[test]
fn listeners_without_credentials_are_on_loopback() {
    let text = format!(
        "{SMALL}[listen]\nproxy = '0.0.0.0:80'\nleases = '0.0.0.0:8081'\nadmin = '[::]:9090'\n"
    );
    assert_lines(
        &Given::file(&text).mistakes(),
        &[
            ("fencegate.toml:8", "listen.leases: 0.0.0.0:8081 is not loopback"),
            ("fencegate.toml:9", "listen.admin: [::]:9090 is not loopback"),
        ],
    );
    let credentials = tempfile::NamedTempFile::new().unwrap();
    let with = Given::file(&text)
        .variable("FENCEGATE_ACCESS__CREDENTIALS", credentials.path().to_str().unwrap());
    assert!(with.loaded().warnings.is_empty(), "nobody is known, so nobody is let in");
    assert!(Given::file(SMALL).loaded().warnings.is_empty());
}

#[test]
fn an_unknown_upstream_is_told_from_each_name_once() {
    let upstream = "[[upstream]]\nname = \"ledger\"\nurl = \"http://127.0.0.1:9000\"\n";
    let route = "[[route]]\npath = \"/{*rest}\"\nupstream = \"leger\"\n";
    assert_lines(
        &Given::file(&format!("{upstream}{upstream}{route}")).mistakes(),
        &[
            ("fencegate.toml:5", "is the name of another upstream already"),
            ("fencegate.toml:9", "there is no upstream \"leger\", only \"ledger\"; for"),
        ],
    );
}

/// With a prefix, as it is for an etcd coordinator.
const COMPLETE: &str = r#"[listen]
proxy  = "127.0.0.1:8080"
leases = "127.0.0.1:8081"
admin  = "127.0.0.1:9090"

[store]
url = "sqlite:fencegate.db"        # or postgres://…

[coordinator]
url    = "embedded"                # or etcd://127.0.0.1:2379,… or postgres
prefix = "/fencegate/leases"

[[upstream]]
name    = "ledger"
url     = "http://127.0.0.1:9000"
timeout = "30s"
settle  = "30s"

[[route]]
name     = "accounts"
path     = "/accounts/{account}/{*rest}"
resource = "account:{account}"     # default "{path}", the normalised path
upstream = "ledger"
fenced   = ["POST", "PUT", "PATCH", "DELETE"]   # default: every method but GET, HEAD, OPTIONS
mode     = "enforce"               # or "observe": judge, count, log, but forward
tokens   = "held"                  # or "ordered"
drain    = "10s"                   # older writes in flight may finish this long, then they are cut
wait     = "60s"                   # a newer write waits this long for the drain, then 503 fence_draining
"#;

#[test]
fn a_prefix_is_taken_and_said_to_have_no_effect_on_the_embedded_coordinator() {
    let loaded = Given::file(COMPLETE).loaded();
    let [warning] = &loaded.warnings[..] else { panic!("{:?}", loaded.warnings) };
    assert!(warning.contains("fencegate.toml:11: coordinator.prefix: has no effect"), "{warning}");
    assert_eq!(loaded.config.routes[0].resource, "account:{account}");
}

#[test]
fn tables_in_another_form_are_named_and_still_read() {
    let text = "listen = 1\n[route]\npath = '/a'\nmode = 'x'\n[[upstream]]\nurl = 'http://a'\n";
    assert_lines(
        &Given::file(text).mistakes(),
        &[
            ("fencegate.toml:1", "expected the table [listen], found integer"),
            ("fencegate.toml:2", "expected tables headed [[route]] (two brackets), found table"),
            ("fencegate.toml:4", "route.mode: \"x\" is not"),
        ],
    );
    let inline = "listen.workers = 3\nupstream = [{ url = 'http://a' }]\nroute = [{ path = '/a' }]";
    assert_eq!(Given::file(inline).loaded().config.listen.workers, 3);
}

#[test]
fn a_file_that_cannot_be_read_is_one_mistake() {
    let lines = Given::file("[listen\n").variable("FENCEGATE_X", "").mistakes();
    assert_lines(&lines, &[("fencegate.toml:1", "this is not TOML"), ("FENCEGATE_X", "unknown")]);
    let mut given = Given::file("");
    std::fs::write(given.sources.file.as_ref().unwrap(), b"\xff").unwrap();
    assert_lines(&given.mistakes(), &[("fencegate.toml", "is not UTF-8 text")]);
    given.sources.file.as_mut().unwrap().set_file_name("absent.toml");
    assert_lines(&given.mistakes(), &[("absent.toml", "cannot be read: No such file")]);
    given.sources.file = Some("/dev/zero".into());
    assert_lines(&given.mistakes(), &[("/dev/zero", "is larger than 1 MiB")]);
}

#[test]
fn what_is_printed_loads_to_the_same() {
    let text = format!(
        "{SMALL}name = 'a'\nresource = 'x:\"{{rest}}'\nmax_body = 5\n[[route]]\nname = 'b'\n\
         path = '/b'\nfenced = ['PUT']\n[store]\nurl = 'sqlite:a \"b\".db'\n"
    );
    let loaded = Given::file(&text)
        .variable("FENCEGATE_LIMITS__CELLS", "7")
        .flag("--admin", "listen.admin", "[::1]:1")
        .loaded();
    let printed = loaded.to_toml();
    for line in ["cells = 7  # FENCEGATE_LIMITS__CELLS\n", "admin = \"[::1]:1\"  # --admin\n"] {
        assert!(printed.contains(line), "{printed}");
    }
    assert!(printed.contains("fencegate.toml:8\n"), "{printed}");
    let again = Given::file(&printed).loaded();
    assert_eq!(format!("{:?}", again.config), format!("{:?}", loaded.config));
}
