//! Real traffic, changed at random: no change makes anything panic, hang, or keep more than it
//! should, and none is taken for the real thing.

use super::frame::{self, FRAME_BYTES_MAX};
use super::handshake::tests::{content, sessions};
use super::handshake::{self, Initiator, MESSAGE_BYTES_MAX, Responder};
use super::key::Key;
use crate::fuzz;
use rand::Rng;

#[test]
fn mutated_handshakes_are_refused() {
    let key = Key::generate().unwrap();
    let (_, real) = Initiator::new(&key, "test", b"machine 3").unwrap();
    fuzz::run("handshake, first message", |random| {
        let mutated = fuzz::mutate(&real, random);
        match handshake::first_message(&mutated) {
            Ok(Some((content, _))) => {
                let accepted = Responder::new(&key, "test", content).is_ok();
                assert!(!accepted || content == &real[2..], "a forged first message was accepted");
            }
            Ok(None) => assert!(mutated.len() < MESSAGE_BYTES_MAX + 2, "waits for more than it would keep"),
            Err(_) => {}
        }
    });
}

#[test]
fn mutated_answers_are_refused() {
    let key = Key::generate().unwrap();
    fuzz::run_slow("handshake, later messages", |random| {
        let (initiator, first) = Initiator::new(&key, "test", b"").unwrap();
        let (responder, _) = Responder::new(&key, "test", content(&first)).unwrap();
        let (confirming, second) = responder.answer(b"answer").unwrap();
        let mutated = fuzz::mutate(&second, random);
        if let Ok(Some((content, _))) = handshake::first_message(&mutated) {
            let is_real = content == &second[2..];
            match initiator.finish(content) {
                Ok((_, _, third)) => {
                    assert!(is_real, "a forged answer was accepted");
                    let mutated = fuzz::mutate(&third, random);
                    if let Ok(Some((content, _))) = handshake::first_message(&mutated) {
                        assert!(confirming.confirm(content).is_err() || content == &third[2..]);
                    }
                }
                Err(_) => assert!(!is_real),
            }
        }
    });
}

#[test]
fn mutated_frames_do_not_open() {
    const LIMIT_BYTES: usize = 4096;
    let (ours, theirs) = sessions();
    let ((_, mut sealer), (mut opener, _)) = (frame::split(ours), frame::split(theirs));
    fuzz::run("frames", |random| {
        let message = vec![random.random(); random.random_range(0..600)];
        let mut real = Vec::new();
        sealer.seal(&message, &mut real).unwrap();
        let mutated = fuzz::mutate(&real, random);
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
    });
}
