//! [`Queue`]: the waiters of a mutex, in the order of asking, and their turns. The keeper's half of the protocol of
//! `record.rs`; no promises and no messages, so that loom runs it.
//!
//! A lock ends by freeing the word, whoever waits. The waiter that is woken then tries again, and newcomers may come
//! before it: handed over by messages, the lock would stand still for as long as these take, and all lockers with it.
//! A waiter that found it held again, and has stood for long, is due: it is handed over. So is a waiter that has the
//! record not mapped, which could only ask again.
//!
//! A machine that is lost takes along messages, and waiters that were woken. So each waiter that is told of the loss
//! has the keeper look again (`heed`); those that come later name the losses that they know of. Messages of the lost
//! machine may come after that, and change nothing; its waiters are never chosen.
//!
//! Invariant
//! - [next-is-coming] While there are waiters, one of these will bring the keeper here again: a held word with the
//!   mark of the first waiter or a higher one, or a message of its end (record.rs, [mark-tells]); or a waiter that was
//!   woken, which takes the lock with a mark, asks again, or says that it has gone.

use std::collections::VecDeque;

use super::record::{Mark, Record, Taken};
use crate::name::Name;

/// The waiters. `W` is a waiter's promise.
pub(super) struct Queue<W> {
    waiting: VecDeque<Waiting<W>>,
}

struct Waiting<W> {
    waiter: W,
    is_due: bool,
    machine: u16,
}

/// A waiter's result.
#[derive(Debug)]
pub(super) enum Pass {
    /// The lock.
    Lock(Taken),
    /// It may be free: try again, and take it with this mark.
    Again(Mark),
    /// The lock is lost with this machine.
    Lost(u16),
}

/// The keeper's answer to a request.
#[derive(Debug)]
pub(super) enum Asked {
    Taken(Taken),
    /// The waiter stands in the queue.
    Waits,
    /// The lock is lost with this machine.
    Lost(u16),
    /// This machine does not know of a loss yet that the waiter knows of.
    Behind,
}

/// A request for the lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    /// It was woken before: it is the first one again, but for those that are due.
    pub(super) is_again: bool,
    /// The lock is to be handed over.
    pub(super) is_due: bool,
    /// Machine of the waiter.
    pub(super) machine: u16,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Queue { waiting: VecDeque::new() }
    }
}

impl<W> Queue<W> {
    /// The mark of a lock that is held while these wait.
    fn mark(&self) -> Mark {
        self.waiting.front().map_or(Mark::Held, |first| if first.is_due { Mark::Due } else { Mark::Waited })
    }

    /// Takes the lock if it is free, else the waiter waits.
    pub(super) fn ask(&mut self, record: &Record, ask: Ask, waiter: W, is_lost: impl Fn(u16) -> bool) -> Asked {
        if is_lost(ask.machine) {
            return Asked::Lost(ask.machine);
        }
        let before = self.mark();
        let own = if ask.is_due { Mark::Due } else { Mark::Waited };
        let at = match ask {
            Ask { is_again: false, .. } => self.waiting.len(),
            Ask { is_due: true, .. } => 0,
            _ => self.waiting.iter().take_while(|waiting| waiting.is_due).count(),
        };
        if let Some(taken) = record.take_or_mark(before, if at == 0 { own } else { before }, ask.machine) {
            return Asked::Taken(taken);
        }
        if let Some(machine) = record.lost(is_lost) {
            return Asked::Lost(machine);
        }
        self.waiting.insert(at, Waiting { waiter, is_due: ask.is_due, machine: ask.machine }); // [next-is-coming]
        Asked::Waits
    }

    /// Machines were lost: leaves their waiters out. Returns those that get something: all, if the lock is lost; else
    /// the next one, since one that would have brought it back may be lost [next-is-coming].
    pub(super) fn heed(&mut self, record: &Record, is_lost: impl Fn(u16) -> bool) -> Vec<(W, Pass)> {
        self.waiting.retain(|waiting| !is_lost(waiting.machine));
        match record.lost(&is_lost) {
            Some(machine) => self.all_lost(machine),
            None => self.freed(record, is_lost).into_iter().collect(),
        }
    }

