//! Connections of a view: unauthenticated ones, which have not shown the token yet, and authenticated ones.
//!
//! A new one is always accepted. If too many are unauthenticated, one of the address with the most is closed for it
//! ([`Unauthenticated`]): waiting holds no place, and a client with the token, which needs a moment for its request,
//! gets in. Authenticated ones are counted by themselves; more are refused.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use comm::secure::Unauthenticated;

/// Most connections at a time, of each of the two kinds.
pub(super) const CONNECTIONS_MAX: usize = 16;

/// All connections.
#[derive(Default)]
pub(super) struct Visitors(Mutex<State>);

#[derive(Default)]
struct State {
    strangers: Unauthenticated,
    /// Unauthenticated connections, by number.
    streams: HashMap<u64, TcpStream>,
    next: u64,
    /// Number of authenticated connections.
    known: usize,
}

/// A connection, while it is served.
pub(super) struct Visitor {
    all: Arc<Visitors>,
    number: u64,
    is_known: bool,
}

impl Visitors {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a connection.
    pub(super) fn enter(self: &Arc<Self>, stream: &TcpStream, address: IpAddr) -> io::Result<Visitor> {
        let stream = stream.try_clone()?;
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.strangers.insert(number, address);
        state.streams.insert(number, stream);
        if let Some(evicted) = state.strangers.evict_beyond(CONNECTIONS_MAX)
            && let Some(stream) = state.streams.remove(&evicted.number)
        {
            let _ = stream.shutdown(Shutdown::Both); // its thread sees that, and ends
        }
        drop(state);
        Ok(Visitor { all: Arc::clone(self), number, is_known: false })
    }
}

impl State {
    /// Removes an unauthenticated connection. False if it was closed before.
    fn remove(&mut self, number: u64) -> bool {
        self.streams.remove(&number);
        self.strangers.remove(number)
    }
}

impl Visitor {
    /// Marks it as authenticated: it has shown the token. False if there are too many of those, or it was closed
    /// meanwhile.
    pub(super) fn make_known(&mut self) -> bool {
        let mut state = self.all.state();
        if !self.is_known && state.known < CONNECTIONS_MAX && state.remove(self.number) {
            state.known += 1;
            self.is_known = true;
        }
        self.is_known
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        let mut state = self.all.state();
        if self.is_known {
            state.known -= 1;
        } else {
            state.remove(self.number);
        }
    }
}
