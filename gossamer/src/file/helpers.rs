//! Threads for calls that block in the operating system, so that no worker does. At most [`THREADS_MAX`] a process,
//! started when there is work and ended when there has been none for a while.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

const THREADS_MAX: usize = 4;
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

struct Helpers {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

static HELPERS: Mutex<Helpers> = Mutex::new(Helpers { jobs: VecDeque::new(), threads: 0, idle: 0 });
static WORK: Condvar = Condvar::new();

fn helpers() -> MutexGuard<'static, Helpers> {
    HELPERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a job on a helper thread. Does not wait, unless the operating system gives no thread at all: then the job runs
/// on the caller.
pub(super) fn run(job: impl FnOnce() + Send + 'static) {
    let mut here = helpers();
    here.jobs.push_back(Box::new(job));
    // Idle threads may have been woken for earlier jobs already.
    if here.idle < here.jobs.len() && here.threads < THREADS_MAX {
        let started = thread::Builder::new().name("gossamer-file".to_owned()).spawn(help);
        here.threads += usize::from(started.is_ok());
        if here.threads == 0 {
            let jobs: Vec<Job> = here.jobs.drain(..).collect();
            drop(here);
            return jobs.into_iter().for_each(|job| job());
        }
    }
    drop(here);
    WORK.notify_one();
}

fn help() {
    let mut here = helpers();
    loop {
        if let Some(job) = here.jobs.pop_front() {
            drop(here);
            // The job's waiter learns of the panic by the broken promise; the panic has been reported.
            let _ = catch_unwind(AssertUnwindSafe(job));
            here = helpers();
            continue;
        }
        here.idle += 1;
        let (guard, wait) = WORK.wait_timeout(here, IDLE).unwrap_or_else(PoisonError::into_inner);
        here = guard;
        here.idle -= 1;
        if wait.timed_out() && here.jobs.is_empty() {
            here.threads -= 1;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::{Arc, Barrier, mpsc};

    use super::*;

    #[test]
    fn jobs_are_done_by_a_few_threads_whatever_becomes_of_one() {
        let (done, doing) = mpsc::channel();
        run(|| panic!("a job that is meant to panic"));
        // As many at a time as there may be threads.
        let together = Arc::new(Barrier::new(THREADS_MAX));
        for job in 0..100 * THREADS_MAX {
            let (done, together) = (done.clone(), Arc::clone(&together));
            run(move || {
                together.wait();
                done.send((job, thread::current().id())).unwrap();
            });
        }
        let all: Vec<_> = doing.iter().take(100 * THREADS_MAX).collect();
        let (jobs, threads): (HashSet<_>, HashSet<_>) = all.into_iter().unzip();
        assert_eq!((jobs.len(), threads.len()), (100 * THREADS_MAX, THREADS_MAX));
    }
}
