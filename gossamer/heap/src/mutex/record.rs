//! The record of a mutex: a word that says whether it is free, and the name of the object while it is. Lockers that
//! have it mapped take it by one compare-and-swap, and so do those that others have woken; the keeper, a trustee, keeps
//! the queue of all that found it held (`queue.rs`).
//!
//! Invariants
//! - [mark-tells] While the word is `WAITED` or `DUE`, the end of its lock sends the keeper a message: it says that the
//!   word is free now, or it has the object. Only the keeper sets these marks on a lock that is held; a waiter that it
//!   has woken sets `WAITED` with its own lock.
//! - [due-is-kept] A word that is `DUE` is freed, or left to a waiter, by the keeper only.
//! - The name is written by the holder of the lock, and read by the next one.
//! - [holder-is-known] The word of a lock that is held has the machine of the holder, from the step on that takes it. A
//!   living holder's machine never counts as lost; one that is lost stores nothing any more, so its word stays held.
//! - [lost-stays] A lock whose holder is lost becomes `LOST` and is never taken again: the holder may have ended amid a
//!   store to the object, and the name in the record is of a room that is free if it had moved the object.

#[cfg(not(loom))]
use std::hint::spin_loop;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(loom)]
use loom::hint::spin_loop;
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

use crate::name::{At, Name, Version};

const FREE: u64 = 0;
/// Beside those of `Mark`: the holder's machine was lost [lost-stays].
const LOST: u64 = 4;
const STATES: u64 = 7;
/// Beside the state: a panic unwound through a lock.
const POISONED: u64 = 8;
/// Beside the state, unless it is free: the holder's machine [holder-is-known].
const HOLDER_SHIFT: u32 = 16;

/// Times a waiter looks whether the lock is free before it asks the keeper: some turns that do not wait for anything.
const LOOKS: usize = if cfg!(loom) { 1 } else { 64 };

/// The state of a lock that is held: what its end has to do for those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub(super) enum Mark {
    /// Nobody waits.
    Held = 1,
    /// Others wait: the holder frees it, then tells the keeper, which wakes one.
    Waited = 2,
    /// It is one waiter's turn: the holder gives it to the keeper, which hands it on.
    Due = 3,
}

impl Mark {
    /// The word of a lock that this machine holds.
    #[inline(always)]
    fn held_by(self, machine: u16) -> u64 {
        self as u64 | u64::from(machine) << HOLDER_SHIFT
    }
}

/// How a lock has ended.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// It is free.
    Free,
    /// It is free, and the keeper is to be told.
    Told,
    /// It is held still: the keeper is to have the object.
    Kept,
}

/// The record, at its place in the heap.
#[repr(C)]
pub(super) struct Record {
    state: AtomicU64,
    at: AtomicU64,
    version: AtomicU64,
}

/// The words of a record of a free mutex with this object, as they lie in the heap.
pub(super) fn words(name: Name) -> [u64; 3] {
    [FREE, name.at.to_word(), name.version.get()]
}

/// The object, for who has taken the lock; and whether it is poisoned.
pub(super) type Taken = (Name, bool);

impl Record {
    /// Takes the lock for this machine, if it is free.
    #[inline]
    pub(super) fn take(&self, machine: u16) -> Option<Taken> {
        // It is free and whole, most often: a load before would fetch the line twice where others have written it.
        // Acquire, with the Release in `give` and `free`: the name, and the contents of the object.
        let held = Mark::Held.held_by(machine);
        match self.state.compare_exchange(FREE, held, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some((self.name(), false)),
            Err(state) if state & STATES == FREE => self.take_as(Mark::Held, machine),
            Err(_) => None,
        }
    }

    /// Same as `take`, with a mark.
    pub(super) fn take_as(&self, mark: Mark, machine: u16) -> Option<Taken> {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & STATES == FREE {
            let held = state | mark.held_by(machine);
            // Acquire, with the Release in `give` and `free`: as in `take`.
            match self.state.compare_exchange_weak(state, held, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some((self.name(), state & POISONED != 0)),
                Err(now) => state = now,
            }
        }
        None
    }

    /// Same as `take_as`; looks again for a while, unless it is another one's turn.
    pub(super) fn take_soon(&self, mark: Mark, machine: u16) -> Option<Taken> {
        for _ in 0..LOOKS {
            match self.state.load(Ordering::Relaxed) & STATES {
                FREE => {
                    if let Some(taken) = self.take_as(mark, machine) {
                        return Some(taken);
                    }
                }
                state if state >= Mark::Due as u64 => return None,
                _ => {}
            }
            spin_loop();
        }
        None
    }

