//! What all fibers of the process wait for, for people: `dump`.
//!
//! Here: what is told, and in which words. Not here: how workers are asked (`registry/report.rs`), circles
//! (`runtime/watch`).

use std::fmt;
use std::time::{Duration, Instant};

use crate::config::WATCH_ANSWER_MS;
use crate::deadline::deadline_after;
use crate::fiber::record::{Doing, Seen, Wait, now_ms};
use crate::ids::TrusteeId;
use crate::registry::report::{Collection, Report};
use crate::registry::{self, Shared};
use crate::runtime::worker::{self, Context};
use std::sync::Arc;

/// The fibers of this process, by thread: what each waits for, and for how long. See [`dump`].
///
/// `Display` writes a line for each thread and each fiber, those that have waited longest first, and no more than a
/// hundred of each thread.
#[derive(Clone, Debug)]
pub struct Dump {
    threads: Vec<ThreadDump>,
}

#[derive(Clone, Debug)]
struct ThreadDump {
    trustee: TrusteeId,
    name: String,
    /// `None` if it did not answer in time.
    told: Option<Told>,
}

#[derive(Clone, Debug)]
struct Told {
    root: Option<Wait>,
    fibers: Vec<Seen>,
    at_ms: u64,
}

/// So many fibers of a thread are written.
const LINES_MAX: usize = 100;

impl Dump {
    /// How many fibers there are. Those of threads that did not answer are not counted.
    ///
    /// ```
    /// let fiber = trust::spawn(|| trust::sleep(std::time::Duration::from_millis(1)));
    /// assert!(trust::dump().fibers() >= 1);
    /// fiber.join().unwrap();
    /// ```
    pub fn fibers(&self) -> usize {
        self.threads.iter().filter_map(|thread| thread.told.as_ref()).map(|told| told.fibers.len()).sum()
    }

    /// Of these workers. Waits for their answers, but not for long; a thread that may wait serves its trustee
    /// meanwhile.
    pub(crate) fn of(workers: &[Arc<Shared>]) -> Dump {
        let limit = Duration::from_millis(WATCH_ANSWER_MS);
        let here = worker::existing(|here| here.id);
        let (own, others): (Vec<_>, Vec<_>) = workers.iter().cloned().partition(|worker| Some(worker.id) == here);
        let collection = Collection::ask(&others, true);
        let may_serve = worker::existing(|here| here.context() == Context::Free) == Some(true);
        if may_serve {
            let end = deadline_after(limit);
            worker::with(|here| here.serve_until(|| collection.is_complete() || Instant::now() > end));
        } else {
            collection.block(limit);
        }
        let mut reports = collection.take().0;
        if !own.is_empty() {
            reports.extend(worker::existing(|here| here.report(true)));
        }
        let thread = |worker: &Arc<Shared>| {
            let report = reports.iter().position(|report| report.worker == worker.id);
            let report = report.map(|at| reports.swap_remove(at));
            ThreadDump { trustee: worker.id, name: name_of(worker, report.as_ref()), told: report.map(Told::new) }
        };
        Dump { threads: workers.iter().map(thread).collect() }
    }
}

impl Told {
    fn new(Report { root, mut fibers, .. }: Report) -> Told {
        fibers.sort_by_key(|seen| (seen.doing, seen.wait.map_or(u64::MAX, |wait| wait.since_ms), seen.id));
        Told { root, fibers, at_ms: now_ms() }
    }
}

/// The thread's name, from itself or else from the kernel, which cuts it.
fn name_of(worker: &Shared, report: Option<&Report>) -> String {
    report.map(|report| report.thread.clone()).unwrap_or_else(|| {
        let path = format!("/proc/self/task/{}/comm", worker.thread.as_raw_nonzero());
        std::fs::read_to_string(path).map_or_else(|_| String::new(), |name| format!("`{}`", name.trim_end()))
    })
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for thread in &self.threads {
            write!(f, "thread {} ({:?}): ", thread.name, thread.trustee)?;
            let Some(told) = &thread.told else {
                writeln!(f, "does not answer: it runs a closure, a callback or code of its own")?;
                continue;
            };
            write!(f, "{} fibers", told.fibers.len())?;
            if let Some(wait) = &told.root {
                write!(f, "; its own code waits for {}", Waiting(wait, told.at_ms))?;
            }
            writeln!(f)?;
            for seen in told.fibers.iter().take(LINES_MAX) {
                write!(f, "  {} ", seen.name)?;
                match (seen.doing, &seen.wait) {
                    (Doing::Waits, Some(wait)) => writeln!(f, "waits for {}", Waiting(wait, told.at_ms))?,
                    (Doing::Waits, None) => writeln!(f, "waits for an answer, or for room to ask")?,
                    (Doing::Ready, _) => writeln!(f, "is ready to go on")?,
                    (Doing::Runs, _) => writeln!(f, "runs")?,
                    (Doing::New, _) => writeln!(f, "has not begun")?,
                }
            }
            if told.fibers.len() > LINES_MAX {
                writeln!(f, "  and {} more", told.fibers.len() - LINES_MAX)?;
            }
        }
        Ok(())
    }
}

/// A wait, seen at this time.
struct Waiting<'a>(&'a Wait, u64);

impl fmt::Display for Waiting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waited = Duration::from_millis(self.1.saturating_sub(self.0.since_ms));
        write!(f, "{}, since {:.1} s", self.0.awaited, waited.as_secs_f64())
    }
}

/// What all fibers of this process wait for, and for how long: for programs that do not come to an end. Legal
/// everywhere.
///
/// Each thread is asked, and tells when its loop comes to it. One that does not within a tenth of a second (it runs a
/// long closure, or code of its own) is named as one that does not answer. The clock is good to some milliseconds. For
/// a fiber that waits for the answer to an `apply` it is not known since when.
///
/// ```
/// let pool = trust::Threadpool::new(1);
/// let (promise, number) = trust::promise::<u32>();
/// drop(number);
/// let waiter = pool.spawn(|| trust::sleep(std::time::Duration::from_millis(200)));
/// std::thread::sleep(std::time::Duration::from_millis(50));
/// println!("{}", trust::dump()); // .. fiber 0 (..) waits for a time (`sleep`), since 0.1 s
/// # drop(promise);
/// waiter.join().unwrap();
/// ```
pub fn dump() -> Dump {
    Dump::of(&registry::all())
}
