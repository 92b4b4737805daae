//! gossamer

pub mod bootstrap;
pub mod control;
