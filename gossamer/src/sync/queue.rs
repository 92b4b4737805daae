//! Channel at its trustee: the values, and the promises of the waiters on either side. No trust of it exists: the two
//! ends are properties of the same trustee that share it, and inform it when the last trust of theirs has gone.
//!
//! A waiter at several channels at once ([`select`](super::select)) leaves a promise here, which is kept when there may
//! be a value, and then asks: it stands in no line.
//!
//! Invariants:
//! - While a receiver waits there is no value, neither queued nor of a waiting sender.
//! - While a sender waits the queue is full.
//! - A promise that is taken out is kept, or discarded if its maker learns the result from the answer.
//! - While a watcher waits there is nothing to receive, and not all senders are gone.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::rc::Rc;

use trust::link::withdraw;
use trust::{Promise, PromiseId};

use super::carry::{Answer, Sealed, Sent};
use super::loss::{Accepted, Verdict, next_living};

struct Waiting<T> {
    value: T,
    /// Promise to the sender that waits for it to be taken, if one does.
    taken: Option<Promise<Option<T>>>,
}

pub struct Queue<T, C> {
    capacity: usize,
    values: VecDeque<T>,
    senders: VecDeque<Waiting<T>>,
    receivers: VecDeque<Promise<Option<T>>>,
    watchers: Vec<Promise<()>>,
    senders_gone: bool,
    receivers_gone: bool,
    pub accepted: Accepted,
    carrier: PhantomData<fn() -> C>,
}

