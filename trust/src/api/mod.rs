//! Public API: trusts and their calls, trustees, pools, futures.
//!
//! Owns the public types and their documentation, and no state of a worker. Used by programs, by the crate `gossamer`
//! (`link`, `place`) and by the C API (`ffi`); nothing else in this crate names it.

mod answer;
mod apply;
pub(crate) mod call;
mod close;
mod delegated;
pub(crate) mod dump;
pub(crate) mod each;
pub(crate) mod each_future;
pub(crate) mod future;
pub(crate) mod latched;
pub mod link;
pub(crate) mod moving;
pub(crate) mod place;
mod plain;
pub(crate) mod pool;
pub(crate) mod reference;
pub(crate) mod settings;
pub(crate) mod shared;
pub(crate) mod signal;
pub(crate) mod slice;
pub(crate) mod stats;
pub(crate) mod together;
pub(crate) mod together_future;
mod travel;
pub(crate) mod trust;
pub(crate) mod tuning;
pub(crate) mod watching;
