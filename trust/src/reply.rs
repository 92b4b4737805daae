//! Where a waiting caller gets the outcome of its request.

#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::ptr;

use crate::fiber::FiberRef;
use crate::request::Fault;
use crate::unwind::AbortOnUnwind;
use crate::worker::{self, Worker};

/// Where a waiting caller gets the outcome of its request: on its own stack, which stays while it waits.
pub(crate) struct Reply<U> {
    outcome: UnsafeCell<Option<Result<U, Fault>>>,
    done: Cell<bool>,
    /// The fiber that has suspended itself to wait. None before: an outcome that is there at once (the trustee is gone)
    /// must not make a fiber ready that still runs (S2).
    waiter: Cell<Option<FiberRef>>,
}

impl<U> Reply<U> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Reply { outcome: UnsafeCell::new(None), done: Cell::new(false), waiter: Cell::new(None) }
    }

    /// What fills this reply. Must be called before the reply is dropped: `wait` sees to it.
    #[inline(always)]
    pub(crate) fn answer(&self) -> impl FnOnce(Result<U, Fault>) + use<U> {
        let reply = ptr::from_ref(self);
        move |outcome| {
            // SAFETY: the reply's owner stays in `wait` until `done` is set; same thread, and it does not
            // look at the outcome before.
            unsafe {
                *(*reply).outcome.get() = Some(outcome);
                (*reply).done.set(true);
                let waiter = (*reply).waiter.take();
                worker::with(|worker| worker.resume(waiter));
            }
        }
    }

    /// Not by value: `answer` has the address.
    #[inline(always)]
    pub(crate) fn wait(&self, worker: &Worker) -> Result<U, Fault> {
        self.waiter.set(worker.fiber());
        let guard = AbortOnUnwind;
        worker.wait_until(|| self.done.get());
        std::mem::forget(guard);
        // SAFETY: done, so nothing else looks at the outcome any more.
        match unsafe { (*self.outcome.get()).take() } {
            Some(outcome) => outcome,
            None => unreachable!("done, so there is an outcome"),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::process::Command;
    use std::time::Duration;

    use super::*;
    use crate::park::Bell;

    /// Says so, where the one that waits would go on although an answer still has its address.
    const WENT_ON: &str = "the frame that waits for an answer was unwound";

    /// Panics instead of sleeping.
    struct Cracked;

    impl Bell for Cracked {
        fn park(&self, _: Option<Duration>, _: &mut dyn FnMut() -> bool) {
            panic!("the bell is cracked");
        }
        fn ring(&self) {}
    }

    /// Waits for an answer that is still to come, on a worker whose loop unwinds.
    fn wait_on_a_worker_that_unwinds() {
        let thread = std::thread::spawn(|| {
            worker::with(|worker| {
                assert!(worker.shared.parker.set_bell(Box::new(Cracked)));
                let reply = Reply::<u64>::new();
                let answer = reply.answer();
                let waited = catch_unwind(AssertUnwindSafe(|| reply.wait(worker)));
                println!("{WENT_ON}: {}", waited.is_err());
                std::mem::forget(answer);
                std::process::exit(0);
            })
        });
        let _ = thread.join();
    }

    #[test]
    fn unwinding_out_of_a_wait_ends_the_process() {
        const CHILD: &str = "TRUST_REPLY_CHILD";
        if std::env::var_os(CHILD).is_some() {
            return wait_on_a_worker_that_unwinds();
        }
        let child = Command::new(std::env::current_exe().expect("this program's own file"))
            .args(["--exact", "reply::tests::unwinding_out_of_a_wait_ends_the_process", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .expect("it can be started");
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(said.contains("running 1 test") && !said.contains(WENT_ON), "{said}");
        let complaint = String::from_utf8_lossy(&child.stderr);
        assert!(complaint.contains("the bell is cracked"), "{complaint}");
        let signal = std::os::unix::process::ExitStatusExt::signal(&child.status);
        assert_eq!(signal, Some(libc::SIGABRT), "{complaint}");
    }
}
