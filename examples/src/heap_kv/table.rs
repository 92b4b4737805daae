//! Interface of a store to the load, and the contents of one.

use graph::random::mix;

/// A store, as the load sees it.
pub trait Table {
    /// The result of `f` on a key's version and value.
    fn get<R>(&self, key: u64, f: impl FnOnce(u64, &[u64]) -> R) -> Option<R>;

    /// Sets the value of a key to so many words. Word `i` of a version is `word(version, i)`.
    fn put(&self, key: u64, words: usize, word: impl Fn(u64, usize) -> u64);
}

/// Returns the bucket of a key.
pub fn bucket_of(key: u64, buckets: usize) -> usize {
    ((u128::from(mix(key)) * buckets as u128) >> 64) as usize
}

/// Contents of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Number of keys.
    pub keys: u64,
    /// Number of puts.
    pub puts: u64,
    /// Checksum over all keys, versions and values, in any order.
    pub checksum: u64,
}

impl Answer {
    /// Adds one entry to the count.
    pub fn note(&mut self, key: u64, version: u64, value: &[u64]) {
        self.keys += 1;
        self.puts += version;
        let one = value.iter().fold(mix(key ^ mix(version)), |sum, word| mix(sum ^ word));
        self.checksum = self.checksum.wrapping_add(one);
    }
}
