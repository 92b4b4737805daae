//! Guards: a guard gives access to an object in place, for reads or writes.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::copies::Pin;
use crate::replicas::heads::Busy;

/// An object that is being read: in place, or in this machine's copy. Made by [`Global::read`](crate::Global::read).
///
/// It stays on its thread. Forgotten, it keeps a copy for as long as the process lives, and does no other harm.
pub struct Ref<'a, T: ?Sized> {
    object: NonNull<T>,
    pin: Kept,
    owner: PhantomData<(&'a T, *const ())>,
}

/// The copy that is read; none in place, which costs a comparison.
struct Kept(Option<Pin>);

impl Drop for Kept {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(pin) = self.0.take() {
            unpin(pin);
        }
    }
}

/// Out of the way of reads in place.
#[cold]
#[inline(never)]
fn unpin(pin: Pin) {
    drop(pin);
}

impl<'a, T: ?Sized> Ref<'a, T> {
    /// # Safety
    /// For `'a` the object is there and nobody writes it; in a copy, as long as the pin is kept.
    #[inline(always)]
    pub(crate) unsafe fn new(object: *mut T, pin: Option<Pin>) -> Self {
        // SAFETY: objects are not at null.
        Ref { object: unsafe { NonNull::new_unchecked(object) }, pin: Kept(pin), owner: PhantomData }
    }

    /// A guard of a part of it.
    ///
    /// ```
    /// use gossamer_heap::{Global, Ref};
    /// gossamer::main(
    ///     || {
    ///         let pair = Global::new((1u64, 2u64));
    ///         let second = Ref::map(pair.read(), |pair| &pair.1);
    ///         assert_eq!(*second, 2);
    ///     },
    ///     1,
    /// );
    /// ```
    pub fn map<U: ?Sized>(this: Self, f: impl FnOnce(&T) -> &U) -> Ref<'a, U> {
        let object = NonNull::from(f(&this));
        Ref { object, pin: this.pin, owner: PhantomData }
    }
}

impl<T: ?Sized> Deref for Ref<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: by its construction.
        unsafe { self.object.as_ref() }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// An object that is being written, in place. Made by [`Global::write`](crate::Global::write).
///
/// It stays on its thread. The object was renamed when it was made, so forgetting it does no harm; with copies
/// ([`with_copies`](crate::with_copies)) the object has none from then on.
pub struct RefMut<'a, T: ?Sized> {
    object: NonNull<T>,
    busy: Busy,
    owner: PhantomData<(&'a mut T, *const ())>,
}

impl<'a, T: ?Sized> RefMut<'a, T> {
    /// # Safety
    /// For `'a` the object is there, and nobody else reads or writes it.
    #[inline(always)]
    pub(crate) unsafe fn new(object: *mut T, busy: Busy) -> Self {
        // SAFETY: objects are not at null.
        RefMut { object: unsafe { NonNull::new_unchecked(object) }, busy, owner: PhantomData }
    }

    /// The object, and what is to be dropped when it is whole.
    pub(crate) fn into_parts(this: Self) -> (NonNull<T>, Busy) {
        (this.object, this.busy)
    }

    /// A guard of a part of it.
    ///
    /// ```
    /// use gossamer_heap::{Global, RefMut};
    /// gossamer::main(
    ///     || {
    ///         let mut pair = Global::new((1u64, 2u64));
    ///         *RefMut::map(pair.write(), |pair| &mut pair.1) = 5;
    ///         assert_eq!(*pair.read(), (1, 5));
    ///     },
    ///     1,
    /// );
    /// ```
    pub fn map<U: ?Sized>(mut this: Self, f: impl FnOnce(&mut T) -> &mut U) -> RefMut<'a, U> {
        let object = NonNull::from(f(&mut this));
        RefMut { object, busy: this.busy, owner: PhantomData }
    }
}

impl<T: ?Sized> Deref for RefMut<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: by its construction.
        unsafe { self.object.as_ref() }
    }
}

impl<T: ?Sized> DerefMut for RefMut<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: by its construction.
        unsafe { self.object.as_mut() }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RefMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
