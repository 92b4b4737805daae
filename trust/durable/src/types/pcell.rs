//! `PCell`: a value that changes through a shared reference, by being replaced.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;

use crate::layout::{Kind, Types};
use crate::persist::Persist;
use crate::tx::{self, Brand, Tx};
use crate::walk::{Damage, Walk};

/// A value that can be replaced through a shared reference, in a transaction, as in a `Cell`. For values under a
/// [`Prc`](crate::Prc).
#[repr(transparent)]
pub struct PCell<'p, T: Persist> {
    value: UnsafeCell<T>,
    brand: PhantomData<Brand<'p>>,
}

impl<'p, T: Persist> PCell<'p, T> {
    /// Makes a cell with this value.
    pub const fn new(value: T) -> Self {
        PCell { value: UnsafeCell::new(value), brand: PhantomData }
    }

    /// Returns a copy of the value.
    #[inline]
    pub fn get(&self) -> T
    where
        T: Copy,
    {
        // SAFETY: no reference to the value is ever handed out except by `get_mut`, which borrows the cell.
        unsafe { *self.value.get() }
    }

    /// Replaces the value, and drops the old one.
    #[inline]
    pub fn set(&self, value: T, tx: &Tx<'p>) {
        drop(self.replace(value, tx));
    }

    /// Replaces the value, and returns the old one.
    #[inline]
    pub fn replace(&self, value: T, _tx: &Tx<'p>) -> T {
        tx::touch(self.value.get(), size_of::<T>());
        // SAFETY: as in `get`; touched.
        unsafe { self.value.get().replace(value) }
    }
}

cell!(PCell,);

impl<T: Persist + Copy + fmt::Debug> fmt::Debug for PCell<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
