//! Fibers that go where an object is, or where there is least to do.

use gossamer::{JoinHandle, NoRef, link};

use crate::global::Global;
use crate::object::Object;
use crate::portable::Portable;
use crate::{limit, load};

/// Starts a fiber at the place where the object is, and hands it the owner. Does not wait.
///
/// ```
/// use gossamer_heap::{Global, spawn_to};
/// gossamer::main(
///     || {
///         let place = gossamer::rack().places().last().unwrap();
///         let numbers = gossamer::spawn_on(place, || Global::new([1u64, 2, 3])).join().unwrap();
///         let fiber = spawn_to(numbers, |mut numbers| {
///             numbers.write()[0] = 5;
///             (gossamer::here(), numbers)
///         });
///         let (where_it_ran, numbers) = fiber.join().unwrap();
///         assert_eq!((where_it_ran, *numbers.read()), (place, [5, 2, 3]));
///     },
///     2,
/// );
/// ```
///
/// # Panics
/// Outside of `gossamer::main`.
///
/// Source: DRust, listing 4.
pub fn spawn_to<T, F, R>(owner: Global<T>, f: F) -> JoinHandle<R>
where
    T: ?Sized + Object + Portable,
    F: FnOnce(Global<T>) -> R + NoRef + Send + 'static,
    R: NoRef + Send + 'static,
{
    gossamer::spawn_on(owner.place(), move || f(owner))
}

/// Starts a fiber where there is least to do: of two machines picked at random, on the one with fewer fibers of this
/// kind for each core that other programs leave it, then on the one whose heap is emptier. A machine whose heap is over
/// 90% full, or that has not reported its load for 0.3 s, gets none if another one can have them. Lost machines get
/// none.
///
/// A fiber stays where it was started. Machines report their loads every 0.1 s from the first call on. Calls wait for
/// the first reports where they may wait: some 0.1 s, or 0.25 s if a machine is silent. In a program of one machine
/// this is [`gossamer::spawn`]; so it is on threads that are no workers of the program, which reach no other machine.
///
/// ```
/// use gossamer_heap::{self as heap, Shared};
/// gossamer::main(
///     || {
///         let table = Shared::new([7u64; 1024]);
///         let jobs: Vec<_> = (0..100)
///             .map(|n| {
///                 let table = table.clone();
///                 heap::spawn(move || table.read()[n] + n as u64)
///             })
///             .collect();
///         let sum: u64 = jobs.into_iter().map(|job| job.join().unwrap()).sum();
///         assert_eq!(sum, 100 * 7 + 99 * 100 / 2);
///     },
///     2,
/// );
/// ```
///
/// # Panics
/// Outside of `gossamer::main`; if `GOSSAMER_HEAP` is no number of bytes. [`JoinHandle::join`] fails as that of
/// [`gossamer::spawn_on`] does.
///
/// Source: DRust, 4.2.2.
#[track_caller]
pub fn spawn<F, R>(f: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + NoRef + Send + 'static,
    R: NoRef + Send + 'static,
{
    limit::limit(); // its panic is the caller's
    link::spawn_by_load(f, load::of_own_machine)
}
