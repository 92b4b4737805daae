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
//!
//! Beside its region a machine may have *shares* (`share/mod.rs`), which peers read as well as write. Their orders, W,
//! R and C, are written down there.

use crate::error::Error;
use crate::memory::Region;
#[cfg(all(target_os = "linux", not(loom)))]
use crate::park;
#[cfg(all(target_os = "linux", not(loom)))]
use crate::share::Share;
use crate::share::{ShareId, Ticket};
use std::fmt;
#[cfg(all(target_os = "linux", not(loom)))]
use std::ops::Range;
#[cfg(all(target_os = "linux", not(loom)))]
use std::sync::Arc;
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
    #[cfg(all(target_os = "linux", not(loom)))]
    fn park(
        &self,
        worker: WorkerId,
        offset: usize,
        timeout: Duration,
        is_idle: &mut dyn FnMut() -> bool,
    ) -> Result<Wake, Error> {
        let word = self.region().word32(offset)?;
        self.will_park(worker);
        park::park(word, timeout, is_idle)
    }

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
    #[cfg(all(target_os = "linux", not(loom)))]
    fn wake(&self, offset: usize) -> Result<(), Error> {
        park::wake(self.region().word32(offset)?)
    }

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

    /// Opens a share of the own machine: `bytes` bytes of address space, of which nothing is committed yet. Peers may
    /// name it from now on. Several fabrics that share a region share its shares too.
    ///
    /// Shares that nobody opens cost one descriptor and one empty file for all machines of a host on `shm`, 512 bytes
    /// of each machine's board on `verbs`, and nothing elsewhere. An open one costs its commit map, a bit for each
    /// [`SHARE_UNIT_BYTES`](crate::SHARE_UNIT_BYTES).
    ///
    /// # Errors
    /// [`Error::Share`]: no such number, no such length, or open already; [`Error::Verbs`], [`Error::System`].
    ///
    /// # Example
    /// Machine 1 of two has a share, of which it commits a part; machine 0 writes there and reads it back.
    ///
    /// ```
    /// use comm::{Connection, Fabric, MachineId, SHARE_UNIT_BYTES, ShareId, WorkerId, shm};
    /// use std::time::Duration;
    ///
    /// const TABLE: ShareId = ShareId(0);
    /// const TIMEOUT: Duration = Duration::from_secs(60);
    /// let segments = shm::create(2)?;
    /// let open = |machine| shm::ShmFabric::open(segments.bootstrap(MachineId(machine))?, 4096, TIMEOUT);
    /// let [near, far] = std::thread::scope(|scope| {
    ///     let far = scope.spawn(|| open(1));
    ///     [open(0), far.join().expect("it does not panic")]
    /// });
    /// let (near, far) = (near?, far?);
    ///
    /// far.open_share(TABLE, 1 << 30)?; // a GiB of addresses, and no memory yet
    /// far.commit(TABLE, 0..4 * SHARE_UNIT_BYTES)?;
    /// // Mostly, machine 0 hears by a message now that it may use these bytes.
    /// let mut connection = near.connect(MachineId(1), WorkerId(0))?;
    /// connection.write_share(TABLE, 64, b"eight by")?;
    /// let ticket = connection.read_share(TABLE, 64, 8)?;
    /// let mut bytes = [0; 8];
    /// while !connection.take(ticket, &mut bytes)? {} // a worker does something else meanwhile
    /// assert_eq!(&bytes, b"eight by");
    /// assert!(connection.write_share(TABLE, 1 << 20, &bytes).is_err(), "nothing is committed there");
    /// # Ok::<(), comm::Error>(())
    /// ```
    #[cfg(all(target_os = "linux", not(loom)))]
    fn open_share(&self, share: ShareId, bytes: usize) -> Result<(), Error> {
        self.region().shares().open(share, bytes, |share| self.prepare_share(share, 0..0))
    }

    /// Makes a range of an own share usable, by this machine and by its peers. Where it never was, its bytes are 0;
    /// where it was [released](Fabric::release), too, but for what peers write there in spite of that. Where it is
    /// committed, they stay. Order C: peers that see a message sent after this returned may use the range. It takes
    /// memory now, and on `verbs` pins it, in chunks of 64 MiB.
    ///
    /// # Errors
    /// [`Error::Misaligned`] (the range is no whole units, [`SHARE_UNIT_BYTES`](crate::SHARE_UNIT_BYTES)),
    /// [`Error::OutOfRange`], [`Error::NoSuchShare`]; [`Error::System`], [`Error::Verbs`]: there is no more memory, or
    /// no more that may be pinned. Nothing is committed then that was not before, and no memory taken but what is
    /// pinned.
    #[cfg(all(target_os = "linux", not(loom)))]
    fn commit(&self, share: ShareId, range: Range<usize>) -> Result<(), Error> {
        let share = own_share(self, share)?;
        share.commit(range, |range| self.prepare_share(&share, range))
    }

    /// Gives a range of an own share back to the system. To be called only when all peers that used it were told, and
    /// have answered that they do not any more. One that does nevertheless does no harm: it reads old bytes or zeros,
    /// and what it writes may be lost, or be found there when the range is committed again. On `verbs`, memory stays
    /// pinned, and is filled with zeros.
    ///
    /// # Errors
    /// As for [`commit`](Fabric::commit).
    #[cfg(all(target_os = "linux", not(loom)))]
    fn release(&self, share: ShareId, range: Range<usize>) -> Result<(), Error> {
        own_share(self, share)?.release(range)
    }

    /// A share as this process has it mapped: an own one, or that of a machine whose memory this fabric maps (`shm`).
    /// `None` where it has to be read and written over a connection. It may be used after the fabric is gone.
    ///
    /// # Errors
    /// [`Error::NoSuchPeer`], [`Error::NoSuchShare`], [`Error::System`].
    #[cfg(all(target_os = "linux", not(loom)))]
    fn mapped(&self, machine: MachineId, share: ShareId) -> Result<Option<Arc<Share>>, Error> {
        if machine == self.machine() {
            return own_share(self, share).map(Some);
        }
        self.region_bytes(machine).map(|_| None)
    }

    /// For fabrics, which call each other's: what has to be done before a range of an own share can be used by peers,
    /// or (for no bytes) before the share can be asked for.
    ///
    /// # Errors
    /// [`Error::Verbs`]: there is no more memory that may be pinned.
    #[doc(hidden)]
    #[cfg(all(target_os = "linux", not(loom)))]
    fn prepare_share(&self, share: &Share, range: Range<usize>) -> Result<(), Error> {
        let _ = (share, range);
        Ok(())
    }

    /// Makes every `watch`, those that wait now and all later ones, return at once. For the end of
    /// a machine: the thread that watches lets go of the fabric, which can be dropped, and so leave
    /// in order.
    fn end_watch(&self);
}

