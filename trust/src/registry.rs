//! Who is there: trustees by id, and the inbox through which a stranger reaches a worker for the first time.
//!
//! Nothing here is on the path of a request. Locks are short and never held across user code.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::thread::Pid;

use crate::count;
use crate::fiber::FiberRef;
use crate::homes::Homes;
use crate::occupancy;
use crate::park::Parker;
use crate::property::Header;
use crate::slot::Pair;
use crate::stats::Counters;
use crate::sync;

/// Names a trustee: machine, index among the threads of the machine, and which thread at that index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrusteeId(u64);

impl TrusteeId {
    fn new(machine: u16, index: u16, generation: u32) -> Self {
        TrusteeId((u64::from(machine) << 48) | (u64::from(index) << 32) | u64::from(generation))
    }
    /// The machine (process) of a rack program; 0 in a program of one process.
    pub fn machine(self) -> u16 {
        (self.0 >> 48) as u16
    }
    /// No trustee's, and what no [`from_bits`](Self::from_bits) gives.
    pub(crate) const NOBODY: TrusteeId = TrusteeId(u64::MAX);
    /// An id of this machine that no thread ever gets: what is asked of it fails, here and on other machines.
    pub(crate) fn vacant() -> Self {
        TrusteeId::new(machine(), u16::MAX, u32::MAX)
    }
    /// Index among the threads of its machine. Reused after the thread has ended.
    #[inline(always)]
    pub fn index(self) -> usize {
        usize::from((self.0 >> 32) as u16)
    }
    /// All of it, as one number.
    pub fn to_bits(self) -> u64 {
        self.0
    }
    /// The inverse of [`to_bits`](Self::to_bits). An id of no trustee is harmless: requests to it fail.
    pub fn from_bits(bits: u64) -> Self {
        // The one id that a worker may compare its own with when it has none any more.
        TrusteeId(if bits == Self::NOBODY.0 { bits - 1 } else { bits })
    }
}

impl fmt::Debug for TrusteeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}w{}", self.machine(), self.index())?;
        if self.0 as u32 == 0 { Ok(()) } else { write!(f, ".{}", self.0 as u32) }
    }
}

/// What others know of a worker.
pub(crate) struct Shared {
    pub(crate) id: TrusteeId,
    /// As the kernel names it.
    pub(crate) thread: Pid,
    pub(crate) parker: Parker,
    pub(crate) counters: Counters,
    pub(crate) quiet: crate::pool::Quiet,
    pub(crate) homes: Arc<Homes>,
    inbox: sync::Mutex<Inbox>,
    has_mail: sync::AtomicBool,
}

#[derive(Default)]
struct Inbox {
    messages: VecDeque<Message>,
    /// Counts, one for each property: they are bounded by the number of properties, however long the worker does not look.
    counts: HashMap<*mut Header, i64>,
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

    /// All of it.
    fn take(&mut self) -> VecDeque<Message> {
        let mut messages = std::mem::take(&mut self.messages);
        for (property, sum) in std::mem::take(&mut self.counts) {
            messages.extend(count::parts_of(sum).map(|part| Message::Count(PropertyRef(property), part)));
        }
        messages
    }
}

/// What reaches a worker other than by a slot.
pub(crate) enum Message {
    /// A new client, with the slots it will use.
    Client(Arc<Shared>, Arc<Pair>),
    /// The fiber may go on.
    Ready(FiberRef),
    /// Runs in a new fiber.
    Spawn(crate::fiber::Entry),
    /// Trusts were cloned or dropped by a thread that has no slots, or none that is free.
    Count(PropertyRef, i32),
    /// A thread without a free slot has entrusted this property to the worker.
    Adopt(PropertyRef),
    /// For the service thread: one without a link has cloned or dropped a trust of a property on another machine (`far::forward`).
    Forward,
    /// For a trust on a thread that need not have slots: a call that is run on the worker as soon as nothing else is
    /// delegated there. It owns a trust of the property, which the message counts; none is named where it is counted already.
    Ask(Option<PropertyRef>, Box<dyn FnOnce(&crate::worker::Worker) + Send>),
    /// Look around: something that you wait for has changed.
    Nudge,
}

/// A property on its way to its trustee.
pub(crate) struct PropertyRef(pub(crate) *mut Header);
#[expect(unsafe_code, reason = "the pointer is only used by the property's own thread")]
// SAFETY: only the trustee that receives it looks behind the pointer.
unsafe impl Send for PropertyRef {}

