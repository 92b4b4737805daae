//! The tasks on this machine, and for a while those that have left it or ended.
//!
//! Invariant: a task that has not ended is known to the machine where it is, or to the one that it is leaving, until
//! the next one knows it: so whoever asks all machines finds it, or one that says where it went (`whereabouts.rs`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gossamer::link::{self, MachineUse};

use super::entry::{CameFrom, Counts, Entry, Past, now_ns};
use super::policy::{Candidate, Policy, Reason};
use super::rate::{Rate, Windows};
use super::task_id::TaskId;

/// Time for which it is known where a task went.
const KNOWN: Duration = Duration::from_secs(60);
/// Time over which a task is measured.
const WINDOW_NS: u64 = 100_000_000;
/// A task is judged so long after it came.
const JUDGED_AFTER: Duration = Duration::from_secs(1);
/// Part of a window for which it has to be awake to count.
const AWAKE: f64 = 0.2;
/// A task reads much from a machine if its reads take this part of its time, and this part of their bytes comes from
/// there.
const READS: f64 = 0.2;
const FROM_ONE: f64 = 2.0 / 3.0;

static REGISTRY: Mutex<Registry> = Mutex::new(Registry::new());

pub(super) fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Place of a task, as a machine knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whereabouts {
    Unknown,
    /// This machine does not know of all losses yet that the asker knows of.
    Behind,
    Here,
    /// It went to that machine, or is on the way: by the move of this number.
    WentTo(u16, u32),
    Ended,
}

pub(super) struct Registry {
    tasks: BTreeMap<TaskId, Slot>,
    /// Those that are not here any more.
    gone: VecDeque<(Instant, TaskId, Whereabouts)>,
    /// Tasks by worker.
    workers: Vec<u32>,
    /// Time that those have computed that are not here any more.
    gone_busy_ns: u64,
    /// Tasks that have left, by the reason.
    left: [u64; Reason::ALL.len()],
    policy: Option<Policy>,
}

/// A task, and its measures.
pub(super) struct Slot {
    pub(super) entry: Arc<Entry>,
    windows: Windows,
    /// Begin of the window, and the counts then.
    begun: (u64, Counts),
    /// Part of the last window for which it computed.
    busy: f64,
    /// Bytes that it read from other machines in that, and the machine that it reads much from.
    fetched_bytes: u64,
    reads_from: Option<u16>,
    is_judged: bool,
    was_faster_at: Option<u16>,
}

impl Slot {
    fn new(entry: Arc<Entry>) -> Slot {
        Slot {
            entry,
            windows: Windows::default(),
            begun: (now_ns(), Counts::default()),
            busy: 0.0,
            fetched_bytes: 0,
            reads_from: None,
            is_judged: false,
            was_faster_at: None,
        }
    }

    /// Ends the window if it is long enough.
    fn measure(&mut self, now: u64) {
        let (begun, past) = self.begun;
        let passed = now.saturating_sub(begun);
        if passed < WINDOW_NS {
            return;
        }
        let counts = self.entry.counts(now);
        self.begun = (now, counts);
        let passed = passed as f64;
        self.busy = counts.busy_ns.saturating_sub(past.busy_ns) as f64 / passed;
        let awake = passed - counts.slept_ns.saturating_sub(past.slept_ns) as f64;
        if awake > AWAKE * passed {
            self.windows.add((counts.steps - past.steps) as f64 / (awake / 1e9));
        }
        let fetches = self.entry.take_fetches();
        let (bytes, ns) = fetches.values().fold((0, 0), |sum, (bytes, ns)| (sum.0 + bytes, sum.1 + ns));
        let most = fetches.iter().max_by_key(|(_, (bytes, _))| *bytes);
        let is_much = |(_, (from_one, _)): &(&u16, &(u64, u64))| {
            ns as f64 >= READS * passed && *from_one as f64 >= FROM_ONE * bytes as f64
        };
        self.fetched_bytes = bytes;
        self.reads_from = most.filter(is_much).map(|(machine, _)| *machine);
    }

    /// Judges its last move, once.
    fn judge(&mut self) {
        let Some(CameFrom { machine: from, rate: Some(before), .. }) = self.entry.past.came_from else { return };
        if self.is_judged || self.entry.came.elapsed() < JUDGED_AFTER {
            return;
        }
        if let Some(rate) = self.windows.rate() {
            self.is_judged = true;
            self.was_faster_at = rate.is_worse_than(before).then_some(from);
        }
    }

    fn candidate(&self) -> Candidate {
        Candidate {
            id: self.entry.past.id,
            busy: self.busy,
            bytes: self.entry.bytes as u64 + self.fetched_bytes,
            moves: self.entry.past.moves,
            stayed: self.entry.came.elapsed(),
            reads_from: self.reads_from,
            was_faster_at: self.was_faster_at,
        }
    }

    pub(super) fn busy(&self) -> f64 {
        self.busy
    }

    pub(super) fn fetched_bytes(&self) -> u64 {
        self.fetched_bytes
    }
}

impl Registry {
    const fn new() -> Registry {
        Registry {
            tasks: BTreeMap::new(),
            gone: VecDeque::new(),
            workers: Vec::new(),
            gone_busy_ns: 0,
            left: [0; Reason::ALL.len()],
            policy: None,
        }
    }

    /// Adds a task that was made here or has come here, at the worker with the fewest.
    pub(super) fn add(&mut self, past: Past, bytes: usize) -> Arc<Entry> {
        let rack = gossamer::rack();
        let count = rack.machines()[usize::from(rack.machine())].workers;
        self.workers.resize(count.into(), 0);
        let worker = self.least();
        self.workers[usize::from(worker)] += 1;
        let entry = Arc::new(Entry::new(past, bytes, worker));
        self.tasks.insert(past.id, Slot::new(Arc::clone(&entry)));
        entry
    }

