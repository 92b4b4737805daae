//! `Threadpool`: worker threads with nothing else to do.
//!
//! Not here: ending the pool with nothing lost (`pool/ending.rs`).

mod ending;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use self::ending::Ending;
pub use self::ending::StillRunning;
use crate::api::moving::Moving;
use crate::api::settings::PoolSettings;
use crate::config::{STACK_BYTES, UNWINDING_WAIT_MS};
use crate::cores::{Cores, pin_to};
use crate::deadline::deadline_after;
use crate::fiber::stack::round_stack_bytes;
use crate::ids::TrusteeId;
use crate::park::learn_wake_up;
use crate::registry::{Shared, TRUSTEES_MAX};
use crate::runtime::seats::runner::Runner;
use crate::runtime::seats::{Inbox, Runners, Seat};
use crate::runtime::worker::current;
use crate::runtime::worker::{self, NotMade, Settings, Worker};
use crate::tune::tuner::Tuner;
use crate::{JoinHandle, Trust, TrustSlice, TrusteeReference, spawn_on};

/// Pool of worker threads, each client and trustee at once unless it is dedicated to serving.
///
/// Dropping it waits until every fiber has ended and every request is answered, then ends the workers; each worker
/// drops its properties. After five seconds, and then ever more rarely, the drop reports on standard error the fibers
/// that it waits for. A pool dropped during a panic waits two seconds, reports the remaining fibers, and lets them run
/// on. [`shutdown_timeout`](Threadpool::shutdown_timeout) waits for a given time. Trusts that outlive the pool give
/// [`Error::Gone`](crate::Error::Gone).
///
/// ```
/// let pool = trust::Threadpool::new(2);
/// let counter = pool.entrust(0);
/// let fibers: Vec<_> = (0..10)
///     .map(|_| { let counter = counter.clone(); pool.spawn(move || counter.apply(|c| *c += 1)) })
///     .collect();
/// for fiber in fibers { fiber.join().unwrap(); }
/// assert_eq!(counter.apply(|c| *c), 10);
/// ```
///
/// Source: thesis 2.3.2, 3.2.2.
pub struct Threadpool {
    workers: Vec<PoolWorker>,
    /// Trustees that move between the workers, if any.
    seats: Vec<Arc<Seat>>,
    /// Shows them to others.
    moving: Option<Arc<Moving>>,
    /// Moves them, in a tuned pool.
    tuner: Option<Tuner>,
    trustees: Vec<TrusteeReference>,
    dedicated: usize,
    settings: PoolSettings,
    next_entrust: AtomicUsize,
    next_spawn: AtomicUsize,
    stop: Arc<AtomicBool>,
}

struct PoolWorker {
    shared: Arc<Shared>,
    thread: thread::JoinHandle<()>,
}

/// Settings of a [`Threadpool`] to build.
///
/// "Cores" here means those left by the affinity of the thread that builds the pool and by the CPU quota of its cgroups
/// (v1 or v2, rounded down to whole cores). A quota counts if it pays for fewer cores than there are; a process reads
/// it once. [`Threadpool::settings`] returns the settings in effect.
#[derive(Clone, Debug)]
pub struct Builder {
    workers: usize,
    dedicated: usize,
    seats: usize,
    tuned: bool,
    stack_bytes: usize,
    spin: Option<Duration>,
    pin: Option<bool>,
    name: String,
}

/// Most trustees of a pool that move.
const SEATS_MAX: usize = 256;
/// Most trustees of a tuned pool, unless their number is given.
const SEATS_OF_TUNED: usize = 16;

/// Why a pool could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A number is out of range; the text names it and gives an allowed value.
    #[error("{0}")]
    Setting(String),
    /// The operating system did not start a thread.
    #[error("a worker thread could not be started: {0}")]
    Thread(std::io::Error),
}

