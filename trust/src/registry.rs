//! Who is there: trustees by id, and the inbox through which a stranger reaches a worker for the first time.
//!
//! Nothing here is on the path of a request. Locks are short and never held across user code.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::fiber::FiberRef;
use crate::homes::Homes;
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
    closed: bool,
}

/// What reaches a worker other than by a slot.
pub(crate) enum Message {
    /// A new client, with the slots it will use.
    Client(Arc<Shared>, Arc<Pair>),
    /// The fiber may go on.
    Ready(FiberRef),
    /// Runs in a new fiber.
    Spawn(crate::fiber::Entry),
    /// A trust was cloned or dropped by a thread that has no slots any more.
    Count(PropertyRef, i32),
    /// For a trust whose trustee is on another machine, by a thread that has no link to it.
    Forward(TrusteeId, PropertyRef, i32),
    /// For a trust on a thread that need not have slots: counts one more trust of the property, which the call, run on the
    /// worker as soon as nothing else is delegated there, owns.
    Ask(TrusteeId, PropertyRef, Box<dyn FnOnce(&crate::worker::Worker) + Send>),
    /// Look around: something that you wait for has changed.
    Nudge,
}

/// A property on its way to its trustee.
pub(crate) struct PropertyRef(pub(crate) *mut Header);
#[expect(unsafe_code, reason = "the pointer is only used by the property's own thread")]
// SAFETY: only the trustee that receives it looks behind the pointer.
unsafe impl Send for PropertyRef {}

impl Shared {
    fn new(id: TrusteeId) -> Self {
        Shared {
            id,
            parker: Parker::new(),
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
            inbox.messages.push_back(message);
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
        std::mem::take(&mut inbox.messages)
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
    free: Vec<u16>,
}

#[derive(Default)]
struct Entry {
    generation: u32,
    worker: Option<Arc<Shared>>,
}

static TABLE: Mutex<Table> = Mutex::new(Table { entries: Vec::new(), free: Vec::new() });
static MACHINE: AtomicU16 = AtomicU16::new(0);
static IN_RACK: AtomicBool = AtomicBool::new(false);
/// Threads of this process that have a trustee.
static LIVE: AtomicUsize = AtomicUsize::new(0);

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
    let index = table.free.pop().unwrap_or_else(|| {
        table.entries.push(Entry::default());
        u16::try_from(table.entries.len() - 1).expect("at most 65,536 threads of a process can have a trustee")
    });
    let entry = &mut table.entries[usize::from(index)];
    let shared = Arc::new(Shared::new(TrusteeId::new(machine(), index, entry.generation)));
    entry.worker = Some(Arc::clone(&shared));
    LIVE.store(table.entries.len() - table.free.len(), Ordering::Relaxed);
    shared
}

/// Takes back the id of a worker that has ended.
pub(crate) fn unregister(id: TrusteeId) {
    let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = &mut table.entries[id.index()];
    entry.worker = None;
    entry.generation = entry.generation.wrapping_add(1);
    table.free.push(id.index() as u16);
    LIVE.store(table.entries.len() - table.free.len(), Ordering::Relaxed);
}

/// Have far more threads a trustee than the machine has cores? Twice as many: the workers of a pool, and those who wait for them.
pub(crate) fn is_crowded() -> bool {
    static CORES: OnceLock<usize> = OnceLock::new();
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: reads a number. Not how many cores this thread may use, which is one if it is pinned.
    let cores =
        CORES.get_or_init(|| usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1));
    LIVE.load(Ordering::Relaxed) > 2 * cores
}

/// The worker with this id, if it is still there.
pub(crate) fn find(id: TrusteeId) -> Option<Arc<Shared>> {
    let table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    let worker = table.entries.get(id.index())?.worker.as_ref()?;
    (worker.id == id).then(|| Arc::clone(worker))
}

#[cfg(all(test, loom))]
mod model;
