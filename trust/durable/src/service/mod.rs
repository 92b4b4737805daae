//! A pool in service: the core at its trustee, the disk thread, and the clients that hold results back.
//!
//! One transaction, in order: `handle.rs` sends the closure, `core.rs` runs it and tells the group that its result
//! depends on, `client.rs` holds the result. The core closes the group when the disk is free (`core.rs`), the disk
//! thread makes it durable (`keeper.rs`) and says so to the core, the core to each client that waits, which lets go of
//! what it holds.

mod awaited;
pub(crate) mod client;
pub(crate) mod closers;
mod copying;
pub(crate) mod core;
pub(crate) mod future;
mod held;
pub(crate) mod jobs;
pub(crate) mod keeper;
pub(crate) mod lock;
#[cfg(all(test, loom))]
mod model;
mod slice;
pub(crate) mod snapshots;
pub(crate) mod texts;
pub(crate) mod told;
mod waiting;
