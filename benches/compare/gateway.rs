//! Fencegate as its users start it: a configuration file and `fencegate serve`.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use fencegate::fence::Token;
use http::{Request, StatusCode, header};
use http_body_util::Full;

use crate::client::Client;
use crate::lab::Lab;
use crate::process::{Server, free_address, pinned};

/// A path under the fenced route whose tokens come from the lease listener.
pub(crate) fn held_path(id: &str) -> String {
    format!("/heldwith/{id}")
}

/// A path under the route that is not fenced; as long as the fenced one.
pub(crate) fn unfenced_path(id: &str) -> String {
    format!("/unfenced/{id}")
}

/// A path under the fenced route that takes any higher token.
pub(crate) fn ordered_path(id: &str) -> String {
    format!("/ordering/{id}")
}

/// The resource of [`ordered_path`].
pub(crate) const ORDERED_RESOURCE_PREFIX: &str = "ordered-";

/// Where a gateway keeps its marks, and where its leases come from; as the configuration has it.
#[derive(Clone, Debug)]
pub(crate) struct Backing {
    pub(crate) store: String,
    pub(crate) coordinator: String,
}

impl Backing {
    /// A file, which keeps the leases as well.
    pub(crate) fn file(path: &Path) -> Backing {
        let store = format!("sqlite:{}", path.display());
        Backing { store, coordinator: "embedded".to_owned() }
    }
}

/// Several gateways have a configuration file each.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// A running gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) server: Server,
    pub(crate) proxy: SocketAddr,
    pub(crate) leases: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Gateway {
    /// Starts a gateway on the proxy's core and waits until it is ready.
    pub(crate) fn start(lab: &Lab<'_>, backing: &Backing) -> Result<Gateway> {
        Gateway::start_on(&lab.cores.proxy, lab, backing)
    }

    /// The same on other cores.
    pub(crate) fn start_on(cores: &str, lab: &Lab<'_>, backing: &Backing) -> Result<Gateway> {
        Gateway::launch(cores, lab, backing, &Extra::default())
    }

    /// On the proxy's core, with these further keys of `[listen]`.
    pub(crate) fn listening(lab: &Lab<'_>, backing: &Backing, listen: &str) -> Result<Gateway> {
        let extra = Extra { listen, ..Extra::default() };
        Gateway::launch(&lab.cores.proxy, lab, backing, &extra)
    }

    /// On the proxy's core with every limit by client and by route, none of which is ever reached.
    pub(crate) fn start_limited(lab: &Lab<'_>, backing: &Backing) -> Result<Gateway> {
        let route = "concurrency = 1000000\nrate = \"1000000/s\"\n";
        let tables = "[limits]\nclient_concurrency = 1000000\nclient_rate = \"1000000/s\"\n";
        let extra = Extra { route, tables, ..Extra::default() };
        Gateway::launch(&lab.cores.proxy, lab, backing, &extra)
    }

    /// On the proxy's core with a credential for the upstream.
    pub(crate) fn start_credentialed(lab: &Lab<'_>, backing: &Backing) -> Result<Gateway> {
        let file = lab.directory().join("credential");
        fs::write(&file, "Bearer 0123456789abcdef0123456789abcdef")?;
        let upstream = &format!("credential_file = {file:?}\n");
        let extra = Extra { upstream, ..Extra::default() };
        Gateway::launch(&lab.cores.proxy, lab, backing, &extra)
    }

    fn launch(cores: &str, lab: &Lab<'_>, backing: &Backing, extra: &Extra<'_>) -> Result<Gateway> {
        let (proxy, leases, admin) = (free_address()?, free_address()?, free_address()?);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let config = lab.directory().join(format!("fencegate{number}.toml"));
        let text = configuration([proxy, leases, admin], backing, lab.upstream, extra);
        fs::write(&config, text)?;
        let mut command = pinned(cores, Path::new(env!("CARGO_BIN_EXE_fencegate")));
        command.args(["serve", "--config"]).arg(&config);
        let mut server = Server::start(&format!("fencegate{number}"), command, lab.directory())?;
        lab.wait_for_answer(&mut server, admin, "/readyz", |status| status == StatusCode::OK)
            .context("starting fencegate serve")?;
        Ok(Gateway { server, proxy, leases, admin })
    }
}

