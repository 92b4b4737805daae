//! `PBTreeMap` in trouble: a full pool, an `Ord` that panics or is none, forged and damaged nodes.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Pool;
use crate::memory::ROOT_AT;
use crate::*;

#[test]
fn a_full_pool_gives_key_and_value_back_and_stays_a_tree() {
    let pool = Pool::<PBTreeMap<u32, [u64; 16]>>::new(|_| PBTreeMap::new());
    let most = 100_000;
    let inserted = pool.apply(|tree, tx| {
        let refused = (0..most).find_map(|step| tree.try_insert(step * 7919 % most, [1; 16], tx).err());
        assert_eq!(refused.map(|(key, value)| (key == tree.len() as u32 * 7919 % most, value)), Some((true, [1; 16])));
        tree.len() as u32
    });
    assert!(inserted > 1000, "{inserted}");
    // Keys for which there is no room, in all places of the tree.
    pool.apply(|tree, tx| {
        let more = (inserted..most).map(|step| step * 7919 % most);
        let more = more.filter(|&key| tree.try_insert(key, [2; 16], tx).is_ok()).count();
        assert!(more < inserted as usize && tree.len() == inserted as usize + more);
        assert_eq!(tree.iter().count(), tree.len());
    });
    pool.panics(|tree, tx| (0..most).for_each(|key| _ = tree.get_or_insert_with(key, || [3; 16], tx)));
    let pool = if cfg!(miri) { pool } else { pool.reopened().expect("sound") };
    pool.apply(|tree, _| (0..inserted).for_each(|step| assert!(tree.remove(&(step * 7919 % most)).is_some())));
    pool.apply(|tree, _| tree.clear());
    assert_eq!(pool.taken(), 0);
}

thread_local! {
    /// Comparisons before one panics.
    static LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
    /// Seed of comparisons that mean nothing; 0 for right ones.
    static MOOD: Cell<u64> = const { Cell::new(0) };
}

/// Key whose order cannot be relied on.
#[derive(Persist, Clone, Copy, PartialEq, Eq, Debug)]
#[persist(crate = crate)]
#[repr(C)]
struct Moody {
    number: u32,
}

impl Ord for Moody {
    fn cmp(&self, other: &Self) -> Ordering {
        LEFT.set(LEFT.get().checked_sub(1).expect("a comparison panics"));
        if MOOD.get() == 0 {
            return self.number.cmp(&other.number);
        }
        MOOD.set(MOOD.get() + 1);
        [Ordering::Less, Ordering::Equal, Ordering::Greater][fastrand::Rng::with_seed(MOOD.get()).usize(..3)]
    }
}

