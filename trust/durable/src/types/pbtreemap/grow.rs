//! Insertion into a `PBTreeMap`: full nodes on the way to the new entry are split in two.
//!
//! Invariant: all nodes that an insertion needs are allocated before it changes anything, so it is made as a whole.

use super::PBTreeMap;
use super::node::{Entry, LEAST, LEVELS_MAX, MOST, Node};
use super::path::Path;
use crate::persist::Persist;
use crate::tx::Tx;

/// Nodes for an insertion, each at its level.
pub(super) type Spare<K, V> = [Option<Node<K, V>>; LEVELS_MAX];

/// Returns the entry that moves up when a full node is split, so that both halves have [`LEAST`] entries or more once
/// another one is put at `index`.
fn middle(index: usize) -> usize {
    if index < LEAST {
        LEAST - 1
    } else if index <= LEAST + 1 {
        LEAST
    } else {
        LEAST + 1
    }
}

impl<'p, K: Persist, V: Persist> PBTreeMap<'p, K, V> {
    /// Allocates the nodes for an insertion at the end of a path; `None` if the pool is full. An empty map has no path.
    pub(super) fn spare(&self, path: Option<&Path<K, V>>, tx: &Tx<'p>) -> Option<Spare<K, V>> {
        let full = path.map_or(1, |path| {
            let levels = self.height as usize + 1;
            let full = (0..levels).take_while(|&level| path.step(level).0.len() == MOST).count();
            // A full root gets a new one above it.
            if full == levels { full + 1 } else { full }
        });
        let mut spare: Spare<K, V> = [None; LEVELS_MAX];
        for (level, place) in spare.iter_mut().enumerate().take(full) {
            *place = Node::take(level, tx);
            if place.is_none() {
                spare.into_iter().flatten().for_each(Node::give);
                return None;
            }
        }
        Some(spare)
    }

    /// Inserts an entry at the end of a path; in an empty map, which has no path, as the first one. Returns its place.
    pub(super) fn put(
        &mut self,
        path: Option<&Path<K, V>>,
        key: K,
        value: V,
        spare: &Spare<K, V>,
    ) -> (Node<K, V>, usize) {
        let take = |level: usize| spare[level].unwrap_or_else(|| unreachable!("a node was allocated for each split"));
        let mut entry = Entry { key, value, right: 0 };
        self.len += 1;
        let Some(path) = path else {
            let leaf = take(0);
            leaf.put(0, entry);
            (self.at, self.height) = (leaf.at, 0);
            return (leaf, 0);
        };
        let mut place = None;
        for level in 0..=self.height as usize {
            let (node, index) = path.step(level);
            if node.len() < MOST {
                node.put(index, entry);
                return place.unwrap_or((node, index));
            }
            let (middle, right) = (middle(index), take(level));
            let up = node.split(middle, right);
            let (node, index) = if index <= middle { (node, index) } else { (right, index - middle - 1) };
            node.put(index, entry);
            place = place.or(Some((node, index)));
            entry = up;
        }
        let root = take(self.height as usize + 1);
        root.set_first_child(self.at);
        root.put(0, entry);
        (self.at, self.height) = (root.at, self.height + 1);
        place.unwrap_or((root, 0))
    }
}
