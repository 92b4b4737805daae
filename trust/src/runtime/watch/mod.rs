//! Deadlock detection: finds fibers that wait for each other in a cycle, and has the last comer go on with an error.
//! Cycles through several machines: [`rack`], [`paths`]. It also reports the waits of fibers when nothing goes on after
//! a panic: [`still`].
//!
//! A thread of the process, started by the first wait that may close a cycle ([`note_wait`]). It sleeps unless there
//! are new waits, and ends with the last worker. It asks all workers for the waits of their fibers and looks for cycles
//! ([`graph`]). None of this is on the path of a call that does not wait: a wait for a latched value or for the end of
//! a fiber reads one flag.
//!
//! No false alarms: reports come from different moments, so an apparent cycle may never have existed. A cycle is
//! believed if three rounds of reports, one begun when the last was complete, have it with the same fibers in the same
//! waits (each wait has a number of its own). Then each of its fibers has waited from the end of the first round to the
//! start of the third. So the edges that the second round found between them existed at one and the same moment, for
//! only these fibers could undo them. And a fiber is taken out of its wait only after its waker was taken away
//! ([`Scheduler::interrupt`]).
//!
//! [`Scheduler::interrupt`]: crate::fiber::Scheduler::interrupt

mod circle;
pub(crate) mod closures;
mod graph;
mod paths;
pub(crate) mod rack;
pub(crate) mod still;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use self::circle::{Cycle, Node};
use self::graph::Graph;
use crate::config::{WATCH_ANSWER_MS, WATCH_EVERY_MS, WATCH_EVERY_MS_MAX};
use crate::deadline::later;
use crate::registry::report::Collection;
use crate::registry::{self, Message};

/// A wait has begun since the last round. A hint: the waiter sees to it that a round begins after the store, at the
/// latest the one that comes [`CALM_ROUNDS`] later.
static HAS_CHANGED: AtomicBool = AtomicBool::new(false);
static WATCHER: Mutex<Option<Watcher>> = Mutex::new(None);

/// The thread that looks for cycles.
struct Watcher {
    thread: JoinHandle<()>,
    is_to_end: Arc<AtomicBool>,
}

/// Rounds without a change before the thread sleeps.
const CALM_ROUNDS: u32 = 3;
/// Rounds take at most one part in this many of the time: a round costs each worker a look at its fibers.
const COST_PARTS: u32 = 50;

/// Notes that the calling fiber is about to begin a wait that may be part of a cycle.
#[inline]
pub(crate) fn note_wait() {
    if !HAS_CHANGED.load(Ordering::Relaxed) {
        wake();
    }
}

#[cold]
fn wake() {
    HAS_CHANGED.store(true, Ordering::Relaxed);
    unpark();
}

/// Wakes the thread for a message of another machine.
#[cold]
fn wake_for_message() {
    unpark();
}

/// Unparks the thread, or starts it where there is none.
fn unpark() {
    let mut watcher = WATCHER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(watcher) = &*watcher {
        return watcher.thread.thread().unpark();
    }
    let is_to_end = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_to_end);
    match thread::Builder::new().name("trust-watch".to_owned()).spawn(move || watch(&ends)) {
        Ok(thread) => *watcher = Some(Watcher { thread, is_to_end }),
        Err(error) => {
            crate::unwind::tell(format_args!("fibers that wait for each other will not be found: no thread: {error}"));
        }
    }
}

/// Stops the thread: the last worker has ended, so nothing waits any more. Returns when the thread is gone.
pub(crate) fn end() {
    let watcher = WATCHER.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(Watcher { thread, is_to_end }) = watcher else { return };
    is_to_end.store(true, Ordering::Relaxed);
    thread.thread().unpark();
    // The thread does not panic.
    let _ = thread.join();
    // A flag that the thread left set concerns nobody. A flag that it cleared may have been set by newer workers, and
    // so may the one cleared here: those workers are registered.
    HAS_CHANGED.store(false, Ordering::Relaxed);
    if !registry::all().is_empty() {
        // The thread looks for messages too.
        wake();
    }
}

