//! Start of a connection: which one it is to be. Here: the claim and the answer that the handshake of
//! [`crate::secure`] carries (for the control connection of two machines; for all others `proof` does), and
//! [`IncomingHandshake`], an incoming connection until both sides are authenticated. Not here: the frames
//! that follow.
//!
//! An unauthenticated connection costs a socket, a kilobyte and a bounded time; the handshake reads no byte
//! beyond its own, so the following bytes stay in the socket for the next owner.

use crate::ids::MachineId;
use crate::secure::handshake::{Confirming, MESSAGE_BYTES_MAX, Refusal, Responder, first_message};
use crate::secure::{Key, proof};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Purpose of all connections of this fabric, for the handshake.
pub(super) const PURPOSE: &str = "gossamer tcp fabric 2";

/// Timeout of the claim. A machine sends it at once; anybody may connect.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of the rest of authentication, for a holder of the key or of a recording of one.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(15);

/// Purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Use {
    /// Heartbeats and the graceful close between two machines.
    Control,
    /// The writes of a worker of the machine that connects.
    Data { worker: u16 },
}

/// Claim of the machine that connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) from: MachineId,
    pub(super) to: MachineId,
    pub(super) machines: u16,
    pub(super) region_bytes: u64,
    pub(super) purpose: Use,
}

const CLAIM_BYTES: usize = 17;

impl Claim {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let (kind, worker) = match self.purpose {
            Use::Control => (0, 0),
            Use::Data { worker } => (1, worker),
        };
        let numbers = [self.from.0, self.to.0, self.machines, worker].into_iter().flat_map(u16::to_le_bytes);
        [kind].into_iter().chain(numbers).chain(self.region_bytes.to_le_bytes()).collect()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Claim> {
        let bytes: &[u8; CLAIM_BYTES] = bytes.try_into().ok()?;
        let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let purpose = match bytes[0] {
            0 => Use::Control,
            1 => Use::Data { worker: number(7) },
            _ => return None,
        };
        let region_bytes = u64::from_le_bytes(*bytes[9..].first_chunk()?);
        Some(Claim { from: MachineId(number(1)), to: MachineId(number(3)), machines: number(5), region_bytes, purpose })
    }
}

/// Returns the answer to every claim: the length of the region of the accepting machine.
pub(super) fn answer(region_bytes: usize) -> [u8; 8] {
    (region_bytes as u64).to_le_bytes()
}

pub(super) fn parse_answer(answer: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(answer.try_into().ok()?))
}

/// Incoming connection whose other side is not authenticated yet.
pub(super) struct IncomingHandshake {
    pub(super) stream: TcpStream,
    since: Instant,
    received: Vec<u8>,
    claim: Option<Claim>,
    step: Step,
}

enum Step {
    Claims,
    Confirms(Confirming),
    /// A further connection, and the message it expects.
    Proves(blake3::Hash),
}

/// Progress of a handshake.
#[must_use]
pub(super) enum Progress {
    /// More bytes have to come.
    Waits,
    /// The other side is a machine of this program, and this is its claim.
    Authenticated(Claim),
    /// The other side is no machine of this program, or has gone.
    Gone,
}

impl IncomingHandshake {
    pub(super) fn new(stream: TcpStream) -> IncomingHandshake {
        IncomingHandshake { stream, since: Instant::now(), received: Vec::new(), claim: None, step: Step::Claims }
    }

    /// Returns its claim: the other side has the key, or a recording.
    pub(super) fn claim(&self) -> Option<Claim> {
        self.claim
    }

