//! Making connections to peers: the attempts, and the messages by which both sides prove that they have the
//! program's key. Not here: the accepting side (`incoming.rs`, `greeting.rs`).
//!
//! A thread that needs connections to many peers sends all first messages before it waits for the first answer:
//! so the threads of a host with few cores do not wake one another for each connection.

use super::greeting::{self, Claim, PURPOSE, Use};
use super::{Limits, TcpFabric, outgoing};
use crate::deadline::Deadline;
use crate::descriptors;
use crate::error::Error;
use crate::fabric::Fabric;
use crate::ids::MachineId;
use crate::memory::WORD_BYTES;
use crate::secure::proof::Proving;
use crate::secure::{Initiating, Key};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Timeout of the first attempt to get a connection from the system; it doubles with each further attempt. Where
/// a queue is full the system retries at growing intervals, so a new attempt gets through sooner.
const FIRST_ATTEMPT: Duration = Duration::from_millis(500);
/// Least time for the peer's answer on a connection that exists, if the time of all attempts allows. An evicted
/// connection is closed, which shows at once; a peer that is only slow, on a host with more work than cores,
/// would have all its work again with another attempt.
const ANSWER_ATTEMPT: Duration = Duration::from_secs(5);
/// Longest pause after an attempt that the other side closed.
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// A connection, and the length of the peer's region.
type Reached = (TcpStream, usize);

impl TcpFabric {
    /// Makes a connection to each of `peers`, and gives it to `take`.
    ///
    /// # Errors
    /// The first error of `take`; [`Error::NoSuchPeer`].
    pub(super) fn reach_all(
        &self,
        peers: &[MachineId],
        purpose: Use,
        timeout: Duration,
        mut take: impl FnMut(MachineId, Result<Reached, Error>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let deadline = Deadline::after(timeout);
        let mut begun = Vec::with_capacity(peers.len());
        for peer in peers {
            let address = self.address_of(*peer)?;
            begun.push((*peer, self.begin(*peer, address, purpose, deadline.left().min(FIRST_ATTEMPT))));
        }
        for (peer, begun) in begun {
            let first = begun.and_then(|begun| begun.finish(self.limits, deadline.left().min(ANSWER_ATTEMPT)));
            take(peer, self.reach_after(Some(first), peer, purpose, deadline.left()))?;
        }
        Ok(())
    }

    /// Makes a connection to a peer, and returns the length of its region.
    #[cfg(test)]
    pub(super) fn reach(&self, machine: MachineId, purpose: Use, timeout: Duration) -> Result<Reached, Error> {
        self.reach_after(None, machine, purpose, timeout)
    }

    /// Returns the result of a first attempt, if it is final. Otherwise tries several times more: a peer whose port
    /// strangers flood may have evicted the connection, or not accepted it yet.
    fn reach_after(
        &self,
        mut first: Option<Result<Reached, Error>>,
        machine: MachineId,
        purpose: Use,
        timeout: Duration,
    ) -> Result<Reached, Error> {
        let address = self.address_of(machine)?;
        let deadline = Deadline::after(timeout);
        let (mut limit, mut pause) = (FIRST_ATTEMPT, Duration::from_millis(1));
        let (mut attempts, mut closed) = (0, 0);
        loop {
            let left = deadline.left();
            let answer_limit = limit.max(ANSWER_ATTEMPT);
            let (is_first, is_last) = (first.is_some(), left <= limit);
            attempts += 1;
            let result = first.take().unwrap_or_else(|| {
                let begun = self.begin(machine, address, purpose, left.min(limit))?;
                begun.finish(self.limits, deadline.left().min(answer_limit))
            });
            let error = match result {
                Err(error) if is_passing(&error) => error,
                result => return result,
            };
            if matches!(error, Error::Closed { .. }) {
                closed += 1;
                std::thread::sleep(pause.min(deadline.left()));
                pause = (2 * pause).min(PAUSE_MAX);
            } else if (is_last && !is_first) || deadline.left().is_zero() {
                let waited_ms = timeout.as_millis();
                return Err(if closed > 0 { Error::NotLetIn { machine, address, attempts, waited_ms } } else { error });
            } else {
                limit *= 2;
            }
            if !self.shared.is_served(machine) {
                return Err(error);
            }
        }
    }

    fn address_of(&self, machine: MachineId) -> Result<SocketAddr, Error> {
        let (own, machines) = (self.machine(), self.machines());
        let address = self.addresses.get(usize::from(machine.0)).copied().flatten();
        address.ok_or(Error::NoSuchPeer { machine, own, machines })
    }

    /// Makes a connection, and sends the first message on it.
    fn begin(
        &self,
        machine: MachineId,
        address: SocketAddr,
        purpose: Use,
        timeout: Duration,
    ) -> Result<Begun<'_>, Error> {
        let deadline = Deadline::after(timeout);
        let unreachable = |source| Error::Unreachable { machine, address, source };
        let (from, machines, region_bytes) = (self.machine(), self.machines(), self.region().bytes() as u64);
        let claim = Claim { from, to: machine, machines, region_bytes, purpose };
        let beginning = Beginning::new(&self.key, &claim)?;
        // A timeout of 0 would be refused.
        let least = Duration::from_millis(1);
        let stream = match descriptors::with_room(|| TcpStream::connect_timeout(&address, timeout.max(least))) {
            Err(error) if is_ours(&error) => {
                return Err(Error::system(format!("making a connection to {machine}"))(error));
            }
            outcome => outcome.map_err(unreachable)?,
        };
        let peer = format!("{machine} ({address})");
        beginning.send(&stream, &peer, deadline.left().max(least))?;
        Ok(Begun { stream, peer, machine, beginning })
    }
}

