//! Losses of machines, as waits at a channel, barrier or condition variable see them. A lost machine may have had the
//! handle of the fiber that would have ended the wait, so a loss ends each wait, and each later one until the program
//! accepts the loss (`go_on`), as receives from any source end in User-Level Failure Mitigation for MPI.
//!
//! The home decides: whoever waits comes with the number of losses that its machine knows, and at each loss asks its
//! home again. So a value that was given before the loss is never left behind.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use trust::{Error, Pending, Promise, PromiseId, Trust, promise, select, sleep};

use crate::losses::record;

/// Wait before a home is asked again that has not been told of a loss yet: milliseconds, mostly.
const BEHIND: Duration = Duration::from_millis(1);

/// A machine was lost, and who was waited for may have been there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("machine {machine} was lost, and who was waited for may have been there: `go_on` accepts that")]
#[non_exhaustive]
pub struct LostError {
    /// Number of the machine.
    pub machine: u16,
}

/// Error of [`Receiver::recv_or_lost`](super::Receiver::recv_or_lost).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvOrLostError {
    /// All senders are gone, and all values received.
    #[error("receiving on a closed channel")]
    Disconnected,
    /// A machine was lost: that of the channel, or one that may have had a sender.
    #[error(transparent)]
    Lost(#[from] LostError),
}

/// Error of [`Sender::send_or_lost`](super::Sender::send_or_lost).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendOrLostError<T> {
    /// All receivers are gone. Has the value.
    #[error("sending on a closed channel")]
    Disconnected(T),
    /// A machine was lost: that of the channel, or one that may have had a receiver.
    #[error("machine {machine} was lost, and the receiver may have been there: `go_on` accepts that")]
    Lost {
        /// Number of the machine.
        machine: u16,
        /// The value; none if the channel is lost with it.
        value: Option<T>,
    },
}

/// Answer of a home to somebody who would wait, or waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict<L = u16> {
    Wait,
    /// It has not been told of all losses yet that the caller knows.
    Behind,
    /// The wait ends: by default, with the number of the lost machine.
    Lost(L),
}

/// At the home: the losses that waits need not heed.
#[derive(Debug)]
pub struct Accepted {
    /// So many, the first ones.
    losses: u32,
    /// The machines that have handles; any, if it is not said.
    among: Option<Vec<u16>>,
}

impl Accepted {
    /// Accepts all losses that the home and the maker know of, who knows of so many.
    pub fn new(known: u32) -> Accepted {
        Accepted { losses: record::count().max(known), among: None }
    }

    /// Accepts so many losses. False if this home has not been told of all of them yet.
    #[must_use]
    pub fn go_on(&mut self, losses: u32) -> bool {
        let is_told = losses <= record::count();
        if is_told {
            self.losses = self.losses.max(losses);
        }
        is_told
    }

    pub fn among(&mut self, machines: Vec<u16>) {
        self.among = Some(machines);
    }

    /// Returns whether somebody may wait who knows of so many losses.
    pub fn verdict(&self, known: u32) -> Verdict {
        if known <= self.losses {
            return Verdict::Wait;
        }
        self.verdict_of(known, record::count(), record::after)
    }

    fn verdict_of(&self, known: u32, own: u32, after: impl FnOnce(u32) -> Vec<u16>) -> Verdict {
        if own < known {
            return Verdict::Behind;
        }
        let counts = |machine: &u16| self.among.as_ref().is_none_or(|among| among.contains(machine));
        after(self.losses).into_iter().find(counts).map_or(Verdict::Wait, Verdict::Lost)
    }
}

/// Takes the first promise out of a line, but for those to lost machines: a value or a turn would be lost there.
pub fn next_living<T>(line: &mut VecDeque<Promise<T>>) -> Option<Promise<T>> {
    loop {
        let first = line.pop_front()?;
        if !record::is_lost(first.id().machine()) {
            return Some(first);
        }
        first.discard();
    }
}