impl Builder {
    /// Number of workers; as many as there are cores unless set.
    ///
    /// ```
    /// let pool = trust::Threadpool::builder().workers(3).build();
    /// assert_eq!(pool.trustees().len(), 3);
    /// ```
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }
    /// Number of workers, the last ones, that only serve: [`Threadpool::spawn`] starts no fibers there, and
    /// [`Threadpool::entrust`] entrusts only to them. None unless set.
    ///
    /// ```
    /// let pool = trust::Threadpool::builder().workers(2).dedicated(1).build();
    /// assert_eq!(pool.entrust(0).trustee(), pool.trustees()[1]);
    /// assert_eq!(pool.spawn(trust::local_trustee).join().unwrap(), pool.trustees()[0]);
    /// ```
    pub fn dedicated(mut self, dedicated: usize) -> Self {
        self.dedicated = dedicated;
        self
    }
    /// Number of trustees that have no worker of their own but move between the workers. The pool entrusts values to
    /// these alone. None unless set: then each worker has a trustee of its own, which stays.
    ///
    /// At most 256, as each worker looks at all it runs. A trustee can have any number of values: a million counters
    /// need no more trustees than sixteen counters. A process can have 65,536 trustees at a time, those of threads
    /// included.
    ///
    /// ```
    /// let pool = trust::Threadpool::builder().workers(2).trustees(4).build();
    /// assert_eq!(pool.trustees().len(), 4);
    /// assert_eq!(pool.entrust(1).trustee(), pool.trustees()[0]);
    /// ```
    pub fn trustees(mut self, trustees: usize) -> Self {
        self.seats = trustees;
        self
    }
    /// Lets the pool decide by trials, as it runs, which of its trustees each worker runs and how many workers serve:
    /// for programs of which nobody knows the best [`dedicated`](Self::dedicated), or whose load changes. A trial after
    /// which trustees answer fewer requests is undone. [`Threadpool::tuning`] says what was decided.
    ///
    /// There are as many trustees as workers, up to 16, unless [`trustees`](Self::trustees) says otherwise; one worker
    /// keeps its own trustee, as there is nothing to decide. Values must be [`Send`] to move with their trustee.
    /// Fibers stay where they are; new ones avoid workers that only serve.
    ///
    /// ```
    /// let pool = trust::Threadpool::builder().workers(4).tuned().build();
    /// let counter = pool.entrust(0);
    /// counter.apply(|c| *c += 1);
    /// println!("{}", pool.tuning()); // 4 trustees on workers 2-3, 3 moves, 1 of 2 trials undone
    /// ```
    pub fn tuned(mut self) -> Self {
        self.tuned = true;
        self
    }
    /// Bytes of each fiber's stack, rounded up to pages; 256 KiB unless set. Only touched pages cost memory.
    ///
    /// ```
    /// let pool = trust::Threadpool::builder().workers(1).stack_bytes(4 << 20).build();
    /// let deep = pool.spawn(|| std::hint::black_box([1u8; 2 << 20]).len());
    /// assert_eq!(deep.join().unwrap(), 2 << 20);
    /// ```
    pub fn stack_bytes(mut self, stack_bytes: usize) -> Self {
        self.stack_bytes = stack_bytes;
        self
    }
    /// Longest time an idle worker polls before it sleeps; 500 us unless set; under a CPU quota zero unless set. Always
    /// zero if there are more workers than cores. The actual polling time follows from the cost of a wake-up on this
    /// machine and from how often polling paid off: polling that finds nothing takes less than an eighth of the time,
    /// plus two wake-ups each time. If another thread of this process that waits in this library, or works for a pool,
    /// wants the core, the worker yields it instead.
    ///
    /// ```
    /// use std::time::Duration;
    /// let pool = trust::Threadpool::builder().workers(1).spin(Duration::ZERO).build(); // sleeps at once
    /// assert_eq!(pool.entrust(1).apply(|one| *one), 1);
    /// ```
    pub fn spin(mut self, spin: Duration) -> Self {
        self.spin = Some(spin);
        self
    }
    /// Pins worker `i` to core `i` of the cores that this thread may use, if there is a core for each. On by default;
    /// off by default under a CPU quota. Pinned workers lose less to another program's thread than floating ones, which
    /// may end up on one core.
    ///
    /// ```
    /// let pool = trust::Threadpool::builder().workers(1).pin(false).build();
    /// assert!(!pool.settings().pinned);
    /// ```
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = Some(pin);
        self
    }
    /// Name of the threads, followed by a number; `trust` unless set.
    ///
    /// ```
    /// let pool = trust::Threadpool::builder().workers(1).name("table").build();
    /// let named = pool.spawn(|| std::thread::current().name() == Some("table-0"));
    /// assert!(named.join().unwrap());
    /// ```
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Starts the workers.
    ///
    /// # Errors
    /// [`BuildError`], if a setting is out of range or a thread cannot be started.
    ///
    /// ```
    /// let error = trust::Threadpool::builder().workers(0).try_build().map(drop).unwrap_err();
    /// assert!(error.to_string().contains("at least one worker"));
    /// ```
    pub fn try_build(mut self) -> Result<Threadpool, BuildError> {
        if self.tuned && self.seats == 0 && self.workers > 1 {
            self.seats = self.workers.min(SEATS_OF_TUNED);
        }
        if self.workers == 0 || self.dedicated > self.workers {
            return Err(BuildError::Setting(format!(
                "a pool of {} workers, {} of them dedicated: give at least one worker, and no more dedicated ones",
                self.workers, self.dedicated
            )));
        }
        if self.workers > TRUSTEES_MAX {
            return Err(BuildError::Setting(format!(
                "a pool of {} workers: give at most {TRUSTEES_MAX}, as many as can have a trustee in a process",
                self.workers
            )));
        }
        if self.seats > SEATS_MAX {
            return Err(BuildError::Setting(format!(
                "a pool of {} trustees that move: give at most {SEATS_MAX}, as each worker looks at all it runs",
                self.seats
            )));
        }
        if self.name.contains('\0') {
            let name = &self.name;
            return Err(BuildError::Setting(format!("{name:?} holds a NUL byte: give threads a name without one")));
        }
        round_stack_bytes(self.stack_bytes).map_err(|error| BuildError::Setting(error.to_string()))?;
        let cores = Cores::here();
        let settings = PoolSettings::new(self.workers, &cores, self.spin, self.pin);
        let pinned = if settings.pinned { &cores.allowed[..] } else { &[] };
        let spin_ns = settings.spin.as_nanos().try_into().unwrap_or(u64::MAX);
        let stop = Arc::new(AtomicBool::new(false));
        let mut pool = Threadpool {
            workers: Vec::with_capacity(self.workers),
            seats: Vec::with_capacity(self.seats),
            moving: None,
            tuner: None,
            trustees: Vec::with_capacity(self.workers),
            dedicated: self.dedicated,
            settings,
            next_entrust: AtomicUsize::new(0),
            next_spawn: AtomicUsize::new(0),
            stop: Arc::clone(&stop),
        };
        let mut inboxes = Vec::with_capacity(self.workers);
        for index in 0..self.workers {
            let inbox = (self.seats > 0).then(Arc::<Inbox>::default);
            inboxes.extend(inbox.clone());
            let core = pinned.get(index).copied();
            let settings = Settings { stack_bytes: self.stack_bytes, spin_ns };
            let stop = Arc::clone(&stop);
            let (started, start) = mpsc::channel();
            let run = move || {
                if let Some(core) = core {
                    pin_to(core);
                }
                let _ = current::start(settings);
                worker::with(|worker| {
                    let _ = started.send((Arc::clone(&worker.shared), Instant::now()));
                    match inbox {
                        Some(inbox) => Runner::new(worker, index, inbox).work(&stop),
                        None => work(worker, &stop),
                    }
                });
                // Not in the thread's destructors, where no fiber could run.
                let _ = current::end(true);
            };
            let thread = thread::Builder::new().name(format!("{}-{index}", self.name));
            let thread = thread.spawn(run).map_err(BuildError::Thread)?;
            let Ok((shared, told)) = start.recv() else {
                return Err(BuildError::Setting(format!("worker {index} ended before it began; its panic says why")));
            };
            learn_wake_up(told.elapsed());
            pool.workers.push(PoolWorker { shared, thread });
        }
        let workers = pool.workers.iter().map(|worker| Arc::clone(&worker.shared));
        if self.seats > 0 {
            let runners = Runners::new(workers.zip(inboxes).collect());
            let places = if self.dedicated > 0 { self.dedicated } else { self.workers };
            for seat in 0..self.seats {
                let runner = self.workers - places + seat % places;
                let settings = Settings { stack_bytes: self.stack_bytes, spin_ns };
                pool.seats.push(runners.make(runner, settings).map_err(not_made)?);
            }
            if self.tuned && self.workers > 1 {
                let workers = pool.workers.iter().map(|worker| Arc::clone(&worker.shared)).collect();
                let tuner = Tuner::start(&self.name, workers, pool.seats.clone()).map_err(BuildError::Thread)?;
                pool.tuner = Some(tuner);
            }
            pool.moving = Some(Moving::show(&self.name, &pool.seats));
            pool.trustees.extend(pool.seats.iter().map(|seat| TrusteeReference::from_id(seat.shared.id)));
        } else {
            pool.trustees.extend(workers.map(|worker| TrusteeReference::from_id(worker.id)));
        }
        Ok(pool)
    }

    /// Same as [`try_build`](Self::try_build).
    ///
    /// # Panics
    /// With the text of the [`BuildError`].
    ///
    /// ```
    /// let pool = trust::Threadpool::builder().workers(1).build();
    /// assert_eq!(pool.spawn(|| 6 * 7).join().unwrap(), 42);
    /// ```
    pub fn build(self) -> Threadpool {
        self.try_build().unwrap_or_else(|error| panic!("{error}"))
    }
}

