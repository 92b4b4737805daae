//! Paths in a `PBTreeMap`: the way from the root to an entry, or to an edge between two entries.
//!
//! Invariants:
//! - From the root's level to the lowest one that a path reaches, each step is a child of the one above.
//! - Each gap between neighbouring entries, and each end, is one edge of one leaf. So two paths to edges lead to the
//!   same gap if their last steps are equal.

use std::borrow::Borrow;
use std::marker::PhantomData;

use super::node::{LEVELS_MAX, Node};
use crate::persist::Persist;

/// See the file's documentation. The nodes are those of a borrowed map.
pub(super) struct Path<K, V> {
    /// For each level from `end` to `top` the offset of a node, and an index: above the lowest level that of the next
    /// node among its children, at the lowest that of the entry, or of the edge left of it.
    steps: [(u64, usize); LEVELS_MAX],
    /// Level of the root.
    top: usize,
    /// Lowest level.
    end: usize,
    nodes: PhantomData<Node<K, V>>,
}

impl<K, V> Clone for Path<K, V> {
    fn clone(&self) -> Self {
        Path { steps: self.steps, top: self.top, end: self.end, nodes: PhantomData }
    }
}

impl<K: Persist, V: Persist> Path<K, V> {
    /// Makes a path without steps, from this root.
    fn new(root: Node<K, V>) -> Self {
        Path { steps: [(0, 0); LEVELS_MAX], top: root.level, end: root.level, nodes: PhantomData }
    }

    /// Makes the path to the entry of a key, if there is one, and otherwise to the edge where it belongs. Returns
    /// whether there is one.
    pub(super) fn search<Q: Ord + ?Sized>(root: Node<K, V>, key: &Q) -> (Self, bool)
    where
        K: Borrow<Q>,
    {
        let mut path = Path::new(root);
        let mut node = root;
        loop {
            let (index, is_found) = node.search(key);
            path.set(node, index);
            if is_found || node.level == 0 {
                return (path, is_found);
            }
            node = node.child(index);
        }
    }

    /// Makes the path to a leaf that takes the index that `choose` returns in each node.
    pub(super) fn down(root: Node<K, V>, choose: impl Fn(Node<K, V>) -> usize) -> Self {
        let mut path = Path::new(root);
        path.extend(root, choose);
        path
    }

    /// Leads on to a leaf, by this node and the index that `choose` returns in each.
    pub(super) fn extend(&mut self, mut node: Node<K, V>, choose: impl Fn(Node<K, V>) -> usize) {
        loop {
            let index = choose(node);
            self.set(node, index);
            if node.level == 0 {
                return;
            }
            node = node.child(index);
        }
    }

    fn set(&mut self, node: Node<K, V>, index: usize) {
        self.steps[node.level] = (node.at, index);
        self.end = node.level;
    }

    /// Returns the step of this level, which the path reaches.
    pub(super) fn step(&self, level: usize) -> (Node<K, V>, usize) {
        debug_assert!((self.end..=self.top).contains(&level));
        let (at, index) = self.steps[level];
        (Node::new(at, level), index)
    }

    /// Returns the last step.
    pub(super) fn last(&self) -> (Node<K, V>, usize) {
        self.step(self.end)
    }

    /// Do both lead to the same edge?
    pub(super) fn is_at(&self, other: &Self) -> bool {
        let ((here, index), (there, other_index)) = (self.last(), other.last());
        (here.at, index) == (there.at, other_index)
    }

    /// Moves from an edge over the entry after it; returns the entry's place.
    pub(super) fn next(&mut self) -> Option<(Node<K, V>, usize)> {
        let (node, index) = (0..=self.top).map(|level| self.step(level)).find(|(node, index)| *index < node.len())?;
        self.set(node, index + 1);
        if node.level > 0 {
            self.extend(node.child(index + 1), |_| 0);
        }
        Some((node, index))
    }

    /// Moves from an edge over the entry before it; returns the entry's place.
    pub(super) fn previous(&mut self) -> Option<(Node<K, V>, usize)> {
        let (node, index) = (0..=self.top).map(|level| self.step(level)).find(|(_, index)| *index > 0)?;
        self.set(node, index - 1);
        if node.level > 0 {
            self.extend(node.child(index - 1), Node::len);
        }
        Some((node, index - 1))
    }
}
