//! Who supervises a program needs this, whoever it is: `gossamer-launch`, a host's part, or machine 0 of a program that
//! a foreign launcher started (`meet`). One set of rules for all of them.
//!
//! - [`supervisor`]: what the events of its machines mean; fate sharing is decided there
//! - [`event`]: what is heard of its machines
//! - [`outcome`]: how a program ended, in words and as an exit status
//! - [`gather`]: the endpoints by which machines find one another
//! - [`signals`]: signals as readable descriptors
//!
//! Nothing here knows of processes' starts or connections.

pub mod event;
pub mod gather;
pub mod outcome;
pub mod signals;
pub mod supervisor;
