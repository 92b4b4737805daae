//! The thread of a tuned pool: takes samples, and asks for the moves.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{Controller, Sample, SeatSample};
use crate::registry::Shared;
use crate::runtime::seats::{Bound, Seat};
use crate::stats::Counters;

/// Time between two samples, at least and, while nothing changes, at most: of a pool in use and of an idle one.
const PERIOD: Duration = Duration::from_millis(10);
const PERIOD_MAX: Duration = Duration::from_millis(40);
const PERIOD_IDLE_MAX: Duration = Duration::from_millis(200);
/// Workers whose time in the kernel's account is read for one sample.
const ACCOUNTS: usize = 16;

/// The thread of one pool. It ends when this is dropped.
pub(crate) struct Tuner(Arc<State>);

/// State that the pool reads.
struct State {
    is_over: Mutex<bool>,
    over: Condvar,
    /// Of each worker: does it serve? And the number of those that do not.
    serving: Vec<AtomicBool>,
    clients: AtomicUsize,
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
            serving: workers.iter().map(|_| AtomicBool::new(true)).collect(),
            clients: AtomicUsize::new(0),
            trials: AtomicU64::new(0),
            undone: AtomicU64::new(0),
        });
        let of_thread = Arc::clone(&state);
        thread::Builder::new().name(format!("{name}-tune")).spawn(move || of_thread.run(&workers, &seats))?;
        Ok(Tuner(state))
    }

    /// Returns the worker for the fiber with this number: new fibers avoid those that serve. `None` where all serve.
    pub(crate) fn client(&self, number: usize) -> Option<usize> {
        let turn = number.checked_rem(self.0.clients.load(Ordering::Relaxed))?;
        // `None`, too, if there are fewer by now.
        (0..self.0.serving.len()).filter(|&worker| !self.0.serving[worker].load(Ordering::Relaxed)).nth(turn)
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
        let mut seen: Vec<_> = workers.iter().map(|_| Seen::default()).collect();
        let mut looks = (0..workers.len()).cycle();
        let mut last = sample(start.elapsed(), workers, seats, &mut seen);
        let mut period = PERIOD;
        while !self.waits_for(period) {
            let at = start.elapsed();
            for worker in looks.by_ref().take(workers.len().min(ACCOUNTS)) {
                seen[worker].look_at(workers[worker].thread.get(), at);
            }
            let next = sample(at, workers, seats, &mut seen);
            let moves = controller.decide(&last, &next);
            for (worker, serves) in self.serving.iter().enumerate() {
                serves.store(controller.servers().binary_search(&worker).is_ok(), Ordering::Relaxed);
            }
            self.clients.store(workers.len() - controller.servers().len(), Ordering::Relaxed);
            let (trials, undone) = controller.trials();
            let undoes = undone > self.undone.load(Ordering::Relaxed);
            self.trials.store(trials, Ordering::Relaxed);
            self.undone.store(undone, Ordering::Relaxed);
            // A move that does not happen leaves its reason with the trustee; the trial is judged as it is.
            for to in &moves {
                let _ = seats[to.seat].ask_to_move(to.to, undoes);
            }
            let goes_on = !moves.is_empty() || controller.is_watching();
            let at_most = if controller.is_in_use() { PERIOD_MAX } else { PERIOD_IDLE_MAX };
            period = if goes_on { PERIOD } else { (2 * period).min(at_most) };
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

/// Facts about a worker that are not in its counters.
#[derive(Default)]
struct Seen {
    /// A sleep that is not over: the number of sleeps before it, and when it was seen first.
    sleep: Option<(u64, Duration)>,
    /// Time that the thread had waited for its core when it was looked at last, and the time then.
    waited: Option<(Duration, Duration)>,
    /// Part of the time that it waited, between the last two looks.
    stolen: f64,
}

impl Seen {
    /// Looks at the kernel's account of the thread's time; there is none where the kernel keeps none.
    fn look_at(&mut self, thread: i32, now: Duration) {
        let account = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap_or_default();
        // Time on a core, time ready to run and without one, both in nanoseconds.
        let waited = account.split_ascii_whitespace().nth(1).and_then(|ns| ns.parse().ok());
        let Some(waited) = waited.map(Duration::from_nanos) else { return };
        let Some((before, then)) = self.waited.replace((waited, now)) else { return };
        let time = now.saturating_sub(then).as_secs_f64();
        if time > 0.0 {
            self.stolen = (waited.saturating_sub(before).as_secs_f64() / time).min(1.0);
        }
    }
}

/// Requests that a trustee has run, for clients of its runner's own worker too.
fn served(counters: &Counters) -> u64 {
    counters.requests_served.get().wrapping_add(counters.requests_run_here.get())
}

fn sample(at: Duration, workers: &[Arc<Shared>], seats: &[Arc<Seat>], seen: &mut [Seen]) -> Sample {
    let stolen = seen.iter().map(|worker| worker.stolen).collect();
    let idle = workers.iter().zip(seen).map(|(worker, Seen { sleep, .. })| {
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
    Sample { at, idle: idle.collect(), stolen, seats: seats.iter().map(seat).collect() }
}
