//! `NoRef`: types that may travel in a delegated closure (thesis 3.2.5).
//!
//! A value is `NoRef` if neither it nor anything in it is a reference, a raw pointer or a function pointer: its bytes
//! mean the same on every thread and, in a rack, on every machine. With a compiler that lets this crate use
//! `auto_traits` and `negative_impls` it is an auto trait with negative impls; otherwise it falls back to `Send +
//! 'static`, which is enough within one process. Code that compiles with the strict check compiles with the fallback.

#[cfg(noref_auto)]
mod frozen;
#[cfg(noref_auto)]
mod std_types;
#[cfg(noref_auto)]
mod strict;
#[cfg(noref_auto)]
pub use frozen::Frozen;
#[cfg(noref_auto)]
pub use strict::NoRef;

/// Exports what only a build with the strict `NoRef` has; where it is the fallback, refuses to compile with this text.
#[cfg(noref_auto)]
#[doc(hidden)]
#[macro_export]
macro_rules! require_strict_noref {
    ($refusal:literal) => {
        pub use $crate::Frozen;
    };
}

/// Refuses to compile, with this text, where `NoRef` is the fallback.
#[cfg(not(noref_auto))]
#[doc(hidden)]
#[macro_export]
macro_rules! require_strict_noref {
    ($refusal:literal) => {
        compile_error!($refusal);
    };
}

#[cfg(not(noref_auto))]
mod fallback {
    #![allow(unsafe_code)]
    /// Types that a delegated closure may capture and return. This compiler does not offer the language features of the
    /// strict check, so any `Send + 'static` type passes: sound within one process.
    ///
    /// # Safety
    /// Implemented for every `Send + 'static` type; there is nothing to implement by hand.
    pub unsafe trait NoRef: Send + 'static {}
    // SAFETY: within one process `Send + 'static` suffices for sending a value to a thread.
    unsafe impl<T: Send + 'static> NoRef for T {}
}
#[cfg(not(noref_auto))]
pub use fallback::NoRef;
