//! Authentication of a further connection between two machines that have completed a
//! [`handshake`](super::handshake): the same three messages, but each side proves that it has the key by a
//! keyed hash (BLAKE3), which takes a hundredth of the time. For connections whose bytes are not encrypted:
//! it yields no session keys.
//!
//! Messages are framed like those of the handshake.
//!
//! 1. initiator: `[MAGIC][KIND][claim][number][hash 1]`
//! 2. responder: `[MAGIC][status u8]`, and if the status is 0, `[number][answer][hash 2]`
//! 3. initiator: `[hash 3]`
//!
//! Each hash covers all bytes sent before it, both ways, and has its own key that is derived from the
//! program's. The numbers are random, 32 bytes, one from each side: so hash 2 proves that the responder is
//! live, and hash 3 that the initiator is; a recorded hash fits no other connection. Nothing is encrypted, so
//! there is no nonce that could be used twice.

use super::handshake::{self, MAGIC, MESSAGE_BYTES_MAX, Refusal};
use super::key::{self, KEY_BYTES, Key};
use super::stream::{read_message, write_all};
use crate::error::Error;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// Takes the place of the handshake's version.
pub(crate) const KIND: u8 = 0x80;
/// Length of a random number, and of a hash.
const NUMBER_BYTES: usize = 32;
/// One context for each message; they change whenever the messages do.
const CONTEXTS: [&str; 3] = [
    "gossamer 2026-11-26 further connection, message 1",
    "gossamer 2026-11-26 further connection, message 2",
    "gossamer 2026-11-26 further connection, message 3",
];
/// Longest claim, in bytes.
const CLAIM_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 9 - 2 * NUMBER_BYTES;

/// Returns the hash of one message over all of `parts`, each preceded by its length.
fn hash(message: usize, key: &Key, parts: &[&[u8]]) -> blake3::Hash {
    const _: () = assert!(KEY_BYTES == NUMBER_BYTES);
    let own = Zeroizing::new(blake3::derive_key(CONTEXTS[message - 1], key.as_bytes()));
    let mut hasher = blake3::Hasher::new_keyed(&own);
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

/// Returns the bytes before the hash at the end of a message, if the hash is right.
fn proven<'a>(message: usize, key: &Key, before: &[&[u8]], content: &'a [u8]) -> Result<&'a [u8], Refusal> {
    let (rest, hashed) = content.split_last_chunk::<NUMBER_BYTES>().ok_or(Refusal::NotGossamer)?;
    // Constant time, wherever they differ.
    let is_right = hash(message, key, &[before, &[rest]].concat()) == *hashed;
    if is_right { Ok(rest) } else { Err(Refusal::WrongKey) }
}

/// The side that connects, before there is a connection.
pub(crate) struct Proving<'a> {
    key: &'a Key,
    first: Vec<u8>,
}

impl<'a> Proving<'a> {
    /// # Errors
    /// [`Error::TooLong`] for a claim that does not fit; [`Error::System`].
    pub(crate) fn new(key: &'a Key, claim: &[u8]) -> Result<Proving<'a>, Error> {
        if claim.len() > CLAIM_BYTES_MAX {
            return Err(Error::TooLong { bytes: claim.len(), limit_bytes: CLAIM_BYTES_MAX });
        }
        let content = [&MAGIC[..], &[KIND], claim, &key::random()?].concat();
        let first = handshake::framed(&[&content, hash(1, key, &[&content]).as_bytes()]);
        Ok(Proving { key, first })
    }

    /// Takes the content of message 2; returns the answer, and message 3.
    fn confirm(&self, content: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Refusal> {
        let rest = content.strip_prefix(MAGIC).ok_or(Refusal::NotGossamer)?;
        match rest.first().ok_or(Refusal::NotGossamer)? {
            0 => {}
            status => return Err(Refusal::from_status(*status)),
        }
        let shown = proven(2, self.key, &[&self.first], content)?;
        let answer = shown.get(MAGIC.len() + 1 + NUMBER_BYTES..).ok_or(Refusal::NotGossamer)?;
        let third = hash(3, self.key, &[&self.first, content]);
        Ok((answer.to_vec(), handshake::framed(&[third.as_bytes()])))
    }

    /// Sends message 1 on a blocking connection. Leaves a timeout set on the socket.
    ///
    /// # Errors
    /// As for [`SecureStream::connect`](super::SecureStream::connect).
    pub(crate) fn send(&self, tcp: &TcpStream, peer: &str, timeout: Duration) -> Result<(), Error> {
        write_all(tcp, peer, &self.first, Instant::now().checked_add(timeout))
    }

    /// Waits for message 2 and sends message 3; returns the answer. Leaves timeouts set on the socket.
    ///
    /// # Errors
    /// As for [`SecureStream::connect`](super::SecureStream::connect).
    pub(crate) fn finish(self, tcp: &TcpStream, peer: &str, timeout: Duration) -> Result<Vec<u8>, Error> {
        let deadline = Instant::now().checked_add(timeout);
        let content = read_message(tcp, peer, deadline)?;
        let (answer, third) = self.confirm(&content).map_err(|refusal| refusal.at(peer))?;
        write_all(tcp, peer, &third, deadline)?;
        Ok(answer)
    }
}

/// Returns whether the content of a message 1 is of this kind, and not of the handshake.
pub(crate) fn is_first(content: &[u8]) -> bool {
    content.strip_prefix(MAGIC).and_then(<[u8]>::first) == Some(&KIND)
}

/// For the side that accepts: takes the content of message 1, and returns the claim. Its author knew the key,
/// but it may be a recording until the last message.
pub(crate) fn claim<'a>(key: &Key, content: &'a [u8]) -> Result<&'a [u8], Refusal> {
    let shown = proven(1, key, &[], content)?;
    let rest = shown.get(MAGIC.len() + 1..).ok_or(Refusal::NotGossamer)?;
    Ok(rest.split_last_chunk::<NUMBER_BYTES>().ok_or(Refusal::NotGossamer)?.0)
}

