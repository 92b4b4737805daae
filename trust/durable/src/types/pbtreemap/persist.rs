//! `PBTreeMap` as a value of a pool: dropping, description, and the check when the pool is opened.

#![allow(unsafe_code)]

use std::mem::needs_drop;

use super::PBTreeMap;
use super::node::{LEAST, LEVELS_MAX, MOST, Node};
use crate::layout::{Kind, Types};
use crate::memory::{Dropping, Memory};
use crate::persist::Persist;
use crate::tx;
use crate::walk::{Damage, Walk};

/// Frees a node, drops its entries, and queues its children.
///
/// # Safety
/// As for `drop_values`: a node of this level, which nothing can reach any more.
unsafe fn drop_node<K: Persist, V: Persist>(memory: &Memory, at: u64, level: u64) {
    let node = Node::<K, V>::new(at, level as usize);
    let len = node.len();
    if level > 0 {
        let child = |index| Dropping { at: node.child(index).at, count: level - 1, run: drop_node::<K, V> };
        (0..=len).for_each(|index| memory.drop_later(child(index)));
    }
    // The slot is not free before the transaction ends.
    node.give();
    if K::DROP_WRITES || V::DROP_WRITES {
        node.touch();
    }
    if needs_drop::<K>() || needs_drop::<V>() {
        for index in 0..len {
            // SAFETY: the caller's promise: live entries, each dropped once; all that destructors may write is touched.
            unsafe {
                node.key(index).drop_in_place();
                node.value(index).drop_in_place();
            }
        }
    }
}

impl<K: Persist, V: Persist> Drop for PBTreeMap<'_, K, V> {
    fn drop(&mut self) {
        if self.at != 0 {
            let dropping = Dropping { at: self.at, count: self.height, run: drop_node::<K, V> };
            tx::with_memory(|memory| memory.drop_later(dropping));
        }
    }
}

impl<K: Persist, V: Persist> Default for PBTreeMap<'_, K, V> {
    fn default() -> Self {
        PBTreeMap::new()
    }
}

// SAFETY: `check` claims each node, so no other owner has it, finds its length possible, and schedules the check of
// each entry.
unsafe impl<'p, K: Persist, V: Persist> Persist for PBTreeMap<'p, K, V> {
    type At<'q> = PBTreeMap<'q, K::At<'q>, V::At<'q>>;
    const IS_PLAIN: bool = false;
    const DROP_WRITES: bool = false;

    fn describe(types: &mut Types) -> (String, Kind) {
        let of = vec![types.add::<K>(), types.add::<V>()];
        ("PBTreeMap".into(), Kind::Of(of))
    }

    fn check(at: u64, walk: &mut Walk<'_>) -> Result<(), Damage> {
        let [root, len, height] = [walk.word(at)?, walk.word(at + 8)?, walk.word(at + 16)?];
        if root == 0 && len == 0 && height == 0 {
            return Ok(());
        }
        if root == 0 || len == 0 || height >= LEVELS_MAX as u64 {
            return Err(walk.damage(at, "a PBTreeMap of an impossible size"));
        }
        // Pointers to nodes: place, target, and the target's level. Each level adds a few, so the list stays short.
        let mut pointers = vec![(at, root, height as usize)];
        let mut found = 0;
        while let Some((from, node, level)) = pointers.pop() {
            walk.claim(from, node, Node::<K, V>::bytes(level))?;
            let count = walk.word(node)?;
            let least = if node == root { 1 } else { LEAST as u64 };
            if !(least..=MOST as u64).contains(&count) {
                return Err(walk.damage(node, "a node of a PBTreeMap with an impossible number of entries"));
            }
            found += count;
            if level > 0 {
                for place in (0..=count).map(|index| node + Node::<K, V>::CHILDREN_AT + index * 8) {
                    pointers.push((place, walk.word(place)?, level - 1));
                }
            }
            walk.later::<K>(node + Node::<K, V>::KEYS_AT, count);
            walk.later::<V>(node + Node::<K, V>::VALUES_AT, count);
        }
        if found != len {
            return Err(walk.damage(at, "a PBTreeMap that has not as many entries as it says"));
        }
        Ok(())
    }
}
