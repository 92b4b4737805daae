//! `PMap`: a hash table in a pool: open addressing with linear probing, the hash stored beside each entry.
//!
//! Invariant: the number of places is a power of two, at most three quarters of them are taken, and each entry can be
//! reached by probing from its hash's home without a gap. (In a damaged file with a gap, lookup misses that entry,
//! nothing worse.)

#![allow(unsafe_code)]

pub(crate) mod pages;
mod persist;

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use super::full;
use crate::hash;
use crate::memory::alloc::ALIGN;
use crate::persist::Persist;
use crate::tx::{self, Brand, Tx};

/// A hash map in a pool, as `HashMap` is one on the heap. 24 bytes.
///
/// Growing doubles the table and rewrites all of it: reserve ahead where latency matters. [`page`](Self::page) reads a
/// large map in several calls. Keys whose `Hash` gives other values in a later build of the program are not found any
/// more.
#[repr(C)]
pub struct PMap<'p, K: Persist, V: Persist> {
    /// 0 if nothing is allocated.
    at: u64,
    len: u64,
    places: u64,
    brand: PhantomData<(Brand<'p>, *mut (K, V))>,
}

/// A place in the table; free where the hash is 0.
#[repr(C)]
struct Place<K, V> {
    hash: u64,
    key: ManuallyDrop<K>,
    value: ManuallyDrop<V>,
}

const PLACES_MIN: usize = 8;

impl<'p, K: Persist, V: Persist> PMap<'p, K, V> {
    const BYTES: usize = {
        assert!(align_of::<Place<K, V>>() <= ALIGN, "persistent values are aligned to 16 bytes at most");
        size_of::<Place<K, V>>()
    };

    /// Makes an empty map, without an allocation.
    pub const fn new() -> Self {
        PMap { at: 0, len: 0, places: 0, brand: PhantomData }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    fn mask(&self) -> usize {
        self.places as usize - 1
    }

    /// Returns the place where the probe for a hash begins.
    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        (hash >> 1) as usize & self.mask()
    }

    /// Returns a place of a map that has any.
    #[inline(always)]
    fn place(&self, index: usize) -> *mut Place<K, V> {
        // SAFETY: indices are masked.
        unsafe { tx::place(self.at).cast::<Place<K, V>>().add(index) }
    }

    #[inline(always)]
    fn hash_at(&self, index: usize) -> u64 {
        // SAFETY: every place has a hash.
        unsafe { (*self.place(index)).hash }
    }

    /// # Safety
    /// The place is taken.
    #[inline(always)]
    unsafe fn key(&self, index: usize) -> &K {
        // SAFETY: the caller's promise; borrowed with the map.
        unsafe { &*(&raw const (*self.place(index)).key).cast::<K>() }
    }

    /// Returns the place of a key, or else the free place for it.
    #[inline]
    fn find<Q: Eq + ?Sized>(&self, hash: u64, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        let mut index = self.home(hash);
        loop {
            match self.hash_at(index) {
                0 => return Err(index),
                // SAFETY: a taken place has a key.
                at if at == hash && unsafe { self.key(index) }.borrow() == key => return Ok(index),
                _ => index = (index + 1) & self.mask(),
            }
        }
    }

    fn index_of<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
    {
        if self.len == 0 {
            return None;
        }
        let hash = tx::with_memory(|memory| hash::of(memory.seed(), key));
        self.find(hash, key).ok()
    }

