//! The end of a worker: nothing that others have sent is lost without a word, nothing of it is touched after.
//!
//! In order: its own work is finished (as far as it can be), it announces that it closes, serves what was published
//! before, drops what never ran, drops its properties, refuses what came in between, says that it is closed, and leaves
//! the trustees it was a client of; closures that it could not send them in time fail. A client that finds it closing
//! waits until it is closed; from then on the client owns the slots and refuses its own unanswered requests.
//!
//! A worker with a fiber in the middle of its code does not end (S4): `current.rs` sees to that.
//!
//! It waits for answers up to a deadline. An answer that comes later is lost: so who answers a request that others than
//! its client wait for looks whether the client is about to leave ([`is_leaving`]), and then answers by a request of
//! its own.

use std::collections::VecDeque;
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

/// Workers that are at their ends, and [`OWED`].
static LEAVING: AtomicUsize = AtomicUsize::new(0);
/// Pairs that their clients have left although answers were outstanding. Up to its last batch the trustee of such a
/// pair may come to a request whose client takes no answer.
static OWED: Mutex<Vec<Arc<Pair>>> = Mutex::new(Vec::new());

/// Leaves this pair for good, by `leave`, with answers outstanding. Its trustee says when it is done with it
/// ([`settle_owed`]), unless it is closed.
pub(crate) fn leave_owed(pair: Arc<Pair>, trustee: &Shared, leave: impl FnOnce()) {
    // Before it can be seen to have left.
    LEAVING.fetch_add(1, Ordering::SeqCst);
    OWED.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&pair));
    leave();
    // One that closes after this looks for it then (`Worker::end`); one that sleeps would not come to it.
    if trustee.send(Message::Nudge).is_err() {
        settle_owed(&pair);
    }
}

/// The trustee of this pair serves nothing of it any more.
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

/// May it be that this client does not take an answer any more? From when this is so it waits for a while for those
/// that are on their way.
pub(crate) fn is_leaving(client: TrusteeId) -> bool {
    LEAVING.load(Ordering::Relaxed) > 0
        && registry::with(client, |worker| worker.parker.presence() != Presence::Here).unwrap_or(true)
}

impl Worker {
    /// Ends this worker, whose own work is finished. Called once, on its thread, outside any fiber.
    pub(crate) fn end(&self) {
        debug_assert!(self.scheduler.begun() == 0, "a fiber that has begun is not left (S4)");
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
        // From here on a trust of this trustee may be of a property that is freed: whatever the destructors and
        // callbacks below do with it is refused like a request to a trustee that is gone (trap 12).
        self.home.set(TrusteeId::NOBODY);
        // What callbacks have put there meanwhile; nobody can from here on.
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

        // Dropped properties may have held trusts of others. What took up the time before is not to cost them the last
        // word.
        self.finish_outgoing(deadline_after(Duration::from_millis(LAST_WORDS_MS)));
        self.launches.close();
        self.drop_new_fibers();
        self.leave();
        LEAVING.fetch_sub(1, Ordering::SeqCst);
        if is_last {
            watch::end();
        }
    }

    /// Runs the loop until nothing is left of this worker's own work, or time is up: for fibers in the middle of their
    /// code it is not up if `waits_for_fibers`. True if there still is such a fiber.
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

    /// Those that did not begin in time, and those that were started since.
    fn drop_new_fibers(&self) {
        while let Some(run) = self.scheduler.take_new() {
            self.drop_unrun(run);
        }
    }

    fn finish_outgoing(&self, deadline: Instant) {
        // Settled before each look: what was refused, here or there, may have to be taken elsewhere.
        self.settle();
        while self.is_sending() && Instant::now() < deadline {
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
        // Its inbox is closed too: who leaves a pair from here on sees to it itself.
        incoming.iter().for_each(|client| settle_owed(client.pair()));
        for client in incoming.iter() {
            // That it is closed, and the refusals, are the work.
            let _ = client.client.parker.publish(|| ());
        }
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::Threadpool;
    use std::sync::atomic::AtomicBool;

    /// A thread that ends while its trustee is in one closure, for longer than it waits for: who answers then has to
    /// look, and no longer than up to that.
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
        // Others that run beside this one may be at their ends for a while.
        while LEAVING.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        assert!(OWED.lock().unwrap().is_empty());
    }
}
