//! Which object each operation touches: index arrays made before the clock starts.
//!
//! Every contender reads the same arrays in the same order, so that picking costs the same, and
//! little, for all. Not here: the threads that run the operations.

use crate::basics::*;
use crate::names::name_of;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution as _, Zipf};
use std::fmt;

/// How objects are picked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dist {
    /// Every object alike.
    #[default]
    Uniform,
    /// The r-th most popular object with a probability proportional to 1/r (thesis 2.6.1.2, alpha 1).
    Zipf,
}

impl fmt::Display for Dist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(*self))
    }
}

/// Index arrays, one for each client thread; lengths are a power of two.
#[derive(Clone, Debug)]
pub struct Picks(Arc<[Vec<u32>]>);

/// Fewest picks of an array.
pub const SHORTEST: usize = 1 << 16;
const LONGEST: usize = 1 << 23;

/// The bit of a pick that [`Picks::marked`] sets; objects are fewer.
pub const MARK: u32 = 1 << 31;

impl Picks {
    /// Arrays of object indices below `objects` for `threads` clients, the same for the same seed.
    ///
    /// Popular ranks of the zipf distribution are scattered over the objects, so that they neither
    /// share cache lines more than others do nor all belong to one trustee.
    pub fn new(dist: Dist, objects: usize, threads: usize, seed: u64) -> Self {
        let length = objects.next_power_of_two().clamp(SHORTEST, LONGEST);
        let mut object_of_rank: Vec<u32> = (0..objects as u32).collect();
        object_of_rank.shuffle(&mut StdRng::seed_from_u64(seed));
        let arrays = (0..threads as u64).map(|thread| {
            let mut rng = StdRng::seed_from_u64(seed ^ (thread + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            match dist {
                Dist::Uniform => (0..length).map(|_| rng.random_range(0..objects as u32)).collect(),
                Dist::Zipf => {
                    let ranks = Zipf::new(objects as f64, 1.0).expect("at least one object, alpha 1");
                    (0..length)
                        .map(|_| object_of_rank[(ranks.sample(&mut rng) as usize).clamp(1, objects) - 1])
                        .collect()
                }
            }
        });
        Self(arrays.collect())
    }

    /// The same picks, of which `percent` in a hundred, at random, have [`MARK`] set (writes, where the others read).
    pub fn marked(&self, percent: u32, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut mark = |pick: u32| if rng.random_range(0..100) < percent { pick | MARK } else { pick };
        Self(self.0.iter().map(|array| array.iter().map(|&pick| mark(pick)).collect()).collect())
    }

    pub fn of(&self, thread: usize) -> &[u32] {
        &self.0[thread]
    }

    /// The picks of client `thread` for the operations numbered `claim.start..claim.end`.
    ///
    /// A claim never straddles the end of the array: `Budget` hands out
    /// aligned powers of two.
    pub fn slice(&self, thread: usize, claim: &std::ops::Range<u64>) -> &[u32] {
        let array = self.of(thread);
        let start = claim.start as usize & (array.len() - 1);
        &array[start..start + (claim.end - claim.start) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_are_in_range_and_repeatable() {
        for dist in [Dist::Uniform, Dist::Zipf] {
            for objects in [1, 3, 64] {
                let picks = Picks::new(dist, objects, 2, 7);
                assert!(picks.of(0).iter().chain(picks.of(1)).all(|&pick| (pick as usize) < objects));
                assert_eq!(picks.of(1), Picks::new(dist, objects, 2, 7).of(1));
            }
        }
    }

    #[test]
    fn marks_are_as_many_as_asked_for_and_leave_the_picks() {
        let picks = Picks::new(Dist::Uniform, 1000, 1, 7);
        for (percent, least, most) in [(0, 0.0, 0.0), (5, 0.045, 0.055), (100, 1.0, 1.0)] {
            let marked = picks.marked(percent, 3);
            assert!(marked.of(0).iter().zip(picks.of(0)).all(|(marked, pick)| marked & !MARK == *pick));
            let share = marked.of(0).iter().filter(|&&pick| pick & MARK != 0).count() as f64 / picks.of(0).len() as f64;
            assert!((least..=most).contains(&share), "{share} of the picks are marked, not {percent}%");
        }
    }

    #[test]
    fn zipf_prefers_one_object_by_its_rank() {
        let picks = Picks::new(Dist::Zipf, 64, 1, 7);
        let mut counts = [0usize; 64];
        picks.of(0).iter().for_each(|&pick| counts[pick as usize] += 1);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // The 64th harmonic number is 4.744: the first rank gets 1/4.744 = 21% of all picks.
        let share = counts[0] as f64 / picks.of(0).len() as f64;
        assert!((share - 0.2108).abs() < 0.01, "share of the first rank is {share}");
        let second = counts[1] as f64 / counts[0] as f64;
        assert!((second - 0.5).abs() < 0.05, "second rank is {second} of the first");
    }
}
