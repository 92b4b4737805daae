//! Memory of a pool that is being opened: filled from files, then read value by value by the walk, which claims the
//! allocated slots.

#![allow(unsafe_code)]

use super::Memory;
use super::alloc::{Alloc, Misplaced};

impl Memory {
    /// Copies bytes of a file into a pool that is being opened. False if they do not fit.
    #[must_use]
    pub(crate) fn copy_in(&self, at: usize, bytes: &[u8]) -> bool {
        let Some(end) = at.checked_add(bytes.len()) else { return false };
        if self.grow(&mut self.state.borrow_mut().alloc, end).is_err() {
            return false;
        }
        if !bytes.is_empty() {
            // SAFETY: in range, and no reference is in use.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(at as u64), bytes.len()) };
        }
        true
    }

    /// Returns bytes of a pool that is being opened: copied in from a file, or zero.
    pub(crate) fn opened_bytes<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let start = usize::try_from(at).ok()?;
        if start.checked_add(N).is_none_or(|end| end > self.heap.len()) {
            return None;
        }
        let mut bytes = [0; N];
        let there = self.heap.accessible().saturating_sub(start).min(N);
        // SAFETY: accessible, and written, or never touched and so zero. Bytes that are not accessible yet count as
        // zero, too.
        unsafe { self.heap.base().wrapping_add(start).copy_to_nonoverlapping(bytes.as_mut_ptr(), there) };
        Some(bytes)
    }

    /// Same as [`opened_bytes`](Self::opened_bytes), for any length.
    pub(crate) fn opened_slice(&self, at: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(at).ok()?;
        self.grow(&mut self.state.borrow_mut().alloc, start.checked_add(len)?).ok()?;
        // SAFETY: accessible, as above; only the walk writes while the pool is being opened, and it holds no slice
        // then.
        Some(unsafe { std::slice::from_raw_parts(self.heap.base().add(start), len) })
    }

    pub(crate) fn claim(&self, at: u64, bytes: usize) -> Result<(), Misplaced> {
        let alloc = &mut self.state.borrow_mut().alloc;
        // Where growing fails, `claim` finds the slot outside.
        let _ = Alloc::limit_to_claim(at, bytes).map(|limit| self.grow(alloc, limit));
        alloc.claim(at, bytes)
    }

    pub(crate) fn claimed(&self) {
        self.state.borrow_mut().alloc.claimed();
    }
}
