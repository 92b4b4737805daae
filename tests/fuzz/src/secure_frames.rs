//! Sealed frames of secure connections: changed on the way, and nonsense of peers that have the key.
#![no_main]

use std::cell::RefCell;

thread_local!(static TARGET: RefCell<comm::fuzz::Target> = RefCell::new(comm::fuzz::secure_frames()));

libfuzzer_sys::fuzz_target!(|input: &[u8]| TARGET.with_borrow_mut(|target| target(input)));
