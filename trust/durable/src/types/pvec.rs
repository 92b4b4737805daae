//! `PVec`: a growable array in a pool.

#![allow(unsafe_code)]

mod slices;

use std::fmt;
use std::marker::PhantomData;
use std::mem::needs_drop;
use std::ops::Range;

use super::full;
use super::pbox::drop_values;
use crate::layout::{Kind, Types};
use crate::memory::Dropping;
use crate::memory::alloc::ALIGN;
use crate::persist::Persist;
use crate::tx::{self, Brand, Tx};
use crate::walk::{Damage, Walk};

/// A growable array in a pool, as `Vec` is one on the heap. 24 bytes.
///
/// It dereferences to a slice. Changing an element (`vec[i] = ..`, [`get_mut`](Self::get_mut)) saves that element;
/// [`as_mut_slice`](Self::as_mut_slice) saves all of them, so use it where most of them change.
///
/// Growing doubles the capacity and rewrites all elements: reserve ahead where the array is large and latency matters.
#[repr(C)]
pub struct PVec<'p, T: Persist> {
    /// 0 if nothing is allocated.
    at: u64,
    len: u64,
    capacity: u64,
    brand: PhantomData<(Brand<'p>, *mut T)>,
}

impl<'p, T: Persist> PVec<'p, T> {
    const BYTES: usize = {
        assert!(size_of::<T>() > 0, "elements of no bytes: keep their number instead");
        assert!(align_of::<T>() <= ALIGN, "persistent values are aligned to 16 bytes at most");
        size_of::<T>()
    };

    /// Makes an empty array, without an allocation.
    pub const fn new() -> Self {
        PVec { at: 0, len: 0, capacity: 0, brand: PhantomData }
    }

    /// Makes an empty array with space for `capacity` elements.
    ///
    /// # Panics
    /// If the pool is full.
    pub fn with_capacity(capacity: usize, tx: &Tx<'p>) -> Self {
        let mut vec = PVec::new();
        vec.reserve(capacity, tx);
        vec
    }

    /// Makes an array of these elements.
    ///
    /// # Panics
    /// If the pool is full.
    pub fn of(elements: impl IntoIterator<Item = T>, tx: &Tx<'p>) -> Self {
        let mut vec = PVec::new();
        vec.extend(elements, tx);
        vec
    }

    /// Returns the number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Is it empty?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of elements that fit without growing.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    #[inline(always)]
    fn pointer(&self) -> *mut T {
        // Aligned and not null also without an allocation.
        tx::place(self.at).cast()
    }

