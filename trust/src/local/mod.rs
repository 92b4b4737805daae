//! Requests to trustees of this process: both halves of a pair of threads that share slots.
//!
//! Owns the open batch, the batches in flight and their continuations (`client`), and the serving of batches
//! (`trustee`). Called by the worker's loop; knows neither the waiters for an answer nor other machines (`remote`).

pub(crate) mod client;
pub(crate) mod trustee;
