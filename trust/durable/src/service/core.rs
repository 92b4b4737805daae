//! A pool at its trustee: transactions, groups, waiters.
//!
//! Here: state changes by calls and reports. Notifications after them: `notifications.rs`. New images: `copying.rs`.
//!
//! Invariants:
//! - Groups are numbered; one is open. The disk has two at most: it writes one, and the next is queued when that
//!   one is half done, so that the disk does not wait for this thread's turn. A result depends on the last group that
//!   has changes made up to its transaction.
//! - Nothing here waits. While the core is borrowed, the transaction is the only user's code that runs, and no
//!   message to others is handled.
//! - The disk thread refers to a pool by number. The number of a pool that is gone means nothing.

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

use super::client::{Notification, Subscriber};
use super::closers::Closers;
use super::copying::Copying;
use super::disk_thread::Started;
use super::jobs::{Job, Report};
use super::lock;
use super::notifications::{Notifications, notify, update};
use super::texts;
use super::waiting::Waiting;
use crate::group::Rooms;
use crate::hash::ByNumber;
use crate::memory::Memory;
use crate::property::Outcome;
use crate::stats::DurableStats;
use crate::unwind;

/// Group of changes that will never be durable: its waiters are notified when the pool is lost.
pub(crate) const NEVER: u64 = u64::MAX;

/// See the file's documentation.
pub(crate) struct Core {
    pub(crate) memory: Memory,
    number: u64,
    jobs: Sender<Job>,
    lock: (u64, u64),
    /// The open group.
    pub(super) open: u64,
    pub(super) durable: u64,
    /// Jobs that the disk has not reported yet: groups, or the first files.
    with_disk: u32,
    /// The disk has reported the group, and pauses before the next.
    is_pausing: bool,
    is_closing_scheduled: bool,
    within: Option<Duration>,
    /// Time of the oldest change that is not durable, for `within`.
    oldest: Option<Instant>,
    open_since: Option<Instant>,
    pub(super) clients: Waiting<Arc<Trust<Subscriber>>>,
    /// Groups and the futures that wait for them.
    pub(super) futures: VecDeque<(u64, u64)>,
    pub(super) copying: Option<Copying>,
    last_text: u64,
    pub(crate) lost: Option<String>,
    /// Calls are refused.
    pub(crate) is_closed: bool,
    /// The pool ends once everything is durable.
    is_ending: bool,
    closers: Arc<Closers>,
    pub(super) is_created: bool,
    /// The caller that waits for the first files.
    pub(super) creating: Option<Promise<Option<String>>>,
    pub(super) stats: DurableStats,
    pub(super) image_bytes: u64,
    /// Start of the group that the disk writes now, as far as known here.
    writing_since: Instant,
    /// Moving average of the time that a group takes.
    writing_takes: Duration,
    rooms: Rooms,
}

type Cores = HashMap<u64, Rc<RefCell<Core>>, ByNumber>;

thread_local! {
    /// The pools of this thread by number.
    ///
    /// Without a destructor: they are used as long as the thread's trustee is alive, also by destructors of other
    /// thread-locals. Each is taken out when its property is dropped, at the latest with the trustee.
    static CORES: ManuallyDrop<RefCell<Cores>> = ManuallyDrop::default();
}

