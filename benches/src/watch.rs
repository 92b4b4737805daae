//! Latencies of a closed loop: some of a client's operations are timed, told apart by whether the core of their trustee
//! or of their client was taken meanwhile.
//!
//! Not here: latencies at an offered load (latency/), the strangers that take cores (busy/strangers.rs).

use crate::basics::*;
use crate::report::empty_histogram;
use hdrhistogram::Histogram;

/// One operation in so many is timed: two looks at the clock cost as much as an uncontended lock. A prime, so that no
/// order of trustees has the same ones timed again and again.
const EVERY: u32 = 13;

/// How latencies are told apart. Worker `i` runs on core `i`, and object `o` belongs to worker `o` modulo their number.
#[derive(Clone, Copy, Debug)]
pub enum Split {
    Whole,
    /// This core is taken all the time.
    Core(usize),
    /// Each of the cores is taken in turn.
    Turns(Turns),
}

/// Core `first + k` modulo their number is taken from `start + k * period` on, for `taken`.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    pub start: Instant,
    pub period: Duration,
    pub taken: Duration,
    /// The owner of the first turn.
    pub first: usize,
    /// Cores that are taken in turn.
    pub cores: usize,
}

/// After a turn so long still counts as taken: its thread may be late.
const AFTER: Duration = Duration::from_micros(200);

impl Turns {
    /// The core that is taken in this turn.
    pub fn core(&self, turn: u32) -> usize {
        (self.first + turn as usize) % self.cores
    }

    /// Whether the core was taken at some time from `begun` to `ended`.
    fn has_taken(&self, core: usize, begun: Instant, ended: Instant) -> bool {
        let since = |at: Instant| at.saturating_duration_since(self.start).as_nanos();
        let period = self.period.as_nanos();
        let (first, last) = (since(begun) / period, since(ended) / period);
        ended >= self.start
            && (first..=last).any(|turn| {
                let from = turn * period;
                self.core(turn as u32) == core
                    && since(begun) < from + (self.taken + AFTER).as_nanos()
                    && since(ended) >= from
            })
    }
}

impl Split {
    fn has_taken(&self, core: usize, begun: Instant, ended: Instant) -> bool {
        match self {
            Split::Whole => false,
            Split::Core(taken) => core == *taken,
            Split::Turns(turns) => turns.has_taken(core, begun, ended),
        }
    }
}

/// Something of each kind of request, by the owner of the core that was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ByCore<T> {
    /// The core of neither client nor trustee, or of an unknown thread.
    pub others: T,
    pub to_taken: T,
    /// The client's, and not the trustee's.
    pub from_taken: T,
}

/// Latencies in nanoseconds.
pub type Latencies = ByCore<Histogram<u64>>;

impl<T> ByCore<T> {
    pub fn of(mut make: impl FnMut() -> T) -> Self {
        Self { others: make(), to_taken: make(), from_taken: make() }
    }

    pub fn map<R>(&self, map: impl Fn(&T) -> R) -> ByCore<R> {
        ByCore { others: map(&self.others), to_taken: map(&self.to_taken), from_taken: map(&self.from_taken) }
    }
}

impl Latencies {
    fn and(mut self, other: Self) -> Self {
        self.others += other.others;
        self.to_taken += other.to_taken;
        self.from_taken += other.from_taken;
        self
    }

    /// Those of all clients, if they were timed.
    pub fn sum(clients: impl IntoIterator<Item = Option<Latencies>>) -> Option<Latencies> {
        clients.into_iter().flatten().reduce(Self::and)
    }
}

/// A watcher of a client's operations.
pub trait Watch {
    /// State from the begin of an operation to its end.
    type Begun;

    fn begin(&mut self) -> Self::Begun;
    /// It has ended, on this object.
    fn end(&mut self, object: u32, begun: Self::Begun);
    fn latencies(self) -> Option<Latencies>;
}

/// Sees nothing and costs nothing.
#[derive(Debug)]
pub struct Unwatched;

impl Watch for Unwatched {
    type Begun = ();

