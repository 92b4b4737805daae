//! The thread of a tuned pool: takes samples, and asks for the moves.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{Controller, Sample, SeatSample};
use crate::registry::Shared;
use crate::runtime::seats::{Bound, Seat};
use crate::stats::Counters;

/// Time between two samples, at least and, while nothing changes, at most.
const PERIOD: Duration = Duration::from_millis(20);
const PERIOD_MAX: Duration = Duration::from_secs(1);

/// The thread of one pool. It ends when this is dropped.
pub(crate) struct Tuner(Arc<State>);

/// State that the pool reads.
struct State {
    is_over: Mutex<bool>,
    over: Condvar,
    serving: AtomicUsize,
    trials: AtomicU64,
    undone: AtomicU64,
}

impl Tuner {
    /// Starts the thread.
    ///
    /// # Errors
    /// That of the operating system.
    pub(crate) fn start(name: &str, workers: Vec<Arc<Shared>>, seats: Vec<Arc<Seat>>) -> std::io::Result<Tuner> {
        let state = Arc::new(State {
            is_over: Mutex::new(false),
            over: Condvar::new(),
            serving: AtomicUsize::new(workers.len()),
            trials: AtomicU64::new(0),
            undone: AtomicU64::new(0),
        });
        let of_thread = Arc::clone(&state);
        thread::Builder::new().name(format!("{name}-tune")).spawn(move || of_thread.run(&workers, &seats))?;
        Ok(Tuner(state))
    }

    /// Number of workers, the last ones, that serve. Where these are not all, new fibers avoid them.
    pub(crate) fn serving(&self) -> usize {
        self.0.serving.load(Ordering::Relaxed)
    }

    /// Trials so far, and those that were undone.
    pub(crate) fn trials(&self) -> (u64, u64) {
        (self.0.trials.load(Ordering::Relaxed), self.0.undone.load(Ordering::Relaxed))
    }
}

impl Drop for Tuner {
    fn drop(&mut self) {
        *self.0.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.over.notify_all();
    }
}

impl State {
    fn run(&self, workers: &[Arc<Shared>], seats: &[Arc<Seat>]) {
        let start = Instant::now();
        let mut controller = Controller::new(workers.len(), seats.len());
        let mut sleeps = vec![None; workers.len()];
        let mut last = sample(start.elapsed(), workers, seats, &mut sleeps);
        let mut period = PERIOD;
        while !self.waits_for(period) {
            let next = sample(start.elapsed(), workers, seats, &mut sleeps);
            let moves = controller.decide(&last, &next);
            self.serving.store(controller.serving(), Ordering::Relaxed);
            let (trials, undone) = controller.trials();
            let undoes = undone > self.undone.load(Ordering::Relaxed);
            self.trials.store(trials, Ordering::Relaxed);
            self.undone.store(undone, Ordering::Relaxed);
            // A move that does not happen leaves its reason with the trustee; the trial is judged as it is.
            for to in &moves {
                let _ = seats[to.seat].ask_to_move(to.to, undoes);
            }
            let goes_on = !moves.is_empty() || controller.is_watching();
            period = if goes_on { PERIOD } else { (2 * period).min(PERIOD_MAX) };
            last = next;
        }
    }

    /// Waits for this time. True if the pool is at its end.
    fn waits_for(&self, time: Duration) -> bool {
        let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.over.wait_timeout_while(is_over, time, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A sleep that is not over, and so not in the counters: their number of sleeps before it, and when it was seen first.
type Sleep = Option<(u64, Duration)>;

/// Requests that a trustee has run, for clients of its runner's own worker too.
fn served(counters: &Counters) -> u64 {
    counters.requests_served.get().wrapping_add(counters.requests_run_here.get())
}

fn sample(at: Duration, workers: &[Arc<Shared>], seats: &[Arc<Seat>], sleeps: &mut [Sleep]) -> Sample {
    let idle = workers.iter().zip(sleeps).map(|(worker, sleep)| {
        let counters = &worker.counters;
        let parks = counters.parks.get();
        let since = sleep.filter(|(number, _)| *number == parks).map_or(at, |(_, since)| since);
        *sleep = worker.parker.is_armed().then_some((parks, since));
        let asleep = if sleep.is_some() { at.saturating_sub(since) } else { Duration::ZERO };
        Duration::from_nanos(counters.polled_ns.get() + counters.parked_ns.get()).saturating_add(asleep)
    });
    let seat = |seat: &Arc<Seat>| SeatSample {
        served: served(&seat.shared.counters),
        worker: seat.runner(),
        is_bound: seat.bound().is_some_and(Bound::is_lasting),
    };
    Sample { at, idle: idle.collect(), seats: seats.iter().map(seat).collect() }
}
