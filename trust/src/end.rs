//! The end of a worker: nothing that others have sent is lost without a word, nothing of it is touched after.
//!
//! In order: its own work is finished (as far as it can be: a fiber that waits for ever is left), it announces
//! that it closes, serves what was published before, drops its properties, refuses what came in between,
//! says that it is closed, and leaves the trustees it was a client of. A client that finds it closing waits
//! until it is closed; from then on the client owns the slots and refuses its own unanswered requests.

use std::time::{Duration, Instant};

use crate::config::{EXIT_WAIT_MS, SLOTS};
use crate::registry::{self, Message, TrusteeId};
use crate::unwind::quietly;
use crate::worker::Worker;

impl Worker {
    /// Ends this worker. Called once, on its thread, outside any fiber.
    pub(crate) fn end(&self) {
        let deadline = Instant::now() + Duration::from_millis(EXIT_WAIT_MS);
        self.outside.close(self);
        self.finish_own(deadline);

        self.shared.parker.begin_closing();
        for message in self.shared.close_inbox() {
            match message {
                // Never to run: what they captured is dropped where nothing may wait.
                Message::Spawn(entry) => self.in_delegated(|| drop(entry)),
                Message::Ready(_) => {}
                message => self.handle(message),
            }
        }
        // Bounded: a client that goes on sending is refused below or finds the trustee closed.
        self.serve();
        self.settle();
        self.launches.abandon(self);
        self.scheduler.close();
        self.settle();
        // From here on a trust of this trustee may be of a property that is freed: whatever the destructors and
        // callbacks below do with it is refused like a request to a trustee that is gone (trap 12).
        self.home.set(TrusteeId::NOBODY);
        while !self.estate().is_empty() {
            self.estate().close();
            self.settle();
        }
        self.refuse_and_close();
        self.shared.homes.close();
        registry::unregister(self.id);

        // Dropped properties may have held trusts of others.
        self.finish_outgoing(deadline);
        self.leave();
    }

    fn finish_own(&self, deadline: Instant) {
        while self.is_awaiting() || self.scheduler.live() > 0 || self.shared.has_mail() {
            let busy = self.turn();
            if Instant::now() > deadline {
                crate::unwind::tell(format_args!(
                    "a thread ends with requests or fibers that did not come to an end in {EXIT_WAIT_MS} ms"
                ));
                break;
            }
            if !busy {
                let limit = Duration::from_millis(1);
                let _ = self.shared.parker.park(Some(limit), || self.has_work());
                self.reactor.look_next();
            }
        }
    }

    /// Runs destructors of things that will not run: nothing in them may wait.
    fn in_delegated(&self, f: impl FnOnce()) {
        let before = self.enter_delegated();
        quietly(f);
        self.leave_delegated(before);
    }

    fn finish_outgoing(&self, deadline: Instant) {
        while self.is_awaiting() && Instant::now() < deadline {
            if !self.exchange() {
                std::thread::yield_now();
            }
        }
    }

    fn refuse_and_close(&self) {
        let incoming = self.incoming();
        for client in incoming.iter() {
            for _ in 0..SLOTS {
                self.in_delegated(|| {
                    client.refuse();
                });
            }
        }
        self.shared.parker.close();
        for client in incoming.iter() {
            // That it is closed, and the refusals, are the work.
            let _ = client.client.parker.publish(|| ());
        }
    }
}
