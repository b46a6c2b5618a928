//! The gateway's own credential: nobody else reaches the API.

use std::fs;

use crate::support::downstream::Downstream;
use crate::support::gateway::Gateway;
use crate::support::http::send;
use crate::support::nginx::Nginx;
use crate::support::wait_until;

#[test]
fn only_the_gateway_can_write_and_its_credential_rotates() {
    let (first, second) = ("Bearer first-s3cret", "Bearer second-s3cret");
    let nginx = Nginx::demanding(&[first, second]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("credential");
    fs::write(&file, format!("{first}\n")).unwrap();
    let gateway = Gateway::with_config(&format!(
        "[[upstream]]\nurl = \"http://{}\"\ncredential_file = \"{}\"\n\
         [[route]]\npath = \"/{{*rest}}\"\n",
        nginx.address,
        file.display()
    ));
    let direct = send(nginx.address, "PUT", "/x", &[("Fencing-Token", "1")], b"direct");
    assert_eq!((direct.status, nginx.stored().len()), (401, 0));

    let token = gateway.acquire("/x", "a", 60_000);
    let written = gateway.put("/x", token, "through");
    assert_eq!((written.status, written.header("x-credential")), (201, Some("0")));
    assert_eq!(nginx.stored(), [("/x".to_owned(), b"through".to_vec())]);
    assert_eq!(send(gateway.proxy, "GET", "/x", &[], b"").body, b"through");

    fs::write(&file, second).unwrap();
    wait_until("the new one is used", || {
        gateway.put("/x", token, "again").header("x-credential") == Some("1")
    });
    // What is no credential does not replace one that is.
    fs::write(&file, "").unwrap();
    wait_until("it is told of", || gateway.log_text().contains("was not taken over"));
    assert_eq!(gateway.put("/x", token, "still").header("x-credential"), Some("1"));
    assert!(!gateway.log_text().contains("s3cret"), "{}", gateway.log_text());
}

#[test]
fn the_clients_own_field_and_its_twins_do_not_get_through() {
    let api = Downstream::start();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("credential");
    fs::write(&file, "ours").unwrap();
    let gateway = Gateway::with_config(&format!(
        "[[upstream]]\nurl = \"http://{}\"\ncredential_file = \"{}\"\n\
         credential_header = \"X-Api-Key\"\n[[route]]\npath = \"/{{*rest}}\"\n\
         tokens = \"ordered\"\n",
        api.address,
        file.display()
    ));
    let fields = [
        ("Fencing-Token", "1"),
        ("X-API-Key", "theirs"),
        ("x-api-key", "theirs again"),
        ("X_Api_Key", "theirs"),
        ("X-Api_Key", "theirs"),
        ("Connection", "X-Api-Key, x_api_key"),
        ("Authorization", "their own"),
        ("X-Api-Keys", "another field"),
    ];
    for (method, body) in [("PUT", &b"body"[..]), ("GET", b"")] {
        assert_eq!(send(gateway.proxy, method, "/x", &fields, body).status, 200);
    }
    // Without any of it, too.
    assert_eq!(gateway.put("/x", 1, "").status, 200);
    for seen in api.seen() {
        let keys: Vec<_> = seen
            .headers
            .iter()
            .filter(|(name, _)| name.to_lowercase().replace('_', "-") == "x-api-key")
            .map(|(name, value)| (name.to_lowercase(), value.as_str()))
            .collect();
        assert_eq!(keys, [("x-api-key".to_owned(), "ours")], "{seen:?}");
        assert_eq!(seen.header("connection"), None);
    }
    let first = &api.seen()[0];
    assert_eq!(first.header("authorization"), Some("their own"));
    assert_eq!(first.header("x-api-keys"), Some("another field"));
}
