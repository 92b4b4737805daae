//! [`Queue`]: the waiters of a mutex, in the order of asking, and their turns. The keeper's half of the protocol of
//! `record.rs`; no promises and no messages, so that loom runs it.
//!
//! A lock ends by freeing the word, whoever waits. The waiter that is woken then tries again, and newcomers may come
//! before it: handed over by messages, the lock would stand still for as long as these take, and all lockers with it.
//! A waiter that found it held again, and has stood for long, is due: it is handed over. So is a waiter that has the
//! record not mapped, which could only ask again.
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
}

/// A waiter's result.
#[derive(Debug)]
pub(super) enum Pass {
    /// The lock.
    Lock(Taken),
    /// It may be free: try again, and take it with this mark.
    Again(Mark),
}

/// A request for the lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    /// It was woken before: it is the first one again, but for those that are due.
    pub(super) is_again: bool,
    /// The lock is to be handed over.
    pub(super) is_due: bool,
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

    /// Takes the lock if it is free, else the waiter waits, and nothing is returned.
    pub(super) fn ask(&mut self, record: &Record, ask: Ask, waiter: W) -> Option<Taken> {
        let before = self.mark();
        let own = if ask.is_due { Mark::Due } else { Mark::Waited };
        let at = match ask {
            Ask { is_again: false, .. } => self.waiting.len(),
            Ask { is_due: true, .. } => 0,
            _ => self.waiting.iter().take_while(|waiting| waiting.is_due).count(),
        };
        let taken = record.take_or_mark(before, if at == 0 { own } else { before });
        if taken.is_none() {
            self.waiting.insert(at, Waiting { waiter, is_due: ask.is_due }); // [next-is-coming]
        }
        taken
    }

    /// The lock was freed, or a waiter that was woken has gone. Returns the next waiter, with what it gets.
    pub(super) fn freed(&mut self, record: &Record) -> Option<(W, Pass)> {
        let first = self.waiting.pop_front()?;
        let others = self.mark();
        if !first.is_due {
            // Freed, with no mark: this one brings it back. [next-is-coming]
            return Some((first.waiter, Pass::Again(others.min(Mark::Waited))));
        }
        match record.take_or_mark(others, Mark::Due) {
            Some(taken) => Some((first.waiter, Pass::Lock(taken))),
            None => {
                self.waiting.push_front(first);
                None
            }
        }
    }

    /// The lock came back from its holder, with the object. Returns the next waiter, with what it gets.
    pub(super) fn came_back(&mut self, record: &Record, name: Name, poisons: bool) -> Option<(W, Pass)> {
        if self.mark() != Mark::Due {
            record.free(name, poisons);
            return self.freed(record);
        }
        let first = self.waiting.pop_front()?;
        let is_poisoned = record.hand_on(self.mark(), poisons);
        Some((first.waiter, Pass::Lock((name, is_poisoned))))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::record::Given;
    use super::*;
    use crate::name::{At, Version};

    const FIRST: Ask = Ask { is_again: false, is_due: false };
    const FAR: Ask = Ask { is_again: false, is_due: true };
    const AGAIN: Ask = Ask { is_again: true, is_due: false };
    const DUE: Ask = Ask { is_again: true, is_due: true };

    fn name() -> Name {
        Name { at: At::new(1, 16), version: Version::MIN }
    }

    /// A record that is held, and its queue.
    fn held() -> (Record, Queue<u32>) {
        let record = Record::new(name());
        assert!(record.take().is_some());
        (record, Queue::default())
    }

    fn woken(next: Option<(u32, Pass)>) -> Option<(u32, Mark)> {
        next.map(|(waiter, pass)| match pass {
            Pass::Again(mark) => (waiter, mark),
            Pass::Lock(_) => panic!("{waiter} has the lock"),
        })
    }

    fn handed(next: Option<(u32, Pass)>) -> Option<u32> {
        next.map(|(waiter, pass)| match pass {
            Pass::Lock(_) => waiter,
            Pass::Again(_) => panic!("{waiter} is to try again"),
        })
    }

    #[test]
    fn waiters_are_waked_one_by_one_in_the_order_of_asking() {
        let (record, mut queue) = held();
        for waiter in 1..=3 {
            assert!(queue.ask(&record, FIRST, waiter).is_none());
        }
        assert_eq!(record.give(name(), false), Given::Told);
        assert_eq!(woken(queue.freed(&record)), Some((1, Mark::Waited)));
        assert!(record.take().is_some(), "another one comes before it");
        assert!(queue.ask(&record, AGAIN, 1).is_none());
        assert_eq!(record.give(name(), false), Given::Told);
        assert_eq!(woken(queue.freed(&record)), Some((1, Mark::Waited)));
        assert!(record.take_as(Mark::Waited).is_some());
        assert_eq!(record.give(name(), false), Given::Told);
        assert_eq!(woken(queue.freed(&record)), Some((2, Mark::Waited)));
        assert_eq!(woken(queue.freed(&record)), Some((3, Mark::Held)), "the second one has gone");
        assert_eq!(woken(queue.freed(&record)), None);
        assert!(queue.ask(&record, FIRST, 4).is_some(), "it is free");
    }

    #[test]
    fn waiters_that_are_due_have_the_lock_next() {
        let (record, mut queue) = held();
        assert!(queue.ask(&record, FIRST, 1).is_none());
        assert!(queue.ask(&record, FIRST, 2).is_none());
        assert_eq!(record.give(name(), false), Given::Told);
        assert!(record.take().is_some());
        assert_eq!(woken(queue.freed(&record)), Some((1, Mark::Waited)));
        assert!(queue.ask(&record, DUE, 1).is_none());
        assert!(queue.ask(&record, AGAIN, 3).is_none(), "no other one comes before it");
        assert_eq!(record.give(name(), false), Given::Kept);
        assert_eq!(handed(queue.came_back(&record, name(), false)), Some(1));
        assert_eq!(record.take(), None);
        assert_eq!(record.give(name(), false), Given::Told);
        assert_eq!(woken(queue.freed(&record)), Some((3, Mark::Waited)));
        assert_eq!(woken(queue.freed(&record)), Some((2, Mark::Held)));
    }

    #[test]
    fn waiters_elsewhere_are_handed_the_lock() {
        let (record, mut queue) = held();
        assert!(queue.ask(&record, FIRST, 1).is_none());
        assert!(queue.ask(&record, FAR, 2).is_none());
        assert_eq!(record.give(name(), false), Given::Told);
        assert_eq!(woken(queue.freed(&record)), Some((1, Mark::Waited)));
        assert_eq!(handed(queue.freed(&record)), Some(2), "the first one has gone");
        assert!(queue.ask(&record, FAR, 3).is_none());
        assert!(queue.ask(&record, FIRST, 4).is_none());
        assert_eq!(handed(queue.came_back(&record, name(), true)), Some(3));
        assert_eq!(woken(queue.came_back(&record, name(), false)), Some((4, Mark::Held)));
        assert_eq!(record.take(), Some((name(), true)), "it is free, and poisoned as before");
        assert!(queue.waiting.is_empty());
    }
}
