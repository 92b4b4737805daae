//! `tcp`: the fabric between hosts. A one-sided write is a frame on a TCP connection. The receiving machine
//! stores it into its region: its *I/O thread* does that, or a worker that is polling.
//!
//! Here: opening the fabric, and its connections. Beside it: `reach` (making them), `sender` (the sending
//! end), `frame` (wire format, and stores into the region), `poller` (the receiving end), `poller_lock` (which
//! thread reads), `serving` and `reads` (reads of shares, at owner and reader), `incoming` and `greeting`
//! (accepting connections), `control` (liveness of machines), `outgoing` (liveness of connections), `breaks`
//! (their ends by errors), `shared` (their common state).
//!
//! Connections: one for each worker and remote machine, which carries that worker's writes to that machine
//! (thesis 3.2.9; the first worker takes over those of the thread that starts the machine), and between each
//! two machines one more for heartbeats and the graceful close. At the start
//! of each one both sides prove that they have the program's key, so only the program's machines can write
//! into a region: the connection between two machines does so by the handshake of [`crate::secure`], the
//! thousands of connections of workers by keyed hashes. The frames are in clear: an attacker that can change
//! packets between the hosts can change the program's behaviour, as with RDMA. Use this fabric on networks
//! where that is acceptable, or under a tunnel.
//!
//! Death: the end of a peer's process shows at once, since its connections close; a peer that is cut off or
//! stands still shows after [`Limits::silence`]. So does one that is reached by some connections only: a
//! single connection whose packets are lost on the way would keep a worker waiting for ever. Writes to a dead
//! peer vanish; [`Fabric::lost`] and [`Fabric::cause`] report the death.
//!
//! Cost: a batch of writes and wakes is one system call at the sender (`flush`). At the receiver one read
//! takes all received bytes, up to 256 KiB, and a parked worker is woken once for them. A connection holds at
//! most 128 KiB at the sender and none at the receiver. A connection with reads of shares has another buffer
//! of 64 KiB at the reader, and at the owner some 20 KiB while answers wait for room; at most 4 MiB of answers is
//! under way on it. Parts of 4 KiB and more go from the share to the socket, and from the socket into the buffer of
//! a reader that is taking them, without another copy. The reader keeps other bytes of a read, in memory of the read's
//! length, until the read is taken.

mod breaks;
mod control;
mod frame;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod greeting;
mod incoming;
mod outgoing;
mod poller;
mod poller_lock;
mod reach;
mod reads;
mod sender;
mod serving;
mod shared;
#[cfg(test)]
mod tests;

use crate::connected_pairs::ConnectedPairs;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::fabric::{Connection, Fabric};
use crate::ids::{Loss, MachineId, WorkerId};
use crate::memory::Region;
use crate::secure::Key;
use breaks::Break;
use greeting::Use;
use incoming::Crowd;
use outgoing::Line;
use poller::Poller;
use poller_lock::PollerLock;
use sender::TcpConnection;
use shared::{Order, TcpShared};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Connections that may wait for a machine that does not accept them yet, strangers' among them; the system
/// may allow fewer (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;
/// Worker that stands for the thread that starts the machine. Its connections go to the next worker.
const FIRST_THREAD: WorkerId = WorkerId(u16::MAX);

/// Timing of the detection of silent peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Time between two heartbeats on each unused connection, up to some dozens of them; with more, each has
    /// its turn later, at the latest after half of `silence`. 500 ms by default.
    pub heartbeat: Duration,
    /// Silence after which a peer is dead; 5 s by default. If that is less than four heartbeats, they are
    /// sent four times within it.
    pub silence: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { heartbeat: Duration::from_millis(500), silence: Duration::from_secs(5) }
    }
}

/// Listening socket of one machine. Made before its fabric, so that the others can learn its address.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    limits: Limits,
}

impl Listener {
    /// Listens at `address`; port 0 takes any free port. The others connect to
    /// [`address`](Listener::address), so they must be able to reach its host part.
    ///
    /// # Errors
    /// [`Error::Listen`], which names the cure.
    pub fn bind(address: SocketAddr) -> Result<Listener, Error> {
        let refuse = |source: std::io::Error| {
            let cure = match source.kind() {
                ErrorKind::AddrInUse => "another program has this port: take another, or 0 for any that is free",
                ErrorKind::AddrNotAvailable => "no interface of this host has this address: see `ip address`",
                ErrorKind::PermissionDenied => "ports below 1024 are for privileged users: take another",
                _ => "see whether the network is up",
            };
            Error::Listen { address, source, cure }
        };
        let listener = TcpListener::bind(address).map_err(refuse)?;
        rustix::net::listen(&listener, BACKLOG).map_err(|error| refuse(error.into()))?;
        let address = listener.local_addr().map_err(refuse)?;
        Ok(Listener { listener, address, limits: Limits::default() })
    }

