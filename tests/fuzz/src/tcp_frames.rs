//! Frames of the tcp fabric's data connections.
#![no_main]

use std::cell::RefCell;

thread_local!(static TARGET: RefCell<comm::fuzz::Target> = RefCell::new(comm::fuzz::tcp_frames()));

libfuzzer_sys::fuzz_target!(|input: &[u8]| TARGET.with_borrow_mut(|target| target(input)));
