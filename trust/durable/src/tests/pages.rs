//! Pages of a map: which entries a traversal reads while others change the map between its pages.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use proptest::prelude::*;

use super::Pool;
use crate::*;

type Map = PMap<'static, u32, u64>;

/// Change of a map between two pages.
#[derive(Clone, Debug)]
enum Change {
    Insert(u32, u64),
    Remove(u32),
    /// These many keys, from a number on that no other change uses.
    Grow(u32),
    Shrink(u32),
    Reserve(usize),
    /// A transaction that is undone.
    Undone(u32),
    Reopen,
}

const KEYS: u32 = 200;

fn change() -> impl Strategy<Value = Change> {
    let key = 0..KEYS;
    prop_oneof![
        4 => (key.clone(), any::<u64>()).prop_map(|(key, value)| Change::Insert(key, value)),
        4 => key.clone().prop_map(Change::Remove),
        1 => (1..300u32).prop_map(Change::Grow),
        1 => (1..300u32).prop_map(Change::Shrink),
        1 => (1..2000usize).prop_map(Change::Reserve),
        1 => key.prop_map(Change::Undone),
        1 => Just(Change::Reopen),
    ]
}

/// A pool with a map, and the entries that it should have.
struct Tested {
    pool: Pool<Map>,
    model: BTreeMap<u32, u64>,
}

impl Tested {
    fn insert(&mut self, key: u32, value: u64) {
        let old = self.pool.apply(|map, tx| map.insert(key, value, tx));
        assert_eq!(old, self.model.insert(key, value));
    }

    fn remove(&mut self, key: u32) {
        let old = self.pool.apply(|map, _| map.remove(&key));
        assert_eq!(old, self.model.remove(&key));
    }

    fn change(&mut self, change: &Change) {
        match *change {
            Change::Insert(key, value) => self.insert(key, value),
            Change::Remove(key) => self.remove(key),
            Change::Grow(count) => (KEYS..KEYS + count).for_each(|key| self.insert(key, 1)),
            Change::Shrink(count) => (KEYS..KEYS + count).for_each(|key| self.remove(key)),
            Change::Reserve(more) => self.pool.apply(|map, tx| map.reserve(more, tx)),
            Change::Undone(key) => self.pool.undone(|map, tx| {
                map.remove(&key);
                (1000..1500).for_each(|key| _ = map.insert(key, 0, tx));
            }),
            Change::Reopen if cfg!(miri) => {}
            Change::Reopen => {
                let seed = self.pool.memory.seed();
                self.pool = self.pool.reopened().expect("sound");
                self.pool.memory.set_seed(seed);
            }
        }
    }

    /// Reads a page; checks each entry against the model.
    fn page(&self, cursor: PMapCursor, n: usize) -> (Vec<u32>, Option<PMapCursor>) {
        let (entries, next) = self.pool.apply(|map, _| {
            let (entries, next) = map.page(cursor, n);
            (entries.map(|(&key, &value)| (key, value)).collect::<Vec<_>>(), next)
        });
        let keys = entries.iter().map(|(key, value)| {
            assert_eq!(self.model.get(key), Some(value));
            *key
        });
        (keys.collect(), next)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 400 }, ..ProptestConfig::default() })]

    #[test]
    fn a_traversal_reads_what_is_there_throughout_exactly_once(
        first in proptest::collection::btree_map(0..KEYS, any::<u64>(), 0..KEYS as usize),
        room in prop_oneof![3 => Just(0usize), 1 => 0..5000usize],
        n in 1..40usize,
        seed in 1..u64::MAX,
        changes in proptest::collection::vec(proptest::collection::vec(change(), 0..4), 0..40),
    ) {
        let pool = Pool::<Map>::new(|_| PMap::new());
        pool.memory.set_seed(seed);
        let mut tested = Tested { pool, model: BTreeMap::new() };
        tested.change(&Change::Reserve(room));
        first.iter().for_each(|(&key, &value)| tested.insert(key, value));
        let mut throughout = first;
        let (mut next, mut read) = (Some(PMapCursor::default()), BTreeMap::new());
        let mut changes = changes.iter();
        for _ in 0..100_000 {
            let Some(cursor) = next else { break };
            let (keys, after) = tested.page(cursor, n);
            prop_assert!(keys.len() <= n, "no two of these keys have one hash");
            prop_assert!(after.is_none_or(|after| after > cursor));
            next = after;
            for key in keys {
                prop_assert!(read.insert(key, ()).is_none(), "{} is read twice", key);
            }
            for change in changes.next().into_iter().flatten() {
                tested.change(change);
                throughout.retain(|key, _| tested.model.contains_key(key));
            }
        }
        prop_assert!(next.is_none(), "it ends");
        prop_assert!(throughout.keys().all(|key| read.contains_key(key)));
    }
}

