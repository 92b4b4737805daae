//! A pool at its trustee: transactions, groups, who waits for them.
//!
//! Here: what a call or a report changes. Who is told of it: `told.rs`. New images: `copying.rs`.
//!
//! Invariants:
//! - G1: groups are numbered; one is open. The disk has two at most: it writes one, and the next lies ready when that
//!   one is half done, so that it need not wait for this thread's turn. A result depends on the last group that had
//!   changed something by its transaction.
//! - G2: nothing here waits, and no user's code or message to others runs while the core is borrowed but the
//!   transaction itself.
//! - G3: the disk thread knows a pool by number. A number whose pool is gone means nothing.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use trust::{Promise, Trust};

use super::client::{Ear, News};
use super::closers::Closers;
use super::copying::Copying;
use super::jobs::{Job, Report};
use super::keeper::Started;
use super::lock;
use super::texts;
use super::told::{Told, tell_ear, update};
use super::waiting::Waiting;
use crate::group::Rooms;
use crate::hash::ByNumber;
use crate::memory::Memory;
use crate::property::Outcome;
use crate::stats::DurableStats;
use crate::unwind;

/// The group of what will never be durable: told when the pool is lost.
pub(crate) const NEVER: u64 = u64::MAX;

/// See the file's documentation.
pub(crate) struct Core {
    pub(crate) memory: Memory,
    number: u64,
    jobs: Sender<Job>,
    lock: (u64, u64),
    /// The group that is open.
    pub(super) open: u64,
    pub(super) durable: u64,
    /// What the disk has not reported yet: groups, or the first files.
    with_disk: u32,
    /// The disk has reported it, and pauses before the next.
    is_pausing: bool,
    is_closing_scheduled: bool,
    within: Option<Duration>,
    /// When the oldest change that is not durable was made, for `within`.
    oldest: Option<Instant>,
    open_since: Option<Instant>,
    pub(super) clients: Waiting<Arc<Trust<Ear>>>,
    /// Groups and the futures that wait for them.
    pub(super) futures: VecDeque<(u64, u64)>,
    pub(super) copying: Option<Copying>,
    last_text: u64,
    pub(crate) lost: Option<String>,
    /// Calls are refused.
    pub(crate) is_closed: bool,
    /// It ends once all is durable.
    is_ending: bool,
    closers: Arc<Closers>,
    pub(super) is_created: bool,
    /// Who waits for the first files.
    pub(super) creating: Option<Promise<Option<String>>>,
    pub(super) stats: DurableStats,
    pub(super) image_bytes: u64,
    /// When the disk began the group that it writes, as far as is known here.
    writing_since: Instant,
    /// How long it takes for one, lately.
    writing_takes: Duration,
    rooms: Rooms,
}

type Cores = HashMap<u64, Rc<RefCell<Core>>, ByNumber>;

thread_local! {
    /// The pools of this thread by number.
    ///
    /// Without a destructor: they are used as long as the thread's trustee is there, also by destructors of other
    /// thread-locals. Each is taken out when its property is dropped, at the latest with the trustee.
    static CORES: ManuallyDrop<RefCell<Cores>> = ManuallyDrop::default();
}

/// A number that nobody foresees.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

impl Core {
    pub(crate) fn new(started: Started, number: u64, within: Option<Duration>) -> Core {
        let Started { memory, last, replayed, cut, log_bytes, jobs, lock, closers, .. } = started;
        memory.set_number(number);
        let stats = DurableStats { groups_replayed: replayed, bytes_cut: cut, log_bytes, ..DurableStats::default() };
        Core {
            image_bytes: memory.high_water() as u64,
            memory,
            number,
            jobs,
            lock,
            open: last + 1,
            durable: last,
            with_disk: 0,
            is_pausing: false,
            is_closing_scheduled: false,
            within,
            oldest: None,
            open_since: None,
            clients: Waiting::new(),
            futures: VecDeque::new(),
            copying: None,
            last_text: 0,
            lost: None,
            is_closed: false,
            is_ending: false,
            closers,
            is_created: last > 0,
            creating: None,
            stats,
            writing_since: Instant::now(),
            writing_takes: Duration::ZERO,
            rooms: Rooms::default(),
        }
    }

    /// Makes it known to the disk thread's reports.
    pub(crate) fn register(core: &Rc<RefCell<Core>>) {
        let number = core.borrow().number;
        CORES.with(|cores| cores.borrow_mut().insert(number, Rc::clone(core)));
    }

    pub(crate) fn forget(number: u64) {
        let core = CORES.with(|cores| {
            let mut cores = cores.borrow_mut();
            let core = cores.remove(&number);
            if cores.is_empty() {
                *cores = Cores::default();
            }
            core
        });
        drop(core);
    }

