//! The jobs of the contenders of `gossamer-bench array`, the same for all: the elements accessed, their order, their
//! values at the end, and the report of a run.
//!
//! Here: picks, values, expected counts. Not here: how any contender reaches an element.
//!
//! Invariant: a contender that reads or leaves other values than this file says gives no figures.

use std::fmt;
use std::ops::Range;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::split_mix;

/// The operation on the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// One worker reads elements of its own in order, again and again.
    Hits,
    /// One worker adds up elements of its own.
    Sum,
    /// One worker reads the elements of the other one in order, once.
    Pass,
    /// All workers increment elements picked by a Zipf distribution.
    Zipf,
    /// All workers increment elements picked at random.
    Uniform,
    /// All workers set elements picked at random, each to its value.
    Sets,
    /// One worker increments so many elements of each chunk of the other one.
    Dense,
    /// The ranks of a graph's vertices, which are the elements, in `ops` rounds.
    Ranks,
    /// The components of a graph's vertices.
    Labels,
    /// Heat spreads over a square plate, whose cells are the elements, in `ops` steps.
    Heat,
    /// Values of 100 bytes, as many as elements, are got by a Zipf distribution.
    Gets,
    /// The same, and of twenty operations one puts.
    Puts,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// Elements of a chunk in [`Work::Dense`]: 4 KiB.
pub const CHUNK: usize = 512;
/// Elements in all: a power of two, so that picks need no division, and no more than picks of 32 bits reach.
const ELEMENTS_MAX: usize = 1 << 30;

/// One run of one contender.
#[derive(Clone, Copy, Debug, Args, Serialize)]
pub struct Job {
    /// The operation.
    #[arg(long)]
    pub work: Work,
    /// Elements of 8 bytes; a power of two.
    #[arg(long, default_value_t = 1 << 20)]
    pub elements: usize,
    /// Operations of each worker that has some to do.
    #[arg(long, default_value_t = 1 << 20)]
    pub ops: usize,
    /// Increments of each chunk, in `dense`.
    #[arg(long, default_value_t = 1)]
    pub per_chunk: usize,
    /// Seed of the picks.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Job {
    /// Says why the job is impossible, if it is.
    ///
    /// # Errors
    /// The option that is out of range, with the range.
    pub fn check(&self) -> Result<(), String> {
        let Job { elements, ops, per_chunk, .. } = *self;
        if !elements.is_power_of_two() || !(2 * CHUNK..=ELEMENTS_MAX).contains(&elements) {
            return Err(format!("--elements {elements}: a power of two from {} to {ELEMENTS_MAX}", 2 * CHUNK));
        }
        if ops == 0 || per_chunk == 0 {
            return Err("--ops and --per-chunk must not be 0".to_owned());
        }
        Ok(())
    }

    /// The command line that gives this job to a contender.
    pub fn arguments(&self) -> Vec<String> {
        let Job { work, elements, ops, per_chunk, seed } = *self;
        let pairs = [
            ("--work", work.to_string()),
            ("--elements", elements.to_string()),
            ("--ops", ops.to_string()),
            ("--per-chunk", per_chunk.to_string()),
            ("--seed", seed.to_string()),
        ];
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    /// Rows, and columns, of the plate of [`Work::Heat`].
    pub fn rows(&self) -> usize {
        self.elements.isqrt()
    }

    /// How often [`Work::Hits`] and [`Work::Sum`] go through all elements.
    pub fn passes(&self) -> usize {
        self.ops.div_ceil(self.elements)
    }

    /// The elements that [`Work::Pass`] reads: of the second half, which belongs to the second of two.
    pub fn remote(&self) -> Range<usize> {
        let half = self.elements / 2;
        half..half + self.ops.min(half)
    }

    /// The elements that worker `own` touches, in order; none for one that has nothing to do.
    pub fn picks(&self, own: usize) -> Vec<u32> {
        let mut random = Random(self.seed ^ (own as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mask = self.elements - 1;
        match self.work {
            Work::Uniform | Work::Sets => (0..self.ops).map(|_| random.next() as u32 & mask as u32).collect(),
            Work::Zipf | Work::Gets | Work::Puts => {
                let zipf = Zipf::new(self.elements);
                // Neighbours in popularity are no neighbours in memory.
                let scattered = |rank: usize| (rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask) as u32;
                (0..self.ops).map(|_| scattered(zipf.pick(&mut random))).collect()
            }
            Work::Dense if own == 0 => {
                let chunks = (self.elements / 2..self.elements).step_by(CHUNK);
                let of_chunk = |start: usize| {
                    (0..self.per_chunk).map(|_| (start + random.next() as usize % CHUNK) as u32).collect::<Vec<_>>()
                };
                chunks.flat_map(of_chunk).collect()
            }
            Work::Hits | Work::Sum | Work::Pass | Work::Dense | Work::Ranks | Work::Labels | Work::Heat => Vec::new(),
        }
    }

    /// The values of the elements of `range`, all 0 at first, after so many workers: how often each was picked, or, in
    /// [`Work::Sets`], its value if it was.
    pub fn expected(&self, workers: usize, range: Range<usize>) -> Vec<u64> {
        let mut expected = vec![0; range.len()];
        for pick in (0..workers).flat_map(|own| self.picks(own)).map(|pick| pick as usize) {
            if let Some(element) = expected.get_mut(pick.wrapping_sub(range.start)) {
                *element = if self.work == Work::Sets { value(pick) } else { *element + 1 };
            }
        }
        expected
    }
}

/// The value of element `index` in jobs that read elements. Never 0.
#[inline(always)]
pub fn value(index: usize) -> u64 {
    split_mix(index as u64) | 1
}

/// The values of these elements, added up.
pub fn sum_of(range: Range<usize>) -> u64 {
    range.map(value).fold(0, u64::wrapping_add)
}

/// Number of elements that differ from the expected ones, are missing or are too many.
pub fn wrong<'a>(expected: &[u64], elements: impl IntoIterator<Item = &'a u64>) -> u64 {
    let mut seen = 0;
    let differ = elements.into_iter().inspect(|_| seen += 1).zip(expected).filter(|(is, wanted)| is != wanted);
    let differ = differ.count();
    (differ + expected.len().abs_diff(seen)) as u64
}

/// Numbers without any order (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        split_mix(self.0)
    }
}