    /// Returns the worker with the fewest tasks.
    fn least(&self) -> u16 {
        let by_tasks = (0..).zip(&self.workers).min_by_key(|(_, tasks)| **tasks);
        by_tasks.map_or(0, |(worker, _)| worker)
    }

    /// Returns the worker that a task should go to because it has fewer tasks, and counts it there.
    pub(super) fn shift(&mut self, entry: &Entry) -> Option<u16> {
        let (own, least) = (entry.worker.load(Relaxed), self.least());
        if self.workers[usize::from(own)] < self.workers[usize::from(least)] + 2 {
            return None;
        }
        self.workers[usize::from(own)] -= 1;
        self.workers[usize::from(least)] += 1;
        entry.worker.store(least, Relaxed);
        Some(least)
    }

    /// Takes out a task that is not here any more.
    pub(super) fn remove(&mut self, entry: &Arc<Entry>, whereabouts: Whereabouts) {
        let id = entry.past.id;
        self.gone_busy_ns += entry.counts(now_ns()).busy_ns;
        self.workers[usize::from(entry.worker.load(Relaxed))] -= 1;
        // It may be here again.
        if self.tasks.get(&id).is_some_and(|slot| Arc::ptr_eq(&slot.entry, entry)) {
            self.tasks.remove(&id);
        }
        if !link::outlives_losses() {
            return; // nobody will ask
        }
        while self.gone.front().is_some_and(|(at, ..)| at.elapsed() > KNOWN) {
            self.gone.pop_front();
        }
        self.gone.push_back((Instant::now(), id, whereabouts));
    }

    /// Returns the rate of a task that leaves, for the judgement of the move.
    pub(super) fn rate(&self, id: TaskId) -> Option<Rate> {
        self.tasks.get(&id)?.windows.rate()
    }

    pub(super) fn slots(&self) -> &BTreeMap<TaskId, Slot> {
        &self.tasks
    }

    /// Brings the measures of all tasks up to date.
    pub(super) fn measure(&mut self) {
        let now = now_ns();
        self.tasks.values_mut().for_each(|slot| slot.measure(now));
    }

    pub(super) fn policy(&mut self) -> &mut Policy {
        self.policy.get_or_insert_with(|| Policy::new(gossamer::rack().machine()))
    }

    /// Decides which tasks are to go, and tells them.
    pub(super) fn decide(&mut self) {
        self.measure();
        self.tasks.values_mut().for_each(Slot::judge);
        let may_go = |slot: &&Slot| slot.entry.leaving().is_none();
        let candidates: Vec<Candidate> = self.tasks.values().filter(may_go).map(Slot::candidate).collect();
        let runnable = self.runnable();
        let moves = self.policy().decide(time(), runnable, &candidates);
        self.tasks.values().for_each(|slot| slot.entry.wish(None));
        for one in moves {
            if let Some(slot) = self.tasks.get(&one.task) {
                slot.entry.wish(Some((one.to, one.reason)));
            }
        }
    }

    /// A task leaves.
    pub(super) fn leaves(&mut self, entry: &Entry, to: u16, reason: Reason) {
        self.left[reason as usize] += 1;
        entry.leave(to);
        self.policy().sent(time(), to);
    }

    /// Adds a task that has come from there, for this reason. `None` if that machine is lost: no task is taken in from
    /// there once this machine has said that it does not have it ([`whereabouts`](Self::whereabouts)).
    pub(super) fn take_in(&mut self, past: Past, bytes: usize, from: u16, reason: Reason) -> Option<Arc<Entry>> {
        if link::is_lost(from) {
            return None;
        }
        if reason == Reason::Undone {
            self.policy().came_back(time(), from);
        }
        Some(self.add(past, bytes))
    }

    /// Returns the reasons for which tasks have left, with their numbers.
    pub(super) fn left(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.into_iter().zip(self.left).filter(|(_, times)| *times > 0)
    }

    pub(super) fn runnable(&self) -> u32 {
        self.tasks.values().filter(|slot| slot.entry.is_runnable()).count() as u32
    }

    /// Returns where a task is, as this machine knows it, to an asker that knows of so many losses.
    pub(super) fn whereabouts(&self, id: TaskId, losses: u32) -> Whereabouts {
        if link::losses() < losses {
            return Whereabouts::Behind;
        }
        if let Some(slot) = self.tasks.get(&id) {
            let leaving = slot.entry.leaving();
            return leaving.map_or(Whereabouts::Here, |to| Whereabouts::WentTo(to, slot.entry.past.moves + 1));
        }
        let is_it = |(at, gone, _): &&(Instant, TaskId, Whereabouts)| *gone == id && at.elapsed() <= KNOWN;
        // It may have been here several times: its last move counts, which need not be the last to be known.
        let number = |whereabouts: &Whereabouts| match whereabouts {
            Whereabouts::WentTo(_, moves) => *moves,
            _ => u32::MAX,
        };
        let went = self.gone.iter().filter(is_it).map(|(_, _, whereabouts)| *whereabouts);
        went.max_by_key(number).unwrap_or(Whereabouts::Unknown)
    }
}

/// Time of the policy.
pub(super) fn time() -> Duration {
    Duration::from_nanos(now_ns())
}

/// Returns the use of this machine by its tasks.
pub(crate) fn load() -> MachineUse {
    let registry = lock();
    let now = now_ns();
    let busy_ns = registry.tasks.values().map(|slot| slot.entry.counts(now).busy_ns).sum::<u64>();
    MachineUse {
        tasks: registry.runnable(),
        tasks_busy_ns: registry.gone_busy_ns + busy_ns,
        worker: registry.least(),
        ..MachineUse::default()
    }
}
