//! `PBTreeMap` against the map of the standard library: random operations, some of them undone, and reopening. Not
//! here: faults (`btree_faults.rs`).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;

use super::Pool;
use crate::*;

type Tree = PBTreeMap<'static, u32, PBox<'static, u64>>;
type Model = BTreeMap<u32, u64>;

/// Operation on a map and its model.
#[derive(Clone, Debug)]
enum Operation {
    Insert(u32, u64),
    Remove(u32),
    GetMut(u32, u64),
    Add(u32, u64),
    PopFirst(usize),
    PopLast(usize),
    ForEach(u64),
    /// Keys from a number on, upward or downward.
    Fill(u32, u32, bool),
    /// Removes every so many keys.
    Thin(u32),
    Clear,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Commit,
    Error,
    Panic,
    Reopen,
}

const KEYS: u32 = 600;

fn operation() -> impl Strategy<Value = Operation> {
    let key = || 0..KEYS;
    prop_oneof![
        6 => (key(), any::<u64>()).prop_map(|(key, value)| Operation::Insert(key, value)),
        6 => key().prop_map(Operation::Remove),
        2 => (key(), any::<u64>()).prop_map(|(key, value)| Operation::GetMut(key, value)),
        2 => (key(), any::<u64>()).prop_map(|(key, value)| Operation::Add(key, value)),
        1 => (1..60usize).prop_map(Operation::PopFirst),
        1 => (1..60usize).prop_map(Operation::PopLast),
        1 => any::<u64>().prop_map(Operation::ForEach),
        4 => (key(), 1..150u32, any::<bool>()).prop_map(|(from, count, up)| Operation::Fill(from, count, up)),
        2 => (1..9u32).prop_map(Operation::Thin),
        1 => Just(Operation::Clear),
    ]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![8 => Just(End::Commit), 3 => Just(End::Error), 2 => Just(End::Panic), 1 => Just(End::Reopen)]
}

/// Does the operation on both; each result has to be the same.
fn operate<'p>(operation: &Operation, tree: &mut PBTreeMap<'p, u32, PBox<'p, u64>>, model: &mut Model, tx: &Tx<'p>) {
    let inner = |value: Option<PBox<'p, u64>>| value.map(PBox::into_inner);
    match *operation {
        Operation::Insert(key, value) => {
            assert_eq!(inner(tree.insert(key, PBox::new(value, tx), tx)), model.insert(key, value));
        }
        Operation::Remove(key) => assert_eq!(inner(tree.remove(&key)), model.remove(&key)),
        Operation::GetMut(key, value) => {
            let (found, expected) = (tree.get_mut(&key), model.get_mut(&key));
            assert_eq!(found.as_deref().map(|boxed| **boxed), expected.as_deref().copied());
            if let (Some(found), Some(expected)) = (found, expected) {
                (**found, *expected) = (value, value);
            }
        }
        Operation::Add(key, value) => {
            let found = tree.get_or_insert_with(key, || PBox::new(7, tx), tx);
            **found = found.wrapping_add(value);
            let expected = model.entry(key).or_insert(7);
            *expected = expected.wrapping_add(value);
        }
        Operation::PopFirst(count) => (0..count).for_each(|_| {
            assert_eq!(tree.pop_first().map(|(key, value)| (key, PBox::into_inner(value))), model.pop_first());
        }),
        Operation::PopLast(count) => (0..count).for_each(|_| {
            assert_eq!(tree.pop_last().map(|(key, value)| (key, PBox::into_inner(value))), model.pop_last());
        }),
        Operation::ForEach(more) => {
            tree.for_each_mut(|key, value| **value = value.wrapping_add(more ^ u64::from(*key)));
            model.iter_mut().for_each(|(key, value)| *value = value.wrapping_add(more ^ u64::from(*key)));
        }
        Operation::Fill(from, count, up) => (0..count).for_each(|step| {
            let key = if up { from + step } else { (from + count - step) % KEYS };
            assert_eq!(inner(tree.insert(key, PBox::new(1, tx), tx)), model.insert(key, 1));
        }),
        Operation::Thin(every) => (0..KEYS).step_by(every as usize).for_each(|key| {
            assert_eq!(inner(tree.remove(&key)), model.remove(&key));
        }),
        Operation::Clear => {
            tree.clear();
            model.clear();
        }
    }
}

