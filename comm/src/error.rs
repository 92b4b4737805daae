//! The one error type of this crate. What goes wrong is told with the machine it concerns and what
//! to do about it.

use crate::fabric::{MachineId, WorkerId};
use crate::share::ShareId;

/// What can go wrong between machines. Nothing has been written, and nothing was half done, when
/// one is returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An access that does not lie inside the region it is meant for.
    #[error(
        "{bytes} bytes at offset {offset} are not inside a region of {region_bytes} bytes: \
         both sides must compute the same layout"
    )]
    OutOfRange {
        /// First byte of the access.
        offset: usize,
        /// Its length.
        bytes: usize,
        /// Length of the region.
        region_bytes: usize,
    },
    /// An access that is not made of whole words.
    #[error(
        "{bytes} bytes at offset {offset} are not whole words: offset and length must be multiples of {align_bytes}, \
         and at least one word long"
    )]
    Misaligned {
        /// First byte of the access.
        offset: usize,
        /// Its length.
        bytes: usize,
        /// The word the access must be made of.
        align_bytes: usize,
    },
    /// A machine that is not a peer: not of this rack program, or the own one, for which no fabric
    /// is needed.
    #[error("{machine} is no peer of {own} in a program of {machines} machines")]
    NoSuchPeer {
        /// The machine asked for.
        machine: MachineId,
        /// The machine that asked.
        own: MachineId,
        /// How many machines the program has.
        machines: u16,
    },
    /// A second connection for the same worker and machine. The first may be moved, but not made
    /// again.
    #[error("worker {} has its connection to {machine} already: use that one", .worker.0)]
    AlreadyConnected {
        /// The peer.
        machine: MachineId,
        /// The worker that asked twice.
        worker: WorkerId,
    },
    /// A machine did not come up in the time given.
    #[error("{machine} did not {step} within {waited_ms} ms: see whether it was started, and what it printed")]
    PeerMissing {
        /// Who is missing.
        machine: MachineId,
        /// What it had to do next.
        step: &'static str,
        /// How long it was waited for, in milliseconds.
        waited_ms: u128,
    },
    /// A machine ended while it was starting.
    #[error("{machine} ended while the program was starting: see what it printed")]
    PeerLost {
        /// Who ended.
        machine: MachineId,
    },
    /// Strangers took the port of this machine, so that a peer did not get through.
    #[error(
        "{machine} did not get through to this machine within {waited_ms} ms: {strangers} connections without the \
         program's key came here meanwhile and had to be closed, the last from {address}; see whether it was started, \
         and keep strangers from the ports of the rack's hosts, by a firewall or a network of its own"
    )]
    Crowded {
        /// Who did not get through.
        machine: MachineId,
        /// How many connections had to go for others.
        strangers: u64,
        /// Where the last of them came from; of IPv6 the network.
        address: std::net::IpAddr,
        /// How long the peer was waited for, in milliseconds.
        waited_ms: u128,
    },
    /// A machine is there, and closed each connection before it knew who made it.
    #[error(
        "{machine} at {address} is there, but did not let this machine in within {waited_ms} ms, in {attempts} \
         attempts: others take its port, as strangers without the key do; see what it printed, and keep strangers from \
         the ports of the rack's hosts"
    )]
    NotLetIn {
        /// Which machine.
        machine: MachineId,
        /// Where it is.
        address: std::net::SocketAddr,
        /// How often it was tried.
        attempts: u32,
        /// For how long, in milliseconds.
        waited_ms: u128,
    },
    /// What the launcher handed over cannot be used.
    #[error("cannot join the rack program: {reason}; start the machines with the launcher of the same version")]
    Bootstrap {
        /// What is wrong with it.
        reason: String,
    },
    /// A machine that was to be reached over the network cannot be.
    #[error(
        "{machine} cannot be reached at {address}: {source}; see whether its host is up, and its firewall lets it \
         through"
    )]
    Unreachable {
        /// Which machine.
        machine: MachineId,
        /// Where it was looked for.
        address: std::net::SocketAddr,
        /// Why it did not work.
        source: std::io::Error,
    },
    /// This machine cannot listen for connections.
    #[error("cannot listen at {address}: {source}; {cure}")]
    Listen {
        /// Where it was to listen.
        address: std::net::SocketAddr,
        /// Why it did not work.
        source: std::io::Error,
        /// What to do about it.
        cure: &'static str,
    },
    /// A key file that cannot be used as it is.
    #[error("key file {}: {problem}", .path.display())]
    KeyFile {
        /// Where it is.
        path: std::path::PathBuf,
        /// What is wrong with it, and the cure.
        problem: String,
    },
    /// The other side of a connection has another key.
    #[error("{peer} has another key: the same key file must be on every host")]
    WrongKey {
        /// The other side.
        peer: String,
    },
    /// The other side speaks some other protocol.
    #[error("what answers at {peer} is not Gossamer: see whether the port is right")]
    NotGossamer {
        /// The other side.
        peer: String,
    },
    /// The other side is of another version. `theirs` is 0 where it is not known.
    #[error(
        "{peer} speaks version {theirs} of the secure connection, this program {ours}: install the same on every host"
    )]
    OtherVersion {
        /// The other side.
        peer: String,
        /// Its version.
        theirs: u8,
        /// The own version.
        ours: u8,
    },
    /// The connection was meant for something else.
    #[error("{peer} serves another purpose: see whether the port is right, and the versions are equal")]
    OtherPurpose {
        /// The other side.
        peer: String,
    },
    /// The other side has the right key and refuses nevertheless.
    #[error("{peer} refused the connection: see what it printed")]
    Unwanted {
        /// The other side.
        peer: String,
    },
    /// Something did not come from the other side, or was changed on the way.
    #[error("what came from {peer} was changed on the way: the connection is of no more use")]
    Tampered {
        /// The other side.
        peer: String,
    },
    /// The other side did not do its part in time.
    #[error("{peer} did not {doing} in time: see whether it is up and reachable")]
    TimedOut {
        /// The other side.
        peer: String,
        /// What it had to do.
        doing: &'static str,
    },
    /// The other side closed the connection.
    #[error("{peer} closed the connection {doing}: see what it printed")]
    Closed {
        /// The other side.
        peer: String,
        /// At which point.
        doing: &'static str,
    },
    /// The other side sent more than its reader allows.
    #[error("{peer} sent a message of more than {limit_bytes} bytes, which is the limit here")]
    MessageTooLong {
        /// The other side.
        peer: String,
        /// The limit.
        limit_bytes: usize,
    },
    /// A purpose, claim or answer that does not fit a handshake.
    #[error("{bytes} bytes do not fit a handshake, which has room for {limit_bytes}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The room for it.
        limit_bytes: usize,
    },
    /// The cryptography does not work on this machine.
    #[error("the cryptography does not work on this machine: {reason}")]
    Cipher {
        /// Why.
        reason: String,
    },
    /// A worker that the own machine does not have.
    #[error("there is no worker {worker}: this machine was opened with {workers}")]
    NoSuchWorker {
        /// The worker asked for.
        worker: u16,
        /// How many the machine has.
        workers: u16,
    },
    /// RDMA cannot be used, or not as it was asked for.
    #[error("RDMA (verbs): {reason}")]
    Verbs {
        /// What is wrong, and what helps.
        reason: String,
    },
    /// A share cannot be opened, or not be used.
    #[error("{share}: {problem}")]
    Share {
        /// Which one.
        share: ShareId,
        /// What is wrong with it, and the cure.
        problem: String,
    },
    /// A machine has no such share open.
    #[error("{machine} has not opened {share}: it has to, and to tell so, before others use it")]
    NoSuchShare {
        /// Whose share it would be.
        machine: MachineId,
        /// Which one.
        share: ShareId,
    },
    /// An access inside of a share to what its owner has not committed.
    #[error("{bytes} bytes at offset {offset} of {share} are not all committed: use what its owner has told of only")]
    NotCommitted {
        /// Which one.
        share: ShareId,
        /// First byte of the access.
        offset: usize,
        /// Its length.
        bytes: usize,
    },
    /// A ticket that this connection has not given, or that was taken.
    #[error("there is no read with ticket {ticket} on this connection: each is taken once, where it was begun")]
    NoSuchTicket {
        /// The ticket's number.
        ticket: u64,
    },
    /// What was read does not fit exactly. It can still be taken.
    #[error("ticket {ticket} is for {bytes} bytes, not for {room_bytes}")]
    WrongRoom {
        /// The ticket's number.
        ticket: u64,
        /// Bytes that were read.
        bytes: usize,
        /// Room for them.
        room_bytes: usize,
    },
    /// A machine from which something was to be read is gone.
    #[error("{machine} is gone: what was to be read of it will not come")]
    Gone {
        /// Which machine.
        machine: MachineId,
    },
    /// The operating system refused.
    #[error("{doing}: {source}")]
    System {
        /// What was being done.
        doing: String,
        /// Why it did not work.
        source: std::io::Error,
    },
}

impl Error {
    /// For `map_err` on system calls: says what was being done.
    pub(crate) fn system<E: Into<std::io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Error {
        let doing = doing.into();
        move |source| Error::System { doing, source: source.into() }
    }

    /// For `map_err` and `ok_or_else` on what concerns RDMA.
    pub(crate) fn verbs(reason: impl Into<String>) -> Error {
        Error::Verbs { reason: reason.into() }
    }

    /// For `map_err` and `ok_or_else` on what was handed over.
    pub(crate) fn bootstrap(reason: impl Into<String>) -> Error {
        Error::Bootstrap { reason: reason.into() }
    }
}