impl Shared {
    /// What others know of the worker of the calling thread.
    fn new(id: TrusteeId) -> Self {
        Shared {
            id,
            thread: rustix::thread::gettid(),
            parker: Parker::new(id.index()),
            counters: Counters::default(),
            quiet: crate::pool::Quiet::default(),
            homes: Arc::default(),
            inbox: sync::Mutex::new(Inbox::default()),
            has_mail: sync::AtomicBool::new(false),
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
            // Pairs with the Acquire in `has_mail`.
            self.has_mail.store(true, Ordering::Release);
            true
        });
        refused.map_or(Ok(()), Err)
    }

    /// Worker: is there a message?
    #[inline(always)]
    pub(crate) fn has_mail(&self) -> bool {
        // Pairs with the Release in `send`.
        self.has_mail.load(Ordering::Acquire)
    }

    /// Worker: all messages that have arrived.
    pub(crate) fn take_mail(&self) -> VecDeque<Message> {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        // Release: who sees it sees that the worker has marked itself busy (`Threadpool::is_quiet`; Acquire in `has_mail`).
        self.has_mail.store(false, Ordering::Release);
        inbox.take()
    }

    /// Worker: takes no more messages; those that came are returned.
    pub(crate) fn close_inbox(&self) -> VecDeque<Message> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.take_mail()
    }
}

#[derive(Default)]
struct Table {
    entries: Vec<Entry>,
    /// Indices that may be used, again. One whose generations are used up is retired.
    free: Vec<u16>,
}

impl Table {
    /// An index, and which thread it is at that index.
    fn take(&mut self) -> (u16, u32) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            u16::try_from(self.entries.len() - 1).expect("at most 65,536 threads of a process can have a trustee")
        });
        (index, self.entries[usize::from(index)].generation)
    }

    fn give_back(&mut self, index: u16) {
        let entry = &mut self.entries[usize::from(index)];
        entry.worker = None;
        // The last one is nobody's (`TrusteeId::vacant`). No id is ever used again: a trust may be older than any of these threads.
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
static MACHINE: AtomicU16 = AtomicU16::new(0);
static IN_RACK: AtomicBool = AtomicBool::new(false);

/// Which machine of a rack program this process is.
pub(crate) fn machine() -> u16 {
    MACHINE.load(Ordering::Relaxed)
}

/// Is this process one of several machines?
pub(crate) fn is_in_rack() -> bool {
    IN_RACK.load(Ordering::Relaxed)
}

/// The id of the worker at this index of a machine's pool, if the pool was the first to have trustees there.
pub fn worker_id(machine: u16, index: u16) -> TrusteeId {
    TrusteeId::new(machine, index, 0)
}

/// Says which machine of a rack program this process is.
///
/// # Errors
/// The number of threads that have a trustee already: to be called before any has.
pub fn set_machine(machine: u16) -> Result<(), usize> {
    let table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    if !table.entries.is_empty() {
        return Err(table.entries.len());
    }
    MACHINE.store(machine, Ordering::Relaxed);
    // Relaxed, both: threads that have trustees come later, and take the lock.
    IN_RACK.store(true, Ordering::Relaxed);
    Ok(())
}

/// Gives the calling thread an id.
///
/// # Panics
/// If 65,536 threads of this process have a trustee at the same time.
pub(crate) fn register() -> Arc<Shared> {
    let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    let (index, generation) = table.take();
    let shared = Arc::new(Shared::new(TrusteeId::new(machine(), index, generation)));
    table.entries[usize::from(index)].worker = Some(Arc::clone(&shared));
    shared
}

/// Takes back the id of a worker that has ended.
pub(crate) fn unregister(id: TrusteeId) {
    let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    table.give_back(id.index() as u16);
    occupancy::leave(id.index());
}

/// The worker with this id, if it is still there.
pub(crate) fn find(id: TrusteeId) -> Option<Arc<Shared>> {
    let table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    let worker = table.entries.get(id.index())?.worker.as_ref()?;
    (worker.id == id).then(|| Arc::clone(worker))
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_used_again_until_its_generations_are_used_up() {
        let mut table = Table::default();
        assert_eq!((table.take(), table.take()), ((0, 0), (1, 0)));
        table.give_back(0);
        assert_eq!(table.take(), (0, 1));
        table.entries[0].generation = u32::MAX - 2;
        table.give_back(0);
        assert_eq!(table.take(), (0, u32::MAX - 1), "the last thread at this index");
        table.give_back(0);
        assert_eq!(table.take(), (2, 0), "it is retired");
        table.give_back(1);
        assert_eq!(table.take(), (1, 1));
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
        // More than one count can be.
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
}
