//! The tables in shared memory that are compared: DashMap, and 512 shards of a standard map under a lock each.

use super::shared::Table;
use crate::kv::record::{Hashing, Value, shard_of};
use crossbeam_utils::CachePadded;
use dashmap::DashMap;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::{Mutex, PoisonError};

/// A standard map with the hash function of all.
pub type Map = HashMap<u64, Value, Hashing>;

/// Shards of the tables under locks.
pub const SHARDS: usize = 512;

/// A lock that a shard lies behind.
pub trait Lock<T>: Sync + 'static {
    fn around(value: T) -> Self;
    fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R;
    fn write<R>(&self, change: impl FnOnce(&mut T) -> R) -> R;
}

/// Which call looks and which changes; a lock that another thread's panic poisoned is taken as it is.
macro_rules! lock {
    ($lock:ty, $read:ident, $write:ident $(, $poison:expr)?) => {
        impl<T: Send + Sync + 'static> Lock<T> for $lock {
            fn around(value: T) -> Self {
                Self::new(value)
            }
            #[inline(always)]
            fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
                look(&self.$read()$(.unwrap_or_else($poison))?)
            }
            #[inline(always)]
            fn write<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
                change(&mut self.$write()$(.unwrap_or_else($poison))?)
            }
        }
    };
}

lock!(Mutex<T>, lock, lock, PoisonError::into_inner);
lock!(parking_lot::Mutex<T>, lock, lock);
lock!(parking_lot::RwLock<T>, read, write);

/// 512 shards, each behind a lock in cache lines of its own.
pub struct Sharded<L>(Box<[CachePadded<L>]>);

impl<L> Sharded<L> {
    pub fn of(shard: impl Fn() -> L) -> Self {
        Self((0..SHARDS).map(|_| CachePadded::new(shard())).collect())
    }

    #[inline(always)]
    pub fn shard(&self, key: impl Hash) -> &L {
        &self.0[shard_of(Hashing::default().hash_one(key), SHARDS)]
    }

    pub fn shards(&self) -> impl Iterator<Item = &L> {
        self.0.iter().map(|shard| &**shard)
    }
}

impl<L: Lock<Map>> Table for Sharded<L> {
    fn with_capacity(keys: usize) -> Self {
        Self::of(|| L::around(Map::with_capacity_and_hasher(keys / SHARDS, Hashing::default())))
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<Value> {
        self.shard(key).read(|map| map.get(&key).copied())
    }

    #[inline(always)]
    fn set(&self, key: u64, value: Value) -> Option<Value> {
        self.shard(key).write(|map| map.insert(key, value))
    }
}

/// DashMap with its default number of shards.
pub type Dash = DashMap<u64, Value, Hashing>;

impl Table for Dash {
    fn with_capacity(keys: usize) -> Self {
        Self::with_capacity_and_hasher(keys, Hashing::default())
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<Value> {
        DashMap::get(self, &key).map(|value| *value)
    }

    #[inline(always)]
    fn set(&self, key: u64, value: Value) -> Option<Value> {
        self.insert(key, value)
    }
}