/// Returns an unpredictable number.
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

    /// Registers the core for the disk thread's reports.
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

    /// Returns the core with this number, if it exists. On its trustee's thread.
    pub(super) fn find(number: u64) -> Option<Rc<RefCell<Core>>> {
        CORES.with(|cores| cores.borrow().get(&number).cloned())
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Requests the first files of a new pool.
    pub(crate) fn create(&mut self) {
        let bytes = self.take_image();
        let seed = self.memory.seed();
        self.send(Job::Create { bytes, seed });
        self.with_disk = 1;
    }

    /// Requests the files of a pool whose root has changed its type. They count as its first ones.
    pub(crate) fn change_type(&mut self) {
        let bytes = self.take_image();
        self.is_created = false;
        self.send(Job::ChangeType { bytes, last: self.open - 1 });
        self.with_disk = 1;
    }

    /// Returns a copy of the memory that contains all changes.
    fn take_image(&mut self) -> Vec<u8> {
        self.memory.take_changes();
        let mut bytes = Vec::new();
        self.memory.copy_out(0, self.memory.high_water(), &mut bytes);
        self.image_bytes = bytes.len() as u64;
        bytes
    }

    pub(crate) fn send(&mut self, job: Job) {
        if self.jobs.send(job).is_err() && self.lost.is_none() {
            self.lost = Some("the disk thread has ended".into());
            // Notifies the present waiters.
            self.later(|_| ());
        }
    }

    /// Changes the core in a fiber, after the code that runs now, and notifies everyone concerned. False if no fiber
    /// can be started.
    fn later(&self, change: fn(&mut Core)) -> bool {
        let number = self.number;
        // The fiber begins later, so it is finished here only if it was dropped unrun.
        !trust::spawn(move || update(number, change)).is_finished()
    }

    /// Called after a transaction or read of the client: returns the group that its result depends on, 0 if that is
    /// durable.
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
            if now.saturating_duration_since(oldest) < within {
                return 0;
            }
        }
        self.note(mark, client)
    }

    /// Registers the client for a notification when the group is durable; group 0 always is.
    pub(crate) fn note(&mut self, mark: u64, client: u64) -> u64 {
        self.clients.note(mark, client);
        mark
    }

    /// Returns the number of groups that the disk may have. With `within` it pauses after each group, and the next is
    /// closed after the pause.
    fn with_disk_max(&self) -> u32 {
        if self.within.is_none() && self.is_created { 2 } else { 1 }
    }

    /// Returns the last group that has changed anything, 0 if it is durable; makes sure that it becomes durable.
    pub(crate) fn mark(&mut self) -> u64 {
        if self.memory.has_changes() {
            if self.with_disk < self.with_disk_max() && !self.is_closing_scheduled {
                self.is_closing_scheduled = true;
                // After the requests that came with this one; if no fiber can be started, at once, without them.
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

    /// Answer to a call that cannot run, and the group to wait for: after a loss, the cause comes with the
    /// notification.
    pub(crate) fn refuses<V>(&mut self, client: u64) -> Option<(u64, Outcome<V>)> {
        if self.is_closed {
            return Some((0, Outcome::Closed));
        }
        self.lost.as_ref()?;
        self.note(NEVER, client);
        // After this request, so after the message that introduces the client.
        let is_told = self.later(|_| ());
        Some((if is_told { NEVER } else { 0 }, Outcome::Lost))
    }

    /// Returns the group that everything before depends on, for a caller that waits in any case.
    pub(crate) fn sync(&mut self, client: u64) -> u64 {
        let mark = self.mark();
        self.hurry(mark > 0);
        self.note(mark, client)
    }

    /// Ends the disk thread's pause, or skips the one after the group that it writes now.
    fn hurry(&mut self, is_wanted: bool) {
        if is_wanted && self.with_disk > 0 && self.within.is_some() {
            self.send(Job::Hurry);
        }
    }

    /// Keeps the promise once the first files are durable, or with the cause if they cannot be.
    pub(crate) fn created(&mut self, promise: Promise<Option<String>>) {
        if self.is_created || self.lost.is_some() {
            promise.keep_with(if self.is_created { None } else { self.lost.clone() });
        } else {
            self.creating = Some(promise);
        }
    }

    /// Starts writing a copy of the memory to the folder that is registered under the promise's id.
    pub(crate) fn snapshot(&mut self, promise: Promise<bool>) {
        if self.lost.is_some() || self.is_closed {
            return drop(promise);
        }
        let mut bytes = Vec::new();
        self.memory.copy_out(0, self.memory.high_water(), &mut bytes);
        self.send(Job::Snapshot { bytes, seed: self.memory.seed(), promise });
    }

    /// Registers a future to be woken when its group is durable.
    pub(crate) fn note_future(&mut self, mark: u64, future: u64) {
        self.futures.push_back((mark, future));
    }

    #[cfg(test)]
    pub(crate) fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Registers a client. Returns the clients that are to be asked whether they still exist.
    pub(super) fn register_client(
        &mut self,
        client: u64,
        subscriber: Trust<Subscriber>,
    ) -> Vec<(u64, Arc<Trust<Subscriber>>)> {
        self.clients.register(client, Arc::new(subscriber));
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
            lock::mark_closing(self.lock);
            self.send(Job::Close);
        }
    }

    /// Ends the pool once everything is durable. The promise is kept when its folder is free, with the cause if
    /// something was lost.
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

    /// Keeps the text of a panic; returns its id.
    pub(crate) fn keep_text(&mut self, panic: Box<dyn Any + Send>) -> u64 {
        self.last_text += 1;
        texts::keep(self.number, self.last_text, trust::link::panic_text(&*panic));
        unwind::discard(panic);
        self.last_text
    }

    pub(crate) fn take_text(&self, text_id: u64) -> Option<String> {
        texts::text(self.number, text_id)
    }

    pub(crate) fn stats(&self) -> DurableStats {
        let (lines_saved, _) = self.memory.lines();
        DurableStats {
            lines_saved,
            memory_bytes: self.memory.high_water() as u64,
            used_bytes: self.memory.allocated_bytes() as u64,
            limit_bytes: self.memory.limit() as u64,
            image_bytes: self.image_bytes,
            ..self.stats
        }
    }

    /// Applies a report.
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
                    let took = ended.saturating_duration_since(began);
                    self.stats.sync_ns += took.as_nanos() as u64;
                    self.stats.sync_ns_max = self.stats.sync_ns_max.max(took.as_nanos() as u64);
                    self.writing_takes = self.writing_takes.saturating_mul(7).saturating_add(took) / 8;
                    // Start of the next group, if it was queued.
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

/// Applies a report of the disk thread to the pool with this number, on its trustee's thread.
pub(crate) fn report(number: u64, report: Report) {
    update(number, |core| core.take(report));
}

impl Drop for Core {
    /// The last handle or the trustee is gone. The disk thread finishes by itself.
    fn drop(&mut self) {
        if !self.is_closed || self.is_ending {
            lock::mark_closing(self.lock);
            if self.lost.is_none()
                && let Some(record) = self.rooms.close(&self.memory, self.open)
            {
                self.send(Job::Group(record));
            }
        }
        // Also clients that wait for nothing: they drop their record of the pool.
        for subscriber in self.clients.drain() {
            notify(&subscriber, self.number, Notification::Gone, |_| ());
        }
        Notifications::gone(self.futures.drain(..).map(|(_, future)| future));
    }
}
