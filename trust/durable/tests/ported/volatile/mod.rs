//! On the heap.

pub mod list;
pub mod map;
pub mod tree;
