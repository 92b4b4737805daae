//! Finds fibers that wait for each other in a circle, and has the one that came last go on with an error. Circles
//! through several machines: [`rack`], [`paths`]. And says what fibers wait for where nothing goes on after a panic:
//! [`still`].
//!
//! A thread of the process, started by the first wait that may close a circle ([`note_wait`]), which sleeps unless
//! there are new ones, and ends with the last worker. It asks all workers what their fibers wait for and looks for
//! circles ([`graph`]). Nothing of this is on the path of a call that does not wait: who waits for a latched value or
//! for the end of a fiber reads one flag.
//!
//! No false alarms: reports come from different moments, so what looks like a circle may never have been one. A circle
//! is believed if three rounds of reports, one begun when the last was complete, have it with the same fibers in the
//! same waits (each wait has a number of its own). Then each of its fibers has waited from the end of the first round
//! to the start of the third; so the edges that the second round found between them, all of which only one of them
//! could undo, were there at one and the same moment. And who is taken out of its wait is one whose waker is taken away
//! before ([`Scheduler::interrupt`]).
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

/// Somebody has begun to wait since the last round. Hints: who waits sees to it that a round begins after the store, at
/// the latest the one that comes [`CALM_ROUNDS`] later.
static NEWS: AtomicBool = AtomicBool::new(false);
static WATCHER: Mutex<Option<Watcher>> = Mutex::new(None);

/// The thread that looks.
struct Watcher {
    thread: JoinHandle<()>,
    is_to_end: Arc<AtomicBool>,
}

/// So many rounds without news are made before the thread sleeps.
const CALM_ROUNDS: u32 = 3;
/// A round costs each worker the time to look at its fibers: rounds take one part in so many of it.
const COST_PARTS: u32 = 50;

/// The calling fiber is about to wait for something that it may wait for in a circle.
#[inline]
pub(crate) fn note_wait() {
    if !NEWS.load(Ordering::Relaxed) {
        wake();
    }
}

#[cold]
fn wake() {
    NEWS.store(true, Ordering::Relaxed);
    unpark();
}

/// There is a message of another machine.
#[cold]
fn wake_for_mail() {
    unpark();
}

/// Has the thread look, which is started where there is none.
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

/// The last worker has ended: nobody waits any more. Returns when the thread is gone.
pub(crate) fn end() {
    let watcher = WATCHER.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(Watcher { thread, is_to_end }) = watcher else { return };
    is_to_end.store(true, Ordering::Relaxed);
    thread.thread().unpark();
    // It does not panic.
    let _ = thread.join();
    // News that it left is of nobody; what it took may be of workers that have come since, and so may this have been:
    // they are there.
    NEWS.store(false, Ordering::Relaxed);
    if !registry::all().is_empty() {
        // Looks for messages too.
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
        // Whoever has news or a message unparks this thread after that is there to see.
        match [again, look, due].into_iter().flatten().min() {
            Some(at) => thread::park_timeout(at.saturating_duration_since(Instant::now())),
            None => thread::park(),
        }
    }
}

/// The rounds of this machine.
#[derive(Default)]
struct Rounds {
    /// The end of the last one, and the pause after it unless there is news; `None` while there is nothing to look for.
    last: Option<(Instant, Duration)>,
    calm: u32,
    suspects: HashSet<Cycle>,
}

impl Rounds {
    /// When the next one is, as far as is known.
    fn due(&mut self) -> Option<Instant> {
        let every = Duration::from_millis(WATCH_EVERY_MS);
        let has_news = NEWS.load(Ordering::Relaxed);
        if self.last.is_none() && has_news {
            *self = Rounds { last: Some((Instant::now(), every)), ..Rounds::default() };
        }
        // News may shorten a long pause, but not below this.
        self.last.map(|(last, pause)| later(last, if has_news { every } else { pause }))
    }

    fn make(&mut self, rack: &mut rack::Part) {
        let has_news = NEWS.swap(false, Ordering::Relaxed);
        let round = Round::make(&self.suspects, rack);
        let is_calm = !has_news && round.suspects.is_empty();
        self.calm = if is_calm { self.calm + 1 } else { 0 };
        self.suspects = round.suspects;
        if self.calm >= CALM_ROUNDS && (round.is_complete || round.is_empty) && !round.leaves {
            self.last = None;
            return;
        }
        // Who has not answered is asked again, ever more rarely, and machines that may have to do with it are told
        // again.
        let (every, longest) = (Duration::from_millis(WATCH_EVERY_MS), Duration::from_millis(WATCH_EVERY_MS_MAX));
        let before = self.last.map_or(every, |(_, pause)| pause);
        let pause = if self.calm < CALM_ROUNDS { every } else { 2 * before };
        self.last = Some((Instant::now(), pause.min(longest).max(COST_PARTS * round.took)));
    }
}

/// What came of asking all workers once.
struct Round {
    /// Circles that are to be looked at again.
    suspects: HashSet<Cycle>,
    is_complete: bool,
    /// Nobody waits for anything that could be a circle.
    is_empty: bool,
    /// Some of it leads to other machines.
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
        // One that takes no more has ended, and its fibers with it.
        let _ = worker.send(Message::Interrupt(fiber, wait, why));
    }
}
