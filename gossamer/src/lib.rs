//! Delegation across a rack: one program, many machines, and the same calls as on one.
//!
//! A program entrusts its objects to workers of any machine, keeps trusts to them, and sends them closures. A trust
//! works the same everywhere: on the trustee's own worker, on another one, or on another machine, to which the request
//! travels in a batch, by one one-sided write.
//!
//! ```
//! fn gsm_main() {
//!     // One counter on every worker of the rack.
//!     let counters: Vec<_> = gossamer::rack().places().map(|place| gossamer::entrust_on(place, 0u64)).collect();
//!     for counter in &counters {
//!         counter.apply(|c| *c += 1);                // waits, and lets other fibers run meanwhile
//!         counter.apply_then(|c| { *c += 1; *c }, |c| assert_eq!(c, 2)); // goes on at once
//!     }
//!     assert!(counters.iter().all(|counter| counter.apply(|c| *c) == 2));
//! }
//!
//! gossamer::main(gsm_main, 2);
//! ```
//!
//! `PROGRAM` alone runs it as one process, `gossamer-launch run --local 4 PROGRAM` as four processes of this host,
//! `gossamer-launch run --rack rack.yaml PROGRAM` or `GOSSAMER_RACK=rack.yaml PROGRAM` on the hosts of a rack; `srun
//! --mpi=pmi2`, `mpirun`, or an Indexed Job of Kubernetes start it where they run, with no daemon and no file.
//!
//! - [`main`] starts the program; [`rack`] returns the rack on which it runs, [`here`] the caller's place; a [`Place`]
//!   is a worker.
//! - [`entrust`], [`entrust_on`], [`entrust_with`] make a [`Trust`]; all its calls are those of the crate `trust`.
//! - [`spawn`], [`spawn_on`], [`spawn_with`] start fibers; [`JoinHandle`] waits for them, [`join_all`] for many.
//!
//! The captures of a closure travel as raw memory, so they may hold no references or pointers: the compiler refuses all
//! that is not [`NoRef`]. Such values travel as serialised arguments, with [`Trust::apply_with`]. All machines must run
//! the very same file; they check that at the start.
//!
//! Every machine is a process, and all share one fate: if one dies, the launcher ends the others and reports the cause.
//! [`Builder::survives`] lets a program outlive some.
//!
//! The design is that of Gossamer (N. Ahmad, *Gossamer*, University of Illinois Chicago 2025, chapter 3), cited as
//! "thesis".

// `Instant + Duration` panics for large limits: sums saturate (`deadline.rs`) in all code outside tests.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

trust::require_strict_noref!(
    "gossamer needs the strict `NoRef` of `trust`, or pointers would travel between machines: put the line \
     `RUSTC_BOOTSTRAP = \"trust,gossamer\"` under `[env]` in `.cargo/config.toml` of the folder you call cargo in, or \
     of one above it"
);

#[doc(hidden)]
mod board;
pub mod bootstrap;
mod builder;
#[doc(hidden)]
pub mod codec;
mod complain;
mod connect;
#[doc(hidden)]
pub mod control;
mod controller;
mod entrust;
mod error;
mod exchange;
mod fabric;
mod fate;
pub mod file;
#[doc(hidden)]
pub mod link;
mod losses;
mod membership;
mod names;
mod over_verbs;
mod page_server;
mod rack;
mod remote;
mod rendezvous;
mod service;
mod spawn;
mod start;
mod stats;
mod stuck;
#[doc(hidden)]
pub mod supervise;
pub mod sync;
mod termination;
#[doc(hidden)]
pub mod view;
mod workers;

pub use builder::{Builder, builder};
pub use entrust::{entrust, entrust_on, entrust_with};
pub use exchange::{Exchange, Inbox, InboxGone, Outbox, Received, exchange};
pub use losses::{Loss, on_loss};
pub use names::{NameError, Published, find, publish};
pub use rack::{Machine, Place, Rack, Transport, here, rack};
pub use rendezvous::is_one_of_several;
pub use spawn::{spawn, spawn_on, spawn_with};
pub use start::main;
pub use stats::{Stats, rack_stats, stats};
pub use termination::Termination;
pub use trust::{
    Call, EachFuture, Error, Held, InProcess, JoinHandle, Latch, LatchGuard, NoRef, Pending, Promise, PromiseId,
    ReadyCall, Shared, TimedCall, Trust, TrusteeReference, apply_each, apply_each_async, apply_each_with, join_all,
    local_trustee, promise, sleep, try_apply_each, try_apply_each_async, try_apply_each_with, wait_all, yield_now,
};
