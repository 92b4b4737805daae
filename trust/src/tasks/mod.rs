//! Work of fibers and their waits: spawned fibers and their ends, launched closures, latches, promises.
//!
//! Owns the protocols between a request and a later answer. Called by programs through the crate's root, and by `api`.

pub(crate) mod carry;
pub(crate) mod close;
pub(crate) mod deliver;
pub(crate) mod held;
pub(crate) mod job;
pub(crate) mod join;
pub(crate) mod latch;
pub(crate) mod launch;
pub(crate) mod line;
pub(crate) mod one_shot;
pub(crate) mod promise;
pub(crate) mod reply;
pub(crate) mod select;
pub(crate) mod sleep;
pub(crate) mod together;
pub(crate) mod wait_all;
