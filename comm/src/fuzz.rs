//! Random mutations of real traffic, for the tests of all code that takes bytes from a network.
//! `GOSSAMER_FUZZ` sets the number of inputs, `GOSSAMER_SEED` the seed; a failing test prints both.
//!
//! The same tests are targets for a fuzzer (`tests/fuzz`, behind the feature `fuzz`). There the fuzzer's
//! input is the bytes of a peer, or replaces the random numbers ([`inputs::Script`]), so that its coverage guides the
//! mutations.
//!
//! Here: the list of the targets. Not here: the inputs (`inputs`), and the tests of the code under test, which stand
//! beside it.

pub(crate) mod inputs;
#[cfg(test)]
mod runner;

#[cfg(test)]
pub(crate) use runner::{run, run_slow};

pub use crate::secure::fuzz::{frames as secure_frames, handshake};
pub use crate::tcp::fuzz::frames as tcp_frames;
pub use inputs::Target;
