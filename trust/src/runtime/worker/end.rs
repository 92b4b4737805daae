//! The end of a worker: no request of another thread is lost without an answer, and none is touched afterwards.
//!
//! In order: it finishes its own work (as far as possible), announces that it closes, serves the requests published
//! before, drops calls that never ran, drops its properties, refuses the requests that came in between, says that it is
//! closed, and leaves the trustees it was a client of; closures that it could not send them in time fail. A client that
//! finds it closing waits until it is closed; from then on the client owns the slots and refuses its own unanswered
//! requests.
//!
//! A worker with a fiber in the middle of its code does not end [begun-fiber-ends]: `current.rs` sees to that.
//!
//! It waits for answers up to a deadline. An answer that comes later is lost. So a trustee that answers a request on
//! which others than its client wait checks whether the client is about to leave ([`is_leaving`]), and then answers by
//! a request of its own.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::config::{EXIT_WAIT_MS, LAST_WORDS_MS, SLOTS};
use crate::deadline::deadline_after;
use crate::ids::TrusteeId;
use crate::park::Presence;
use crate::registry::{self, Message, Shared};
use crate::request::{Host, Pair};
use crate::runtime::watch;
use crate::runtime::worker::Worker;
use crate::unwind::{tell, thread_name};

/// Number of workers that are ending, and of entries in [`OWED`].
static LEAVING: AtomicUsize = AtomicUsize::new(0);
/// Pairs that their clients have left although answers were outstanding. Up to its last batch the trustee of such a
/// pair may come to a request whose answer the client no longer takes.
static OWED: Mutex<Vec<Arc<Pair>>> = Mutex::new(Vec::new());

/// Leaves this pair for good, by `leave`, with answers outstanding. Its trustee reports when it is done with the pair
/// ([`settle_owed`]), unless it is closed.
pub(crate) fn leave_owed(pair: Arc<Pair>, trustee: &Shared, leave: impl FnOnce()) {
    // Before others can see that the client has left.
    LEAVING.fetch_add(1, Ordering::SeqCst);
    OWED.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&pair));
    leave();
    // A trustee that closes after this looks for the pair then (`Worker::end`); a sleeping one needs the wake-up.
    if trustee.send(Message::Nudge).is_err() {
        settle_owed(&pair);
    }
}