impl PartialOrd for Moody {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[test]
fn a_comparison_that_panics_changes_nothing() {
    let pool = Pool::<PBTreeMap<Moody, u32>>::new(|_| PBTreeMap::new());
    let keys = if cfg!(miri) { 15 } else { 400u32 };
    pool.apply(|tree, tx| {
        let mut expected = BTreeMap::new();
        for step in 0..keys * 3 {
            let key = Moody { number: step * 37 % keys };
            // The panic is caught in the middle of the transaction, which goes on.
            LEFT.set(step % 12);
            let changed = catch_unwind(AssertUnwindSafe(|| match step % 3 {
                0 | 1 => tree.insert(key, step, tx),
                _ => tree.remove(&key),
            }));
            LEFT.set(u32::MAX);
            match (changed, step % 3) {
                (Err(_), _) => {}
                (Ok(old), 0 | 1) => assert_eq!(old, expected.insert(key.number, step)),
                (Ok(old), _) => assert_eq!(old, expected.remove(&key.number)),
            }
        }
        assert!(tree.iter().map(|(key, value)| (&key.number, value)).eq(&expected));
        assert!(tree.len() > 3);
    });
    if !cfg!(miri) {
        pool.reopened().expect("sound");
    }
}

#[test]
fn an_order_that_is_none_leaves_a_tree() {
    let pool = Pool::<PBTreeMap<Moody, PBox<u32>>>::new(|_| PBTreeMap::new());
    MOOD.set(5);
    for round in 0..if cfg!(miri) { 3 } else { 300 } {
        pool.apply(|tree, tx| {
            for number in 0..20 {
                let key = Moody { number };
                match (number + round) % 4 {
                    0..3 => _ = tree.insert(key, PBox::new(number, tx), tx),
                    _ => _ = tree.remove(&key),
                }
            }
            let bounds = (Bound::Included(Moody { number: 3 }), Bound::Excluded(Moody { number: 9 }));
            // The bounds may seem to be out of order.
            let ranges = catch_unwind(AssertUnwindSafe(|| {
                (tree.range(bounds).filter(|(_, value)| ***value < 20).count(), tree.range(bounds).rev().count())
            }));
            assert!(ranges.is_err() || ranges.is_ok_and(|(up, down)| up.max(down) <= tree.len()));
            assert_eq!((tree.iter().count(), tree.iter().rev().count()), (tree.len(), tree.len()));
        });
    }
    MOOD.set(0);
    let pool = if cfg!(miri) { pool } else { pool.reopened().expect("sound") };
    pool.apply(|tree, _| tree.clear());
    assert_eq!(pool.taken(), 0);
}

fn word(bytes: &[u8], at: u64) -> u64 {
    u64::from_ne_bytes(bytes[at as usize..][..8].try_into().expect("eight bytes"))
}

fn put(bytes: &mut [u8], at: u64, value: u64) {
    bytes[at as usize..][..8].copy_from_slice(&value.to_ne_bytes());
}

/// Offsets in a node of numbers: the first key, the first value, the first child.
const NODE: [u64; 3] = [8, 96, 184];

#[test]
fn forged_nodes_are_refused_by_fault() {
    if cfg!(miri) {
        return; // It reads padding.
    }
    let pool = Pool::<PBTreeMap<u64, u64>>::new(|tx| {
        let mut tree = PBTreeMap::new();
        (0..300).for_each(|key| _ = tree.insert(key, key, tx));
        tree
    });
    let [at, len, height] = [ROOT_AT, ROOT_AT + 8, ROOT_AT + 16];
    let child = |bytes: &[u8], node: u64, index: u64| word(bytes, node + NODE[2] + index * 8);
    let first_leaf = |bytes: &[u8]| child(bytes, child(bytes, word(bytes, at), 0), 0);
    pool.reopened_with(|bytes| assert_eq!((word(bytes, len), word(bytes, height)), (300, 2))).expect("sound");
    type Forge<'f> = &'f dyn Fn(&[u8]) -> (u64, u64);
    let root = |bytes: &[u8]| word(bytes, at);
    // The place of a word, its new value, and the fault.
    let forgeries: [(Forge<'_>, &str); 12] = [
        (&|_| (len, 301), "not as many entries"),
        (&|_| (len, 0), "impossible size"),
        (&|_| (at, 0), "impossible size"),
        (&|_| (height, 16), "impossible size"),
        (&|bytes| (root(bytes), 0), "impossible number of entries"),
        (&|bytes| (root(bytes), 12), "impossible number of entries"),
        (&|bytes| (first_leaf(bytes), 4), "impossible number of entries"),
        (&|bytes| (first_leaf(bytes), u64::MAX), "impossible number of entries"),
        (&|bytes| (root(bytes) + NODE[2], child(bytes, root(bytes), 1)), "has an owner already"),
        (&|bytes| (root(bytes) + NODE[2], root(bytes)), "has an owner already"),
        (&|bytes| (root(bytes) + NODE[2], 1 << 40), "outside of the pool"),
        (&|bytes| (root(bytes) + NODE[2], first_leaf(bytes) + 8), "where no value begins"),
    ];
    for (number, (forge, what)) in forgeries.into_iter().enumerate() {
        let forged = pool.reopened_with(|bytes| {
            let (place, value) = forge(bytes);
            put(bytes, place, value);
        });
        let damage = forged.err().unwrap_or_else(|| panic!("forgery {number}: {what}"));
        assert!(damage.what.contains(what), "forgery {number}: {damage:?}");
    }
    for other in [0, 1, 3] {
        assert!(pool.reopened_with(|bytes| put(bytes, height, other)).is_err(), "height {other}");
    }
    // Keys out of order are no danger: some are not found.
    let unordered = pool.reopened_with(|bytes| {
        let (root, leaf) = (root(bytes), first_leaf(bytes));
        put(bytes, root + NODE[0], 1000);
        put(bytes, leaf + NODE[0], 500);
    });
    unordered.expect("sound").apply(|tree, tx| {
        assert!(tree.iter().count() == 300 && tree.range(100..200).count() <= 300);
        (0..600).for_each(|key| _ = tree.insert(key, 1, tx));
        (0..600).for_each(|key| _ = tree.remove(&key));
        assert_eq!(tree.iter().count(), tree.len());
        tree.clear();
    });
}

#[test]
fn damaged_trees_are_refused_or_sound_whatever_the_bytes() {
    if cfg!(miri) {
        return;
    }
    let pool = Pool::<PBTreeMap<u32, PString>>::new(|tx| {
        let mut tree = PBTreeMap::new();
        (0..150).for_each(|key| _ = tree.insert(key, PString::of("text", tx), tx));
        tree
    });
    let mut random = fastrand::Rng::with_seed(5);
    let mut next = move |n: usize| random.usize(..n);
    let (mut refused, mut opened) = (0, 0);
    for _ in 0..3000 {
        let flips: Vec<(usize, u8)> = (0..1 + next(3)).map(|_| (64 + next(8 * 4096), next(256) as u8)).collect();
        let reopened = pool.reopened_with(|bytes| {
            let len = bytes.len();
            flips.iter().for_each(|&(at, byte)| bytes[at % len] = byte);
        });
        let Ok(pool) = reopened else {
            refused += 1;
            continue;
        };
        opened += 1;
        if pool.taken() > 1 << 19 {
            continue; // A forged capacity takes the room that the changes need.
        }
        pool.apply(|tree, tx| {
            tree.iter().for_each(|(_, text)| assert!(text.chars().count() <= text.len()));
            assert!(tree.range(20..90).rev().count() <= tree.len());
            (0..300).step_by(3).for_each(|key| _ = tree.insert(key, PString::of("other", tx), tx));
            (0..300).step_by(2).for_each(|key| _ = tree.remove(&key));
            tree.for_each_mut(|_, text| text.push('x', tx));
            _ = (tree.pop_first(), tree.pop_last());
            assert_eq!(tree.iter().count(), tree.len());
        });
        let again = pool.reopened().expect("what was changed is a tree");
        again.apply(|tree, _| tree.clear());
        assert_eq!(again.taken(), 0);
    }
    assert!(refused > 300 && opened > 300, "{refused} refused, {opened} opened");
}
