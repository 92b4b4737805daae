//! The folder of a durable trust: files that somebody changed, most of them with right checksums.
#![no_main]

use std::cell::RefCell;

thread_local!(static TARGET: RefCell<trust_durable::fuzz::Target> = RefCell::new(trust_durable::fuzz::files()));

libfuzzer_sys::fuzz_target!(|input: &[u8]| TARGET.with_borrow_mut(|target| target(input)));
