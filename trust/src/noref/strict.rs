//! The strict check: an auto trait that pointers of every kind opt out of. In a file of its own, so that a compiler
//! without these features never reads it.

#![allow(unsafe_code)]
/// A value with no reference or pointer in it: a delegated closure may capture and return such values.
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
/// A value that means something in this process only but holds no pointer passes: the number of a descriptor, the index
/// of an entry in a global table, a token of no bytes that proves that something was initialised here. Between threads
/// that is as good as `Send`; a type that must not reach another machine opts out by a field `PhantomData<*const ()>`.
///
/// # Safety
/// Implement it by hand only for a type whose bytes stay meaningful on another thread and machine.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is or may hold a pointer, so no closure can carry it to a trustee",
    label = "captured or returned by a delegated closure",
    note = "in generic code, require it: `T: trust::NoRef + Send + 'static`; or, within one process, take any `Send` \
            value along: `trust.call().in_process().apply(..).wait()`",
    note = "values travel along with `apply_with`: `trust.apply_with(|property, value| .., value)`; in the place of a \
            function pointer capture an `enum` of the functions, or a number, and match it in the closure"
)]
pub unsafe auto trait NoRef {}

// References, and types of std that hold pointers: `std_types`.
impl<T: ?Sized> !NoRef for *const T {}
impl<T: ?Sized> !NoRef for *mut T {}
// A descriptor number means nothing on another machine. (Owners of one, which would close a wrong file there:
// `std_types`.)
impl !NoRef for std::os::fd::BorrowedFd<'_> {}

// Function pointers. A type for whose kind an impl is written is not `NoRef` by itself. Pointers with equally many
// parameters are of one kind, for all parameter types, lifetimes and calling conventions: one impl for each number of
// parameters keeps all of them out. (The reference does not say so of auto traits; the assertion below checks it for
// the compiler at hand.)
macro_rules! functions {
    // One without, one with this many parameters more, and so on for the rest.
    ([$($more:ident)* ; $($rest:tt)*] $($parameter:ident)*) => {
        functions!([$($rest)*] $($parameter)*);
        functions!([$($rest)*] $($parameter)* $($more)*);
    };
    ([] $($parameter:ident)*) => { impl !NoRef for fn($($parameter),*) {} };
}
/// Handles at most as many parameters as `+` in the first list can count in binary.
macro_rules! functions_up_to {
    ([+ $($bits:tt)*] [$($done:tt)*] $($parameter:ident)*) => {
        functions_up_to!([$($bits)*] [$($parameter)* ; $($done)*] $($parameter)* $($parameter)*);
    };
    ([] [$($done:tt)*] $($parameter:ident)*) => { functions!([$($done)*]); };
}
// To 255. C++ asks compilers for 256, C for 127.
functions_up_to!([+ + + + + + + +] [] u8);

/// Is it `NoRef`? `IS` of the type itself hides that of the trait, where the bound holds.
struct Probe<T>(std::marker::PhantomData<T>);
trait Otherwise {
    const IS: bool = false;
}
impl<T> Otherwise for Probe<T> {}
impl<T: NoRef> Probe<T> {
    const IS: bool = true;
}

const _: () = assert!(
    <Probe<(u64, [f32; 3], Option<char>)>>::IS
        && !<Probe<&'static u8>>::IS
        && !<Probe<&'static mut [u8]>>::IS
        && !<Probe<for<'a, 'b, 'c> fn(&'a u8, &'b mut u16, &'c u32) -> &'b u16>>::IS
        && !<Probe<Option<for<'a> unsafe extern "C" fn(&'a u8, ...) -> [&'a u8; 2]>>>::IS
        && !<Probe<for<'a> extern "system" fn(Box<dyn Fn(&'a u8)>, fn(&'a u8), [u8; 9], u8, u8, u8, u8, &u8)>>::IS,
    "this compiler lets references or function pointers pass `NoRef`: they mean nothing on another machine",
);
