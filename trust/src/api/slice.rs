//! `TrustSlice`: one handle to many properties of one type, whose addresses follow from their numbers.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use crate::api::reference::TrusteeReference;
use crate::api::trust::Trust;
use crate::ids::TrusteeId;
use crate::property::Property;

/// Handle to many properties of one type, which lie with several trustees in turn. From
/// [`Threadpool::entrust_each`](crate::Threadpool::entrust_each).
///
/// Each element is a property of its own, which a panic poisons alone. The handle computes an element's address from
/// its index, where a `Vec<Trust<T>>` reads it from memory: 16 bytes for each element, which miss the caches where
/// there are many. A clone is one more reference to the same handle. After the last reference the elements of which no
/// trust is left are dropped, each on its trustee's thread.
///
/// The handle stays in its process; a trust that is [cloned](Clone) from an element travels anywhere.
///
/// ```
/// let pool = trust::Threadpool::new(2);
/// let counters = pool.entrust_each(vec![0u64; 1000]);
/// counters.at(7).apply(|counter| *counter += 1);
/// let seventh: trust::Trust<u64> = counters.at(7).clone();
/// assert_eq!(seventh.apply(|counter| *counter), 1);
/// ```
pub struct TrustSlice<T: 'static>(Arc<Elements<T>>);

impl<T> Clone for TrustSlice<T> {
    fn clone(&self) -> Self {
        TrustSlice(Arc::clone(&self.0))
    }
}

struct Elements<T: 'static> {
    shards: Box<[Shard]>,
    len: usize,
    kind: PhantomData<fn(T) -> T>,
}

/// Elements of one trustee.
struct Shard {
    trustee: TrusteeId,
    /// Places of the elements, for [`Property::nth`].
    run: Box<[*mut u8]>,
}

// SAFETY: as for `Trust`: addresses that only the trustee follows.
unsafe impl Send for Shard {}
// SAFETY: as above.
unsafe impl Sync for Shard {}

/// Trust of one element of a [`TrustSlice`], lent by it.
pub struct Element<'s, T: 'static> {
    trust: ManuallyDrop<Trust<T>>,
    slice: PhantomData<&'s TrustSlice<T>>,
}

impl<T> Deref for Element<'_, T> {
    type Target = Trust<T>;
    #[inline(always)]
    fn deref(&self) -> &Trust<T> {
        &self.trust
    }
}

impl<T: Send> TrustSlice<T> {
    /// Entrusts the values to the trustees in turn.
    pub(super) fn new(trustees: &[TrusteeReference], values: impl IntoIterator<Item = T>) -> Self {
        let mut shards: Vec<Vec<T>> = trustees.iter().map(|_| Vec::new()).collect();
        let mut len = 0;
        for value in values {
            shards[len % trustees.len()].push(value);
            len += 1;
        }
        let shards = trustees.iter().zip(shards).map(|(trustee, values)| {
            let (trustee, run) = trustee.entrust_run(values);
            Shard { trustee, run }
        });
        TrustSlice(Arc::new(Elements { shards: shards.collect(), len, kind: PhantomData }))
    }
}

impl<T> TrustSlice<T> {
    /// Returns the number of elements.
    ///
    /// ```
    /// assert_eq!(trust::Threadpool::new(2).entrust_each(["a", "b", "c"]).len(), 3);
    /// ```
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Returns whether there are no elements.
    ///
    /// ```
    /// assert!(trust::Threadpool::new(1).entrust_each(Vec::<u8>::new()).is_empty());
    /// ```
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Returns the trust of this element.
    ///
    /// # Panics
    /// If there are not as many elements.
    ///
    /// ```
    /// let pool = trust::Threadpool::new(2);
    /// let words = pool.entrust_each(["one", "two", "three"]);
    /// assert_eq!(words.at(2).apply(|word| word.len()), 5);
    /// ```
    #[must_use]
    #[inline]
    pub fn at(&self, index: usize) -> Element<'_, T> {
        assert!(index < self.0.len, "element {index} of a slice of {}", self.0.len);
        Element { trust: ManuallyDrop::new(self.0.trust(index)), slice: PhantomData }
    }

    /// Returns the trusts of all elements, in order.
    ///
    /// ```
    /// let pool = trust::Threadpool::new(2);
    /// let numbers = pool.entrust_each(1..=4);
    /// assert_eq!(numbers.iter().map(|number| number.apply(|n| *n)).sum::<i32>(), 10);
    /// ```
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Element<'_, T>> {
        (0..self.0.len).map(|index| self.at(index))
    }
}

impl<T> Elements<T> {
    /// Makes the trust that the handle has of this element.
    #[inline(always)]
    fn trust(&self, index: usize) -> Trust<T> {
        let shards = self.shards.len();
        let Shard { trustee, run } = &self.shards[index % shards];
        Trust::of(Property::<T>::nth(run, index / shards), *trustee)
    }
}

impl<T> Drop for Elements<T> {
    fn drop(&mut self) {
        for index in 0..self.len {
            drop(self.trust(index));
        }
    }
}

impl<T> fmt::Debug for TrustSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrustSlice<{}>({} elements)", std::any::type_name::<T>(), self.0.len)
    }
}

impl<T> fmt::Debug for Element<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.trust.fmt(f)
    }
}