fn not_made(error: Option<NotMade>) -> BuildError {
    BuildError::Setting(
        error.map_or_else(|| "a worker ended before the pool began".to_owned(), |error| error.to_string()),
    )
}

/// Loop of a pool's worker.
fn work(worker: &Worker, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        if worker.turn() {
            worker.idle.reset();
        } else {
            worker.idle.rest(worker);
        }
    }
}

impl Threadpool {
    /// Makes a pool of this many workers.
    ///
    /// # Panics
    /// If `workers` is 0, or a thread cannot be started.
    ///
    /// ```
    /// let pool = trust::Threadpool::new(2);
    /// assert_eq!(pool.trustees().len(), 2);
    /// ```
    pub fn new(workers: usize) -> Threadpool {
        Threadpool::builder().workers(workers).build()
    }

    /// Returns a builder, for a pool with other settings.
    ///
    /// ```
    /// let pool = trust::Threadpool::builder().workers(2).dedicated(1).stack_bytes(64 * 1024).build();
    /// assert_eq!(pool.entrust(1).trustee(), pool.trustees()[1]);
    /// ```
    pub fn builder() -> Builder {
        Builder {
            workers: Cores::here().usable(),
            dedicated: 0,
            seats: 0,
            tuned: false,
            stack_bytes: STACK_BYTES,
            spin: None,
            pin: None,
            name: "trust".to_owned(),
        }
    }

