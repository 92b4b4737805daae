//! Starts, watches and ends the machines of rack programs: the library under `gossamer-launch` and `gossamer-daemon`.
//!
//! The way of one program through the files:
//!
//! 1. [`cli`]: what the user asked for
//! 2. [`launch`]: all machines on this host: starts them and goes on until the last has gone. Or [`rack`]: machines on
//!    the hosts of a rack, by their daemons ([`daemon`]), which have a process for each program ([`part`]); what they
//!    say to each other is in [`wire`], the hosts are in [`config`]
//! 3. [`machines`]: the machines of one program on one host: processes and their control channels
//! 4. [`gather`]: the endpoints by which machines find one another
//! 5. `input`, `output`: the standard streams
//! 6. [`supervisor`]: who finished, who died, who is told to end, who is killed
//! 7. [`outcome`]: what to say about it and which status to exit with
//! 8. [`looks`]: questions of who watches it
//!
//! The last three of them, and [`gather`], are those of `gossamer::supervise`: machine 0 of a program that a foreign
//! launcher started judges by the same rules. What passes between launcher and machine is in `gossamer::bootstrap` and
//! `gossamer::control`. Linux only.

// `Instant + Duration` panics where limits are large: sums saturate (`deadline.rs`), in all code that is no test.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

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
mod orphans;
mod output;
pub mod part;
pub mod rack;
pub mod region;
mod tie;
pub mod wire;

use gossamer::supervise::signals;
pub use gossamer::supervise::{gather, outcome, supervisor};
