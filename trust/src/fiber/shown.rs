//! The fiber that runs on a thread, for other threads: a monitor of the program asks for it at a worker that does not
//! come to its loop.
//!
//! The thread stores the fiber's record at each switch, as it does for its signal handler (`overflow.rs`): this is the
//! same store. So that a record is not freed while another thread reads it [shown-record]:
//! - the reader announces the record (`looked_at`), has all threads pass a barrier, and reads it only if it is still
//!   the current one;
//! - the thread does not free a record that is looked at. It has stored before that another one, or none, is current.
//!
//! The barrier is a system call of the reader (`membarrier`), so a switch costs no fence: either the thread freed
//! before its barrier, then the reader sees that the record is no longer current; or it comes to free it after, then it
//! sees that it is looked at.

#![allow(unsafe_code)]

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

/// The record of a fiber: its data for the handler of `overflow.rs`, and for other threads.
#[derive(Debug)]
pub(crate) struct FiberInfo {
    /// Addresses of the stack's guard.
    pub(crate) guard: Range<usize>,
    /// The size of the stack that was asked for.
    pub(crate) stack_bytes: usize,
    /// The fiber's number, which stands for the name where there is none.
    pub(crate) id: u64,
    /// The fiber's name.
    pub(crate) name: Option<Box<str>>,
}

/// The record of the fiber that runs on a thread, or null.
pub(crate) struct Current {
    record: AtomicPtr<FiberInfo>,
    /// The record that another thread reads.
    looked_at: AtomicPtr<FiberInfo>,
}

impl Current {
    pub(super) const fn new() -> Current {
        Current { record: AtomicPtr::new(ptr::null_mut()), looked_at: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Thread: makes this one current. Release: the contents of the record; read with Acquire in `look`.
    #[inline(always)]
    pub(super) fn set(&self, record: *const FiberInfo) {
        self.record.store(record.cast_mut(), Ordering::Release);
    }

    /// Thread, and its handler.
    #[inline(always)]
    pub(super) fn get(&self) -> *const FiberInfo {
        self.record.load(Ordering::Relaxed)
    }

    /// Thread: waits until no thread reads this record, which is not current any more and is about to be freed.
    #[inline(always)]
    pub(super) fn before_free(&self, record: *const FiberInfo) {
        // Acquire: with the Release of `look`, so that all reads come before.
        while ptr::eq(self.looked_at.load(Ordering::Acquire), record) {
            std::thread::yield_now();
        }
    }

    /// Another thread, one at a time: reads the current record. `None` if there is none, or it has changed meanwhile.
    fn look<R>(&self, read: impl FnOnce(*const FiberInfo) -> R) -> Option<R> {
        let record = self.record.load(Ordering::Acquire);
        if record.is_null() {
            return None;
        }
        self.looked_at.store(record, Ordering::SeqCst);
        let is_current = barrier() && ptr::eq(self.record.load(Ordering::Acquire), record);
        let found = is_current.then(|| read(record));
        // Release: pairs with the Acquire in `before_free`.
        self.looked_at.store(ptr::null_mut(), Ordering::Release);
        found
    }
}

/// Makes all threads of the process pass a full barrier before it returns true. False where the system has no such
/// call.
fn barrier() -> bool {
    // Commands of <linux/membarrier.h>: the first needs the second once, the last takes milliseconds.
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
    const GLOBAL: libc::c_int = 1;
    // SAFETY: the call takes two numbers, and touches no memory.
    let call = |command: libc::c_int| unsafe { libc::syscall(libc::SYS_membarrier, command, 0) == 0 };
    call(PRIVATE_EXPEDITED) || (call(REGISTER_PRIVATE_EXPEDITED) && call(PRIVATE_EXPEDITED)) || call(GLOBAL)
}

/// Pointer from the shared part of a worker to its thread's [`Current`].
#[derive(Default)]
pub(crate) struct Shown(Mutex<Option<Thread>>);

/// Pointer to the `Current` of a thread that lives.
struct Thread(*const Current);

// SAFETY: the target is made of atomics, and lives until the thread that put it there has taken it away
// (`Shown::hide`).
unsafe impl Send for Thread {}

impl Shown {
    /// Thread: lets others look from here on.
    ///
    /// # Safety
    /// `current` stays where it is until this thread calls [`Shown::hide`].
    pub(crate) unsafe fn show(&self, current: *const Current) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Thread(current));
    }

    /// Thread: ends this, before the thread ends.
    pub(crate) fn hide(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Any thread: name and origin of the fiber that runs there. `None` if none does.
    pub(crate) fn name(&self) -> Option<String> {
        // The lock: one looks at a time, and the thread does not end meanwhile.
        let thread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Thread(current) = thread.as_ref()?;
        // SAFETY: it lives, by `show`.
        // SAFETY: of `name_of`: current, and not freed meanwhile [shown-record].
        unsafe { (**current).look(|record| super::name_of(record)) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use crate::registry;

    /// Fibers come and go while they are looked at: each name that is seen is whole, and all of them run to their ends.
    #[test]
    fn the_fiber_that_runs_is_seen_by_others_while_fibers_come_and_go() {
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        let pool = crate::Threadpool::builder().workers(1).pin(false).build();
        let worker = registry::find(pool.trustees()[0].id()).unwrap();
        let many = pool.spawn(|| {
            let mut made = 0u32;
            while !IS_OVER.load(Ordering::Relaxed) {
                let name = format!("short-{made:0>40}");
                crate::spawn_named(&name, crate::yield_now).join().unwrap();
                made += 1;
            }
            made
        });
        let (mut names, end) = (Vec::new(), Instant::now() + Duration::from_secs(60));
        while names.len() < 500 && Instant::now() < end {
            names.extend(worker.fibers.name());
        }
        IS_OVER.store(true, Ordering::Relaxed);
        assert!(many.join().unwrap() > 0);
        for name in &names {
            let is_short = name.starts_with("fiber 'short-00000") && name.contains("yield_now");
            assert!(is_short || name.contains("the_fiber_that_runs"), "{name}");
        }
        drop(pool);
        assert_eq!(worker.fibers.name(), None, "its thread has ended");
    }

    #[test]
    fn who_computes_is_named() {
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        let pool = crate::Threadpool::builder().workers(1).pin(false).build();
        let worker = registry::find(pool.trustees()[0].id()).unwrap();
        let busy = pool.spawn(|| {
            while !IS_OVER.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let end = Instant::now() + Duration::from_secs(60);
        let mut name = None;
        while name.is_none() && Instant::now() < end {
            name = worker.fibers.name(); // it may not have begun
        }
        IS_OVER.store(true, Ordering::Relaxed);
        busy.join().unwrap();
        let name = name.expect("membarrier is there");
        assert!(name.starts_with("fiber ") && name.contains("who_computes_is_named"), "{name}");
    }
}
