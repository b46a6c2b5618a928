//! The network: a TCP proxy between every two parts, each of which can be held up, swallow what is sent,
//! or break.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// What a link does to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    Fair,
    /// Nothing comes through until it is fair again; then everything does that was not reset meanwhile.
    Held,
    /// Bytes vanish and nobody is told. A connection that lost some is reset when it is fair again.
    Swallowed,
    /// Connections are reset, new ones as well.
    Cut,
}

/// Carries all links in one thread.
pub struct Network {
    handle: Handle,
    _stop: DropGuard,
}

/// See the module.
#[derive(Clone)]
pub struct Link {
    /// Where it is entered.
    pub address: SocketAddr,
    state: watch::Sender<State>,
    handle: Handle,
}

#[derive(Clone, Copy)]
struct State {
    weather: Weather,
    /// Tells one change from another.
    changes: u64,
    to: Option<SocketAddr>,
}

/// The connection is to be reset.
struct Broken;

impl Network {
    pub fn start() -> Network {
        let stop = CancellationToken::new();
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (handle, stopped) = (runtime.handle().clone(), stop.clone());
        thread::spawn(move || runtime.block_on(stopped.cancelled()));
        Network { handle, _stop: stop.drop_guard() }
    }

    /// A link that leads nowhere yet.
    pub fn link(&self) -> Link {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        listener.set_nonblocking(true).expect("a socket can do that");
        let state = watch::Sender::new(State { weather: Weather::Fair, changes: 0, to: None });
        let states = state.subscribe();
        self.handle.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("it was made for that");
            loop {
                if let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(carry(client, states.clone()));
                }
            }
        });
        Link { address, state, handle: self.handle.clone() }
    }

    pub fn link_to(&self, to: SocketAddr) -> Link {
        let link = self.link();
        link.lead_to(to);
        link
    }
}

impl Link {
    /// Leads new connections there.
    pub fn lead_to(&self, to: SocketAddr) {
        self.state.send_modify(|state| state.to = Some(to));
    }

    /// Changes the weather for so long. The link turns it fair by itself, so that nothing is held for
    /// longer when whoever asked for it is late.
    pub fn turn(&self, weather: Weather, lasts: Duration) {
        self.change(weather);
        let (state, changes) = (self.state.clone(), self.state.borrow().changes);
        self.handle.spawn(async move {
            tokio::time::sleep(lasts).await;
            state.send_if_modified(|state| {
                let is_ours = state.changes == changes;
                if is_ours {
                    state.weather = Weather::Fair;
                }
                is_ours
            });
        });
    }

    fn change(&self, weather: Weather) {
        self.state.send_modify(|state| {
            state.weather = weather;
            state.changes += 1;
        });
    }
}

async fn carry(mut client: TcpStream, mut states: watch::Receiver<State>) {
    let mut server = match connect(&mut states).await {
        Ok(server) => server,
        Err(Broken) => return reset(&client),
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (client_reads, client_writes) = client.split();
    let (server_reads, server_writes) = server.split();
    let carried = tokio::try_join!(
        copy(client_reads, server_writes, states.clone()),
        copy(server_reads, client_writes, states),
    );
    if carried.is_err() {
        reset(&client);
        reset(&server);
    }
}

async fn connect(states: &mut watch::Receiver<State>) -> Result<TcpStream, Broken> {
    let weather = states.borrow().weather;
    let state = *states.wait_for(|state| is_passable(state.weather)).await.map_err(|_| Broken)?;
    // The sender's first packets are gone.
    if weather == Weather::Swallowed || state.weather == Weather::Cut {
        return Err(Broken);
    }
    TcpStream::connect(state.to.ok_or(Broken)?).await.map_err(|_| Broken)
}

/// Carries bytes in one direction to their end.
async fn copy(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut states: watch::Receiver<State>,
) -> Result<(), Broken> {
    let mut buffer = vec![0; 16 * 1024];
    let mut has_lost = false;
    loop {
        // What is held stays in the kernel, so that a sender that resets its connection takes it back.
        let ready = states.wait_for(|state| state.weather != Weather::Held).await;
        let weather = ready.map_err(|_| Broken)?.weather;
        if weather == Weather::Cut || weather == Weather::Fair && has_lost {
            return Err(Broken);
        }
        let read = tokio::select! {
            biased;
            _ = states.changed() => continue,
            read = from.read(&mut buffer) => read,
        };
        if weather == Weather::Swallowed {
            has_lost = true;
            if !matches!(read, Ok(1..)) {
                // The end of it is not delivered, either.
                let _ = states.wait_for(|state| state.weather != Weather::Swallowed).await;
                return Err(Broken);
            }
            continue;
        }
        let length = read.map_err(|_| Broken)?;
        if !matches!(from.as_ref().take_error(), Ok(None)) {
            return Err(Broken);
        }
        if length == 0 {
            return to.shutdown().await.map_err(|_| Broken);
        }
        tokio::select! {
            written = to.write_all(&buffer[..length]) => written.map_err(|_| Broken)?,
            _ = states.wait_for(|state| state.weather == Weather::Cut) => return Err(Broken),
        }
    }
}

fn is_passable(weather: Weather) -> bool {
    matches!(weather, Weather::Fair | Weather::Cut)
}

fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::{Link, Network, Weather};
    use crate::wait_until;

    const LONG: Duration = Duration::from_secs(60);

    fn open(network: &Network) -> (Link, TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let link = network.link_to(listener.local_addr().expect("it is bound"));
        let client = TcpStream::connect(link.address).expect("the link listens");
        let (server, _) = listener.accept().expect("the link connects");
        for stream in [&client, &server] {
            stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket can");
        }
        (link, client, server)
    }

    fn has_arrived(server: &mut TcpStream, text: &[u8]) -> bool {
        let mut read = vec![0; text.len()];
        server.read_exact(&mut read).is_ok() && read == text
    }

    #[test]
    fn what_is_held_comes_through_later() {
        let network = Network::start();
        let (link, mut client, mut server) = open(&network);
        link.turn(Weather::Held, LONG);
        client.write_all(b"late").expect("it is connected");
        assert!(!has_arrived(&mut server, b"late"));
        link.turn(Weather::Fair, LONG);
        wait_until("it arrives", || has_arrived(&mut server, b"late"));
    }

    #[test]
    fn what_is_held_is_lost_when_its_sender_resets_the_connection() {
        let network = Network::start();
        let (link, mut client, mut server) = open(&network);
        link.turn(Weather::Held, LONG);
        client.write_all(b"late").expect("it is connected");
        let zero = Some(Duration::ZERO);
        socket2::SockRef::from(&client).set_linger(zero).expect("a socket can");
        drop(client);
        link.turn(Weather::Fair, LONG);
        let mut read = [0];
        let is_reset = |read: std::io::Result<usize>| {
            read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
        };
        wait_until("the reset arrives, and nothing before it", || is_reset(server.read(&mut read)));
    }

    #[test]
    fn what_is_swallowed_never_comes_and_a_cut_is_told() {
        let network = Network::start();
        let (link, mut client, mut server) = open(&network);
        link.turn(Weather::Swallowed, Duration::from_millis(300));
        client.write_all(b"gone").expect("it is connected");
        wait_until("it is told when the weather is fair", || {
            assert!(!has_arrived(&mut server, b"gone"));
            matches!(client.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset)
        });
        let (link, mut client, _server) = open(&network);
        link.turn(Weather::Cut, LONG);
        wait_until(
            "it is told at once",
            || matches!(client.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset),
        );
    }
}