    /// Entrusts a value to the next trustee in turn. See [`TrusteeReference::entrust`].
    ///
    /// ```
    /// let pool = trust::Threadpool::new(2);
    /// let (one, other) = (pool.entrust(1), pool.entrust(2));
    /// assert_ne!(one.trustee(), other.trustee());
    /// ```
    pub fn entrust<T: Send + 'static>(&self, value: T) -> Trust<T> {
        let trustees = self.entrusted_trustees();
        let turn = self.next_entrust.fetch_add(1, Ordering::Relaxed) % trustees.len();
        trustees[turn].entrust(value)
    }

    /// Entrusts each of the values to the trustees in turn, as many properties of which one handle finds any: for
    /// thousands of properties and more.
    ///
    /// ```
    /// let pool = trust::Threadpool::new(2);
    /// let squares = pool.entrust_each((0..100).map(|n| n * n));
    /// assert_ne!(squares.at(8).trustee(), squares.at(9).trustee());
    /// assert_eq!(squares.at(9).apply(|n| *n), 81);
    /// ```
    pub fn entrust_each<T: Send + 'static>(&self, values: impl IntoIterator<Item = T>) -> TrustSlice<T> {
        TrustSlice::new(self.entrusted_trustees(), values)
    }

    /// Returns the trustees that values are entrusted to.
    fn entrusted_trustees(&self) -> &[TrusteeReference] {
        let trustees = if self.dedicated > 0 && self.seats.is_empty() { self.dedicated } else { self.trustees.len() };
        &self.trustees[self.trustees.len() - trustees..]
    }

    /// Starts a fiber on the next worker in turn. Callable from anywhere.
    ///
    /// ```
    /// let pool = trust::Threadpool::new(2);
    /// let fibers: Vec<_> = (0..4).map(|number| pool.spawn(move || number * number)).collect();
    /// let sum: i32 = fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum();
    /// assert_eq!(sum, 14);
    /// ```
    pub fn spawn<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let workers = self.workers.len();
        let turn = self.next_spawn.fetch_add(1, Ordering::Relaxed);
        let place = match &self.tuner {
            Some(tuner) => tuner.client(turn).unwrap_or(turn % workers),
            // A pool that only serves still accepts fibers, rather than lose them.
            None if self.dedicated == workers => turn % workers,
            None => turn % (workers - self.dedicated),
        };
        self.spawn_on(place, f)
    }

    /// Starts a fiber on the worker with this index.
    ///
    /// # Panics
    /// If there is no such worker.
    ///
    /// ```
    /// let pool = trust::Threadpool::new(2);
    /// let there = pool.spawn_on(1, trust::local_trustee);
    /// assert_eq!(there.join().unwrap(), pool.trustees()[1]);
    /// ```
    pub fn spawn_on<F, R>(&self, worker: usize, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let workers = self.workers.len();
        assert!(worker < workers, "there is no worker {worker}: the pool has {workers}, from 0 on");
        spawn_on(&TrusteeReference::from_id(self.workers[worker].shared.id), f)
    }

    /// Ends the pool as dropping it does, but waits at most for `time`. Fibers that have not ended by then run on, and
    /// the workers end after them; nothing is lost or cut off.
    ///
    /// # Errors
    /// [`StillRunning`], which names the fibers and the wait of each.
    ///
    /// # Panics
    /// In one of the pool's own fibers, and in delegated closures and callbacks, where nothing may wait.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let pool = trust::Threadpool::new(1);
    /// pool.spawn(|| 6 * 7);
    /// assert!(pool.shutdown_timeout(Duration::from_secs(60)).is_ok());
    ///
    /// let pool = trust::Threadpool::new(1);
    /// pool.spawn(|| trust::sleep(Duration::MAX));
    /// let left = pool.shutdown_timeout(Duration::from_millis(50)).unwrap_err();
    /// println!("{left}"); // .. fiber 0 (..) waits for a time (`sleep`), since 0.0 s
    /// ```
    pub fn shutdown_timeout(mut self, time: Duration) -> Result<(), StillRunning> {
        worker::with(|here| {
            here.assert_may_wait("shutdown_timeout");
            assert!(
                !self.includes(here.id),
                "`shutdown_timeout` waits for all fibers of the pool, so none of them may call it"
            );
        });
        let end = Instant::now().checked_add(time);
        self.ending().run(end).map_err(Ending::give_up)
    }

    fn ending(&mut self) -> Ending {
        // No more moves are asked for.
        self.tuner = None;
        let seats = self.seats.drain(..).map(|seat| Arc::clone(&seat.shared)).collect();
        Ending { workers: std::mem::take(&mut self.workers), seats, stop: Arc::clone(&self.stop) }
    }

    fn includes(&self, id: TrusteeId) -> bool {
        let workers = self.workers.iter().map(|worker| worker.shared.id);
        workers.chain(self.seats.iter().map(|seat| seat.shared.id)).any(|own| own == id)
    }

    pub(crate) fn tuner(&self) -> Option<&Tuner> {
        self.tuner.as_ref()
    }

    /// The seats, for [`link::ask_to_move`](crate::link::ask_to_move).
    pub(crate) fn seats(&self) -> &[Arc<Seat>] {
        &self.seats
    }

    /// Returns the trustees of the workers, in order; dedicated ones are last. Of a pool with
    /// [`trustees`](Builder::trustees) that move: those.
    ///
    /// ```
    /// let pool = trust::Threadpool::new(2);
    /// let counters: Vec<_> = pool.trustees().iter().map(|trustee| trustee.entrust(0)).collect(); // one on each worker
    /// assert_eq!(counters.len(), 2);
    /// ```
    pub fn trustees(&self) -> &[TrusteeReference] {
        &self.trustees
    }

    /// Returns the settings in effect on this machine: the number of cores found, whether workers are pinned and poll,
    /// and the settings that could not be followed.
    ///
    /// ```
    /// let pool = trust::Threadpool::builder().workers(2).pin(false).build();
    /// assert!(!pool.settings().pinned);
    /// println!("{}", pool.settings()); // workers: 2, cores: 16, not pinned, polling for 500µs
    /// ```
    pub fn settings(&self) -> &PoolSettings {
        &self.settings
    }
}

