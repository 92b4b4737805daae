//! `PBox`: a value in an allocation of its own in a pool.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, needs_drop};
use std::num::NonZeroU64;
use std::ops::{Deref, DerefMut};

use super::full;
use crate::layout::{Kind, Types};
use crate::memory::alloc::ALIGN;
use crate::memory::{Dropping, Memory};
use crate::persist::{Niche, Persist};
use crate::tx::{self, Brand, Tx};
use crate::walk::{Damage, Walk};

/// An owning pointer to a value in the pool, as `Box` is one to a value on the heap. 8 bytes.
///
/// When it is dropped, the value's destructor runs, and its slot is freed, at the end of the transaction.
#[repr(transparent)]
pub struct PBox<'p, T: Persist> {
    at: NonZeroU64,
    brand: PhantomData<(Brand<'p>, *mut T)>,
}

const _: () = assert!(size_of::<Option<PBox<'static, u8>>>() == 8);

/// Allocates a slot for a `T` and touches it.
pub(crate) fn room<T>(tx: &Tx<'_>) -> Option<NonZeroU64> {
    const { assert!(align_of::<T>() <= ALIGN, "persistent values are aligned to 16 bytes at most") };
    let at = tx.memory().take(size_of::<T>())?;
    tx.memory().touch_fresh(at, size_of::<T>(), size_of::<T>());
    NonZeroU64::new(at)
}

impl<'p, T: Persist> PBox<'p, T> {
    /// Puts `value` into the pool.
    ///
    /// # Panics
    /// If the pool is full.
    #[inline]
    pub fn new(value: T, tx: &Tx<'p>) -> Self {
        Self::try_new(value, tx).unwrap_or_else(|_| full(tx, size_of::<T>()))
    }

    /// Same as [`new`](Self::new), but does not panic.
    ///
    /// # Errors
    /// Gives the value back if the pool is full.
    #[inline]
    pub fn try_new(value: T, tx: &Tx<'p>) -> Result<Self, T> {
        let Some(at) = room::<T>(tx) else { return Err(value) };
        // SAFETY: an allocation of its own, aligned, and touched.
        unsafe { tx::place(at.get()).cast::<T>().write(value) };
        Ok(PBox { at, brand: PhantomData })
    }

    /// Takes the value out; its slot is freed after the transaction.
    #[inline]
    pub fn into_inner(boxed: Self) -> T {
        let boxed = ManuallyDrop::new(boxed);
        tx::with_memory(|memory| memory.give(boxed.at.get(), size_of::<T>()));
        // SAFETY: the box owned it, and is gone.
        unsafe { boxed.pointer().read() }
    }

    /// Makes another box with a copy of the value.
    ///
    /// # Panics
    /// If the pool is full.
    #[inline]
    pub fn pclone(&self, tx: &Tx<'p>) -> Self
    where
        T: Clone,
    {
        PBox::new((**self).clone(), tx)
    }

    #[inline(always)]
    fn pointer(&self) -> *mut T {
        tx::place(self.at.get()).cast()
    }
}

impl<T: Persist> Deref for PBox<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: a live value that this box owns [brand-entered].
        unsafe { &*self.pointer() }
    }
}

impl<T: Persist> DerefMut for PBox<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        let value = self.pointer();
        tx::touch(value, size_of::<T>());
        // SAFETY: as above, and now touched [touch-before-mut].
        unsafe { &mut *value }
    }
}

/// Drops `count` values from `at` on, in place.
///
/// # Safety
/// Nothing can reach them any more; the memory is the one that is entered.
pub(crate) unsafe fn drop_values<T: Persist>(memory: &Memory, at: u64, count: u64) {
    let values = memory.at(at).cast::<T>();
    if T::DROP_WRITES {
        memory.touch(values.cast(), count as usize * size_of::<T>());
    }
    // SAFETY: the caller's promise; everything that destructors may write is touched.
    unsafe { std::ptr::slice_from_raw_parts_mut(values, count as usize).drop_in_place() };
}

impl<T: Persist> Drop for PBox<'_, T> {
    #[inline]
    fn drop(&mut self) {
        tx::with_memory(|memory| {
            if needs_drop::<T>() {
                memory.drop_later(Dropping { at: self.at.get(), count: 1, run: drop_boxed::<T> });
            } else {
                memory.give(self.at.get(), size_of::<T>());
            }
        });
    }
}

/// # Safety
/// As for [`drop_values`].
unsafe fn drop_boxed<T: Persist>(memory: &Memory, at: u64, count: u64) {
    memory.give(at, size_of::<T>());
    // SAFETY: the caller's promise. The slot is not free before the transaction ends.
    unsafe { drop_values::<T>(memory, at, count) };
}

impl<T: Persist + fmt::Debug> fmt::Debug for PBox<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Persist + PartialEq> PartialEq for PBox<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

// SAFETY: `check` claims the slot, so no other owner has it, and schedules the check of the value.
unsafe impl<'p, T: Persist> Persist for PBox<'p, T> {
    type At<'q> = PBox<'q, T::At<'q>>;
    const IS_PLAIN: bool = false;
    const DROP_WRITES: bool = false;

    fn describe(types: &mut Types) -> (String, Kind) {
        let of = types.add::<T>();
        ("PBox".into(), Kind::Of(vec![of]))
    }

    fn check(at: u64, walk: &mut Walk<'_>) -> Result<(), Damage> {
        let to = walk.word(at)?;
        walk.claim(at, to, size_of::<T>())?;
        walk.later::<T>(to, 1);
        Ok(())
    }
}

// SAFETY: transparent over a `NonZeroU64`.
unsafe impl<T: Persist> Niche for PBox<'_, T> {
    type NicheAt<'q> = PBox<'q, T::At<'q>>;
}
