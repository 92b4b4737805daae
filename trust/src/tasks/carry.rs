//! Having something done by a worker that reaches a trustee soon, from any thread.

use crate::ids::{self, TrusteeId};
use crate::registry::{self, Message};
use crate::runtime::worker::{self, Worker};

/// Has `deliver` done by the worker of this thread where its loop will send it; else by the trustee itself, or by the
/// service thread, which has a link to its machine: there in delegated context.
pub(crate) fn carry(to: TrusteeId, deliver: impl FnOnce(&Worker) + Send + 'static) {
    let is_local = to.machine() == ids::machine();
    let reaches = worker::existing(|worker| {
        worker.id == to || (!worker.is_outside_loop() && (is_local || worker.remote.is_attached()))
    });
    if reaches == Some(true) {
        return worker::with(deliver);
    }
    // A thread's own code may not come to its loop for long, and there may be no loop any more.
    let other = if is_local { registry::find(to) } else { crate::remote::service().and_then(registry::find) };
    if let Some(other) = other {
        let run = move || worker::with(deliver);
        // One that takes no more has ended, and whoever waits there as well.
        let _ = other.send(Message::Run(Box::new(run)));
    }
}
