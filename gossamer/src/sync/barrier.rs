//! `Barrier`: fibers wait until so many of them have come.

use trust::{Promise, Trust, promise};

use crate::rack::{Place, program};

/// Meeting point where a number of fibers of any machines wait for one another, again and again.
///
/// ```
/// use gossamer::sync::Barrier;
/// gossamer::main(
///     || {
///         let barrier = Barrier::new(gossamer::rack().workers());
///         let fibers: Vec<_> = gossamer::rack()
///             .places()
///             .map(|place| {
///                 let barrier = barrier.clone();
///                 gossamer::spawn_on(place, move || (0..3).filter(|_| barrier.wait().is_leader()).count())
///             })
///             .collect();
///         let led: usize = fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum();
///         assert_eq!(led, 3); // one fiber in each round
///     },
///     2,
/// );
/// ```
///
/// Cost of a round for n fibers: n requests and their answers, and n - 1 requests to the waiters.
#[derive(Debug, Clone)]
pub struct Barrier(Trust<Round>);

#[derive(Debug)]
struct Round {
    count: usize,
    waiting: Vec<Promise<Opening>>,
}

/// All others have come; a dump shows this name for the waiters.
#[derive(Debug, Clone, Copy)]
struct Opening;

impl Barrier {
    /// Makes a barrier for `count` fibers (0 counts as 1), at the next worker of this machine in turn.
    ///
    /// # Panics
    /// Outside [`gossamer::main`](crate::main).
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let barrier = gossamer::sync::Barrier::new(1);
    ///         assert!(barrier.wait().is_leader()); // it waits for nobody else
    ///     },
    ///     2,
    /// );
    /// ```
    #[track_caller]
    pub fn new(count: usize) -> Barrier {
        Barrier(program().next_entrust().entrust(Round { count, waiting: Vec::new() }))
    }

    /// Makes a barrier as [`new`](Self::new) does, at this place.
    ///
    /// # Panics
    /// Same as [`entrust_with`](crate::entrust_with).
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let place = gossamer::rack().places().last().unwrap();
    ///         let barrier = gossamer::sync::Barrier::at(place, 2);
    ///         let other = barrier.clone();
    ///         let fiber = gossamer::spawn_on(place, move || other.wait().is_leader());
    ///         assert!(barrier.wait().is_leader() != fiber.join().unwrap());
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn at(place: Place, count: usize) -> Barrier {
        Barrier(crate::entrust_with(place, move || Round { count, waiting: Vec::new() }))
    }

    /// Waits until as many fibers wait as the barrier is for; then all go on, and the next round begins.
    ///
    /// # Panics
    /// In delegated closures and callbacks, where nothing may wait.
    ///
    /// Example: at [`Barrier`].
    pub fn wait(&self) -> BarrierWaitResult {
        let (promise, round) = promise();
        let is_last = self.0.apply(move |round| {
            if round.waiting.len() + 1 < round.count {
                round.waiting.push(promise);
                return false;
            }
            promise.discard();
            round.waiting.drain(..).for_each(|waiting| waiting.keep(Opening));
            true
        });
        if !is_last && let Err(error) = round.wait() {
            panic!("a barrier is gone while fibers wait at it: {error}");
        }
        BarrierWaitResult(is_last)
    }
}

/// Result of a fiber's wait at a [`Barrier`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// Returns whether this is the one fiber of its round that came last.
    ///
    /// Example: at [`Barrier`].
    pub fn is_leader(&self) -> bool {
        self.0
    }
}
