//! Starts, watches and ends the machines of rack programs: the library under `gossamer-launch`.
//!
//! The way of one program through the files:
//!
//! 1. [`cli`]: what the user asked for
//! 2. [`launch`]: one process, one memory and one control channel for each machine
//! 3. `input`, `output`: the standard streams
//! 4. [`watch`]: until the last machine has gone: who finished, who died, who is told, who is killed
//! 5. [`outcome`]: what to say about it and which status to exit with
//!
//! What passes between launcher and machine is in `gossamer::bootstrap` and `gossamer::control`. Linux only.

pub mod cli;
pub mod config;
mod input;
pub mod launch;
pub mod outcome;
mod output;
mod signals;
pub mod watch;
