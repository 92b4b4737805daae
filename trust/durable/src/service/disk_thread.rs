//! Disk thread of a pool: opens it, makes one group after the other durable, and reports to the core.
//!
//! Invariants: it owns files, lock and the bytes that it writes, so it can finish after the core is gone. The first
//! error is final: nothing is written after it, and no sync is retried.

use std::any::Any;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use trust::link::deadline_after;
use trust::{Promise, TrusteeReference, spawn_on};

use super::closers::{Closers, End};
use super::core;
use super::jobs::{Job, Report, Said};
use super::lock::{Lock, open_folder};
use super::slice;
use super::snapshots;
use crate::error::{Error, Result};
use crate::files::folder::Folder;
use crate::files::migration;
use crate::files::named::Files;
use crate::files::recover::{self, Check, Opened};
use crate::files::store::{Identity, Store};
use crate::layout::Layout;
use crate::memory::Memory;
use crate::unwind;

/// Interval at which a pool that is written to checks whether its folder has been moved.
const LOOKS: Duration = Duration::from_secs(1);

/// Request to open a pool.
pub(crate) struct Request {
    pub(crate) folder: PathBuf,
    pub(crate) layout: Layout,
    pub(crate) limit: usize,
    pub(crate) check: Check,
    /// Layout and check of the old type, if that is to be changed.
    pub(crate) old: Option<(Layout, Check)>,
    /// May a folder without a pool get one?
    pub(crate) may_create: bool,
    /// Pause between a sync and the next group.
    pub(crate) pause: Option<Duration>,
    pub(crate) trustee: TrusteeReference,
    /// The pool's number in this process.
    pub(crate) number: u64,
}

/// An opened pool.
pub(crate) struct Started {
    pub(crate) memory: Memory,
    /// Was there no pool?
    pub(crate) is_new: bool,
    /// Is the root still of the old type?
    pub(crate) is_old: bool,
    pub(crate) last: u64,
    pub(crate) replayed: u64,
    pub(crate) cut: u64,
    pub(crate) log_bytes: u64,
    pub(crate) jobs: Sender<Job>,
    pub(crate) lock: (u64, u64),
    pub(crate) closers: Arc<Closers>,
}

pub(crate) type Slot = Arc<Mutex<Option<Result<Started>>>>;

/// Starts the thread. The opened pool is in the slot when the promise is kept.
pub(crate) fn start(request: Request, slot: Slot, opened: Promise<bool>) -> Result<()> {
    let name = format!("durable-{}", request.number);
    let folder = request.folder.clone();
    let run = move || {
        slice::shorten();
        let (jobs, queue) = channel();
        let (number, trustee, pause) = (request.number, request.trustee, request.pause);
        // Dropped last, on every path.
        let mut end = End::new("its disk thread panicked");
        let (outcome, opened_files) = match open_or_tell(&request, jobs, end.closers()) {
            Ok((started, stage, lock)) => (Ok(started), Some((stage, lock))),
            Err(error) => (Err(error), None),
        };
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        drop(slot);
        opened.keep(true);
        let Some((stage, lock)) = opened_files else { return };
        // The files, then the lock are released before the waiters for the lock are notified.
        let _lock = lock;
        let mut disk = DiskThread { stage, trustee, number, pause, layout: request.layout, looked: Instant::now() };
        disk.serve_to_the_end(&queue);
        end.set(disk.lost());
    };
    match thread::Builder::new().name(name).spawn(run) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::Io { file: folder, offset: None, what: "start its disk thread", error }),
    }
}

/// State of the files.
enum Stage {
    /// There is no pool yet.
    New(Files),
    Open(Box<Store>),
    /// Nothing is written any more, for this cause.
    Lost(String),
}

/// Same as `open`; a panic becomes an error of the caller that opens the pool.
fn open_or_tell(request: &Request, jobs: Sender<Job>, closers: Arc<Closers>) -> Result<(Started, Stage, Lock)> {
    catch_unwind(AssertUnwindSafe(|| open(request, jobs, closers)))
        .unwrap_or_else(|panic| Err(Error::Lost { cause: panicked(panic) }))
}

