//! Values that may travel in a closure, and values that may not: programs that must not compile, with the message they
//! must fail with (`ui/fail_*.rs`), and programs that must (`ui/pass_*.rs`), which are modules of this one: trybuild
//! would build all dependencies again for them, where the others are only checked.
//!
//! The strict `NoRef` needs language features that a build without `.cargo/config.toml` does not have; then, and with a
//! compiler whose messages read otherwise than those recorded, this test says SKIPPED. Record anew with
//! `TRYBUILD=overwrite`.

mod common;
#[path = "ui/pass_captures.rs"]
mod pass_captures;
#[path = "ui/pass_serialised.rs"]
mod pass_serialised;
#[path = "common/strict.rs"]
mod strict;

use common::loud;
use strict::{Otherwise as _, Probe, STRICT, reads_otherwise};

#[test]
fn plain_closures_compile() {
    pass_captures::main();
    pass_serialised::main();
}

#[test]
fn closures_that_hold_references_do_not_compile() {
    let programs = trybuild::TestCases::new();
    programs.compile_fail("tests/ui/always_*.rs");
    if !STRICT {
        return loud(
            "SKIPPED: t12, the programs that must not compile: this build has no strict NoRef (RUSTC_BOOTSTRAP is not \
             set for `trust`; see .cargo/config.toml)",
        );
    }
    if let Some(reason) = reads_otherwise() {
        return loud(&format!("SKIPPED: t12, the texts of compile errors: {reason}"));
    }
    programs.compile_fail("tests/ui/fail_*.rs");
}

/// Each mistake of `ui/fail_typical_mistakes.rs`, in order: texts that the first lines of its message must contain, and
/// a text that the whole must contain.
const MISTAKES: [(&[&str], &str); 10] = [
    (&["`String`", "`apply_with`"], "|property, value|"),
    (&["`Vec<u64>`", "`apply_with`"], "|property, value|"),
    (&["`HashMap<u32, u32>`", "`apply_with`"], "|property, ()|"),
    (&["`Arc<std::sync::Mutex<u64>>`", "`trust::Shared`"], "`pool.entrust(value)`"),
    (&["`Box<dyn Fn(u64) -> u64 + Send>`", "enum"], "`enum`"),
    (&["`std::io::Error`", "`kind()`", "enum"], "From<std::io::Error>"),
    (&["`&u64`", "`move`", "`apply_with`"], "by value"),
    (&["`std::sync::mpsc::Sender<u64>`", "`apply_then`"], "callback"),
    (&["`T`", "captured"], "trust::NoRef"),
    (&["launched", "no latch"], "`trust::Latch::new(value)`"),
];

/// Number of first lines of a message.
const FIRST_LINES: usize = 10;

#[test]
fn typical_mistakes_are_named_with_their_cure() {
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ui/fail_typical_mistakes.stderr");
    let recorded = std::fs::read_to_string(recorded).expect("the messages are recorded");
    let messages: Vec<&str> = recorded.split("error[E").skip(1).collect();
    assert_eq!(messages.len(), MISTAKES.len(), "one message for each mistake");
    for (message, (first, whole)) in messages.iter().zip(MISTAKES) {
        let lines: String = message.lines().take(FIRST_LINES).collect();
        for words in first {
            assert!(lines.contains(words), "no {words} in the first {FIRST_LINES} lines of: {message}");
        }
        assert!(message.contains(whole), "no {whole} in: {message}");
    }
}

/// The same by type, for any compiler: which types are `NoRef`.
#[test]
fn no_ref_by_type() {
    macro_rules! no_ref {
        ($($type:ty),* $(,)?) => { [$( (stringify!($type), <Probe<$type>>::IS_NO_REF) ),*] };
    }
    let plain = no_ref![u64, ([u8; 9], Option<f64>, char), trust::Trust<Vec<String>>, trust::Shared<Vec<String>>];
    for (name, is_no_ref) in plain {
        assert!(is_no_ref, "{name} may be captured");
    }
    if !STRICT {
        return loud("SKIPPED: no_ref_by_type: this build has no strict NoRef");
    }
    let refused = no_ref![
        &'static u8, &'static mut u8, *const u8, *mut u8, Box<u8>, Vec<u8>, String, &'static str, Box<dyn Send>,
        std::rc::Rc<u8>, std::sync::Arc<u8>, std::sync::mpsc::Sender<u8>, std::thread::JoinHandle<()>,
        std::collections::HashMap<u8, u8>, std::collections::BTreeMap<u8, u8>, std::collections::VecDeque<u8>,
        Option<Box<u8>>, [Vec<u8>; 2], (u8, String), Result<u8, String>, std::borrow::Cow<'static, str>,
        std::ptr::NonNull<u8>, std::sync::atomic::AtomicPtr<u8>, std::task::Waker,
        fn(), fn(u8) -> u8, unsafe fn(u8), extern "C" fn(u8), unsafe extern "C" fn(), fn(&u8) -> u8, fn(&mut u8),
        fn(&u8) -> &u8, fn(u8, u8, u8, u8, u8, u8), for<'a, 'b> fn(&'a mut u8, &'b [u8], &'b str) -> &'a u8,
        extern "system" fn(&u8, &u8, &u8, &u8, &u8, &u8, &u8, &u8, &u8, &u8, &u8, &u8), unsafe extern "C" fn(&u8, ...),
        for<'a> fn(&'a u8, for<'b> fn(&'a u8, &'b u8)), Option<for<'a> fn(Box<dyn Fn(&'a u8) + 'a>)>,
        std::thread::LocalKey<u8>, std::fs::File, std::os::fd::OwnedFd, std::net::TcpStream,
        trust::JoinHandle<u8>,
    ];
    for (name, is_no_ref) in refused {
        assert!(!is_no_ref, "{name} holds an address");
    }
}
