//! [`Bucket`]: the keys under one lock, and the owner of their values.

use crate::heaps::own::{Own, Slice};

/// Entries that lie in the bucket itself; more are in a bucket behind it.
const ENTRIES: usize = 6;

/// Storage of values and further buckets: the heap, or a `Box`.
pub trait Kind: Sized + 'static {
    /// The owner of a value.
    type Value: Slice<u64>;
    /// The owner of a bucket.
    type Next: Own<Target = Bucket<Self>>;

    /// The owner of this one.
    fn next(bucket: Bucket<Self>) -> Self::Next;
}

/// See the file's documentation.
pub struct Bucket<K: Kind> {
    entries: [Option<Entry<K::Value>>; ENTRIES],
    next: Option<K::Next>,
}

struct Entry<V> {
    key: u64,
    /// Number of puts.
    version: u64,
    value: V,
}

impl<K: Kind> Default for Bucket<K> {
    fn default() -> Self {
        Bucket { entries: [const { None }; ENTRIES], next: None }
    }
}

impl<K: Kind> Bucket<K> {
    /// The result of `f` on a key's version and value.
    pub fn get<R>(&self, key: u64, f: impl FnOnce(u64, &[u64]) -> R) -> Option<R> {
        match self.entries.iter().flatten().find(|entry| entry.key == key) {
            Some(entry) => Some(f(entry.version, &entry.value.read())),
            None => self.next.as_ref()?.read().get(key, f),
        }
    }

    /// Sets a value of so many words. Word `i` of a version is `word(version, i)`.
    pub fn put(&mut self, key: u64, words: usize, word: impl Fn(u64, usize) -> u64) {
        let of_version = |version| K::Value::make(words, |i| word(version, i));
        if let Some(entry) = self.entries.iter_mut().flatten().find(|entry| entry.key == key) {
            entry.version += 1;
            entry.value = of_version(entry.version);
        } else if let Some(empty) = self.entries.iter_mut().find(|entry| entry.is_none()) {
            *empty = Some(Entry { key, version: 1, value: of_version(1) });
        } else {
            self.next.get_or_insert_with(|| K::next(Bucket::default())).write().put(key, words, word);
        }
    }

    /// Tells of all of its keys.
    pub fn each(&self, told: &mut dyn FnMut(u64, u64, &[u64])) {
        self.entries.iter().flatten().for_each(|entry| told(entry.key, entry.version, &entry.value.read()));
        if let Some(next) = &self.next {
            next.read().each(told);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap_kv::twin::Boxed;

    #[test]
    fn a_bucket_has_as_many_keys_as_are_put() {
        let mut bucket = Bucket::<Boxed>::default();
        for round in 1..=2 {
            for key in 0..20 {
                bucket.put(key, 2, |version, i| key * 100 + version * 10 + i as u64);
                let found = bucket.get(key, |version, value| (version, value.to_vec()));
                assert_eq!(found, Some((round, vec![key * 100 + round * 10, key * 100 + round * 10 + 1])));
            }
        }
        assert_eq!(bucket.get(20, |version, _| version), None);
        let mut keys = Vec::new();
        bucket.each(&mut |key, version, _| keys.push((key, version)));
        keys.sort_unstable();
        assert_eq!(keys, (0..20).map(|key| (key, 2)).collect::<Vec<_>>());
    }
}
