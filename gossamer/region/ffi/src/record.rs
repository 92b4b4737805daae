//! Records of this machine's threads: how others know of a thread, and what they wish of it, while it runs here. The
//! thread finds its own without a search, on both of its sides; `wishes.rs` has the questions.
//!
//! Invariant: a record is there from the thread's begin on this machine, or its arrival, until it has left its host.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use trust::{Promise, PromiseId};

use crate::reason::Reason;
use crate::timer::Timer;
use crate::waits::Kind;

/// The least stack of a thread that moves amid its own code: the system puts up to 3 KiB of registers there.
const STACK_BYTES_MIN: usize = 64 << 10;

/// Stands for no machine, and for no tie.
pub(crate) const NONE: u32 = u32::MAX;

/// A thread's way to this machine.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Past {
    /// The program's function that it runs.
    pub(crate) function: usize,
    /// Its moves so far.
    pub(crate) moves: u32,
    /// Machine that it came from, and the reason of that move.
    pub(crate) came_from: Option<(u16, Reason)>,
}

impl Past {
    /// That of a thread that begins with this function.
    pub(crate) fn new(function: usize) -> Past {
        Past { function, moves: 0, came_from: None }
    }

    /// The same after a move.
    pub(crate) fn moved(self, from: u16, reason: Reason) -> Past {
        Past { moves: self.moves.saturating_add(1), came_from: Some((from, reason)), ..self }
    }
}

/// A thread of the program on this machine.
pub(crate) struct Record {
    pub(crate) past: Past,
    /// Whether its storage is a block (`block.rs`): others do not move.
    pub(crate) is_in_block: bool,
    /// Bytes of its stack.
    pub(crate) stack_bytes: usize,
    /// The system's id of the thread that runs it.
    pub(crate) host: i32,
    /// Machine to which it is to go. Set with the lock below, and taken by the thread.
    wish: AtomicU32,
    /// Tie for which it has not gone, as it was last found.
    tie: AtomicU32,
    /// Calls of `gsm_thread_hold` that have not been taken back.
    holds: AtomicU32,
}

impl Record {
    pub(crate) fn new(past: Past, is_in_block: bool, stack_bytes: usize) -> Record {
        Record {
            past,
            is_in_block,
            stack_bytes,
            // SAFETY: it touches no memory.
            host: unsafe { libc::gettid() },
            wish: AtomicU32::new(NONE),
            tie: AtomicU32::new(NONE),
            holds: AtomicU32::new(0),
        }
    }

    /// Returns the machine to which it is to go.
    pub(crate) fn wish(&self) -> Option<u16> {
        // Relaxed, here and below: a number on its own.
        u16::try_from(self.wish.load(Ordering::Relaxed)).ok()
    }

