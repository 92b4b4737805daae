//! Numbers by seed that are the same everywhere and can be had in any order (SplitMix64), and permutations of ranges
//! that need no table.

use crate::Vertex;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64: each bit of the result depends on each bit of `x`.
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// A sequence of numbers, by seed and the number of the sequence.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Sequences of different numbers have nothing to do with one another.
    pub fn new(seed: u64, sequence: u64) -> Random {
        Random(mix(seed.wrapping_add(STEP)) ^ mix(sequence.wrapping_mul(STEP).wrapping_add(1)))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }
}

/// A permutation of `0..count`, by seed.
#[derive(Debug, Clone)]
pub struct Permutation {
    count: u64,
    bits: u32,
    keys: [u64; 4],
}

impl Permutation {
    /// # Panics
    /// If `count` is over 2^63.
    pub fn new(seed: u64, count: u64) -> Permutation {
        let mut random = Random::new(seed, u64::MAX);
        let bits = count.next_power_of_two().trailing_zeros();
        Permutation { count, bits, keys: std::array::from_fn(|_| random.next_u64()) }
    }

    /// Returns the place of `x`.
    ///
    /// # Panics
    /// If `x` is not below `count`.
    pub fn of(&self, x: u64) -> u64 {
        assert!(x < self.count, "{x} is not among 0..{}", self.count);
        // Of the next power of two, walked until it is back in the range: each step is a bijection, so this ends.
        let mut y = self.step(x);
        while y >= self.count {
            y = self.step(y);
        }
        y
    }

    fn step(&self, mut x: u64) -> u64 {
        if self.bits == 0 {
            return x;
        }
        let (mask, half) = ((1u64 << self.bits) - 1, self.bits.div_ceil(2));
        for key in self.keys {
            // Each line has an inverse on numbers of so many bits.
            x = x.wrapping_add(key) & mask;
            x = x.wrapping_mul(key | 1) & mask;
            x ^= x >> half;
        }
        x
    }
}

/// Up to `count` different vertices that have edges, by seed: the roots of searches, as Graph500 chooses them.
pub fn roots(seed: u64, vertices: u32, count: usize, mut has_edges: impl FnMut(Vertex) -> bool) -> Vec<Vertex> {
    let order = Permutation::new(mix(seed), u64::from(vertices));
    (0..u64::from(vertices)).map(|x| order.of(x) as Vertex).filter(|&vertex| has_edges(vertex)).take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_hits_each_number_once() {
        for count in [1, 2, 3, 7, 64, 1000, 4096] {
            let permutation = Permutation::new(7, count);
            let mut hit: Vec<u64> = (0..count).map(|x| permutation.of(x)).collect();
            assert!(count < 64 || hit.iter().zip(0..).filter(|(y, x)| *y == x).count() < 10, "{count} is not permuted");
            hit.sort_unstable();
            assert!(hit.into_iter().eq(0..count), "{count}");
        }
    }

    #[test]
    fn roots_have_edges_and_differ() {
        let is_odd = |vertex: Vertex| vertex % 2 == 1;
        let mut chosen = roots(1, 1000, 64, is_odd);
        assert!(chosen.iter().all(|&root| is_odd(root) && root < 1000));
        assert_eq!(chosen, roots(1, 1000, 64, is_odd));
        assert_ne!(chosen, roots(2, 1000, 64, is_odd));
        chosen.sort_unstable();
        chosen.dedup();
        assert_eq!(chosen.len(), 64);
        assert_eq!(roots(1, 10, 64, is_odd).len(), 5);
        assert_eq!(roots(1, 0, 64, is_odd), []);
    }

    #[test]
    fn the_numbers_are_fixed_and_even() {
        assert_eq!(mix(1), 0x5692_161d_100b_05e5);
        let mut random = Random::new(1, 2);
        let ones: u32 = (0..1000).map(|_| random.next_u64().count_ones()).sum();
        assert!((31_000..33_000).contains(&ones), "{ones}");
    }
}
