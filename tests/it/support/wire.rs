//! A TCP wire of the test's own, to be cut without either end being told, and to be led elsewhere.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// A listener that passes everything on to another one. It ends with the process.
pub struct Wire {
    pub port: u16,
    state: Arc<(Mutex<State>, Condvar)>,
}

struct State {
    to: SocketAddr,
    is_cut: bool,
    /// How often it was led elsewhere: connections of an earlier time are over.
    times: usize,
}

impl Wire {
    /// A wire to a port of 127.0.0.1.
    pub fn to(port: u16) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let own = listener.local_addr().expect("it is bound").port();
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        let state = Arc::new((Mutex::new(State { to, is_cut: false, times: 0 }), Condvar::new()));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                thread::spawn(move || connect(near, &state));
            }
        });
        Wire { port: own, state }
    }

    /// From now on nothing passes, in either direction, and nobody is told.
    pub fn cut(&self) {
        self.state.0.lock().expect("no test panics with it").is_cut = true;
    }

    /// What was held back goes on.
    pub fn mend(&self) {
        self.state.0.lock().expect("no test panics with it").is_cut = false;
        self.state.1.notify_all();
    }

    /// Leads to another port; connections there are end.
    pub fn lead_to(&self, port: u16) {
        let mut state = self.state.0.lock().expect("no test panics with it");
        state.to.set_port(port);
        state.times += 1;
        drop(state);
        self.state.1.notify_all();
    }
}

fn connect(near: TcpStream, state: &Arc<(Mutex<State>, Condvar)>) {
    let (to, times) = {
        let (lock, changed) = &**state;
        let state = lock.lock().expect("no test panics with it");
        let state = changed.wait_while(state, |state| state.is_cut).expect("as above");
        (state.to, state.times)
    };
    let Ok(far) = TcpStream::connect(to) else { return };
    let (Ok(near_too), Ok(far_too)) = (near.try_clone(), far.try_clone()) else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let shared = Arc::clone(state);
    thread::spawn(move || pass(far_too, near_too, &shared, times));
    pass(near, far, state, times);
}

fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    state: &Arc<(Mutex<State>, Condvar)>,
    times: usize,
) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(length) = from.read(&mut buffer) {
        let (lock, changed) = &**state;
        let state = lock.lock().expect("no test panics with it");
        let state = changed.wait_while(state, |state| state.is_cut).expect("as above");
        if length == 0 || state.times != times {
            break;
        }
        drop(state);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
