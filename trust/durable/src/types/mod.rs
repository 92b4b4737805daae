//! Types of the values in a pool.
//!
//! Invariant: code that hands out a `&mut` to a persistent byte touches it before [touch-before-mut].

#[macro_use]
mod cell;
pub(crate) mod flags;
pub(crate) mod maybe;
pub(crate) mod pbox;
pub(crate) mod pbtreemap;
pub(crate) mod pcell;
pub(crate) mod pmap;
pub(crate) mod prc;
pub(crate) mod prefcell;
pub(crate) mod pstring;
pub(crate) mod pvec;
pub(crate) mod vweak;

/// Panics because the pool is full, for `new` and its like; `try_new` gives the value back instead.
#[cold]
pub(crate) fn full(tx: &crate::Tx<'_>, bytes: usize) -> ! {
    panic!(
        "the pool is full: no room for {bytes} bytes more of its {}; open it with a greater `limit`, or free something \
         in an earlier transaction",
        tx.memory().limit()
    )
}