    /// That with this number, if it is there. On its trustee's thread.
    pub(super) fn find(number: u64) -> Option<Rc<RefCell<Core>>> {
        CORES.with(|cores| cores.borrow().get(&number).cloned())
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The first files of a new pool are to be made.
    pub(crate) fn create(&mut self) {
        self.memory.take_changes();
        let mut bytes = Vec::new();
        self.memory.copy_out(0, self.memory.high_water(), &mut bytes);
        self.image_bytes = bytes.len() as u64;
        let seed = self.memory.seed();
        self.send(Job::Create { bytes, seed });
        self.with_disk = 1;
    }

    pub(crate) fn send(&mut self, job: Job) {
        if self.jobs.send(job).is_err() && self.lost.is_none() {
            self.lost = Some("the disk thread has ended".into());
            // Those who wait already are told.
            self.later(|_| ());
        }
    }

    /// Changes the core after what runs now, in a fiber, and tells whom that concerns. False if no fiber can be
    /// started.
    fn later(&self, change: fn(&mut Core)) -> bool {
        let number = self.number;
        // It begins after this at the earliest, so it is finished only where it was dropped.
        !trust::spawn(move || update(number, change)).is_finished()
    }

    /// After a transaction or a read of the client: the group that its result depends on, 0 if that is durable.
    pub(crate) fn after(&mut self, is_undone: bool, client: u64) -> u64 {
        self.stats.transactions += 1;
        self.stats.undone += u64::from(is_undone);
        let mark = self.mark();
        if mark > 0
            && let Some(within) = self.within
        {
            let now = Instant::now();
            let oldest = *self.oldest.get_or_insert(now);
            self.open_since.get_or_insert(now);
            if now - oldest < within {
                return 0;
            }
        }
        self.note(mark, client)
    }

    /// Has the client told when the group is durable; 0 is.
    pub(crate) fn note(&mut self, mark: u64, client: u64) -> u64 {
        self.clients.note(mark, client);
        mark
    }

    /// With `within` the disk pauses after each group, and the next is closed after that.
    fn with_disk_max(&self) -> u32 {
        if self.within.is_none() && self.is_created { 2 } else { 1 }
    }

    /// The last group that has changed anything, if it is not durable; sees to it that it gets so.
    pub(crate) fn mark(&mut self) -> u64 {
        if self.memory.has_changes() {
            if self.with_disk < self.with_disk_max() && !self.is_closing_scheduled {
                self.is_closing_scheduled = true;
                // When what has come with this request has run; else at once, without that.
                let mark = self.open;
                if !self.later(Core::close) {
                    self.close();
                }
                return mark;
            }
            return self.open;
        }
        if self.open - 1 > self.durable { self.open - 1 } else { 0 }
    }

    /// What a call of this client gets that cannot run, and the group to wait for: after a loss its cause is told then.
    pub(crate) fn refuses<V>(&mut self, client: u64) -> Option<(u64, Outcome<V>)> {
        if self.is_closed {
            return Some((0, Outcome::Closed));
        }
        self.lost.as_ref()?;
        self.note(NEVER, client);
        // After this request, so after whatever introduces the client.
        let is_told = self.later(|_| ());
        Some((if is_told { NEVER } else { 0 }, Outcome::Lost))
    }

    /// The group that all before depends on, for who waits in any case.
    pub(crate) fn sync(&mut self, client: u64) -> u64 {
        let mark = self.mark();
        self.hurry(mark > 0);
        self.note(mark, client)
    }

    /// Ends the disk thread's pause, also the one after the group that it writes now.
    fn hurry(&mut self, is_wanted: bool) {
        if is_wanted && self.with_disk > 0 && self.within.is_some() {
            self.send(Job::Hurry);
        }
    }

    /// Keeps the promise once the first files are there, or with the cause if they cannot be.
    pub(crate) fn created(&mut self, promise: Promise<Option<String>>) {
        if self.is_created || self.lost.is_some() {
            promise.keep_with(if self.is_created { None } else { self.lost.clone() });
        } else {
            self.creating = Some(promise);
        }
    }

    /// Has a copy of the memory written to the folder that was left with the promise's name.
    pub(crate) fn snapshot(&mut self, promise: Promise<bool>) {
        if self.lost.is_some() || self.is_closed {
            return drop(promise);
        }
        let mut bytes = Vec::new();
        self.memory.copy_out(0, self.memory.high_water(), &mut bytes);
        self.send(Job::Snapshot { bytes, seed: self.memory.seed(), promise });
    }

    /// Has a future woken when its group is durable.
    pub(crate) fn note_future(&mut self, mark: u64, future: u64) {
        self.futures.push_back((mark, future));
    }

    #[cfg(test)]
    pub(crate) fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Gives those who are to be asked whether they are still there.
    pub(super) fn register_client(&mut self, client: u64, ear: Trust<Ear>) -> Vec<(u64, Arc<Trust<Ear>>)> {
        self.clients.register(client, Arc::new(ear));
        self.clients.take_to_sweep()
    }

    /// Closes the group and gives it to the disk, if that is free, or soon will be.
    fn close(&mut self) {
        self.is_closing_scheduled = false;
        let is_early = self.with_disk > 0;
        if self.with_disk >= self.with_disk_max() || self.lost.is_some() {
            return;
        }
        let now = Instant::now();
        if is_early && now.saturating_duration_since(self.writing_since) < self.writing_takes / 2 {
            return;
        }
        let before = self.memory.changed_lines() as u64;
        let Some(record) = self.rooms.close(&self.memory, self.open) else {
            if !is_early {
                self.end_if_done();
            }
            return;
        };
        self.stats.lines += before;
        self.open += 1;
        self.with_disk += 1;
        self.oldest = self.open_since.take().or(self.oldest);
        if !is_early {
            self.writing_since = now;
        }
        self.send(Job::Group(record));
    }

    fn end_if_done(&mut self) {
        if std::mem::take(&mut self.is_ending) {
            lock::is_closing(self.lock);
            self.send(Job::Close);
        }
    }

    /// Ends the pool once all is durable. The promise is kept when its folder is free, with the cause if something was
    /// lost.
    pub(crate) fn close_pool(&mut self, promise: Promise<Option<String>>) {
        self.closers.add(promise);
        if self.is_closed {
            return;
        }
        (self.is_closed, self.is_ending) = (true, true);
        if self.lost.is_some() {
            self.end_if_done();
        } else if self.with_disk > 0 {
            self.hurry(true);
        } else {
            self.close();
        }
    }

    /// Keeps the text of a panic; the ticket for it.
    pub(crate) fn keep_text(&mut self, panic: Box<dyn Any + Send>) -> u64 {
        self.last_text += 1;
        texts::keep(self.number, self.last_text, unwind::text(&*panic));
        unwind::discard(panic);
        self.last_text
    }

    pub(crate) fn take_text(&self, ticket: u64) -> Option<String> {
        texts::text(self.number, ticket)
    }

    pub(crate) fn stats(&self) -> DurableStats {
        let (lines_saved, _) = self.memory.lines();
        DurableStats {
            lines_saved,
            memory_bytes: self.memory.high_water() as u64,
            used_bytes: self.memory.taken_bytes() as u64,
            limit_bytes: self.memory.limit() as u64,
            image_bytes: self.image_bytes,
            ..self.stats
        }
    }

    /// What a report changes.
    fn take(&mut self, report: Report) {
        match report {
            Report::Durable { group, bytes, log_bytes, began, ended, buffer } => {
                self.rooms.give_back(buffer);
                self.durable = self.durable.max(group);
                self.is_created = true;
                self.stats.groups += u64::from(group > 0);
                self.stats.log_bytes = log_bytes;
                self.stats.written_bytes += bytes;
                if group > 0 {
                    let took = ended - began;
                    self.stats.sync_ns += took.as_nanos() as u64;
                    self.stats.sync_ns_max = self.stats.sync_ns_max.max(took.as_nanos() as u64);
                    self.writing_takes = (self.writing_takes * 7 + took) / 8;
                    // That of the next, if it lay ready.
                    self.writing_since = ended;
                }
                self.oldest = self.open_since;
                self.go_on_copying(false);
                if self.within.is_none() || group == 0 || self.is_ending {
                    self.with_disk -= 1;
                    self.close();
                } else {
                    self.is_pausing = true;
                }
            }
            Report::Free => {
                if std::mem::take(&mut self.is_pausing) {
                    self.with_disk -= 1;
                    self.close();
                }
            }
            Report::Copied => self.go_on_copying(true),
            Report::Image => self.copying = None,
            Report::Lost(cause) => {
                self.lost.get_or_insert(cause);
                self.end_if_done();
            }
        }
    }
}

/// What the disk thread says to the pool with this number, on its trustee's thread.
pub(crate) fn report(number: u64, report: Report) {
    update(number, |core| core.take(report));
}

impl Drop for Core {
    /// The last handle is gone, or the trustee. The disk thread finishes by itself.
    fn drop(&mut self) {
        if !self.is_closed || self.is_ending {
            lock::is_closing(self.lock);
            if self.lost.is_none()
                && let Some(record) = self.rooms.close(&self.memory, self.open)
            {
                self.send(Job::Group(record));
            }
        }
        // Those that wait for nothing as well: they forget the pool.
        for ear in self.clients.drain() {
            tell_ear(&ear, self.number, News::Gone, |_| ());
        }
        Told::gone(self.futures.drain(..).map(|(_, future)| future));
    }
}
