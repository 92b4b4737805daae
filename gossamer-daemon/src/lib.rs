//! Starts, watches and ends the machines of rack programs: the library under `gossamer-launch` and `gossamer-daemon`.
//!
//! Path of a program through the files:
//!
//! 1. [`cli`]: the command line; [`options`]: the options of a run
//! 2. [`launch`]: all machines on this host: starts them and continues until the last has gone. Or [`rack`]: machines
//!    on the hosts of a rack, by their daemons ([`daemon`]), which have a process for each program ([`part`]); their
//!    messages are in [`wire`], the hosts are in [`config`]
//! 3. [`machines`]: the machines of one program on one host: processes and their control channels
//! 4. [`gather`]: the endpoints for the machines to find one another
//! 5. `input`, `output`: the standard streams
//! 6. [`supervisor`]: finished and dead machines, and those to be told to end or to be killed
//! 7. [`outcome`]: the message about it and the exit status
//! 8. [`looks`]: questions of watchers
//!
//! The last three of them, and [`gather`], are those of `gossamer::supervise`: machine 0 of a program that a foreign
//! launcher started decides by the same rules. The messages between launcher and machine are in `gossamer::bootstrap`
//! and `gossamer::control`. Linux only.

// `Instant + Duration` panics where limits are large: sums saturate (`deadline.rs`), in all code but tests.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod child_setup;
pub mod cli;
pub mod config;
mod core_dump;
pub mod daemon;
mod descriptors;
mod dispositions;
pub mod environment;
pub mod error;
pub mod input;
pub mod launch;
pub mod looks;
pub mod machines;
pub mod options;
mod orphans;
mod output;
mod panics;
pub mod part;
pub mod rack;
pub mod region;
pub mod wire;

use gossamer::supervise::signals;
pub use gossamer::supervise::{gather, outcome, supervisor};
