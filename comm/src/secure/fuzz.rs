//! Real traffic with random changes: no change causes a panic, a hang, or too large a buffer, and none passes
//! for the real message. Each test here handles one input; `crate::fuzz` describes the sources of inputs.

use super::frame::{self, FRAME_BYTES_MAX};
use super::handshake::{self, Initiator, MESSAGE_BYTES_MAX, Responder, Session};
use super::key::Key;
use crate::fuzz::inputs::{Random, Script, Target, mutate};
use rand::Rng;

const LIMIT_BYTES: usize = 4096;

/// A message without its length.
pub(crate) fn content(message: &[u8]) -> &[u8] {
    let (content, bytes) = handshake::first_message(message).unwrap().expect("a whole message");
    assert_eq!(bytes, message.len());
    content
}

/// Both ends of a connection.
pub(crate) fn sessions() -> (Session, Session) {
    let key = Key::generate().unwrap();
    let (initiator, first) = Initiator::new(&key, "test", b"claim").unwrap();
    let (responder, claim) = Responder::new(&key, "test", content(&first)).unwrap();
    assert_eq!(claim, b"claim");
    let (confirming, second) = responder.answer(b"answer").unwrap();
    let (session, answer, third) = initiator.finish(content(&second)).unwrap();
    assert_eq!(answer, b"answer");
    (session, confirming.confirm(content(&third)).unwrap())
}

/// Takes a fuzzer's input as bytes of a stranger, and as changes to real messages of the handshake.
pub fn handshake() -> Target {
    let key = Key::generate().unwrap();
    let (mut first, mut later) = (first_messages(), later_messages());
    Box::new(move |input| {
        if let Ok(Some((content, _))) = handshake::first_message(input) {
            let (initiator, real) = Initiator::new(&key, "test", b"").unwrap();
            let (responder, _) = Responder::new(&key, "test", self::content(&real)).unwrap();
            assert!(responder.answer(b"").unwrap().0.confirm(content).is_err(), "a stranger is let in");
            assert!(initiator.finish(content).is_err() && Responder::new(&key, "test", content).is_err());
        }
        first(&mut Script(input));
        later(&mut Script(input));
    })
}

fn first_messages() -> impl FnMut(Random<'_>) {
    let key = Key::generate().unwrap();
    let (_, real) = Initiator::new(&key, "test", b"machine 3").unwrap();
    move |random| {
        let mutated = mutate(&real, random);
        match handshake::first_message(&mutated) {
            Ok(Some((content, _))) => {
                let accepted = Responder::new(&key, "test", content).is_ok();
                assert!(!accepted || content == &real[2..], "a forged first message was accepted");
            }
            Ok(None) => assert!(mutated.len() < MESSAGE_BYTES_MAX + 2, "waits for more than it would keep"),
            Err(_) => {}
        }
    }
}

fn later_messages() -> impl FnMut(Random<'_>) {
    let key = Key::generate().unwrap();
    move |random| {
        let (initiator, first) = Initiator::new(&key, "test", b"").unwrap();
        let (responder, _) = Responder::new(&key, "test", content(&first)).unwrap();
        let (confirming, second) = responder.answer(b"answer").unwrap();
        let mutated = mutate(&second, random);
        if let Ok(Some((content, _))) = handshake::first_message(&mutated) {
            let is_real = content == &second[2..];
            match initiator.finish(content) {
                Ok((_, _, third)) => {
                    assert!(is_real, "a forged answer was accepted");
                    let mutated = mutate(&third, random);
                    if let Ok(Some((content, _))) = handshake::first_message(&mutated) {
                        assert!(confirming.confirm(content).is_err() || content == &third[2..]);
                    }
                }
                Err(_) => assert!(!is_real),
            }
        }
    }
}

/// Takes a fuzzer's input as changes to real frames, and as sealed content of a key holder.
pub fn frames() -> Target {
    let (mut mutated, mut nonsense) = (mutated_frames(), sealed_nonsense());
    Box::new(move |input| {
        mutated(&mut Script(input));
        nonsense(input);
    })
}

fn mutated_frames() -> impl FnMut(Random<'_>) {
    let (ours, theirs) = sessions();
    let ((_, mut sealer), (mut opener, _)) = (frame::split(ours), frame::split(theirs));
    move |random| {
        let message = vec![random.random(); random.random_range(0..600)];
        let mut real = Vec::new();
        sealer.seal(&message, &mut real).unwrap();
        let mutated = mutate(&real, random);
        let mut is_opened = false;
        for piece in mutated.chunks(1 + random.random_range(0..400)) {
            opener.feed(piece);
            match opener.next(LIMIT_BYTES) {
                Ok(Some(opened)) => {
                    assert!(opened == message && !is_opened, "a forged frame was opened");
                    is_opened = true;
                }
                Ok(None) => {}
                Err(_) => break,
            }
        }
        assert!(opener.kept_bytes() <= FRAME_BYTES_MAX + LIMIT_BYTES + mutated.len());
        opener.rejoin(&sealer);
    }
}

/// Feeds frames that open and have arbitrary content.
fn sealed_nonsense() -> impl FnMut(&[u8]) {
    let (ours, theirs) = sessions();
    let ((_, mut sealer), (mut opener, _)) = (frame::split(ours), frame::split(theirs));
    move |input| {
        let pieces = 1 + usize::from(input.first().copied().unwrap_or_default());
        let mut sealed = Vec::new();
        input.chunks(pieces).for_each(|piece| sealer.seal_as_it_is(piece, &mut sealed));
        opener.feed(&sealed);
        while let Ok(Some(message)) = opener.next(LIMIT_BYTES) {
            assert!(message.len() <= LIMIT_BYTES.min(input.len()));
        }
        assert!(opener.kept_bytes() <= sealed.len() + LIMIT_BYTES);
        opener.rejoin(&sealer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz;

    #[test]
    fn mutated_handshakes_are_refused() {
        fuzz::run("handshake, first message", first_messages());
    }

    #[test]
    fn mutated_answers_are_refused() {
        fuzz::run_slow("handshake, later messages", later_messages());
    }

    #[test]
    fn mutated_frames_do_not_open() {
        fuzz::run("frames", mutated_frames());
    }

    #[test]
    fn nonsense_of_those_with_the_key_is_refused() {
        let mut body = sealed_nonsense();
        fuzz::run("sealed nonsense", |random| {
            let length = random.random_range(0..3 * LIMIT_BYTES);
            let mut input: Vec<u8> = (0..length).map(|_| random.random_range(0..3)).collect();
            input.iter_mut().take(1).for_each(|first| *first = random.random());
            body(&input);
        });
    }

    /// The fuzz targets hold for input of all kinds.
    #[test]
    fn the_targets_take_everything() {
        let (mut handshake, mut frames) = (handshake(), frames());
        let (_, real) = Initiator::new(&Key::generate().unwrap(), "test", b"").unwrap();
        for input in [&[][..], &[0], &[0xff; 3000], &real, b"GET / HTTP/1.1\r\n\r\n"] {
            handshake(input);
            frames(input);
        }
    }
}
