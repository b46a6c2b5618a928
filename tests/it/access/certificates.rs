//! Client certificates as credentials.

use std::fs;

use super::entry;
use crate::support::certificates::Authority;
use crate::support::curl::curl;
use crate::support::downstream::Downstream;
use crate::support::gateway::Gateway;

#[test]
fn a_verified_certificate_may_what_its_entry_says_and_another_one_nothing() {
    let api = Downstream::start();
    let (ca, clients) = (Authority::new(), Authority::new());
    let credentials = ca.dir.path().join("credentials.toml");
    let of_certificate = "[[credential]]\nname = \"ann\"\ncertificate = \"CN=ann\"\n\
                          may = [\"lease.acquire\"]\nresources = [\"r\"]\n";
    let with_token = entry("bob", "may = [\"lease.read\"]\nresources = [\"*\"]");
    fs::write(&credentials, format!("{of_certificate}{with_token}")).unwrap();
    let listen = format!(
        "{}leases_client_ca_file = \"{}\"\nleases_client_cert = \"optional\"\n",
        ca.sign("gateway").listen("leases"),
        clients.ca().display()
    );
    let access = format!("[access]\ncredentials = \"{}\"\n", credentials.display());
    let gateway = Gateway::listening(api.address, &listen, "http", &access);
    let (ca, ann, carl) = (ca.ca(), clients.sign("ann"), clients.sign("carl"));
    let take = |resource: &str, more: &[&str]| {
        let url = format!("https://localhost:{}/v1/leases/{resource}", gateway.leases.port());
        let args = ["--cacert", ca.to_str().unwrap(), "-d", "{\"owner\":\"ann\"}", &url];
        curl(&[&args, more].concat()).status
    };
    let [ann, carl] = [&ann, &carl]
        .map(|pair| ["--cert", pair.cert.to_str().unwrap(), "--key", pair.key.to_str().unwrap()]);
    assert_eq!(take("r", &[]), 401);
    assert_eq!(take("r", &carl), 401);
    assert_eq!(take("s", &ann), 403);
    assert_eq!(take("r", &ann), 201);
}
