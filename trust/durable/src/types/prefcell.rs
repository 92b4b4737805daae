//! `PRefCell`: a value that changes through a shared reference, with borrows checked at run time.

#![allow(unsafe_code)]

use std::any::TypeId;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::flags;
use crate::layout::{Kind, Types};
use crate::persist::Persist;
use crate::tx::{self, Brand, Tx};
use crate::walk::{Damage, Walk};

/// A value that can be borrowed mutably through a shared reference, in a transaction, as in a `RefCell`. For values
/// under a [`Prc`](crate::Prc).
///
/// Borrows are recorded outside of the pool and forgotten with the transaction, so a leaked guard locks nothing for
/// ever.
#[repr(transparent)]
pub struct PRefCell<'p, T: Persist> {
    value: UnsafeCell<T>,
    brand: PhantomData<Brand<'p>>,
}

impl<'p, T: Persist> PRefCell<'p, T> {
    /// Makes a cell with this value.
    pub const fn new(value: T) -> Self {
        const { assert!(size_of::<T>() > 0, "a PRefCell is known by its address, which cells of no bytes share") };
        PRefCell { value: UnsafeCell::new(value), brand: PhantomData }
    }

    fn key(&self) -> (usize, TypeId) {
        (self.value.get() as usize, TypeId::of::<T::At<'static>>())
    }

    /// Borrows the value.
    ///
    /// # Panics
    /// If it is mutably borrowed.
    pub fn borrow(&self) -> PRef<'_, 'p, T> {
        assert!(flags::share(self.key()), "already mutably borrowed: a PRefCell<{}>", std::any::type_name::<T>());
        PRef { cell: self }
    }

    /// Borrows the value mutably.
    ///
    /// # Panics
    /// If it is borrowed.
    pub fn borrow_mut(&self, _tx: &Tx<'p>) -> PRefMut<'_, 'p, T> {
        assert!(flags::take(self.key()), "already borrowed: a PRefCell<{}>", std::any::type_name::<T>());
        PRefMut { cell: self }
    }

    /// Replaces the value, and returns the old one.
    ///
    /// # Panics
    /// If it is borrowed.
    pub fn replace(&self, value: T, tx: &Tx<'p>) -> T {
        std::mem::replace(&mut *self.borrow_mut(tx), value)
    }
}

/// A shared borrow of the value of a [`PRefCell`].
pub struct PRef<'a, 'p, T: Persist> {
    cell: &'a PRefCell<'p, T>,
}

/// The mutable borrow of the value of a [`PRefCell`].
pub struct PRefMut<'a, 'p, T: Persist> {
    cell: &'a PRefCell<'p, T>,
}

impl<T: Persist> Deref for PRef<'_, '_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the flag keeps mutable borrows out until this guard is dropped.
        unsafe { &*self.cell.value.get() }
    }
}

impl<T: Persist> Deref for PRefMut<'_, '_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the flag keeps other borrows out until this guard is dropped.
        unsafe { &*self.cell.value.get() }
    }
}

impl<T: Persist> DerefMut for PRefMut<'_, '_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // As in the paper, a mutable borrow that is only read is not logged.
        tx::touch(self.cell.value.get(), size_of::<T>());
        // SAFETY: as above; touched [touch-before-mut].
        unsafe { &mut *self.cell.value.get() }
    }
}

impl<T: Persist> Drop for PRef<'_, '_, T> {
    fn drop(&mut self) {
        flags::release(self.cell.key());
    }
}

impl<T: Persist> Drop for PRefMut<'_, '_, T> {
    fn drop(&mut self) {
        flags::release(self.cell.key());
    }
}

cell!(PRefCell, #[doc = "\n# Panics\nIf it is borrowed."]);

impl<T: Persist + fmt::Debug> fmt::Debug for PRefCell<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.borrow().fmt(f)
    }
}

impl<T: Persist + fmt::Debug> fmt::Debug for PRef<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Persist + fmt::Debug> fmt::Debug for PRefMut<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
