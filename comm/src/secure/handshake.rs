//! Authentication: the three messages with which a connection begins, without any socket, so that tests can
//! run millions. Not here: carrying them (`stream.rs`, and the tcp fabric), and the frames that follow
//! (`frame.rs`).
//!
//! Every message is `[length u16][content]`, little endian, with at most [`MESSAGE_BYTES_MAX`] bytes of
//! content; until the other side has proven that it has the key, no more than that of its bytes is buffered.
//!
//! 1. initiator: `[MAGIC][version u8][purpose length u8][purpose][claim length u16][claim][e]`.
//!    The part before `e` is the prologue of the Noise handshake: any change to it fails the handshake.
//! 2. responder: `[MAGIC][status u8]`, and if the status is 0, `[e, ee, answer]`. Another status is only a
//!    hint for the user; it is not authentic, and leads to an error in any case.
//! 3. initiator: an empty sealed message. Only then does the responder know that message 1 is not a recording
//!    of an older one.
//!
//! Claim and answer belong to the application: the identity of the initiator, and the data that it must
//! have first.
//!
//! A responder may have two keys, while one replaces the other. No message says which of them the initiator has:
//! message 1 opens with one key alone, and the responder tries each.

use super::cipher::Direction;
use super::key::Key;
use crate::error::Error;
use snow::{Builder, HandshakeState};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
pub(super) const MAGIC: &[u8; 8] = b"gossamer";
const VERSION: u8 = 1;
/// Longest content of a handshake message, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1024;
/// Longest claim, in bytes.
pub const CLAIM_BYTES_MAX: usize = 256;
/// Longest answer, in bytes.
pub const ANSWER_BYTES_MAX: usize = 256;
const PURPOSE_BYTES_MAX: usize = 64;
const LENGTH_BYTES: usize = 2;

/// Reason why there is no connection. A caller that knows the other side adds its name ([`Refusal::at`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    NotGossamer,
    WrongKey,
    OtherVersion(u8),
    OtherPurpose,
    /// The other side has the key, but refuses this connection.
    Unwanted,
}

impl Refusal {
    pub(crate) fn at(self, peer: impl Into<String>) -> Error {
        let peer = peer.into();
        match self {
            Refusal::NotGossamer => Error::NotGossamer { peer },
            Refusal::WrongKey => Error::WrongKey { peer },
            Refusal::OtherVersion(theirs) => Error::OtherVersion { peer, theirs, ours: VERSION },
            Refusal::OtherPurpose => Error::OtherPurpose { peer },
            Refusal::Unwanted => Error::Unwanted { peer },
        }
    }

    fn status(self) -> u8 {
        match self {
            Refusal::NotGossamer => 1,
            Refusal::WrongKey => 2,
            Refusal::OtherVersion(_) => 3,
            Refusal::OtherPurpose => 4,
            Refusal::Unwanted => 5,
        }
    }

    pub(super) fn from_status(status: u8) -> Refusal {
        match status {
            2 => Refusal::WrongKey,
            3 => Refusal::OtherVersion(0),
            4 => Refusal::OtherPurpose,
            5 => Refusal::Unwanted,
            _ => Refusal::NotGossamer,
        }
    }

    /// Returns the message 2 that tells the initiator; empty for initiators that would not understand it.
    pub(crate) fn message(self) -> Vec<u8> {
        match self {
            Refusal::NotGossamer => Vec::new(),
            known => framed(&[MAGIC, &[known.status()]]),
        }
    }
}

/// Session state of each side after the handshake.
pub(crate) struct Session {
    pub(super) outgoing: Direction,
    pub(super) incoming: Direction,
    /// Numbers of the next message out and in: message 3 of the initiator was number 0.
    pub(super) next_out: u64,
    pub(super) next_in: u64,
}

/// The side that connects.
pub(crate) struct Initiator {
    noise: HandshakeState,
}