    /// Takes all waiters out, of a lock that is lost with this machine.
    fn all_lost(&mut self, machine: u16) -> Vec<(W, Pass)> {
        self.waiting.drain(..).map(|waiting| (waiting.waiter, Pass::Lost(machine))).collect()
    }

    /// Takes the first waiter out that is not lost.
    fn pop(&mut self, is_lost: impl Fn(u16) -> bool) -> Option<Waiting<W>> {
        while self.waiting.pop_front_if(|first| is_lost(first.machine)).is_some() {}
        self.waiting.pop_front()
    }

    /// The lock was freed, or a waiter that was woken has gone. Returns the next waiter, with what it gets.
    pub(super) fn freed(&mut self, record: &Record, is_lost: impl Fn(u16) -> bool) -> Option<(W, Pass)> {
        let first = self.pop(is_lost)?;
        let others = self.mark();
        if !first.is_due {
            // Freed, with no mark: this one brings it back. [next-is-coming]
            return Some((first.waiter, Pass::Again(others.min(Mark::Waited))));
        }
        match record.take_or_mark(others, Mark::Due, first.machine) {
            Some(taken) => Some((first.waiter, Pass::Lock(taken))),
            None => {
                self.waiting.push_front(first);
                None
            }
        }
    }

    /// The lock came back from a holder on this machine, with the object. Returns the next waiter, with what it gets;
    /// all, if the lock is lost.
    pub(super) fn came_back(
        &mut self,
        record: &Record,
        (name, poisons): (Name, bool),
        holder: u16,
        is_lost: impl Fn(u16) -> bool,
    ) -> Vec<(W, Pass)> {
        if let Some(machine) = record.lost(&is_lost) {
            return self.all_lost(machine); // [lost-stays]
        }
        if is_lost(holder) {
            return Vec::new(); // the mutex has another object since
        }
        match self.pop(&is_lost) {
            Some(first) if first.is_due => {
                let is_poisoned = record.hand_on(name, self.mark(), first.machine, poisons);
                vec![(first.waiter, Pass::Lock((name, is_poisoned)))]
            }
            first => {
                record.free(name, poisons);
                first.into_iter().for_each(|first| self.waiting.push_front(first));
                self.freed(record, is_lost).into_iter().collect()
            }
        }
    }

