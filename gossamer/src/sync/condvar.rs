//! `Condvar`: launched closures wait until others have changed a latched value.

use std::collections::VecDeque;
use std::time::Duration;

use trust::link::{wait_in_line, withdraw};
use trust::{Error, Held, Promise, Trust, promise};

use crate::rack::{Place, program};

/// Condition variable for closures that were [launched](trust::Call::launch_held) on a latched value: they wait until
/// others have changed it.
///
/// A waiting closure gives the value up meanwhile. It has registered before, so the next holder of the value that
/// notifies will wake it. As with any condition variable, check again after waiting ([`wait_while`](Self::wait_while)
/// does): others may have had the value in between. There are no spurious wake-ups.
///
/// ```
/// use gossamer::Latch;
/// use gossamer::sync::Condvar;
/// gossamer::main(
///     || {
///         let (account, paid) = (gossamer::entrust(Latch::new(0u64)), Condvar::new());
///         let (other, paid_in) = (account.clone(), paid.clone());
///         let fiber = gossamer::spawn(move || {
///             let paid_out = other.call().launch_held(move |balance| {
///                 paid_in.wait_while(balance, |balance| *balance < 10);
///                 **balance -= 10;
///                 **balance
///             });
///             paid_out.wait()
///         });
///         for _ in 0..12 {
///             account.launch(|balance| *balance += 1);
///             paid.notify_one();
///         }
///         assert!(fiber.join().unwrap().unwrap() <= 2);
///     },
///     2,
/// );
/// ```
///
/// Cost: [`wait`](Self::wait) is one request that it waits for, notifying one that it does not wait for, and one to
/// each worker that is woken.
#[derive(Debug, Clone)]
pub struct Condvar(Trust<VecDeque<Promise<Notification>>>);

/// A dump shows this name for the waiters.
#[derive(Debug, Clone, Copy)]
struct Notification;

impl Condvar {
    /// Makes a condition variable at the next worker of this machine in turn.
    ///
    /// # Panics
    /// Outside [`gossamer::main`](crate::main).
    ///
    /// Example: at [`Condvar`].
    #[expect(clippy::new_without_default, reason = "it works in a running program only")]
    #[track_caller]
    pub fn new() -> Condvar {
        Condvar(program().next_entrust().entrust(VecDeque::new()))
    }

    /// Makes a condition variable at this place: best at the latch's.
    ///
    /// # Panics
    /// Same as [`entrust_with`](crate::entrust_with).
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         use gossamer::{Latch, sync::Condvar};
    ///         let place = gossamer::here();
    ///         let (account, paid) = (place.trustee().entrust(Latch::new(0)), Condvar::at(place));
    ///         account.launch(|balance| *balance += 1);
    ///         paid.notify_one(); // nobody waits
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn at(place: Place) -> Condvar {
        Condvar(crate::entrust_with(place, VecDeque::new))
    }

    /// Gives the value up until a notification comes, and takes it again.
    ///
    /// # Panics
    /// If the latch was poisoned meanwhile.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         use gossamer::{Latch, sync::Condvar};
    ///         let (gate, opened) = (gossamer::entrust(Latch::new(false)), Condvar::new());
    ///         let (other, is_open) = (gate.clone(), opened.clone());
    ///         let fiber = gossamer::spawn(move || {
    ///             let opened = other.call().launch_held(move |open| {
    ///                 while !**open {
    ///                     is_open.wait(open);
    ///                 }
    ///             });
    ///             opened.wait()
    ///         });
    ///         gate.launch(|open| *open = true);
    ///         opened.notify_one();
    ///         fiber.join().unwrap().unwrap();
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn wait<T>(&self, held: &mut Held<'_, T>) {
        let (promise, notified) = promise();
        self.0.apply(move |line| line.push_back(promise));
        held.released(|| or_report(notified.wait()));
    }

    /// Waits while `is_so` is true.
    ///
    /// # Panics
    /// Same as [`wait`](Self::wait), and with the panic of `is_so`.
    ///
    /// Example: at [`Condvar`].
    pub fn wait_while<T>(&self, held: &mut Held<'_, T>, mut is_so: impl FnMut(&mut T) -> bool) {
        while is_so(held) {
            self.wait(held);
        }
    }

    /// Waits as [`wait`](Self::wait) does, for no longer than `time` and the time it takes to get the value again. True
    /// if it was notified. No notification is lost: one that came as the time was over is taken.
    ///
    /// # Panics
    /// Same as [`wait`](Self::wait).
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         use gossamer::{Latch, sync::Condvar};
    ///         use std::time::Duration;
    ///         let (account, paid) = (gossamer::entrust(Latch::new(0)), Condvar::new());
    ///         let time = Duration::from_millis(5);
    ///         let call = account.call().launch_held(move |balance| paid.wait_timeout(balance, time));
    ///         assert_eq!(call.wait(), Ok(false));
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn wait_timeout<T>(&self, held: &mut Held<'_, T>, time: Duration) -> bool {
        let (promise, notified) = promise();
        self.0.apply(move |line| line.push_back(promise));
        let give_up = |id| self.0.apply(move |line| withdraw(line, id));
        held.released(|| wait_in_line(notified, time, give_up).map(or_report).is_some())
    }

    /// Wakes the closure that has waited longest, if there is one. Does not wait; legal everywhere.
    ///
    /// Example: at [`Condvar`].
    pub fn notify_one(&self) {
        self.0.apply_then(|line| line.pop_front().into_iter().for_each(|waiting| waiting.keep(Notification)), |()| {});
    }

    /// Wakes all waiters. Does not wait; legal everywhere.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         use gossamer::{Latch, sync::Condvar};
    ///         let (gate, opened) = (gossamer::entrust(Latch::new(false)), Condvar::new());
    ///         let waiting: Vec<_> = (0..3)
    ///             .map(|_| {
    ///                 let (gate, opened) = (gate.clone(), opened.clone());
    ///                 gossamer::spawn(move || {
    ///                     let waits = gate.call().launch_held(move |open| opened.wait_while(open, |open| !*open));
    ///                     waits.wait().unwrap();
    ///                 })
    ///             })
    ///             .collect();
    ///         gate.launch(|open| *open = true);
    ///         opened.notify_all();
    ///         waiting.into_iter().for_each(|fiber| fiber.join().unwrap());
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn notify_all(&self) {
        self.0.apply_then(|line| line.drain(..).for_each(|waiting| waiting.keep(Notification)), |()| {});
    }
}

fn or_report(outcome: Result<Notification, Error>) {
    if let Err(error) = outcome {
        panic!("a condition variable is gone while closures wait for it: {error}");
    }
}