impl Initiator {
    /// Begins a handshake, and returns message 1.
    ///
    /// # Errors
    /// [`Error::TooLong`] for a purpose or a claim that does not fit.
    pub(crate) fn new(key: &Key, purpose: &str, claim: &[u8]) -> Result<(Initiator, Vec<u8>), Error> {
        check_length(purpose.len(), PURPOSE_BYTES_MAX)?;
        check_length(claim.len(), CLAIM_BYTES_MAX)?;
        let claim_length = (claim.len() as u16).to_le_bytes();
        let prologue =
            [MAGIC, &[VERSION, purpose.len() as u8][..], purpose.as_bytes(), &claim_length[..], claim].concat();
        let mut noise = builder(key, &prologue)?.build_initiator().map_err(unusable)?;
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        let bytes = noise.write_message(&[], &mut buffer).map_err(unusable)?;
        Ok((Initiator { noise }, framed(&[&prologue, &buffer[..bytes]])))
    }

    /// Takes the content of message 2; returns the session, the answer, and message 3.
    pub(crate) fn finish(mut self, content: &[u8]) -> Result<(Session, Vec<u8>, Vec<u8>), Refusal> {
        let rest = content.strip_prefix(MAGIC).ok_or(Refusal::NotGossamer)?;
        let (status, sealed) = rest.split_first().ok_or(Refusal::NotGossamer)?;
        if *status != 0 {
            return Err(Refusal::from_status(*status));
        }
        let mut answer = vec![0; MESSAGE_BYTES_MAX];
        let bytes = self.noise.read_message(sealed, &mut answer).map_err(|_| Refusal::WrongKey)?;
        answer.truncate(bytes);
        let (outgoing, incoming) = directions(self.noise).ok_or(Refusal::WrongKey)?;
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        let bytes = outgoing.seal(0, &[], &mut buffer).ok_or(Refusal::WrongKey)?;
        Ok((Session { outgoing, incoming, next_out: 1, next_in: 0 }, answer, framed(&[&buffer[..bytes]])))
    }
}

/// The side that accepts, after message 1.
pub(crate) struct Responder {
    noise: HandshakeState,
}

impl Responder {
    /// Takes the content of message 1; returns the claim. Its author knew the key, but it may be a recording
    /// until [`Confirming::confirm`].
    pub(crate) fn new(key: &Key, purpose: &str, content: &[u8]) -> Result<(Responder, Vec<u8>), Refusal> {
        Responder::of_any(&[key], purpose, content).map(|(responder, claim, _)| (responder, claim))
    }

    /// Like [`new`](Responder::new), for an initiator with any of these keys; returns the place of its key, too.
    pub(super) fn of_any(keys: &[&Key], purpose: &str, content: &[u8]) -> Result<(Responder, Vec<u8>, usize), Refusal> {
        let rest = content.strip_prefix(MAGIC).ok_or(Refusal::NotGossamer)?;
        let (version, rest) = rest.split_first().ok_or(Refusal::NotGossamer)?;
        if *version != VERSION {
            return Err(Refusal::OtherVersion(*version));
        }
        let (purpose_bytes, rest) = rest.split_first().ok_or(Refusal::NotGossamer)?;
        let (theirs, rest) = rest.split_at_checked(usize::from(*purpose_bytes)).ok_or(Refusal::NotGossamer)?;
        let (claim_bytes, rest) = rest.split_first_chunk().ok_or(Refusal::NotGossamer)?;
        let claim_bytes = usize::from(u16::from_le_bytes(*claim_bytes));
        let (claim, sealed) = rest.split_at_checked(claim_bytes).ok_or(Refusal::NotGossamer)?;
        if claim_bytes > CLAIM_BYTES_MAX {
            return Err(Refusal::NotGossamer);
        }
        if theirs != purpose.as_bytes() {
            return Err(Refusal::OtherPurpose);
        }
        let prologue = &content[..content.len() - sealed.len()];
        // Each key is tried, also after one that fits: the time does not tell which one it was. There is no
        // Diffie-Hellman in message 1, so a trial takes a few hashes.
        let opened: Vec<_> = keys.iter().map(|key| open_first(key, prologue, sealed)).collect();
        let mut opened = opened.into_iter().enumerate();
        let (place, noise) = opened.find_map(|(place, noise)| Some((place, noise?))).ok_or(Refusal::WrongKey)?;
        Ok((Responder { noise }, claim.to_vec(), place))
    }

