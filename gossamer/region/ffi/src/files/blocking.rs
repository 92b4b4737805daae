//! Plain threads of machine 0 that do calls which may block, for threads of all machines.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{affinity, own_stack};

type Job = Box<dyn FnOnce() + Send>;

/// Time after which a thread without work ends.
const IDLE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Threads that wait for a job which they have not been promised.
    idle: usize,
}

/// Threads of one kind, as many as have had work at a time.
pub(super) struct Threads {
    state: Mutex<State>,
    has_job: Condvar,
    /// Run by each thread first.
    begin: fn(),
}

impl Threads {
    pub(super) const fn new(begin: fn()) -> Threads {
        Threads { state: Mutex::new(State { jobs: VecDeque::new(), idle: 0 }), has_job: Condvar::new(), begin }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a thread do a job, which is dropped where the system has no thread for it.
    fn run(&'static self, job: Job) {
        let mut state = self.state();
        if state.idle > 0 {
            state.idle -= 1;
            state.jobs.push_back(job);
            self.has_job.notify_one();
            return;
        }
        drop(state);
        // Where it does not start, the job goes with it.
        own_stack::spawn(Box::new(move || self.serve(job)));
    }

    fn serve(&self, first: Job) {
        affinity::use_all_processors();
        (self.begin)();
        let mut next = Some(first);
        // Ends when no job has come for some time.
        while let Some(job) = next.take() {
            job();
            let mut state = self.state();
            state.idle += 1;
            let wait = self.has_job.wait_timeout_while(state, IDLE, |state| state.jobs.is_empty());
            let (mut state, _) = wait.unwrap_or_else(PoisonError::into_inner);
            next = state.jobs.pop_front();
            if next.is_none() {
                state.idle = state.idle.saturating_sub(1);
            }
        }
    }

    /// In a fiber: has a thread call `f`, and waits for its result while other fibers run. `None`: there is no thread.
    pub(super) fn wait_for<R: Send + 'static>(&'static self, f: impl FnOnce() -> R + Send + 'static) -> Option<R> {
        let (promise, done) = trust::promise();
        let slot = std::sync::Arc::new(Mutex::new(None));
        let to = std::sync::Arc::clone(&slot);
        self.run(Box::new(move || {
            let result = f();
            *to.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            promise.keep(());
        }));
        done.wait().ok()?;
        slot.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
