//! Freed memory of a server, and the C library's use of it.

#![allow(unsafe_code)]

use std::sync::Mutex;
use std::time::Instant;

/// The start of the last [`give_back_since`] that had something to do.
static GIVEN_BACK: Mutex<Option<Instant>> = Mutex::new(None);

/// Large blocks are mapped one by one, and the top of the heap is given back: the C library would else raise both
/// limits as blocks of a server come and go, up to 32 MiB, and keep memory freed below them in pieces for each thread.
pub fn give_back_what_is_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets limits of the allocator; called before there are other threads.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 64 << 10);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 128 << 10);
    }
}

/// Gives freed pages between blocks in use back to the system, unless that was done after `freed`: the limits above do
/// nothing for small blocks that lie between those of others. Returns false where another thread is doing it.
pub fn give_back_since(freed: Instant) -> bool {
    let Ok(mut last) = GIVEN_BACK.try_lock() else { return false };
    if last.is_none_or(|last| last < freed) {
        *last = Some(Instant::now());
        #[cfg(target_env = "gnu")]
        // SAFETY: without preconditions; the allocator takes its own locks.
        unsafe {
            libc::malloc_trim(0);
        }
    }
    true
}
