//! Freed memory of a server, and the C library's use of it.

#![allow(unsafe_code)]

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
