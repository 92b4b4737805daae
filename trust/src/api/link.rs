//! Interface for the crate `gossamer`, which carries batches to workers of other machines and back; not for programs.
//!
//! Going remote changes only how a full batch travels: `gossamer` gives each worker a [`Carrier`], through which the
//! worker is a client of every worker of the other machines, and a trustee for each. Suspending, serving and waking
//! stay the same (`remote/`).
//!
//! Each machine has a *service thread*: one more worker, on which no code of the program computes or blocks, so that it
//! answers regardless of the others. It handles requests that concern a machine rather than one of its workers (the
//! number of requests they have made: `reclaim.rs`), and sends those of threads without links to other machines.
//!
//! None of this is documented for programs, but safe code can reach all of it. So each function is either safe wherever
//! it is called (a function that waits refuses to in delegated context and in callbacks) or unsafe. The worker runs the
//! bytes of a carrier as the request they claim to be, and calls a waker from the middle of its loop: [`Carrier`] and
//! [`Waker`] are unsafe traits.

use std::sync::Arc;

use crate::ids::TrusteeId;
use crate::registry::{self, Message};
use crate::runtime::seats::{Asked, Outcome};
use crate::runtime::{watch, worker};
use crate::{Bound, Threadpool, TrusteeReference};

pub use crate::api::moving::moving;
pub use crate::api::place::{
    Wait, begin, call, call_scoped, call_then, drops_old, entrust_remote, is_ending, post, without_waiting,
};
pub use crate::api::reference::{bind_here, entrust_here};
pub use crate::api::watching::{
    Memory, fiber_id, memory, probe, running_fiber, thread_id, thread_state, trace, unanswered,
};
pub use crate::buffer::Buffer;
pub use crate::config::REMOTE_MESSAGE_BYTES_MAX;
pub use crate::cores::quota as cpu_quota;
pub use crate::deadline::{deadline_after, later};
pub use crate::error::panic_text;
pub use crate::ids::worker_id;
pub use crate::park::Waker;
pub use crate::registry::probe::Probe;
pub use crate::registry::set_machine;
pub use crate::remote::Carrier;
pub use crate::request::Operation;
pub use crate::runtime::watch::closures::{LongClosure, long_closures};
pub use crate::runtime::worker::idle::{Contested, set_linger};
pub use crate::stats::Counter;
pub use crate::tasks::line::{wait_in_line, withdraw};
pub use crate::tasks::promise::{LossWatch, promise_at, watch_loss};
pub use crate::trace::{AnswerWait, Event as TraceEvent, Kind as TraceKind, Trace};

/// Bytes shared by a client and a trustee of one process.
pub const PAIR_BYTES: usize = size_of::<crate::request::Pair>();

/// A move of a trustee that was asked for by [`ask_to_move`].
pub struct AskedMove(Arc<Asked>);

impl AskedMove {
    /// Returns the outcome once there is one: the trustee is there, it stays because it is bound to its thread, or
    /// the pool has ended (`None`).
    #[must_use]
    pub fn outcome(&self) -> Option<Result<(), Option<Bound>>> {
        self.0.outcome().map(|outcome| match outcome {
            Outcome::There => Ok(()),
            Outcome::Stays(bound) => Err(Some(bound)),
            Outcome::Ended => Err(None),
        })
    }
}

/// Asks for a move of this trustee of the pool to the worker with this index. Does not wait.
///
/// # Panics
/// If there is no such worker, or no such trustee that moves.
///
/// ```
/// let pool = trust::Threadpool::builder().workers(2).trustees(1).build();
/// let asked = trust::link::ask_to_move(&pool, 0, 1);
/// while asked.outcome().is_none() {
///     std::thread::yield_now();
/// }
/// assert_eq!(asked.outcome(), Some(Ok(())));
/// ```
#[must_use]
pub fn ask_to_move(pool: &Threadpool, trustee: usize, worker: usize) -> AskedMove {
    assert!(worker < pool.settings().workers, "there is no worker {worker}");
    AskedMove(pool.seats()[trustee].ask_to_move(worker, false))
}

/// Gives the calling worker its carrier, if there are other machines, and its waker. Call it once, before the worker
/// serves anything, and after [`set_machine`]. The first worker of a machine to have a carrier is its service thread:
/// attach it before any other worker can be sent a trust.
///
/// # Panics
/// If the worker has them already.
pub fn attach(carrier: Option<Box<dyn Carrier>>, waker: Option<Box<dyn Waker>>) {
    worker::with(|worker| {
        let fresh = waker.is_none_or(|waker| worker.shared.parker.set_waker(waker));
        assert!(fresh && !worker.remote.is_attached(), "a worker is attached once");
        if let Some(carrier) = carrier {
            worker.property_table().know_all();
            worker.remote.attach(worker.id, carrier);
        }
    });
}

/// This machine is lost, and nothing that it sends can arrive any more: the calling worker serves nothing of it, fails
/// its own requests to it ([`Error::Lost`](crate::Error::Lost) if they were sent, [`Error::Gone`](crate::Error::Gone)
/// if not, and all later ones), and closes the properties that it has rather than frees them. To be called on each
/// worker of the calling machine.
///
/// ```
/// trust::link::lose(3); // of no effect on a worker without links
/// assert_eq!(trust::local_trustee().entrust(4).apply(|n| *n), 4);
/// ```
///
/// # Panics
/// In delegated context and in callbacks: it runs callbacks itself.
pub fn lose(machine: u16) {
    worker::with(|worker| {
        worker.assert_may_wait("lose");
        if !worker.remote.is_attached() {
            return;
        }
        watch::rack::lose(machine);
        worker.mark_old();
        worker.remote.lose(worker, machine);
        worker.launches.lose(worker, machine);
    });
}

/// This machine is lost: tells it to the threads of this process that have a trustee and no carrier. Their waits for
/// promised values end, for any machine may have had the promise. To be called once for each loss, beside [`lose`].
///
/// ```
/// trust::link::lose_elsewhere(3); // of no effect where nobody waits
/// ```
pub fn lose_elsewhere(machine: u16) {
    for thread in registry::all() {
        let lose = move || {
            worker::with(|worker| {
                if !worker.remote.is_attached() {
                    worker.launches.lose(worker, machine);
                }
            });
        };
        // A thread that takes no messages has ended, and its waits with it.
        let _ = thread.send(Message::Run(Box::new(lose)));
    }
}

/// Starts the detection of wait cycles across machines, as among the fibers of one machine. `services` are the service
/// threads of all machines, in order; the calling process is machine `own`. Call it once, when its service thread is
/// attached.
///
/// ```no_run
/// use trust::TrusteeReference;
/// use trust::link::worker_id;
///
/// let services = [4, 2].into_iter().zip(0..).map(|(workers, machine)| worker_id(machine, workers));
/// trust::link::watch_rack(&services.map(TrusteeReference::from_id).collect::<Vec<_>>(), 0);
/// ```
pub fn watch_rack(services: &[TrusteeReference], own: u16) {
    let send = |to: TrusteeId, bytes: &[u8]| post(TrusteeReference::from_id(to), watch::rack::received, bytes);
    watch::rack::set(services.iter().map(|service| service.id()).collect(), own, send);
}