fn open(request: &Request, jobs: Sender<Job>, closers: Arc<Closers>) -> Result<(Started, Stage, Lock)> {
    refuse_file(&request.folder)?;
    let no_pool = || Error::NoPool { folder: request.folder.clone() };
    let is_made = request.old.is_none() && request.may_create;
    let (folder, lock) = open_folder(&request.folder, if is_made { Folder::open } else { Folder::there }).map_err(
        |error| match error {
            Error::Io { error, .. } if !request.may_create && error.kind() == io::ErrorKind::NotFound => no_pool(),
            other => other,
        },
    )?;
    let id = lock.id();
    let mut files = Files::of(folder);
    recover::refuse_foreign(&mut files)?;
    let started = |memory, (is_new, is_old), last, replayed, cut, log_bytes| Started {
        memory,
        is_new,
        is_old,
        last,
        replayed,
        cut,
        log_bytes,
        jobs,
        lock: id,
        closers,
    };
    let new = (&request.layout, request.check);
    let opened = match &request.old {
        None => recover::open(files, new.0, request.limit, new.1)?.map(|opened| (opened, false)),
        Some((layout, check)) => Ok(migration::open(files, new, (layout, *check), request.limit)?),
    };
    match opened {
        Ok((Opened { memory, store, last, replayed, cut }, is_old)) => {
            let log_bytes = store.log.at;
            Ok((started(memory, (false, is_old), last, replayed, cut, log_bytes), Stage::Open(Box::new(store)), lock))
        }
        Err(_) if !request.may_create => Err(no_pool()),
        Err(files) => {
            let memory = Memory::reserve(request.limit)
                .map_err(|error| Error::Reservation { bytes: request.limit as u64, error })?;
            Ok((started(memory, (true, false), 0, 0, 0, 0), Stage::New(files), lock))
        }
    }
}

/// Refuses a path that is not a folder.
fn refuse_file(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_dir() => {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Err(Error::Foreign { folder: path.parent().unwrap_or(Path::new("")).into(), file })
        }
        _ => Ok(()),
    }
}

/// Returns the cause of a loss by a panic of the disk thread.
fn panicked(panic: Box<dyn Any + Send>) -> String {
    let cause = format!("its disk thread panicked: {}", trust::link::panic_text(&*panic));
    unwind::discard(panic);
    cause
}

struct DiskThread {
    stage: Stage,
    trustee: TrusteeReference,
    number: u64,
    pause: Option<Duration>,
    layout: Layout,
    /// Time of the last check of the folder's name.
    looked: Instant,
}

impl DiskThread {
    /// Returns the cause of a loss, if there was one.
    fn lost(&self) -> Option<String> {
        match &self.stage {
            Stage::Lost(cause) => Some(cause.clone()),
            Stage::New(_) | Stage::Open(_) => None,
        }
    }

