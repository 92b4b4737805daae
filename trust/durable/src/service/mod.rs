//! A pool in service: the core at its trustee, the disk thread, and the clients that hold back results.
//!
//! One transaction, in order. `handle/` sends the closure. `core.rs` runs it and answers with the group that its result
//! depends on. `client.rs` holds the result. The core closes the group when the disk is free (`core.rs`). The disk
//! thread makes the group durable (`disk_thread.rs`) and reports it to the core. The core notifies each client that
//! waits (`notifications.rs`), and the client delivers its held results.

mod awaited;
pub(crate) mod client;
pub(crate) mod closers;
mod copying;
pub(crate) mod core;
pub(crate) mod disk_thread;
pub(crate) mod future;
mod held;
pub(crate) mod jobs;
pub(crate) mod lock;
#[cfg(all(test, loom))]
mod model;
pub(crate) mod notifications;
mod slice;
pub(crate) mod snapshots;
pub(crate) mod texts;
mod waiting;
