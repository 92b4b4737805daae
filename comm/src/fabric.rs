//! The contract: what a one-sided write promises, whatever carries it. This file holds no
//! implementation; `conformance` tests every implementation against it.
//!
//! Words: a *machine* is one process of a rack program. Each owns one *region* of memory that its
//! peers write and only it reads. A *connection* carries the writes of one worker to one machine
//! (thesis 3.2.9: one queue pair for each worker and remote machine, so that no lock is needed and
//! their number grows with the machines only).
//!
//! Order, by pair:
//! - W  The flag (last word) of a write is stored with `Release`; a reader that loads it from its
//!   own region with `Acquire` and finds that value, or the flag of a later write of the same
//!   connection, sees that whole write and all earlier writes of that connection. Nothing else is
//!   ordered: not what comes by two connections, nor what a reader finds in words whose flag it has
//!   not seen (thesis 3.2.7: the ready bit stands at the end of the slot).
//! - P  Sleeping: `park` stores "asleep", makes a `SeqCst` fence (P1), then looks for work; `wake`
//!   comes after the writes, makes a `SeqCst` fence (P2), then looks for "asleep". Whichever fence
//!   comes second, its side sees what the other side stored before its own: the sleeper finds the
//!   work, or the waking side finds the sleeper. No wake-up is lost.

use crate::error::Error;
use crate::memory::Region;
use std::fmt;
use std::time::Duration;

/// Number of a machine in a rack program, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(pub u16);

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "machine {}", self.0)
    }
}

/// Number of a worker in its machine, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u16);

/// Why [`Fabric::park`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// There was work after all; the thread did not sleep.
    Work,
    /// Somebody woke it, and what was written before that is visible. It may be work that was
    /// found earlier, without the wake: look again, and park again.
    Woken,
    /// The time is over.
    TimedOut,
}

/// How a peer went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// It dropped its fabric: the orderly end of a machine.
    Left,
    /// It ended, or cannot be reached, without having left.
    Died,
}

/// One machine's end of what connects the machines of a rack program.
pub trait Fabric: Send + Sync {
    /// The machine this end belongs to.
    fn machine(&self) -> MachineId;

    /// How many machines the program has, this one included. Their ids are `0..machines`.
    fn machines(&self) -> u16;

    /// The own region, which peers write. All bytes are 0 at first.
    fn region(&self) -> &Region;

    /// Length in bytes of the region of `peer`, which bounds what may be written to it.
    ///
    /// # Errors
    /// [`Error::NoSuchPeer`].
    fn region_bytes(&self, peer: MachineId) -> Result<usize, Error>;

    /// The connection of `worker` to `peer`. There is one for each such pair; it may move to the
    /// worker's thread.
    ///
    /// # Errors
    /// [`Error::NoSuchPeer`] (also for the own machine), [`Error::AlreadyConnected`].
    fn connect(&self, peer: MachineId, worker: WorkerId) -> Result<Box<dyn Connection>, Error>;

    /// Puts the calling thread to sleep on the park word at `offset` of the own region until
    /// somebody wakes it, unless `is_idle` says that there is work: it is asked after peers can see
    /// that this thread is about to sleep (P1), and must look with `Acquire` at every flag that may
    /// bring work.
    ///
    /// A park word is 4 bytes, 0 at first, on a cache line that nothing else uses, touched by no
    /// one but `park` and `wake`. Only one thread parks on it: that of `worker`, which has flushed
    /// its connections before.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`] (`offset` is no multiple of 4),
    /// [`Error::System`].
    fn park(
        &self,
        worker: WorkerId,
        offset: usize,
        timeout: Duration,
        is_idle: &mut dyn FnMut() -> bool,
    ) -> Result<Wake, Error>;

    /// Whether this fabric's `park` has to be the one called where several fabrics share a region: it
    /// tells peers that a thread sleeps, which those that wake it by the word themselves need not know.
    fn tells_sleep(&self) -> bool {
        false
    }

