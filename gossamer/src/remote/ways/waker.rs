//! Sleep of the service thread, which sees to what other threads leave on machine ways.
//!
//! Without traffic it sleeps until it is woken, as any thread, and each write that comes wakes it. While there is
//! traffic it sleeps for [`DOZE`] at a time and looks at all ways in between. Its park word says meanwhile that it is
//! awake, so that writes, and threads that leave something, make no system call for it.
//!
//! Order: it says that it dozes, makes a `SeqCst` fence, and looks for work; a thread that has work for it makes a
//! `SeqCst` fence and looks whether it dozes. One of them sees the other.

#![allow(unsafe_code)] // `Waker` is a promise

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use comm::WorkerId;
use trust::link::Waker;

use super::Ways;
use crate::fate;

/// Longest time for which a frame waits for a thread that sees to it, where all others compute or sleep.
const DOZE: Duration = Duration::from_millis(2);

/// Doze of the service thread, for those that end it.
#[derive(Default)]
pub(super) struct Doze {
    is_on: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Doze {
    /// Ends the doze, if the thread is in one: there is work for it.
    pub(super) fn end(&self) {
        // Pairs with the fence in `doze`.
        fence(Ordering::SeqCst);
        if self.is_on.load(Ordering::Relaxed)
            && self.is_on.swap(false, Ordering::Relaxed)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }
}

/// Waker of the service thread.
pub(in super::super) struct ServiceWaker {
    ways: Arc<Ways>,
    /// Count of what was dealt out, when it last went to sleep.
    dealt: AtomicU64,
}

impl ServiceWaker {
    /// To be made on the service thread.
    pub(in super::super) fn new(ways: Arc<Ways>) -> ServiceWaker {
        let _ = ways.doze.thread.set(std::thread::current());
        ServiceWaker { ways, dealt: AtomicU64::new(0) }
    }

    fn doze(&self, worker: WorkerId, limit: Duration, is_idle: &mut dyn FnMut() -> bool) {
        let Ways { fabric, doze, .. } = &*self.ways;
        doze.is_on.store(true, Ordering::Relaxed);
        // Pairs with the fence in `end`.
        fence(Ordering::SeqCst);
        if is_idle() {
            fabric.will_park(worker);
            std::thread::park_timeout(limit);
        }
        doze.is_on.store(false, Ordering::Relaxed);
    }
}

// SAFETY: neither function calls the library.
unsafe impl Waker for ServiceWaker {
    fn park(&self, limit: Option<Duration>, is_idle: &mut dyn FnMut() -> bool) {
        let ways = &self.ways;
        let thread = ways.layout.service(ways.own).worker;
        let (worker, offset) = (WorkerId(thread), ways.layout.park_word(thread));
        let limit = limit.unwrap_or(Duration::MAX);
        let dealt = ways.dealt.load(Ordering::Relaxed);
        if self.dealt.swap(dealt, Ordering::Relaxed) != dealt || !ways.arrears.is_empty() {
            return self.doze(worker, limit.min(DOZE), is_idle);
        }
        // A thread that leaves something wakes by the park word, and what it leaves is looked for after the word says
        // that this thread sleeps.
        let mut is_idle = || is_idle() && ways.arrears.is_empty();
        if let Err(error) = ways.fabric.park(worker, offset, limit, &mut is_idle) {
            fate::end(&format!("the service thread cannot sleep: {error}"));
        }
    }

    fn wake(&self) {
        let thread = self.ways.layout.service(self.ways.own).worker;
        if let Err(violation) = self.ways.wake(thread) {
            fate::end(&format!("the service thread cannot be woken: {violation}"));
        }
    }
}
