//! A TCP wire of the test's own, to be cut without either end being told, and to be led elsewhere.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

/// A listener that passes everything on to another one. It ends with the process.
pub struct Wire {
    pub port: u16,
    state: Arc<(Mutex<State>, Condvar)>,
}

struct State {
    to: SocketAddr,
    is_cut: bool,
    holds_requests: bool,
    /// Connections and pieces of requests that wait for it to be mended.
    held_back: usize,
    /// How often it was led elsewhere: connections of an earlier time are over.
    times: usize,
}

impl Wire {
    /// A wire to a port of 127.0.0.1.
    pub fn to(port: u16) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let own = listener.local_addr().expect("it is bound").port();
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        let state = Arc::new((
            Mutex::new(State { to, is_cut: false, holds_requests: false, held_back: 0, times: 0 }),
            Condvar::new(),
        ));
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

    /// From now on nothing passes towards the port; answers do.
    pub fn hold_requests(&self) {
        self.state.0.lock().expect("no test panics with it").holds_requests = true;
    }

    /// Whether a request is under way that is held back.
    pub fn holds_back(&self) -> bool {
        self.state.0.lock().expect("no test panics with it").held_back > 0
    }

    /// What was held back goes on.
    pub fn mend(&self) {
        let mut state = self.state.0.lock().expect("no test panics with it");
        (state.is_cut, state.holds_requests) = (false, false);
        drop(state);
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
        let state = when_mended(state, true);
        (state.to, state.times)
    };
    let Ok(far) = TcpStream::connect(to) else { return };
    let (Ok(near_too), Ok(far_too)) = (near.try_clone(), far.try_clone()) else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let shared = Arc::clone(state);
    thread::spawn(move || pass(far_too, near_too, &shared, times, false));
    pass(near, far, state, times, true);
}

fn when_mended(state: &(Mutex<State>, Condvar), is_request: bool) -> MutexGuard<'_, State> {
    let (lock, changed) = state;
    let mut state = lock.lock().expect("no test panics with it");
    state.held_back += usize::from(is_request);
    let waits = |state: &mut State| state.is_cut || (is_request && state.holds_requests);
    let mut state = changed.wait_while(state, waits).expect("as above");
    state.held_back -= usize::from(is_request);
    state
}

fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    state: &Arc<(Mutex<State>, Condvar)>,
    times: usize,
    is_request: bool,
) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(length) = from.read(&mut buffer) {
        let state = when_mended(state, is_request && length > 0);
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
