//! Fibers at places of the rack.

use serde::Serialize;
use serde::de::DeserializeOwned;
use trust::{Error, JoinHandle, Latch, NoRef};

use crate::losses::record;
use crate::rack::{Place, program};

/// Starts a fiber on the next worker of this machine in turn. Does not wait.
///
/// ```
/// gossamer::main(
///     || {
///         let counter = gossamer::entrust(0);
///         let fibers: Vec<_> = (0..10)
///             .map(|_| { let counter = counter.clone(); gossamer::spawn(move || counter.apply(|c| *c += 1)) })
///             .collect();
///         for fiber in fibers { fiber.join().unwrap(); }
///         assert_eq!(counter.apply(|c| *c), 10);
///     },
///     2,
/// );
/// ```
///
/// # Panics
/// Outside [`gossamer::main`](crate::main).
///
/// Source: thesis 3.2.2, table II.
#[track_caller]
pub fn spawn<F, R>(f: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    trust::spawn_on(&program().next_spawn(), f)
}

/// Starts a fiber at a place of the rack. Its captures and its result travel as raw memory, so they may hold no
/// references or pointers ([`NoRef`]); trusts may pass. Does not wait; [`JoinHandle::join`] does, and gives the fiber's
/// panic message if it panicked. Where the program outlives the place's machine, the payload is the [`Error`]:
/// [`Gone`](Error::Gone) if the fiber did not run, [`Lost`](Error::Lost) if it may have.
///
/// The caller's machine has a small fiber that waits for the one on the other machine. It starts that one when the
/// caller waits for something.
///
/// ```
/// gossamer::main(
///     || {
///         let fibers: Vec<_> =
///             gossamer::rack().places().map(|place| (place, gossamer::spawn_on(place, gossamer::here))).collect();
///         for (place, fiber) in fibers {
///             assert_eq!(fiber.join().unwrap(), place);
///         }
///     },
///     2,
/// );
/// ```
///
/// # Panics
/// Outside [`gossamer::main`](crate::main); if there is no such place.
///
/// Source: thesis 3.2.2.
#[track_caller]
pub fn spawn_on<F, R>(place: Place, f: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + NoRef + Send + 'static,
    R: NoRef + Send + 'static,
{
    spawn_on_holding(place, f, ())
}

/// Starts a fiber as [`spawn_on`] does, and drops `held` on this machine when the fiber has ended.
#[track_caller]
pub(crate) fn spawn_on_holding<F, R>(place: Place, f: F, held: impl Send + 'static) -> JoinHandle<R>
where
    F: FnOnce() -> R + NoRef + Send + 'static,
    R: NoRef + Send + 'static,
{
    let trustee = place.trustee();
    if place.machine == program().rack.machine {
        return trust::spawn_on(&trustee, move || {
            let _held = held;
            f()
        });
    }
    // Sent before fibers of this worker that compute have their turn, and before the caller goes on.
    let wait = trust::link::begin(trustee, f);
    trust::spawn(move || {
        let _held = held;
        value_of(wait(), place)
    })
}

/// Starts a fiber as [`spawn_on`] does, with an argument that travels serialised, as does the result: strings, vectors,
/// maps and all other serde types may pass, also with trusts inside, as with
/// [`Trust::apply_with`](crate::Trust::apply_with). On this machine they are moved.
///
/// A fiber on another machine takes two requests and their answers, one more than [`spawn_on`], and twice the memory of
/// the argument.
///
/// ```
/// gossamer::main(
///     || {
///         let words = ["to", "be", "or", "not"].map(str::to_owned).to_vec();
///         let fibers: Vec<_> = gossamer::rack()
///             .places()
///             .map(|place| gossamer::spawn_with(place, |words: Vec<String>| words.join(" "), words.clone()))
///             .collect();
///         for fiber in fibers {
///             assert_eq!(fiber.join().unwrap(), "to be or not");
///         }
///     },
///     2,
/// );
/// ```
///
/// # Panics
/// Same as [`spawn_on`]. If argument or result do not serialise or are larger than 64 MiB, [`JoinHandle::join`] says
/// so.
#[track_caller]
pub fn spawn_with<A, R, F>(place: Place, f: F, argument: A) -> JoinHandle<R>
where
    F: FnOnce(A) -> R + NoRef + Send + 'static,
    A: Serialize + DeserializeOwned + Send + 'static,
    R: Serialize + DeserializeOwned + Send + 'static,
{
    let trustee = place.trustee();
    if place.machine == program().rack.machine {
        return trust::spawn_on(&trustee, move || f(argument));
    }
    trust::spawn(move || {
        let there = trust::link::entrust_remote(trustee, || Latch::new(()));
        // Releases the value, so that a wait inside `f` blocks nobody else.
        let run = move |held: &mut trust::Held<'_, ()>, argument: A| held.released(|| f(argument));
        value_of(there.and_then(|there| there.call().with(argument).launch_held(run).wait()), place)
    })
}

/// Returns the result of a fiber of another machine, or panics as that fiber did.
fn value_of<R>(outcome: Result<R, Error>, place: Place) -> R {
    match outcome {
        Ok(value) => value,
        // The panic was reported where it happened; it goes on here as it would from a fiber of this machine.
        Err(Error::Panicked { panic, .. }) => std::panic::resume_unwind(Box::new(panic)),
        Err(error @ (Error::Lost { .. } | Error::Gone { .. })) if record::is_lost(place.machine) => {
            std::panic::resume_unwind(Box::new(error))
        }
        // The fiber may have run; its result is lost.
        Err(error @ (Error::Codec { .. } | Error::TooLarge { .. })) => {
            std::panic::resume_unwind(Box::new(format!("no result came from {place}: {error}")))
        }
        Err(error) => std::panic::resume_unwind(Box::new(format!("no fiber ran at {place}: {error}"))),
    }
}
