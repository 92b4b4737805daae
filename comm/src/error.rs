//! The one error type of this crate. Each error names the machine it concerns and the cure.

use crate::descriptors::cure;
use crate::ids::{MachineId, ShareId, WorkerId};

/// Errors between machines. When a function returns one, nothing has been written and nothing is half done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An access outside of the region.
    #[error(
        "{bytes} bytes at offset {offset} are not inside a region of {region_bytes} bytes: \
         both sides must compute the same layout"
    )]
    OutOfRange {
        /// First byte of the access.
        offset: usize,
        /// Length of the access.
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
        /// Length of the access.
        bytes: usize,
        /// Size of the word the access must be made of.
        align_bytes: usize,
    },
    /// A machine that is not a peer: not of this rack program, or the own machine, which needs no fabric.
    #[error("{machine} is no peer of {own} in a program of {machines} machines")]
    NoSuchPeer {
        /// The machine asked for.
        machine: MachineId,
        /// The machine that asked.
        own: MachineId,
        /// Number of machines of the program.
        machines: u16,
    },
    /// A second connection for the same worker and machine. The first may be moved, but not made again.
    #[error("worker {} has its connection to {machine} already: use that one", .worker.0)]
    AlreadyConnected {
        /// The peer.
        machine: MachineId,
        /// The worker that asked twice.
        worker: WorkerId,
    },
    /// A machine did not come up in time.
    #[error("{machine} did not {step} within {waited_ms} ms: see whether it was started, and what it printed")]
    PeerMissing {
        /// The missing machine.
        machine: MachineId,
        /// The step it did not do.
        step: &'static str,
        /// Length of the wait, in milliseconds.
        waited_ms: u128,
    },
    /// A machine ended while it was starting.
    #[error("{machine} ended while the program was starting: see what it printed")]
    PeerLost {
        /// The machine that ended.
        machine: MachineId,
    },
    /// Strangers took the port of this machine, so that a peer did not get through.
    #[error(
        "{machine} did not get through to this machine within {waited_ms} ms: {strangers} connections without the \
         program's key came here meanwhile and had to be closed, the last from {address}; see whether it was started, \
         and keep strangers from the ports of the rack's hosts, by a firewall or a network of its own"
    )]
    Crowded {
        /// The peer that did not get through.
        machine: MachineId,
        /// Number of connections that were closed to make room for others.
        strangers: u64,
        /// Address of the last of them; for IPv6 the network.
        address: std::net::IpAddr,
        /// Length of the wait for the peer, in milliseconds.
        waited_ms: u128,
    },
    /// A machine is up, and closed each connection before authentication.
    #[error(
        "{machine} at {address} is there, but did not let this machine in within {waited_ms} ms, in {attempts} \
         attempts: others take its port, as strangers without the key do; see what it printed, and keep strangers from \
         the ports of the rack's hosts"
    )]
    NotLetIn {
        /// The machine.
        machine: MachineId,
        /// Its address.
        address: std::net::SocketAddr,
        /// Number of attempts.
        attempts: u32,
        /// Length of the wait, in milliseconds.
        waited_ms: u128,
    },
    /// The launcher's handover cannot be used.
    #[error("cannot join the rack program: {reason}; start the machines with the launcher of the same version")]
    Bootstrap {
        /// The problem.
        reason: String,
    },
    /// A machine cannot be reached over the network.
    #[error(
        "{machine} cannot be reached at {address}: {source}; see whether its host is up, and its firewall lets it \
         through"
    )]
    Unreachable {
        /// The machine.
        machine: MachineId,
        /// The address tried.
        address: std::net::SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// This machine cannot listen for connections.
    #[error("cannot listen at {address}: {source}; {cure}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The cause.
        source: std::io::Error,
        /// The cure.
        cure: &'static str,
    },
    /// An unusable key file.
    #[error("key file {}: {problem}", .path.display())]
    KeyFile {
        /// Path of the key file.
        path: std::path::PathBuf,
        /// The problem, and the cure.
        problem: String,
    },
    /// The other side of a connection has another key.
    #[error("{peer} has another key: the same key file must be on every host")]
    WrongKey {
        /// The other side.
        peer: String,
    },
    /// The other side speaks another protocol.
    #[error("the server at {peer} is not Gossamer: see whether the port is right")]
    NotGossamer {
        /// The other side.
        peer: String,
    },
    /// The other side has another version. `theirs` is 0 where it is not known.
    #[error(
        "{peer} speaks version {theirs} of the secure connection, this program {ours}: install the same on every host"
    )]
    OtherVersion {
        /// The other side.
        peer: String,
        /// Version of the other side.
        theirs: u8,
        /// Own version.
        ours: u8,
    },
    /// The connection was meant for another purpose.
    #[error("{peer} serves another purpose: see whether the port is right, and the versions are equal")]
    OtherPurpose {
        /// The other side.
        peer: String,
    },
    /// The other side has the right key and still refuses.
    #[error("{peer} refused the connection: see what it printed")]
    Unwanted {
        /// The other side.
        peer: String,
    },
    /// Received bytes did not come from the other side, or were changed on the way.
    #[error(
        "data from {peer} was changed on the way, and this connection is of no more use: connect again, and check the \
         network"
    )]
    Tampered {
        /// The other side.
        peer: String,
    },
    /// The other side did not do its part in time.
    #[error("{peer} did not {doing} in time: see whether it is up and reachable")]
    TimedOut {
        /// The other side.
        peer: String,
        /// The part it did not do.
        doing: &'static str,
    },
    /// The other side closed the connection.
    #[error("{peer} closed the connection {doing}: see what it printed")]
    Closed {
        /// The other side.
        peer: String,
        /// The point of the protocol.
        doing: &'static str,
    },
    /// The other side sent more than its reader allows.
    #[error(
        "{peer} sent a message of more than {limit_bytes} bytes, the limit here: install the same version on both sides"
    )]
    MessageTooLong {
        /// The other side.
        peer: String,
        /// The limit.
        limit_bytes: usize,
    },
    /// A purpose, claim or answer that is too long for a handshake.
    #[error("{bytes} bytes do not fit a handshake, which has room for {limit_bytes}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// The cryptography does not work on this machine.
    #[error("the cryptography does not work on this machine: {reason}")]
    Cipher {
        /// The cause.
        reason: String,
    },
    /// A worker that this machine does not have.
    #[error("there is no worker {worker}: this machine was opened with {workers}")]
    NoSuchWorker {
        /// The worker asked for.
        worker: u16,
        /// Number of workers of the machine.
        workers: u16,
    },
    /// RDMA cannot be used, or not with these settings.
    #[error("RDMA (verbs): {reason}")]
    Verbs {
        /// The problem, and the cure.
        reason: String,
    },
    /// A share cannot be opened or used.
    #[error("{share}: {problem}")]
    Share {
        /// The share.
        share: ShareId,
        /// The problem, and the cure.
        problem: String,
    },
    /// A machine has not opened this share.
    #[error("{machine} has not opened {share}: it must open the share and send a message before others use it")]
    NoSuchShare {
        /// The machine that would own the share.
        machine: MachineId,
        /// The share.
        share: ShareId,
    },
    /// An access to bytes of a share that its owner has not committed.
    #[error(
        "{bytes} bytes at offset {offset} of {share} are not all committed: use only ranges that its owner has \
         committed and announced"
    )]
    NotCommitted {
        /// The share.
        share: ShareId,
        /// First byte of the access.
        offset: usize,
        /// Length of the access.
        bytes: usize,
    },
    /// A read id that this connection did not issue, or that was already taken.
    #[error("there is no read {read_id} on this connection: take each once, on the connection that began it")]
    NoSuchRead {
        /// Number of the read.
        read_id: u64,
    },
    /// The buffer does not have the length of the read. The read can still be taken.
    #[error("read {read_id} has {bytes} bytes, and the buffer {room_bytes}: pass one of the read's length")]
    WrongRoom {
        /// Number of the read.
        read_id: u64,
        /// Length of the read.
        bytes: usize,
        /// Length of the buffer.
        room_bytes: usize,
    },
    /// The machine that a read was to come from is gone.
    #[error("{machine} is gone: the read has no result")]
    Gone {
        /// The machine.
        machine: MachineId,
    },
    /// A machine that is declared dead could not be shut out.
    #[error("{machine} cannot be shut out: {reason}")]
    Unfenced {
        /// The machine.
        machine: MachineId,
        /// The obstacle, and the cure where there is one.
        reason: String,
    },
    /// The operating system refused.
    #[error("{doing}: {source}{}", cure(.source))]
    System {
        /// The operation that failed.
        doing: String,
        /// The cause.
        source: std::io::Error,
    },
}

impl Error {
    /// Returns a converter of a system call's error, which names the operation.
    pub(crate) fn system<E: Into<std::io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Error {
        let doing = doing.into();
        move |source| Error::System { doing, source: source.into() }
    }

    /// Makes an error of code for RDMA.
    pub(crate) fn verbs(reason: impl Into<String>) -> Error {
        Error::Verbs { reason: reason.into() }
    }

    /// Makes an error of code that reads the launcher's handover.
    pub(crate) fn bootstrap(reason: impl Into<String>) -> Error {
        Error::Bootstrap { reason: reason.into() }
    }
}
