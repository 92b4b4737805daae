//! The disk thread's time slice.
//!
//! The disk thread sleeps in syncs and runs for some microseconds between them, beside threads that run all the time.
//! Where the scheduler considers the length of slices (Linux 6.12), a waking thread with a short slice preempts those
//! with longer ones; elsewhere it may wait for milliseconds, with the disk idle.

#![allow(unsafe_code)]

/// The shortest slice that Linux grants.
const SLICE_NS: u64 = 100_000;

/// `struct sched_attr`, as of Linux 5.3.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
    least: u32,
    most: u32,
}

const _: () = assert!(size_of::<Attributes>() == 56);

/// Requests a short slice for the calling thread. Its other attributes stay; a system that does not support it refuses,
/// which is ignored.
pub(super) fn shorten() {
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>() as u32;
    // SAFETY: the system writes at most `size` bytes there.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if got != 0 || attributes.policy != libc::SCHED_OTHER as u32 {
        return;
    }
    (attributes.size, attributes.flags, attributes.runtime_ns) = (size, 0, SLICE_NS);
    // SAFETY: the system reads `size` bytes there.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_on_with_a_short_slice() {
        shorten();
        let mut attributes = Attributes::default();
        // SAFETY: as above.
        let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, 56, 0) };
        // Older systems report no slice, or the old one.
        assert!(got != 0 || attributes.policy == libc::SCHED_OTHER as u32, "the policy stays");
    }
}
