//! Connections: those whose other side has not shown the key yet (*guests*), and those that have.
//!
//! Guests are few, and a new one is always let in: where that makes too many, the oldest of the address that has the most has
//! to go. So whoever floods a daemon shuts out himself, and a peer with the key, whose handshake takes a moment, gets in. Peers
//! with the key are counted by themselves.

use std::collections::BTreeMap;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All of them.
#[derive(Default)]
pub struct Guests {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By their number, which rises.
    guests: BTreeMap<u64, Guest>,
    next: u64,
    /// How many have shown the key.
    known: usize,
}

struct Guest {
    network: IpAddr,
    tcp: TcpStream,
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
        let guest = Guest { network: network(peer.ip()), tcp: tcp.try_clone()? };
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.guests.insert(number, guest);
        let gone = (state.guests.len() > most).then(|| state.make_room()).flatten();
        drop(state);
        Ok((Place { guests: Arc::clone(self), counts: Counts::Guest(number) }, gone))
    }
}

impl State {
    /// Whoever has the most loses its oldest.
    fn make_room(&mut self) -> Option<IpAddr> {
        let mut counts: BTreeMap<IpAddr, (usize, u64)> = BTreeMap::new(); // how many, and the oldest
        for (number, guest) in &self.guests {
            counts.entry(guest.network).or_insert((0, *number)).0 += 1;
        }
        let (network, (_, oldest)) =
            counts.into_iter().max_by_key(|(_, (count, oldest))| (*count, std::cmp::Reverse(*oldest)))?;
        let guest = self.guests.remove(&oldest)?;
        let _ = guest.tcp.shutdown(Shutdown::Both); // its thread sees that, and ends
        Some(network)
    }
}

impl Place {
    /// Its other side has shown the key. False when it had to go meanwhile, or `most` others have shown it.
    #[must_use]
    pub fn is_known(&mut self, most: usize) -> bool {
        let mut state = self.guests.state();
        let Counts::Guest(number) = self.counts else { return false };
        self.counts = Counts::Nothing;
        if state.guests.remove(&number).is_some() && state.known < most {
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
            Counts::Guest(number) => drop(state.guests.remove(&number)),
            Counts::Known => state.known -= 1,
            Counts::Nothing => {}
        }
    }
}

/// What one stranger may have as many addresses of as he likes: of IPv6 the first half.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        v4 => v4,
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
        let (flood, friend): (SocketAddr, SocketAddr) =
            ("[2001:db8::1]:9".parse().unwrap(), "192.0.2.1:9".parse().unwrap());
        let (tcp, _friend) = connection(&listener);
        let (mut place, gone) = guests.admit(&tcp, friend, 3).unwrap();
        assert_eq!(gone, None);
        let mut floods = Vec::new();
        for number in 0..50u128 {
            let (tcp, theirs) = connection(&listener);
            let peer = SocketAddr::new(IpAddr::V6((0x2001_0db8_u128 << 96 | number).into()), 9);
            let (place, gone) = guests.admit(&tcp, peer, 3).unwrap();
            assert_eq!(gone, (number >= 2).then(|| network(flood.ip())), "{number}");
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
        assert_eq!((state.guests.len(), state.known), (0, 0));
    }
}