    /// Returns the elements.
    #[inline(always)]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: so many live elements [brand-entered]; without an allocation there are none, and any aligned address
        // will do.
        unsafe { std::slice::from_raw_parts(self.pointer(), self.len()) }
    }

    /// Returns the elements mutably; all are saved.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        self.touched(0..self.len())
    }

    /// Returns these elements mutably, saved. The range is within the length.
    #[inline(always)]
    fn touched(&mut self, range: Range<usize>) -> &mut [T] {
        // SAFETY: within the elements, as the caller made sure.
        let first = unsafe { self.pointer().add(range.start) };
        tx::touch(first, range.len() * Self::BYTES);
        // SAFETY: as in `as_slice`; touched [touch-before-mut], and `self` is borrowed.
        unsafe { std::slice::from_raw_parts_mut(first, range.len()) }
    }

    /// Returns the element `index`, mutably.
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        (index < self.len()).then(|| &mut self.touched(index..index + 1)[0])
    }

    /// Returns the last element, mutably.
    pub fn last_mut(&mut self) -> Option<&mut T> {
        self.get_mut(self.len().wrapping_sub(1))
    }

    /// Iterates over the elements mutably; all are saved.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.as_mut_slice().iter_mut()
    }

    /// Makes space for `more` further elements.
    ///
    /// # Panics
    /// If the pool is full.
    pub fn reserve(&mut self, more: usize, tx: &Tx<'p>) {
        if !self.try_reserve(more, tx) {
            full(tx, self.len().saturating_add(more).saturating_mul(Self::BYTES));
        }
    }

    /// Same as [`reserve`](Self::reserve); false if the pool is full.
    #[must_use]
    pub fn try_reserve(&mut self, more: usize, tx: &Tx<'p>) -> bool {
        let Some(wanted) = self.len().checked_add(more) else { return false };
        if wanted <= self.capacity() {
            return true;
        }
        let least = (16 / Self::BYTES).max(1);
        let capacity = wanted.max(self.capacity() * 2).max(least);
        let Some(bytes) = capacity.checked_mul(Self::BYTES).filter(|&bytes| bytes <= tx.memory().limit()) else {
            return false;
        };
        let Some(at) = tx.memory().take(bytes) else { return false };
        tx.memory().touch_fresh(at, self.len() * Self::BYTES, bytes);
        // SAFETY: an allocation of its own for more elements than there are, touched as far as the old ones go. The old
        // elements are moved.
        unsafe { tx::place(at).cast::<T>().copy_from_nonoverlapping(self.pointer(), self.len()) };
        self.give_room();
        self.at = at;
        self.capacity = capacity as u64;
        true
    }

    fn give_room(&self) {
        if self.at != 0 {
            tx::with_memory(|memory| memory.give(self.at, self.capacity() * Self::BYTES));
        }
    }

    /// Appends an element.
    ///
    /// # Panics
    /// If the pool is full.
    #[inline]
    pub fn push(&mut self, value: T, tx: &Tx<'p>) {
        self.try_push(value, tx).unwrap_or_else(|_| full(tx, self.capacity() * Self::BYTES * 2));
    }

    /// Same as [`push`](Self::push), but does not panic.
    ///
    /// # Errors
    /// Gives the value back if the pool is full.
    #[inline]
    pub fn try_push(&mut self, value: T, tx: &Tx<'p>) -> Result<(), T> {
        if self.len == self.capacity && !self.try_reserve(1, tx) {
            return Err(value);
        }
        // SAFETY: there is space behind the last element.
        let end = unsafe { self.pointer().add(self.len()) };
        tx::touch(end, Self::BYTES);
        // SAFETY: as above; touched, and no value is there.
        unsafe { end.write(value) };
        self.len += 1;
        Ok(())
    }

    /// Removes the last element.
    pub fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: it was the last element, and is not an element any more.
        Some(unsafe { self.pointer().add(self.len()).read() })
    }

    /// Inserts an element at `index`; those behind it move.
    ///
    /// # Panics
    /// If `index` is beyond the length, or the pool is full.
    pub fn insert(&mut self, index: usize, value: T, tx: &Tx<'p>) {
        assert!(index <= self.len(), "an element is put at {index} of {}", self.len());
        self.reserve(1, tx);
        let rest = self.len() - index;
        // SAFETY: within the capacity.
        let place = unsafe { self.pointer().add(index) };
        tx::touch(place, (rest + 1) * Self::BYTES);
        // SAFETY: the rest moves by one, within the capacity; everything is touched.
        unsafe {
            place.copy_to(place.add(1), rest);
            place.write(value);
        }
        self.len += 1;
    }

    /// Removes the element `index`; those behind it move.
    ///
    /// # Panics
    /// If there is none.
    pub fn remove(&mut self, index: usize) -> T {
        assert!(index < self.len(), "the element {index} of {} is taken", self.len());
        let rest = self.len() - index - 1;
        // SAFETY: a live element.
        let place = unsafe { self.pointer().add(index) };
        tx::touch(place, (rest + 1) * Self::BYTES);
        self.len -= 1;
        // SAFETY: its value is taken out, and the rest moves over it; everything is touched.
        unsafe {
            let value = place.read();
            place.copy_from(place.add(1), rest);
            value
        }
    }

    /// Removes the element `index`; the last takes its place.
    ///
    /// # Panics
    /// If there is none.
    pub fn swap_remove(&mut self, index: usize) -> T {
        let last = self.len().wrapping_sub(1);
        self.swap(index, last);
        self.pop().unwrap_or_else(|| unreachable!("`swap` found it"))
    }

    /// Swaps two elements.
    ///
    /// # Panics
    /// If one of them does not exist.
    pub fn swap(&mut self, a: usize, b: usize) {
        assert!(a < self.len() && b < self.len(), "the elements {a} and {b} of {} are exchanged", self.len());
        self.touched(a..a + 1);
        self.touched(b..b + 1);
        // SAFETY: live elements, touched.
        unsafe { self.pointer().add(a).swap(self.pointer().add(b)) };
    }

    /// Drops all elements except the first `len`.
    pub fn truncate(&mut self, len: usize) {
        let Some(gone) = self.len().checked_sub(len).filter(|&gone| gone > 0) else { return };
        self.len = len as u64;
        if needs_drop::<T>() {
            let first = self.at + (len * Self::BYTES) as u64;
            // SAFETY: they are not elements any more.
            tx::with_memory(|memory| unsafe { drop_values::<T>(memory, first, gone as u64) });
        }
    }

    /// Drops all elements; the capacity stays.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Appends elements.
    ///
    /// # Panics
    /// If the pool is full.
    pub fn extend(&mut self, elements: impl IntoIterator<Item = T>, tx: &Tx<'p>) {
        let elements = elements.into_iter();
        self.reserve(elements.size_hint().0, tx);
        elements.for_each(|element| self.push(element, tx));
    }

    /// Appends copies of elements.
    ///
    /// # Panics
    /// If the pool is full.
    pub fn extend_from_slice(&mut self, elements: &[T], tx: &Tx<'p>)
    where
        T: Copy,
    {
        self.reserve(elements.len(), tx);
        // SAFETY: there is space.
        let end = unsafe { self.pointer().add(self.len()) };
        tx::touch(end, elements.len() * Self::BYTES);
        // SAFETY: as above; touched, and behind everything that `elements` could borrow of this array.
        unsafe { end.copy_from_nonoverlapping(elements.as_ptr(), elements.len()) };
        self.len += elements.len() as u64;
    }
}

