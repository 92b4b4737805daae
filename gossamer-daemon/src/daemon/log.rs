//! The daemon's log: structured lines on standard error (which systemd's journal keeps), and the last of them in
//! memory, for `gossamer-launch logs`.
//!
//! A thread of its own writes to standard error, from a queue: without a reader lines are lost, and counted, but no
//! thread of the daemon waits.

use comm::deadline::deadline_after;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// Number of lines that are kept.
const KEPT_LINES: usize = 2000;
/// Most bytes kept of one line.
const KEPT_BYTES: usize = 2000;

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text lines.
    Text,
    /// One JSON object a line.
    Json,
}

/// Lines that may wait to be written.
const QUEUED_LINES: usize = 1000;
/// Longest wait of a daemon that ends for them.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);
/// Interval between checks for room in the queue.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Last lines of the log.
#[derive(Clone, Default)]
pub struct LastLines {
    lines: Arc<Mutex<VecDeque<String>>>,
    queue: Option<Queue>,
}

/// Queue to the writing thread.
#[derive(Clone)]
pub struct Queue {
    pieces: SyncSender<Piece>,
    lost: Arc<AtomicU64>,
}

enum Piece {
    Line(Vec<u8>),
    /// Dropped once everything before it is written.
    Flush(#[expect(dead_code, reason = "that it is dropped is what counts")] SyncSender<()>),
}

impl Queue {
    fn start(target: impl Write + Send + 'static) -> io::Result<Queue> {
        let (pieces, queued) = mpsc::sync_channel(QUEUED_LINES);
        let lost = Arc::new(AtomicU64::new(0));
        let lost_lines = Arc::clone(&lost);
        std::thread::Builder::new().name("log".into()).spawn(move || write_all(target, &queued, &lost_lines))?;
        Ok(Queue { pieces, lost })
    }

    fn push(&self, line: &[u8]) {
        if self.pieces.try_send(Piece::Line(line.to_vec())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed); // a count on its own
        }
    }

    /// Waits until everything is written, or for [`FLUSH_LIMIT`].
    fn flush(&self) {
        let (done, written) = mpsc::sync_channel(0);
        let end = deadline_after(FLUSH_LIMIT); // nobody reads: the daemon ends nevertheless
        let mut flush = Piece::Flush(done);
        while let Err(TrySendError::Full(back)) = self.pieces.try_send(flush) {
            if Instant::now() >= end {
                return;
            }
            flush = back;
            std::thread::sleep(LOOK_EVERY);
        }
        let _ = written.recv_timeout(end.saturating_duration_since(Instant::now()));
    }
}

fn write_all(mut target: impl Write, queued: &Receiver<Piece>, lost: &AtomicU64) {
    let mut unwritten = (0u64, String::new()); // since the last written line: number of lost ones, and why
    for piece in queued {
        let Piece::Line(line) = piece else { continue };
        if let Err(error) = target.write_all(&line) {
            unwritten = (unwritten.0 + 1, error.to_string()); // the daemon goes on
            continue;
        }
        if unwritten.0 > 0 {
            let (count, why) = std::mem::take(&mut unwritten);
            let _ = writeln!(target, "gossamer-daemon: {count} lines of the log could not be written: {why}");
        }
        let count = lost.swap(0, Ordering::Relaxed);
        if count > 0 {
            let _ = writeln!(target, "gossamer-daemon: {count} lines of the log were lost, for nobody read it");
        }
    }
}

/// The log of this process. On drop the queued lines are written, if somebody reads them.
pub struct Log {
    /// Last lines of this log.
    pub last: LastLines,
}

impl Drop for Log {
    fn drop(&mut self) {
        self.last.flush();
    }
}

impl LastLines {
    /// Starts the log of this process, at level `info`.
    ///
    /// # Errors
    /// When the system has no threads left.
    pub fn start(format: LogFormat) -> io::Result<Log> {
        let queue = Queue::start(io::stderr())?;
        let last = LastLines { queue: Some(queue.clone()), ..LastLines::default() };
        let writer = Writer { last: last.clone(), queue };
        let builder = tracing_subscriber::fmt().with_writer(writer).with_ansi(false).with_target(false);
        let outcome = match format {
            LogFormat::Text => builder.try_init(),
            LogFormat::Json => builder.json().flatten_event(true).try_init(),
        };
        if let Err(error) = outcome {
            eprintln!("gossamer-daemon: no log: {error}"); // a second daemon in one process: a test's
        }
        Ok(Log { last })
    }

