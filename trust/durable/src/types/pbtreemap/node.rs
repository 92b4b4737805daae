//! A node of a `PBTreeMap`: entries in the order of their keys and, in an inner node, the children around them.
//!
//! Here: the layout, and moves of entries within a node and between neighbours. Not here: the node that an entry
//! belongs to (`path.rs`, `grow.rs`, `shrink.rs`).
//!
//! Invariants:
//! - A `Node` names a node of the pool that this thread has entered, of its level and with its types, for as long as
//!   the map that it belongs to is borrowed.
//! - The first `len` keys and values of a node are live, and so are the first `len + 1` children of an inner node.
//! - No code of users runs here, so moves are seen as a whole.

#![allow(unsafe_code)]

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::mem::{MaybeUninit, offset_of};

use crate::memory::alloc::ALIGN;
use crate::persist::Persist;
use crate::tx::{self, Tx};

/// The most entries of a node; part of the file format.
pub(super) const MOST: usize = 11;
/// The least entries of a node that is not the root; part of the file format.
pub(super) const LEAST: usize = MOST / 2;
/// More levels than any tree has: its nodes take 16 bytes or more, and a pool has fewer than 6¹⁴ times that.
pub(super) const LEVELS_MAX: usize = 16;

#[repr(C)]
struct Leaf<K, V> {
    len: u64,
    keys: [MaybeUninit<K>; MOST],
    values: [MaybeUninit<V>; MOST],
}

#[repr(C)]
struct Inner<K, V> {
    entries: Leaf<K, V>,
    children: [u64; MOST + 1],
}

/// See the file's documentation.
pub(super) struct Node<K, V> {
    pub(super) at: u64,
    /// 0 for a leaf.
    pub(super) level: usize,
    entries: PhantomData<*mut (K, V)>,
}

impl<K, V> Clone for Node<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Node<K, V> {}

/// An entry and, in an inner node, the child right of it.
pub(super) struct Entry<K, V> {
    pub(super) key: K,
    pub(super) value: V,
    pub(super) right: u64,
}

impl<K: Persist, V: Persist> Node<K, V> {
    pub(super) const KEYS_AT: u64 = offset_of!(Leaf<K, V>, keys) as u64;
    pub(super) const VALUES_AT: u64 = offset_of!(Leaf<K, V>, values) as u64;
    pub(super) const CHILDREN_AT: u64 = offset_of!(Inner<K, V>, children) as u64;

    pub(super) fn new(at: u64, level: usize) -> Self {
        Node { at, level, entries: PhantomData }
    }

    /// Returns the bytes of a node of this level.
    pub(super) fn bytes(level: usize) -> usize {
        const { assert!(align_of::<Inner<K, V>>() <= ALIGN, "persistent values are aligned to 16 bytes at most") };
        if level == 0 { size_of::<Leaf<K, V>>() } else { size_of::<Inner<K, V>>() }
    }

    /// Allocates a node without entries; `None` if the pool is full.
    pub(super) fn take(level: usize, tx: &Tx<'_>) -> Option<Self> {
        let bytes = Self::bytes(level);
        let at = tx.memory().take(bytes)?;
        tx.memory().touch_fresh(at, bytes, bytes);
        let node = Node::new(at, level);
        node.set_len(0);
        Some(node)
    }

    /// Frees the node, after the transaction.
    pub(super) fn give(self) {
        tx::with_memory(|memory| memory.give(self.at, Self::bytes(self.level)));
    }

    #[inline(always)]
    fn leaf(self) -> *mut Leaf<K, V> {
        tx::place(self.at).cast()
    }

    #[inline(always)]
    pub(super) fn len(self) -> usize {
        // SAFETY: a node has a length.
        unsafe { (*self.leaf()).len as usize }
    }

    /// Returns the place of a key; `index` is at most [`MOST`].
    #[inline(always)]
    pub(super) fn key(self, index: usize) -> *mut K {
        // SAFETY: within the array of a node, or at its end.
        unsafe { (&raw mut (*self.leaf()).keys).cast::<K>().add(index) }
    }

    /// Returns the place of a value; `index` is at most [`MOST`].
    #[inline(always)]
    pub(super) fn value(self, index: usize) -> *mut V {
        // SAFETY: within the array of a node, or at its end.
        unsafe { (&raw mut (*self.leaf()).values).cast::<V>().add(index) }
    }

    /// Returns the place of a child of an inner node; `index` is at most `MOST + 1`.
    #[inline(always)]
    fn edge(self, index: usize) -> *mut u64 {
        debug_assert!(self.level > 0);
        // SAFETY: within the array of an inner node, or at its end.
        unsafe { (&raw mut (*self.leaf().cast::<Inner<K, V>>()).children).cast::<u64>().add(index) }
    }

    /// Returns a child of an inner node; `index` is at most its length.
    #[inline(always)]
    pub(super) fn child(self, index: usize) -> Self {
        // SAFETY: an inner node has one child more than entries.
        Node::new(unsafe { self.edge(index).read() }, self.level - 1)
    }

    /// Returns the first child of an inner node; 0 for a leaf.
    fn first_child(self) -> u64 {
        if self.level == 0 { 0 } else { self.child(0).at }
    }

    /// Sets the first child of an inner node; does nothing to a leaf.
    pub(super) fn set_first_child(self, child: u64) {
        if self.level > 0 {
            self.touch();
            // SAFETY: an inner node has a first child; touched.
            unsafe { self.edge(0).write(child) };
        }
    }

    /// Saves the node before a change.
    pub(super) fn touch(self) {
        tx::touch(self.leaf(), Self::bytes(self.level));
    }

