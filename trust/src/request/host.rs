//! The runner of requests and continuations, as the two halves of a pair see it, on this machine or over a carrier.

use std::any::Any;

use crate::property::Header;
use crate::stats::Counters;

/// The worker, for the layers below it.
pub(crate) trait Host {
    fn counters(&self) -> &Counters;

    /// Notes that there is work: the worker's pool is not quiet.
    fn mark_busy(&self);

    /// Runs closures of a trustee in delegated context. Their panics do not leave `run`.
    fn delegated<R>(&self, run: impl FnOnce() -> R) -> R;

    /// Runs callbacks of a client. They may panic.
    fn call_back<R>(&self, run: impl FnOnce() -> R) -> R;

    /// Notes that a closure has panicked on this property.
    fn poison(&self, property: *mut Header, payload: &(dyn Any + Send));

    /// Are there more properties than the caches near the core hold?
    fn has_many_properties(&self) -> bool;

    /// Is this the address of a property that a client on another machine may name?
    fn knows(&self, property: *mut Header) -> bool;
}
