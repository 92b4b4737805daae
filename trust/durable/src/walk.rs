//! Typed walk over a pool that is being opened. From the root on, each value is checked before it is used as one, and
//! its allocation is claimed. The walk uses a work list, so a long linked list needs no stack.
//!
//! Invariant: after a walk without damage everything that the root reaches is valid, each allocation has one owner (or
//! several counted ones), and the counts equal the pointers found.

use std::any::TypeId;
use std::collections::HashMap;

use crate::memory::alloc::Misplaced;
use crate::memory::{Memory, ROOT_AT};
use crate::persist::Persist;

/// Bytes that are not a valid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the pool.
    pub at: u64,
    /// The fault.
    pub what: String,
}

type Check = fn(u64, &mut Walk<'_>) -> Result<(), Damage>;

/// Values to check: `count` of them, each of `bytes`.
struct Task {
    at: u64,
    count: u64,
    bytes: u64,
    check: Check,
}

/// An object with reference counts.
pub(crate) struct Counted {
    kind: TypeId,
    pub(crate) strong: u64,
    pub(crate) weak: u64,
}

/// See the file's documentation.
pub struct Walk<'m> {
    memory: &'m Memory,
    tasks: Vec<Task>,
    counted: HashMap<u64, Counted>,
}

impl std::fmt::Debug for Walk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walk").field("tasks", &self.tasks.len()).finish()
    }
}

impl<'m> Walk<'m> {
    /// Walks a pool with a root of type `T`.
    pub(crate) fn all<T: Persist>(memory: &'m Memory) -> Result<(), Damage> {
        let mut walk = Walk { memory, tasks: Vec::new(), counted: HashMap::new() };
        T::check(ROOT_AT, &mut walk)?;
        while let Some(task) = walk.tasks.last_mut() {
            let (at, check) = (task.at, task.check);
            task.at += task.bytes;
            task.count -= 1;
            if task.count == 0 {
                walk.tasks.pop();
            }
            check(at, &mut walk)?;
        }
        for (&at, counted) in &walk.counted {
            crate::types::prc::set_counts(memory, at, counted);
        }
        memory.claimed();
        Ok(())
    }

    pub(crate) fn memory(&self) -> &'m Memory {
        self.memory
    }

    /// Returns the bytes at `at`.
    ///
    /// # Errors
    /// If `at` is outside of the pool.
    pub fn bytes<const N: usize>(&self, at: u64) -> Result<[u8; N], Damage> {
        self.memory.opened_bytes(at).ok_or_else(|| self.damage(at, "it is outside of the pool"))
    }

    pub(crate) fn word(&self, at: u64) -> Result<u64, Damage> {
        self.bytes(at).map(u64::from_ne_bytes)
    }

    /// Returns a description of the damage.
    pub fn damage(&self, at: u64, what: &str) -> Damage {
        Damage { at, what: what.into() }
    }

    /// Claims the allocation of `bytes` at `to` for the owner at `at`.
    pub(crate) fn claim(&mut self, at: u64, to: u64, bytes: usize) -> Result<(), Damage> {
        self.memory.claim(to, bytes).map_err(|why| {
            let what = match why {
                Misplaced::Outside => "outside of the pool",
                Misplaced::Misaligned => "where no value begins",
                Misplaced::Overlap => "at a value that has an owner already",
            };
            self.damage(at, &format!("it points to {to:#x}, {what}"))
        })
    }

    /// Schedules checks of `count` values of `T` from `at` on, in an allocation that is already claimed.
    pub(crate) fn later<T: Persist>(&mut self, at: u64, count: u64) {
        if !T::IS_PLAIN {
            self.later_by(at, count, size_of::<T>(), T::check);
        }
    }

    /// Schedules calls of `check` for `count` values of `bytes` each.
    pub(crate) fn later_by(&mut self, at: u64, count: u64, bytes: usize, check: Check) {
        if count > 0 {
            self.tasks.push(Task { at, count, bytes: bytes as u64, check });
        }
    }

    /// Counts a pointer at `at` to the counted object of `bytes` at `to`. True if it is the first strong one.
    pub(crate) fn count(
        &mut self,
        at: u64,
        to: u64,
        kind: TypeId,
        bytes: usize,
        is_strong: bool,
    ) -> Result<bool, Damage> {
        if !self.counted.contains_key(&to) {
            self.claim(at, to, bytes)?;
            self.counted.insert(to, Counted { kind, strong: 0, weak: 0 });
        }
        let Some(counted) = self.counted.get_mut(&to).filter(|counted| counted.kind == kind) else {
            return Err(self.damage(at, "it points to a value of another type"));
        };
        if is_strong {
            counted.strong += 1;
        } else {
            counted.weak += 1;
        }
        Ok(is_strong && counted.strong == 1)
    }
}