impl<T: 'static, C: Sealed<T>> Queue<T, C> {
    /// Makes a queue that is shared by two ends, whose maker knows of so many losses.
    pub fn shared(capacity: usize, losses: u32) -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Queue {
            capacity,
            values: VecDeque::new(),
            senders: VecDeque::new(),
            receivers: VecDeque::new(),
            watchers: Vec::new(),
            senders_gone: false,
            receivers_gone: false,
            accepted: Accepted::new(losses),
            carrier: PhantomData,
        }))
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Takes the value if there is a receiver or room for it. Gives it back if not.
    pub fn try_send(&mut self, value: T) -> Sent<T> {
        if self.receivers_gone {
            return Sent::Refused(value);
        }
        if let Some(receiver) = next_living(&mut self.receivers) {
            C::keep(receiver, Some(value));
        } else if self.senders.is_empty() && self.values.len() < self.capacity {
            self.values.push_back(value);
            self.tell_watchers();
        } else {
            return Sent::Full(value);
        }
        Sent::Done
    }

    /// Sends as `try_send` does; without room the value stands in line, if a sender that knows of so many losses may
    /// wait.
    pub fn send(&mut self, value: T, taken: Promise<Option<T>>, losses: u32) -> Sent<T> {
        let settled = match self.try_send(value) {
            Sent::Full(value) => match self.accepted.verdict(losses) {
                Verdict::Wait => {
                    self.stand_in_line(value, Some(taken));
                    return Sent::Waits;
                }
                Verdict::Behind => Sent::Behind(value),
                Verdict::Lost(machine) => Sent::Lost(machine, value),
            },
            settled => settled,
        };
        taken.discard();
        settled
    }

    /// Sends as `try_send` does; without room the value stands in line, and nobody waits for it.
    pub fn post(&mut self, value: T) -> Sent<T> {
        match self.try_send(value) {
            Sent::Full(value) => {
                self.stand_in_line(value, None);
                Sent::Waits
            }
            settled => settled,
        }
    }

    fn stand_in_line(&mut self, value: T, taken: Option<Promise<Option<T>>>) {
        self.senders.push_back(Waiting { value, taken });
        self.tell_watchers();
    }

    /// Ends a sender's wait where a loss does, and gives its value back. It waits on if it was served before.
    pub fn take_back(&mut self, id: PromiseId, losses: u32) -> Verdict<(u16, T)> {
        let is_its = |waiting: &Waiting<T>| waiting.taken.as_ref().is_some_and(|taken| taken.id() == id);
        let Some(place) = self.senders.iter().position(is_its) else { return Verdict::Wait };
        match self.accepted.verdict(losses) {
            Verdict::Wait => Verdict::Wait,
            Verdict::Behind => Verdict::Behind,
            Verdict::Lost(machine) => match self.senders.remove(place) {
                Some(Waiting { value, taken: Some(taken) }) => {
                    taken.discard();
                    Verdict::Lost((machine, value))
                }
                _ => unreachable!("it was found there"),
            },
        }
    }

    pub fn try_recv(&mut self) -> Answer<T> {
        let first = self.values.pop_front();
        // The first in line gets the room, or, if there is none at all (capacity 0), is served itself.
        let next = self.senders.pop_front().map(|Waiting { value, taken }| {
            if let Some(taken) = taken {
                C::keep(taken, None);
            }
            value
        });
        match first {
            Some(value) => {
                self.values.extend(next);
                Answer::Value(value)
            }
            None => match next {
                Some(value) => Answer::Value(value),
                None if self.senders_gone => Answer::Closed,
                None => Answer::Empty,
            },
        }
    }

    /// Receives as `try_recv` does; without a value the promise stands in line, if a receiver that knows of so many
    /// losses may wait.
    pub fn recv(&mut self, promise: Promise<Option<T>>, losses: u32) -> Answer<T> {
        let settled = match self.try_recv() {
            Answer::Empty => match self.accepted.verdict(losses) {
                Verdict::Wait => {
                    self.receivers.push_back(promise);
                    return Answer::Waits;
                }
                Verdict::Behind => Answer::Behind,
                Verdict::Lost(machine) => Answer::Lost(machine),
            },
            settled => settled,
        };
        promise.discard();
        settled
    }

    /// Ends a receiver's wait where a loss does. It waits on if it was served before.
    pub fn give_up(&mut self, id: PromiseId, losses: u32) -> Verdict {
        match self.accepted.verdict(losses) {
            Verdict::Lost(_) if !self.withdraw(id) => Verdict::Wait,
            verdict => verdict,
        }
    }

    /// Ends a receiver's wait. False if it was served before.
    pub fn withdraw(&mut self, id: PromiseId) -> bool {
        withdraw(&mut self.receivers, id)
    }

    /// Returns whether there is anything to receive, or never will be. If not, the promise is kept when there may be.
    pub fn watch(&mut self, promise: Promise<()>, losses: u32) -> Answer<()> {
        let verdict = if self.values.is_empty() && self.senders.is_empty() && !self.senders_gone {
            match self.accepted.verdict(losses) {
                Verdict::Wait => {
                    self.watchers.push(promise);
                    return Answer::Waits;
                }
                Verdict::Behind => Answer::Behind,
                Verdict::Lost(machine) => Answer::Lost(machine),
            }
        } else {
            Answer::Value(())
        };
        promise.discard();
        verdict
    }

    /// Removes the watcher that waits for this promise.
    pub fn forget_watcher(&mut self, id: PromiseId) {
        if let Some(place) = self.watchers.iter().position(|promise| promise.id() == id) {
            self.watchers.swap_remove(place).discard();
        }
    }

    /// Wakes all watchers: one that has been woken may not come.
    fn tell_watchers(&mut self) {
        self.watchers.drain(..).for_each(|watcher| watcher.keep(()));
    }

    fn lose_senders(&mut self) {
        self.senders_gone = true;
        self.tell_watchers();
        self.receivers.drain(..).for_each(|receiver| C::keep(receiver, None));
    }

    /// Returns values that will not be received to the waiting senders, and the rest to the caller, to be dropped.
    fn lose_receivers(&mut self) -> Vec<T> {
        self.receivers_gone = true;
        let mut lost: Vec<T> = self.values.drain(..).collect();
        for Waiting { value, taken } in self.senders.drain(..) {
            match taken {
                Some(taken) => C::keep(taken, Some(value)),
                None => lost.push(value),
            }
        }
        lost
    }
}