/// Returns message 2, and the message 3 to expect.
///
/// # Errors
/// [`Error::System`].
pub(crate) fn answer(key: &Key, first: &[u8], answer: &[u8]) -> Result<(Vec<u8>, blake3::Hash), Error> {
    let content = [&MAGIC[..], &[0], &key::random()?, answer].concat();
    let first = handshake::framed(&[first]);
    let content = [&content[..], hash(2, key, &[&first, &content]).as_bytes()].concat();
    Ok((handshake::framed(&[&content]), hash(3, key, &[&first, &content])))
}

/// Returns whether the content of message 3 is right.
pub(crate) fn is_confirmed(expected: &blake3::Hash, content: &[u8]) -> bool {
    <&[u8; NUMBER_BYTES]>::try_from(content).is_ok_and(|hashed| *expected == *hashed)
}

#[cfg(test)]
mod tests {
    use super::super::fuzz::content;
    use super::*;

    /// The claim, the answer, and whether the initiator is authenticated.
    type Shaken = (Vec<u8>, Vec<u8>, bool);
    type Change<'a> = &'a dyn Fn(&mut Vec<u8>);

    /// Exchanges all three messages, each of which may be changed on its way. Errors name the refusing side
    /// and the reason.
    fn shake(keys: [&Key; 2], change: [Change<'_>; 3]) -> Result<Shaken, (usize, Refusal)> {
        let proving = Proving::new(keys[0], b"claim").unwrap();
        let mut first = content(&proving.first).to_vec();
        change[0](&mut first);
        let told = claim(keys[1], &first).map_err(|refusal| (1, refusal))?.to_vec();
        let (second, expected) = answer(keys[1], &first, b"answer").unwrap();
        let mut second = content(&second).to_vec();
        change[1](&mut second);
        let (answered, third) = proving.confirm(&second).map_err(|refusal| (2, refusal))?;
        let mut third = content(&third).to_vec();
        change[2](&mut third);
        Ok((told, answered, is_confirmed(&expected, &third)))
    }

    #[test]
    fn who_has_the_key_is_let_in_and_nobody_else() {
        let (key, other) = (Key::generate().unwrap(), Key::generate().unwrap());
        let nothing: Change<'_> = &|_| ();
        let good = shake([&key, &key], [nothing; 3]).unwrap();
        assert_eq!(good, (b"claim".to_vec(), b"answer".to_vec(), true));
        assert_eq!(shake([&key, &other], [nothing; 3]), Err((1, Refusal::WrongKey)));
        // A change of any bit of any message is noticed.
        for message in 0..3 {
            let mut bit = 0;
            loop {
                let was_inside = std::cell::Cell::new(true);
                let flip = |bytes: &mut Vec<u8>| match bytes.get_mut(bit / 8) {
                    Some(byte) => *byte ^= 1 << (bit % 8),
                    None => was_inside.set(false),
                };
                let mut change = [nothing; 3];
                change[message] = &flip;
                let shaken = shake([&key, &key], change);
                if !was_inside.get() {
                    break assert!(bit >= 8 * NUMBER_BYTES && shaken.is_ok());
                }
                assert!(!matches!(shaken, Ok((_, _, true))), "message {}, bit {bit}", message + 1);
                bit += 1;
            }
            for cut in [0, 1, 8, 9, 31] {
                let mut change = [nothing; 3];
                let shorten = move |bytes: &mut Vec<u8>| bytes.truncate(cut);
                change[message] = &shorten;
                assert!(!matches!(shake([&key, &key], change), Ok((_, _, true))), "message {}: {cut}", message + 1);
            }
        }
    }

    #[test]
    fn a_recording_is_not_confirmed() {
        let key = Key::generate().unwrap();
        let proving = Proving::new(&key, b"claim").unwrap();
        let first = content(&proving.first).to_vec();
        let (second, expected) = answer(&key, &first, b"").unwrap();
        let third = content(&proving.confirm(content(&second)).unwrap().1).to_vec();
        assert!(is_confirmed(&expected, &third));
        // All that was sent, sent again, to either side.
        let (_, expected) = answer(&key, &first, b"").unwrap();
        assert!(!is_confirmed(&expected, &third));
        let again = Proving::new(&key, b"claim").unwrap();
        assert_eq!(again.confirm(content(&second)), Err(Refusal::WrongKey));
        // No message is valid in place of another.
        assert!(!is_confirmed(&expected, &first) && again.confirm(&first).is_err() && claim(&key, &third).is_err());
    }

    #[test]
    fn refusals_and_what_does_not_fit_are_told() {
        let key = Key::generate().unwrap();
        let proving = Proving::new(&key, &[7; CLAIM_BYTES_MAX]).unwrap();
        assert_eq!(claim(&key, content(&proving.first)), Ok(&[7; CLAIM_BYTES_MAX][..]));
        assert_eq!(proving.confirm(content(&Refusal::Unwanted.message())), Err(Refusal::Unwanted));
        assert!(matches!(Proving::new(&key, &[7; CLAIM_BYTES_MAX + 1]), Err(Error::TooLong { .. })));
    }
}
