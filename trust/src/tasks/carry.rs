//! Running a closure soon, from any thread, on a worker that reaches a trustee.

use crate::ids::{self, TrusteeId};
use crate::registry::{self, Message};
use crate::runtime::worker::{self, Worker};

/// Runs `deliver` on this thread's worker if its loop will send the request. Otherwise runs it in delegated context, on
/// the trustee's own worker or on the service thread, which has a link to the trustee's machine.
pub(crate) fn carry(to: TrusteeId, deliver: impl FnOnce(&Worker) + Send + 'static) {
    let is_local = to.machine() == ids::machine();
    let reaches = worker::existing(|worker| {
        worker.id == to || (!worker.is_outside_loop() && (is_local || worker.remote.is_attached()))
    });
    if reaches == Some(true) {
        return worker::with(deliver);
    }
    // A thread's own code may not get to its loop for long, and the loop may be gone.
    let other = if is_local { registry::find(to) } else { crate::remote::service().and_then(registry::find) };
    if let Some(other) = other {
        let run = move || worker::with(deliver);
        // A worker that takes no more messages has ended, and so have the waiters there.
        let _ = other.send(Message::Run(Box::new(run)));
    }
}
