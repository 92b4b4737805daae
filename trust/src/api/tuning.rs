//! `Tuning`: where the trustees of a pool are, and why.

use std::fmt;
use std::time::Duration;

use crate::Threadpool;
use crate::api::moving::Place;

/// Where the trustees of a pool are, of those that move: see [`Threadpool::tuning`]. `Display` writes one line, and one
/// for each trustee that stays where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tuning {
    /// The trustees that move, in the order of [`Threadpool::trustees`].
    pub trustees: Vec<Place>,
    /// Moves so far.
    pub moves: u64,
    /// Trials of other places so far, of a [tuned](crate::Builder::tuned) pool, and those of them that were undone,
    /// because fewer requests were answered.
    pub trials: u64,
    /// See `trials`.
    pub undone: u64,
    /// Longest time for which a trustee was between two workers, and served nobody.
    pub longest_pause: Duration,
}

impl Tuning {
    /// Returns the indices of the workers that run trustees, in order.
    ///
    /// ```
    /// let pool = trust::Threadpool::builder().workers(3).trustees(2).build();
    /// assert_eq!(pool.tuning().workers(), [0, 1]);
    /// ```
    pub fn workers(&self) -> Vec<usize> {
        let mut workers: Vec<_> = self.trustees.iter().map(|place| place.worker).collect();
        workers.sort_unstable();
        workers.dedup();
        workers
    }
}

impl Threadpool {
    /// Returns where the trustees are, of a pool with [`trustees`](crate::Builder::trustees) that move.
    ///
    /// ```
    /// let pool = trust::Threadpool::builder().workers(2).trustees(4).build();
    /// assert_eq!(pool.tuning().to_string(), "4 trustees on workers 0-1, 0 moves");
    /// ```
    pub fn tuning(&self) -> Tuning {
        let (trials, undone) = self.tuner().map_or((0, 0), |tuner| tuner.trials());
        let pauses = self.seats().iter().map(|seat| seat.pause_ns_max());
        Tuning {
            trustees: self.seats().iter().map(Place::of).collect(),
            moves: self.seats().iter().map(|seat| seat.moves()).sum(),
            trials,
            undone,
            longest_pause: Duration::from_nanos(pauses.max().unwrap_or(0)),
        }
    }
}

/// Numbers in order, as ranges.
struct Ranges<'a>(&'a [usize]);

impl fmt::Display for Ranges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|one, next| one + 1 == *next).filter_map(|run| run.first().zip(run.last()));
        for (number, (first, last)) in runs.enumerate() {
            write!(f, "{}{first}", if number > 0 { ", " } else { "" })?;
            if first != last {
                write!(f, "-{last}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.trustees.is_empty() {
            return f.write_str("no trustee moves");
        }
        let workers = self.workers();
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        write!(f, "{} trustee{} on ", self.trustees.len(), plural(self.trustees.len()))?;
        write!(f, "worker{} {}, {} moves", plural(workers.len()), Ranges(&workers), self.moves)?;
        if self.trials > 0 {
            write!(f, ", {} of {} trials undone", self.undone, self.trials)?;
        }
        for Place { trustee, worker, bound } in &self.trustees {
            if let Some(bound) = bound {
                write!(f, "\n{:?} stays on worker {worker}: {bound}", trustee.id())?;
            }
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_ranges() {
        let written = |numbers: &[usize]| Ranges(numbers).to_string();
        assert_eq!(written(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(written(&[3]), "3");
    }
}