    /// Returns whether its time is over.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        let timeout = match self.step {
            Step::Claims => CLAIM_TIMEOUT,
            Step::Confirms(_) | Step::Proves(_) => CONFIRM_TIMEOUT,
        };
        now.duration_since(self.since) >= timeout
    }

    /// Reads the bytes that belong to the handshake, as far as they have come. `is_wanted` decides about a
    /// claim, whose author has the key.
    pub(super) fn advance(&mut self, key: &Key, region_bytes: usize, is_wanted: impl Fn(&Claim) -> bool) -> Progress {
        loop {
            match first_message(&self.received) {
                Err(_) => return Progress::Gone,
                Ok(Some((content, _))) => {
                    let content = content.to_vec();
                    self.received.clear();
                    match self.take(&content, key, region_bytes, &is_wanted) {
                        Progress::Waits => continue,
                        over => return over,
                    }
                }
                Ok(None) => {}
            }
            let wanted = match self.received.first_chunk() {
                Some(length) => 2 + usize::from(u16::from_le_bytes(*length)),
                None => 2,
            };
            let mut buffer = [0; MESSAGE_BYTES_MAX + 2];
            let room = &mut buffer[..wanted - self.received.len()];
            match recv(&self.stream, room, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Progress::Gone,
                Ok((_, bytes)) => self.received.extend_from_slice(&buffer[..bytes]),
                Err(Errno::AGAIN) => return Progress::Waits,
                Err(Errno::INTR) => {}
                Err(_) => return Progress::Gone,
            }
        }
    }

    fn take(
        &mut self,
        content: &[u8],
        key: &Key,
        region_bytes: usize,
        is_wanted: &impl Fn(&Claim) -> bool,
    ) -> Progress {
        match std::mem::replace(&mut self.step, Step::Claims) {
            Step::Claims if proof::is_first(content) => self.take_proof(content, key, region_bytes, is_wanted),
            Step::Claims => match Responder::new(key, PURPOSE, content) {
                Ok((responder, claim)) => match Claim::from_bytes(&claim).filter(is_wanted) {
                    Some(claim) => {
                        let Ok((confirming, message)) = responder.answer(&answer(region_bytes)) else {
                            return Progress::Gone;
                        };
                        (self.claim, self.step) = (Some(claim), Step::Confirms(confirming));
                        self.say(&message)
                    }
                    None => self.refuse(Refusal::Unwanted),
                },
                Err(refusal) => self.refuse(refusal),
            },
            Step::Confirms(confirming) => match (confirming.confirm(content), self.claim) {
                (Ok(_), Some(claim)) => Progress::Authenticated(claim),
                _ => Progress::Gone,
            },
            Step::Proves(expected) => match self.claim.filter(|_| proof::is_confirmed(&expected, content)) {
                Some(claim) => Progress::Authenticated(claim),
                None => Progress::Gone,
            },
        }
    }

    /// Takes the first message of a further connection.
    fn take_proof(
        &mut self,
        content: &[u8],
        key: &Key,
        region_bytes: usize,
        is_wanted: &impl Fn(&Claim) -> bool,
    ) -> Progress {
        let claim = match proof::claim(key, content) {
            Ok(claim) => Claim::from_bytes(claim).filter(|claim| claim.purpose != Use::Control && is_wanted(claim)),
            Err(refusal) => return self.refuse(refusal),
        };
        let Some(claim) = claim else { return self.refuse(Refusal::Unwanted) };
        let Ok((message, expected)) = proof::answer(key, content, &answer(region_bytes)) else {
            return Progress::Gone;
        };
        (self.claim, self.step) = (Some(claim), Step::Proves(expected));
        self.say(&message)
    }

    fn refuse(&self, refusal: Refusal) -> Progress {
        let _ = self.say(&refusal.message());
        Progress::Gone
    }

    /// A message of the handshake fits an empty socket; a peer that lets its own fill up counts as gone.
    fn say(&self, message: &[u8]) -> Progress {
        match send(&self.stream, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(bytes) if bytes == message.len() => Progress::Waits,
            _ => Progress::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secure::handshake::Initiator;

    #[test]
    fn claims_survive_the_wire() {
        for purpose in [Use::Control, Use::Data { worker: 0x1234 }] {
            let claim =
                Claim { from: MachineId(1), to: MachineId(0xfffe), machines: 3, region_bytes: u64::MAX - 7, purpose };
            assert_eq!(Claim::from_bytes(&claim.to_bytes()), Some(claim));
            assert_eq!(Claim::from_bytes(&claim.to_bytes()[1..]), None);
            let mut unknown = claim.to_bytes();
            unknown[0] = 2;
            assert_eq!(Claim::from_bytes(&unknown), None);
        }
        assert_eq!(parse_answer(&answer(4096)), Some(4096));
        assert_eq!(parse_answer(&[0; 7]), None);
    }

    /// Returns the progress of a handshake after a recorded first message, and then `then`.
    fn after_a_recording(key: &Key, first: &[u8], then: &[u8]) -> Progress {
        use std::io::Write as _;

        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut handshake = IncomingHandshake::new(listener.accept().unwrap().0);
        connected.write_all(&[first, then].concat()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match handshake.advance(key, 4096, |_| true) {
                Progress::Waits => assert!(Instant::now() < deadline, "all of it was sent"),
                over => return over,
            }
        }
    }

    #[test]
    fn a_recording_does_not_authenticate() {
        let key = Key::generate().unwrap();
        let claim =
            Claim { from: MachineId(1), to: MachineId(0), machines: 2, region_bytes: 4096, purpose: Use::Control };
        let (initiator, first) = Initiator::new(&key, PURPOSE, &claim.to_bytes()).unwrap();
        let content = |message: &[u8]| first_message(message).unwrap().unwrap().0.to_vec();
        let (responder, _) = Responder::new(&key, PURPOSE, &content(&first)).unwrap();
        let (_, second) = responder.answer(&answer(4096)).unwrap();
        let (_, _, third) = initiator.finish(&content(&second)).unwrap();
        for then in [&third, &first, &second, &vec![0, 0]] {
            assert!(matches!(after_a_recording(&key, &first, then), Progress::Gone), "{then:?}");
        }
    }
}
