//! Keys, values, and the hash function that all tables share. A value tells which key and which write it belongs to, so
//! that one that is torn, or found under another key, is seen.

use foldhash::fast::FixedState;
use std::num::NonZeroU64;

/// The hash function of every table.
pub type Hashing = FixedState;

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The key of an object: 8 bytes without any order.
#[inline(always)]
pub fn key_of(object: u32) -> u64 {
    let mixed = (u64::from(object) + 1).wrapping_mul(ODD);
    mixed ^ (mixed >> 29)
}

/// A value: 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    stamp: NonZeroU64,
    seal: u64,
}

const _: () = assert!(size_of::<Value>() == 16 && size_of::<Option<Value>>() == 16);

impl Value {
    /// The value that the write with this stamp gives the key.
    #[inline(always)]
    pub fn new(key: u64, stamp: NonZeroU64) -> Self {
        Self { stamp, seal: seal(key, stamp) }
    }

    /// The value of a key before any write; its stamp is 1.
    pub fn first(key: u64) -> Self {
        Self::new(key, NonZeroU64::MIN)
    }

    /// Which write it is of.
    #[inline(always)]
    pub fn stamp(self) -> u64 {
        self.stamp.get()
    }

    /// Is it whole, and of this key?
    #[inline(always)]
    pub fn belongs_to(self, key: u64) -> bool {
        self.seal == seal(key, self.stamp)
    }
}

#[inline(always)]
fn seal(key: u64, stamp: NonZeroU64) -> u64 {
    key.wrapping_add(stamp.get().wrapping_mul(ODD))
}

/// The shard of a key among `shards`. The top seven bits of the hash, by which a hash table tells its entries apart,
/// and the low ones, by which it finds their place, take no part.
#[inline(always)]
pub fn shard_of(hash: u64, shards: usize) -> usize {
    let middle = (hash << 7) >> 32;
    ((middle * shards as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, hash::BuildHasher};

    use super::*;

    #[test]
    fn a_value_belongs_to_its_key_alone_and_only_whole() {
        let (one, two) = (key_of(1), key_of(2));
        let (old, new) = (Value::new(one, NonZeroU64::new(7).unwrap()), Value::new(one, NonZeroU64::new(8).unwrap()));
        assert!(old.belongs_to(one) && !old.belongs_to(two));
        assert!(!Value { stamp: old.stamp, seal: new.seal }.belongs_to(one));
    }

    #[test]
    fn keys_differ_and_shards_are_even() {
        assert_eq!((0..100_000).map(key_of).collect::<HashSet<_>>().len(), 100_000);
        for shards in [1, 2, 3, 512] {
            let mut counts = vec![0; shards];
            (0..51_200).for_each(|object| counts[shard_of(Hashing::default().hash_one(key_of(object)), shards)] += 1);
            let fair = 51_200 / shards;
            assert!(counts.iter().all(|&count| count > fair / 3 && count < fair * 2), "{shards}: {counts:?}");
        }
    }
}
