//! Delegation instead of locks, on one machine.
//!
//! Entrust an object to a thread, its *trustee*, and keep a [`Trust`] to it. To touch the object, send the trustee a
//! closure. Nothing is locked and nothing is shared by reference:
//!
//! ```
//! use trust::{Threadpool, local_trustee};
//!
//! let counter = local_trustee().entrust(17);
//! counter.apply(|c| *c += 1);                          // this thread's own: runs at once
//!
//! let pool = Threadpool::new(2);
//! let other = counter.clone();
//! let fiber = pool.spawn(move || other.apply(|c| *c += 1));   // sent to us, from a worker
//! fiber.join().unwrap();                               // meanwhile this thread serves
//! assert_eq!(counter.apply(|c| *c), 19);
//! ```
//!
//! - [`Trust::apply`] waits for the result while other fibers run; [`Trust::apply_then`] continues and calls a callback
//!   later ([`wait_all`] waits for all of these); [`Trust::apply_with`] takes arguments that hold pointers, serialised.
//! - [`Trust::apply_async`] returns a future, for programs on an async runtime.
//! - [`Trust::launch`] runs a closure that may itself wait, on a [`Latch`].
//! - [`spawn`], [`spawn_on`], [`yield_now`], [`sleep`], [`JoinHandle`] and [`finish`] are for fibers, which stay on
//!   their thread and end before it ([`spawn`] explains why, and lists the state that fibers of a thread share).
//! - [`net`] has sockets on which a fiber waits while its worker runs others (feature `net`, on by default).
//! - [`Threadpool`] has workers with nothing else to do; every other thread that uses the library has a trustee
//!   as well, and serves it while it waits.
//!
//! A thread's own code that computes without waiting does not serve its trustee meanwhile: entrust shared objects to a
//! pool, or call [`yield_now`] now and then.
//!
//! `docs/ARCHITECTURE.md` of the repository explains the implementation: it follows one request from here to the
//! trustee and back. The design is that of `Trust<T>` (N. Ahmad, *Gossamer*, University of Illinois Chicago 2025,
//! chapter 2), cited as "thesis".

#![cfg_attr(noref_auto, feature(auto_traits, negative_impls))]
#![cfg_attr(loom, allow(dead_code, unused_imports))]
#![allow(missing_docs)]
// `Instant + Duration` panics where limits are large: sums saturate (`deadline.rs`), in all code but tests.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod api;
mod buffer;
mod config;
mod cores;
mod deadline;
mod error;
mod fault;
#[cfg(feature = "c-api")]
#[doc(hidden)]
pub mod ffi;
mod fiber;
mod ids;
mod local;
#[doc(hidden)]
pub mod memory;
#[cfg(feature = "net")]
pub mod net;
mod noref;
mod park;
mod prefetch;
mod property;
#[cfg(feature = "net")]
mod reactor;
#[cfg(not(feature = "net"))]
#[path = "reactor/none.rs"]
mod reactor;
mod registry;
mod remote;
mod request;
mod running;
mod runtime;
mod serial;
mod slot;
mod stats;
mod sync;
mod tasks;
mod trace;
mod tune;
mod unwind;

pub use api::call::{Call, InProcess, ReadyCall, TimedCall};
pub use api::dump::{Dump, dump};
pub use api::each::{apply_each, apply_each_with, try_apply_each, try_apply_each_with};
pub use api::each_future::{EachFuture, apply_each_async, try_apply_each_async};
pub use api::future::{ApplyFuture, CallFuture};
#[doc(hidden)]
pub use api::link;
pub use api::moving::Place;
pub use api::pool::{BuildError, Builder, StillRunning, Threadpool};
pub use api::reference::{TrusteeReference, local_trustee, spawn_on};
pub use api::settings::PoolSettings;
pub use api::shared::Shared;
pub use api::signal::dump_on_signal;
pub use api::slice::{Element, TrustSlice};
pub use api::stats::stats;
pub use api::together::{Several, together, together_then, try_together, try_together_then};
pub use api::together_future::{TogetherFuture, TryTogetherFuture, together_async, try_together_async};
pub use api::trust::Trust;
pub use api::tuning::Tuning;
pub use error::{Aborted, Error};
pub use ids::TrusteeId;
#[cfg(noref_auto)]
pub use noref::Frozen;
pub use noref::NoRef;
pub use runtime::seats::Bound;
pub use runtime::worker::idle::set_spin;
pub use stats::Stats;
pub use tasks::held::Held;
pub use tasks::join::{JoinHandle, Outcome, finish, join_all, spawn, spawn_named, yield_now};
pub use tasks::latch::{Latch, LatchGuard};
pub use tasks::promise::{Pending, Promise, PromiseId, promise};
pub use tasks::select::{Source, select};
pub use tasks::sleep::sleep;
pub use tasks::wait_all::{may_wait, wait_all};
