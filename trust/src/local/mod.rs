//! Requests to trustees of this process: both halves of a pair of threads that share slots.
//!
//! Owns the batch that is being filled, those in flight and their continuations (`client`), and the serving of batches
//! that came (`trustee`). Called by the worker's loop; does not know who waits for an answer, nor other machines
//! (`remote`).

pub(crate) mod client;
pub(crate) mod trustee;
