//! End of a pool with nothing lost: it waits until all workers are quiet, then ends them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::PoolWorker;
use crate::api::dump::Dump;
use crate::config::{DROP_TELL_MS, WATCH_ANSWER_MS};
use crate::ids::TrusteeId;
use crate::registry::{Message, Shared};
use crate::runtime::worker::{self, Worker};

/// Rest of a pool that is being dropped.
pub(super) struct Ending {
    pub(super) workers: Vec<PoolWorker>,
    /// Trustees that the workers run beside their own.
    pub(super) seats: Vec<Arc<Shared>>,
    pub(super) stop: Arc<AtomicBool>,
}

impl Ending {
    pub(super) fn includes(&self, id: TrusteeId) -> bool {
        self.all().any(|worker| worker.id == id)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Shared>> {
        self.workers.iter().map(|worker| &worker.shared).chain(&self.seats)
    }

    fn dump(&self) -> Dump {
        let workers: Vec<_> = self.all().cloned().collect();
        Dump::of(&workers, Duration::from_millis(WATCH_ANSWER_MS))
    }

    /// Lets another thread wait. Returns the fibers that remain.
    pub(super) fn give_up(self) -> StillRunning {
        let left = self.dump();
        self.run_elsewhere();
        StillRunning(left)
    }

    /// Lets another thread wait.
    pub(super) fn run_elsewhere(self) {
        let run = move || drop(self.run(None));
        if let Err(error) = thread::Builder::new().name("trust-end".to_owned()).spawn(run) {
            crate::unwind::tell(format_args!("a pool's workers run on: no thread to end them: {error}"));
        }
    }

    /// Waits until the pool is quiet and ends its workers. This thread's own trustee, which the pool's fibers may need,
    /// serves meanwhile.
    ///
    /// # Errors
    /// The rest of the pool, if it has not ended by `end`.
    pub(super) fn run(mut self, end: Option<Instant>) -> Result<(), Ending> {
        let mut tell = Tell::new(end);
        // Workers that were told to stop run to their end, and are never quiet again.
        if !self.stop.load(Ordering::Relaxed) {
            if !tell.wait(&self, |here| !here.is_outstanding_at(|id| self.includes(id)) && self.is_quiet()) {
                return Err(self);
            }
            self.stop.store(true, Ordering::Relaxed);
            for worker in &self.workers {
                let _ = worker.shared.send(Message::Nudge);
            }
        }
        while let Some(worker) = self.workers.last() {
            if !tell.wait(&self, |_| worker.thread.is_finished()) {
                return Err(self);
            }
            if self.workers.pop().is_some_and(|worker| worker.thread.join().is_err()) {
                crate::unwind::tell(format_args!("a worker of a pool panicked; please report this"));
            }
        }
        Ok(())
    }

    /// Returns whether every worker is idle at one and the same moment: each was in the same quiet spell when asked a
    /// first and a second time, and all first reads came before all second ones. Nothing is under way then, for a
    /// worker with an unanswered request is not quiet.
    fn is_quiet(&self) -> bool {
        let spells = || self.all().map(|worker| worker.quiet.spell()).collect::<Vec<_>>();
        let first = spells();
        let messages = self.all().any(|worker| worker.has_messages());
        first.iter().all(Option::is_some) && !messages && first == spells()
    }
}

/// Wait for the end of a pool: its deadline, and the time of its next report.
struct Tell {
    end: Option<Instant>,
    start: Instant,
    /// Time after the start of the next report.
    next: Duration,
}

impl Tell {
    fn new(end: Option<Instant>) -> Tell {
        Tell { end, start: Instant::now(), next: Duration::from_millis(DROP_TELL_MS) }
    }

    /// Serves until `done`. False if the deadline has passed.
    fn wait(&mut self, ending: &Ending, done: impl Fn(&Worker) -> bool) -> bool {
        let is_over = || self.end.is_some_and(|end| Instant::now() >= end);
        loop {
            let is_late = || self.start.elapsed() >= self.next;
            let came = worker::try_with(|here| {
                here.serve_until(|| done(here) || is_over() || is_late());
                done(here)
            });
            // If the thread is ending and has no worker any more, the workers are ended as they are.
            if came != Some(false) {
                return true;
            }
            if is_over() {
                return false;
            }
            // The pool was quiet for a moment only.
            if !is_late() {
                continue;
            }
            let (waited, left) = (self.start.elapsed().as_secs(), ending.dump());
            crate::unwind::tell(format_args!(
                "the end of a pool has waited for {waited} s, for this (`JoinHandle::abort` ends a fiber, \
                 `shutdown_timeout` the wait):\n{left}"
            ));
            self.next = 2 * self.start.elapsed();
        }
    }
}

/// Fibers of a pool that did not end in time, returned by
/// [`Threadpool::shutdown_timeout`](crate::Threadpool::shutdown_timeout). `Display` names them and the wait of each.
#[derive(Debug, thiserror::Error)]
#[error("a pool did not come to its end in time:\n{0}")]
pub struct StillRunning(Dump);

impl StillRunning {
    /// Returns the fibers of the pool with their waits.
    ///
    /// ```
    /// let pool = trust::Threadpool::new(1);
    /// pool.spawn(|| trust::sleep(std::time::Duration::MAX));
    /// let left = pool.shutdown_timeout(std::time::Duration::from_millis(10)).unwrap_err();
    /// println!("{} of its fibers wait", left.dump().fibers());
    /// ```
    pub fn dump(&self) -> &Dump {
        &self.0
    }
}
