//! Parts of answers on their way to the asker. The number of waiting bytes is bounded: if a machine answers faster than
//! its parts are taken, the rest is dropped, and the asker is notified. So neither a machine that answers without end
//! nor a stopped viewer fills memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

/// Approximate size of a part besides its bytes.
const PART_BYTES: usize = 128;

/// Bytes that wait, and their limit.
#[derive(Debug)]
pub struct Backlog {
    bytes: AtomicUsize,
    most: usize,
}

/// Bytes of a backlog, until it is dropped.
#[derive(Debug)]
pub struct Held {
    backlog: Arc<Backlog>,
    bytes: usize,
}

impl Backlog {
    /// Makes a backlog of at most so many bytes.
    #[must_use]
    pub fn new(most: usize) -> Arc<Backlog> {
        Arc::new(Backlog { bytes: AtomicUsize::new(0), most })
    }

    /// Takes room for a part of so many bytes, unless that would exceed the limit.
    #[must_use]
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Option<Held> {
        let bytes = bytes + PART_BYTES;
        // A number alone: the waiting parts are synchronised by their queue.
        let held = Held { backlog: Arc::clone(self), bytes };
        (self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.most).then_some(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.backlog.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Part of a machine's answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    /// The next bytes of the answer, and whether they are the last.
    Bytes(Vec<u8>, bool),
    /// The answer was dropped: nothing more comes.
    Dropped,
}

/// A part that waits; it counts until it is dropped.
#[derive(Debug)]
pub struct Given {
    /// The machine that sent it.
    pub machine: u16,
    /// The part.
    pub part: Part,
    _held: Vec<Held>,
}

/// Sending side of the answers.
#[derive(Debug)]
pub struct Giver {
    tell: Sender<Given>,
    backlogs: Vec<Arc<Backlog>>,
    dropped: Vec<u16>,
}

/// Makes a channel for the answers to one question; each part counts in each of these backlogs.
#[must_use]
pub fn channel(backlogs: Vec<Arc<Backlog>>) -> (Giver, Receiver<Given>) {
    let (tell, told) = mpsc::channel();
    (Giver { tell, backlogs, dropped: Vec::new() }, told)
}

impl Giver {
    /// Passes a part on, or drops the machine's answer if too much waits. False if there is no receiver any more.
    pub fn give(&mut self, machine: u16, is_last: bool, bytes: Vec<u8>) -> bool {
        if self.dropped.contains(&machine) {
            return true;
        }
        match self.backlogs.iter().map(|backlog| backlog.hold(bytes.len())).collect() {
            Some(_held) => self.tell.send(Given { machine, part: Part::Bytes(bytes, is_last), _held }).is_ok(),
            None => self.drop_answer(machine),
        }
    }

    /// Drops a machine's answer. False as in [`Giver::give`].
    pub fn drop_answer(&mut self, machine: u16) -> bool {
        if self.dropped.contains(&machine) {
            return true;
        }
        self.dropped.push(machine);
        self.tell.send(Given { machine, part: Part::Dropped, _held: Vec::new() }).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_takes_is_bounded_and_told() {
        let (own, all) = (Backlog::new(10_000), Backlog::new(15_000));
        let (mut one, told) = channel(vec![own, Arc::clone(&all)]);
        let (mut other, told_other) = channel(vec![Backlog::new(10_000), Arc::clone(&all)]);
        for _ in 0..100 {
            assert!(one.give(7, false, vec![0; 1000]) && one.give(8, true, Vec::new()));
            assert!(other.give(9, false, vec![0; 1000]));
        }
        assert!(all.bytes.load(Ordering::Relaxed) <= 15_000);
        let parts =
            |told: &Receiver<Given>| told.try_iter().map(|given| (given.machine, given.part)).collect::<Vec<_>>();
        let (parts_of_one, parts_of_other) = (parts(&told), parts(&told_other));
        for (machine, parts) in [(7, &parts_of_one), (8, &parts_of_one), (9, &parts_of_other)] {
            let dropped = parts.iter().filter(|part| **part == (machine, Part::Dropped)).count();
            assert_eq!(dropped, 1, "machine {machine}");
        }
        // Parts that were taken make room, but not for an answer that has lost a part.
        assert_eq!(all.bytes.load(Ordering::Relaxed), 0);
        assert!(one.give(7, true, vec![0; 10]) && one.give(6, true, vec![0; 10]));
        assert_eq!(parts(&told), [(6, Part::Bytes(vec![0; 10], true))]);
        // So does a receiver that has gone.
        assert!(other.give(5, true, vec![0; 10]));
        drop(told_other);
        assert_eq!(all.bytes.load(Ordering::Relaxed), 0);
        assert!(!other.give(5, true, Vec::new()));
    }
}