    /// Serves until the pool is closed or its core is gone. It goes on after a panic: all later jobs are answered with
    /// the loss.
    fn serve_to_the_end(&mut self, queue: &Receiver<Job>) {
        while let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.serve(queue))) {
            let cause = self.lose(panicked(panic));
            self.report(Report::Lost(cause));
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.end())) {
            self.lose(panicked(panic));
        }
    }

    /// Marks the files as lost, for this cause or an earlier one. Returns the cause that applies.
    fn lose(&mut self, cause: String) -> String {
        // The first cause explains all later failures.
        let cause = self.lost().unwrap_or(cause);
        self.stage = Stage::Lost(cause.clone());
        cause
    }

    fn serve(&mut self, queue: &Receiver<Job>) {
        // End of the pause that the core waits for.
        let mut pause: Option<Instant> = None;
        loop {
            let job = match pause.map(|end| end.saturating_duration_since(Instant::now())) {
                None => queue.recv().ok(),
                Some(left) => match queue.recv_timeout(left) {
                    Ok(job) => Some(job),
                    Err(RecvTimeoutError::Timeout) => Some(Job::Hurry),
                    Err(RecvTimeoutError::Disconnected) => None,
                },
            };
            let report = match job {
                None | Some(Job::Close) => return,
                #[cfg(test)]
                Some(Job::Panic) => panic!("planted"),
                Some(Job::Snapshot { bytes, seed, promise }) => {
                    // A panic drops the promise, which notifies the waiter.
                    let _ = catch_unwind(AssertUnwindSafe(|| self.snapshot(bytes, seed, promise)));
                    continue;
                }
                Some(Job::Hurry) => {
                    if pause.take().is_some() {
                        self.report(Report::Free);
                    }
                    continue;
                }
                Some(job) => self.work(job),
            };
            // The core does not wait after the first files.
            let is_group = matches!(report, Report::Durable { group, .. } if group > 0);
            if is_group {
                pause = self.pause.map(deadline_after);
            }
            self.report(report);
            if is_group && self.looked.elapsed() >= LOOKS {
                self.looked = Instant::now();
                self.tell_if_moved();
            }
        }
    }

    fn report(&self, report: Report) {
        let said = Said::new(self.number, report);
        drop(spawn_on(&self.trustee, move || said.tell()));
    }

    fn work(&mut self, job: Job) -> Report {
        // If the thread ended, only the next call would notice, not the present waiters.
        let worked = catch_unwind(AssertUnwindSafe(|| self.try_work(job)));
        let cause = match worked {
            Ok(Ok(report)) => return report,
            Ok(Err(error)) => self.removed().unwrap_or(error).cause(),
            Err(panic) => panicked(panic),
        };
        Report::Lost(self.lose(cause))
    }

    fn try_work(&mut self, job: Job) -> Result<Report> {
        let store = match (&mut self.stage, job) {
            (Stage::New(_), Job::Create { bytes, seed }) => return self.create(&bytes, seed),
            (Stage::Open(store), job) => (store, job),
            (Stage::New(_) | Stage::Lost(_), _) => return Err(self.out_of_order()),
        };
        match store {
            (store, Job::Group(mut record)) => {
                let began = Instant::now();
                store.commit(&mut record)?;
                let (group, bytes, log_bytes) = (record.group, record.bytes().len() as u64, store.log.at);
                let buffer = record.into_buffer();
                Ok(Report::Durable { group, bytes, log_bytes, began, ended: Instant::now(), buffer })
            }
            (store, Job::ChangeType { bytes, last }) => {
                store.change_type(json(&self.layout)?, last, &bytes)?;
                Ok(first_files(store.log.at))
            }
            (store, Job::Generation { first, len }) => store.begin_generation(first, len).map(|()| Report::Copied),
            (store, Job::Slice(bytes)) => store.slice(&bytes).map(|()| Report::Copied),
            (store, Job::Image { end }) => store.end_generation(end).map(|()| Report::Image),
            _ => Err(self.out_of_order()),
        }
    }

    /// Returns the error for a job that does not fit the stage of the files.
    fn out_of_order(&self) -> Error {
        Error::Lost { cause: self.lost().unwrap_or_else(|| "its disk thread was given work out of order".into()) }
    }

    fn snapshot(&self, bytes: Vec<u8>, seed: u64, promise: Promise<bool>) {
        let identity = match self.lost() {
            Some(cause) => Err(Error::Lost { cause }),
            None => self.identity(seed),
        };
        snapshots::start(promise, identity, bytes);
    }

    /// Last check: acknowledged changes have to be in files that opening finds.
    fn end(&mut self) {
        if let Some(removed) = self.removed() {
            self.stage = Stage::Lost(removed.cause());
        }
        if let Stage::Open(store) = &mut self.stage {
            // Without it the files are those of a program that was killed: nothing that was acknowledged is missing.
            let _ = store.close();
        }
        self.tell_if_moved();
    }

    /// Returns the error for a file that another program has removed, moved or replaced, if there is one.
    fn removed(&mut self) -> Option<Error> {
        let Stage::Open(store) = &mut self.stage else { return None };
        store.expect_there().err().filter(|error| matches!(error, Error::Removed { .. }))
    }

    fn tell_if_moved(&mut self) {
        if let Stage::Open(store) = &mut self.stage
            && let Some((from, to)) = store.files.0.moved()
        {
            let (from, to) = (from.display(), to.display());
            // A closed standard error is no reason to lose the pool.
            let _ = writeln!(
                io::stderr(),
                "trust-durable: another program has moved {from}, the folder of an open pool: what was acknowledged is \
                 in {to}, and so will be what comes; open it there from now on"
            );
        }
    }

    fn create(&mut self, bytes: &[u8], seed: u64) -> Result<Report> {
        let identity = self.identity(seed)?;
        let Stage::New(files) = std::mem::replace(&mut self.stage, Stage::Lost("its files could not be made".into()))
        else {
            return Err(self.out_of_order());
        };
        // If that fails, the cause is the error's.
        match Store::create(files, identity, bytes) {
            Ok(store) => self.stage = Stage::Open(Box::new(store)),
            Err(error) => {
                let cause = error.cause();
                self.stage = Stage::Lost(cause.clone());
                return Err(Error::Lost { cause });
            }
        }
        Ok(first_files(0))
    }

    /// Makes the identity of a new pool.
    fn identity(&self, seed: u64) -> Result<Identity> {
        Ok(Identity { pool: pool_id(), seed, layout: json(&self.layout)? })
    }
}

