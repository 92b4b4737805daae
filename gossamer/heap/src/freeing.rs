//! The end of an object: its destructor runs once, at the worker that owns its partition, and its room is free again.
//!
//! Destructors that drop owners in turn do not recurse: the dropped owners wait in a list until the destructor has
//! returned, however long the chain. Nothing may wait in a destructor, wherever the owner was dropped.
//!
//! The destructor of an object on a machine that is lost runs at its replica, if there is one. Else it never runs:
//! owners inside of it, which lie elsewhere, stay.

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use trust::link;

use crate::bases;
use crate::name::{At, Name};
use crate::object::Object;
use crate::partition::{self, Partition};
use crate::places;
use crate::replicas::promoted;

/// The owner of this object was dropped.
///
/// # Safety
/// It was the owner, of an object of this type.
#[inline(always)]
pub(crate) unsafe fn object<T: ?Sized + Object>(name: Name, meta: T::Meta) {
    match partition::existing() {
        // SAFETY: the caller's promise.
        Some(own) if own.is_at(name.at) => unsafe { at_home::<T>(own, name, meta) },
        _ if const { T::DROPS } && places::check(name.at).is_err() => of_lost::<T>(name, T::to_word(meta)),
        _ => send(name, T::to_word(meta), |name, meta| {
            if let Some(own) = partition::existing() {
                // SAFETY: the owner is gone, and this is its place.
                unsafe { at_home::<T>(own, name, T::from_word(meta)) }
            }
        }),
    }
}

/// Frees the room of an object with contents that have moved elsewhere.
///
/// # Safety
/// As for `object`; its contents are not used any more.
pub(crate) unsafe fn room<T: ?Sized + Object>(name: Name, meta: T::Meta) {
    let free = |name: Name, meta: usize| {
        if let Some(own) = partition::existing() {
            // SAFETY: the caller's promise; this is its place.
            unsafe { own.free(name, T::layout(T::from_word(meta))) }
        }
    };
    if partition::existing().is_some_and(|own| own.is_at(name.at)) {
        free(name, T::to_word(meta));
    } else {
        send(name, T::to_word(meta), free);
    }
}

/// Runs `f` at the object's place, from any thread. Nothing runs while the program ends; the memory goes with the
/// process.
fn send<F: FnOnce(Name, usize) + gossamer::NoRef + Send + 'static>(name: Name, meta: usize, f: F) {
    if name.at == At::NOWHERE || places::check(name.at).is_err() {
        return; // the owner of nothing, or of memory that is gone
    }
    let home = places::places()[name.at.place() as usize];
    link::post(home.trustee(), move |_| f(name, meta), &[]);
}

/// A destructor that is to run.
struct Ended {
    run: unsafe fn(&'static Partition, Name, usize),
    name: Name,
    meta: usize,
}

thread_local! {
    static WAITING: RefCell<Vec<Ended>> = const { RefCell::new(Vec::new()) };
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// # Safety
/// As for `object`, at its place.
#[inline(always)]
unsafe fn at_home<T: ?Sized + Object>(own: &'static Partition, name: Name, meta: T::Meta) {
    if const { T::DROPS } {
        let ended = Ended { run: destroy::<T>, name, meta: T::to_word(meta) };
        run(own, ended);
    } else {
        // SAFETY: the caller's promise.
        unsafe { own.free(name, T::layout(meta)) };
    }
}

/// Has the replica of an object of a lost machine destroyed, if there is one, where it lies.
#[cold]
fn of_lost<T: ?Sized + Object>(name: Name, meta: usize) {
    let Some(place) = (name.at != At::NOWHERE).then(|| promoted::place(name.at)).flatten() else { return };
    let destroy = move |_: &[u8]| run(partition::own(), Ended { run: destroy_replica::<T>, name, meta });
    link::post(place.trustee(), destroy, &[]);
}

/// # Safety
/// The owner is gone, and this is its place.
unsafe fn destroy_replica<T: ?Sized + Object>(_: &'static Partition, name: Name, meta: usize) {
    let meta = T::from_word(meta);
    if let Some(object) = promoted::take(name, T::layout(meta)) {
        // SAFETY: the caller's promise; the replica is whole, and is taken once.
        unsafe { drop_at::<T>(object, meta) };
    }
}

/// # Safety
/// An object lies there, which nobody uses any more.
unsafe fn drop_at<T: ?Sized + Object>(address: *mut u8, meta: T::Meta) {
    // SAFETY: the caller's promise.
    let drop_object = || unsafe { ptr::drop_in_place(T::at(address, meta)) };
    if trust::may_wait() { link::without_waiting(drop_object) } else { drop_object() }
}

/// Runs a destructor and all that come of it, but for one that is running already.
fn run(own: &'static Partition, first: Ended) {
    if WAITING.try_with(|waiting| waiting.borrow_mut().push(first)).is_err() || IS_RUNNING.replace(true) {
        return;
    }
    let mut panic = None;
    while let Some(ended) = WAITING.with_borrow_mut(Vec::pop) {
        // SAFETY: `at_home`'s caller promised it for this one.
        let destroyed = catch_unwind(AssertUnwindSafe(|| unsafe { (ended.run)(own, ended.name, ended.meta) }));
        if let Err(another) = destroyed {
            match panic {
                None => panic = Some(another),
                Some(_) => discard(another),
            }
        }
    }
    IS_RUNNING.set(false);
    match panic {
        // The panic hook has reported it.
        Some(panic) if std::thread::panicking() => discard(panic),
        Some(panic) => resume_unwind(panic),
        None => {}
    }
}

/// # Safety
/// As for `at_home`.
unsafe fn destroy<T: ?Sized + Object>(own: &'static Partition, name: Name, meta: usize) {
    let meta = T::from_word(meta);
    let Some(address) = bases::mapped(name.at) else { return };
    /// Frees the room, though the destructor may panic.
    struct Room<'a, F: FnMut()>(&'a mut F);
    impl<F: FnMut()> Drop for Room<'_, F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    // SAFETY: the caller's promise.
    let mut free = || unsafe { own.free(name, T::layout(meta)) };
    let _room = Room(&mut free);
    // SAFETY: the owner is gone, so nobody uses the object, which lies there.
    unsafe { drop_at::<T>(address, meta) };
}

/// Drops the payload of a panic. A payload with a destructor that panics in turn is leaked.
fn discard(panic: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(second);
    }
}