impl Drop for Threadpool {
    fn drop(&mut self) {
        if self.workers.is_empty() {
            return; // Shut down, or never begun.
        }
        let ending = self.ending();
        let here = worker::try_with(|here| (ending.includes(here.id), here.context() == worker::Context::Free));
        match here {
            Some((true, _)) => {
                crate::unwind::tell(format_args!("a pool was dropped by one of its own fibers; its workers run on"));
            }
            // Nothing may wait here, so another thread does.
            Some((false, false)) => ending.run_elsewhere(),
            // In a failing test, say: its fibers may wait for something that the test no longer does.
            _ if thread::panicking() => {
                let end = deadline_after(Duration::from_millis(UNWINDING_WAIT_MS));
                if let Err(left) = ending.run(Some(end)).map_err(Ending::give_up) {
                    crate::unwind::tell(format_args!(
                        "a pool was dropped by a panic, and did not come to its end in {UNWINDING_WAIT_MS} ms; its \
                         workers run on:\n{}",
                        left.dump()
                    ));
                }
            }
            _ => {
                let ended = ending.run(None);
                debug_assert!(ended.is_ok(), "it waits for as long as it takes");
            }
        }
    }
}

impl fmt::Debug for Threadpool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threadpool")
            .field("trustees", &self.trustees)
            .field("dedicated", &self.dedicated)
            .field("settings", &self.settings)
            .finish()
    }
}
