//! A slow network: a TCP proxy that now and then holds what a client sent for longer than a lease
//! lasts, and delivers it even when the client is long gone.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::chance::Chance;

/// Lives as long as the process; its threads end with their connections.
#[derive(Clone)]
pub(super) struct Network {
    pub address: SocketAddr,
    held: Arc<AtomicUsize>,
}

impl Network {
    /// Leads to `to`. One connection in eight is held for `hold` to three times as long.
    pub(super) fn start(to: SocketAddr, hold: Duration, chance: Chance) -> Network {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let network = Network { address, held: Arc::default() };
        let (held, chance) = (network.held.clone(), Mutex::new(chance));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let delay = {
                    let mut chance = chance.lock().expect("no panic in there");
                    chance.one_in(8).then(|| hold + hold.mul_f64(2.0 * chance.fraction()))
                };
                let held = held.clone();
                thread::spawn(move || carry(&client, to, delay, &held));
            }
        });
        network
    }

    /// How many connections were held.
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

fn carry(client: &TcpStream, to: SocketAddr, delay: Option<Duration>, held: &AtomicUsize) {
    let Ok(server) = TcpStream::connect(to) else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    thread::scope(|scope| {
        scope.spawn(|| {
            copy(&server, client, None);
            // The way back is closed: whatever else the client sends has no use.
            let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
        });
        copy(client, &server, delay.map(|delay| (delay, held)));
        if delay.is_none() {
            let _ = server.shutdown(Shutdown::Write);
        }
        // The end of a held connection is held, too: the server sees it after its answer.
    });
}

fn copy(
    mut from: &TcpStream,
    mut to: &TcpStream,
    mut hold_first: Option<(Duration, &AtomicUsize)>,
) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if let Some((delay, held)) = hold_first.take() {
            thread::sleep(delay);
            held.fetch_add(1, Ordering::Relaxed);
        }
        if to.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}