    /// Ends the lock, with the object.
    #[inline]
    pub(super) fn give(&self, name: Name, poisons: bool) -> Given {
        self.set_name(name);
        let mut state = self.state.load(Ordering::Relaxed);
        while state & STATES < Mark::Due as u64 {
            let free = state & POISONED | if poisons { POISONED } else { 0 };
            // Release, with the Acquire in `take`.
            match self.state.compare_exchange_weak(state, free, Ordering::Release, Ordering::Relaxed) {
                Ok(_) if state & STATES == Mark::Held as u64 => return Given::Free,
                Ok(_) => return Given::Told, // [mark-tells]
                Err(now) => state = now,
            }
        }
        Given::Kept // [due-is-kept]
    }

    /// By the keeper: takes the lock with this mark for this machine if it is free, else marks it as `held`.
    pub(super) fn take_or_mark(&self, free: Mark, held: Mark, machine: u16) -> Option<Taken> {
        loop {
            if let Some(taken) = self.take_as(free, machine) {
                return Some(taken);
            }
            let state = self.state.load(Ordering::Relaxed);
            if state & STATES == FREE {
                continue;
            }
            let marked = state & !STATES | (state & STATES).max(held as u64); // [lost-stays]
            // Relaxed: nothing is handed over by it.
            if self.state.compare_exchange(state, marked, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return None;
            }
        }
    }

    /// By the keeper, which has the lock back from its holder: keeps it held for a waiter of this machine, with this
    /// mark. Returns whether it is poisoned.
    pub(super) fn hand_on(&self, name: Name, mark: Mark, machine: u16, poisons: bool) -> bool {
        self.set_name(name); // the waiter gets the object by a message; `restore` finds it here
        self.change(mark.held_by(machine), poisons, Ordering::Release) // with the Acquire in `take`, after `restore`
    }

    /// By the keeper, which has the lock back from its holder: frees it.
    pub(super) fn free(&self, name: Name, poisons: bool) {
        self.set_name(name);
        self.change(FREE, poisons, Ordering::Release); // with the Acquire in `take`
    }

