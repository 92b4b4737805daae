//! The handshake of secure connections: strangers' bytes, and real messages that were changed.
#![no_main]

use std::cell::RefCell;

thread_local!(static TARGET: RefCell<comm::fuzz::Target> = RefCell::new(comm::fuzz::handshake()));

libfuzzer_sys::fuzz_target!(|input: &[u8]| TARGET.with_borrow_mut(|target| target(input)));
