//! Panics that must not spread, and messages on standard error that must not panic.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(feature = "net")]
use crate::error::panic_text;

/// Runs `f`. A panic ends here, as does one of its payload's destructor; the panic hook has reported it.
pub(crate) fn quietly<R>(f: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => Some(value),
        Err(payload) => {
            discard(payload);
            None
        }
    }
}

/// Runs the body of a thread that others wait for, and that none of them can miss: a panic ends the process.
#[cfg(feature = "net")]
pub(crate) fn or_give_up<R>(thread: &str, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        give_up(format_args!("{thread} has panicked: {}", panic_text(&*payload)));
    })
}

/// Drops the payload of a panic, and leaks the payload if its destructor panics in turn.
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
}

/// Guard that ends the process if it is dropped by an unwinding: for frames that others point into.
pub(crate) struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        give_up(format_args!("a panic reached a frame that waits for an answer"));
    }
}

/// Ends the process, with a last message.
#[cold]
pub(crate) fn give_up(why: fmt::Arguments<'_>) -> ! {
    tell(format_args!("{why}; the process ends"));
    std::process::abort();
}

/// Returns the name of the calling thread, for messages. Works even after its thread-locals are destroyed.
pub(crate) fn thread_name() -> String {
    let name = catch_unwind(|| std::thread::current().name().map(str::to_owned));
    name.ok().flatten().map_or_else(|| "without a name".to_owned(), |name| format!("`{name}`"))
}

thread_local! {
    /// The last line of [`tell_rarely`], and how often it came.
    static REPEATED: RefCell<(String, u64)> = const { RefCell::new((String::new(), 0)) };
}

/// Writes a line to standard error as [`tell`] does. Of equal lines of a thread, one behind the other, it writes the
/// 1st, the 10th, the 100th and so on: the loss of a machine may have a million requests say the same.
pub(crate) fn tell_rarely(line: String) {
    let count = REPEATED.try_with(|repeated| {
        let (last, count) = &mut *repeated.borrow_mut();
        *count = if *last == line { *count + 1 } else { 1 };
        last.clone_from(&line);
        *count
    });
    match count {
        Ok(1) | Err(_) => tell(format_args!("{line}")),
        Ok(count) if is_power_of_ten(count) => tell(format_args!("{line} ({count} times)")),
        Ok(_) => {}
    }
}

fn is_power_of_ten(count: u64) -> bool {
    10u64.checked_pow(count.ilog10()) == Some(count)
}

/// Writes a line to standard error, if that accepts it.
pub(crate) fn tell(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "trust: {line}");
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Set in a child of the test.
    const REPEATS: &str = "TRUST_TEST_REPEATS";

    #[test]
    fn equal_lines_are_told_rarely() {
        if std::env::var_os(REPEATS).is_some() {
            (0..1234).for_each(|_| tell_rarely("lost".to_owned()));
            tell_rarely("found".to_owned());
            return tell_rarely("lost".to_owned());
        }
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let child = child.args(["--exact", "unwind::tests::equal_lines_are_told_rarely", "--nocapture"]);
        let child = child.env(REPEATS, "1").output().unwrap();
        let said = String::from_utf8_lossy(&child.stderr);
        let told: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("trust: ")).collect();
        let expected = ["lost", "lost (10 times)", "lost (100 times)", "lost (1000 times)", "found", "lost"];
        assert_eq!(told, expected, "{said}");
    }
}
