//! Lent owners: the handles that closures carry, and how an owner lent for writing comes back.

#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::time::Instant;

use gossamer::{NoRef, Pending, Promise};
use trust::link::promise_at;

use crate::global::Global;
use crate::object::Object;
use crate::portable::Portable;

/// Time for which something is lent. It is no reference: there are no bytes of it.
struct During<'scope>(PhantomData<&'scope ()>);

// SAFETY: a mark for the compiler; nothing of it travels.
unsafe impl NoRef for During<'_> {}

/// An owner that is lent to be read, made by [`Scope::lend`](super::Scope::lend): it reads as the owner does, and
/// travels in the closures of its scope.
pub struct Lent<'scope, T: ?Sized + Object + Portable> {
    /// Never dropped here.
    object: ManuallyDrop<Global<T>>,
    _during: During<'scope>,
}

impl<'scope, T: ?Sized + Object + Portable> Lent<'scope, T> {
    pub(super) fn of(owner: &'scope Global<T>) -> Self {
        Lent { object: again(owner), _during: During(PhantomData) }
    }
}

/// The name of an object, without owning it.
fn again<T: ?Sized + Object>(owner: &Global<T>) -> ManuallyDrop<Global<T>> {
    // SAFETY: it is not dropped, nor written.
    ManuallyDrop::new(unsafe { Global::of(owner.name(), owner.meta()) })
}

impl<T: ?Sized + Object + Portable> Clone for Lent<'_, T> {
    fn clone(&self) -> Self {
        Lent { object: again(&self.object), _during: During(PhantomData) }
    }
}

impl<T: ?Sized + Object + Portable> Deref for Lent<'_, T> {
    type Target = Global<T>;

    fn deref(&self) -> &Global<T> {
        &self.object
    }
}

impl<T: ?Sized + Object + Portable> fmt::Debug for Lent<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent({:?})", **self)
    }
}

/// An owner that is lent to be written, made by [`Scope::lend_mut`](super::Scope::lend_mut): it is the owner while it
/// lasts, and travels in the closures of its scope. The owner goes back when this is dropped.
pub struct LentMut<'scope, T: ?Sized + Object + Portable> {
    object: ManuallyDrop<Global<T>>,
    back: ManuallyDrop<Promise<Global<T>>>,
    _during: During<'scope>,
}

impl<T: ?Sized + Object + Portable> Deref for LentMut<'_, T> {
    type Target = Global<T>;

    fn deref(&self) -> &Global<T> {
        &self.object
    }
}

impl<T: ?Sized + Object + Portable> DerefMut for LentMut<'_, T> {
    fn deref_mut(&mut self) -> &mut Global<T> {
        &mut self.object
    }
}

impl<T: ?Sized + Object + Portable> Drop for LentMut<'_, T> {
    fn drop(&mut self) {
        // SAFETY: taken once, and not used again.
        let (object, back) = unsafe { (ManuallyDrop::take(&mut self.object), ManuallyDrop::take(&mut self.back)) };
        back.keep(object);
    }
}

impl<T: ?Sized + Object + Portable> fmt::Debug for LentMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LentMut({:?})", **self)
    }
}

/// An owner that is to come back.
pub(super) trait Loan {
    /// Puts it where it was, if it is there until then. `lost` is a machine that was lost with closures of the scope.
    fn end(self: Box<Self>, until: Instant, lost: Option<u16>, aborted: &mut Option<Box<dyn Any + Send>>);
}

struct Lending<T: ?Sized + Object> {
    /// Owner on the lender's stack, borrowed until the scope has ended.
    owner: *mut Global<T>,
    back: Pending<Global<T>>,
}

impl<T: ?Sized + Object> Loan for Lending<T> {
    fn end(self: Box<Self>, until: Instant, lost: Option<u16>, aborted: &mut Option<Box<dyn Any + Send>>) {
        let back = super::wait(&self.back, Some(until), aborted);
        // SAFETY: the scope has not ended, for which the owner is lent exclusively; no closure has it any more
        // [scope-waits].
        let owner = unsafe { &mut *self.owner };
        match (back, lost) {
            (Some(Ok(object)), _) => *owner = object,
            (_, Some(machine)) => owner.lost_by(machine),
            _ => {}
        }
    }
}

/// Takes an owner from its place, which names nothing meanwhile [lent-owner-null].
pub(super) fn lend<'scope, T: ?Sized + Object + Portable>(
    owner: &'scope mut Global<T>,
) -> (LentMut<'scope, T>, Box<dyn Loan>) {
    let nothing = Global::nothing(owner.meta());
    let object = ManuallyDrop::new(std::mem::replace(owner, nothing));
    // Any machine may keep it: the loss of one does not end the wait, for another may have it.
    let (promise, back) = promise_at(trust::local_trustee().id());
    let lent = LentMut { object, back: ManuallyDrop::new(promise), _during: During(PhantomData) };
    (lent, Box::new(Lending { owner, back }))
}
