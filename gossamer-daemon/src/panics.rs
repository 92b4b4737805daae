//! Panics of threads that others wait for, and whose loss they would not notice.
//!
//! A launcher and a part have one program each: such a panic ends the process ([`spawn`]), and so the program on all
//! hosts. A daemon has other programs, and goes on: the panic is an error of the one request ([`or_text`]).

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, JoinHandle};

use gossamer::link::panic_text;

use crate::outcome::FAILURE_STATUS;

/// Starts a thread; a panic of it ends the process, with the panic as the cause.
pub fn spawn(name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let name = name.into();
    let whose = name.clone();
    Builder::new().name(name).spawn(move || {
        if let Err(panic) = or_text(body) {
            let _ = writeln!(io::stderr(), "gossamer: the thread `{whose}` failed by {panic}; the program is ended");
            std::process::exit(FAILURE_STATUS.into());
        }
    })
}

/// Runs the work; a panic is its error, as a text. The panic hook has printed it.
pub fn or_text<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| match panic_text(&*panic) {
        text if text.starts_with("a panic") => text,
        text => format!("a panic: {text}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::mpsc;

    #[test]
    fn a_panic_is_an_error_with_its_text() {
        assert_eq!(or_text(|| 7), Ok(7));
        assert_eq!(or_text(|| panic!("as planted")), Err::<(), _>("a panic: as planted".to_owned()));
        let number = std::hint::black_box(7);
        assert_eq!(or_text(|| panic!("number {number}")), Err::<(), _>("a panic: number 7".to_owned()));
        assert_eq!(or_text(|| std::panic::panic_any(7)), Err::<(), _>("a panic whose payload is not text".to_owned()));
    }

    /// Set in a child of the test, which waits for a thread that panics.
    const WAITS: &str = "GOSSAMER_TEST_WAITS_FOR_A_PANIC";

    #[test]
    fn a_thread_that_panics_ends_those_who_wait_for_it() {
        if std::env::var_os(WAITS).is_some() {
            let (sender, events) = mpsc::channel::<()>();
            let _others = sender.clone(); // the end of the channel would not tell
            spawn("planted", move || {
                let _sender = sender;
                panic!("as planted");
            })
            .unwrap();
            let _ = events.recv_timeout(limits::HANG);
            std::process::exit(0);
        }
        const SELF: &str = "panics::tests::a_thread_that_panics_ends_those_who_wait_for_it";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let ended = child.args(["--exact", SELF, "--nocapture"]).env(WAITS, "").output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(FAILURE_STATUS.into()), "{said}");
        let expected = "gossamer: the thread `planted` failed by a panic: as planted; the program is ended\n";
        assert!(said.ends_with(expected), "{said}");
    }
}