/// Reads all pages of `n` entries of a map that does not change.
fn pages(pool: &Pool<Map>, n: usize) -> Vec<Vec<u32>> {
    let (mut next, mut pages) = (Some(PMapCursor::default()), Vec::new());
    for _ in 0..100_000 {
        let Some(cursor) = next else { return pages };
        let page = pool.apply(|map, _| {
            let (entries, next) = map.page(cursor, n);
            (entries.map(|(key, _)| *key).collect(), next)
        });
        pages.push(page.0);
        next = page.1;
    }
    panic!("it does not end")
}

#[test]
fn pages_are_full_in_a_map_that_has_only_grown() {
    let keys = if cfg!(miri) { 90 } else { 3000u32 };
    let pool = Pool::<Map>::new(|_| PMap::new());
    pool.memory.set_seed(1);
    assert_eq!(pages(&pool, 5), [[0u32; 0]], "an empty map has one page, of nothing");
    pool.apply(|map, tx| (0..keys).for_each(|key| _ = map.insert(key, 0, tx)));
    for n in [1, 7, 100, usize::MAX] {
        let pages = pages(&pool, n);
        let (_, full) = pages.split_last().expect("a page");
        assert!(full.iter().all(|page| page.len() == n), "all but the last page have {n}");
        let mut read = pages.concat();
        read.sort_unstable();
        assert!(read.into_iter().eq(0..keys));
    }
    assert_eq!(pages(&pool, 0), pages(&pool, 1));
    // A table that is mostly empty is read in pages of bounded time.
    pool.apply(|map, _| (1..keys).for_each(|key| _ = map.remove(&key)));
    let pages = pages(&pool, 1);
    assert!(pages.len() > if cfg!(miri) { 2 } else { 100 } && pages.concat() == [0], "{}", pages.len());
}

/// Key with a bad hash.
#[derive(Persist, PartialEq, Eq, Clone, Copy, Debug)]
#[persist(crate = crate)]
#[repr(C)]
struct Dull {
    number: u32,
}

impl Hash for Dull {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.number % 5).hash(state);
    }
}

#[test]
fn keys_with_equal_hashes_are_on_one_page() {
    let pool = Pool::<PMap<Dull, u8>>::new(|_| PMap::new());
    pool.memory.set_seed(1);
    pool.apply(|map, tx| (0..50).for_each(|number| _ = map.insert(Dull { number }, 0, tx)));
    let (mut next, mut read) = (Some(PMapCursor::default()), Vec::new());
    for _ in 0..1000 {
        let Some(cursor) = next else { break };
        let page = pool.apply(|map, tx| {
            map.reserve(read.len() * 20, tx);
            let (entries, next) = map.page(cursor, 3);
            (entries.map(|(key, _)| key.number).collect::<Vec<_>>(), next)
        });
        assert!(page.0.is_empty() || page.0.len() == 10 && page.0.iter().all(|key| key % 5 == page.0[0] % 5));
        read.extend(page.0);
        next = page.1;
    }
    read.sort_unstable();
    assert!(next.is_none() && read.into_iter().eq(0..50));
}

#[test]
fn any_cursor_is_a_place() {
    let pool = Pool::<Map>::new(|_| PMap::new());
    pool.memory.set_seed(1);
    pool.apply(|map, tx| (0..20).for_each(|key| _ = map.insert(key, 0, tx)));
    for number in [0u64, 1, 2, 1 << 61, u64::MAX / 3, u64::MAX - 1, u64::MAX] {
        let cursor: PMapCursor = serde_json::from_str(&number.to_string()).expect("a cursor is a number");
        assert_eq!(serde_json::to_string(&cursor).expect("it is data"), number.to_string());
        let read = pool.apply(|map, _| map.page(cursor, 100).0.count());
        assert!(if number == 0 { read == 20 } else { read <= 20 });
    }
    assert!(pool.apply(|map, _| PMap::<u32, u64>::new().page(PMapCursor::default(), 1).1.is_none() && map.len() == 20));
}
