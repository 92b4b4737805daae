//! Panics of this crate's own threads: reported to those that wait for the thread, which would wait for ever.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of a thread. A panic is reported with its text; the panic hook has printed it.
pub(crate) fn or_report<R>(body: impl FnOnce() -> R, report: impl FnOnce(String)) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => Some(result),
        Err(panic) => {
            let name = std::thread::current().name().unwrap_or("without a name").to_owned();
            report(format!("the thread `{name}` of this machine has panicked: {}", text(&*panic)));
            None
        }
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_reported_with_thread_and_text() {
        let run = |body: fn()| {
            let thread = std::thread::Builder::new().name("planted".to_owned()).spawn(move || {
                let mut reports = Vec::new();
                let result = or_report(body, |report| reports.push(report));
                (result, reports)
            });
            thread.unwrap().join().unwrap()
        };
        assert_eq!(run(|| ()), (Some(()), vec![]));
        let reported = |text: &str| (None, vec![format!("the thread `planted` of this machine has panicked: {text}")]);
        assert_eq!(run(|| panic!("as planted")), reported("as planted"));
        assert_eq!(run(|| panic!("number {}", std::hint::black_box(7))), reported("number 7"));
        assert_eq!(run(|| std::panic::panic_any(7)), reported("a panic without a text"));
    }
}