/// A store file of its own for each row.
pub(crate) fn store_file(lab: &Lab<'_>, name: &str) -> PathBuf {
    lab.directory().join(format!("{name}.db"))
}

/// What a gateway on such a file of its own is started with.
pub(crate) fn own_file(lab: &Lab<'_>, name: &str) -> Backing {
    Backing::file(&store_file(lab, name))
}

/// What a configuration has beside the usual.
#[derive(Default)]
struct Extra<'a> {
    /// Further keys of `[listen]`.
    listen: &'a str,
    /// Further keys of the upstream.
    upstream: &'a str,
    /// Further keys of the fenced route.
    route: &'a str,
    /// Further tables.
    tables: &'a str,
}

fn configuration(
    [proxy, leases, admin]: [SocketAddr; 3],
    backing: &Backing,
    upstream: SocketAddr,
    extra: &Extra<'_>,
) -> String {
    let Backing { store, coordinator } = backing;
    let Extra { listen, upstream: of_upstream, route, tables } = extra;
    format!(
        r#"[listen]
proxy  = "{proxy}"
leases = "{leases}"
admin  = "{admin}"
{listen}

[store]
url = "{store}"

[coordinator]
url = "{coordinator}"

[[upstream]]
name = "bare"
url  = "http://{upstream}"
{of_upstream}

[[route]]
name     = "held"
path     = "/heldwith/{{id}}"
resource = "held-{{id}}"
upstream = "bare"
{route}

[[route]]
name     = "ordered"
path     = "/ordering/{{id}}"
resource = "{ORDERED_RESOURCE_PREFIX}{{id}}"
upstream = "bare"
tokens   = "ordered"

[[route]]
name     = "unfenced"
path     = "/unfenced/{{id}}"
upstream = "bare"
fenced   = []
{tables}"#,
    )
}

/// Takes the lease of [`held_path`]`(id)`; taking it again ends the one before.
pub(crate) async fn acquire(leases: &mut Client, id: &str) -> Result<Token> {
    let request = Request::post(format!("/v1/leases/held-{id}"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::from(Bytes::from_static(br#"{"owner":"bench","ttl_ms":30000}"#)))?;
    let (status, body) = leases.send(request).await.context("asking for a lease")?;
    if status != StatusCode::CREATED {
        bail!("asking for a lease: {status}: {}", String::from_utf8_lossy(&body));
    }
    #[derive(serde::Deserialize)]
    struct Lease {
        token: Token,
    }
    Ok(serde_json::from_slice::<Lease>(&body).context("reading a lease")?.token)
}

/// Gives the lease of [`held_path`]`(id)` back.
pub(crate) async fn release(leases: &mut Client, id: &str, token: Token) -> Result<()> {
    let request = Request::delete(format!("/v1/leases/held-{id}?owner=bench&token={token}"))
        .body(Full::default())?;
    let (status, body) = leases.send(request).await.context("giving a lease back")?;
    if status != StatusCode::NO_CONTENT {
        bail!("giving a lease back: {status}: {}", String::from_utf8_lossy(&body));
    }
    Ok(())
}

/// Writes once; anything but success is an error.
pub(crate) async fn put(proxy: &mut Client, path: &str, token: Token) -> Result<()> {
    static BODY: [u8; 256] = [b'x'; 256];
    let request = Request::put(path)
        .header("fencing-token", token.to_string())
        .body(Full::from(Bytes::from_static(&BODY)))?;
    let (status, body) = proxy.send(request).await.context("writing")?;
    if !status.is_success() {
        bail!("PUT {path} with token {token}: {status}: {}", String::from_utf8_lossy(&body));
    }
    Ok(())
}
