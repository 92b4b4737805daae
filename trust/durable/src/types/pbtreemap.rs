//! `PBTreeMap`: an ordered map in a pool, a B-tree with entries in all of its nodes.
//!
//! Here: the calls. Nodes: `pbtreemap/node.rs`. The way to an entry: `path.rs`. Insertion: `grow.rs`. Removal:
//! `shrink.rs`. Iteration: `range.rs`.
//!
//! Invariants:
//! - All leaves are of one level. A node has at most as many entries as fit; each but the root is half full at least.
//! - Keys are in ascending order. (In a damaged file, or with an `Ord` that is none, lookup misses entries, nothing
//!   worse.)
//! - Code of users (`Ord`, closures) runs before or after a change of nodes, not during one: its panic leaves a whole
//!   tree, also for a caller that catches it.

#![allow(unsafe_code)]

mod grow;
mod node;
mod path;
mod persist;
pub(crate) mod range;
mod shrink;

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use self::node::Node;
use self::path::Path;
use self::range::PBTreeRange;
use super::full;
use crate::persist::Persist;
use crate::tx::{self, Brand, Tx};

/// An ordered map in a pool, as `BTreeMap` is one on the heap. 24 bytes.
///
/// Nodes hold up to 11 entries. Inserting and removing move about half of the entries of a node, which then go into the
/// log: put large values behind a [`PBox`](crate::PBox). The time of each call grows with the logarithm of the length,
/// and no call rewrites the whole map, as growing a [`PMap`](crate::PMap) does. Keys whose `Ord` gives another order in
/// a later build of the program are not found any more.
///
/// Offers of a market, amounts by price:
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("durable-offers-{}", std::process::id()));
/// # let workers = trust::Threadpool::new(1);
/// use trust_durable::{Durable, PBTreeMap};
///
/// let offers = Durable::<PBTreeMap<u64, u64>>::open(workers.trustees()[0], &folder, |_| PBTreeMap::new())?;
/// offers.apply(|offers, tx| {
///     for (price, amount) in [(101, 5), (99, 3), (105, 9)] {
///         *offers.get_or_insert_with(price, || 0, tx) += amount;
///     }
/// });
/// // Buys six at 104 or less, the cheapest ones first.
/// let cost = offers.apply(|offers, _| {
///     let (mut wanted, mut cost) = (6, 0);
///     while wanted > 0
///         && let Some((&price, &offered)) = offers.range(..=104).next()
///     {
///         let taken = wanted.min(offered);
///         (wanted, cost) = (wanted - taken, cost + taken * price);
///         match offers.get_mut(&price) {
///             Some(left) if taken < offered => *left -= taken,
///             _ => _ = offers.pop_first(),
///         }
///     }
///     cost
/// });
/// assert_eq!(cost, 3 * 99 + 3 * 101);
/// assert!(offers.apply(|offers, _| offers.iter().eq([(&101, &2), (&105, &9)])));
/// # offers.close()?;
/// # std::fs::remove_dir_all(folder).unwrap();
/// # Ok::<(), trust_durable::Error>(())
/// ```
#[repr(C)]
pub struct PBTreeMap<'p, K: Persist, V: Persist> {
    /// The root; 0 if the map is empty.
    at: u64,
    len: u64,
    /// Level of the root; 0 for a leaf.
    height: u64,
    brand: PhantomData<(Brand<'p>, *mut (K, V))>,
}

impl<'p, K: Persist, V: Persist> PBTreeMap<'p, K, V> {
    /// Makes an empty map, without an allocation.
    pub const fn new() -> Self {
        PBTreeMap { at: 0, len: 0, height: 0, brand: PhantomData }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn root(&self) -> Option<Node<K, V>> {
        (self.at != 0).then(|| Node::new(self.at, self.height as usize))
    }

    /// Returns the place of a key's entry.
    #[inline]
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Option<(Node<K, V>, usize)>
    where
        K: Borrow<Q>,
    {
        let mut node = self.root()?;
        loop {
            let (index, is_found) = node.search(key);
            if is_found {
                return Some((node, index));
            }
            if node.level == 0 {
                return None;
            }
            node = node.child(index);
        }
    }

    /// Returns the entry at a place of the tree.
    fn entry(&self, (node, index): (Node<K, V>, usize)) -> (&K, &V) {
        debug_assert!(index < node.len());
        // SAFETY: a live entry, borrowed with the map.
        unsafe { (&*node.key(index), &*node.value(index)) }
    }

    /// Returns the value at a place of the tree, saved.
    fn value_mut(&mut self, (node, index): (Node<K, V>, usize)) -> &mut V {
        debug_assert!(index < node.len());
        let value = node.value(index);
        tx::touch(value, size_of::<V>());
        // SAFETY: a live value, borrowed with the map; touched [touch-before-mut].
        unsafe { &mut *value }
    }

    /// Returns the value of a key.
    #[inline]
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.find(key).map(|place| self.entry(place).1)
    }

