//! `Frozen`: values that do not change while they are only read. For crates that copy values between machines, where
//! each reader reads a copy.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;

/// A value in which nothing changes behind a `&`: it has no `UnsafeCell`, at any depth, so no `Cell`, atomic or lock.
///
/// Implemented automatically, where the compiler checks [`NoRef`](crate::NoRef) strictly. All copies of such a value
/// read the same.
///
/// ```
/// fn copied<T: trust::Frozen>(_: &T) {}
/// copied(&[1u64, 2, 3]);
/// copied(&trust::local_trustee().entrust(std::cell::Cell::new(0))); // a trust: what it leads to is not in it
/// ```
///
/// ```compile_fail
/// fn copied<T: trust::Frozen>(_: &T) {}
/// copied(&std::sync::atomic::AtomicU64::new(0));
/// ```
///
/// # Safety
/// Implement it by hand only for a type of which no code changes the contents behind a `&`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can change while others read it: it has a `Cell`, an atomic, a lock or another `UnsafeCell` in \
               it",
    label = "copies of it would differ",
    note = "in generic code, require it: `T: trust::Frozen`",
    note = "what several change is entrusted (`gossamer::entrust`), and the `Trust` may stand here"
)]
pub unsafe auto trait Frozen {}

impl<T: ?Sized> !Frozen for UnsafeCell<T> {}
