//! `PBTreeRange`: iteration over the entries of a range of a `PBTreeMap`, from both ends.
//!
//! Invariant: the entries between the two edges are those that were not returned yet. (In a damaged file with keys out
//! of order the first edge may be behind the last one; then iteration ends at the map's ends.)

#![allow(unsafe_code)]

use std::borrow::Borrow;
use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use super::node::Node;
use super::path::Path;
use crate::persist::Persist;

/// Paths to the first and the last edge of a range.
type Edges<K, V> = (Path<K, V>, Path<K, V>);

/// Iterator over the entries of a range of a [`PBTreeMap`](crate::PBTreeMap) in the order of their keys, from both
/// ends: see [`PBTreeMap::range`](crate::PBTreeMap::range).
pub struct PBTreeRange<'m, K: Persist, V: Persist> {
    /// None in an empty map.
    edges: Option<Edges<K, V>>,
    map: PhantomData<&'m (K, V)>,
}

impl<'m, K: Persist, V: Persist> PBTreeRange<'m, K, V> {
    /// Makes the range of all entries of a map, which the caller borrows for `'m`.
    pub(super) fn all(root: Option<Node<K, V>>) -> Self {
        let edges = root.map(|root| (Path::down(root, |_| 0), Path::down(root, Node::len)));
        PBTreeRange { edges, map: PhantomData }
    }

    /// Makes the range of the entries within these bounds.
    ///
    /// # Panics
    /// If the bounds are out of order.
    pub(super) fn within<Q: Ord + ?Sized>(root: Option<Node<K, V>>, bounds: &impl RangeBounds<Q>) -> Self
    where
        K: Borrow<Q>,
    {
        let (start, end) = (bounds.start_bound(), bounds.end_bound());
        match (start, end) {
            (Bound::Excluded(start), Bound::Excluded(end)) if start == end => {
                panic!("a range of a PBTreeMap starts and ends at one key and excludes it")
            }
            (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end))
                if start > end =>
            {
                panic!("a range of a PBTreeMap starts behind its end")
            }
            _ => {}
        }
        let edges = root.map(|root| {
            let first = Path::down(root, |node| match start {
                Bound::Included(start) => node.count(|key| start.cmp(key.borrow()).is_gt()),
                Bound::Excluded(start) => node.count(|key| start.cmp(key.borrow()).is_ge()),
                Bound::Unbounded => 0,
            });
            let last = Path::down(root, |node| match end {
                Bound::Included(end) => node.count(|key| end.cmp(key.borrow()).is_ge()),
                Bound::Excluded(end) => node.count(|key| end.cmp(key.borrow()).is_gt()),
                Bound::Unbounded => node.len(),
            });
            (first, last)
        });
        PBTreeRange { edges, map: PhantomData }
    }

    /// Returns the edges, if there is an entry between them.
    fn between(&mut self) -> Option<&mut Edges<K, V>> {
        self.edges.as_mut().filter(|(first, last)| !first.is_at(last))
    }

    /// Returns the place of the next entry.
    pub(super) fn next_place(&mut self) -> Option<(Node<K, V>, usize)> {
        self.between()?.0.next()
    }

    /// # Safety
    /// The place of an entry of the map that is borrowed for `'m`.
    unsafe fn entry((node, index): (Node<K, V>, usize)) -> (&'m K, &'m V) {
        // SAFETY: the caller's promise: live, and nothing changes it for as long as the map is borrowed.
        unsafe { (&*node.key(index), &*node.value(index)) }
    }
}

impl<'m, K: Persist, V: Persist> Iterator for PBTreeRange<'m, K, V> {
    type Item = (&'m K, &'m V);

    fn next(&mut self) -> Option<(&'m K, &'m V)> {
        // SAFETY: an entry between edges of the map.
        self.next_place().map(|place| unsafe { Self::entry(place) })
    }
}

impl<'m, K: Persist, V: Persist> DoubleEndedIterator for PBTreeRange<'m, K, V> {
    fn next_back(&mut self) -> Option<(&'m K, &'m V)> {
        let place = self.between()?.1.previous()?;
        // SAFETY: an entry between edges of the map.
        Some(unsafe { Self::entry(place) })
    }
}

impl<K: Persist, V: Persist> FusedIterator for PBTreeRange<'_, K, V> {}

impl<K: Persist, V: Persist> Clone for PBTreeRange<'_, K, V> {
    fn clone(&self) -> Self {
        PBTreeRange { edges: self.edges.clone(), map: PhantomData }
    }
}

impl<K: Persist + fmt::Debug, V: Persist + fmt::Debug> fmt::Debug for PBTreeRange<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.clone()).finish()
    }
}
