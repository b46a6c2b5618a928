//! The connection below a question.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// A waiting acquisition is silent for long: probes tell a patient gateway from a dead one.
const PROBE_EVERY: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;

/// A connection, with TLS on it or without.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Connects to the first address of `host` that answers. All together have `within`: one that says
/// nothing must not use up the time of the next.
pub(super) async fn connect(host: &str, port: u16, within: Duration) -> io::Result<TcpStream> {
    let addresses: Vec<_> = lookup_host((host, port)).await?.collect();
    let share = within / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut why = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return prepared(stream),
            Ok(Err(error)) => why = error,
            Err(_) => why = io::Error::new(io::ErrorKind::TimedOut, "it does not answer"),
        }
    }
    Err(why)
}

fn prepared(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepintvl(&stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(&stream, PROBES)?;
    Ok(stream)
}