    /// Has it go there, with the lock of [`all`].
    pub(crate) fn set_wish(&self, to: u16) {
        self.tie.store(NONE, Ordering::Relaxed);
        if self.wish.swap(to.into(), Ordering::Relaxed) == NONE {
            WISHES.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes the wish to go there, for its thread or for the asker. `false`: the other one has it, or it is no more.
    pub(crate) fn take_wish(&self, to: u16) -> bool {
        let is_taken = self.wish.compare_exchange(to.into(), NONE, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_taken {
            WISHES.fetch_sub(1, Ordering::Relaxed);
        }
        is_taken
    }

    /// Notes the tie, by its number, for which the thread has not gone.
    pub(crate) fn note_tie(&self, tie: usize) {
        self.tie.store(tie as u32, Ordering::Relaxed);
    }

    pub(crate) fn tie(&self) -> Option<usize> {
        Some(self.tie.load(Ordering::Relaxed)).filter(|tie| *tie != NONE).map(|tie| tie as usize)
    }

    pub(crate) fn note_holds(&self, holds: u32) {
        self.holds.store(holds, Ordering::Relaxed);
    }

    pub(crate) fn is_held(&self) -> bool {
        self.holds.load(Ordering::Relaxed) > 0
    }
}

/// Wishes of this machine's threads that nobody has taken.
static WISHES: AtomicUsize = AtomicUsize::new(0);

/// Whether a thread of this machine is to go somewhere.
#[inline(always)]
pub(crate) fn are_wishes() -> bool {
    WISHES.load(Ordering::Relaxed) != 0
}

/// Outcome of a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The thread is there.
    Done,
    NoThread,
    NoMachine,
    /// Its function has ended meanwhile.
    Ended,
    /// It has gone to this machine by itself.
    Elsewhere(u16),
    NoRoom,
    /// Another question has come.
    Replaced,
    /// It was tied all the time: the number of the tie.
    Tied(u8),
    /// It waited all the time.
    Waits(Kind),
    /// It has not come to a place where it could move.
    Late,
    /// Threads of this program stay.
    Never,
}

/// A question to a thread.
pub(crate) struct Ask {
    to: u16,
    reason: Reason,
    asker: Promise<Answer>,
    /// Interrupts the thread meanwhile, where it may go amid its own code.
    timer: Option<Timer>,
}

impl Ask {
    pub(crate) fn asker(&self) -> PromiseId {
        self.asker.id()
    }

    /// Forgets it: its asker knows that there is no answer.
    pub(crate) fn discard(self) {
        self.asker.discard();
    }

    /// Returns the reason for which the thread goes to this machine: it may be another one.
    pub(crate) fn reason_to(&self, to: u16) -> Reason {
        if self.to == to { self.reason } else { Reason::Own }
    }

    /// Tells the asker that its thread has gone to this machine.
    pub(crate) fn went(self, to: u16) {
        let answer = if self.to == to { Answer::Done } else { Answer::Elsewhere(to) };
        self.asker.keep(answer);
    }

    pub(crate) fn answer(self, answer: Answer) {
        self.asker.keep(answer);
    }
}

/// A record, and the open question about it.
pub(crate) struct Entry {
    pub(crate) record: Arc<Record>,
    pub(crate) ask: Option<Ask>,
}

/// This machine's threads, by their ids.
static RECORDS: Mutex<BTreeMap<u64, Entry>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// The thread's, which is among those above; null: none.
    static OWN: Cell<*const Record> = const { Cell::new(std::ptr::null()) };
}

impl Entry {
    /// Has the thread go to a machine, amid its own code too if it `may`. Returns the question that this one replaces.
    pub(crate) fn ask(&mut self, to: u16, reason: Reason, asker: Promise<Answer>, may: bool) -> Option<Ask> {
        self.record.set_wish(to);
        let timer =
            if may && self.record.stack_bytes >= STACK_BYTES_MIN { Timer::start(self.record.host) } else { None };
        self.ask.replace(Ask { to, reason, asker, timer })
    }
}

/// Locks the records: with signals blocked, or on a thread that is not the program's.
pub(crate) fn all() -> MutexGuard<'static, BTreeMap<u64, Entry>> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records the calling thread, which begins or has come, with signals blocked.
pub(crate) fn begin(thread: u64, record: Record) {
    let record = Arc::new(record);
    OWN.set(Arc::as_ptr(&record));
    all().insert(thread, Entry { record, ask: None });
}

/// Returns the address of the calling thread's, for [`take_over`].
pub(crate) fn noted() -> usize {
    OWN.get().expose_provenance()
}

/// In a block: finds the record that the thread's host has begun; 0: none.
pub(crate) fn take_over(noted: usize) {
    OWN.set(std::ptr::with_exposed_provenance(noted));
}

/// Forgets the calling thread, which ends or leaves, with signals blocked. Returns the open question about it.
pub(crate) fn end(thread: u64) -> Option<Ask> {
    OWN.set(std::ptr::null());
    let Entry { record, mut ask } = all().remove(&thread)?;
    if let Some(ask) = &mut ask {
        ask.timer = None;
    }
    if let Some(to) = record.wish() {
        record.take_wish(to);
    }
    ask
}

/// Returns the calling thread's.
pub(crate) fn own() -> Option<&'static Record> {
    // SAFETY: null, or that of the calling thread, which stays until the thread ends or leaves.
    unsafe { OWN.get().as_ref() }
}