/// Ranks below a number, each with a probability proportional to 1 / (rank + 1).
///
/// Rejection inversion (W. Hörmann and G. Derflinger, 1996) for the exponent 1, where the integral is the logarithm.
struct Zipf {
    most: f64,
    low: f64,
    high: f64,
    accept: f64,
}

impl Zipf {
    fn new(ranks: usize) -> Zipf {
        let most = ranks as f64;
        let accept = 2.0 - (2.5f64.ln() - 0.5).exp();
        Zipf { most, low: 1.5f64.ln() - 1.0, high: (most + 0.5).ln(), accept }
    }

    fn pick(&self, random: &mut Random) -> usize {
        loop {
            let share = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
            let area = self.high + share * (self.low - self.high);
            let x = area.exp();
            let rank = x.round().clamp(1.0, self.most);
            if rank - x <= self.accept || area >= (rank + 0.5).ln() - 1.0 / rank {
                return rank as usize - 1;
            }
        }
    }
}

/// Result of a run, as one line of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Operations of all workers together: elements read, set or incremented.
    pub ops: u64,
    /// From the first one's start to the last one's end, with all that is needed for others to see them.
    pub seconds: f64,
}

impl Outcome {
    /// Of a run that lasted from one moment of [`now_ns`](crate::now_ns) to another.
    pub fn new(ops: u64, start_ns: u64, end_ns: u64) -> Outcome {
        Outcome { ops, seconds: end_ns.saturating_sub(start_ns).max(1) as f64 / 1e9 }
    }

    /// Millions of operations a second.
    pub fn mops(&self) -> f64 {
        self.ops as f64 / self.seconds / 1e6
    }

    /// As a line.
    ///
    /// # Errors
    /// None that is known.
    pub fn line(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(work: Work) -> Job {
        Job { work, elements: 1 << 10, ops: 20_000, per_chunk: 3, seed: 1 }
    }

    #[test]
    fn picks_are_in_range_repeatable_and_of_each_worker_its_own() {
        for work in [Work::Zipf, Work::Uniform] {
            let picks = job(work).picks(1);
            assert_eq!(picks.len(), 20_000);
            assert!(picks.iter().all(|&pick| pick < 1 << 10));
            assert_eq!(picks, job(work).picks(1));
            assert_ne!(picks, job(work).picks(0));
            let expected = job(work).expected(2, 0..1 << 10);
            assert_eq!(job(work).expected(2, 512..1024), expected[512..]);
            assert_eq!(expected.iter().sum::<u64>(), 40_000);
        }
    }

    #[test]
    fn a_dense_job_has_its_share_in_each_chunk_of_the_other() {
        let mut job = Job { elements: 1 << 12, ..job(Work::Dense) };
        assert!(job.picks(1).is_empty());
        job.per_chunk = 7;
        let expected = job.expected(2, 0..1 << 12);
        let of_chunks: Vec<u64> = expected.chunks(CHUNK).map(|chunk| chunk.iter().sum()).collect();
        assert_eq!(of_chunks, [0, 0, 0, 0, 7, 7, 7, 7]);
    }

    #[test]
    fn a_rank_is_picked_by_its_inverse() {
        let (zipf, mut random) = (Zipf::new(64), Random(7));
        let mut counts = [0u32; 64];
        (0..200_000).for_each(|_| counts[zipf.pick(&mut random)] += 1);
        // The 64th harmonic number is 4.744.
        for (rank, &count) in counts.iter().enumerate() {
            let wanted = 200_000.0 / 4.744 / (rank + 1) as f64;
            assert!((f64::from(count) - wanted).abs() < 6.0 * wanted.sqrt(), "{rank}: {count}, not {wanted}");
        }
    }

    #[test]
    fn what_is_wrong_missing_or_too_much_is_counted() {
        let expected = [1, 2, 3];
        assert_eq!(wrong(&expected, &[1, 2, 3]), 0);
        assert_eq!(wrong(&expected, &[1, 0, 3]), 1);
        assert_eq!(wrong(&expected, &[1, 2]), 1);
        assert_eq!(wrong(&expected, &[1, 2, 3, 4]), 1);
    }

    #[test]
    fn jobs_out_of_range_are_told() {
        assert!(job(Work::Hits).check().is_ok());
        assert!(Job { elements: 1000, ..job(Work::Hits) }.check().is_err());
        assert!(Job { elements: 512, ..job(Work::Hits) }.check().is_err());
        assert!(Job { ops: 0, ..job(Work::Hits) }.check().is_err());
        assert_eq!(Job { ops: 100, ..job(Work::Pass) }.remote(), 512..612);
        assert_eq!(job(Work::Pass).remote(), 512..1024);
        assert_eq!(job(Work::Hits).passes(), 20);
    }
}
