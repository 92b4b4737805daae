//! Memory of the stacks of one worker, for a monitor of the program: the pages that were touched, as the kernel knows
//! them.
//!
//! The worker notes each mapping of its stacks when it makes and before it gives back one, which is rare; others ask
//! the kernel about these.

#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};

/// The mappings of a worker's stacks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Footprint(Arc<Mutex<Vec<(usize, usize)>>>);

/// Pages that are asked about at a time.
const PAGES_AT_ONCE: usize = 1 << 14;

impl Footprint {
    /// Notes a new mapping.
    pub(super) fn add(&self, base: usize, bytes: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((base, bytes));
    }

    /// Notes that a mapping is about to go.
    pub(super) fn remove(&self, base: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(known, _)| *known != base);
    }

    /// Bytes of the mappings that are in memory.
    pub(crate) fn resident_bytes(&self) -> u64 {
        // The lock: no mapping goes meanwhile.
        let mappings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (page, mut pages) = (page_bytes(), vec![0u8; PAGES_AT_ONCE]);
        let mut resident = 0;
        for &(base, bytes) in mappings.iter() {
            for at in (base..base + bytes).step_by(PAGES_AT_ONCE * page) {
                let part = (base + bytes - at).min(PAGES_AT_ONCE * page);
                let count = part.div_ceil(page);
                // SAFETY: asks about addresses, and writes a byte for each of at most that many pages.
                let done = unsafe { libc::mincore(std::ptr::without_provenance_mut(at), part, pages.as_mut_ptr()) };
                if done == 0 {
                    resident += pages[..count].iter().filter(|flags| **flags & 1 == 1).count() as u64 * page as u64;
                }
            }
        }
        resident
    }
}

pub(super) fn page_bytes() -> usize {
    // SAFETY: sysconf reads a constant of the process. Linux always answers; 4096 stands for an answer that never
    // comes.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use crate::fiber::stack::StackPool;

    #[test]
    fn stacks_count_by_what_was_touched() {
        let mut pool = StackPool::new(64 << 10).unwrap();
        let footprint = pool.footprint();
        assert_eq!(footprint.resident_bytes(), 0, "nothing is mapped");
        let stacks: Vec<_> = (0..40).map(|_| pool.take().unwrap()).collect(); // more than one mapping
        assert_eq!(footprint.resident_bytes(), 0, "nothing was touched");
        for stack in &stacks {
            let last = stack.top().cast::<u8>().wrapping_sub(1);
            // SAFETY: on the stack, which is unused.
            unsafe { last.write_volatile(1) };
        }
        let touched = footprint.resident_bytes();
        assert!((40 * 4096..=40 * (64 << 10)).contains(&touched), "{touched}");
        drop(stacks);
        drop(pool);
        assert_eq!(footprint.resident_bytes(), 0, "its mappings have gone");
    }
}