/// Compares all entries, and the ends.
fn same(tree: &PBTreeMap<'_, u32, PBox<'_, u64>>, model: &Model) {
    assert_eq!((tree.len(), tree.is_empty()), (model.len(), model.is_empty()));
    let plain = |(key, value): (&u32, &PBox<'_, u64>)| (*key, **value);
    assert!(tree.iter().map(plain).eq(model.iter().map(|(key, value)| (*key, *value))));
    assert!(tree.keys().rev().eq(model.keys().rev()));
    assert_eq!(tree.first().map(plain), model.first_key_value().map(|(key, value)| (*key, *value)));
    assert_eq!(tree.last().map(plain), model.last_key_value().map(|(key, value)| (*key, *value)));
}

/// Compares a range, read from both ends by turns.
fn same_range(tree: &PBTreeMap<'_, u32, PBox<'_, u64>>, model: &Model, bounds: (Bound<u32>, Bound<u32>), turns: u64) {
    let is_legal = match bounds {
        (Bound::Excluded(start), Bound::Excluded(end)) => start < end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => start <= end,
        _ => true,
    };
    if !is_legal {
        return assert!(catch_unwind(AssertUnwindSafe(|| tree.range(bounds).count())).is_err());
    }
    let (mut found, mut expected) = (tree.range(bounds), model.range(bounds));
    for turn in 0..10_000 {
        let is_back = turns >> (turn % 64) & 1 == 1;
        let next = if is_back { found.next_back() } else { found.next() };
        let wanted = if is_back { expected.next_back() } else { expected.next() };
        assert_eq!(next.map(|(key, value)| (*key, **value)), wanted.map(|(key, value)| (*key, *value)));
        if wanted.is_none() {
            break;
        }
    }
    assert!(found.next().is_none() && found.next_back().is_none());
}

fn bound() -> impl Strategy<Value = Bound<u32>> {
    prop_oneof![
        3 => (0..KEYS).prop_map(Bound::Included),
        3 => (0..KEYS).prop_map(Bound::Excluded),
        1 => Just(Bound::Unbounded),
    ]
}

/// Does the operations in one transaction that ends so, and compares.
fn step(pool: &mut Pool<Tree>, model: &mut Model, operations: &[Operation], end: End) {
    let taken = pool.taken();
    let (mut changed, mut is_done) = (model.clone(), false);
    match end {
        End::Commit | End::Reopen => {
            pool.apply(|tree, tx| operations.iter().for_each(|one| operate(one, tree, &mut changed, tx)));
            *model = changed;
        }
        End::Error => {
            pool.undone(|tree, tx| operations.iter().for_each(|one| operate(one, tree, &mut changed, tx)));
            assert_eq!(pool.taken(), taken);
        }
        End::Panic => {
            pool.panics(|tree, tx| {
                operations.iter().for_each(|one| operate(one, tree, &mut changed, tx));
                is_done = true;
                panic!("planted");
            });
            assert!(is_done && pool.taken() == taken);
        }
    }
    if matches!(end, End::Reopen) && !cfg!(miri) {
        // The check finds each node as full as it must be, and all leaves at one level.
        *pool = pool.reopened().expect("sound");
    }
    pool.apply(|tree, _| same(tree, model));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 400 }, ..ProptestConfig::default() })]

    #[test]
    fn trees_follow_the_standard_one(
        steps in proptest::collection::vec((proptest::collection::vec(operation(), 1..4), end()), 1..40),
        ranges in proptest::collection::vec((bound(), bound(), any::<u64>()), 20),
    ) {
        let mut pool = Pool::<Tree>::new(|_| PBTreeMap::new());
        let mut model = Model::new();
        for (operations, end) in steps {
            step(&mut pool, &mut model, &operations, end);
        }
        for (start, end, turns) in ranges {
            pool.apply(|tree, _| same_range(tree, &model, (start, end), turns));
        }
        step(&mut pool, &mut model, &[], End::Reopen);
        step(&mut pool, &mut model, &[Operation::Clear], End::Commit);
        prop_assert_eq!(pool.taken(), 0);
    }
}