    /// Returns message 2.
    ///
    /// # Errors
    /// [`Error::TooLong`] for an answer that does not fit; [`Error::Cipher`].
    pub(crate) fn answer(mut self, answer: &[u8]) -> Result<(Confirming, Vec<u8>), Error> {
        check_length(answer.len(), ANSWER_BYTES_MAX)?;
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        let bytes = self.noise.write_message(answer, &mut buffer).map_err(unusable)?;
        let unfinished = || Error::Cipher { reason: "the handshake has not come to its end".to_owned() };
        let (incoming, outgoing) = directions(self.noise).ok_or_else(unfinished)?;
        Ok((Confirming { outgoing, incoming }, framed(&[MAGIC, &[0], &buffer[..bytes]])))
    }
}

/// The side that accepts, after message 2.
pub(crate) struct Confirming {
    outgoing: Direction,
    incoming: Direction,
}

impl Confirming {
    /// Takes the content of message 3, which proves that the initiator has the key and is live.
    pub(crate) fn confirm(self, content: &[u8]) -> Result<Session, Refusal> {
        let Confirming { outgoing, incoming } = self;
        match incoming.open(0, content, &mut [0; MESSAGE_BYTES_MAX]) {
            Some(0) => Ok(Session { outgoing, incoming, next_out: 0, next_in: 1 }),
            _ => Err(Refusal::WrongKey),
        }
    }
}

/// Returns the first message in `received`: its content, and its length with the length field; `None` while
/// it is incomplete.
pub(crate) fn first_message(received: &[u8]) -> Result<Option<(&[u8], usize)>, Refusal> {
    let Some((length, rest)) = received.split_first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let bytes = usize::from(u16::from_le_bytes(*length));
    if bytes > MESSAGE_BYTES_MAX {
        return Err(Refusal::NotGossamer);
    }
    Ok(rest.get(..bytes).map(|content| (content, LENGTH_BYTES + bytes)))
}

pub(super) fn framed(parts: &[&[u8]]) -> Vec<u8> {
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    debug_assert!(bytes <= MESSAGE_BYTES_MAX);
    let mut message = Vec::with_capacity(LENGTH_BYTES + bytes);
    message.extend_from_slice(&(bytes as u16).to_le_bytes());
    parts.iter().for_each(|part| message.extend_from_slice(part));
    message
}

fn check_length(bytes: usize, limit_bytes: usize) -> Result<(), Error> {
    if bytes > limit_bytes { Err(Error::TooLong { bytes, limit_bytes }) } else { Ok(()) }
}

fn builder<'a>(key: &'a Key, prologue: &'a [u8]) -> Result<Builder<'a>, Error> {
    let params = PATTERN.parse().map_err(unusable)?;
    Builder::new(params).psk(0, key.as_bytes()).and_then(|builder| builder.prologue(prologue)).map_err(unusable)
}

/// Returns the directions from and to the initiator; `None` before the end of the handshake.
fn directions(mut noise: HandshakeState) -> Option<(Direction, Direction)> {
    if !noise.is_handshake_finished() {
        return None;
    }
    let (from, to) = noise.dangerously_get_raw_split();
    Some((Direction::new(from)?, Direction::new(to)?))
}

/// Returns the handshake of a responder after message 1, if that was made with this key.
fn open_first(key: &Key, prologue: &[u8], sealed: &[u8]) -> Option<HandshakeState> {
    let mut noise = builder(key, prologue).ok()?.build_responder().ok()?;
    noise.read_message(sealed, &mut [0; MESSAGE_BYTES_MAX]).ok()?;
    Some(noise)
}