    /// Returns the value of a key.
    #[inline]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let index = self.index_of(key)?;
        // SAFETY: taken, so it has a value, borrowed with the map.
        Some(unsafe { &*(&raw const (*self.place(index)).value).cast::<V>() })
    }

    /// Returns the value of a key, mutably.
    #[inline]
    pub fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.index_of(key).map(|index| self.value_mut(index))
    }

    fn value_mut(&mut self, index: usize) -> &mut V {
        // SAFETY: taken, so it has a value.
        let value = unsafe { (&raw mut (*self.place(index)).value).cast::<V>() };
        tx::touch(value, size_of::<V>());
        // SAFETY: borrowed with the map; touched [touch-before-mut].
        unsafe { &mut *value }
    }

    /// Is there an entry with this key?
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.index_of(key).is_some()
    }

    /// Makes space for `more` further entries.
    ///
    /// # Panics
    /// If the pool is full.
    pub fn reserve(&mut self, more: usize, tx: &Tx<'p>) {
        if !self.try_reserve(more, tx) {
            full(tx, self.len().saturating_add(more).saturating_mul(2 * Self::BYTES));
        }
    }

    fn try_reserve(&mut self, more: usize, tx: &Tx<'p>) -> bool {
        let wanted = self.len().checked_add(more).and_then(|wanted| wanted.checked_mul(4));
        let Some(wanted) = wanted.map(|wanted| wanted.div_ceil(3)) else { return false };
        if wanted <= self.places as usize {
            return true;
        }
        let Some(places) = wanted.checked_next_power_of_two().map(|places| places.max(PLACES_MIN)) else {
            return false;
        };
        let Some(bytes) = places.checked_mul(Self::BYTES).filter(|&bytes| bytes <= tx.memory().limit()) else {
            return false;
        };
        let Some(at) = tx.memory().take(bytes) else { return false };
        tx.memory().touch_fresh(at, bytes, bytes);
        // SAFETY: an allocation of its own, touched.
        unsafe { tx::place(at).write_bytes(0, bytes) };
        let old =
            PMap { at: self.at, len: self.len, places: self.places, brand: PhantomData::<(Brand<'p>, *mut (K, V))> };
        let old = ManuallyDrop::new(old);
        (self.at, self.places) = (at, places as u64);
        for from in (0..old.places as usize).filter(|&from| old.hash_at(from) != 0) {
            let mut to = self.home(old.hash_at(from));
            while self.hash_at(to) != 0 {
                to = (to + 1) & self.mask();
            }
            // SAFETY: another table; the entry is moved.
            unsafe { self.place(to).copy_from_nonoverlapping(old.place(from), 1) };
        }
        old.give_room();
        true
    }

    fn give_room(&self) {
        if self.at != 0 {
            tx::with_memory(|memory| memory.give(self.at, self.places as usize * Self::BYTES));
        }
    }

    /// Sets the value of a key; returns the old value.
    ///
    /// # Panics
    /// If the pool is full.
    pub fn insert(&mut self, key: K, value: V, tx: &Tx<'p>) -> Option<V>
    where
        K: Hash + Eq,
    {
        self.try_insert(key, value, tx).unwrap_or_else(|_| full(tx, self.places as usize * 2 * Self::BYTES))
    }

    /// Same as [`insert`](Self::insert), but does not panic.
    ///
    /// # Errors
    /// Gives both back if the pool is full.
    pub fn try_insert(&mut self, key: K, value: V, tx: &Tx<'p>) -> Result<Option<V>, (K, V)>
    where
        K: Hash + Eq,
    {
        let hash = hash::of(tx.memory().seed(), &key);
        if self.places > 0
            && let Ok(index) = self.find::<K>(hash, &key)
        {
            return Ok(Some(std::mem::replace(self.value_mut(index), value)));
        }
        if !self.try_reserve(1, tx) {
            return Err((key, value));
        }
        self.put(hash, key, value);
        Ok(None)
    }

    /// Puts a new entry into a free place of a table that has one. Returns its place.
    fn put(&mut self, hash: u64, key: K, value: V) -> usize {
        let mut index = self.home(hash);
        while self.hash_at(index) != 0 {
            index = (index + 1) & self.mask();
        }
        let place = self.place(index);
        tx::touch(place, Self::BYTES);
        // SAFETY: a free place, touched.
        unsafe { place.write(Place { hash, key: ManuallyDrop::new(key), value: ManuallyDrop::new(value) }) };
        self.len += 1;
        index
    }

    /// Returns the value of a key, mutably; if there is none, inserts the result of `make` first.
    ///
    /// # Panics
    /// If the pool is full.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V, tx: &Tx<'p>) -> &mut V
    where
        K: Hash + Eq,
    {
        let hash = hash::of(tx.memory().seed(), &key);
        let found = if self.places > 0 { self.find::<K>(hash, &key).ok() } else { None };
        let index = found.unwrap_or_else(|| {
            let value = make();
            self.reserve(1, tx);
            self.put(hash, key, value)
        });
        self.value_mut(index)
    }

    /// Removes an entry; returns its value.
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.remove_entry(key).map(|(_, value)| value)
    }

    /// Removes an entry; returns key and value.
    pub fn remove_entry<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        let index = self.index_of(key)?;
        tx::touch(self.place(index), Self::BYTES);
        // SAFETY: taken; the place is closed below, before anything else can run.
        let Place { key, value, .. } = unsafe { self.place(index).read() };
        let (mut hole, mut next) = (index, index);
        loop {
            next = (next + 1) & self.mask();
            let hash = self.hash_at(next);
            if hash == 0 {
                break;
            }
            // Entries behind a gap could not be found any more: an entry that may move nearer to its home does.
            let distance = |from: usize| next.wrapping_sub(from) & self.mask();
            if distance(self.home(hash)) >= distance(hole) {
                tx::touch(self.place(next), Self::BYTES);
                // SAFETY: different places, both touched; the entry is moved.
                unsafe { self.place(hole).copy_from_nonoverlapping(self.place(next), 1) };
                hole = next;
            }
        }
        // SAFETY: its entry was taken or moved; touched.
        unsafe { (*self.place(hole)).hash = 0 };
        self.len -= 1;
        Some((ManuallyDrop::into_inner(key), ManuallyDrop::into_inner(value)))
    }

    /// Drops all entries and frees the table.
    pub fn clear(&mut self) {
        drop(std::mem::take(self));
    }

    /// Iterates over the entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        (0..self.places as usize).filter(|&index| self.hash_at(index) != 0).map(|index| self.entry(index))
    }

    /// Returns the entry of a place that is taken.
    fn entry(&self, index: usize) -> (&K, &V) {
        debug_assert!(self.hash_at(index) != 0);
        let place = self.place(index);
        // SAFETY: taken, borrowed with the map.
        unsafe { (&*(&raw const (*place).key).cast::<K>(), &*(&raw const (*place).value).cast::<V>()) }
    }

    /// Iterates over the keys, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// Iterates over the values, in the order of [`keys`](Self::keys).
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Calls `f` with each entry; each value is saved before.
    pub fn for_each_mut(&mut self, mut f: impl FnMut(&K, &mut V)) {
        for index in 0..self.places as usize {
            if self.hash_at(index) != 0 {
                // SAFETY: taken; `value_mut` does not borrow the key, and the map is borrowed throughout.
                let key = unsafe { &*(&raw const (*self.place(index)).key).cast::<K>() };
                f(key, self.value_mut(index));
            }
        }
    }
}

impl<K: Persist + fmt::Debug, V: Persist + fmt::Debug> fmt::Debug for PMap<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