    /// Returns the address it listens at, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the limits for silent peers. All machines of a program use the same.
    pub fn with_limits(self, limits: Limits) -> Listener {
        Listener { limits, ..self }
    }
}

/// One machine's end of a `tcp` fabric. Dropping it closes it gracefully; connections stay usable after that.
pub struct TcpFabric {
    shared: Arc<TcpShared>,
    poller: Arc<PollerLock>,
    key: Key,
    addresses: Vec<Option<SocketAddr>>,
    limits: Limits,
    timeout: Duration,
    connected: ConnectedPairs,
    io_thread: Option<JoinHandle<()>>,
    last_order: Order,
}

impl TcpFabric {
    /// Joins the program as `machine`. `peers` has one entry for each machine of the program, in order: its
    /// address, or `None` for those that this fabric does not serve (the own entry is ignored). Peers write
    /// into `region`. All machines have bound their listeners before the first of them opens its fabric, and
    /// use the same `key`. Returns when all peers have come up; `timeout` bounds the wait, and that of each
    /// [`connect`](Fabric::connect).
    ///
    /// # Errors
    /// [`Error::PeerMissing`], [`Error::PeerLost`], [`Error::Unreachable`] name the machine that did not come
    /// up; [`Error::Crowded`], [`Error::NotLetIn`] report that strangers were in the way; [`Error::WrongKey`]
    /// and the other errors of a handshake ([`SecureStream::connect`](crate::secure::SecureStream::connect));
    /// [`Error::Bootstrap`] when `machine` or the region does not fit; [`Error::System`].
    pub fn open(
        listener: Listener,
        machine: MachineId,
        peers: Vec<Option<SocketAddr>>,
        key: Key,
        region: Arc<Region>,
        timeout: Duration,
    ) -> Result<TcpFabric, Error> {
        if usize::from(machine.0) >= peers.len() || peers.len() > usize::from(u16::MAX) {
            return Err(Error::bootstrap(format!("{} addresses for {machine}", peers.len())));
        }
        if region.bytes() > frame::REGION_BYTES_MAX {
            let limit = frame::REGION_BYTES_MAX;
            return Err(Error::bootstrap(format!("{} bytes of region, where tcp reaches {limit}", region.bytes())));
        }
        let mut addresses = peers;
        addresses[usize::from(machine.0)] = None;
        let Listener { listener, limits, .. } = listener;
        let shared = Arc::new(TcpShared::new(machine, region, &addresses, limits.silence)?);
        let receiver = Poller::new(Arc::clone(&shared), key.clone(), listener, limits)?;
        let poller = Arc::new(PollerLock::new(Arc::clone(&shared), receiver));
        let watched = Arc::clone(&poller);
        let io_thread = std::thread::Builder::new()
            .name("gossamer-tcp".to_owned())
            .spawn(move || watched.run())
            .map_err(Error::system("starting the thread that receives"))?;
        let (connected, io_thread) = (ConnectedPairs::default(), Some(io_thread));
        // Until the start has succeeded, the end of this counts as a death for the others.
        let last_order = Order::Stop;
        let mut fabric =
            TcpFabric { shared, poller, key, addresses, limits, timeout, connected, io_thread, last_order };
        fabric.meet_all()?;
        fabric.last_order = Order::Leave;
        Ok(fabric)
    }

    /// Makes the control connections to the peers of higher number, and waits for those of lower.
    fn meet_all(&self) -> Result<(), Error> {
        let (deadline, own) = (Deadline::after(self.timeout), self.machine());
        let served = self.shared.served();
        let higher: Vec<MachineId> = served.iter().copied().filter(|peer| *peer > own).collect();
        self.reach_all(&higher, Use::Control, self.timeout, |peer, reached| {
            let (stream, region_bytes) = reached?;
            self.shared.arrived(peer, region_bytes);
            self.shared.order(Order::Control(peer, stream));
            Ok(())
        })?;
        match self.shared.liveness.wait_for_arrivals(&served, deadline) {
            None => Ok(()),
            Some((machine, Some(_))) => Err(Error::PeerLost { machine }),
            Some((machine, None)) => Err(self.missing(machine)),
        }
    }

