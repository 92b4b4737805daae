//! Supervision of a program, for each kind of launcher: `gossamer-launch`, or machine 0 of a program that a foreign
//! launcher started (`rendezvous`). One set of rules for both.
//!
//! - [`supervisor`]: the meaning of its machines' events; fate sharing is decided there
//! - `agreement`: which machines are lost, where a program outlives them
//! - [`event`]: the events of its machines
//! - [`outcome`]: the end of a program, in words and as an exit status
//! - [`gather`]: the endpoints by which machines find one another
//! - [`signals`]: signals as readable descriptors
//!
//! Starts of processes, and connections, are elsewhere.

mod agreement;
pub mod event;
pub mod gather;
pub mod outcome;
pub mod signals;
pub mod supervisor;