#[cfg(all(target_os = "linux", not(loom)))]
fn own_share(fabric: &(impl Fabric + ?Sized), share: ShareId) -> Result<Arc<Share>, Error> {
    let found = fabric.region().shares().get(share).cloned();
    found.ok_or(Error::NoSuchShare { machine: fabric.machine(), share })
}

/// The way of one worker's writes to one machine, and of its reads from there. Used by one thread at a time.
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

    /// Writes `source` into a share of the peer at `offset`, one-sided as [`write`](Connection::write): multiples of 8,
    /// held back until the next `flush` at the latest, `source` free at once. It has no flag: readers learn of it by a
    /// message behind it (order W of shares).
    ///
    /// Where this machine does not know yet that the range is committed it asks the peer's commit map, and waits for
    /// the answer, which needs no worker of the peer. To a peer that is gone nothing is written.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`], [`Error::NoSuchShare`], [`Error::NotCommitted`]: nothing was
    /// written; [`Error::System`]; [`Error::Share`]: what its owner says of the share cannot be.
    fn write_share(&mut self, share: ShareId, offset: usize, source: &[u8]) -> Result<(), Error>;

    /// Begins to read `bytes` bytes of a share of the peer, from `offset` on (order R of shares): multiples of 8. What
    /// was written before on this connection is seen. Nothing is waited for, but as for
    /// [`write_share`](Connection::write_share); it may be held back until `take` or `flush`.
    ///
    /// The fabric keeps what comes until it is [taken](Connection::take), in memory that it takes when the first of it
    /// is there. A ticket that is forgotten costs that memory, until the connection is dropped, and nothing more.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`], [`Error::NoSuchShare`], [`Error::System`], [`Error::Share`]. That
    /// a range is not committed, and that the peer is gone, is told by `take`.
    fn read_share(&mut self, share: ShareId, offset: usize, bytes: usize) -> Result<Ticket, Error>;

    /// Takes what was read, if it is there: then `into`, which is as long as what was asked for, is filled, the ticket
    /// is used up, and this is true. It does not wait for the read, though as `flush` it may wait until the fabric has
    /// room. Nobody is woken by what comes: whoever waits for a read calls this in each of its turns, and does not
    /// park.
    ///
    /// # Errors
    /// [`Error::NotCommitted`], [`Error::Gone`]: it will not come, and the ticket is used up. [`Error::NoSuchTicket`];
    /// [`Error::WrongRoom`]: it can still be taken; [`Error::System`]: among others, there was no memory for it, and
    /// the ticket is used up.
    fn take(&mut self, ticket: Ticket, into: &mut [u8]) -> Result<bool, Error>;
}
