//! Messages over an authenticated session, sealed frame by frame, without any socket. Not here: the handshake
//! before it, and the stream that carries it.
//!
//! A frame is `[length u16][sealed: marker u8, part of a message]`, little endian. The marker says whether
//! the message continues in the next frame. Both sides number the frames and the number is part of the seal:
//! a frame that is changed, repeated, left out or out of order does not open.
//!
//! The reader buffers at most one frame, and of a message no more than its caller's limit.

use super::cipher::{Direction, SEAL_BYTES};
use super::handshake::Session;
use super::key::KEY_BYTES;
use crate::error::Error;
use zeroize::Zeroizing;

const LENGTH_BYTES: usize = 2;
/// Most bytes of a message in one frame: a sealed frame is at most 65,535 bytes long.
const PART_BYTES_MAX: usize = u16::MAX as usize - SEAL_BYTES - 1;
/// Length of the longest frame, length field included.
pub(super) const FRAME_BYTES_MAX: usize = LENGTH_BYTES + u16::MAX as usize;
const _: () = assert!(1 + PART_BYTES_MAX + SEAL_BYTES == 65_535 && FRAME_BYTES_MAX == 65_537);

const GOES_ON: u8 = 0;
const LAST: u8 = 1;

/// Reason why received bytes of a session are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    /// The frame was not sealed by the other side.
    Tampered,
    /// The message is longer than its reader allows.
    TooLong { limit_bytes: usize },
}

/// Seals outgoing messages.
pub(super) struct Sealer {
    direction: Direction,
    next: u64,
    plain: Vec<u8>,
}

/// Opens incoming frames.
pub(super) struct Opener {
    direction: Direction,
    next: u64,
    /// Sealed bytes that were received and not opened yet.
    received: Vec<u8>,
    /// Parts of the current message so far.
    message: Vec<u8>,
    plain: Box<[u8]>,
}

/// Splits a session into its two directions.
pub(super) fn split(session: Session) -> (Opener, Sealer) {
    let Session { outgoing, incoming, next_out, next_in } = session;
    let sealer = Sealer { direction: outgoing, next: next_out, plain: Vec::new() };
    (Opener::new(incoming, next_in), sealer)
}

/// State of a direction as bytes: its key, the number of the next frame, and these bytes.
fn state(direction: &Direction, next: u64, rest: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let fixed = [&direction.key().as_bytes()[..], &next.to_le_bytes()];
    Zeroizing::new([&fixed[..], rest].concat().concat())
}

/// Takes those bytes apart; `None` where they are none.
fn parse_state(state: &[u8]) -> Option<(Direction, u64, &[u8])> {
    let (key, rest) = state.split_first_chunk::<KEY_BYTES>()?;
    let (next, rest) = rest.split_first_chunk::<8>()?;
    Some((Direction::new(*key)?, u64::from_le_bytes(*next), rest))
}

impl Sealer {
    /// Returns its state as bytes, for [`Sealer::resume`].
    pub(super) fn state(&self) -> Zeroizing<Vec<u8>> {
        state(&self.direction, self.next, &[])
    }

    /// Makes a sealer that goes on from that state; `None` where the bytes are none.
    pub(super) fn resume(state: &[u8]) -> Option<Sealer> {
        let (direction, next, rest) = parse_state(state)?;
        rest.is_empty().then_some(Sealer { direction, next, plain: Vec::new() })
    }

    /// Appends `message`, sealed, to `out`.
    ///
    /// # Errors
    /// [`Error::Cipher`], after 2^64 frames.
    pub(super) fn seal(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let mut parts = message.chunks(PART_BYTES_MAX).peekable();
        let mut part = parts.next().unwrap_or_default();
        loop {
            let next = parts.next();
            self.plain.clear();
            self.plain.push(if next.is_some() { GOES_ON } else { LAST });
            self.plain.extend_from_slice(part);
            let sealed_bytes = self.plain.len() + SEAL_BYTES;
            out.extend_from_slice(&(sealed_bytes as u16).to_le_bytes());
            let start = out.len();
            out.resize(start + sealed_bytes, 0);
            let sealed = self.direction.seal(self.next, &self.plain, &mut out[start..]);
            sealed.ok_or_else(|| Error::Cipher { reason: "a connection has come to its last number".to_owned() })?;
            self.next += 1;
            match next {
                Some(next) => part = next,
                None => return Ok(()),
            }
        }
    }
}

impl Opener {
    fn new(direction: Direction, next: u64) -> Opener {
        let plain = vec![0; u16::MAX as usize].into_boxed_slice();
        Opener { direction, next, received: Vec::new(), message: Vec::new(), plain }
    }

    /// Returns its state as bytes, with those of an unfinished message, for [`Opener::resume`].
    pub(super) fn state(&self) -> Zeroizing<Vec<u8>> {
        let message_bytes = (self.message.len() as u64).to_le_bytes();
        state(&self.direction, self.next, &[&message_bytes, &self.message, &self.received])
    }

