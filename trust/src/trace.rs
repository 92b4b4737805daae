//! Traces of workers: their sleeps, the batches that they served, the fibers that they ran.
//!
//! Off, it costs each turn of a worker a load and a branch, and each worker a few words of memory. On, each worker
//! writes into its own log, [`EVENTS_MAX`] events long; events after it is full are counted and not kept.
//!
//! Invariants: one trace at a time; a log has one writer, its worker, and is read when the trace is over. An event is
//! written before the number of events includes it (Release), and never changed in that trace, so a reader that sees
//! the number (Acquire) sees the whole event.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// Most events of one worker that are kept.
pub(crate) const EVENTS_MAX: usize = if cfg!(test) { 64 } else { 64 << 10 };

/// Number of the trace under way, or 0.
static SESSION: AtomicU64 = AtomicU64::new(0);
/// Number of the last trace. Locked while a trace is made.
static LAST: Mutex<u64> = Mutex::new(0);

/// Returns whether a trace is under way.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    SESSION.load(Ordering::Relaxed) != 0
}

/// Kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The worker slept.
    Park,
    /// The worker served requests of one client, or of other machines; `count` is their number.
    Batch,
    /// The worker ran fibers; `count` is the number of switches.
    Fibers,
}

/// Event of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Kind of the event.
    pub kind: Kind,
    /// Nanoseconds from the start of the trace to the start of the event.
    pub start_ns: u64,
    /// Duration in nanoseconds.
    pub ns: u64,
    /// Number of units, as `kind` says.
    pub count: u64,
}

/// Events of one worker.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Events in the order of their ends.
    pub events: Vec<Event>,
    /// Events that were not kept: only the first 65,536 of a worker are.
    pub lost: u64,
}

/// Start of the trace, for all writers.
static START: Mutex<Option<Instant>> = Mutex::new(None);

/// Log of one worker.
#[derive(Default)]
pub(crate) struct Log {
    events: OnceLock<Box<[[AtomicU64; 3]]>>,
    /// Trace that the log belongs to.
    session: AtomicU64,
    /// Number of events in it, kept or not.
    count: AtomicU64,
    /// Nanoseconds between the process' clock and the trace's: kept so that an event needs no lock.
    origin: OnceLock<Instant>,
    origin_ns: AtomicU64,
}

impl Log {
    /// Worker side: records an event that began at `start` and is over.
    #[cold]
    pub(crate) fn note(&self, kind: Kind, start: Instant, count: u64) {
        // Pairs with the Release in `make`: the start of the trace is there.
        let session = SESSION.load(Ordering::Acquire);
        if session == 0 {
            return; // it is over
        }
        let origin = *self.origin.get_or_init(|| start);
        if self.session.load(Ordering::Relaxed) != session {
            let Some(began) = *START.lock().unwrap_or_else(PoisonError::into_inner) else { return };
            // May be before or after the origin: modulo 2^64 it does not matter.
            let ahead = nanos(began.saturating_duration_since(origin))
                .wrapping_sub(nanos(origin.saturating_duration_since(began)));
            self.origin_ns.store(ahead, Ordering::Relaxed);
            self.count.store(0, Ordering::Relaxed);
            // Pairs with the Acquire in `read`.
            self.session.store(session, Ordering::Release);
        }
        let events = self.events.get_or_init(|| (0..EVENTS_MAX).map(|_| Default::default()).collect());
        let at = self.count.load(Ordering::Relaxed);
        if let Some(event) = usize::try_from(at).ok().and_then(|at| events.get(at)) {
            let began_ns = nanos(start.saturating_duration_since(origin))
                .wrapping_sub(nanos(origin.saturating_duration_since(start)));
            let start_ns = began_ns.wrapping_sub(self.origin_ns.load(Ordering::Relaxed)).cast_signed();
            // An event that began before the trace starts with it, and ends at its own end.
            let end_ns = start_ns.saturating_add_unsigned(nanos(start.elapsed())).max(0);
            let start_ns = start_ns.max(0);
            event[0].store(start_ns.cast_unsigned(), Ordering::Relaxed);
            event[1].store((end_ns - start_ns).cast_unsigned(), Ordering::Relaxed);
            event[2].store((kind as u64) << 56 | count.min((1 << 56) - 1), Ordering::Relaxed);
        }
        // Pairs with the Acquire in `read`.
        self.count.store(at + 1, Ordering::Release);
    }

    /// Returns the events of this trace, which is over.
    pub(crate) fn read(&self, session: u64) -> Trace {
        // Pairs with the Release in `note` that begins a trace.
        let Some(events) = self.events.get().filter(|_| self.session.load(Ordering::Acquire) == session) else {
            return Trace::default();
        };
        // Pairs with the Release in `note` that counts an event.
        let count = self.count.load(Ordering::Acquire);
        let kept = events.iter().take(usize::try_from(count).unwrap_or(usize::MAX)).map(|event| {
            let [start_ns, ns, what] = event.each_ref().map(|word| word.load(Ordering::Relaxed));
            let kind = [Kind::Park, Kind::Batch, Kind::Fibers][(what >> 56) as usize % 3];
            Event { kind, start_ns, ns, count: what & ((1 << 56) - 1) }
        });
        Trace { events: kept.collect(), lost: count.saturating_sub(events.len() as u64) }
    }
}

/// Makes all workers record for `time`; blocks the thread meanwhile. Then calls `read` with the number of the trace; no
/// other trace can begin before it returns. `None` if there is a trace already.
pub(crate) fn make<R>(time: Duration, read: impl FnOnce(u64) -> R) -> Option<R> {
    let mut last = match LAST.try_lock() {
        Ok(last) => last,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    *last += 1;
    *START.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    // Pairs with the Acquire in `note`.
    SESSION.store(*last, Ordering::Release);
    thread::sleep(time);
    // Relaxed: a worker that sees it late continues to count, and `read` takes the events that are there.
    SESSION.store(0, Ordering::Relaxed);
    Some(read(*last))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn events_are_kept_in_order_and_what_is_too_much_is_counted() {
        let log = Log::default();
        log.note(Kind::Park, Instant::now(), 0);
        assert_eq!(log.count.load(Ordering::Relaxed), 0, "no trace is made");
        for round in 0..2 {
            let early = Instant::now();
            thread::sleep(Duration::from_millis(20));
            let late = Instant::now();
            let (log, extra) = (&log, 9 * round);
            let trace = make(Duration::ZERO, |session| {
                SESSION.store(session, Ordering::Relaxed); // as if it were not over
                log.note(Kind::Batch, early, 7);
                (1..EVENTS_MAX as u64 + extra).for_each(|count| log.note(Kind::Fibers, Instant::now(), count));
                SESSION.store(0, Ordering::Relaxed);
                assert!(make(Duration::ZERO, |_| ()).is_none(), "one at a time");
                log.read(session)
            });
            let trace = trace.expect("no other one is made");
            assert_eq!((trace.events.len(), trace.lost), (EVENTS_MAX, extra));
            assert_eq!((trace.events[0].kind, trace.events[0].count, trace.events[0].start_ns), (Kind::Batch, 7, 0));
            assert!(trace.events[0].ns < nanos(late.elapsed()), "what came before the trace is not in it");
            assert_eq!((trace.events[1].kind, trace.events[1].count), (Kind::Fibers, 1));
            assert!(trace.events.windows(2).all(|pair| pair[0].start_ns <= pair[1].start_ns));
        }
    }
}
