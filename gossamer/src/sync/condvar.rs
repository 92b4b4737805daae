//! `Condvar`: launched closures wait until others have changed a latched value.

use std::collections::VecDeque;
use std::time::Duration;

use trust::link::{promise_at, withdraw};
use trust::{Held, Promise, PromiseId, Trust};

use super::loss::{self, Accepted, LostError, Verdict, Waited, at_home, next_living};
use crate::losses::record;
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
pub struct Condvar(Trust<Line>);

#[derive(Debug)]
struct Line {
    waiting: VecDeque<Promise<Notification>>,
    accepted: Accepted,
}

impl Line {
    fn new(losses: u32) -> Line {
        Line { waiting: VecDeque::new(), accepted: Accepted::new(losses) }
    }

    fn come(&mut self, promise: Promise<Notification>, losses: u32) -> Verdict {
        let verdict = self.accepted.verdict(losses);
        match verdict {
            Verdict::Wait => self.waiting.push_back(promise),
            _ => promise.discard(),
        }
        verdict
    }

    /// Ends a wait where a loss does. It goes on if it was notified before.
    fn give_up(&mut self, id: PromiseId, losses: u32) -> Verdict {
        match self.accepted.verdict(losses) {
            Verdict::Lost(_) if !withdraw(&mut self.waiting, id) => Verdict::Wait,
            verdict => verdict,
        }
    }
}

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
        Condvar(program().next_entrust().entrust(Line::new(record::count())))
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
        let known = record::count();
        Condvar(crate::entrust_with(place, move || Line::new(known)))
    }

    /// Gives the value up until a notification comes, and takes it again.
    ///
    /// # Panics
    /// If the latch was poisoned meanwhile. After the loss of a machine ([`try_wait_while`](Self::try_wait_while)).
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
        self.wait_until(held, None).unwrap_or_else(|lost| panic!("{lost} (`try_wait_while` returns this)"));
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

    /// Waits as [`wait_while`](Self::wait_while) does, where the program outlives losses
    /// ([`Builder::survives`](crate::Builder::survives)): the loss of a machine ends the wait, for the notifier may
    /// have been there. So it does each later one until [`go_on`](Self::go_on).
    ///
    /// # Errors
    /// If `is_so` is true after a loss. The closure has the value.
    ///
    /// # Panics
    /// If the latch was poisoned meanwhile, and with the panic of `is_so`.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         use gossamer::{Latch, sync::Condvar};
    ///         let (jobs, came) = (gossamer::entrust(Latch::new(vec![7])), Condvar::new());
    ///         let job = jobs.call().launch_held(move |jobs| {
    ///             while let Err(lost) = came.try_wait_while(jobs, |jobs| jobs.is_empty()) {
    ///                 eprintln!("{lost}");
    ///                 came.go_on();
    ///             }
    ///             jobs.pop()
    ///         });
    ///         assert_eq!(job.wait(), Ok(Some(7)));
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn try_wait_while<T>(
        &self,
        held: &mut Held<'_, T>,
        mut is_so: impl FnMut(&mut T) -> bool,
    ) -> Result<(), LostError> {
        while is_so(held) {
            if let Err(lost) = self.wait_until(held, None) {
                return if is_so(held) { Err(lost) } else { Ok(()) };
            }
        }
        Ok(())
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
        self.wait_until(held, Some(time)).unwrap_or_else(|lost| panic!("{lost} (`try_wait_while` returns this)"))
    }

    /// Waits, and returns whether it was notified before the time was over.
    fn wait_until<T>(&self, held: &mut Held<'_, T>, time: Option<Duration>) -> Result<bool, LostError> {
        loop {
            let known = record::count();
            let (promise, notified) = promise_at(self.0.trustee().id());
            match at_home(&self.0, self.0.call().apply(move |line| line.come(promise, known)).wait())? {
                Verdict::Behind => loss::wait_for_home(),
                Verdict::Lost(machine) => return Err(LostError { machine }),
                Verdict::Wait => {
                    let ask = |id, known| {
                        let asked = self.0.call().apply(move |line| line.give_up(id, known)).wait();
                        // Where the home is lost, the promise tells it.
                        at_home(&self.0, asked).unwrap_or(Verdict::Behind)
                    };
                    let give_up = |id| self.0.apply(move |line| withdraw(&mut line.waiting, id));
                    return held.released(|| {
                        let kept = match loss::wait(notified, time, known, ask) {
                            Waited::Kept(kept) => kept,
                            Waited::Lost(machine) => return Err(LostError { machine }),
                            Waited::TimedOut(notified) if give_up(notified.id()) => return Ok(false),
                            Waited::TimedOut(notified) => notified.wait(),
                        };
                        at_home(&self.0, kept).map(|Notification| true)
                    });
                }
            }
        }
    }

    /// Wakes the closure that has waited longest, if there is one. Does not wait; legal everywhere.
    ///
    /// Example: at [`Condvar`].
    pub fn notify_one(&self) {
        let notify =
            |line: &mut Line| next_living(&mut line.waiting).into_iter().for_each(|waiting| waiting.keep(Notification));
        self.0.apply_then(notify, |()| {});
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
        self.0.apply_then(|line| line.waiting.drain(..).for_each(|waiting| waiting.keep(Notification)), |()| {});
    }

    /// Accepts the losses of machines that this machine knows of: closures wait again, until the next one.
    ///
    /// # Panics
    /// In delegated closures and callbacks, where nothing may wait. If the machine of the condition variable itself is
    /// lost.
    ///
    /// Example: at [`try_wait_while`](Self::try_wait_while).
    pub fn go_on(&self) {
        loss::go_on(&self.0, |line, known| line.accepted.go_on(known));
    }

    /// Promises that the handles of this condition variable stay on these machines: losses of others end no wait.
    ///
    /// # Panics
    /// In delegated closures and callbacks, where nothing may wait.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let paid = gossamer::sync::Condvar::new();
    ///         paid.among(&[0]);
    ///         paid.notify_one(); // nobody waits
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn among(&self, machines: &[u16]) {
        self.0.apply_with(|line, machines| line.accepted.among(machines), machines.to_vec());
    }
}
