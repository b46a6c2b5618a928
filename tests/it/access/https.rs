//! The commands and the worker library, to a gateway whose listeners have TLS.

use std::fs;
use std::path::{Path, PathBuf};

use fencegate::clock::Clock;
use fencegate::tls::KeyPair;
use fencegate::worker::{HeldLease, LeaseClient, Leases, Terms, TlsFiles};

use crate::support::certificates::{Authority, Pair};
use crate::support::command::{Ended, fencegate, run};
use crate::support::downstream::Downstream;
use crate::support::gateway::Gateway;

/// A gateway whose lease and admin listeners know `ann` by a certificate.
struct Secured {
    servers: Authority,
    clients: Authority,
    gateway: Gateway,
    api: Downstream,
    server: Pair,
    ann: Pair,
}

const ANN: &str = "[[credential]]\nname = \"ann\"\ncertificate = \"CN=ann\"\n\
    may = [\"lease.acquire\", \"lease.renew\", \"lease.release\", \"admin.read\"]\nresources = [\"*\"]\n";

impl Secured {
    fn start() -> Secured {
        let (api, servers, clients) = (Downstream::start(), Authority::new(), Authority::new());
        let (server, ann) = (servers.sign("gateway"), clients.sign("ann"));
        let credentials = servers.dir.path().join("credentials.toml");
        fs::write(&credentials, ANN).expect("a writable directory");
        let listen: String = ["leases", "admin"]
            .map(|name| {
                let clients = clients.ca();
                format!(
                    "{}{name}_client_ca_file = \"{}\"\n",
                    server.listen(name),
                    clients.display()
                )
            })
            .concat();
        let access = format!("[access]\ncredentials = \"{}\"\n", credentials.display());
        let gateway = Gateway::listening(api.address, &listen, "http", &access);
        Secured { servers, clients, gateway, api, server, ann }
    }

    fn leases(&self) -> String {
        format!("https://localhost:{}", self.gateway.leases.port())
    }

    fn files(&self) -> TlsFiles {
        let Pair { cert: cert_file, key: key_file } = self.ann.clone();
        let identity = Some(KeyPair { cert_file, key_file });
        TlsFiles { ca_file: Some(self.servers.ca()), identity }
    }
}

/// The flags for these files.
fn flags(ca: &Path, pair: Option<&Pair>) -> Vec<String> {
    let mut flags = vec!["--ca-file".to_owned(), ca.display().to_string()];
    if let Some(Pair { cert, key }) = pair {
        let path = |path: &PathBuf| path.display().to_string();
        flags.extend(["--cert-file".into(), path(cert), "--key-file".into(), path(key)]);
    }
    flags
}

fn told(words: &[&str], flags: &[String]) -> Ended {
    let mut command = fencegate(Path::new("/"), words);
    command.args(flags);
    run(command)
}

