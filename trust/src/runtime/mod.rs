//! The worker: makes a thread a client and a trustee. Its loop, and when it runs, polls, sleeps and ends.
//!
//! Owns the worker of each thread, which is put together from parts that own their state. Called through `worker::with`
//! by everything that runs on a thread with a worker: tasks, sockets, and the calls of the public interface.

pub(crate) mod seats;
pub(crate) mod watch;
pub(crate) mod worker;