    fn set_len(self, len: usize) {
        self.touch();
        // SAFETY: a node has a length; touched.
        unsafe { (*self.leaf()).len = len as u64 };
    }

    /// Returns the number of entries at the start whose keys are all `before`.
    pub(super) fn count(self, before: impl Fn(&K) -> bool) -> usize {
        let len = self.len();
        // SAFETY: live keys, which nothing changes while the map is borrowed.
        (0..len).find(|&index| !before(unsafe { &*self.key(index) })).unwrap_or(len)
    }

    /// Returns the index of the first entry whose key is not less than this one, and whether it is equal.
    #[inline]
    pub(super) fn search<Q: Ord + ?Sized>(self, key: &Q) -> (usize, bool)
    where
        K: Borrow<Q>,
    {
        let len = self.len();
        for index in 0..len {
            // SAFETY: a live key, which nothing changes while the map is borrowed.
            match key.cmp(unsafe { &*self.key(index) }.borrow()) {
                Ordering::Greater => {}
                Ordering::Equal => return (index, true),
                Ordering::Less => return (index, false),
            }
        }
        (len, false)
    }

    /// Inserts an entry at `index` of a node that is not full.
    pub(super) fn put(self, index: usize, entry: Entry<K, V>) {
        let len = self.len();
        debug_assert!(index <= len && len < MOST);
        let rest = len - index;
        self.touch();
        // SAFETY: the entries from `index` on move by one place within the arrays, as do the children right of them;
        // all is touched [touch-before-mut].
        unsafe {
            let (key, value) = (self.key(index), self.value(index));
            key.copy_to(key.add(1), rest);
            value.copy_to(value.add(1), rest);
            key.write(entry.key);
            value.write(entry.value);
            if self.level > 0 {
                let right = self.edge(index + 1);
                right.copy_to(right.add(1), rest);
                right.write(entry.right);
            }
        }
        self.set_len(len + 1);
    }

    /// Removes the entry at `index`, and the child right of it.
    pub(super) fn remove(self, index: usize) -> Entry<K, V> {
        let len = self.len();
        debug_assert!(index < len);
        let rest = len - index - 1;
        self.touch();
        // SAFETY: a live entry is moved out, and those behind it move by one place, as do the children right of them;
        // all is touched.
        let entry = unsafe {
            let (key, value) = (self.key(index), self.value(index));
            let mut entry = Entry { key: key.read(), value: value.read(), right: 0 };
            key.copy_from(key.add(1), rest);
            value.copy_from(value.add(1), rest);
            if self.level > 0 {
                let right = self.edge(index + 1);
                entry.right = right.read();
                right.copy_from(right.add(1), rest);
            }
            entry
        };
        self.set_len(len - 1);
        entry
    }

    /// Replaces the entry at `index`, but not the child right of it; returns the old one.
    pub(super) fn replace(self, index: usize, key: K, value: V) -> (K, V) {
        debug_assert!(index < self.len());
        self.touch();
        // SAFETY: a live entry, touched.
        unsafe { (self.key(index).replace(key), self.value(index).replace(value)) }
    }

    /// Moves the entries of `from` from `start` on, and the children right of them, to the end of this node. The caller
    /// shortens or frees `from`.
    fn append(self, from: Self, start: usize) {
        let (len, count) = (self.len(), from.len() - start);
        debug_assert!(len + count <= MOST && self.level == from.level);
        self.touch();
        // SAFETY: another node of the same level; live entries move to free places, which are touched.
        unsafe {
            self.key(len).copy_from_nonoverlapping(from.key(start), count);
            self.value(len).copy_from_nonoverlapping(from.value(start), count);
            if self.level > 0 {
                self.edge(len + 1).copy_from_nonoverlapping(from.edge(start + 1), count);
            }
        }
        self.set_len(len + count);
    }

    /// Moves the entries behind `middle` to `right`, which has none. Returns the entry `middle`, with that node as its
    /// right child, for the node above.
    pub(super) fn split(self, middle: usize, right: Self) -> Entry<K, V> {
        if self.level > 0 {
            right.set_first_child(self.child(middle + 1).at);
        }
        right.append(self, middle + 1);
        self.set_len(middle + 1);
        Entry { right: right.at, ..self.remove(middle) }
    }

    /// Moves the last entry of `previous`, the node before this one, to the parent, and the parent's entry `index`
    /// between the two to the start of this node.
    pub(super) fn borrow_from_previous(self, previous: Self, parent: Self, index: usize) {
        let last = previous.remove(previous.len() - 1);
        let (key, value) = parent.replace(index, last.key, last.value);
        self.put(0, Entry { key, value, right: self.first_child() });
        self.set_first_child(last.right);
    }

    /// Moves the first entry of `next`, the node after this one, to the parent, and the parent's entry `index` between
    /// the two to the end of this node.
    pub(super) fn borrow_from_next(self, next: Self, parent: Self, index: usize) {
        let right = next.first_child();
        let first = next.remove(0);
        next.set_first_child(first.right);
        let (key, value) = parent.replace(index, first.key, first.value);
        self.put(self.len(), Entry { key, value, right });
    }

    /// Moves the parent's entry `index`, which is right of this node, and all entries of the node after it to the end
    /// of this one, and frees that node.
    pub(super) fn merge_next(self, parent: Self, index: usize) {
        let between = parent.remove(index);
        let next = Node::new(between.right, self.level);
        self.put(self.len(), Entry { right: next.first_child(), ..between });
        self.append(next, 0);
        next.give();
    }
}