    /// The thread of `worker` is about to park, and will not poll for a while. Called where several
    /// fabrics share a region and another's `park` is the one called; `park` implies it.
    fn will_park(&self, worker: WorkerId) {
        let _ = worker;
    }

    /// Wakes the thread of the own machine that sleeps, or is about to, on the park word at
    /// `offset`: for threads of this machine that have work for one another. What the caller stored
    /// before is covered by P.
    ///
    /// # Errors
    /// As for [`park`](Fabric::park).
    fn wake(&self, offset: usize) -> Result<(), Error>;

    /// Moves along what the fabric has in hand for `worker`: completions to take, errors to find.
    /// The worker's thread calls it in each of its turns; it never waits. Fabrics with nothing of
    /// the kind do nothing.
    ///
    /// # Errors
    /// Whatever ends the use of the fabric: [`Error::System`] and the like, naming the cause.
    fn poll(&self, worker: WorkerId) -> Result<(), Error> {
        let _ = worker;
        Ok(())
    }

    /// Why `peer` is lost, in words for the user ("the connection was reset", "it does not answer:
    /// transport retry counter exceeded"), where the fabric knows more than [`Fabric::lost`] says.
    fn cause(&self, peer: MachineId) -> Option<String> {
        let _ = peer;
        None
    }

    /// Whether `peer` is gone, and how. A question that costs a system call at most; it never
    /// waits.
    ///
    /// A machine that is gone answers nothing, but writes to it may go on to succeed: only this
    /// tells.
    ///
    /// # Errors
    /// [`Error::NoSuchPeer`], [`Error::System`].
    fn lost(&self, peer: MachineId) -> Result<Option<Loss>, Error>;

    /// Waits until a peer has died, and says which (any one of them, if several), or `None` when
    /// the time is over, or [`end_watch`](Fabric::end_watch) was called. One thread that sits in
    /// here is all a machine needs for sharing the fate of its peers. Peers that left do not count.
    ///
    /// # Errors
    /// [`Error::System`].
    fn watch(&self, timeout: Duration) -> Result<Option<MachineId>, Error>;

    /// Makes every `watch`, those that wait now and all later ones, return at once. For the end of
    /// a machine: the thread that watches lets go of the fabric, which can be dropped, and so leave
    /// in order.
    fn end_watch(&self);
}

/// The way of one worker's writes to one machine. Used by one thread at a time.
pub trait Connection: Send {
    /// The machine at the other end.
    fn peer(&self) -> MachineId;

    /// Writes `source` into the peer's region at `remote_offset`. One-sided: no code of the peer
    /// takes part in it, and it waits for none, though it may wait until the fabric has room.
    ///
    /// - Offset and length are multiples of 8; the length is at least 8 and bounded by the peer's
    ///   region only. There is no small and bulk call: a fabric chooses its way by the length.
    /// - Order is that of pair W. The last word is the flag, and is to differ from what the peer
    ///   finds there before.
    /// - `source` may be used again as soon as this returns. A fabric whose hardware reads later
    ///   (verbs) takes a copy into registered memory of its own, or into the work request.
    /// - The fabric may hold writes back to send several at once, at the latest until the next
    ///   `flush`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`]: nothing was written.
    fn write(&mut self, source: &[u8], remote_offset: usize) -> Result<(), Error>;

    /// Wakes the peer's thread that sleeps, or is about to, on the park word at `park_offset` of its
    /// region (P2). Call it after the last write of a batch meant for that thread; it costs a fence,
    /// and a system call only if the thread sleeps. May be held back like a write, behind the writes
    /// before it.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`] (no multiple of 4), [`Error::System`].
    fn wake(&mut self, park_offset: usize) -> Result<(), Error>;

    /// Sends what was held back: writes and wakes, in order. A worker calls it once a turn and
    /// before it sleeps. It may wait until the fabric has room, never for code of the peer's
    /// workers.
    ///
    /// # Errors
    /// [`Error::System`].
    fn flush(&mut self) -> Result<(), Error>;
}
