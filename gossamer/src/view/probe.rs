//! Empty requests to the workers of this machine while it is watched: they measure how soon each comes to its loop.
//!
//! Invariant: at most one is in flight to each worker, so a stuck one is sent no more.

use std::sync::Arc;
use std::time::Duration;

use trust::TrusteeReference;
use trust::link::Probe;

use super::stacks::{Stack, Stacks};

/// Upper bounds of the buckets of round trips, in nanoseconds, each four times the one before; one more bucket has no
/// bound.
pub const ROUND_TRIP_BOUNDS_NS: [u64; 10] =
    [4_000, 16_000, 64_000, 256_000, 1_000_000, 4_000_000, 16_000_000, 64_000_000, 256_000_000, 1_000_000_000];

/// Measurements of one worker.
#[derive(Clone, Debug, Default)]
pub(super) struct Trips {
    pending: Option<Arc<Probe>>,
    pub(super) buckets: [u64; ROUND_TRIP_BOUNDS_NS.len() + 1],
    pub(super) sum_ns: u64,
    pub(super) silent_ms: u64,
    /// Closure or fiber that keeps the worker from its loop, if it does not come to it and that is known.
    pub(super) kept_by: String,
    /// Memory of its own.
    pub(super) memory_bytes: u64,
}

/// Measurements of all workers, in order.
#[derive(Debug, Default)]
pub(super) struct Probes {
    trips: Vec<Trips>,
    stacks: Stacks,
}

/// Age below which a probe in flight says nothing yet.
const SILENT_MS: u64 = 200;
/// Age from which on its worker's stack is sampled, so that it is there when the worker is reported.
const STACK_MS: u64 = 750;
/// Interval of the checks while a probe is in flight: a closure is known to be long when it was seen twice.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(250);

impl Probes {
    /// Takes the answers that have come. With `and_send`, sends a probe to each worker that has answered.
    pub(super) fn look(&mut self, workers: &[TrusteeReference], and_send: bool) {
        self.trips.resize_with(workers.len(), Trips::default);
        for (worker, trips) in workers.iter().zip(&mut self.trips) {
            if let Some(probe) = &trips.pending {
                match probe.took() {
                    Some(took) => {
                        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
                        trips.buckets[bucket(ns)] += 1;
                        trips.sum_ns = trips.sum_ns.saturating_add(ns);
                        (trips.pending, trips.silent_ms) = (None, 0);
                        trips.kept_by.clear();
                    }
                    None => {
                        let ms = u64::try_from(probe.age().as_millis()).unwrap_or(u64::MAX);
                        trips.silent_ms = if ms < SILENT_MS { 0 } else { ms };
                    }
                }
            }
            if and_send {
                let memory = trust::link::memory(*worker).unwrap_or_default();
                trips.memory_bytes = memory.stacks_bytes + memory.properties_bytes;
                if trips.pending.is_none() {
                    trips.pending = trust::link::probe(*worker);
                }
            }
        }
        if self.trips.iter().any(|trips| trips.silent_ms > 0) {
            let long = trust::link::long_closures();
            for (worker, trips) in workers.iter().zip(&mut self.trips).filter(|(_, trips)| trips.silent_ms > 0) {
                let closure = long.iter().find(|closure| closure.worker == worker.id());
                let closure = closure.map(|closure| format!("the closure {}", closure.name));
                trips.kept_by = closure.or_else(|| trust::link::running_fiber(*worker)).unwrap_or_default();
            }
        }
        let stuck = workers.iter().zip(&self.trips).filter(|(_, trips)| trips.silent_ms >= STACK_MS);
        self.stacks.update(&stuck.map(|(worker, _)| *worker).collect::<Vec<_>>());
    }

    /// Returns whether any has not answered.
    pub(super) fn are_waiting(&self) -> bool {
        self.trips.iter().any(|trips| trips.pending.is_some())
    }

    pub(super) fn of(&self, worker: usize) -> Trips {
        self.trips.get(worker).cloned().unwrap_or_default()
    }

    /// Returns the stack of a worker that does not answer, if it is known by now.
    pub(super) fn stack_of(&self, worker: TrusteeReference) -> Option<Stack> {
        self.stacks.of(worker)
    }
}

fn bucket(ns: u64) -> usize {
    ROUND_TRIP_BOUNDS_NS.iter().position(|bound| ns <= *bound).unwrap_or(ROUND_TRIP_BOUNDS_NS.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn round_trips_fall_into_buckets() {
        assert_eq!([0, 4_000, 4_001, 1_000_000_000, 1_000_000_001, u64::MAX].map(bucket), [0, 0, 1, 9, 10, 10]);
    }

    fn until_stack(probes: &mut Probes, workers: &[TrusteeReference]) -> Stack {
        let mut stack = None;
        limits::wait_until("a stack", || {
            probes.look(workers, true);
            stack = probes.stack_of(workers[1]);
            stack.is_some()
        });
        stack.unwrap()
    }

    #[test]
    fn a_worker_that_is_stuck_is_silent_and_answers_when_it_is_free() {
        let pool = trust::Threadpool::builder().workers(2).pin(false).build();
        let (stuck, free) = std::sync::mpsc::channel::<()>();
        let free = std::sync::Mutex::new(free);
        let fiber = pool.spawn_on(1, move || drop(free.lock().map(|free| free.recv())));
        let workers = pool.trustees().to_vec();
        let mut probes = Probes::default();
        let end = Instant::now() + Duration::from_secs(30);
        let until = |probes: &mut Probes, done: &dyn Fn(&Probes) -> bool| {
            while !done(probes) {
                assert!(Instant::now() < end, "{probes:?}");
                std::thread::sleep(Duration::from_millis(10));
                probes.look(&workers, true);
            }
        };
        until(&mut probes, &|probes| probes.of(1).silent_ms > 500 && !probes.of(1).kept_by.is_empty());
        let kept_by = probes.of(1).kept_by;
        assert!(kept_by.starts_with("fiber ") && kept_by.contains("a_worker_that_is_stuck"), "{kept_by}");
        let stack = until_stack(&mut probes, &workers);
        assert!(stack.frames.iter().any(|frame| frame.contains("recv")), "{stack:?}");
        assert!(probes.of(1).memory_bytes > 0);
        assert!(probes.of(0).buckets.iter().sum::<u64>() > 1 && probes.of(1).buckets.iter().sum::<u64>() <= 1);
        drop(stuck);
        until(&mut probes, &|probes| probes.of(1).silent_ms == 0 && probes.of(1).sum_ns > 500_000_000);
        assert_eq!((probes.of(1).kept_by.as_str(), probes.stack_of(workers[1])), ("", None));
        drop(fiber.join());
        // A closure is named by its type, and by that of its property.
        let (stuck, free) = std::sync::mpsc::channel::<()>();
        let slow = pool.trustees()[1].entrust(free);
        let asking = pool.spawn_on(0, move || slow.apply(|free| free.recv().is_ok()));
        until(&mut probes, &|probes| probes.of(1).kept_by.starts_with("the closure `"));
        assert!(probes.of(1).kept_by.contains("Receiver<()>`"), "{}", probes.of(1).kept_by);
        drop(stuck);
        until(&mut probes, &|probes| probes.of(1).silent_ms == 0);
        assert!(!asking.join().unwrap());
    }
}
