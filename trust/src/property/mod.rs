//! Properties in memory: its header (`header`), its value behind that (`cell`), the pages in which they lie (`slab`),
//! and when they may go (`reclaim`).
//!
//! Owns the memory of all properties and the proof that none is freed while it can be reached. Called by the worker,
//! whose properties these are, and by whoever entrusts one.

mod cell;
mod header;
pub(crate) mod reclaim;
pub(crate) mod slab;

pub(crate) use cell::{Property, destroy};
pub(crate) use header::{Header, PLACE_MAX};