    /// Makes an opener that goes on from that state; `None` where the bytes are none.
    pub(super) fn resume(state: &[u8]) -> Option<Opener> {
        let (direction, next, rest) = parse_state(state)?;
        let (message_bytes, rest) = rest.split_first_chunk::<8>()?;
        let message_bytes = usize::try_from(u64::from_le_bytes(*message_bytes)).ok()?;
        let (message, received) = rest.split_at_checked(message_bytes)?;
        Some(Opener { message: message.to_vec(), received: received.to_vec(), ..Opener::new(direction, next) })
    }

    /// Appends received bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// Returns whether bytes of an unfinished message are buffered.
    pub(super) fn is_within_message(&self) -> bool {
        !self.received.is_empty() || !self.message.is_empty()
    }

    /// Returns the next message of at most `limit_bytes`, or `None` until more is fed.
    pub(super) fn next(&mut self, limit_bytes: usize) -> Result<Option<Vec<u8>>, Broken> {
        let mut taken = 0;
        let result = loop {
            let Some((length, rest)) = self.received[taken..].split_first_chunk::<LENGTH_BYTES>() else {
                break Ok(None);
            };
            let bytes = usize::from(u16::from_le_bytes(*length));
            let Some(sealed) = rest.get(..bytes) else {
                break Ok(None);
            };
            let Some(plain_bytes) = self.direction.open(self.next, sealed, &mut self.plain) else {
                break Err(Broken::Tampered);
            };
            self.next += 1;
            taken += LENGTH_BYTES + bytes;
            let Some((marker, part)) = self.plain[..plain_bytes].split_first() else {
                break Err(Broken::Tampered);
            };
            if part.len() > limit_bytes - self.message.len().min(limit_bytes) {
                break Err(Broken::TooLong { limit_bytes });
            }
            self.message.extend_from_slice(part);
            match *marker {
                LAST => break Ok(Some(std::mem::take(&mut self.message))),
                // A message of endless empty parts would never end.
                GOES_ON if !part.is_empty() => {}
                _ => break Err(Broken::Tampered),
            }
        };
        self.received.drain(..taken);
        result
    }
}

#[cfg(any(test, feature = "fuzz"))]
impl Sealer {
    /// Seals a frame with this content, marker included, as only a broken or malicious program does.
    pub(super) fn seal_as_it_is(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        let sealed_bytes = plain.len() + SEAL_BYTES;
        out.extend_from_slice(&(sealed_bytes as u16).to_le_bytes());
        let start = out.len();
        out.resize(start + sealed_bytes, 0);
        self.direction.seal(self.next, plain, &mut out[start..]).expect("it fits a frame");
        self.next += 1;
    }
}

#[cfg(any(test, feature = "fuzz"))]
impl Opener {
    /// Forgets all received bytes, and continues with the next frame of `sealer`: for tests that break many
    /// sessions and need not make each anew.
    pub(super) fn rejoin(&mut self, sealer: &Sealer) {
        self.received.clear();
        self.message.clear();
        self.next = sealer.next;
    }

