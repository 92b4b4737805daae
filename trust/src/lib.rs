//! Delegation instead of locks, on one machine.
//!
//! Put an object into the care of a thread, its *trustee*, and keep a [`Trust`] to it. To touch the object,
//! send the trustee a closure. Nothing is locked and nothing is shared by reference:
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
//! - [`Trust::apply`] waits for the result while other fibers run; [`Trust::apply_then`] goes on and has a
//!   callback called ([`wait_all`] waits for all of these); [`Trust::apply_with`] takes arguments that hold pointers, serialised.
//! - [`Trust::apply_async`] gives a future, for programs on an async runtime.
//! - [`Trust::launch`] runs a closure that may itself wait, on a [`Latch`].
//! - [`spawn`], [`spawn_on`], [`yield_now`], [`sleep`], [`JoinHandle`] and [`finish`] are for fibers, which stay on their
//!   thread and end before it ([`spawn`] says why, and what the fibers of a thread share).
//! - [`net`] has sockets on which a fiber waits while its worker goes on with others.
//! - [`Threadpool`] has workers with nothing else to do; every other thread that uses the library has a trustee
//!   as well, and serves it while it waits.
//!
//! A thread's own code that computes without waiting does not serve its trustee meanwhile: entrust what others
//! need to a pool, or call [`yield_now`] now and then.
//!
//! How it works inside: `docs/ARCHITECTURE.md` of the repository follows one request from here to the trustee
//! and back. The design is that of `Trust<T>` (N. Ahmad, *Gossamer*, University of Illinois Chicago 2025,
//! chapter 2), cited as "thesis".

#![cfg_attr(noref_auto, feature(auto_traits, negative_impls))]
#![cfg_attr(loom, allow(dead_code, unused_imports))]
#![allow(missing_docs)]

mod buffer;
mod client;
mod config;
mod cores;
mod count;
mod deliver;
mod end;
mod error;
mod far;
#[doc(hidden)]
pub mod ffi;
mod fiber;
mod future;
mod held;
mod here;
mod homes;
mod idle;
mod inside;
mod job;
mod join;
mod latch;
mod latched;
mod launch;
#[doc(hidden)]
pub mod link;
mod local;
pub mod net;
mod noref;
mod occupancy;
mod park;
mod place;
mod pool;
mod prefetch;
mod promise;
mod property;
mod reactor;
mod reference;
mod registry;
mod reply;
mod request;
mod serial;
mod settings;
mod shared;
mod slot;
mod stats;
mod submit;
mod sync;
mod timer;
mod trust;
mod trustee;
mod unwind;
mod wait_all;
mod worker;

pub use error::Error;
pub use future::{ApplyFuture, TryApplyFuture};
pub use held::Held;
pub use idle::set_spin;
pub use join::{JoinHandle, Outcome, finish, spawn, spawn_named, spawn_on, yield_now};
pub use latch::{Latch, LatchGuard};
pub use noref::NoRef;
pub use pool::{BuildError, Builder, Threadpool};
pub use promise::{Pending, Promise, PromiseId, promise};
pub use reference::{TrusteeReference, local_trustee};
pub use registry::TrusteeId;
pub use settings::PoolSettings;
pub use shared::Shared;
pub use stats::{Stats, stats};
pub use timer::sleep;
pub use trust::Trust;
pub use wait_all::wait_all;