/// Three levels, in the orders of an order book and of a time series; then all of it goes again.
#[test]
fn trap_trees_of_several_levels_grow_and_shrink() {
    let keys = if cfg!(miri) { 150 } else { 2000u32 };
    let pool = Pool::<PBTreeMap<u32, PString>>::new(|_| PBTreeMap::new());
    let orders: [fn(u32, u32) -> u32; 3] = [|step, _| step, |step, keys| keys - 1 - step, |step, keys| step * 7 % keys];
    for (round, order) in orders.into_iter().enumerate() {
        pool.apply(|tree, tx| {
            (0..keys).for_each(|step| _ = tree.insert(order(step, keys), PString::of("text", tx), tx));
            tree.for_each_mut(|key, text| text.push_str(&key.to_string(), tx));
        });
        pool.undone(|tree, _| (0..keys / 2).for_each(|_| _ = tree.pop_last()));
        let found = pool.apply(|tree, _| {
            assert_eq!(tree.get(&1).map(|text| text.as_str()), Some("text1"));
            assert_eq!(tree.range(5..=9).rev().map(|(key, _)| *key).collect::<Vec<_>>(), [9, 8, 7, 6, 5]);
            tree.len()
        });
        assert_eq!(found, keys as usize);
        pool.apply(|tree, _| match round {
            0 => (0..keys).for_each(|key| assert!(tree.remove(&key).is_some())),
            1 => (0..keys).for_each(|step| assert!(tree.remove(&(step * 11 % keys)).is_some())),
            _ => tree.clear(),
        });
        assert_eq!(pool.taken(), 0);
    }
}

thread_local!(static DROPPED: Cell<u32> = const { Cell::new(0) });

#[derive(Persist)]
#[persist(crate = crate)]
#[repr(C)]
struct Loud {
    value: u64,
}

impl Drop for Loud {
    fn drop(&mut self) {
        self.value += 1;
        DROPPED.set(DROPPED.get() + 1);
    }
}

#[test]
fn trap_each_value_of_a_tree_is_dropped_once_at_the_end() {
    let pool = Pool::<PBTreeMap<u32, Loud>>::new(|_| PBTreeMap::new());
    let keys = if cfg!(miri) { 30 } else { 300 };
    pool.apply(|tree, tx| (0..keys).for_each(|key| _ = tree.insert(key, Loud { value: 5 }, tx)));
    DROPPED.set(0);
    pool.undone(|tree, _| tree.clear());
    assert_eq!(DROPPED.get(), 0);
    pool.apply(|tree, _| assert!(tree.values().all(|loud| loud.value == 5)));
    DROPPED.set(0);
    pool.apply(|tree, tx| {
        _ = tree.insert(3, Loud { value: 6 }, tx);
        _ = tree.remove(&4);
        assert_eq!(DROPPED.get(), 2);
        tree.clear();
        assert_eq!(DROPPED.get(), 2, "not before the end");
    });
    assert_eq!((DROPPED.get(), pool.taken()), (keys + 1, 0));
}

/// The iterator finds its nodes by the pool that its thread has entered, so it must not go to another thread.
#[test]
fn a_range_stays_on_its_thread() {
    /// Has two impls for a type that may be sent, so that the call below would be ambiguous.
    trait Stays<Way> {
        fn stays() {}
    }
    struct Sent;
    impl<T> Stays<()> for T {}
    impl<T: Send> Stays<Sent> for T {}
    <PBTreeRange<'static, u64, u64> as Stays<_>>::stays();
    <PBTreeMap<'static, u64, u64> as Stays<_>>::stays();
}

#[test]
fn trees_of_trees_and_of_values_without_bytes() {
    let pool = Pool::<PBTreeMap<u32, PBTreeMap<PString, [bool; 0]>>>::new(|_| PBTreeMap::new());
    pool.apply(|outer, tx| {
        for number in 0..50u32 {
            let inner = outer.get_or_insert_with(number % 7, PBTreeMap::new, tx);
            assert!(inner.insert(PString::of(&number.to_string(), tx), [], tx).is_none());
            assert!(inner.contains_key(number.to_string().as_str()));
        }
    });
    pool.undone(|outer, tx| {
        outer.for_each_mut(|_, inner| _ = inner.pop_first());
        outer.get_mut(&3).unwrap().insert(PString::new(), [], tx);
    });
    let pool = if cfg!(miri) { pool } else { pool.reopened().expect("sound") };
    pool.apply(|outer, tx| {
        assert_eq!(outer.values().map(|inner| inner.len()).sum::<usize>(), 50);
        let three = outer.get(&3).unwrap().keys().map(|text| text.as_str()).collect::<Vec<_>>();
        assert_eq!(three, ["10", "17", "24", "3", "31", "38", "45"]);
        outer.get_mut(&6).unwrap().for_each_mut(|text, none| assert!(none.is_empty() && text.len() < 3));
        assert!(format!("{:?}", outer.remove(&6)).contains(r#"{"13": [], "20": [], "27": [], "34": [], "#));
        let mut one = PBTreeMap::new();
        assert_eq!((one.insert([0u8; 0], 1, tx), one.insert([], 2, tx), one.len()), (None, Some(1), 1));
        outer.clear();
    });
    assert_eq!(pool.taken(), 0);
}
