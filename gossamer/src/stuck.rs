//! Reports of workers that are in one closure for long, on standard error of their machine. A trustee in a closure
//! serves nobody else, so an apparent hang of one machine is often a closure of another one.
//!
//! Here: when a report is due, and its words. `trust` sees the running closures (`link::long_closures`), at the cost of
//! a store for each request.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::{Duration, Instant};
use std::{io, thread};

use trust::TrusteeId;
use trust::link::{LongClosure, long_closures};

/// Time until the first report; after that, one each time that the closure has run twice as long.
const LONG: Duration = Duration::from_secs(5);
/// Interval of the checks.
const EVERY: Duration = Duration::from_secs(1);

/// Starts a thread that checks up to the end of the process.
pub(crate) fn watch() -> io::Result<()> {
    let look = || {
        let mut said = Said::default();
        loop {
            thread::sleep(EVERY);
            let long = long_closures();
            if let Some(text) = said.what_is_new(&long, Instant::now()) {
                // stderr may have no reader.
                let _ = io::Write::write_all(&mut io::stderr().lock(), text.as_bytes());
            }
        }
    };
    thread::Builder::new().name("gossamer-stuck".to_owned()).spawn(look).map(drop)
}

/// Reports made so far, by worker.
#[derive(Default)]
struct Said(HashMap<TrusteeId, Once>);

struct Once {
    since: Instant,
    name: String,
    /// No report before the closure has run so long.
    next: Duration,
}

impl Said {
    /// Returns the text to report for these closures, which are all that run for long now.
    fn what_is_new(&mut self, long: &[LongClosure], now: Instant) -> Option<String> {
        let mut text = String::new();
        let mut line = |what: std::fmt::Arguments<'_>| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "gossamer: {what}");
        };
        self.0.retain(|worker, once| {
            let goes_on = long.iter().any(|closure| closure.worker == *worker && closure.since == once.since);
            if !goes_on {
                let for_s = now.duration_since(once.since).as_secs();
                line(format_args!("{worker:?} goes on: the closure {} has ended after some {for_s} s", once.name));
            }
            goes_on
        });
        for LongClosure { worker, name, since } in long {
            let lasts = now.duration_since(*since);
            let next = self.0.get(worker).map_or(LONG, |once| once.next);
            if lasts >= next {
                let for_s = lasts.as_secs();
                line(format_args!(
                    "{worker:?} has been in one closure for more than {for_s} s: {name}; what else is asked of this \
                     worker waits"
                ));
                self.0.insert(*worker, Once { since: *since, name: name.clone(), next: 2 * lasts });
            }
        }
        (!text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_after_some_seconds_and_ever_more_rarely() {
        let worker = trust::link::worker_id(2, 1);
        let start = Instant::now();
        let at = |second: u64| start + Duration::from_secs(second);
        let closure = |since| LongClosure { worker, name: "`find` on a `Tree`".to_owned(), since };
        let (mut said, mut when) = (Said::default(), Vec::new());
        for second in 1..100 {
            if let Some(text) = said.what_is_new(&[closure(start)], at(second)) {
                let expected =
                    format!("m2w1 has been in one closure for more than {second} s: `find` on a `Tree`; what else");
                assert!(text.contains(&expected) && text.lines().count() == 1, "{text}");
                when.push(second);
            }
        }
        assert_eq!(when, [5, 10, 20, 40, 80]);
        // The next closure is a new one.
        let text = said.what_is_new(&[closure(at(100))], at(101)).unwrap();
        assert!(text.contains("m2w1 goes on: the closure `find` on a `Tree` has ended after some 101 s"), "{text}");
        assert!(said.what_is_new(&[closure(at(100))], at(104)).is_none());
        assert!(said.what_is_new(&[closure(at(100))], at(105)).is_some());
        assert!(said.what_is_new(&[], at(106)).is_some());
        // A closure that ends before it is long is not reported.
        assert!(said.what_is_new(&[closure(at(107))], at(110)).is_none());
        assert!(said.what_is_new(&[], at(111)).is_none());
    }
}
