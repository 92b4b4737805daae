//! The registry of trustees by id, and the inbox through which a thread without a slot reaches a worker.
//!
//! Nothing here is on the path of a request. Locks are short and never held across user code.

mod calls;
pub(crate) mod probe;
mod quiet;
pub(crate) mod report;

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use self::calls::CallQueue;
pub(crate) use self::calls::{CallHead, Calls, QueuedCall, Verdict};
use self::probe::Probe;
use self::quiet::Quiet;
use self::report::Collection;
use crate::fiber::footprint::Footprint;
use crate::fiber::record::Whom;
use crate::fiber::shown::Shown;
use crate::fiber::{Entry as NewFiber, FiberRef};
use crate::ids::{self, TrusteeId};
use crate::park::Parker;
use crate::park::occupancy;
use crate::property::Header;
use crate::property::reclaim::{Answer, Question};
use crate::property::slab::PropertySlab;
use crate::request::{Notice, Pair};
use crate::stats::Counters;
use crate::sync;
use crate::trace::Logs;

/// Most trustees of a process at a time: as many as an index can name.
pub(crate) const TRUSTEES_MAX: usize = 1 << 16;

/// There is no id for another trustee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process has {TRUSTEES_MAX} trustees, the most it can have at a time: one for each thread that uses trusts, \
     and those of `Builder::trustees`. End threads and pools that are no longer needed, or use fewer trustees, each of \
     which can have any number of values"
)]
pub(crate) struct TooMany;

/// Number of the thread that runs a worker, which may change (`runtime/seats`).
pub(crate) struct ThreadNumber(AtomicI32);

impl ThreadNumber {
    fn of_this_thread() -> Self {
        ThreadNumber(AtomicI32::new(this_thread()))
    }