/// Takes the pair off the list: its trustee serves no more of its requests.
pub(crate) fn settle_owed(pair: &Pair) {
    if LEAVING.load(Ordering::SeqCst) == 0 {
        return;
    }
    let mut owed = OWED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = owed.iter().position(|other| std::ptr::eq(&raw const **other, pair)) {
        drop(owed.swap_remove(place));
        LEAVING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// May this client no longer take answers? Once it leaves, it waits for a while for answers on their way.
pub(crate) fn is_leaving(client: TrusteeId) -> bool {
    LEAVING.load(Ordering::Relaxed) > 0
        && registry::with(client, |worker| worker.parker.presence() != Presence::Here).unwrap_or(true)
}

impl Worker {
    /// Ends this worker, whose own work is finished. Called once, on its thread, outside any fiber.
    pub(crate) fn end(&self) {
        debug_assert!(self.scheduler.begun() == 0, "a fiber that has begun is not left");
        self.outside.close(&self.shared.parker);
        LEAVING.fetch_add(1, Ordering::SeqCst);
        self.shared.parker.begin_closing();
        let (calls, last) = self.shared.close_inbox();
        self.run_calls(calls);
        let last = last.into_iter().filter(|message| !matches!(message, Message::Ready(_)));
        let (never_run, last): (VecDeque<_>, VecDeque<_>) =
            last.partition(|message| matches!(message, Message::Spawn(_) | Message::Run(_)));
        never_run.into_iter().for_each(|entry| self.drop_unrun(entry));
        self.handle_all(last);
        // Bounded: a client that goes on sending is refused below or finds the trustee closed.
        self.serve();
        self.settle();
        self.drop_new_fibers();
        self.launches.abandon(self);
        self.settle();
        // From here on a trust of this trustee may be of a property that is freed: its use by the destructors and
        // callbacks below is refused like a request to a trustee that is gone.
        self.home.set(TrusteeId::NOBODY);
        // Waiters that callbacks have put there meanwhile; no more can come from here on.
        self.launches.lines.abandon(self);
        self.settle();
        while !self.property_table().is_empty() {
            self.property_table().close(super::reclaim::destroy);
            self.settle();
        }
        self.refuse_and_close();
        self.shared.slab.close();
        self.shared.fibers.hide();
        let is_last = registry::unregister(self.id);

        // Dropped properties may have held trusts of others. Time used up before must not take the last messages'
        // share.
        self.finish_outgoing(deadline_after(Duration::from_millis(LAST_WORDS_MS)));
        self.launches.close();
        self.drop_new_fibers();
        self.leave();
        LEAVING.fetch_sub(1, Ordering::SeqCst);
        if is_last {
            watch::end();
        }
    }

    /// Runs the loop until none of this worker's own work is left, or time is up: with `waits_for_fibers` there is no
    /// limit for fibers in the middle of their code. True if there still is such a fiber.
    pub(crate) fn finish_own(&self, waits_for_fibers: bool) -> bool {
        let deadline = deadline_after(Duration::from_millis(EXIT_WAIT_MS));
        let mut is_late = false;
        while self.has_own_work() {
            let busy = self.turn();
            if !is_late && Instant::now() > deadline {
                is_late = true;
                self.tell_what_is_late();
            }
            if is_late && !(waits_for_fibers && self.scheduler.begun() > 0) {
                break;
            }
            self.run_others();
            if !busy && !self.launches.lines.let_missed_on(self) {
                let limit = Duration::from_millis(1);
                let _ = self.shared.parker.park(Some(limit), || self.has_work());
                self.reactor.look_next();
            }
        }
        self.scheduler.begun() > 0
    }

    fn tell_what_is_late(&self) {
        let thread = thread_name();
        let names = self.scheduler.names_of_begun();
        let late = if names.is_empty() { "requests" } else { &names };
        tell(format_args!("the thread {thread} ends, and {late} did not come to an end in {EXIT_WAIT_MS} ms"));
    }

    /// Sets how to run the thread's other workers while this one waits in its end: it may wait for them.
    pub(crate) fn set_meanwhile(&self, run: Rc<dyn Fn()>) {
        *self.meanwhile.borrow_mut() = Some(run);
    }

    fn run_others(&self) {
        self.runs_others();
    }

    /// Runs the thread's other workers if this one waits in its end. False if it does not, or there are none.
    pub(crate) fn runs_others(&self) -> bool {
        let run = self.meanwhile.borrow().clone();
        run.map(|run| run()).is_some()
    }

    /// Drops fibers that did not begin in time, and those that were started since.
    fn drop_new_fibers(&self) {
        while let Some(run) = self.scheduler.take_new() {
            self.drop_unrun(run);
        }
    }

    fn finish_outgoing(&self, deadline: Instant) {
        // Settled before each look: refused requests, here or there, may have to be taken elsewhere.
        self.settle();
        while self.is_sending() && Instant::now() < deadline {
            self.run_others();
            if !self.exchange() {
                std::thread::yield_now();
            }
            self.settle();
        }
        self.give_up();
    }

    fn refuse_and_close(&self) {
        let incoming = self.incoming();
        for client in incoming.iter() {
            for _ in 0..SLOTS {
                self.delegated(|| client.refuse());
            }
        }
        self.shared.parker.close();
        // Its inbox is closed too: a client that leaves a pair from here on settles it itself.
        incoming.iter().for_each(|client| settle_owed(client.pair()));
        for client in incoming.iter() {
            // The news for the client is the closed state, and the refusals.
            let _ = client.client.parker.publish(|| ());
        }
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::Threadpool;
    use std::sync::atomic::AtomicBool;

    /// A thread that ends while its trustee is in one closure, for longer than the thread waits: an answer given
    /// meanwhile has to check for that, and only up to then.
    #[test]
    fn a_thread_that_left_answers_behind_is_forgotten_when_they_are_given() {
        static IS_HELD: AtomicBool = AtomicBool::new(true);
        let pool = Threadpool::builder().workers(1).pin(false).build();
        let counter = pool.entrust(0);
        let client = counter.clone();
        let thread = std::thread::spawn(move || {
            let hold = |_: &mut i32| {
                while IS_HELD.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
            };
            client.apply_then(hold, |()| {});
            crate::local_trustee().id()
        });
        let id = thread.join().unwrap();
        assert!(is_leaving(id) && !OWED.lock().unwrap().is_empty());
        IS_HELD.store(false, Ordering::SeqCst);
        counter.apply(|_| ());
        // Other threads that run beside this one may be ending for a while.
        while LEAVING.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        assert!(OWED.lock().unwrap().is_empty());
    }
}
