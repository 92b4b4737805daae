//! A map for any keys and values, spread over the workers of a pool: an example of a library built on `trust`.
//!
//! Its bounds are `Send + 'static`, whichever compiler and settings the final program has: its calls stay
//! [`in_process`](trust::Call::in_process). Callers may be fibers of the pool, or any other threads.
//!
//! ```
//! use sharded_map::ShardedMap;
//!
//! let pool = trust::Threadpool::new(2);
//! let ages = ShardedMap::new(&pool);
//! ages.insert("Ada".to_owned(), 36)?;
//! ages.with("Ada".to_owned(), |age| *age.or_insert(0) += 1)?;
//! assert_eq!(ages.get("Ada".to_owned())?, Some(37));
//! # Ok::<(), trust::Error>(())
//! ```

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

use trust::{Error, Threadpool, Trust};

/// Map in shards, one at each worker of a pool. A clone is another handle to the same map.
///
/// A key goes to the shard that its hash names, so operations on it take effect one after the other, without a lock.
pub struct ShardedMap<K, V> {
    shards: Vec<Trust<HashMap<K, V>>>,
    hasher: RandomState,
}

impl<K: Hash + Eq + Send + 'static, V: Send + 'static> ShardedMap<K, V> {
    /// Makes an empty map. It works as long as the pool lives.
    pub fn new(pool: &Threadpool) -> Self {
        let shards = pool.trustees().iter().map(|trustee| trustee.entrust(HashMap::new())).collect();
        ShardedMap { shards, hasher: RandomState::new() }
    }

    /// Inserts a value; returns the one that was there.
    ///
    /// # Errors
    /// [`Error::Gone`] once the pool has ended, and [`Error::Poisoned`] after a panic in [`with`](Self::with).
    ///
    /// # Panics
    /// Inside a delegated closure or a callback, where nothing may wait; so do all others here.
    pub fn insert(&self, key: K, value: V) -> Result<Option<V>, Error> {
        self.shard(&key).call().in_process().apply(move |map| map.insert(key, value)).wait()
    }

    /// Removes a value and returns it.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn remove(&self, key: K) -> Result<Option<V>, Error> {
        self.shard(&key).call().in_process().apply(move |map| map.remove(&key)).wait()
    }

    /// Returns a copy of a value.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn get(&self, key: K) -> Result<Option<V>, Error>
    where
        V: Clone,
    {
        self.shard(&key).call().in_process().apply(move |map| map.get(&key).cloned()).wait()
    }

    /// Runs a closure on the entry of a key, at its shard; returns its result.
    ///
    /// # Errors
    /// As [`insert`](Self::insert), and [`Error::Panicked`] if the closure does.
    pub fn with<R: Send + 'static>(
        &self,
        key: K,
        f: impl FnOnce(Entry<'_, K, V>) -> R + Send + 'static,
    ) -> Result<R, Error> {
        self.shard(&key).call().in_process().apply(move |map| f(map.entry(key))).wait()
    }

    /// Counts the entries, shard by shard: a snapshot of each, not of the whole.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn count(&self) -> Result<usize, Error> {
        self.shards.iter().map(|shard| shard.call().in_process().apply(|map| map.len()).wait()).sum()
    }

    fn shard(&self, key: &K) -> &Trust<HashMap<K, V>> {
        let index = self.hasher.hash_one(key) % self.shards.len() as u64;
        &self.shards[index as usize]
    }
}

impl<K, V> Clone for ShardedMap<K, V> {
    fn clone(&self) -> Self {
        ShardedMap { shards: self.shards.clone(), hasher: self.hasher.clone() }
    }
}

impl<K, V> fmt::Debug for ShardedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardedMap").field("shards", &self.shards.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fibers_and_threads_share_a_map_of_any_values() {
        let pool = Threadpool::new(2);
        let jobs: ShardedMap<String, Box<dyn FnOnce() -> usize + Send>> = ShardedMap::new(&pool);
        let fibers: Vec<_> = (0..2)
            .map(|fiber| {
                let jobs = jobs.clone();
                pool.spawn_on(fiber, move || {
                    for number in 0..100 {
                        let text = format!("{fiber}-{number}");
                        assert!(jobs.insert(text.clone(), Box::new(move || text.len())).unwrap().is_none());
                    }
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert_eq!(jobs.count().unwrap(), 200);
        let run = |key: &str| jobs.remove(key.to_owned()).unwrap().map(|job| job());
        assert_eq!((run("1-99"), run("0-7"), run("0-7")), (Some(4), Some(3), None));
    }

    #[test]
    fn a_panic_and_the_end_of_the_pool_are_errors() {
        let pool = Threadpool::new(1);
        let numbers = ShardedMap::new(&pool);
        numbers.insert("a", 1).unwrap();
        let panicked = numbers.with("a", |_| panic!("not today")).map(|()| 0);
        assert!(matches!(panicked, Err(Error::Panicked { .. })));
        assert!(matches!(numbers.get("a"), Err(Error::Poisoned { .. })));
        drop(pool);
        assert!(matches!(numbers.get("a"), Err(Error::Gone { .. })));
    }
}
