//! Place in which a waiting caller receives the outcome of its request.

#![allow(unsafe_code)]

use std::ptr;

use super::one_shot::{OneShot, WaitingFiber};
use crate::fiber::Waits;
use crate::request::Fault;
use crate::runtime::worker::Worker;
use crate::unwind::AbortOnUnwind;

/// Place in which a waiting caller receives the outcome of its request: on its own stack, which stays while it waits.
///
/// Its waiter is a fiber that has suspended itself. There is none before: an outcome that is there at once (the trustee
/// is gone) must not make a running fiber ready [one-waker].
pub(crate) struct Reply<U>(OneShot<Result<U, Fault>>);

impl<U> Reply<U> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Reply(OneShot::new(WaitingFiber::default()))
    }

    /// Returns the function that fills this reply. It must be called before the reply is dropped: `wait` ensures that.
    #[inline(always)]
    pub(crate) fn answer(&self) -> impl FnOnce(Result<U, Fault>) + use<U> {
        let reply = ptr::from_ref(&self.0);
        // SAFETY: the reply's owner stays in `wait` until it is set; same thread.
        move |outcome| unsafe { (*reply).set(outcome) }
    }

    /// Returns the address for an answer that other trustees will deliver.
    pub(crate) fn address(&self) -> *const () {
        ptr::from_ref(&self.0).cast()
    }

    /// Fills the reply at this address.
    ///
    /// # Safety
    /// The address is that of a `Reply<U>` of this thread, which is awaited and has not been filled.
    pub(crate) unsafe fn answer_at(address: *const (), outcome: Result<U, Fault>) {
        // SAFETY: the caller's promise; as in `answer`.
        unsafe { (*address.cast::<OneShot<Result<U, Fault>>>()).set(outcome) }
    }

    /// Waits for the outcome. Not by value: `answer` has the address.
    #[inline(always)]
    pub(crate) fn wait(&self, worker: &Worker) -> Result<U, Fault> {
        self.0.waiter.set(worker.fiber());
        let guard = AbortOnUnwind;
        worker.wait_until(|| self.0.is_set());
        std::mem::forget(guard);
        self.0.take().unwrap_or_else(|| unreachable!("it is set"))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::process::Command;
    use std::time::Duration;

    use super::*;
    use crate::park::Waker;
    use crate::runtime::worker;

    /// Printed if the waiter would continue although an answer still has its address.
    const WENT_ON: &str = "the frame that waits for an answer was unwound";

    /// Waker that panics instead of sleeping.
    struct Cracked;

    // SAFETY: neither function calls the library.
    unsafe impl Waker for Cracked {
        fn park(&self, _: Option<Duration>, _: &mut dyn FnMut() -> bool) {
            panic!("the waker is cracked");
        }
        fn wake(&self) {}
    }

    /// Waits for an answer that has not come, on a worker with a loop that unwinds.
    fn wait_on_a_worker_that_unwinds() {
        let thread = std::thread::spawn(|| {
            worker::with(|worker| {
                assert!(worker.shared.parker.set_waker(Box::new(Cracked)));
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
            .args(["--exact", "tasks::reply::tests::unwinding_out_of_a_wait_ends_the_process", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .expect("it can be started");
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(said.contains("running 1 test") && !said.contains(WENT_ON), "{said}");
        let complaint = String::from_utf8_lossy(&child.stderr);
        assert!(complaint.contains("the waker is cracked"), "{complaint}");
        let signal = std::os::unix::process::ExitStatusExt::signal(&child.status);
        assert_eq!(signal, Some(libc::SIGABRT), "{complaint}");
    }
}