/// Connection whose first message is sent.
struct Begun<'a> {
    stream: TcpStream,
    /// Name of the other side, in messages.
    peer: String,
    machine: MachineId,
    beginning: Beginning<'a>,
}

impl Begun<'_> {
    /// Waits for the peer's answer, and confirms it.
    fn finish(self, limits: Limits, timeout: Duration) -> Result<Reached, Error> {
        let Begun { stream, peer, machine, beginning } = self;
        let answer = beginning.finish(&stream, &peer, timeout)?;
        let region_bytes = greeting::parse_answer(&answer).and_then(|bytes| usize::try_from(bytes).ok());
        let region_bytes = region_bytes.filter(|bytes| bytes.is_multiple_of(WORD_BYTES));
        let region_bytes = region_bytes.ok_or(Error::NotGossamer { peer })?;
        prepare(&stream, limits).map_err(Error::system(format!("setting up the connection to {machine}")))?;
        Ok((stream, region_bytes))
    }
}

/// First messages of a connection, prepared before it is made: the slow computations are done by then.
pub(super) enum Beginning<'a> {
    Handshake(Box<Initiating>),
    Proof(Proving<'a>),
}

impl<'a> Beginning<'a> {
    pub(super) fn new(key: &'a Key, claim: &Claim) -> Result<Beginning<'a>, Error> {
        Ok(match claim.purpose {
            Use::Control => Beginning::Handshake(Box::new(Initiating::new(key, PURPOSE, &claim.to_bytes())?)),
            Use::Data { .. } => Beginning::Proof(Proving::new(key, &claim.to_bytes())?),
        })
    }

    /// Sends the first message.
    pub(super) fn send(&self, stream: &TcpStream, peer: &str, timeout: Duration) -> Result<(), Error> {
        match self {
            Beginning::Handshake(initiating) => initiating.send(stream, peer, timeout),
            Beginning::Proof(proving) => proving.send(stream, peer, timeout),
        }
    }

    /// Returns the answer to the claim.
    pub(super) fn finish(self, stream: &TcpStream, peer: &str, timeout: Duration) -> Result<Vec<u8>, Error> {
        match self {
            Beginning::Handshake(initiating) => Ok(initiating.finish(stream, peer, timeout)?.1),
            Beginning::Proof(proving) => proving.finish(stream, peer, timeout),
        }
    }
}

/// Returns whether another attempt may succeed: the other side is there, and is busy with others.
fn is_passing(error: &Error) -> bool {
    match error {
        Error::Closed { .. } | Error::TimedOut { .. } => true,
        Error::Unreachable { source, .. } => {
            matches!(source.kind(), ErrorKind::TimedOut | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted)
        }
        _ => false,
    }
}

/// Sets up a socket: sends without delay, and gives up when nothing comes back in time.
fn prepare(stream: &TcpStream, limits: Limits) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    Ok(outgoing::limit_silence(stream, limits)?)
}

/// Returns whether a connection failed for lack of a local resource.
fn is_ours(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::ADDRNOTAVAIL))
}
