//! Stacks of the program's threads: blocks of the heap. The low end of each is its guard, inaccessible on the machine
//! where the thread has begun, and where it is: an overflow ends the program, as in one process, and does not overwrite
//! the memory below.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::PAGE_BYTES;
use crate::{heap, report};

/// Bytes of a guard, unless the thread's attributes say otherwise.
pub(crate) const GUARD_BYTES: usize = PAGE_BYTES;

/// Most stacks that are kept for the next threads, with their guards.
const KEPT: usize = 4;

/// Stacks of threads that have ended.
static FREE: Mutex<Vec<Stack>> = Mutex::new(vec![]);

fn free() -> MutexGuard<'static, Vec<Stack>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Guards on this machine: start and length.
static GUARDS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn guards() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    GUARDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a page of the heap is a guard on this machine. On a worker the answer holds until the worker does something
/// else: only workers make guards.
pub(crate) fn is_guard(page: usize) -> bool {
    guards().range(..=page).next_back().is_some_and(|(start, bytes)| page < start + bytes)
}

/// A thread's stack, freed on drop unless the program gave it.
pub(crate) struct Stack(Place);

/// Location of a stack.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Place {
    block: usize,
    is_given: bool,
    guard_bytes: usize,
    bytes: usize,
}

impl Stack {
    /// Allocates a stack with room for `bytes` bytes from this machine's part of the heap. `None`: there is no room, or
    /// no guard.
    pub(crate) fn new(bytes: usize, guard_bytes: usize) -> Option<Stack> {
        let guard_bytes = guard_bytes.checked_next_multiple_of(PAGE_BYTES)?;
        {
            let mut free = free();
            let is_like = |stack: &Stack| (stack.0.bytes, stack.0.guard_bytes) == (bytes, guard_bytes);
            if let Some(place) = free.iter().rposition(is_like) {
                return Some(free.swap_remove(place));
            }
        }
        let (block, _) = heap::allocate(bytes.checked_add(guard_bytes)?, PAGE_BYTES)?;
        report::note_stack(block);
        let stack = Stack(Place { block, is_given: false, guard_bytes, bytes });
        stack.0.guard().then_some(stack)
    }

    /// Returns the only stack of this place.
    pub(crate) fn at(place: Place) -> Stack {
        Stack(place)
    }

    pub(crate) fn place(&self) -> Place {
        self.0
    }

    /// Returns the memory that the program gives as a stack.
    pub(crate) fn given(block: usize, bytes: usize) -> Stack {
        Stack(Place { block, is_given: true, guard_bytes: 0, bytes })
    }

    /// Returns the part that the thread may use.
    pub(crate) fn range(&self) -> Range<usize> {
        self.0.range()
    }
}

impl Place {
    /// Returns the part that the thread may use.
    pub(crate) fn range(&self) -> Range<usize> {
        let bottom = self.block + self.guard_bytes;
        bottom..bottom + self.bytes
    }

    /// On a worker: makes the guard on this machine. `false`: the system refuses.
    pub(crate) fn guard(&self) -> bool {
        if self.guard_bytes > 0 {
            guards().insert(self.block, self.guard_bytes);
        }
        let is_done = self.protect(libc::PROT_NONE);
        if !is_done {
            guards().remove(&self.block);
        }
        is_done
    }

    /// Removes the guard on this machine. `false`: the system refuses.
    pub(crate) fn unguard(&self) -> bool {
        let is_done = self.protect(libc::PROT_READ | libc::PROT_WRITE);
        if is_done {
            guards().remove(&self.block);
        }
        is_done
    }

    fn protect(&self, protection: c_int) -> bool {
        let start = std::ptr::with_exposed_provenance_mut(self.block);
        // SAFETY: whole pages of the block, which is this stack's alone. Other machines have page tables of their own;
        // where the heap is a region, its page server changes the mapping there, and never touches it.
        self.guard_bytes == 0 || unsafe { libc::mprotect(start, self.guard_bytes, protection) } == 0
    }
}

/// Ends the program where a guard could not be changed: it would be missing, or be in memory that has another use.
pub(crate) fn or_end(is_done: bool) {
    if !is_done {
        gossamer::link::end(
            "the system does not change the guard of a thread's stack (mprotect): allow the process more mappings \
             (vm.max_map_count)",
        )
    }
}

impl Stack {
    /// Keeps the stack of a thread that has ended for another one, if there is room.
    pub(crate) fn keep(self) {
        let mut free = free();
        if !self.0.is_given && free.len() < KEPT {
            free.push(self);
        }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // If the system refuses, the block is lost, and stays inaccessible.
        if !self.0.is_given && self.0.unguard() {
            heap::free(self.0.block);
        }
    }
}