    /// Returns the last `most` lines that contain `text`, oldest first.
    #[must_use]
    pub fn get(&self, text: &str, most: usize) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<String> =
            lines.iter().rev().filter(|line| line.contains(text)).take(most).cloned().collect();
        found.reverse();
        found
    }

    /// Waits until all lines are written, if somebody reads them.
    pub(super) fn flush(&self) {
        self.queue.iter().for_each(Queue::flush);
    }

    /// Puts the lines of a former daemon before all others.
    pub(super) fn resume(&self, earlier: Vec<String>) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let own = std::mem::replace(&mut *lines, earlier.into());
        lines.extend(own);
        let over = lines.len().saturating_sub(KEPT_LINES);
        lines.drain(..over);
    }

    fn push(&self, text: &str) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        for line in text.lines() {
            if lines.len() == KEPT_LINES {
                lines.pop_front();
            }
            lines.push_back(line[..line.floor_char_boundary(KEPT_BYTES)].to_owned());
        }
    }
}

/// Takes events, each in one write.
#[derive(Clone)]
struct Writer {
    last: LastLines,
    queue: Queue,
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.last.push(&String::from_utf8_lossy(bytes));
        self.queue.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Writer {
    type Writer = Writer;
    fn make_writer(&'a self) -> Writer {
        self.clone()
    }
}

/// Limit on the log lines that strangers can cause: lets a few through each second, and then reports the number it held
/// back.
pub struct RateLimit {
    state: Mutex<(Instant, u32, u64)>, // start of the second, lines in it, lines held back
}

/// Lines a second.
const RATE: u32 = 5;

impl RateLimit {
    /// Returns a limit that nothing has passed yet.
    #[must_use]
    pub fn start() -> RateLimit {
        RateLimit { state: Mutex::new((Instant::now(), 0, 0)) }
    }

    /// Returns whether this line may be logged, and how many before it were not.
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
    fn a_reader_that_does_not_read_holds_nobody_up() {
        let (mut reader, writer) = io::pipe().unwrap();
        let queue = Queue::start(writer).unwrap();
        let line = [b'x', b'\n'].repeat(500);
        let lines = QUEUED_LINES + 2000; // more than queue and pipe hold
        (0..lines).for_each(|_| queue.push(&line));
        let read = std::thread::spawn(move || {
            let mut text = String::new();
            io::Read::read_to_string(&mut reader, &mut text).map(|_| text)
        });
        queue.flush();
        drop(queue);
        let text = read.join().unwrap().unwrap();
        let told = text.lines().filter_map(|line| line.strip_prefix("gossamer-daemon: ")?.split_once(" lines"));
        let told: u64 = told.map(|(count, _)| count.parse::<u64>().unwrap()).sum();
        let written = text.matches("x\n").count() as u64 / 500;
        assert!(told > 0 && told + written == lines as u64, "{told} lost, {written} written");
    }

    /// A target that is full for a while.
    #[derive(Clone, Default)]
    struct Full {
        writes: Arc<AtomicU64>,
        text: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if (1..4).contains(&self.writes.fetch_add(1, Ordering::Relaxed)) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.text.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_could_not_be_written_are_counted_and_told_with_the_cause() {
        let full = Full::default();
        let queue = Queue::start(full.clone()).unwrap();
        (0..6).for_each(|number| queue.push(format!("line {number}\n").as_bytes()));
        queue.flush();
        let text = String::from_utf8(full.text.lock().unwrap().clone()).unwrap();
        let told = format!("3 lines of the log could not be written: {}", io::Error::from(io::ErrorKind::StorageFull));
        let lines: Vec<&str> = text.lines().map(|line| line.trim_start_matches("gossamer-daemon: ")).collect();
        assert_eq!(lines, ["line 0", "line 4", told.as_str(), "line 5"]);
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
