//! Fibers that go where an object is.

use gossamer::{JoinHandle, NoRef};

use crate::global::Global;
use crate::object::Object;
use crate::portable::Portable;

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