fn watch(is_to_end: &AtomicBool) {
    let (mut rack, mut rounds, mut still) = (rack::Part::default(), Rounds::default(), still::Still::default());
    while !is_to_end.load(Ordering::Relaxed) {
        let again = rack.turn(&mut still);
        let (look, text) = still.turn(&rack::Others);
        if let Some(text) = text {
            crate::unwind::tell(format_args!("{text}"));
        }
        let due = rounds.due();
        if due.is_some_and(|due| due <= Instant::now()) {
            rounds.make(&mut rack);
            continue;
        }
        // A thread with a change or a message stores it first and unparks this thread afterwards.
        match [again, look, due].into_iter().flatten().min() {
            Some(at) => thread::park_timeout(at.saturating_duration_since(Instant::now())),
            None => thread::park(),
        }
    }
}

/// The rounds of this machine.
#[derive(Default)]
struct Rounds {
    /// End of the last round, and the pause after it unless something has changed; `None` while there is nothing to
    /// look for.
    last: Option<(Instant, Duration)>,
    calm: u32,
    suspects: HashSet<Cycle>,
}

impl Rounds {
    /// Time of the next round, as far as is known.
    fn due(&mut self) -> Option<Instant> {
        let every = Duration::from_millis(WATCH_EVERY_MS);
        let has_changed = HAS_CHANGED.load(Ordering::Relaxed);
        if self.last.is_none() && has_changed {
            *self = Rounds { last: Some((Instant::now(), every)), ..Rounds::default() };
        }
        // A change may shorten a long pause, but not below this.
        self.last.map(|(last, pause)| later(last, if has_changed { every } else { pause }))
    }

    fn make(&mut self, rack: &mut rack::Part) {
        let has_changed = HAS_CHANGED.swap(false, Ordering::Relaxed);
        let round = Round::make(&self.suspects, rack);
        let is_calm = !has_changed && round.suspects.is_empty();
        self.calm = if is_calm { self.calm + 1 } else { 0 };
        self.suspects = round.suspects;
        if self.calm >= CALM_ROUNDS && (round.is_complete || round.is_empty) && !round.leaves {
            self.last = None;
            return;
        }
        // A worker that has not answered is asked again, ever more rarely, and machines that its fibers may depend on
        // are notified again.
        let (every, longest) = (Duration::from_millis(WATCH_EVERY_MS), Duration::from_millis(WATCH_EVERY_MS_MAX));
        let before = self.last.map_or(every, |(_, pause)| pause);
        let pause = if self.calm < CALM_ROUNDS { every } else { 2 * before };
        self.last = Some((Instant::now(), pause.min(longest).max(COST_PARTS * round.took)));
    }
}

/// Result of asking all workers once.
struct Round {
    /// Cycles to look at again.
    suspects: HashSet<Cycle>,
    is_complete: bool,
    /// No fiber is in a wait that could be part of a cycle.
    is_empty: bool,
    /// Some paths lead to other machines.
    leaves: bool,
    took: Duration,
}

impl Round {
    fn make(before: &HashSet<Cycle>, rack: &mut rack::Part) -> Round {
        let start = Instant::now();
        let (reports, unanswered) = ask(false);
        let graph = Graph::new(&reports);
        let suspects: HashSet<Cycle> = graph.cycles().into_iter().collect();
        let (is_complete, is_empty, leaves) = (unanswered.is_empty(), graph.is_empty(), rack.note(&graph));
        let took = if is_complete { start.elapsed() } else { Duration::ZERO };
        // Seen in two rounds. The third one has the names.
        if suspects.intersection(before).next().is_some() {
            let (reports, _) = ask(true);
            let graph = Graph::new(&reports);
            for cycle in graph.cycles().iter().filter(|cycle| suspects.contains(*cycle) && before.contains(*cycle)) {
                break_up(&graph, cycle);
            }
        }
        Round { suspects, is_complete, is_empty, leaves, took }
    }
}

fn ask(with_names: bool) -> (Vec<registry::report::Report>, Vec<crate::ids::TrusteeId>) {
    let collection = Collection::ask(&registry::all(), with_names);
    collection.block(Duration::from_millis(WATCH_ANSWER_MS));
    collection.take()
}

fn break_up(graph: &Graph<'_>, cycle: &Cycle) {
    let Some(Node::Fiber(worker, fiber, wait)) = graph.last_comer(cycle) else { return };
    if let Some(worker) = registry::find(worker) {
        let why = graph.describe(cycle).into_boxed_str();
        // A worker that takes no messages has ended, and its fibers with it.
        let _ = worker.send(Message::Interrupt(fiber, wait, why));
    }
}
