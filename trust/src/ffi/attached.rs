//! Threads of a C program: made clients and trustees, with a loop of their own (`park/outside.rs`) or without, and
//! detached again.

use std::os::fd::RawFd;

use super::types::{Failure, Result, Status};
use super::{may_wait, with_worker};
use crate::park::outside::EventWaker;
use crate::runtime::worker::current::{self, NotEnded};
use crate::runtime::worker::{self, Worker};

/// Turns of the worker's loop in one poll, after which the program's own loop continues.
const TURNS_PER_POLL: usize = 32;

/// Makes the calling thread a client and a trustee. With `is_polled` it gets a descriptor, and must call [`poll`] when
/// that is readable.
///
/// # Errors
/// If the thread is attached already, is ending, or the system has no memory or descriptor left.
pub fn attach(is_polled: bool) -> Result<Option<RawFd>> {
    if worker::existing(|_| ()).is_some() {
        let text = "this thread is attached already (workers of a pool are so from their start)";
        return Err(Failure::new(Status::TRUST_ATTACHED, text));
    }
    let refused = |text: String| Failure::new(Status::TRUST_REFUSED, text);
    let no_eventfd = |error| {
        refused(format!("no eventfd for this thread (`ulimit -n` says how many files the process may have): {error}"))
    };
    let waker = if is_polled { Some(EventWaker::new().map_err(no_eventfd)?) } else { None };
    worker::try_with(|worker| {
        let descriptor = worker.outside.open(&worker.shared.parker, waker?);
        worker.enter_outside();
        Some(descriptor)
    })
    .ok_or_else(|| refused("this thread is ending and its trustee is gone".to_owned()))
}

/// Ends the effect of [`attach`]: finishes the thread's requests, serves those sent to it, drops its properties.
///
/// # Errors
/// If the thread is not attached, or inside a delegated function, a callback or a fiber.
///
/// # Safety
/// No frame of this thread is inside the crate, and no object of the thread keeps one of its fibers: the thread's
/// worker is freed.
pub unsafe fn detach() -> Result<()> {
    with_worker(|worker| {
        may_wait(worker)?;
        outside_loop(worker, "trust_detach")
    })?;
    match current::end(false) {
        Ok(()) => Ok(()),
        Err(NotEnded::Fibers) => {
            let names = worker::existing(|worker| worker.scheduler.names_of_begun()).unwrap_or_default();
            let text = format!(
                "fibers of this thread are in the middle of their code: {names}; wait for them, and detach then"
            );
            Err(Failure::new(Status::TRUST_REFUSED, text))
        }
        Err(NotEnded::None | NotEnded::InUse) => {
            Err(Failure::new(Status::TRUST_INTERNAL, "the thread's trustee is in use"))
        }
    }
}

/// Announces fibers that a call made ready without waiting: no other event would wake the thread for them.
#[inline(always)]
pub(super) fn look(worker: &Worker) {
    if worker.outside.is_polled() && worker.scheduler.has_ready() && worker.is_outside_loop() {
        worker.enter_outside();
    }
}

pub(super) fn outside_loop(worker: &Worker, call: &str) -> Result<()> {
    if worker.is_outside_loop() {
        return Ok(());
    }
    Err(Failure::new(Status::TRUST_MAY_NOT_WAIT, format!("{call} is for the thread's own code, not for fibers")))
}

/// Takes responses, serves requests, runs fibers and sends pending requests; then announces that the thread may sleep.
/// Returns whether there was anything to do.
///
/// # Errors
/// If the thread is not attached, or inside a delegated function, a callback or a fiber.
pub fn poll() -> Result<bool> {
    with_worker(|worker| {
        may_wait(worker)?;
        outside_loop(worker, "trust_poll")?;
        worker.leave_outside();
        worker.reactor.look_next();
        let mut turns = 0;
        while turns < TURNS_PER_POLL && worker.turn() {
            turns += 1;
        }
        worker.leave_loop();
        worker.enter_outside();
        Ok(turns > 0)
    })
}