    /// Returns the value of a key, mutably.
    #[inline]
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.find(key).map(|place| self.value_mut(place))
    }

    /// Is there an entry with this key?
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_some()
    }

    /// Returns the entry with the least key.
    pub fn first(&self) -> Option<(&K, &V)> {
        let mut node = self.root()?;
        while node.level > 0 {
            node = node.child(0);
        }
        Some(self.entry((node, 0)))
    }

    /// Returns the entry with the greatest key.
    pub fn last(&self) -> Option<(&K, &V)> {
        let mut node = self.root()?;
        while node.level > 0 {
            node = node.child(node.len());
        }
        Some(self.entry((node, node.len() - 1)))
    }

    /// Sets the value of a key; returns the old value.
    ///
    /// # Panics
    /// If the pool is full.
    pub fn insert(&mut self, key: K, value: V, tx: &Tx<'p>) -> Option<V>
    where
        K: Ord,
    {
        self.try_insert(key, value, tx).unwrap_or_else(|_| full(tx, Node::<K, V>::bytes(1)))
    }

    /// Same as [`insert`](Self::insert), but does not panic.
    ///
    /// # Errors
    /// Gives both back if the pool is full.
    pub fn try_insert(&mut self, key: K, value: V, tx: &Tx<'p>) -> Result<Option<V>, (K, V)>
    where
        K: Ord,
    {
        let path = match self.root().map(|root| Path::search(root, &key)) {
            Some((path, true)) => return Ok(Some(std::mem::replace(self.value_mut(path.last()), value))),
            other => other.map(|(path, _)| path),
        };
        let Some(spare) = self.spare(path.as_ref(), tx) else { return Err((key, value)) };
        self.put(path.as_ref(), key, value, &spare);
        Ok(None)
    }

    /// Returns the value of a key, mutably; if there is none, inserts the result of `make` first.
    ///
    /// # Panics
    /// If the pool is full.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V, tx: &Tx<'p>) -> &mut V
    where
        K: Ord,
    {
        let path = match self.root().map(|root| Path::search(root, &key)) {
            Some((path, true)) => return self.value_mut(path.last()),
            other => other.map(|(path, _)| path),
        };
        let value = make();
        let Some(spare) = self.spare(path.as_ref(), tx) else { full(tx, Node::<K, V>::bytes(1)) };
        let place = self.put(path.as_ref(), key, value, &spare);
        self.value_mut(place)
    }

    /// Removes an entry; returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.remove_entry(key).map(|(_, value)| value)
    }

    /// Removes an entry; returns key and value.
    pub fn remove_entry<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        let (path, is_found) = Path::search(self.root()?, key);
        is_found.then(|| self.take(path))
    }

    /// Removes the entry with the least key.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        let path = Path::down(self.root()?, |_| 0);
        Some(self.take(path))
    }

    /// Removes the entry with the greatest key.
    pub fn pop_last(&mut self) -> Option<(K, V)> {
        let path = Path::down(self.root()?, |node| if node.level > 0 { node.len() } else { node.len() - 1 });
        Some(self.take(path))
    }

    /// Drops all entries and frees the nodes.
    pub fn clear(&mut self) {
        drop(std::mem::take(self));
    }

    /// Iterates over the entries in the order of their keys, from both ends.
    pub fn iter(&self) -> PBTreeRange<'_, K, V> {
        PBTreeRange::all(self.root())
    }

    /// Iterates over the entries whose keys lie within these bounds, in their order, from both ends.
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("durable-series-{}", std::process::id()));
    /// # let workers = trust::Threadpool::new(1);
    /// use trust_durable::{Durable, PBTreeMap};
    ///
    /// // Temperatures by time, in seconds.
    /// let series = Durable::<PBTreeMap<u64, f32>>::open(workers.trustees()[0], &folder, |_| PBTreeMap::new())?;
    /// series.apply(|series, tx| (0..60).for_each(|time| _ = series.insert(time * 60, 20.5, tx)));
    /// let (count, last) = series.apply(|series, _| {
    ///     let mut part = series.range(600..1200);
    ///     (part.clone().count(), part.next_back().map(|(time, _)| *time))
    /// });
    /// assert_eq!((count, last), (10, Some(1140)));
    /// # series.close()?;
    /// # std::fs::remove_dir_all(folder).unwrap();
    /// # Ok::<(), trust_durable::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the range starts behind its end, or starts and ends at one key and excludes it at both.
    pub fn range<Q: Ord + ?Sized>(&self, bounds: impl RangeBounds<Q>) -> PBTreeRange<'_, K, V>
    where
        K: Borrow<Q>,
    {
        PBTreeRange::within::<Q>(self.root(), &bounds)
    }

    /// Iterates over the keys in their order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// Iterates over the values in the order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Calls `f` with each entry in the order of the keys; each value is saved before.
    pub fn for_each_mut(&mut self, mut f: impl FnMut(&K, &mut V)) {
        let mut entries = PBTreeRange::all(self.root());
        while let Some((node, index)) = entries.next_place() {
            // SAFETY: a live key; `value_mut` does not borrow it, and the map is borrowed throughout.
            let key = unsafe { &*node.key(index) };
            f(key, self.value_mut((node, index)));
        }
    }
}

impl<K: Persist + fmt::Debug, V: Persist + fmt::Debug> fmt::Debug for PBTreeMap<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().fmt(f)
    }
}
