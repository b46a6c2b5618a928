//! The stamping proxy, with curl as the program that knows nothing of tokens.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use http::{HeaderMap, Method, Uri};
use tokio_util::sync::CancellationToken;

use super::{LeaseServer, output, run};

const CURL: &str = "curl -sS -m 15 --noproxy \"\"";

struct Api {
    address: SocketAddr,
    stop: CancellationToken,
}

impl Api {
    /// Answers what it got.
    fn start() -> Api {
        let echo = async |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
            let mut answer = format!("{method} {uri}\n");
            for name in ["host", "fencing-token", "x-fencing-token", "x-hop", "x-kept", "te"] {
                for value in headers.get_all(name) {
                    answer += &format!("{name}: {}\n", value.to_str().unwrap());
                }
            }
            answer + &format!("{} bytes\n", body.len())
        };
        let routes = Router::new().fallback(echo).layer(axum::extract::DefaultBodyLimit::disable());
        let (address, stop, _) = super::serve(routes);
        Api { address, stop }
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[test]
fn requests_through_the_proxy_carry_the_leases_token_and_no_other() {
    let (server, api) = (LeaseServer::start(), Api::start());
    let url = format!("http://{}/a/./b%2f..//c?x=%41&&y", api.address);
    let script = format!(
        "{CURL} -x \"$FENCING_PROXY\" --path-as-is -X PUT -d data \
         -H 'Fencing-Token: 99' -H 'X-Fencing-Token: 99' -H 'Connection: X-Hop, Fencing-Token' \
         -H 'X-Hop: 1' -H 'X-Kept: 1' -H 'TE: trailers' '{url}'"
    );
    let (exit, stdout, stderr) = output(run(&server, &[], &script));
    assert_eq!((exit, stderr.as_str()), (0, ""));
    let expected = format!(
        "PUT /a/./b%2f..//c?x=%41&&y\nhost: {}\nfencing-token: 1\nx-kept: 1\n4 bytes\n",
        api.address
    );
    assert_eq!(stdout, expected);
}

#[test]
fn proxy_is_a_base_url_of_the_gateway_too() {
    let (server, api) = (LeaseServer::start(), Api::start());
    let script =
        format!("{CURL} \"$FENCING_PROXY\"/a \"$FENCING_PROXY\"/b; {CURL} -I $FENCING_PROXY");
    let gateway = format!("http://{}", api.address);
    let (exit, stdout, _) = output(run(&server, &["--gateway", &gateway], &script));
    assert_eq!(exit, 0);
    let one = |path| format!("GET {path}\nhost: {}\nfencing-token: 1\n0 bytes\n", api.address);
    assert!(stdout.starts_with(&(one("/a") + &one("/b") + "HTTP/1.1 200 OK")), "{stdout}");

    let script = format!("{CURL} -w '%{{http_code}}' \"$FENCING_PROXY\"/a");
    let (_, stdout, _) = output(run(&server, &[], &script));
    assert!(stdout.contains("--gateway") && stdout.ends_with("400"), "{stdout}");
}

#[test]
fn large_bodies_stream_with_and_without_a_length() {
    let (server, api) = (LeaseServer::start(), Api::start());
    let script = format!(
        "head -c 20000000 /dev/zero | {CURL} -x $FENCING_PROXY -T - http://{0}/chunked; \
         head -c 20000000 /dev/zero > body; {CURL} -x $FENCING_PROXY -T body http://{0}/length",
        api.address
    );
    let dir = tempfile::tempdir().unwrap();
    let mut command = run(&server, &[], &script);
    command.current_dir(dir.path());
    let (exit, stdout, stderr) = output(command);
    assert_eq!((exit, stderr.as_str()), (0, ""));
    assert_eq!(stdout.matches("20000000 bytes").count(), 2, "{stdout}");
}

#[test]
fn tls_is_refused_with_what_to_do() {
    let server = LeaseServer::start();
    let script = format!("{CURL} -v -x $FENCING_PROXY https://127.0.0.1:1/ 2>&1");
    let (_, stdout, _) = output(run(&server, &[], &script));
    assert!(stdout.contains("501 Not Implemented"), "{stdout}");
    let script = format!(
        "{CURL} -w '%{{http_code}}' -x $FENCING_PROXY --request-target https://127.0.0.1:1/ http://a/"
    );
    let (_, stdout, _) = output(run(&server, &[], &script));
    assert!(stdout.contains("use an http:// URL") && stdout.ends_with("501"), "{stdout}");
}

#[test]
fn failures_say_whether_the_write_may_have_happened() {
    let server = LeaseServer::start();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let rude = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let rude_address = rude.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = rude.accept().unwrap();
        std::io::Read::read(&mut stream, &mut [0; 1024]).unwrap();
    });
    for (address, code, outcome) in [
        (closed, "upstream_unreachable", "not_forwarded"),
        (rude_address, "upstream_outcome_unknown", "unknown"),
    ] {
        let script =
            format!("{CURL} -x $FENCING_PROXY -d x -w '\n%{{http_code}}' http://{address}/");
        let (_, stdout, _) = output(run(&server, &[], &script));
        let (body, status) = stdout.rsplit_once('\n').unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!((&body["code"], &body["outcome"]), (&code.into(), &outcome.into()));
        assert_eq!((status, &body["resource"]), ("502", &"job".into()));
    }
}

#[test]
fn nothing_is_sent_once_the_lease_is_lost() {
    let (server, api) = (LeaseServer::start(), Api::start());
    let script = format!(
        "trap '{CURL} -i -x $FENCING_PROXY -d x http://{0}/; exit' TERM; \
         {CURL} -x $FENCING_PROXY -d x http://{0}/; echo ready; while :; do sleep 0.01; done",
        api.address
    );
    let child = run(&server, &["--ttl", "2s"], &script)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    super::wait_until("it has the lease", || server.lease("job").is_some());
    server.hold("job", Duration::from_secs(60));
    let output = child.wait_with_output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let (before, after) = stdout.split_once("ready\n").unwrap();
    assert!(before.contains("fencing-token: 1"), "{before}");
    assert!(after.starts_with("HTTP/1.1 503"), "{after}");
    for part in ["\"code\":\"lease_lost\"", "\"outcome\":\"not_forwarded\"", "\"status\":503"] {
        assert!(after.contains(part), "{after}");
    }
    assert!(after.contains("x-should-retry: false"), "{after}");
}