    /// Returns the number of bytes buffered for the other side.
    pub(super) fn kept_bytes(&self) -> usize {
        self.received.len() + self.message.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fuzz::sessions;
    use super::*;

    #[test]
    fn messages_of_all_lengths_arrive_whole_in_pieces() {
        let (ours, theirs) = sessions();
        let ((_, mut sealer), (mut opener, _)) = (split(ours), split(theirs));
        let lengths = [0, 1, 7, PART_BYTES_MAX - 1, PART_BYTES_MAX, PART_BYTES_MAX + 1, 3 * PART_BYTES_MAX];
        let messages: Vec<Vec<u8>> =
            lengths.iter().map(|length| (0..*length).map(|index| (index * 31) as u8).collect()).collect();
        let mut wire = Vec::new();
        messages.iter().for_each(|message| sealer.seal(message, &mut wire).unwrap());
        let mut opened = Vec::new();
        for piece in wire.chunks(10_007) {
            opener.feed(piece);
            while let Some(message) = opener.next(usize::MAX).unwrap() {
                opened.push(message);
            }
        }
        assert!(opened == messages);
        assert!(!opener.is_within_message());
    }

    #[test]
    fn a_message_that_is_cut_anywhere_is_unfinished() {
        let (ours, theirs) = sessions();
        let ((_, mut sealer), (mut opener, _)) = (split(ours), split(theirs));
        let mut wire = Vec::new();
        sealer.seal(&vec![1; PART_BYTES_MAX + 10], &mut wire).unwrap();
        let second = FRAME_BYTES_MAX;
        assert!(!opener.is_within_message() && opener.kept_bytes() == 0);
        // Within a length, within a frame, between two frames, within the second frame.
        for (from, to, kept_bytes) in
            [(0, 1, 1), (1, 9, 9), (9, second, PART_BYTES_MAX), (second, second + 7, PART_BYTES_MAX + 7)]
        {
            opener.feed(&wire[from..to]);
            assert_eq!(opener.next(usize::MAX), Ok(None));
            assert!(opener.is_within_message());
            assert_eq!(opener.kept_bytes(), kept_bytes, "{to}");
        }
        opener.feed(&wire[second + 7..]);
        assert_eq!(opener.next(usize::MAX).unwrap().unwrap().len(), PART_BYTES_MAX + 10);
        assert!(!opener.is_within_message() && opener.kept_bytes() == 0);
    }

    /// Both sides go on from their states after each piece, wherever that cuts a message.
    #[test]
    fn a_session_goes_on_from_its_state() {
        let (ours, theirs) = sessions();
        let ((_, mut sealer), (mut opener, _)) = (split(ours), split(theirs));
        let lengths = [0, 7, PART_BYTES_MAX + 1, 3 * PART_BYTES_MAX, 1];
        let messages: Vec<Vec<u8>> =
            lengths.iter().map(|length| (0..*length).map(|index| (index * 31) as u8).collect()).collect();
        let mut wire = Vec::new();
        for message in &messages {
            sealer.seal(message, &mut wire).unwrap();
            sealer = Sealer::resume(&sealer.state()).unwrap();
        }
        let mut opened = Vec::new();
        for piece in wire.chunks(10_007) {
            opener.feed(piece);
            while let Some(message) = opener.next(usize::MAX).unwrap() {
                opened.push(message);
            }
            let kept_bytes = opener.kept_bytes();
            opener = Opener::resume(&opener.state()).unwrap();
            assert_eq!(opener.kept_bytes(), kept_bytes);
        }
        assert!(opened == messages);
        let (sealed, opened) = (sealer.state(), opener.state());
        for bytes in 0..sealed.len() {
            assert!(Sealer::resume(&sealed[..bytes]).is_none() && Opener::resume(&opened[..bytes]).is_none());
        }
        assert!(Sealer::resume(&opened).is_none(), "a state of the other kind");
    }

    #[test]
    fn parts_that_never_end_a_message_are_refused() {
        for plain in [&[][..], &[GOES_ON], &[LAST + 1, 7]] {
            let (ours, theirs) = sessions();
            let ((_, mut sealer), (mut opener, _)) = (split(ours), split(theirs));
            let mut wire = Vec::new();
            sealer.seal_as_it_is(plain, &mut wire);
            opener.feed(&wire);
            assert_eq!(opener.next(9), Err(Broken::Tampered), "{plain:?}");
        }
    }

    #[test]
    fn both_directions_are_apart() {
        let (ours, theirs) = sessions();
        let ((mut our_opener, mut our_sealer), (mut their_opener, mut their_sealer)) = (split(ours), split(theirs));
        let mut wire = Vec::new();
        our_sealer.seal(b"there", &mut wire).unwrap();
        their_opener.feed(&wire);
        assert_eq!(their_opener.next(5).unwrap().unwrap(), b"there");
        // Our own frames, sent back to us.
        our_opener.feed(&wire);
        assert_eq!(our_opener.next(5), Err(Broken::Tampered));
        let (mut our_opener, mut wire) = (split(sessions().0).0, Vec::new());
        their_sealer.seal(b"back", &mut wire).unwrap();
        our_opener.feed(&wire);
        assert_eq!(our_opener.next(5), Err(Broken::Tampered), "of another session");
    }

    #[test]
    fn repeated_lost_and_swapped_frames_do_not_open() {
        let seal = |sealer: &mut Sealer, text: &[u8]| {
            let mut wire = Vec::new();
            sealer.seal(text, &mut wire).unwrap();
            wire
        };
        for order in [[0, 0], [1, 2], [1, 0]] {
            let (ours, theirs) = sessions();
            let ((_, mut sealer), (mut opener, _)) = (split(ours), split(theirs));
            let frames = [seal(&mut sealer, b"a"), seal(&mut sealer, b"b"), seal(&mut sealer, b"c")];
            order.iter().for_each(|index| opener.feed(&frames[*index]));
            let opened: Vec<_> = (0..2).map(|_| opener.next(9)).collect();
            assert!(opened.contains(&Err(Broken::Tampered)), "{order:?}: {opened:?}");
        }
    }

    #[test]
    fn a_message_over_the_limit_is_refused_before_it_is_kept() {
        let (ours, theirs) = sessions();
        let ((_, mut sealer), (mut opener, _)) = (split(ours), split(theirs));
        let mut wire = Vec::new();
        sealer.seal(&vec![1; 3 * PART_BYTES_MAX], &mut wire).unwrap();
        opener.feed(&wire);
        let limit_bytes = PART_BYTES_MAX + 5;
        assert_eq!(opener.next(limit_bytes), Err(Broken::TooLong { limit_bytes }));
        assert!(opener.message.len() <= limit_bytes);
    }
}