    #[inline(always)]
    fn begin(&mut self) {}
    #[inline(always)]
    fn end(&mut self, _: u32, (): ()) {}
    fn latencies(self) -> Option<Latencies> {
        None
    }
}

/// Times one operation in [`EVERY`].
#[derive(Debug)]
pub struct Timer {
    split: Split,
    /// The worker that this client is, and how many there are; its requests to itself are not timed.
    place: Option<(usize, usize)>,
    until_next: u32,
    latencies: Latencies,
}

impl Timer {
    /// For a client that is no trustee.
    pub fn apart() -> Self {
        Self { split: Split::Whole, place: None, until_next: EVERY, latencies: ByCore::of(empty_histogram) }
    }

    /// For the client on this worker.
    pub fn on_worker(split: Split, worker: usize, workers: usize) -> Self {
        Self { split, place: Some((worker, workers)), ..Self::apart() }
    }

    #[cold]
    fn enter(&mut self, object: u32, begun: Instant, ended: Instant) {
        let latencies = &mut self.latencies;
        let histogram = match self.place {
            Some((worker, workers)) => {
                let trustee = object as usize % workers;
                if trustee == worker {
                    return;
                } else if self.split.has_taken(trustee, begun, ended) {
                    &mut latencies.to_taken
                } else if self.split.has_taken(worker, begun, ended) {
                    &mut latencies.from_taken
                } else {
                    &mut latencies.others
                }
            }
            None => &mut latencies.others,
        };
        histogram.saturating_record((ended - begun).as_nanos() as u64);
    }
}

impl Watch for Timer {
    type Begun = Option<Instant>;

    #[inline(always)]
    fn begin(&mut self) -> Option<Instant> {
        self.until_next -= 1;
        if self.until_next > 0 {
            return None;
        }
        self.until_next = EVERY;
        Some(Instant::now())
    }

    #[inline(always)]
    fn end(&mut self, object: u32, begun: Option<Instant>) {
        if let Some(begun) = begun {
            self.enter(object, begun, Instant::now());
        }
    }

    fn latencies(self) -> Option<Latencies> {
        Some(self.latencies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_core_is_taken_in_its_turns() {
        let start = Instant::now() + 1000 * MS;
        let turns = Turns { start, period: 100 * MS, taken: 4 * MS, first: 2, cores: 2 };
        let at = |ms: u32| start + ms * MS;
        let has_taken = |core, begun, ended| turns.has_taken(core, begun, ended);
        assert!(has_taken(0, at(1), at(2)) && !has_taken(1, at(1), at(2)), "the first turn is the first core's");
        assert!(has_taken(1, at(101), at(102)) && !has_taken(0, at(101), at(102)), "then the second's");
        assert!(has_taken(0, at(203), at(210)), "it began in the turn");
        assert!(has_taken(0, at(190), at(201)), "it ended in the turn");
        assert!(has_taken(0, at(190), at(290)), "the turn is in the middle of it");
        assert!(!has_taken(0, at(5), at(199)), "between two of its turns");
        assert!(!has_taken(0, start - 20 * MS, start - 10 * MS), "before all of them");
    }

    #[test]
    fn latencies_are_told_apart_by_whose_core_is_taken() {
        let (begun, ended) = (Instant::now(), Instant::now() + MS);
        // Three workers; the last one's core is taken.
        let seen = |worker: usize, object: u32| {
            let mut timer = Timer::on_worker(Split::Core(2), worker, 3);
            timer.enter(object, begun, ended);
            let latencies = timer.latencies().unwrap();
            [latencies.others.len(), latencies.to_taken.len(), latencies.from_taken.len()]
        };
        assert_eq!(seen(0, 4), [1, 0, 0]);
        assert_eq!(seen(0, 5), [0, 1, 0]);
        assert_eq!(seen(2, 4), [0, 0, 1]);
        assert_eq!(seen(0, 3), [0, 0, 0], "its own trustee");
    }

    #[test]
    fn one_operation_in_some_is_timed() {
        let mut timer = Timer::apart();
        for object in 0..2 * EVERY {
            let begun = timer.begin();
            timer.end(object, begun);
        }
        assert_eq!(timer.latencies().unwrap().others.len(), 2);
    }
}