/// The cryptography itself does not work here, which no peer can cause.
fn unusable(error: snow::Error) -> Error {
    Error::Cipher { reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::super::fuzz::content;
    use super::*;

    #[test]
    fn longest_messages_fit() {
        let key = Key::generate().unwrap();
        let (purpose, claim) = ("p".repeat(PURPOSE_BYTES_MAX), [7; CLAIM_BYTES_MAX]);
        let (initiator, first) = Initiator::new(&key, &purpose, &claim).unwrap();
        let (responder, told) = Responder::new(&key, &purpose, content(&first)).unwrap();
        assert_eq!(told, claim);
        let (_, second) = responder.answer(&[8; ANSWER_BYTES_MAX]).unwrap();
        assert_eq!(initiator.finish(content(&second)).unwrap().1, [8; ANSWER_BYTES_MAX]);
        assert!(matches!(Initiator::new(&key, &format!("{purpose}p"), b""), Err(Error::TooLong { .. })));
        assert!(matches!(Initiator::new(&key, "", &[0; CLAIM_BYTES_MAX + 1]), Err(Error::TooLong { .. })));
    }

    #[test]
    fn another_key_is_refused_and_told() {
        let (_, first) = Initiator::new(&Key::generate().unwrap(), "test", b"").unwrap();
        let refusal = Responder::new(&Key::generate().unwrap(), "test", content(&first)).err().unwrap();
        assert_eq!(refusal, Refusal::WrongKey);
        let (initiator, _) = Initiator::new(&Key::generate().unwrap(), "test", b"").unwrap();
        assert_eq!(initiator.finish(content(&refusal.message())).err(), Some(Refusal::WrongKey));
    }

    /// A responder with two keys lets in either of them, to the end of the handshake, and no third one.
    #[test]
    fn one_of_two_keys_is_enough() {
        let keys = [(); 3].map(|()| Key::generate().unwrap());
        let ours = [&keys[0], &keys[1]];
        for (place, key) in ours.into_iter().enumerate() {
            let (initiator, first) = Initiator::new(key, "test", b"claim").unwrap();
            let (responder, claim, found) = Responder::of_any(&ours, "test", content(&first)).unwrap();
            assert_eq!((claim.as_slice(), found), (&b"claim"[..], place));
            let (confirming, second) = responder.answer(b"answer").unwrap();
            let (_, answer, third) = initiator.finish(content(&second)).unwrap();
            assert!(answer == b"answer" && confirming.confirm(content(&third)).is_ok());
            // The other key does not come further than the first message.
            let other = ours[1 - place];
            assert_eq!(Responder::of_any(&[other], "test", content(&first)).err(), Some(Refusal::WrongKey));
        }
        let (_, first) = Initiator::new(&keys[2], "test", b"").unwrap();
        assert_eq!(Responder::of_any(&ours, "test", content(&first)).err(), Some(Refusal::WrongKey));
        assert_eq!(Responder::of_any(&[], "test", content(&first)).err(), Some(Refusal::WrongKey));
        assert_eq!(Responder::of_any(&ours, "else", content(&first)).err(), Some(Refusal::OtherPurpose));
    }

    #[test]
    fn another_purpose_is_refused_even_if_the_name_is_forged() {
        let key = Key::generate().unwrap();
        let (_, first) = Initiator::new(&key, "some", b"").unwrap();
        assert_eq!(Responder::new(&key, "else", content(&first)).err(), Some(Refusal::OtherPurpose));
        let forged = String::from_utf8_lossy(&first[..16]).contains("some");
        assert!(forged, "the purpose is in clear");
        let mut forged = first.clone();
        let at = forged.windows(4).position(|window| window == b"some").unwrap();
        forged[at..at + 4].copy_from_slice(b"else");
        assert_eq!(Responder::new(&key, "else", content(&forged)).err(), Some(Refusal::WrongKey));
    }

    #[test]
    fn a_recording_is_not_confirmed() {
        let key = Key::generate().unwrap();
        let (initiator, first) = Initiator::new(&key, "test", b"").unwrap();
        let (responder, _) = Responder::new(&key, "test", content(&first)).unwrap();
        let (_, second) = responder.answer(b"").unwrap();
        let (_, _, third) = initiator.finish(content(&second)).unwrap();
        // All that was sent, sent again.
        let (responder, _) = Responder::new(&key, "test", content(&first)).unwrap();
        let (confirming, _) = responder.answer(b"").unwrap();
        assert_eq!(confirming.confirm(content(&third)).err(), Some(Refusal::WrongKey));
    }

    /// Message 3 is empty, sealed, the first of its session, and nothing else.
    #[test]
    fn only_the_third_message_itself_confirms() {
        let key = Key::generate().unwrap();
        let sealed = |session: &Session, number: u64, payload: &[u8]| {
            let mut buffer = [0; MESSAGE_BYTES_MAX];
            let bytes = session.outgoing.seal(number, payload, &mut buffer).unwrap();
            buffer[..bytes].to_vec()
        };
        // Forgeries of the real message, by a key holder or by a stranger.
        type Forged<'a> = (&'a str, &'a dyn Fn(&Session, &[u8]) -> Vec<u8>);
        let forged: [Forged<'_>; 9] = [
            ("nothing", &|_, _| Vec::new()),
            ("zeros", &|_, real| vec![0; real.len()]),
            ("cut", &|_, real| real[..real.len() - 1].to_vec()),
            ("longer", &|_, real| [real, &[0]].concat()),
            ("a bit", &|_, real| [&[real[0] ^ 1], &real[1..]].concat()),
            ("the last bit", &|_, real| [&real[..real.len() - 1], &[real[real.len() - 1] ^ 0x80]].concat()),
            ("not empty", &|session, _| sealed(session, 0, &[0])),
            ("as long as can be", &|session, _| sealed(session, 0, &[7; MESSAGE_BYTES_MAX - 16])),
            ("the next of its session", &|session, _| sealed(session, 1, &[])),
        ];
        let shake = |forge: &dyn Fn(&Session, &[u8]) -> Vec<u8>| {
            let (initiator, first) = Initiator::new(&key, "test", b"").unwrap();
            let (responder, _) = Responder::new(&key, "test", content(&first)).unwrap();
            let (confirming, second) = responder.answer(b"").unwrap();
            let (session, _, third) = initiator.finish(content(&second)).unwrap();
            confirming.confirm(&forge(&session, content(&third))).err()
        };
        assert_eq!(shake(&|_, real| real.to_vec()), None);
        for (what, forge) in forged {
            assert_eq!(shake(forge), Some(Refusal::WrongKey), "{what}");
        }
    }

    #[test]
    fn each_refusal_travels() {
        let refusals = [Refusal::WrongKey, Refusal::OtherVersion(0), Refusal::OtherPurpose, Refusal::Unwanted];
        for refusal in refusals {
            let (initiator, _) = Initiator::new(&Key::generate().unwrap(), "test", b"").unwrap();
            assert_eq!(initiator.finish(content(&refusal.message())).err(), Some(refusal));
        }
        assert!(Refusal::NotGossamer.message().is_empty());
    }

    #[test]
    fn no_more_than_the_longest_message_is_waited_for() {
        let message = |bytes: usize| [&(bytes as u16).to_le_bytes()[..], &vec![7; bytes]].concat();
        let longest = message(MESSAGE_BYTES_MAX);
        assert_eq!(first_message(&longest), Ok(Some((&longest[2..], MESSAGE_BYTES_MAX + 2))));
        assert_eq!(first_message(&longest[..MESSAGE_BYTES_MAX + 1]), Ok(None));
        assert_eq!(first_message(&message(MESSAGE_BYTES_MAX + 1)), Err(Refusal::NotGossamer));
        assert_eq!(first_message(&message(MESSAGE_BYTES_MAX + 1)[..2]), Err(Refusal::NotGossamer));
        let two = [message(3), message(1)].concat();
        assert_eq!(first_message(&two), Ok(Some((&[7, 7, 7][..], 5))), "what follows is left");
    }

    #[test]
    fn other_protocols_are_told_apart() {
        let key = Key::generate().unwrap();
        assert_eq!(first_message(b"GET / HTTP/1.1\r\n"), Err(Refusal::NotGossamer));
        assert_eq!(first_message(b"SSH-2.0-OpenSSH"), Err(Refusal::NotGossamer));
        assert_eq!(first_message(&[5]), Ok(None));
        assert_eq!(Responder::new(&key, "test", b"").err(), Some(Refusal::NotGossamer));
        let mut newer = Initiator::new(&key, "test", b"").unwrap().1;
        newer[LENGTH_BYTES + MAGIC.len()] = 9;
        assert_eq!(Responder::new(&key, "test", content(&newer)).err(), Some(Refusal::OtherVersion(9)));
    }
}
