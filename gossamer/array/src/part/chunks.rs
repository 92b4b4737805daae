//! Map by chunk number with a multiplicative hash. Messages look into several of these for each chunk; the numbers come
//! from the program's own places, so no adversary chooses them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub(super) type Chunks<V> = HashMap<u32, V, BuildHasherDefault<ChunkHasher>>;

/// Odd, and without any pattern: the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Debug, Default)]
pub(super) struct ChunkHasher(u64);

impl Hasher for ChunkHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(FACTOR));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(FACTOR);
    }

    fn finish(&self) -> u64 {
        // The map uses the lowest and the highest bits; the lowest bits of a product carry little information.
        self.0.rotate_left(26)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    #[test]
    fn chunks_in_a_row_or_dealt_in_turn_share_no_place_of_a_map() {
        for step in [1, 2, 3, 7, 64, 1024] {
            let hash = |number: u32| BuildHasherDefault::<ChunkHasher>::default().hash_one(number * step);
            let (places, tags): (Vec<u64>, Vec<u64>) =
                (0..64).map(|number| (hash(number) & 1023, hash(number) >> 57)).unzip();
            let different = |mut all: Vec<u64>| {
                all.sort_unstable();
                all.dedup();
                all.len()
            };
            assert!(different(places) >= 40, "in steps of {step}");
            assert!(different(tags) >= 24, "in steps of {step}");
        }
    }
}