    /// For models: does a waiter of a living machine stand here?
    #[cfg(loom)]
    pub(super) fn has_living(&self, is_lost: impl Fn(u16) -> bool) -> bool {
        self.waiting.iter().any(|waiting| !is_lost(waiting.machine))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::record::Given;
    use super::*;
    use crate::name::{At, Version};

    const HERE: u16 = 0;
    const FIRST: Ask = Ask { is_again: false, is_due: false, machine: HERE };
    const FAR: Ask = Ask { is_again: false, is_due: true, machine: HERE };
    const AGAIN: Ask = Ask { is_again: true, is_due: false, machine: HERE };
    const DUE: Ask = Ask { is_again: true, is_due: true, machine: HERE };

    fn name() -> Name {
        Name { at: At::new(1, 16), version: Version::MIN }
    }

    /// A record that is held, and its queue.
    fn held() -> (Record, Queue<u32>) {
        let record = Record::new(name());
        assert!(record.take(HERE).is_some());
        (record, Queue::default())
    }

    fn waits(record: &Record, queue: &mut Queue<u32>, ask: Ask, waiter: u32) -> bool {
        match queue.ask(record, ask, waiter, is_lost) {
            Asked::Waits => true,
            Asked::Taken(_) => false,
            other => panic!("{waiter}: {other:?}"),
        }
    }

    /// Machine 7 is.
    fn is_lost(machine: u16) -> bool {
        machine == 7
    }

    fn back(queue: &mut Queue<u32>, record: &Record, poisons: bool) -> Option<(u32, Pass)> {
        let mut next = queue.came_back(record, (name(), poisons), HERE, is_lost);
        assert!(next.len() < 2);
        next.pop()
    }

    fn woken(next: Option<(u32, Pass)>) -> Option<(u32, Mark)> {
        next.map(|(waiter, pass)| match pass {
            Pass::Again(mark) => (waiter, mark),
            other => panic!("{waiter} has {other:?}"),
        })
    }

    fn handed(next: Option<(u32, Pass)>) -> Option<u32> {
        next.map(|(waiter, pass)| match pass {
            Pass::Lock(_) => waiter,
            other => panic!("{waiter} has {other:?}"),
        })
    }

    #[test]
    fn waiters_are_waked_one_by_one_in_the_order_of_asking() {
        let (record, mut queue) = held();
        for waiter in 1..=3 {
            assert!(waits(&record, &mut queue, FIRST, waiter));
        }
        assert_eq!(record.give(name(), false), Given::Told);
        assert_eq!(woken(queue.freed(&record, is_lost)), Some((1, Mark::Waited)));
        assert!(record.take(HERE).is_some(), "another one comes before it");
        assert!(waits(&record, &mut queue, AGAIN, 1));
        assert_eq!(record.give(name(), false), Given::Told);
        assert_eq!(woken(queue.freed(&record, is_lost)), Some((1, Mark::Waited)));
        assert!(record.take_as(Mark::Waited, HERE).is_some());
        assert_eq!(record.give(name(), false), Given::Told);
        assert_eq!(woken(queue.freed(&record, is_lost)), Some((2, Mark::Waited)));
        assert_eq!(woken(queue.freed(&record, is_lost)), Some((3, Mark::Held)), "the second one has gone");
        assert_eq!(woken(queue.freed(&record, is_lost)), None);
        assert!(!waits(&record, &mut queue, FIRST, 4), "it is free");
    }

    #[test]
    fn waiters_that_are_due_have_the_lock_next() {
        let (record, mut queue) = held();
        assert!(waits(&record, &mut queue, FIRST, 1));
        assert!(waits(&record, &mut queue, FIRST, 2));
        assert_eq!(record.give(name(), false), Given::Told);
        assert!(record.take(HERE).is_some());
        assert_eq!(woken(queue.freed(&record, is_lost)), Some((1, Mark::Waited)));
        assert!(waits(&record, &mut queue, DUE, 1));
        assert!(waits(&record, &mut queue, AGAIN, 3), "no other one comes before it");
        assert_eq!(record.give(name(), false), Given::Kept);
        assert_eq!(handed(back(&mut queue, &record, false)), Some(1));
        assert_eq!(record.take(HERE), None);
        assert_eq!(record.give(name(), false), Given::Told);
        assert_eq!(woken(queue.freed(&record, is_lost)), Some((3, Mark::Waited)));
        assert_eq!(woken(queue.freed(&record, is_lost)), Some((2, Mark::Held)));
    }

    #[test]
    fn waiters_elsewhere_are_handed_the_lock() {
        let (record, mut queue) = held();
        assert!(waits(&record, &mut queue, FIRST, 1));
        assert!(waits(&record, &mut queue, FAR, 2));
        assert_eq!(record.give(name(), false), Given::Told);
        assert_eq!(woken(queue.freed(&record, is_lost)), Some((1, Mark::Waited)));
        assert_eq!(handed(queue.freed(&record, is_lost)), Some(2), "the first one has gone");
        assert!(waits(&record, &mut queue, FAR, 3));
        assert!(waits(&record, &mut queue, FIRST, 4));
        assert_eq!(handed(back(&mut queue, &record, true)), Some(3));
        assert_eq!(woken(back(&mut queue, &record, false)), Some((4, Mark::Held)));
        assert_eq!(record.take(HERE), Some((name(), true)), "it is free, and poisoned as before");
        assert!(queue.waiting.is_empty());
    }
    #[test]
    fn a_loss_leaves_its_waiters_out_and_wakes_the_next() {
        let (record, mut queue) = held();
        let of_the_lost = |ask| Ask { machine: 7, ..ask };
        assert!(matches!(queue.ask(&record, of_the_lost(FAR), 1, |_| false), Asked::Waits));
        assert!(waits(&record, &mut queue, FIRST, 2));
        assert!(matches!(queue.ask(&record, of_the_lost(FIRST), 3, |_| false), Asked::Waits));
        assert!(waits(&record, &mut queue, FAR, 4));
        let mut heeded = queue.heed(&record, is_lost).into_iter();
        assert_eq!((woken(heeded.next()), heeded.len()), (Some((2, Mark::Waited)), 0));
        assert!(queue.heed(&record, is_lost).is_empty(), "the next one is due when the lock ends");
        assert_eq!(record.give(name(), false), Given::Kept);
        assert_eq!(handed(back(&mut queue, &record, false)), Some(4));
        assert!(queue.waiting.is_empty());
    }

    /// The lost machine's waiters are never chosen, and what it has sent changes nothing.
    #[test]
    fn nothing_is_done_for_a_machine_that_is_lost() {
        let of_the_lost = |ask| Ask { machine: 7, ..ask };
        for ask in [FAR, FIRST] {
            let (record, mut queue) = held();
            let nobody = |_| false;
            assert!(matches!(queue.ask(&record, of_the_lost(ask), 1, nobody), Asked::Waits));
            assert!(waits(&record, &mut queue, ask, 2));
            assert!(matches!(queue.ask(&record, of_the_lost(DUE), 3, is_lost), Asked::Lost(7)), "sent before the loss");
            let next = match record.give(name(), false) {
                Given::Kept => back(&mut queue, &record, false),
                given => {
                    assert_eq!(given, Given::Told);
                    queue.freed(&record, is_lost)
                }
            };
            assert_eq!(next.map(|(waiter, _)| waiter), Some(2));
            assert!(queue.waiting.is_empty());
        }
        // Its end of a lock comes after the mutex was given another object.
        let (record, mut queue) = (Record::new(name()), Queue::<u32>::default());
        assert!(record.take(7).is_some() && record.lost(is_lost) == Some(7) && record.renew(name()));
        assert!(record.take(HERE).is_some());
        assert!(queue.came_back(&record, (name(), false), 7, is_lost).is_empty());
        assert!(record.take(HERE).is_none(), "its holder has it");
    }

    #[test]
    fn a_lock_that_is_lost_is_told_to_all_waiters_and_is_not_handed_on() {
        let record = Record::new(name());
        let mut queue = Queue::default();
        assert!(record.take(7).is_some());
        let known = |machine| machine == 8;
        for waiter in [1, 2] {
            assert!(matches!(queue.ask(&record, FIRST, waiter, known), Asked::Waits), "nobody has told the keeper");
        }
        let told: Vec<_> =
            queue.heed(&record, is_lost).into_iter().map(|(waiter, pass)| (waiter, format!("{pass:?}"))).collect();
        assert_eq!(told, [(1, "Lost(7)".to_owned()), (2, "Lost(7)".to_owned())]);
        assert!(matches!(queue.ask(&record, FAR, 3, known), Asked::Lost(7)));
        assert!(back(&mut queue, &record, false).is_none() && record.take(HERE).is_none());
        let (record, mut queue) = (Record::new(name()), Queue::default());
        assert!(record.take(7).is_some());
        assert!(matches!(queue.ask(&record, FIRST, 1, is_lost), Asked::Lost(7)), "it is seen by those that come later");
    }
}