impl<T: Persist> Drop for PVec<'_, T> {
    fn drop(&mut self) {
        if self.at == 0 {
            return;
        }
        self.give_room();
        if needs_drop::<T>() && self.len > 0 {
            let dropping = Dropping { at: self.at, count: self.len, run: drop_values::<T> };
            tx::with_memory(|memory| memory.drop_later(dropping));
        }
    }
}

impl<T: Persist> Default for PVec<'_, T> {
    fn default() -> Self {
        PVec::new()
    }
}

// SAFETY: `check` claims the allocation and schedules the check of each element; without an allocation there are none.
unsafe impl<'p, T: Persist> Persist for PVec<'p, T> {
    type At<'q> = PVec<'q, T::At<'q>>;
    const IS_PLAIN: bool = false;
    const DROP_WRITES: bool = false;

    fn describe(types: &mut Types) -> (String, Kind) {
        let of = types.add::<T>();
        ("PVec".into(), Kind::Of(vec![of]))
    }

    fn check(at: u64, walk: &mut Walk<'_>) -> Result<(), Damage> {
        let [to, len, capacity] = [walk.word(at)?, walk.word(at + 8)?, walk.word(at + 16)?];
        if to == 0 && len == 0 && capacity == 0 {
            return Ok(());
        }
        let bytes = usize::try_from(capacity).ok().and_then(|capacity| capacity.checked_mul(Self::BYTES));
        let Some(bytes) = bytes.filter(|&bytes| len <= capacity && bytes > 0 && to != 0) else {
            return Err(walk.damage(at, "a PVec with an impossible length"));
        };
        walk.claim(at, to, bytes)?;
        walk.later::<T>(to, len);
        Ok(())
    }
}

impl<T: Persist + fmt::Debug> fmt::Debug for PVec<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl<T: Persist + PartialEq> PartialEq for PVec<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: Persist + Eq> Eq for PVec<'_, T> {}

impl<T: Persist + std::hash::Hash> std::hash::Hash for PVec<'_, T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl<T: Persist> std::borrow::Borrow<[T]> for PVec<'_, T> {
    fn borrow(&self) -> &[T] {
        self
    }
}
