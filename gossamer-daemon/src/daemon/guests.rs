//! Connections: those whose other side has not shown the key yet (*guests*), and those that have.
//!
//! Guests are few; which of them has to go for a new one is [`Unauthenticated`]'s rule. Peers with the key are counted by
//! themselves.

use std::collections::HashMap;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use comm::secure::Unauthenticated;

/// All of them.
#[derive(Default)]
pub struct Guests {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    guests: Unauthenticated,
    /// Their connections, by number.
    streams: HashMap<u64, TcpStream>,
    next: u64,
    /// How many have shown the key.
    known: usize,
}

/// A connection, for as long as it lives.
pub struct Place {
    guests: Arc<Guests>,
    counts: Counts,
}

/// As what a connection counts.
enum Counts {
    Guest(u64),
    Known,
    Nothing,
}

impl Guests {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets one in; says who had to go for it, if there are more than `most` of them.
    ///
    /// # Errors
    /// When the process has no file descriptors left.
    pub fn admit(
        self: &Arc<Self>,
        tcp: &TcpStream,
        peer: SocketAddr,
        most: usize,
    ) -> std::io::Result<(Place, Option<IpAddr>)> {
        let tcp = tcp.try_clone()?;
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.guests.insert(number, peer.ip());
        state.streams.insert(number, tcp);
        let gone = state.guests.evict_beyond(most).map(|evicted| {
            if let Some(tcp) = state.streams.remove(&evicted.number) {
                let _ = tcp.shutdown(Shutdown::Both); // its thread sees that, and ends
            }
            evicted.address
        });
        drop(state);
        Ok((Place { guests: Arc::clone(self), counts: Counts::Guest(number) }, gone))
    }
}

impl State {
    /// False when it had to go before.
    fn remove(&mut self, number: u64) -> bool {
        self.streams.remove(&number);
        self.guests.remove(number)
    }
}

impl Place {
    /// Its other side has shown the key. False when it had to go meanwhile, or `most` others have shown it.
    #[must_use]
    pub fn is_known(&mut self, most: usize) -> bool {
        let mut state = self.guests.state();
        let Counts::Guest(number) = self.counts else { return false };
        self.counts = Counts::Nothing;
        if state.remove(number) && state.known < most {
            state.known += 1;
            self.counts = Counts::Known;
        }
        matches!(self.counts, Counts::Known)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.guests.state();
        match self.counts {
            Counts::Guest(number) => drop(state.remove(number)),
            Counts::Known => state.known -= 1,
            Counts::Nothing => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    /// A connection, and its other end.
    fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, theirs)
    }

    #[test]
    fn a_flood_shuts_out_itself() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let guests = Arc::new(Guests::default());
        let friend: SocketAddr = "192.0.2.1:9".parse().unwrap();
        let (tcp, _friend) = connection(&listener);
        let (mut place, gone) = guests.admit(&tcp, friend, 3).unwrap();
        assert_eq!(gone, None);
        let mut floods = Vec::new();
        for number in 0..50u128 {
            let (tcp, theirs) = connection(&listener);
            let peer = SocketAddr::new(IpAddr::V6((0x2001_0db8_u128 << 96 | number).into()), 9);
            let (place, gone) = guests.admit(&tcp, peer, 3).unwrap();
            assert_eq!(gone, (number >= 2).then(|| "2001:db8::".parse().unwrap()), "{number}");
            floods.push((tcp, theirs, place));
        }
        assert_eq!(floods[0].1.read(&mut [0]).unwrap(), 0, "the oldest was closed");
        assert!(!floods[0].2.is_known(9), "it had to go");
        assert!(
            place.is_known(1) && floods[49].2.is_known(2) && !floods[48].2.is_known(2),
            "known ones are counted too"
        );
        drop((place, floods));
        let state = guests.state();
        assert_eq!((state.guests.len(), state.streams.len(), state.known), (0, 0, 0));
    }
}
