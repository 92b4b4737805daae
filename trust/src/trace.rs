//! Traces of workers: their sleeps, the batches that they served, the fibers that they ran, the moves of their
//! trustees, and the waits of fibers for answers.
//!
//! Off, it costs each turn of a worker a load and a branch, and each worker a few words of memory. On, each worker
//! writes into its own logs, each [`EVENTS_MAX`] events long; events after it is full are counted and not kept.
//!
//! Invariants: one trace at a time; a log has one writer, its worker, and is read when the trace is over. An event is
//! written before the number of events includes it (Release), and never changed in that trace, so a reader that sees
//! the number (Acquire) sees the whole event.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use crate::ids::TrusteeId;

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

/// Returns the number of the trace under way, or 0.
pub(crate) fn session() -> u64 {
    SESSION.load(Ordering::Relaxed)
}

/// Fibers of a worker that have begun to wait in this trace, by number, with the time.
#[derive(Default)]
pub(crate) struct Suspended {
    session: u64,
    fibers: HashMap<u64, Instant>,
}

impl Suspended {
    /// Forgets those of another trace.
    pub(crate) fn begin(&mut self, session: u64) {
        if self.session != session {
            *self = Suspended { session, fibers: HashMap::new() };
        }
    }

    /// Notes that this fiber has run, and whether it waits now.
    pub(crate) fn note(&mut self, fiber: u64, waits: bool) {
        if waits {
            self.fibers.insert(fiber, Instant::now());
        } else {
            self.fibers.remove(&fiber);
        }
    }

    /// Returns the time when this fiber began to wait, and forgets it.
    pub(crate) fn take(&mut self, fiber: u64) -> Option<Instant> {
        self.fibers.remove(&fiber)
    }
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
    /// The trustee moved to another worker of its pool, and served nobody meanwhile; `count` is the worker's index.
    Move,
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

/// Wait of a fiber for the answer to a request, which has come. Includes the time until the worker has seen it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnswerWait {
    /// Number of the fiber, on its worker.
    pub fiber: u64,
    /// Trustee that has answered.
    pub trustee: TrusteeId,
    /// Nanoseconds from the start of the trace to the start of the wait.
    pub start_ns: u64,
    /// Duration in nanoseconds.
    pub ns: u64,
}

/// Events of one worker.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Events in the order of their ends.
    pub events: Vec<Event>,
    /// Waits of its fibers for answers, in the order of their ends.
    pub waits: Vec<AnswerWait>,
    /// Events that were not kept: only the first 65,536 of a worker are.
    pub lost: u64,
    /// Waits that were not kept, likewise.
    pub lost_waits: u64,
}

/// Start of the trace, for all writers.
static START: Mutex<Option<Instant>> = Mutex::new(None);

/// Log of one worker.
#[derive(Default)]
pub(crate) struct Log {
    /// Start, duration, and two values of the event.
    events: OnceLock<Box<[[AtomicU64; 4]]>>,
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
        self.write(start, [(kind as u64) << 56 | count.min((1 << 56) - 1), 0]);
    }

    /// Worker side: records that this fiber has waited from `start` on, until the trustee has answered.
    #[cold]
    pub(crate) fn note_wait(&self, start: Instant, fiber: u64, trustee: TrusteeId) {
        self.write(start, [trustee.to_bits(), fiber]);
    }

    fn write(&self, start: Instant, values: [u64; 2]) {
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
            event[2].store(values[0], Ordering::Relaxed);
            event[3].store(values[1], Ordering::Relaxed);
        }
        // Pairs with the Acquire in `read`.
        self.count.store(at + 1, Ordering::Release);
    }

    /// Returns the words of the events of this trace, which is over, and the number of events that were not kept.
    fn read(&self, session: u64) -> (Vec<[u64; 4]>, u64) {
        // Pairs with the Release in `note` that begins a trace.
        let Some(events) = self.events.get().filter(|_| self.session.load(Ordering::Acquire) == session) else {
            return Default::default();
        };
        // Pairs with the Release in `note` that counts an event.
        let count = self.count.load(Ordering::Acquire);
        let kept = events.iter().take(usize::try_from(count).unwrap_or(usize::MAX));
        let kept = kept.map(|event| event.each_ref().map(|word| word.load(Ordering::Relaxed))).collect();
        (kept, count.saturating_sub(events.len() as u64))
    }
}

/// Logs of one worker.
#[derive(Default)]
pub(crate) struct Logs {
    pub(crate) activity: Log,
    pub(crate) waits: Log,
}

impl Logs {
    /// Returns the events of this trace, which is over.
    pub(crate) fn read(&self, session: u64) -> Trace {
        let ((events, lost), (waits, lost_waits)) = (self.activity.read(session), self.waits.read(session));
        let event = |[start_ns, ns, what, _]: [u64; 4]| {
            let kind = [Kind::Park, Kind::Batch, Kind::Fibers, Kind::Move][(what >> 56) as usize % 4];
            Event { kind, start_ns, ns, count: what & ((1 << 56) - 1) }
        };
        let wait = |[start_ns, ns, trustee, fiber]: [u64; 4]| AnswerWait {
            fiber,
            trustee: TrusteeId::from_bits(trustee),
            start_ns,
            ns,
        };
        Trace {
            events: events.into_iter().map(event).collect(),
            waits: waits.into_iter().map(wait).collect(),
            lost,
            lost_waits,
        }
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
        let logs = Logs::default();
        let log = &logs.activity;
        log.note(Kind::Park, Instant::now(), 0);
        assert_eq!(log.count.load(Ordering::Relaxed), 0, "no trace is made");
        for round in 0..2 {
            let early = Instant::now();
            thread::sleep(Duration::from_millis(20));
            let late = Instant::now();
            let extra = 9 * round;
            let trace = make(Duration::ZERO, |session| {
                SESSION.store(session, Ordering::Relaxed); // as if it were not over
                log.note(Kind::Batch, early, 7);
                (1..EVENTS_MAX as u64 + extra).for_each(|count| log.note(Kind::Fibers, Instant::now(), count));
                SESSION.store(0, Ordering::Relaxed);
                assert!(make(Duration::ZERO, |_| ()).is_none(), "one at a time");
                logs.read(session)
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
