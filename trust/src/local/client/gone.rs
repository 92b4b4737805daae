//! Requests whose trustee has closed without an answer, or whose client ends before they could be sent: each is
//! refused, and its continuation is notified.

use super::Outgoing;
use super::walk::{Requests, for_each_request, resume_next};
use crate::request::{Fault, Resuming};
use crate::slot::Reader;
use crate::unwind::quietly;

impl Outgoing {
    /// Refuses every unanswered request, as the trustee is closed.
    #[cold]
    pub(super) fn abandon(&self) {
        self.gone.set(true);
        // SAFETY: closed (Acquire, in `collect`), and the oldest slot has no answer.
        while let Some((slot, body)) = unsafe { self.side.reclaim() } {
            // SAFETY: this client's again, as nothing reads it any more.
            self.refuse(&unsafe { Requests::of(body) }, self.continuations(slot));
            self.release(slot);
        }
        let open = self.body.get();
        if !open.is_null() {
            self.seal();
            let slot = self.slot.get();
            // SAFETY: the open body is this client's.
            self.refuse(&unsafe { Requests::of(open) }, self.continuations(slot));
            self.chunks[slot].take();
        }
        self.refuse_queue();
    }

    /// The client ends: refuses the requests it could not send, and takes no more.
    #[cold]
    pub(crate) fn give_up(&self) {
        self.send_open();
        self.gone.set(true);
        self.refuse_queue();
    }

    fn refuse_queue(&self) {
        while let Some(mut chunk) = { self.queue.borrow_mut().pop() } {
            let (requests, continuations) = chunk.contents();
            self.refuse(&requests, continuations);
            chunk.properties().for_each(|_| self.side.note_drained());
        }
    }

    /// Refuses requests of this client, whose continuations lie from `continuations` on.
    fn refuse(&self, requests: &Requests, continuations: *mut u8) {
        let mut resuming = Resuming { responses: Reader::empty(), next: continuations };
        // SAFETY: [request-read-once]: no thread will run these requests.
        unsafe {
            for_each_request(self.side.pair(), requests, |operation, at| {
                let next = (operation.refuse)(at);
                // [continuation-read-once]: the continuations of a batch lie in the order of its requests.
                quietly(|| resume_next(&mut resuming, Some(Fault::Gone)));
                next
            });
        }
    }
}