#[test]
fn commands_are_known_by_a_certificate_and_know_the_gateway_by_its_own() {
    let it = Secured::start();
    let known = flags(&it.servers.ca(), Some(&it.ann));
    let (leases, admin) = (it.leases(), format!("https://127.0.0.1:{}", it.gateway.admin.port()));
    let acquire =
        ["lease", "acquire", "--resource", "r", "--owner", "ann", "--leases", leases.as_str()];
    let ended = told(&acquire, &known);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("\"owner\": \"ann\""), "{ended:?}");
    let ended = told(&["fence", "list", "--admin", &admin], &known);
    assert_eq!(ended.code, Some(0), "{ended:?}");

    // Nothing of what may not be trusted gets as far as a lease.
    let wrong = [
        (
            "another authority",
            flags(&it.clients.ca(), Some(&it.ann)),
            69,
            "invalid peer certificate",
        ),
        ("the system's authorities", Vec::new(), 69, "invalid peer certificate"),
        ("no certificate", flags(&it.servers.ca(), None), 69, ""),
        ("a stranger's", flags(&it.servers.ca(), Some(&it.servers.sign("ann"))), 69, ""),
        ("half", known[..4].to_vec(), 64, "--key-file"),
        ("no such file", flags(Path::new("/nowhere"), None), 64, "/nowhere cannot be read"),
    ];
    let acquire = [&acquire[..3], &["s"], &acquire[4..]].concat();
    for (what, flags, code, words) in wrong {
        let ended = told(&acquire, &flags);
        assert_eq!(ended.code, Some(code), "{what}: {ended:?}");
        assert!(ended.stderr.contains(words), "{what}: {ended:?}");
        let ended = told(&["fence", "list", "--admin", &admin], &flags);
        assert_eq!(ended.code, Some(code), "{what}: {ended:?}");
    }
    let unnamed = leases.replace("localhost", "[::ffff:127.0.0.1]");
    let elsewhere = told(&[&acquire[..7], &[unnamed.as_str()]].concat(), &known);
    assert_eq!(elsewhere.code, Some(69), "the certificate has another name: {elsewhere:?}");
    assert!(elsewhere.stderr.contains("not valid for name"), "{elsewhere:?}");
    let plain =
        told(&[&acquire[..7], &[leases.replace("https", "http").as_str()]].concat(), &known);
    assert_eq!(plain.code, Some(64), "whoever gives certificates means TLS: {plain:?}");
    let etcd = told(&[&acquire[..6], &["--etcd", "127.0.0.1:9"]].concat(), &known);
    assert_eq!(etcd.code, Some(64), "{etcd:?}");
    assert!(etcd.stderr.contains("--etcd-ca-file"), "{etcd:?}");
}

#[test]
fn a_command_runs_under_a_lease_that_is_renewed_over_tls() {
    let it = Secured::start();
    let script = format!(
        "sleep 7; exec curl -q -sS -x \"$FENCING_PROXY\" -T - http://{}/x </dev/null",
        it.gateway.proxy
    );
    let mut command = fencegate(Path::new("/"), &["run", "--resource", "/x", "--ttl", "6s"]);
    command.args(["--owner-prefix", "ann", "--", "sh", "-c", &script]);
    command
        .env("FENCEGATE_LEASES", it.leases())
        .env("FENCEGATE_CA_FILE", it.servers.ca())
        .env("FENCEGATE_CERT_FILE", &it.ann.cert)
        .env("FENCEGATE_KEY_FILE", &it.ann.key);
    let ended = run(command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // After more than the TTL.
    assert_eq!(it.api.seen().len(), 1);
    assert_eq!(it.gateway.put("/x", 1, "x").status, 200, "it was the first token");
}

#[test]
fn a_worker_goes_on_over_a_renewed_certificate_and_a_broken_one() {
    let it = Secured::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let leases = LeaseClient::with_files(&it.leases(), &it.files()).unwrap();
        let renew = async |held: &HeldLease| {
            leases.renew(&"r".parse().unwrap(), &"ann".parse().unwrap(), held.token(), None).await
        };
        let terms = Terms::new("r".parse().unwrap(), "ann".parse().unwrap());
        let held =
            HeldLease::acquire(&Leases::from(leases.clone()), Clock::new(), &terms).await.unwrap();
        it.clients.sign_into(&it.ann, "ann");
        renew(&held).await.unwrap();
        // Half written: the one before it stays in use.
        fs::write(&it.ann.cert, "-----BEGIN").unwrap();
        renew(&held).await.unwrap();
        // A certificate of somebody who is not known is no longer ann's.
        it.clients.sign_into(&it.ann, "carl");
        let refused = renew(&held).await.unwrap_err();
        assert_eq!(refused.code(), "unauthenticated", "{refused}");
        it.clients.sign_into(&it.ann, "ann");
        held.release().await.unwrap();
    });
    // The server's own is checked as strictly: no other authority's does.
    let strange = Authority::new();
    strange.sign_into(&it.server, "gateway");
    let known = flags(&it.servers.ca(), Some(&it.ann));
    let (leases, words) = (it.leases(), ["lease", "list", "--leases"]);
    crate::support::wait_until("the gateway shows the new one", || {
        told(&[&words[..], &[&leases]].concat(), &known).stderr.contains("invalid peer certificate")
    });
}