    /// Sets the state, whoever else changes the poison. Returns whether it is poisoned.
    fn change(&self, to: u64, poisons: bool, order: Ordering) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let new = state & POISONED | to | if poisons { POISONED } else { 0 };
            match self.state.compare_exchange(state, new, order, Ordering::Relaxed) {
                Ok(_) => return new & POISONED != 0,
                Err(now) => state = now,
            }
        }
    }

    /// Returns the lost machine that held the lock, or still does [lost-stays].
    pub(super) fn lost(&self, is_lost: impl Fn(u16) -> bool) -> Option<u16> {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let machine = (state >> HOLDER_SHIFT) as u16;
            match state & STATES {
                LOST => return Some(machine),
                FREE => return None,
                _ if !is_lost(machine) => return None,
                _ => {}
            }
            // Relaxed: nothing is handed over by it.
            let lost = state & !STATES | LOST;
            match self.state.compare_exchange(state, lost, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(machine),
                Err(now) => state = now,
            }
        }
    }

    /// By the keeper: frees a lock of a lost machine, poisoned. The object is that of the last rest, which its holder
    /// has copied.
    pub(super) fn restore(&self, is_lost: impl Fn(u16) -> bool) {
        let state = self.state.load(Ordering::Relaxed);
        let machine = (state >> HOLDER_SHIFT) as u16;
        if !matches!(state & STATES, FREE | LOST) && is_lost(machine) {
            // Nobody else changes it meanwhile. Release, with the Acquire in `take`: the name.
            self.state.store(FREE | POISONED, Ordering::Release);
        }
    }

    /// Frees a lock that is lost, for this new object.
    pub(super) fn renew(&self, name: Name) -> bool {
        if self.state.load(Ordering::Relaxed) & STATES != LOST {
            return false;
        }
        self.set_name(name);
        self.state.store(FREE, Ordering::Release); // with the Acquire in `take`; nobody else changes it [lost-stays]
        true
    }

    pub(super) fn clear_poison(&self) {
        self.state.fetch_and(!POISONED, Ordering::Relaxed);
    }

    /// The object of the last rest.
    pub(super) fn name(&self) -> Name {
        let (at, version) = (self.at.load(Ordering::Relaxed), self.version.load(Ordering::Relaxed));
        let version = Version::new(version).unwrap_or_else(|| unreachable!("versions are not zero"));
        Name { at: At::from_word(at), version }
    }

    fn set_name(&self, name: Name) {
        self.at.store(name.at.to_word(), Ordering::Relaxed);
        self.version.store(name.version.get(), Ordering::Relaxed);
    }

    /// For models: a record outside of the heap.
    #[cfg(any(test, loom))]
    pub(super) fn new(name: Name) -> Record {
        let [state, at, version] = words(name).map(AtomicU64::new);
        Record { state, at, version }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const HERE: u16 = 0;

    fn name(version: u64) -> Name {
        Name { at: At::new(1, 16), version: Version::new(version).unwrap() }
    }

    #[test]
    fn the_end_of_a_lock_frees_it_unless_it_is_one_waiters_turn() {
        let record = Record::new(name(1));
        assert_eq!(record.take(HERE), Some((name(1), false)));
        assert_eq!((record.take(HERE), record.take_soon(Mark::Held, HERE)), (None, None));
        assert_eq!(record.give(name(2), false), Given::Free);
        assert_eq!(record.take_or_mark(Mark::Held, Mark::Waited, HERE), Some((name(2), false)));
        assert_eq!(record.take_or_mark(Mark::Held, Mark::Waited, HERE), None);
        assert_eq!(record.give(name(3), false), Given::Told);
        assert_eq!(record.take(HERE), Some((name(3), false)), "it is free for all");
        assert_eq!(record.give(name(3), false), Given::Free, "the mark has gone with the lock before");
        assert_eq!(record.take_soon(Mark::Waited, HERE), Some((name(3), false)));
        assert_eq!(record.take_or_mark(Mark::Held, Mark::Due, HERE), None);
        assert_eq!(record.take_or_mark(Mark::Held, Mark::Waited, HERE), None, "a turn stays one");
        assert_eq!(record.give(name(4), false), Given::Kept);
        assert_eq!(record.take(HERE), None);
        assert!(!record.hand_on(name(4), Mark::Waited, HERE, false));
        assert_eq!(record.give(name(5), false), Given::Told);
        assert_eq!(record.take(HERE), Some((name(5), false)));
    }

    #[test]
    fn poison_stays_until_it_is_cleared() {
        let record = Record::new(name(1));
        record.take(HERE);
        assert_eq!(record.give(name(1), true), Given::Free);
        assert_eq!(record.take(HERE), Some((name(1), true)));
        assert_eq!(record.take_or_mark(Mark::Held, Mark::Waited, HERE), None);
        assert_eq!(record.give(name(1), false), Given::Told);
        assert_eq!(record.take_soon(Mark::Held, HERE), Some((name(1), true)));
        assert_eq!(record.take_or_mark(Mark::Held, Mark::Due, HERE), None);
        assert!(record.hand_on(name(1), Mark::Held, HERE, false), "it was poisoned before");
        record.clear_poison();
        assert!(!record.hand_on(name(1), Mark::Held, HERE, false));
        record.free(name(2), true);
        assert_eq!(record.take(HERE), Some((name(2), true)));
    }

    #[test]
    fn a_lock_of_a_lost_machine_is_restored_as_it_was_at_rest() {
        let record = Record::new(name(1));
        let is_lost = |machine| machine == 7;
        record.restore(is_lost);
        assert_eq!(record.take(6), Some((name(1), false)), "it was free");
        record.restore(is_lost);
        assert_eq!(record.take(6), None, "another one holds it");
        assert!(!record.hand_on(name(5), Mark::Waited, 7, false));
        record.restore(is_lost);
        assert_eq!(record.take(6), Some((name(5), true)));
    }

    #[test]
    fn a_lock_is_lost_with_its_holder_and_stays_so_until_it_is_renewed() {
        let record = Record::new(name(1));
        let is_lost = |machine| machine == 7;
        assert_eq!(record.lost(is_lost), None);
        assert!(record.take(6).is_some());
        assert_eq!(record.lost(is_lost), None, "another one holds it");
        assert_eq!(record.give(name(2), true), Given::Free);
        assert!(record.take(7).is_some());
        assert!(!record.renew(name(3)));
        assert_eq!(record.take_or_mark(Mark::Held, Mark::Due, 6), None);
        assert_eq!((record.lost(|_| false), record.lost(is_lost)), (None, Some(7)));
        record.clear_poison();
        assert_eq!((record.take(6), record.take_soon(Mark::Held, 6)), (None, None));
        assert_eq!(record.take_or_mark(Mark::Held, Mark::Due, 6), None);
        assert_eq!(record.lost(|_| false), Some(7), "for those that do not know of the loss too");
        assert_eq!(record.give(name(4), false), Given::Kept);
        assert!(record.renew(name(9)));
        assert_eq!(record.take(6), Some((name(9), false)));
        assert!(!record.hand_on(name(9), Mark::Waited, 7, false));
        assert_eq!(record.lost(is_lost), Some(7), "one that was handed to it");
    }
}