/// Takes the promises to lost machines out of a line.
pub fn leave_out_lost<T>(line: &mut VecDeque<Promise<T>>) {
    *line = std::iter::from_fn(|| next_living(line)).collect();
}

/// Has a home accept the losses that this machine knows of, once it knows of them, too.
#[track_caller]
pub fn go_on<P: 'static>(home: &Trust<P>, accept: impl Fn(&mut P, u32) -> bool + Copy + trust::NoRef + Send + 'static) {
    let known = record::count();
    while !home.apply(move |property| accept(property, known)) {
        wait_for_home();
    }
}

/// Waits where a home is behind.
pub fn wait_for_home() {
    sleep(BEHIND);
}

/// Returns the outcome of a request at the home of these handles: the machine, if it is lost.
///
/// # Panics
/// With all other errors.
#[track_caller]
pub fn at_home<P: 'static, R>(home: &Trust<P>, outcome: Result<R, Error>) -> Result<R, LostError> {
    let machine = home.trustee().id().machine();
    match outcome {
        Ok(value) => Ok(value),
        Err(Error::Lost { .. } | Error::Gone { .. }) if record::is_lost(machine) => Err(LostError { machine }),
        Err(error) => panic!("{error}"),
    }
}

/// End of a wait for a promise.
pub enum Waited<T, L> {
    Kept(Result<T, Error>),
    Lost(L),
    TimedOut(Pending<T>),
}

/// Waits until a home has kept this promise, at most for `time`. `known` losses were known when it was left there; at
/// each later one `ask` asks the home, which withdraws the promise if the wait is to end.
pub fn wait<T: 'static, L>(
    pending: Pending<T>,
    time: Option<Duration>,
    mut known: u32,
    ask: impl Fn(PromiseId, u32) -> Verdict<L>,
) -> Waited<T, L> {
    if !record::may_come() {
        return match time {
            None => Waited::Kept(pending.wait()),
            Some(time) => pending.wait_timeout(time).map_or(Waited::TimedOut(pending), Waited::Kept),
        };
    }
    let end = time.and_then(|time| Instant::now().checked_add(time));
    loop {
        // Each loss settles it.
        let (unkept, loss) = promise::<()>();
        let now = record::count();
        let verdict = if now == known { Verdict::Wait } else { ask(pending.id(), now) };
        match verdict {
            Verdict::Wait => {
                known = now;
                let left = end.map(|end| end.saturating_duration_since(Instant::now()));
                select(&[&pending, &loss], left);
            }
            Verdict::Behind => wait_for_home(),
            Verdict::Lost(lost) => return Waited::Lost(lost),
        }
        unkept.discard();
        if let Some(outcome) = pending.try_take() {
            return Waited::Kept(outcome);
        }
        if end.is_some_and(|end| end <= Instant::now()) {
            return Waited::TimedOut(pending);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_by_a_loss_that_is_not_accepted_and_concerns_the_handles() {
        let losses = [4, 2, 7];
        let after = |count: u32| losses[count as usize..].to_vec();
        let verdict = |accepted: &Accepted, known| accepted.verdict_of(known, 3, after);
        let mut accepted = Accepted::new(0);
        assert_eq!(accepted.verdict(0), Verdict::Wait);
        assert_eq!(verdict(&accepted, 3), Verdict::Lost(4));
        assert_eq!(verdict(&accepted, 4), Verdict::Behind);
        assert!(!accepted.go_on(1), "it has not been told");
        accepted.losses = 1;
        assert_eq!(verdict(&accepted, 3), Verdict::Lost(2));
        assert!(accepted.go_on(0), "of a machine that knows of fewer");
        accepted.among(vec![0, 7]);
        assert_eq!(verdict(&accepted, 2), Verdict::Lost(7), "the home knows of more");
        accepted.losses = 3;
        assert_eq!((accepted.verdict(3), verdict(&accepted, 4)), (Verdict::Wait, Verdict::Behind));
    }
}
