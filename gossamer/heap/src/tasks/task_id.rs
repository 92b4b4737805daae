//! Name of a task, the same on all machines.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of the number of a task among those of its maker's machine.
const NUMBER_BITS: u32 = 48;

/// Name of a task, the same on all machines: the machine that made it, and its number there, from 0. Shown as `7`, or
/// `2/7` if machine 2 made it and not machine 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(u64);

impl TaskId {
    /// Returns the next one of this machine.
    pub(super) fn next(machine: u16) -> TaskId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        TaskId::of(machine, NEXT.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) const fn of(machine: u16, number: u64) -> TaskId {
        TaskId((machine as u64) << NUMBER_BITS | number & ((1 << NUMBER_BITS) - 1))
    }

    fn maker(self) -> u16 {
        (self.0 >> NUMBER_BITS) as u16
    }

    fn number(self) -> u64 {
        self.0 & ((1 << NUMBER_BITS) - 1)
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.maker() {
            0 => write!(f, "{}", self.number()),
            maker => write!(f, "{maker}/{}", self.number()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_shown_with_their_maker_and_ordered_by_it() {
        assert_eq!(TaskId::of(0, 7).to_string(), "7");
        assert_eq!(TaskId::of(2, 7).to_string(), "2/7");
        assert!(TaskId::of(0, 9) < TaskId::of(1, 0));
        let first = TaskId::next(3);
        assert!(first < TaskId::next(3));
    }
}
