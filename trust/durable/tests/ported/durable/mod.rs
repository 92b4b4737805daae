//! In a pool.

pub mod list;
pub mod map;
pub mod tree;
