//! The daemon's log: structured lines on standard error (which systemd's journal keeps), and the last of them in memory,
//! for `gossamer-launch logs`.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// Lines that are kept.
const KEPT_LINES: usize = 2000;
/// Of a longer line the rest is not kept.
const KEPT_BYTES: usize = 2000;

/// How the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines to read.
    Text,
    /// An object a line.
    Json,
}

/// The last lines.
#[derive(Clone, Default)]
pub struct LastLines(Arc<Mutex<VecDeque<String>>>);

impl LastLines {
    /// Starts logging for this process, of `info` and what is more urgent.
    pub fn start(format: LogFormat) -> LastLines {
        let last = LastLines::default();
        let builder = tracing_subscriber::fmt().with_writer(last.clone()).with_ansi(false).with_target(false);
        let outcome = match format {
            LogFormat::Text => builder.try_init(),
            LogFormat::Json => builder.json().flatten_event(true).try_init(),
        };
        if let Err(error) = outcome {
            eprintln!("gossamer-daemon: no log: {error}"); // a second daemon in one process: a test's
        }
        last
    }

    /// The last `most` lines that contain `text`, oldest first.
    #[must_use]
    pub fn get(&self, text: &str, most: usize) -> Vec<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<String> =
            lines.iter().rev().filter(|line| line.contains(text)).take(most).cloned().collect();
        found.reverse();
        found
    }

    fn push(&self, text: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for line in text.lines() {
            if lines.len() == KEPT_LINES {
                lines.pop_front();
            }
            lines.push_back(line[..line.floor_char_boundary(KEPT_BYTES)].to_owned());
        }
    }
}

/// Writes one event.
pub struct EventWriter(LastLines);

impl Write for EventWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.push(&String::from_utf8_lossy(bytes));
        let _ = io::stderr().write_all(bytes); // nobody reads it: the daemon goes on
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LastLines {
    type Writer = EventWriter;
    fn make_writer(&'a self) -> EventWriter {
        EventWriter(self.clone())
    }
}

/// Lets a few through each second, and says afterwards how many it held back: for what strangers can bring about.
pub struct RateLimit {
    state: Mutex<(Instant, u32, u64)>, // since when, how many, how many held back
}

/// Lines a second.
const RATE: u32 = 5;

impl RateLimit {
    /// Nothing has passed yet.
    #[must_use]
    pub fn start() -> RateLimit {
        RateLimit { state: Mutex::new((Instant::now(), 0, 0)) }
    }

    /// Whether this one may be logged, and how many before it were not.
    pub fn pass(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now.duration_since(state.0) >= Duration::from_secs(1) {
            *state = (now, 0, state.2);
        }
        if state.1 == RATE {
            state.2 += 1;
            return None;
        }
        state.1 += 1;
        Some(std::mem::take(&mut state.2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_found() {
        let last = LastLines::default();
        for number in 0..KEPT_LINES + 10 {
            last.push(&format!("line {number} of {}\n", if number % 2 == 0 { "even" } else { "odd" }));
        }
        assert_eq!(last.get("", usize::MAX).len(), KEPT_LINES);
        assert_eq!(last.get("even", 2), ["line 2006 of even", "line 2008 of even"]);
        last.push(&"ü".repeat(KEPT_BYTES));
        assert!(last.get("ü", 1)[0].len() <= KEPT_BYTES);
    }

    #[test]
    fn strangers_cannot_flood_the_log() {
        let (limit, start) = (RateLimit::start(), Instant::now());
        let passed = (0..1000).filter(|_| limit.pass(start).is_some()).count();
        assert_eq!(passed, RATE as usize);
        assert_eq!(limit.pass(start + Duration::from_secs(2)), Some(1000 - u64::from(RATE)));
        assert_eq!(limit.pass(start + Duration::from_secs(2)), Some(0));
    }
}
