//! Tests that span crates and processes. The tests themselves are in `tests/`; the programs they start, in `src/bin/`;
//! the behaviours that hold on every rack, in [`suite`].

#![allow(missing_docs, reason = "the name of a behaviour says what it is about")]

pub mod stub;
pub mod suite;
