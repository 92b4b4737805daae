//! Open connections of a daemon: the unauthenticated and the authenticated ones.
//!
//! Unauthenticated connections are few; [`Unauthenticated`] picks the one to evict for a new one. Authenticated
//! connections have a count of their own.

use std::collections::HashMap;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use comm::secure::Unauthenticated;

/// All open connections.
#[derive(Default)]
pub struct Admission {
    state: Mutex<AdmissionState>,
}

#[derive(Default)]
struct AdmissionState {
    unauthenticated: Unauthenticated,
    /// The unauthenticated connections, by number.
    streams: HashMap<u64, TcpStream>,
    next: u64,
    /// Number of authenticated connections.
    authenticated: usize,
}

/// A connection, for as long as it lives.
pub struct Admitted {
    admission: Arc<Admission>,
    counts: Counts,
}

/// Quota that a connection uses.
enum Counts {
    Unauthenticated(u64),
    Authenticated,
    Nothing,
}

impl Admission {
    fn state(&self) -> MutexGuard<'_, AdmissionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a connection whose peer has shown the key to a former daemon.
    pub fn admit_authenticated(self: &Arc<Self>) -> Admitted {
        self.state().authenticated += 1;
        Admitted { admission: Arc::clone(self), counts: Counts::Authenticated }
    }

    /// Admits a connection; returns the address of the one evicted for it, if there are more than `most`.
    ///
    /// # Errors
    /// When the process has no file descriptors left.
    pub fn admit(
        self: &Arc<Self>,
        tcp: &TcpStream,
        peer: SocketAddr,
        most: usize,
    ) -> std::io::Result<(Admitted, Option<IpAddr>)> {
        let tcp = tcp.try_clone()?;
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.unauthenticated.insert(number, peer.ip());
        state.streams.insert(number, tcp);
        let gone = state.unauthenticated.evict_beyond(most).map(|evicted| {
            if let Some(tcp) = state.streams.remove(&evicted.number) {
                let _ = tcp.shutdown(Shutdown::Both); // its thread sees that, and ends
            }
            evicted.address
        });
        drop(state);
        Ok((Admitted { admission: Arc::clone(self), counts: Counts::Unauthenticated(number) }, gone))
    }
}

impl AdmissionState {
    /// Removes a connection; false when it was evicted before.
    fn remove(&mut self, number: u64) -> bool {
        self.streams.remove(&number);
        self.unauthenticated.remove(number)
    }
}

impl Admitted {
    /// Accepts the connection as authenticated: its peer has shown the key. False when it was evicted meanwhile, or
    /// there are `most` others.
    #[must_use]
    pub fn accept(&mut self, most: usize) -> bool {
        let mut state = self.admission.state();
        let Counts::Unauthenticated(number) = self.counts else { return false };
        self.counts = Counts::Nothing;
        if state.remove(number) && state.authenticated < most {
            state.authenticated += 1;
            self.counts = Counts::Authenticated;
        }
        matches!(self.counts, Counts::Authenticated)
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut state = self.admission.state();
        match self.counts {
            Counts::Unauthenticated(number) => drop(state.remove(number)),
            Counts::Authenticated => state.authenticated -= 1,
            Counts::Nothing => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    /// Returns a connection, and its other end.
    fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, theirs)
    }

    #[test]
    fn a_flood_shuts_out_itself() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let admission = Arc::new(Admission::default());
        let friend: SocketAddr = "192.0.2.1:9".parse().unwrap();
        let (tcp, _friend) = connection(&listener);
        let (mut admitted, gone) = admission.admit(&tcp, friend, 3).unwrap();
        assert_eq!(gone, None);
        let mut floods = Vec::new();
        for number in 0..50u128 {
            let (tcp, theirs) = connection(&listener);
            let peer = SocketAddr::new(IpAddr::V6((0x2001_0db8_u128 << 96 | number).into()), 9);
            let (admitted, gone) = admission.admit(&tcp, peer, 3).unwrap();
            assert_eq!(gone, (number >= 2).then(|| "2001:db8::".parse().unwrap()), "{number}");
            floods.push((tcp, theirs, admitted));
        }
        assert_eq!(floods[0].1.read(&mut [0]).unwrap(), 0, "the oldest was closed");
        assert!(!floods[0].2.accept(9), "it was evicted");
        assert!(
            admitted.accept(1) && floods[49].2.accept(2) && !floods[48].2.accept(2),
            "authenticated ones are counted too"
        );
        drop((admitted, floods));
        let state = admission.state();
        assert_eq!((state.unauthenticated.len(), state.streams.len(), state.authenticated), (0, 0, 0));
    }
}
