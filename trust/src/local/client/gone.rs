//! Requests whose trustee has closed without an answer, or whose client ends before they could be sent: each is
//! refused, and its continuation is notified.

use super::Outgoing;
use super::walk::{for_each_request, resume_next};
use crate::request::{Fault, Resuming};
use crate::slot::{Body, Reader};
use crate::unwind::quietly;

impl Outgoing {
    /// Refuses every unanswered request, as the trustee is closed.
    #[cold]
    pub(super) fn abandon(&self) {
        self.gone.set(true);
        // SAFETY: closed (Acquire, in `collect`), and the oldest slot has no answer.
        while let Some((slot, body)) = unsafe { self.side.reclaim() } {
            self.refuse(slot, body);
            self.side.release();
        }
        let open = self.body.get();
        if !open.is_null() {
            self.seal();
            self.refuse(self.slot.get(), open);
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
        while let Some(mut queued) = { self.queue.borrow_mut().pop_front() } {
            let (captures, then) = ((&raw mut queued.captures).cast(), (&raw mut queued.then).cast());
            // SAFETY: [request-read-once], [continuation-read-once]: pointers to boxes, each given to its boxed form
            // once.
            quietly(|| unsafe {
                (queued.operation.refuse)(captures);
                let mut resuming = Resuming { responses: Reader::empty(), next: then };
                (queued.continuation.resume)(then, &mut resuming, Some(Fault::Gone));
            });
            self.side.note_drained();
        }
    }

    fn refuse(&self, slot: usize, body: *mut Body) {
        let mut resuming = Resuming { responses: Reader::empty(), next: self.continuations(slot) };
        // SAFETY: [request-read-once]: no thread will run these requests; the body is this client's again.
        unsafe {
            for_each_request(self.side.pair(), body, |operation, at| {
                let next = (operation.refuse)(at);
                // [continuation-read-once]: the continuations of a batch lie in the order of its requests.
                quietly(|| resume_next(&mut resuming, Some(Fault::Gone)));
                next
            });
        }
    }
}
