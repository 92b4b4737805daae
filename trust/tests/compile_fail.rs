//! What may travel in a closure, and what may not (T12, traps 2, 5, 11): programs that must not compile, with the
//! message they must fail with (`ui/fail_*.rs`), and programs that must (`ui/pass_*.rs`).
//!
//! The strict `NoRef` needs language features that a build without `.cargo/config.toml` does not have; then, and with a
//! compiler whose messages read otherwise than those recorded, this test says SKIPPED. Record anew with
//! `TRYBUILD=overwrite`.

mod common;

use std::marker::PhantomData;
use std::process::Command;

use common::loud;

/// The compiler whose messages `ui/*.stderr` hold.
const RECORDED_WITH: &str = "rustc 1.95.";

struct Probe<T>(PhantomData<T>);
trait Otherwise {
    const IS_NO_REF: bool = false;
}
impl<T> Otherwise for Probe<T> {}
impl<T: trust::NoRef> Probe<T> {
    const IS_NO_REF: bool = true;
}

/// Is `NoRef` more than `Send + 'static` in this build?
const STRICT: bool = !<Probe<Box<u8>>>::IS_NO_REF;

fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output();
    output.map_or_else(|error| error.to_string(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[test]
fn t12_closures_that_hold_references_do_not_compile_and_plain_ones_do() {
    let programs = trybuild::TestCases::new();
    programs.pass("tests/ui/pass_*.rs");
    programs.compile_fail("tests/ui/always_*.rs");
    if !STRICT {
        return loud(
            "SKIPPED: t12, the programs that must not compile: this build has no strict NoRef (RUSTC_BOOTSTRAP is not \
             set for `trust`; see .cargo/config.toml)",
        );
    }
    let compiler = compiler();
    if !compiler.starts_with(RECORDED_WITH) {
        return loud(&format!(
            "SKIPPED: t12, the texts of compile errors: they are recorded with {RECORDED_WITH}x, this is {compiler}"
        ));
    }
    programs.compile_fail("tests/ui/fail_*.rs");
}

/// The same by type, for any compiler: which types are `NoRef`.
#[test]
fn t12_no_ref_by_type() {
    macro_rules! no_ref {
        ($($type:ty),* $(,)?) => { [$( (stringify!($type), <Probe<$type>>::IS_NO_REF) ),*] };
    }
    let plain = no_ref![u64, ([u8; 9], Option<f64>, char), trust::Trust<Vec<String>>, trust::Shared<Vec<String>>];
    for (name, is_no_ref) in plain {
        assert!(is_no_ref, "{name} may be captured");
    }
    if !STRICT {
        return loud("SKIPPED: t12_no_ref_by_type: this build has no strict NoRef");
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