/// Property that senders have trusts of.
pub struct SendEnd<T: 'static, C: Sealed<T>>(pub Rc<RefCell<Queue<T, C>>>);

/// Property that receivers have trusts of.
pub struct ReceiveEnd<T: 'static, C: Sealed<T>>(pub Rc<RefCell<Queue<T, C>>>);

impl<T: 'static, C: Sealed<T>> Drop for SendEnd<T, C> {
    /// Closes the channel, unless a lost machine may have handed on a sender that nobody has counted: receivers would
    /// take its absence for the end.
    fn drop(&mut self) {
        if !trust::link::drops_old() {
            self.0.borrow_mut().lose_senders();
        }
    }
}

impl<T: 'static, C: Sealed<T>> Drop for ReceiveEnd<T, C> {
    fn drop(&mut self) {
        let lost = self.0.borrow_mut().lose_receivers();
        // Their destructors are not the channel's: outside of the borrow.
        drop(lost);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;
    use trust::{Pending, promise};

    use super::super::carry::Plain;
    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        TrySend,
        Send,
        Post,
        TryReceive,
        Receive,
        GiveUp(usize),
        LoseSenders,
        LoseReceivers,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => Just(Step::TrySend),
            4 => Just(Step::Send),
            2 => Just(Step::Post),
            4 => Just(Step::TryReceive),
            5 => Just(Step::Receive),
            2 => (0usize..8).prop_map(Step::GiveUp),
            1 => Just(Step::LoseSenders),
            1 => Just(Step::LoseReceivers),
        ];
        proptest::collection::vec(step, 0..60)
    }

    type Held = Pending<Option<u32>>;

    /// Returns the state of a promise: not kept yet, nothing, a value.
    fn seen(pending: &Held) -> Option<Option<u32>> {
        pending.try_take().map(|outcome| outcome.expect("no promise is dropped"))
    }

    /// The queue, and a model: all values that are on their way in order, and their waiters.
    struct Run {
        queue: Queue<u32, Plain>,
        capacity: usize,
        made: u32,
        /// Values that are in the channel, with the promises of senders that wait for them to be taken.
        on_their_way: VecDeque<(u32, Option<Held>)>,
        receivers: VecDeque<Held>,
        senders_gone: bool,
        receivers_gone: bool,
    }

    impl Run {
        fn step(&mut self, step: &Step) {
            match step {
                Step::TrySend | Step::Send | Step::Post if self.senders_gone => {}
                Step::TryReceive | Step::Receive if self.receivers_gone => {}
                Step::TrySend => {
                    let value = self.next();
                    let sent = self.queue.try_send(value);
                    self.check_sent(sent, value, None, false);
                }
                Step::Send => {
                    let (value, (promise, pending)) = (self.next(), promise());
                    let sent = self.queue.send(value, promise, 0);
                    self.check_sent(sent, value, Some(pending), true);
                }
                Step::Post => {
                    let value = self.next();
                    let sent = self.queue.post(value);
                    self.check_sent(sent, value, None, true);
                }
                Step::TryReceive => {
                    let answer = self.queue.try_recv();
                    self.check_answer(answer, None);
                }
                Step::Receive => {
                    let (promise, pending) = promise();
                    let answer = self.queue.recv(promise, 0);
                    self.check_answer(answer, Some(pending));
                }
                Step::GiveUp(which) if !self.receivers.is_empty() => {
                    let pending = self.receivers.remove(which % self.receivers.len()).expect("in range");
                    assert!(self.queue.withdraw(pending.id()), "it was not served");
                    assert!(!self.queue.withdraw(pending.id()) && seen(&pending).is_none());
                }
                Step::GiveUp(_) => {}
                // A waiting sender is one that is not gone.
                Step::LoseSenders if self.on_their_way.iter().any(|(_, taken)| taken.is_some()) => {}
                Step::LoseSenders => {
                    self.queue.lose_senders();
                    self.senders_gone = true;
                    self.receivers.drain(..).for_each(|receiver| assert_eq!(seen(&receiver), Some(None)));
                }
                Step::LoseReceivers if !self.receivers.is_empty() => {}
                Step::LoseReceivers => {
                    let lost = self.queue.lose_receivers();
                    self.receivers_gone = true;
                    let (mut expected, all) = (Vec::new(), self.on_their_way.drain(..));
                    for (value, taken) in all {
                        match taken {
                            Some(taken) => assert_eq!(seen(&taken), Some(Some(value)), "it comes back"),
                            None => expected.push(value),
                        }
                    }
                    assert_eq!(lost, expected);
                }
            }
            assert!(self.receivers.iter().all(|receiver| seen(receiver).is_none()));
            assert!(self.on_their_way.iter().flat_map(|(_, taken)| taken).all(|taken| seen(taken).is_none()));
            assert_eq!(self.queue.len(), self.on_their_way.len().min(self.capacity));
        }

        fn next(&mut self) -> u32 {
            self.made += 1;
            self.made
        }

        fn check_sent(&mut self, sent: Sent<u32>, value: u32, taken: Option<Held>, waits: bool) {
            let is_full = self.on_their_way.len() >= self.capacity;
            match sent {
                Sent::Refused(back) => assert!(self.receivers_gone && back == value),
                Sent::Done => match self.receivers.pop_front() {
                    Some(first) => assert_eq!(seen(&first), Some(Some(value)), "who waits longest has it"),
                    None => {
                        assert!(!is_full && !self.receivers_gone);
                        self.on_their_way.push_back((value, None));
                    }
                },
                Sent::Full(back) => assert!(!waits && is_full && self.receivers.is_empty() && back == value),
                Sent::Behind(_) | Sent::Lost(..) => unreachable!("no machine was lost"),
                Sent::Waits => {
                    assert!(waits && is_full && self.receivers.is_empty());
                    self.on_their_way.push_back((value, taken));
                }
            }
        }

        fn check_answer(&mut self, answer: Answer<u32>, waits: Option<Held>) {
            match answer {
                Answer::Value(value) => {
                    let expected = self.on_their_way.pop_front().map(|(value, taken)| {
                        assert!(taken.is_none_or(|taken| seen(&taken) == Some(None)), "it is told");
                        value
                    });
                    assert_eq!(Some(value), expected);
                    // The sender that has moved up has been informed as well.
                    let moved = self.capacity.checked_sub(1).and_then(|last| self.on_their_way.get_mut(last));
                    if let Some(taken) = moved.and_then(|(_, taken)| taken.take()) {
                        assert_eq!(seen(&taken), Some(None));
                    }
                }
                Answer::Closed => assert!(self.senders_gone && self.on_their_way.is_empty()),
                Answer::Empty => assert!(!self.senders_gone && self.on_their_way.is_empty() && waits.is_none()),
                Answer::Behind | Answer::Lost(_) => unreachable!("no machine was lost"),
                Answer::Waits => {
                    assert!(!self.senders_gone && self.on_their_way.is_empty());
                    self.receivers.extend(waits);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn a_channel_does_what_the_model_does(steps in steps(), capacity in 0usize..4) {
            let Ok(queue) = Rc::try_unwrap(Queue::shared(capacity, 0)) else { unreachable!("it has one owner") };
            let mut run = Run {
                queue: queue.into_inner(),
                capacity,
                made: 0,
                on_their_way: VecDeque::new(),
                receivers: VecDeque::new(),
                senders_gone: false,
                receivers_gone: false,
            };
            steps.iter().for_each(|step| run.step(step));
            // Their makers go first: dropped promises would otherwise report to them.
            run.receivers.clear();
        }
    }
}
