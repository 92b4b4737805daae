//! `dump`: a readable listing of the waits of all fibers of the process.
//!
//! Here: the contents and wording of the listing. Not here: how workers are asked (`registry/report.rs`), wait cycles
//! (`runtime/watch`).

use std::fmt;
use std::time::{Duration, Instant};

use crate::config::DUMP_ANSWER_MS;
use crate::deadline::deadline_after;
use crate::fiber::record::{Doing, Seen, Wait, now_ms};
use crate::ids::TrusteeId;
use crate::registry::report::{Collection, Report};
use crate::registry::{self, Shared};
use crate::runtime::worker::{self, Context};
use std::sync::Arc;

/// Fibers of this process by thread, each with its wait and how long it has lasted. See [`dump`].
///
/// `Display` writes a line for each thread and each fiber, longest waits first, at most a hundred fibers of each
/// thread.
#[derive(Clone, Debug)]
pub struct Dump {
    /// Wait for the threads' answers.
    limit: Duration,
    threads: Vec<ThreadDump>,
}

#[derive(Clone, Debug)]
struct ThreadDump {
    trustee: TrusteeId,
    name: String,
    /// `None` if the thread did not answer in time.
    waits: Option<Waits>,
}

#[derive(Clone, Debug)]
struct Waits {
    root: Option<Wait>,
    fibers: Vec<Seen>,
    at_ms: u64,
}

/// Most fibers of a thread that are written.
const LINES_MAX: usize = 100;

impl Dump {
    /// Returns the number of fibers. Fibers of threads that did not answer are not counted.
    ///
    /// ```
    /// let fiber = trust::spawn(|| trust::sleep(std::time::Duration::from_millis(1)));
    /// assert!(trust::dump().fibers() >= 1);
    /// fiber.join().unwrap();
    /// ```
    pub fn fibers(&self) -> usize {
        self.threads.iter().filter_map(|thread| thread.waits.as_ref()).map(|waits| waits.fibers.len()).sum()
    }

    /// Threads that did not answer in time.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = TrusteeId> {
        self.threads.iter().filter(|thread| thread.waits.is_none()).map(|thread| thread.trustee)
    }

    /// Collects the dump of these workers. Waits for their answers up to `limit`; a thread that may wait serves its
    /// trustee meanwhile.
    pub(crate) fn of(workers: &[Arc<Shared>], limit: Duration) -> Dump {
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
            ThreadDump { trustee: worker.id, name: name_of(worker, report.as_ref()), waits: report.map(Waits::new) }
        };
        Dump { limit, threads: workers.iter().map(thread).collect() }
    }
}

impl Waits {
    fn new(Report { root, mut fibers, .. }: Report) -> Waits {
        fibers.sort_by_key(|seen| (seen.doing, seen.wait.map_or(u64::MAX, |wait| wait.since_ms), seen.id));
        Waits { root, fibers, at_ms: now_ms() }
    }
}

/// Returns the thread's name, from its report or else from the kernel, which truncates it.
fn name_of(worker: &Shared, report: Option<&Report>) -> String {
    report.map(|report| report.thread.clone()).unwrap_or_else(|| {
        let path = format!("/proc/self/task/{}/comm", worker.thread.get());
        std::fs::read_to_string(path).map_or_else(|_| String::new(), |name| format!("`{}`", name.trim_end()))
    })
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for thread in &self.threads {
            write!(f, "thread {} ({:?}): ", thread.name, thread.trustee)?;
            let Some(waits) = &thread.waits else {
                writeln!(f, "has not answered within {:?}", self.limit)?;
                continue;
            };
            write!(f, "{} fibers", waits.fibers.len())?;
            if let Some(wait) = &waits.root {
                write!(f, "; its own code waits for {}", Waiting(wait, waits.at_ms))?;
            }
            writeln!(f)?;
            for seen in waits.fibers.iter().take(LINES_MAX) {
                write!(f, "  {} ", seen.name)?;
                match (seen.doing, &seen.wait) {
                    (Doing::Waits, Some(wait)) => writeln!(f, "waits for {}", Waiting(wait, waits.at_ms))?,
                    (Doing::Waits, None) => writeln!(f, "waits for an answer, or for room to ask")?,
                    (Doing::Ready, _) => writeln!(f, "is ready to go on")?,
                    (Doing::Runs, _) => writeln!(f, "runs")?,
                    (Doing::New, _) => writeln!(f, "has not begun")?,
                }
            }
            if waits.fibers.len() > LINES_MAX {
                writeln!(f, "  and {} more", waits.fibers.len() - LINES_MAX)?;
            }
        }
        Ok(())
    }
}

/// Wait as seen at this time in ms.
struct Waiting<'a>(&'a Wait, u64);

impl fmt::Display for Waiting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waited = Duration::from_millis(self.1.saturating_sub(self.0.since_ms));
        write!(f, "{}, since {:.1} s", self.0.awaited, waited.as_secs_f64())
    }
}

/// Lists the wait of every fiber of this process and how long it has lasted: for programs that do not end. Legal
/// everywhere.
///
/// Each thread is asked, and answers when its loop gets to it. A thread that has not answered within a second is listed
/// as such: it runs a long closure or code of its own, or gets no core. The clock is accurate to some milliseconds.
/// For a fiber that waits for the answer to an `apply` the start of the wait is not known.
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
    Dump::of(&registry::all(), Duration::from_millis(DUMP_ANSWER_MS))
}
