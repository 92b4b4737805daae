//! Hash function of maps: keyed by the pool, the same in every build of this crate.
//!
//! For each 8 bytes two numbers are multiplied and the halves of the product folded, as in foldhash. This is a copy
//! because foldhash may change its function with its version.

use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};

/// Factory of a pool's hashers.
#[derive(Clone, Copy)]
pub(crate) struct Hashes(pub(crate) u64);

pub(crate) struct Folded {
    state: u64,
    key: u64,
}

const FIRST: u64 = 0x2d35_8dcc_aa6c_78a5;
const SECOND: u64 = 0x8bb8_4b93_962e_acc9;

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl BuildHasher for Hashes {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded { state: self.0 ^ FIRST, key: self.0.rotate_left(32) ^ SECOND }
    }
}

impl Hasher for Folded {
    #[inline]
    fn finish(&self) -> u64 {
        fold(self.state ^ FIRST, self.key)
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|&word| self.write_u64(u64::from_le_bytes(word)));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_le_bytes(last) ^ (rest.len() as u64) << 56);
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.state = fold(self.state ^ word, self.key ^ SECOND);
    }

    #[inline]
    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    #[inline]
    fn write_u16(&mut self, word: u16) {
        self.write_u64(word.into());
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

/// Hasher of volatile tables whose keys are numbers assigned by this process. They are looked up several times a call,
/// and no adversary chooses them.
pub(crate) type ByNumber = BuildHasherDefault<Folded>;

impl Default for Folded {
    fn default() -> Folded {
        Folded { state: FIRST, key: SECOND }
    }
}

/// Returns the hash of a value of several types. It goes through the `Hash` of the standard library, which may change.
pub(crate) fn sample() -> u64 {
    let value = (1u8, 2u16, -3i32, 4u64, 5u128, ("text", 'c', true), [6u8; 3], [7u64; 2].as_slice(), Some(8i64));
    Hashes(42).hash_one(value)
}

/// Returns the hash of a key. Its lowest bit is set, so that it is never 0.
pub(crate) fn of<Q: Hash + ?Sized>(seed: u64, key: &Q) -> u64 {
    Hashes(seed).hash_one(key) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_spread_and_stay_the_same() {
        // Hashes are written to files: if this fails, lookups in maps of older pools fail.
        assert_eq!((of(1, &7u64), of(2, "abc")), (of(1, &7u64), of(2, "abc")));
        let mut buckets = [0u32; 256];
        (0..25_600u64).for_each(|key| buckets[(of(9, &key) >> 56) as usize] += 1);
        assert!(buckets.iter().all(|&count| (40..200).contains(&count)), "{buckets:?}");
        assert_ne!(of(1, "abc"), of(1, "abd"));
        assert_ne!(of(1, "abc"), of(2, "abc"));
        assert_ne!(of(1, &[0u8; 3][..]), of(1, &[0u8; 4][..]));
    }
}
