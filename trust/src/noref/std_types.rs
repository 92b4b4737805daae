//! References, and types of std that hold pointers, each refused by its own name and with the remedy that fits it.
//!
//! The auto trait alone would refuse them, too, but by the name of some pointer deep inside. So each type has an impl
//! of its own, on a condition that nothing meets: the compiler reports the condition, and each remedy is a condition
//! with its message. (The condition is on [`Closure`], not on the type itself, for which the compiler would report
//! `NoRef` where a closure returns it.)
//!
//! The impls are hidden from the documentation, where they would read as if these types were `NoRef`.
//!
//! Invariant: no remedy is implemented for anything. They cannot be named outside of this crate.

#![allow(unsafe_code)]

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::{self, Rc};
use std::sync::mpsc::{Receiver, Sender, SyncSender};
use std::sync::{self, Arc};

use super::strict::NoRef;

/// The closure that would carry them.
pub struct Closure;

/// Values that live elsewhere.
#[diagnostic::on_unimplemented(
    message = "`{T}` is a reference, so no closure can carry it to a trustee: add `move`, or send a value along with \
               `apply_with`",
    label = "captured or returned by a delegated closure",
    note = "`move |property| ..` captures numbers, arrays and plain structs by value; what holds pointers goes along \
            as an argument, a `&str` as a `String`: `trust.apply_with(|property, value| .., value)`",
    note = "a result is a value, not a reference into the property: copy or clone it, with \
            `trust.apply_with(|property, ()| .., ())` if it holds pointers, of a durable trust with \
            `call().with(()).attempt(..)` if `Err` has to undo; nor is it a future: nothing is awaited at the trustee"
)]
pub trait Borrowed<T: ?Sized> {}

/// Values that serde can serialise: they travel beside the closure.
#[diagnostic::on_unimplemented(
    message = "`{T}` holds a pointer, so no closure can carry it to a trustee: send it along with `apply_with`, or as \
               the notes say",
    label = "captured or returned by a delegated closure",
    note = "as an argument: `trust.apply_with(|property, value| .., value)`; as a result: `trust.apply_with(|property, \
            ()| .., ())`",
    note = "for other calls: `call().with(value).launch(..)`; for a durable trust `call().with(value).attempt(..)`, \
            as `apply_with` does not undo; for tasks of an async runtime `call().with(value).apply(..).await`, as \
            `apply_with` blocks their thread; for places of an array `on_owners_with(f, value)`",
    note = "within one process: `trust.call().in_process().apply(move |property| ..)` with `.wait()` or `.await`; to a \
            fiber at another place: `gossamer::spawn_with(place, |value| .., value)`"
)]
pub trait Serialised<T: ?Sized> {}

/// Values shared by reference counting.
#[diagnostic::on_unimplemented(
    message = "`{T}` is a pointer, so no closure can carry it to a trustee: make it a `trust::Shared`, or entrust what \
               is in it",
    label = "captured or returned by a delegated closure",
    note = "what never changes: `trust::Shared::new(value)` or `Shared::from(arc)`, which may be captured; what \
            changes: `pool.entrust(value)`, and capture the `Trust`"
)]
pub trait Counted<T: ?Sized> {}

/// Values in a box, of a known type or not.
#[diagnostic::on_unimplemented(
    message = "`{T}` is a pointer, so no closure can carry it to a trustee: capture what is in it, or an enum in the \
               place of `dyn`",
    label = "captured or returned by a delegated closure",
    note = "an `enum` has a variant for each type that a `Box<dyn ..>` might hold, and is matched at the trustee; \
            large values go along with `apply_with`"
)]
pub trait Boxed<T: ?Sized> {}

/// An error of the operating system, or any other.
#[diagnostic::on_unimplemented(
    message = "`{T}` may hold a pointer, so no closure can bring it from a trustee: return its `kind()`, or an enum of \
               errors",
    label = "captured or returned by a delegated closure",
    note = "`.map_err(|error| error.kind())`; or an `enum` of your own, which may be `From<std::io::Error>`; \
            its text goes along with `apply_with`, as a `String`"
)]
pub trait Failure<T: ?Sized> {}

/// Owners of a descriptor, a number that means nothing on another machine.
#[diagnostic::on_unimplemented(
    message = "`{T}` is open in this process alone, so no closure can carry it to a trustee: entrust it",
    label = "captured or returned by a delegated closure",
    note = "`trustee.entrust(file)`, and capture the `Trust`"
)]
pub trait Descriptor<T: ?Sized> {}

/// The end of a channel.
#[diagnostic::on_unimplemented(
    message = "`{T}` is a pointer, so no closure can carry it to a trustee: use it in the callback of `apply_then`",
    label = "captured or returned by a delegated closure",
    note = "`trust.apply_then(|property| .., move |result| sender.send(result))`: a callback runs on the thread that \
            sent the request, and may own anything"
)]
pub trait Channel<T: ?Sized> {}

/// Impl that refuses a type: with `for<'a>` the compiler accepts a condition without parameters.
macro_rules! refused {
    ($($cure:ident: $([$($parameter:ident $(: ?$sized:ident)?),*] $type:ty),+;)+) => {$($(
        // SAFETY: on a condition that nothing meets.
        #[doc(hidden)]
        unsafe impl<$($parameter $(: ?$sized)?),*> NoRef for $type where for<'a> Closure: $cure<$type> {}
    )+)+};
}
refused! {
    Serialised: [] String, [T] Vec<T>, [T] VecDeque<T>, [T] BinaryHeap<T>, [T] LinkedList<T>, [K, V] BTreeMap<K, V>,
        [T] BTreeSet<T>, [K, V, S] HashMap<K, V, S>, [T, S] HashSet<T, S>, [] PathBuf, [] OsString, [] CString;
    Counted: [T: ?Sized] Arc<T>, [T: ?Sized] sync::Weak<T>, [T: ?Sized] Rc<T>, [T: ?Sized] rc::Weak<T>;
    Boxed: [T: ?Sized] Box<T>;
    Failure: [] std::io::Error;
    Descriptor: [] OwnedFd, [] File, [] TcpStream, [] TcpListener, [] UdpSocket;
    Channel: [T] Sender<T>, [T] SyncSender<T>, [T] Receiver<T>;
}
// SAFETY: on a condition that nothing meets.
#[doc(hidden)]
unsafe impl<'a, T: ?Sized> NoRef for &'a T where Closure: Borrowed<&'a T> {}
// SAFETY: on a condition that nothing meets.
#[doc(hidden)]
unsafe impl<'a, T: ?Sized> NoRef for &'a mut T where Closure: Borrowed<&'a mut T> {}
// SAFETY: on a condition that nothing meets.
#[doc(hidden)]
unsafe impl<'a, T: ToOwned + ?Sized> NoRef for Cow<'a, T> where Closure: Serialised<Cow<'a, T>> {}