/// Returns the report that the first files are durable.
fn first_files(log_bytes: u64) -> Report {
    let now = Instant::now();
    Report::Durable { group: 0, bytes: 0, log_bytes, began: now, ended: now, buffer: Vec::new() }
}

/// Returns a layout as the files hold it.
fn json(layout: &Layout) -> Result<String> {
    serde_json::to_string(layout)
        .map_err(|error| Error::Lost { cause: format!("its layout cannot be written: {error}") })
}

fn pool_id() -> u128 {
    u128::from(core::random()) << 64 | u128::from(core::random())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::sim::Sim;

    fn disk_thread(sim: Sim) -> DiskThread {
        let (stage, layout) = (Stage::New(Files::of(sim)), Layout::of::<u64>());
        DiskThread { stage, trustee: trust::local_trustee(), number: 0, pause: None, layout, looked: Instant::now() }
    }

    const CREATE: Job = Job::Create { bytes: Vec::new(), seed: 0 };

    #[test]
    fn a_panic_of_the_disk_thread_is_told() {
        let sim = Sim::default();
        // This poisons its mutex, so that each operation panics.
        assert!(catch_unwind(AssertUnwindSafe(|| sim.edit("no such file", |_| ()))).is_err());
        let mut disk = disk_thread(sim);
        assert!(matches!(disk.work(CREATE), Report::Lost(_)));
        assert!(matches!(disk.work(Job::Slice(Vec::new())), Report::Lost(_)), "and is the last word");
    }

    #[test]
    fn a_panic_while_a_pool_is_opened_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = trust::Threadpool::new(1);
        let request = |check: Check| Request {
            folder: folder.path().into(),
            layout: Layout::of::<u64>(),
            limit: 1 << 20,
            check,
            old: None,
            may_create: true,
            pause: None,
            trustee: pool.trustees()[0],
            number: 7,
        };
        let number = crate::Durable::<u64>::open(pool.trustees()[0], folder.path(), |_| 3).expect("it opens");
        number.close().expect("it closes");
        let (jobs, _queue) = channel();
        let opened = open_or_tell(&request(|_| panic!("no such walk")), jobs.clone(), Arc::default());
        let Err(Error::Lost { cause }) = opened else { panic!("a panic") };
        assert_eq!(cause, "its disk thread panicked: no such walk");
        // The lock was released.
        assert!(open_or_tell(&request(|_| Ok(())), jobs, Arc::default()).is_ok());
    }

    #[test]
    fn a_full_disk_is_told_with_file_offset_and_cure_and_stays_the_cause() {
        let whole = Sim::default();
        assert!(matches!(disk_thread(whole.clone()).work(CREATE), Report::Durable { .. }));
        let mut seen = std::collections::BTreeSet::new();
        for operation in 1..=whole.done() {
            let sim = Sim::default();
            sim.full_at(operation);
            let mut disk = disk_thread(sim);
            let Report::Lost(cause) = disk.work(CREATE) else { panic!("operation {operation} failed") };
            assert!(cause.starts_with("sim") && cause.contains("make room"), "{cause}");
            assert!(!cause.contains("write to it") || cause.contains(", offset "), "{cause}");
            let Report::Lost(again) = disk.work(Job::Slice(Vec::new())) else { panic!("it was lost") };
            assert_eq!(again, cause);
            seen.extend(cause.split(": ").nth(1).map(str::to_owned));
        }
        assert!(seen.len() > 3, "writing, making, syncing, renaming: {seen:?}");
    }
}
