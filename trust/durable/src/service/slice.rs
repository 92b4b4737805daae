//! The disk thread's time slice.
//!
//! It sleeps in syncs and runs for some microseconds between them, beside threads that run all the time. Where the
//! scheduler looks at the length of slices (Linux 6.12), a thread with a short one goes before those with longer ones
//! when it wakes; else it may wait for milliseconds, with the disk idle.

#![allow(unsafe_code)]

/// The shortest that Linux grants.
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

/// Asks for a short slice for the calling thread. All else stays as it is; a system that does not know of it says no,
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
        // Older systems tell of no slice, or of the old one.
        assert!(got != 0 || attributes.policy == libc::SCHED_OTHER as u32, "the policy stays");
    }
}
