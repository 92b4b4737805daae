//! A task on the machine where it is: counts that its fiber writes and others read, and the fetches of its steps.
//!
//! Invariant: one fiber at a time writes an entry's counts; all of them are counts or hints alone, so their orders are
//! relaxed.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use trust::link::fiber_id;

use super::policy::Reason;
use super::rate::Rate;
use super::task_id::TaskId;

/// Stands for no machine.
const NONE: u32 = u32::MAX;

/// Nanoseconds since the first call in this process, never 0.
pub(super) fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}

/// History of a task that travels with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    pub(super) id: TaskId,
    pub(super) moves: u32,
    pub(super) came_from: Option<CameFrom>,
}

/// Last move of a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct CameFrom {
    pub(super) machine: u16,
    pub(super) reason: Reason,
    /// Steps a second there, if the move is to be judged.
    pub(super) rate: Option<Rate>,
}

/// A task on this machine.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(super) past: Past,
    pub(super) came: Instant,
    /// Bytes that travel with it.
    pub(super) bytes: usize,
    pub(super) worker: AtomicU16,
    steps: AtomicU64,
    busy_ns: AtomicU64,
    /// Begin of the step that runs; 0 between steps.
    step_began_ns: AtomicU64,
    /// Time for which it has slept.
    slept_ns: AtomicU64,
    /// Begin of its sleep; 0 if it does not sleep.
    sleeps_since_ns: AtomicU64,
    /// Machine to which it is to go, and why.
    wish: AtomicU32,
    /// Machine to which it asks to go.
    asked: AtomicU32,
    /// Machine to which it is on the way.
    leaving: AtomicU32,
    /// By machine: bytes that its steps have read from there, and for how long, in nanoseconds.
    fetches: Mutex<BTreeMap<u16, (u64, u64)>>,
}

/// Counts of a task until now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) steps: u64,
    pub(super) busy_ns: u64,
    pub(super) slept_ns: u64,
}

impl Entry {
    pub(super) fn new(past: Past, bytes: usize, worker: u16) -> Entry {
        Entry {
            past,
            came: Instant::now(),
            bytes,
            worker: AtomicU16::new(worker),
            steps: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            step_began_ns: AtomicU64::new(0),
            slept_ns: AtomicU64::new(0),
            sleeps_since_ns: AtomicU64::new(0),
            wish: AtomicU32::new(NONE),
            asked: AtomicU32::new(NONE),
            leaving: AtomicU32::new(NONE),
            fetches: Mutex::default(),
        }
    }

    pub(super) fn begin_step(&self) {
        self.step_began_ns.store(now_ns(), Relaxed);
    }

    /// Returns the time of its end.
    pub(super) fn end_step(&self) -> u64 {
        let now = now_ns();
        let began = self.step_began_ns.swap(0, Relaxed);
        self.busy_ns.fetch_add(now.saturating_sub(began), Relaxed);
        self.steps.fetch_add(1, Relaxed);
        now
    }

    pub(super) fn sleep(&self, time: Duration) {
        let began = now_ns();
        self.sleeps_since_ns.store(began, Relaxed);
        gossamer::sleep(time);
        self.sleeps_since_ns.store(0, Relaxed);
        self.slept_ns.fetch_add(now_ns().saturating_sub(began), Relaxed);
    }

    pub(super) fn counts(&self, now_ns: u64) -> Counts {
        let until_now = |since: &AtomicU64| match since.load(Relaxed) {
            0 => 0,
            since => now_ns.saturating_sub(since),
        };
        Counts {
            steps: self.steps.load(Relaxed),
            busy_ns: self.busy_ns.load(Relaxed) + until_now(&self.step_began_ns),
            slept_ns: self.slept_ns.load(Relaxed) + until_now(&self.sleeps_since_ns),
        }
    }

    /// Could it run, had it a core?
    pub(super) fn is_runnable(&self) -> bool {
        self.sleeps_since_ns.load(Relaxed) == 0 && self.leaving().is_none()
    }

    pub(super) fn wish(&self, to: Option<(u16, Reason)>) {
        let wish = to.map_or(NONE, |(machine, reason)| u32::from(machine) | (reason as u32) << 16);
        self.wish.store(wish, Relaxed);
    }

    /// Takes the wish that it go to another machine, by itself or by the policy.
    pub(super) fn take_wish(&self) -> Option<(u16, Reason)> {
        let take = |of: &AtomicU32| match of.load(Relaxed) {
            NONE => None,
            _ => Some(of.swap(NONE, Relaxed)).filter(|wish| *wish != NONE),
        };
        let asked = take(&self.asked).map(|machine| (machine as u16, Reason::Asked));
        asked.or_else(|| take(&self.wish).map(|wish| (wish as u16, Reason::of(wish >> 16))))
    }

    pub(super) fn leave(&self, to: u16) {
        self.leaving.store(u32::from(to), Relaxed);
    }

    pub(super) fn leaving(&self) -> Option<u16> {
        let machine = self.leaving.load(Relaxed);
        (machine != NONE).then_some(machine as u16)
    }

    /// Takes the bytes and nanoseconds of its fetches since the last call, by machine.
    pub(super) fn take_fetches(&self) -> BTreeMap<u16, (u64, u64)> {
        std::mem::take(&mut self.fetches.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

thread_local! {
    /// Tasks of this worker by their fibers.
    static CURRENT: RefCell<HashMap<u64, Arc<Entry>>> = RefCell::default();
}

/// While it lasts, the calling fiber runs this task.
pub(super) struct Running(Option<u64>);

impl Running {
    pub(super) fn begin(entry: &Arc<Entry>) -> Running {
        let fiber = fiber_id();
        fiber.inspect(|fiber| _ = CURRENT.with_borrow_mut(|all| all.insert(*fiber, Arc::clone(entry))));
        Running(fiber)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.inspect(|fiber| _ = CURRENT.with_borrow_mut(|all| all.remove(fiber)));
    }
}

/// The task that the calling fiber runs goes to that machine after this step.
pub(super) fn ask(machine: u16) {
    CURRENT.with_borrow(|all| {
        if let Some(entry) = fiber_id().and_then(|fiber| all.get(&fiber)) {
            entry.asked.store(u32::from(machine), Relaxed);
        }
    });
}

/// Notes that the calling fiber has read so many bytes from a machine.
pub(crate) fn note_fetch(machine: u16, bytes: usize, time: Duration) {
    CURRENT.with_borrow(|all| {
        if all.is_empty() {
            return;
        }
        if let Some(entry) = fiber_id().and_then(|fiber| all.get(&fiber)) {
            let mut fetches = entry.fetches.lock().unwrap_or_else(PoisonError::into_inner);
            let (all_bytes, all_ns) = fetches.entry(machine).or_default();
            *all_bytes += bytes as u64;
            *all_ns += time.as_nanos() as u64;
        }
    });
}
