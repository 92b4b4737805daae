//! The strict check: an auto trait that pointers of every kind opt out of. In a file of its own, so that a compiler
//! without these features never reads it.

#![allow(unsafe_code)]
#![allow(coherence_leak_check, reason = "higher-ranked function pointers are meant to be listed apart")]
/// A value with no reference or pointer in it: what a delegated closure may capture and return.
///
/// Implemented automatically; a type that holds `&T`, `&mut T`, `*const T`, `*mut T`, a function pointer
/// or anything built on them (`Box`, `Vec`, `String`, `Rc`, `Arc`, …) is not `NoRef`. Pass such values as
/// serialised arguments with [`Trust::apply_with`](crate::Trust::apply_with).
///
/// ```
/// let counter = trust::local_trustee().entrust(0u64);
/// let step = 3;                                   // an integer may be captured
/// assert_eq!(counter.apply(move |c| { *c += step; *c }), 3);
/// ```
///
/// Source: thesis 3.2.5.
///
/// # Safety
/// Implement it by hand only for a type whose bytes stay meaningful on another thread and machine.
#[diagnostic::on_unimplemented(
    message = "`{Self}` holds a reference or a pointer, so it cannot travel to a trustee",
    label = "this is captured or returned by a delegated closure",
    note = "pass it as a serialised argument: `trust.apply_with(|property, value| .., value)`",
    note = "a closure may capture integers, arrays, plain structs and other `Trust`s; add `move` if it borrows them"
)]
pub unsafe auto trait NoRef {}

impl<T: ?Sized> !NoRef for &T {}
impl<T: ?Sized> !NoRef for &mut T {}
impl<T: ?Sized> !NoRef for *const T {}
impl<T: ?Sized> !NoRef for *mut T {}
// A descriptor number means nothing on another machine, and owning one there would close a stranger's file.
impl !NoRef for std::os::fd::OwnedFd {}
impl !NoRef for std::os::fd::BorrowedFd<'_> {}

macro_rules! function_pointers {
    ($($arg:ident)*) => {
        impl<R, $($arg),*> !NoRef for fn($($arg),*) -> R {}
        impl<R, $($arg),*> !NoRef for unsafe fn($($arg),*) -> R {}
        impl<R, $($arg),*> !NoRef for extern "C" fn($($arg),*) -> R {}
        impl<R, $($arg),*> !NoRef for unsafe extern "C" fn($($arg),*) -> R {}
    };
}
function_pointers!();
function_pointers!(A);
function_pointers!(A B);
function_pointers!(A B C);
function_pointers!(A B C D);
function_pointers!(A B C D E);
function_pointers!(A B C D E F);

// Higher-ranked pointers are types of their own that the impls above do not cover. The common shapes are
// named here; the rest pass, which is harmless within one process (a function lies at one address there).
macro_rules! higher_ranked {
    ($($pointer:ty),* $(,)?) => { $( impl<A: ?Sized, B: ?Sized, R> !NoRef for $pointer {} )* };
}
macro_rules! higher_ranked_1 {
    ($($pointer:ty),* $(,)?) => { $( impl<A: ?Sized, R> !NoRef for $pointer {} )* };
}
higher_ranked_1!(
    for<'a> fn(&'a A) -> R,
    for<'a> fn(&'a mut A) -> R,
    for<'a> fn(&'a A) -> &'a R,
    for<'a> fn(&'a mut A) -> &'a R,
    for<'a> fn(&'a mut A) -> &'a mut R,
);
higher_ranked!(
    for<'a, 'b> fn(&'a A, &'b B) -> R,
    for<'a, 'b> fn(&'a mut A, &'b B) -> R,
    for<'a, 'b> fn(&'a A, &'b mut B) -> R,
    for<'a, 'b> fn(&'a mut A, &'b mut B) -> R,
);
