//! Memory and slots of dropped arrays that will soon be free, so that a new array is not refused for lack of them.
//!
//! The last handle of an array may be dropped anywhere, and its memory is freed some turns of the workers later.
//! Nothing signals that, so a refusal is deferred for a while if there are arrays that may be ending.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gossamer::{JoinHandle, NoRef, Place};

use crate::Error;

/// A refusal is final after this time and this many rounds of all places.
const REFUSAL_DELAY: Duration = Duration::from_millis(500);
const ROUNDS: usize = 100;
const PAUSE: Duration = Duration::from_millis(1);

/// Bytes of the parts in this process. Relaxed: a hint; no other memory is reached through it.
static BYTES: AtomicU64 = AtomicU64::new(0);

/// The accounted memory of one part.
pub(crate) struct Held(u64);

impl Held {
    pub(crate) fn new(bytes: u64) -> Held {
        BYTES.fetch_add(bytes, Ordering::Relaxed);
        Held(bytes)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Returns the bytes that `left` reports on the machine. If they are too few, but would be enough with those of its
/// arrays, waits for arrays that end.
///
/// # Errors
/// [`Error::Lost`].
pub(crate) fn left_for<F>(bytes: u64, machine: u16, left: F) -> Result<u64, Error>
where
    F: Fn() -> u64 + NoRef + Send + Copy + 'static,
{
    let ask = || {
        let place = Place::of(machine, 0);
        joined(place, gossamer::spawn_on(place, move || (left(), BYTES.load(Ordering::Relaxed))))
    };
    let mut last = Ok(0);
    retry(|| {
        let asked = ask();
        let is_final = asked.as_ref().map_or(true, |(left, held)| *left >= bytes || left.saturating_add(*held) < bytes);
        last = asked.map(|(left, _)| left);
        is_final.then_some(())
    });
    last
}

/// Retries `attempt` until it succeeds, while arrays may be ending.
pub(crate) fn retry<R>(mut attempt: impl FnMut() -> Option<R>) -> Option<R> {
    let start = Instant::now();
    let mut rounds = 0;
    loop {
        if let Some(outcome) = attempt() {
            return Some(outcome);
        }
        if rounds >= ROUNDS && start.elapsed() >= REFUSAL_DELAY {
            return None;
        }
        rounds += 1;
        // In its turn each worker reclaims unreferenced properties and drops its parts.
        let turns: Vec<_> = gossamer::rack().living().map(|place| gossamer::spawn_on(place, || ())).collect();
        turns.into_iter().for_each(|turn| drop(turn.join())); // a machine may be lost meanwhile
        gossamer::sleep(PAUSE);
    }
}

/// Returns the result of a fiber at this place; its panic continues here.
///
/// # Errors
/// [`Error::Lost`] if the machine is lost.
pub(crate) fn joined<R>(place: Place, fiber: JoinHandle<R>) -> Result<R, Error> {
    fiber.join().map_err(|panic| match is_loss(&*panic) && gossamer::rack().is_lost(place.machine) {
        true => Error::Lost { machine: place.machine },
        false => std::panic::resume_unwind(panic),
    })
}

/// Is this the panic of a fiber that was lost with its machine?
pub(crate) fn is_loss(panic: &(dyn Any + Send)) -> bool {
    matches!(panic.downcast_ref(), Some(gossamer::Error::Lost { .. } | gossamer::Error::Gone { .. }))
}

/// Returns the error for the loss of a machine that another one has told: once this one knows it, too, so that the next
/// attempt does without that machine.
pub(crate) fn lost(machine: u16) -> Error {
    while !gossamer::rack().is_lost(machine) {
        gossamer::sleep(PAUSE);
    }
    Error::Lost { machine }
}