    /// Watches the connection of `worker` to `peer`, if it could be made; `None` for a peer that is gone.
    fn line(
        &self,
        peer: MachineId,
        worker: WorkerId,
        reached: Result<(TcpStream, usize), Error>,
    ) -> Result<Option<Arc<Line>>, Error> {
        match reached {
            Ok((stream, _)) => {
                let line = Arc::new(Line::new(stream));
                let watched = self.shared.outgoing.watch(self.poller.epoll(), (peer, worker.0), &line);
                watched.map_err(Error::system(format!("watching the connection to {peer}")))?;
                Ok(Some(line))
            }
            // The peer was there and no longer is: the I/O thread finds out how it ended.
            Err(Error::Unreachable { source, .. }) => {
                self.shared.suspect(peer, Break::Explained(format!("a connection to it could not be made: {source}")));
                Ok(None)
            }
            Err(error @ (Error::Closed { .. } | Error::TimedOut { .. } | Error::Unwanted { .. })) => {
                self.shared.suspect(peer, Break::Explained(error.to_string()));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the error for a peer that has not connected, which need not be the peer's fault.
    fn missing(&self, machine: MachineId) -> Error {
        let waited_ms = self.timeout.as_millis();
        match self.shared.crowd() {
            Some(Crowd { evicted, address }) => Error::Crowded { machine, strangers: evicted, address, waited_ms },
            None => Error::PeerMissing { machine, step: "connect", waited_ms },
        }
    }
}

impl Fabric for TcpFabric {
    fn machine(&self) -> MachineId {
        self.shared.machine
    }

    fn machines(&self) -> u16 {
        self.addresses.len() as u16
    }

    fn region(&self) -> &Region {
        &self.shared.region
    }

    fn region_bytes(&self, peer: MachineId) -> Result<usize, Error> {
        self.shared.region_bytes(peer)
    }

    fn connect(&self, peer: MachineId, worker: WorkerId) -> Result<Box<dyn Connection>, Error> {
        let mut connections = self.connect_all(&[peer], worker)?;
        connections.pop().ok_or_else(|| Error::bootstrap(format!("no connection to {peer}")))
    }

    fn connect_all(&self, peers: &[MachineId], worker: WorkerId) -> Result<Vec<Box<dyn Connection>>, Error> {
        let mut lines = HashMap::new();
        let mut wanted = Vec::new();
        for peer in peers {
            self.shared.region_bytes(*peer)?;
            self.connected.insert(*peer, worker)?;
            if self.shared.lost(*peer)?.is_none() {
                match self.shared.outgoing.take_spare(*peer) {
                    Some(line) => drop(lines.insert(*peer, line)),
                    None => wanted.push(*peer),
                }
            }
        }
        self.reach_all(&wanted, Use::Data { worker: worker.0 }, self.timeout, |peer, reached| {
            lines.extend(self.line(peer, worker, reached)?.map(|line| (peer, line)));
            Ok(())
        })?;
        let connection = |peer: &MachineId| -> Result<Box<dyn Connection>, Error> {
            let (region_bytes, line) = (self.shared.region_bytes(*peer)?, lines.remove(peer));
            let mut connection = TcpConnection::new(*peer, region_bytes, line, Arc::clone(&self.shared));
            connection.is_passed_on = worker == FIRST_THREAD;
            Ok(Box::new(connection))
        };
        peers.iter().map(connection).collect()
    }

    fn will_park(&self, _worker: WorkerId) {
        self.poller.hand_over();
    }

    fn poll(&self, _worker: WorkerId) -> Result<(), Error> {
        self.shared.check()?;
        self.poller.take_turn();
        Ok(())
    }

    fn cause(&self, peer: MachineId) -> Option<String> {
        self.shared.liveness.cause(peer)
    }

    fn lost(&self, peer: MachineId) -> Result<Option<Loss>, Error> {
        self.shared.lost(peer)
    }

    fn watch(&self, known: &[MachineId], timeout: Duration) -> Result<Option<MachineId>, Error> {
        self.shared.liveness.watch(known, timeout)
    }

    fn fence(&self, peer: MachineId, _timeout: Duration) -> Result<(), Error> {
        self.shared.lost(peer)?;
        self.poller.shut_out(peer)
    }

    fn end_watch(&self) {
        self.shared.liveness.end_watch();
    }
}

impl std::fmt::Debug for TcpFabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpFabric").field("machine", &self.machine()).field("addresses", &self.addresses).finish()
    }
}

impl Drop for TcpFabric {
    fn drop(&mut self) {
        self.shared.outgoing.close_spares();
        self.shared.order(std::mem::replace(&mut self.last_order, Order::Stop));
        if let Some(io_thread) = self.io_thread.take() {
            // It reports a panic of its own (`PollerLock::run`).
            let _ = io_thread.join();
        }
    }
}
