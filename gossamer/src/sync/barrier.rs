//! `Barrier`: fibers wait until so many of them have come.

use std::collections::VecDeque;

use trust::link::{promise_at, withdraw};
use trust::{Promise, PromiseId, Trust};

use super::loss::{self, Accepted, LostError, Verdict, Waited, at_home, leave_out_lost};
use crate::losses::record;
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
    waiting: VecDeque<Promise<Opening>>,
    accepted: Accepted,
}

/// State of the round after one more has come.
enum Come {
    Last,
    Waits,
    Ends(Verdict),
}

impl Round {
    fn new(count: usize, losses: u32) -> Round {
        Round { count, waiting: VecDeque::new(), accepted: Accepted::new(losses) }
    }

    fn come(&mut self, promise: Promise<Opening>, losses: u32) -> Come {
        if self.waiting.len() + 1 >= self.count {
            leave_out_lost(&mut self.waiting);
        }
        match self.accepted.verdict(losses) {
            Verdict::Wait if self.waiting.len() + 1 < self.count => {
                self.waiting.push_back(promise);
                return Come::Waits;
            }
            Verdict::Wait => {}
            verdict => {
                promise.discard();
                return Come::Ends(verdict);
            }
        }
        promise.discard();
        self.open();
        Come::Last
    }

    /// Goes on with so many fibers, after so many losses. False if this home has not been told of them all yet.
    fn go_on(&mut self, count: usize, losses: u32) -> bool {
        if !self.accepted.go_on(losses) {
            return false;
        }
        leave_out_lost(&mut self.waiting);
        self.count = count;
        // Those that have not been told of the loss yet may be enough.
        if self.waiting.len() >= count.max(1) {
            self.open();
        }
        true
    }

    fn open(&mut self) {
        self.waiting.drain(..).for_each(|waiting| waiting.keep(Opening));
    }

    /// Ends a wait where a loss does. It goes on if the round was complete before.
    fn give_up(&mut self, id: PromiseId, losses: u32) -> Verdict {
        match self.accepted.verdict(losses) {
            Verdict::Lost(_) if !withdraw(&mut self.waiting, id) => Verdict::Wait,
            verdict => verdict,
        }
    }
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
        Barrier(program().next_entrust().entrust(Round::new(count, record::count())))
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
        let known = record::count();
        Barrier(crate::entrust_with(place, move || Round::new(count, known)))
    }

    /// Waits until as many fibers wait as the barrier is for; then all go on, and the next round begins.
    ///
    /// # Panics
    /// In delegated closures and callbacks, where nothing may wait. After the loss of a machine
    /// ([`try_wait`](Self::try_wait)).
    ///
    /// Example: at [`Barrier`].
    pub fn wait(&self) -> BarrierWaitResult {
        self.try_wait().unwrap_or_else(|lost| panic!("{lost} (`try_wait` returns this)"))
    }

    /// Waits as [`wait`](Self::wait) does, where the program outlives losses
    /// ([`Builder::survives`](crate::Builder::survives)): the loss of a machine ends the round, for some of its fibers
    /// may have been there. So it does each later one until [`go_on`](Self::go_on).
    ///
    /// # Errors
    /// By a loss.
    ///
    /// # Panics
    /// In delegated closures and callbacks, where nothing may wait.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let barrier = gossamer::sync::Barrier::new(1);
    ///         if let Err(lost) = barrier.try_wait() {
    ///             eprintln!("{lost}");
    ///             barrier.go_on(1); // with those that are left
    ///         }
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn try_wait(&self) -> Result<BarrierWaitResult, LostError> {
        loop {
            let known = record::count();
            let (promise, round) = promise_at(self.0.trustee().id());
            match at_home(&self.0, self.0.call().apply(move |round| round.come(promise, known)).wait())? {
                Come::Last => return Ok(BarrierWaitResult(true)),
                Come::Ends(Verdict::Lost(machine)) => return Err(LostError { machine }),
                Come::Ends(_) => loss::wait_for_home(),
                Come::Waits => {
                    let ask = |id, known| {
                        let asked = self.0.call().apply(move |round| round.give_up(id, known)).wait();
                        // Where the home is lost, the promise tells it.
                        at_home(&self.0, asked).unwrap_or(Verdict::Behind)
                    };
                    return match loss::wait(round, None, known, ask) {
                        Waited::Kept(kept) => at_home(&self.0, kept).map(|Opening| BarrierWaitResult(false)),
                        Waited::Lost(machine) => Err(LostError { machine }),
                        Waited::TimedOut(_) => unreachable!("it waits without a limit"),
                    };
                }
            }
        }
    }

    /// Accepts the losses of machines that this machine knows of: fibers wait again, until the next loss. The barrier
    /// is for `count` fibers from now on (0 counts as 1).
    ///
    /// # Panics
    /// In delegated closures and callbacks, where nothing may wait. If the machine of the barrier itself is lost.
    ///
    /// Example: at [`try_wait`](Self::try_wait).
    pub fn go_on(&self, count: usize) {
        loss::go_on(&self.0, move |round, known| round.go_on(count, known));
    }

    /// Promises that the handles of this barrier stay on these machines: losses of others end no wait.
    ///
    /// # Panics
    /// In delegated closures and callbacks, where nothing may wait.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let barrier = gossamer::sync::Barrier::new(1);
    ///         barrier.among(&[0]);
    ///         assert!(barrier.wait().is_leader());
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn among(&self, machines: &[u16]) {
        self.0.apply_with(|round, machines| round.accepted.among(machines), machines.to_vec());
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
