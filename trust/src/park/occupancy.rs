//! The core that each thread with a trustee runs on, or waits for. An idle worker asks here whether another thread of
//! this process wants the core that it polls on (`idle.rs`). Hints: only time depends on them, so all accesses are
//! Relaxed, and an entry may be old: a worker that computes does not note its move to another core, one that is blocked
//! outside the library seems to run.
//! outside the library seems to run.

use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

/// The number of possible indices of trustees (`registry/mod.rs`).
const THREADS_MAX: usize = 1 << 16;
/// The thread runs code of its own, which computes or is blocked; or there is no such thread.
const UNKNOWN: u16 = 0;
/// Mark of an entry: the thread sleeps, and does not want its core.
const ASLEEP: u16 = 1 << 15;

/// Core of each trustee, by index: [`UNKNOWN`], or one more than the core, perhaps with [`ASLEEP`]. Close together,
/// because an idle worker looks at all of them; they are written only by idle threads and by wakers.
static CORES: [AtomicU16; THREADS_MAX] = [const { AtomicU16::new(UNKNOWN) }; THREADS_MAX];
/// End of the entries that were ever written.
static END: AtomicUsize = AtomicUsize::new(0);

/// Notes that the calling thread, which has this index, is idle, or about to sleep, on the core that it runs on.
pub(crate) fn enter(index: usize) {
    #[expect(
        unsafe_code,
        reason = "a system call; rustix finds its own way into the kernel's page, which valgrind hides"
    )]
    // SAFETY: reads a number.
    let core = unsafe { libc::sched_getcpu() };
    // Where the system gives no answer, all threads seem to share a core: then they give way rather than poll.
    set(index, u16::try_from(core).unwrap_or(0).min(ASLEEP - 2) + 1);
}

/// Notes that the calling thread goes on with code of its own, or ends.
#[inline]
pub(crate) fn leave(index: usize) {
    set(index, UNKNOWN);
}

/// Notes that the calling thread, which has entered, sleeps from now on.
pub(crate) fn sleep(index: usize) {
    set(index, CORES[index].load(Ordering::Relaxed) | ASLEEP);
}

/// Waker: notes that the thread with this index has been woken. It wants its core, and may not run before that is free.
pub(crate) fn wake(index: usize) {
    if CORES[index].load(Ordering::Relaxed) & ASLEEP != 0 {
        // In one step: the thread may run again by itself, and leave.
        CORES[index].fetch_and(!ASLEEP, Ordering::Relaxed);
    }
}

/// Notes that the calling thread, which slept, runs again, perhaps on another core.
pub(crate) fn resume(index: usize) {
    if CORES[index].load(Ordering::Relaxed) & !ASLEEP == UNKNOWN { leave(index) } else { enter(index) }
}

/// Does another thread want the core on which this one has entered?
pub(crate) fn is_wanted(index: usize) -> bool {
    let core = CORES[index].load(Ordering::Relaxed);
    let mut others = CORES[..END.load(Ordering::Relaxed)].iter().enumerate();
    others.any(|(other, entry)| entry.load(Ordering::Relaxed) == core && other != index)
}

fn set(index: usize, entry: u16) {
    // Others read these lines: they are not written without need.
    if CORES[index].load(Ordering::Relaxed) != entry {
        CORES[index].store(entry, Ordering::Relaxed);
        if END.load(Ordering::Relaxed) <= index {
            END.fetch_max(index + 1, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::registry;

    #[test]
    fn a_core_is_wanted_by_who_is_idle_or_woken_there() {
        let thread = std::thread::spawn(move || {
            // Two indices that no other thread has meanwhile. Pinned, so that both are on one core.
            let [me, other] = [(); 2].map(|()| registry::register().expect("ids are left").id);
            // SAFETY: reads a number.
            #[expect(unsafe_code, reason = "a system call")]
            let core = unsafe { libc::sched_getcpu() };
            let core = usize::try_from(core).expect("the system says where a thread runs");
            let mut only = rustix::thread::CpuSet::new();
            only.set(core);
            rustix::thread::sched_setaffinity(None, &only).expect("a thread may stay where it is");
            let is_wanted_by_other = || {
                let with = usize::from(CORES[other.index()].load(Ordering::Relaxed)) == core + 1;
                assert!(is_wanted(me.index()) || !with);
                with
            };
            enter(me.index());
            assert!(!is_wanted_by_other(), "it has not come");
            enter(other.index());
            assert!(is_wanted_by_other(), "it is idle there");
            sleep(other.index());
            assert!(!is_wanted_by_other(), "it sleeps");
            wake(other.index());
            assert!(is_wanted_by_other(), "it was woken");
            sleep(other.index());
            resume(other.index());
            assert!(is_wanted_by_other(), "it has woken");
            leave(other.index());
            wake(other.index());
            resume(other.index());
            assert!(!is_wanted_by_other(), "it has gone");
            registry::unregister(me);
            registry::unregister(other);
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}
