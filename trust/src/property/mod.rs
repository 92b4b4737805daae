//! Properties in memory: the header (`header`), the value behind it (`cell`), the pages in which they lie (`slab`), and
//! the time when they may go (`reclaim`).
//!
//! Owns the memory of all properties and the proof that none is freed while it can be reached. Called by the worker,
//! whose properties these are, and by the thread that entrusts one.

mod cell;
mod header;
pub(crate) mod reclaim;
pub(crate) mod slab;

pub(crate) use cell::{Property, destroy, drop_value};
pub(crate) use header::{Header, PLACE_MAX};
