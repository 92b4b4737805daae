//! The tables in shared memory that are compared: DashMap, papaya, and 512 shards of a standard map under a lock each.

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::{Mutex, PoisonError, RwLock},
};

use crossbeam_utils::CachePadded;
use dashmap::DashMap;

use super::shared::{Handle, Table};
use crate::kv::record::{Hashing, Value, shard_of};

/// A standard map with the hash function of all.
pub type Map = HashMap<u64, Value, Hashing>;

/// Shards of the tables under locks.
pub const SHARDS: usize = 512;

/// A lock that a shard lies behind.
pub trait Lock<T>: Sync + 'static {
    /// A lock around it.
    fn around(value: T) -> Self;
    /// Looks at it.
    fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R;
    /// Changes it.
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
lock!(RwLock<T>, read, write, PoisonError::into_inner);
lock!(parking_lot::Mutex<T>, lock, lock);
lock!(parking_lot::RwLock<T>, read, write);

/// 512 shards, each behind a lock in cache lines of its own.
pub struct Sharded<L>(Box<[CachePadded<L>]>);

impl<L> Sharded<L> {
    #[inline(always)]
    fn shard(&self, key: u64) -> &L {
        &self.0[shard_of(Hashing::default().hash_one(key), SHARDS)]
    }
}

impl<L: Lock<Map>> Table for Sharded<L> {
    type Handle<'a> = &'a Self;

    fn with_capacity(keys: usize) -> Self {
        let shard = || CachePadded::new(L::around(Map::with_capacity_and_hasher(keys / SHARDS, Hashing::default())));
        Self((0..SHARDS).map(|_| shard()).collect())
    }

    fn handle(&self) -> &Self {
        self
    }
}

impl<L: Lock<Map>> Handle for &Sharded<L> {
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
pub struct Dash(DashMap<u64, Value, Hashing>);

impl Table for Dash {
    type Handle<'a> = &'a Self;

    fn with_capacity(keys: usize) -> Self {
        Self(DashMap::with_capacity_and_hasher(keys, Hashing::default()))
    }

    fn handle(&self) -> &Self {
        self
    }
}

impl Handle for &Dash {
    #[inline(always)]
    fn get(&self, key: u64) -> Option<Value> {
        self.0.get(&key).map(|value| *value)
    }

    #[inline(always)]
    fn set(&self, key: u64, value: Value) -> Option<Value> {
        self.0.insert(key, value)
    }
}

/// papaya; a handle is pinned once for its stretch of operations, as its documentation advises.
pub struct Papaya(papaya::HashMap<u64, Value, Hashing>);

impl Table for Papaya {
    type Handle<'a> = papaya::HashMapRef<'a, u64, Value, Hashing, papaya::LocalGuard<'a>>;

    fn with_capacity(keys: usize) -> Self {
        Self(papaya::HashMap::builder().capacity(keys).hasher(Hashing::default()).build())
    }

    fn handle(&self) -> Self::Handle<'_> {
        self.0.pin()
    }
}

impl Handle for papaya::HashMapRef<'_, u64, Value, Hashing, papaya::LocalGuard<'_>> {
    #[inline(always)]
    fn get(&self, key: u64) -> Option<Value> {
        papaya::HashMapRef::get(self, &key).copied()
    }

    #[inline(always)]
    fn set(&self, key: u64, value: Value) -> Option<Value> {
        self.insert(key, value).copied()
    }
}