    /// Notes that the calling thread runs the worker from now on.
    pub(crate) fn set_to_this_thread(&self) {
        self.0.store(this_thread(), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> i32 {
        self.0.load(Ordering::Relaxed)
    }
}

fn this_thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// The part of a worker that other threads see.
pub(crate) struct Shared {
    pub(crate) id: TrusteeId,
    /// The thread's number in the kernel.
    pub(crate) thread: ThreadNumber,
    pub(crate) parker: Parker,
    pub(crate) counters: Counters,
    pub(crate) quiet: Quiet,
    pub(crate) slab: Arc<PropertySlab>,
    pub(crate) trace: Logs,
    /// The fiber that runs there.
    pub(crate) fibers: Shown,
    /// The memory of its stacks.
    pub(crate) stacks: OnceLock<Footprint>,
    /// Askers for a report. The worker has a message for them if there are any.
    report_to: Mutex<Vec<Arc<Collection>>>,
    inbox: sync::Mutex<Inbox>,
    /// Calls, and the mark that there are messages in the inbox.
    pub(crate) calls: CallQueue,
}

#[derive(Default)]
struct Inbox {
    messages: VecDeque<Message>,
    /// Counts, one for each property: they are bounded by the number of properties, however late the worker looks.
    counts: HashMap<*mut Header, i64>,
    /// The mark for new messages is on its way to the worker, or with it.
    told: bool,
    closed: bool,
}

#[expect(unsafe_code, reason = "the pointers are only used by the properties' own thread")]
// SAFETY: as for `PropertyRef`.
unsafe impl Send for Inbox {}

impl Inbox {
    fn put(&mut self, message: Message) {
        match message {
            Message::Count(property, delta) => *self.counts.entry(property.0).or_insert(0) += i64::from(delta),
            message => self.messages.push_back(message),
        }
    }

    /// Takes all messages.
    fn take(&mut self) -> VecDeque<Message> {
        let mut messages = std::mem::take(&mut self.messages);
        for (property, sum) in std::mem::take(&mut self.counts) {
            messages.extend(parts_of(sum).map(|part| Message::Count(PropertyRef(property), part)));
        }
        messages
    }
}

/// Message to a worker other than by a slot.
pub(crate) enum Message {
    /// A new client, with the slots it will use.
    Client(Arc<Shared>, Arc<Pair>),
    /// The fiber may go on.
    Ready(FiberRef),
    /// Runs in a new fiber.
    Spawn(NewFiber),
    /// Runs in delegated context: for work that must arrive also where there is no memory for a fiber.
    Run(Box<dyn FnOnce() + Send>),
    /// Trusts were cloned or dropped by a thread that has no slots, or none that is free.
    Count(PropertyRef, i32),
    /// A thread without a free slot has entrusted this property to the worker.
    Adopt(PropertyRef),
    /// Message to the service thread: a thread without a link has cloned or dropped a trust of a property on another
    /// machine (`remote::forward`).
    Forward,
    /// Message to the service thread: a trustee asks for the requests of other machines to it.
    Census(Question),
    /// The answer.
    Numbers(Box<Answer>),
    /// A thread wants to know of the fibers ([`Shared::ask_for_report`]).
    Report,
    /// An empty request, answered by its arrival.
    Probe(Arc<Probe>),
    /// Takes the fiber with this number out of the wait with that number, for this reason.
    Interrupt(u64, u64, Box<str>),
    /// The fiber that runs for this client is to unwind at its next wait.
    Abort(Whom),
    /// A wake-up: something that the worker waits for has changed.
    Nudge,
}

/// Splits a sum of counts into parts of one count each.
pub(crate) fn parts_of(sum: i64) -> impl Iterator<Item = i32> {
    let mut left = Some(sum);
    std::iter::from_fn(move || {
        let sum = left?;
        let part = sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
        left = Some(sum - part).filter(|left| *left != 0);
        Some(part as i32)
    })
}

impl From<Notice> for Message {
    fn from(notice: Notice) -> Self {
        match notice {
            Notice::Count(property, delta) => Message::Count(PropertyRef(property), delta),
            Notice::Adopt(property) => Message::Adopt(PropertyRef(property)),
        }
    }
}

/// A property on its way to its trustee.
pub(crate) struct PropertyRef(pub(crate) *mut Header);
#[expect(unsafe_code, reason = "the pointer is only used by the property's own thread")]
// SAFETY: only the trustee that receives it looks behind the pointer.
unsafe impl Send for PropertyRef {}

impl Shared {
    /// Shared part of the worker of the calling thread.
    fn new(id: TrusteeId) -> Self {
        Shared {
            id,
            thread: ThreadNumber::of_this_thread(),
            parker: Parker::new(id.index()),
            counters: Counters::default(),
            quiet: Quiet::default(),
            slab: Arc::default(),
            trace: Logs::default(),
            fibers: Shown::default(),
            stacks: OnceLock::new(),
            report_to: Mutex::default(),
            inbox: sync::Mutex::new(Inbox::default()),
            calls: CallQueue::new(),
        }
    }

    /// Delivers a message and wakes the worker; gives it back if the worker takes no more.
    pub(crate) fn send(&self, message: Message) -> Result<(), Message> {
        let mut refused = None;
        let _ = self.parker.publish_if(|| {
            let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
            if inbox.closed {
                refused = Some(message);
                return false;
            }
            inbox.put(message);
            if !std::mem::replace(&mut inbox.told, true) {
                self.calls.push_inbox_mark();
            }
            true
        });
        refused.map_or(Ok(()), Err)
    }

    /// Sends a call and wakes the worker; gives it back if the worker takes no more.
    pub(crate) fn send_call(&self, call: QueuedCall) -> Result<(), QueuedCall> {
        let mut refused = None;
        let _ = self.parker.publish_if(|| {
            refused = self.calls.push(call).err();
            refused.is_none()
        });
        refused.map_or(Ok(()), Err)
    }

    /// Worker: is there a message, or a call?
    #[inline(always)]
    pub(crate) fn has_messages(&self) -> bool {
        self.calls.has_any()
    }

    /// Worker: takes all calls and messages that have arrived. A thread that sees none left also sees that the worker
    /// has marked itself busy before (`Threadpool::is_quiet`).
    pub(crate) fn take_messages(&self) -> (Calls, VecDeque<Message>) {
        let taken = self.calls.take();
        let messages = if taken.has_messages { self.drain_inbox(false) } else { VecDeque::new() };
        (taken.calls, messages)
    }

    /// Takes the announced messages.
    fn drain_inbox(&self, closes: bool) -> VecDeque<Message> {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.told = closes;
        inbox.closed |= closes;
        inbox.take()
    }

    /// Worker: takes no more calls and messages; those that came are returned.
    pub(crate) fn close_inbox(&self) -> (Calls, VecDeque<Message>) {
        // First the inbox: no message is announced after this.
        let messages = self.drain_inbox(true);
        (self.calls.close().calls, messages)
    }
}

#[derive(Default)]
struct Table {
    entries: Vec<Entry>,
    /// Free indices. One whose generations are used up is retired.
    free: Vec<u16>,
}

impl Table {
    /// Takes an index and its next generation.
    fn take(&mut self) -> Result<(u16, u32), TooMany> {
        if let Some(index) = self.free.pop() {
            return Ok((index, self.entries[usize::from(index)].generation));
        }
        let index = u16::try_from(self.entries.len()).map_err(|_| TooMany)?;
        self.entries.push(Entry::default());
        Ok((index, 0))
    }

    fn give_back(&mut self, index: u16) {
        let entry = &mut self.entries[usize::from(index)];
        entry.worker = None;
        // The last generation belongs to no thread (`TrusteeId::vacant`). No id is ever used again: a trust may be
        // older than any of these threads.
        if entry.generation < u32::MAX - 1 {
            entry.generation += 1;
            self.free.push(index);
        }
    }
}

#[derive(Default)]
struct Entry {
    generation: u32,
    worker: Option<Arc<Shared>>,
}

static TABLE: Mutex<Table> = Mutex::new(Table { entries: Vec::new(), free: Vec::new() });
/// Sets the number of this process's machine in a rack program.
///
/// # Errors
/// The number of threads that have a trustee already: to be called before any has.
pub fn set_machine(machine: u16) -> Result<(), usize> {
    let table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    if !table.entries.is_empty() {
        return Err(table.entries.len());
    }
    // Threads that have trustees come later, and take the lock.
    ids::set_machine(machine);
    Ok(())
}

/// Gives a new worker, of the calling thread, an id.
///
/// # Errors
/// If there are [`TRUSTEES_MAX`] in this process.
pub(crate) fn register() -> Result<Arc<Shared>, TooMany> {
    let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    let (index, generation) = table.take()?;
    let shared = Arc::new(Shared::new(TrusteeId::new(ids::machine(), index, generation)));
    table.entries[usize::from(index)].worker = Some(Arc::clone(&shared));
    Ok(shared)
}

/// Uses up ids until so many are left for trustees to come.
#[cfg(all(test, not(loom)))]
pub(crate) fn use_up_ids(left: usize) {
    let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    while TRUSTEES_MAX - table.entries.len() > left {
        let _ = table.take();
    }
}

/// Takes back the id of a worker that has ended. True if it was the last worker.
pub(crate) fn unregister(id: TrusteeId) -> bool {
    let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    table.give_back(id.index() as u16);
    occupancy::leave(id.index());
    table.free.len() == table.entries.len()
}

/// All workers.
pub(crate) fn all() -> Vec<Arc<Shared>> {
    let table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    table.entries.iter().filter_map(|entry| entry.worker.clone()).collect()
}

/// The worker with this id, if it has not ended.
pub(crate) fn find(id: TrusteeId) -> Option<Arc<Shared>> {
    let table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    let worker = table.entries.get(id.index())?.worker.as_ref()?;
    (worker.id == id).then(|| Arc::clone(worker))
}

/// Runs `f` with the shared part of this worker, if it has not ended, or ended lately: an ended worker takes no
/// messages.
pub(crate) fn with<R>(id: TrusteeId, f: impl FnOnce(&Arc<Shared>) -> R) -> Option<R> {
    const PLACES: usize = 8;
    thread_local! {
        /// Workers that this thread has asked last, found without a lock.
        static KNOWN: [Cell<Option<Arc<Shared>>>; PLACES] = const { [const { Cell::new(None) }; PLACES] };
    }
    let place = id.index() % PLACES;
    let known = KNOWN.try_with(|known| known[place].take()).ok().flatten().filter(|worker| worker.id == id);
    let worker = known.or_else(|| find(id))?;
    let result = f(&worker);
    // A thread that ends keeps none.
    let _ = KNOWN.try_with(|known| known[place].set(Some(worker)));
    Some(result)
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_used_again_until_its_generations_are_used_up() {
        let mut table = Table::default();
        assert_eq!((table.take(), table.take()), (Ok((0, 0)), Ok((1, 0))));
        table.give_back(0);
        assert_eq!(table.take(), Ok((0, 1)));
        table.entries[0].generation = u32::MAX - 2;
        table.give_back(0);
        assert_eq!(table.take(), Ok((0, u32::MAX - 1)), "the last thread at this index");
        table.give_back(0);
        assert_eq!(table.take(), Ok((2, 0)), "it is retired");
        table.give_back(1);
        assert_eq!(table.take(), Ok((1, 1)));
    }

    #[test]
    fn a_trustee_that_ends_leaves_its_index_to_another() {
        let mut table = Table::default();
        (0..TRUSTEES_MAX).for_each(|index| assert_eq!(table.take(), Ok((index as u16, 0))));
        assert_eq!((table.take(), table.take()), (Err(TooMany), Err(TooMany)));
        table.give_back(u16::MAX);
        assert_eq!((table.take(), table.take()), (Ok((u16::MAX, 1)), Err(TooMany)));
    }

    #[test]
    fn counts_of_one_property_are_one_message() {
        let mut inbox = Inbox::default();
        let (one, two) = (std::ptr::without_provenance_mut(16), std::ptr::without_provenance_mut(32));
        for _ in 0..1000 {
            inbox.put(Message::Count(PropertyRef(one), 1));
            inbox.put(Message::Count(PropertyRef(two), 1));
            inbox.put(Message::Count(PropertyRef(two), -1));
        }
        // More than one count can hold.
        for _ in 0..3 {
            inbox.put(Message::Count(PropertyRef(one), i32::MAX));
        }
        let messages = inbox.take();
        assert_eq!(messages.len(), 5);
        let sum = |of| {
            let counts = messages.iter().filter_map(|message| match message {
                Message::Count(property, delta) if property.0 == of => Some(i64::from(*delta)),
                _ => None,
            });
            counts.sum::<i64>()
        };
        assert_eq!((sum(one), sum(two)), (1000 + 3 * i64::from(i32::MAX), 0));
        assert!(inbox.take().is_empty());
    }

    #[test]
    fn a_sum_of_counts_is_in_parts_that_fit() {
        let most = i64::from(i32::MAX);
        assert_eq!(parts_of(0).collect::<Vec<_>>(), [0]);
        assert_eq!(parts_of(-5).collect::<Vec<_>>(), [-5]);
        assert_eq!(parts_of(2 * most + 1).collect::<Vec<_>>(), [i32::MAX, i32::MAX, 1]);
        assert_eq!(parts_of(i64::from(i32::MIN) - 1).collect::<Vec<_>>(), [i32::MIN, -1]);
    }
}
