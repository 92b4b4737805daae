//! Free memory of a heap in runs of whole units, merged with their neighbours.

use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a unit: a span of small blocks, and the granularity of large ones. Its untouched pages take no memory.
pub(crate) const UNIT_BYTES: usize = 64 << 10;

/// Consecutive units of the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    /// Whether all of its bytes are zero.
    pub(crate) is_zero: bool,
}

impl Run {
    /// Divides it behind this many bytes, of which it has at least as many; returns the rest, if there is any.
    pub(crate) fn split(self, bytes: usize) -> (Run, Option<Run>) {
        let rest = Run { start: self.start + bytes, bytes: self.bytes - bytes, ..self };
        (Run { bytes, ..self }, (rest.bytes > 0).then_some(rest))
    }
}

/// Free runs.
#[derive(Default)]
pub(crate) struct Runs {
    by_start: BTreeMap<usize, Run>,
    /// Length and start of each run.
    by_bytes: BTreeSet<(usize, usize)>,
    bytes: usize,
}

impl Runs {
    pub(crate) const fn new() -> Runs {
        Runs { by_start: BTreeMap::new(), by_bytes: BTreeSet::new(), bytes: 0 }
    }

    fn insert(&mut self, run: Run) {
        self.by_start.insert(run.start, run);
        self.by_bytes.insert((run.bytes, run.start));
        self.bytes += run.bytes;
    }

    fn remove(&mut self, start: usize) -> Option<Run> {
        let run = self.by_start.remove(&start)?;
        self.by_bytes.remove(&(run.bytes, run.start));
        self.bytes -= run.bytes;
        Some(run)
    }

    /// Adds a run.
    pub(crate) fn give(&mut self, mut run: Run) {
        let before = self.by_start.range(..run.start).next_back().map(|(_, other)| *other);
        if let Some(before) = before.filter(|before| before.start + before.bytes == run.start) {
            self.remove(before.start);
            run = Run { start: before.start, bytes: before.bytes + run.bytes, is_zero: before.is_zero && run.is_zero };
        }
        if let Some(behind) = self.remove(run.start + run.bytes) {
            run = Run { bytes: run.bytes + behind.bytes, is_zero: run.is_zero && behind.is_zero, ..run };
        }
        self.insert(run);
    }

    /// Takes this many bytes from the shortest run that has them.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Run> {
        let (_, start) = *self.by_bytes.range((bytes, 0)..).next()?;
        let (run, rest) = self.remove(start)?.split(bytes);
        if let Some(rest) = rest {
            self.insert(rest);
        }
        Some(run)
    }

    /// Takes as many bytes as there are beyond `keeps`, at most `most`, from the longest run.
    pub(crate) fn take_surplus(&mut self, keeps: usize, most: usize) -> Option<Run> {
        let surplus = self.bytes.checked_sub(keeps).filter(|surplus| *surplus > 0)?;
        let (bytes, start) = *self.by_bytes.last()?;
        let run = self.remove(start)?;
        let taken = bytes.min(most).min(surplus.next_multiple_of(UNIT_BYTES));
        let (kept, taken) = run.split(bytes - taken);
        if kept.bytes > 0 {
            self.insert(kept);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: usize, units: usize) -> Run {
        Run { start: start * UNIT_BYTES, bytes: units * UNIT_BYTES, is_zero: false }
    }

    #[test]
    fn neighbours_become_one_run() {
        let mut runs = Runs::default();
        for start in [4, 0, 6, 2] {
            runs.give(Run { is_zero: true, ..run(start, 1) });
        }
        runs.give(Run { is_zero: true, ..run(1, 1) });
        runs.give(run(5, 1));
        let lengths: Vec<_> = runs.by_start.values().map(|run| (run.bytes / UNIT_BYTES, run.is_zero)).collect();
        assert_eq!(lengths, [(3, true), (3, false)]);
        runs.give(run(3, 1));
        assert_eq!(runs.take(7 * UNIT_BYTES), Some(run(0, 7)));
        assert_eq!((runs.bytes, runs.by_start.len(), runs.by_bytes.len()), (0, 0, 0));
    }

    #[test]
    fn the_shortest_run_that_has_room_gives_it() {
        let mut runs = Runs::default();
        [run(0, 8), run(10, 3), run(20, 2)].into_iter().for_each(|run| runs.give(run));
        assert_eq!(runs.take(2 * UNIT_BYTES), Some(run(20, 2)));
        assert_eq!(runs.take(2 * UNIT_BYTES), Some(run(10, 2)));
        assert_eq!(runs.take(9 * UNIT_BYTES), None);
        assert_eq!(runs.take(8 * UNIT_BYTES), Some(run(0, 8)));
        assert_eq!(runs.bytes, UNIT_BYTES);
    }

    #[test]
    fn a_surplus_comes_from_the_end_of_the_longest_run() {
        let mut runs = Runs::default();
        [run(0, 8), run(10, 3)].into_iter().for_each(|run| runs.give(run));
        assert_eq!(runs.take_surplus(11 * UNIT_BYTES, usize::MAX), None);
        assert_eq!(runs.take_surplus(9 * UNIT_BYTES, usize::MAX), Some(run(6, 2)));
        assert_eq!(runs.take_surplus(0, 4 * UNIT_BYTES), Some(run(2, 4)));
        let left = std::iter::from_fn(|| runs.take_surplus(0, usize::MAX)).map(|run| run.bytes).sum::<usize>();
        assert_eq!((left, runs.bytes), (5 * UNIT_BYTES, 0));
    }
}
