//! The contract: the guarantees of a one-sided write, over any transport. This file holds no implementation;
//! `conformance` tests every implementation against it.
//!
//! Words: a *machine* is one process of a rack program. Each owns one *region* of memory that its peers write
//! and only it reads. A *connection* carries the writes of one worker to one machine (thesis 3.2.9: one queue
//! pair for each worker and remote machine, so that no lock is needed and their number grows only with the
//! machines).
//!
//! Order, by pair:
//! - [flag-last] The flag (last word) of a write is stored with `Release`; a reader that loads it from its own region
//!   with `Acquire` and finds that value, or the flag of a later write of the same connection, sees that
//!   whole write and all earlier writes of that connection. Nothing else is ordered: neither writes of two
//!   connections, nor words whose flag the reader has not seen (thesis 3.2.7: the ready bit stands at the end
//!   of the slot).
//! - Sleeping: `park` stores "asleep", makes a `SeqCst` fence [park-then-poll], then looks for work; `wake` comes
//!   after the writes, makes a `SeqCst` fence [write-then-wake], then looks for "asleep". The side whose fence comes
//!   second sees the stores that the other side made before its own fence: the sleeper finds the work, or the
//!   waker finds the sleeper. No wake-up is lost.
//!
//! Beside its region a machine may have *shares*, which peers read as well as write. `share/mod.rs` describes
//! them and their orders.

use crate::error::Error;
use crate::ids::{Loss, MachineId, ReadId, ShareId, WorkerId};
use crate::memory::Region;
use std::time::Duration;
#[cfg(all(target_os = "linux", not(loom)))]
use {crate::ids::Wake, crate::memory, crate::park, crate::share::Share, std::ops::Range, std::sync::Arc};

/// One machine's end of the network between the machines of a rack program.
pub trait Fabric: Send + Sync {
    /// Returns the machine this end belongs to.
    fn machine(&self) -> MachineId;

    /// Returns the number of machines of the program, this one included. Their ids are `0..machines`.
    fn machines(&self) -> u16;

    /// Returns the own region, which peers write. All bytes are 0 at first.
    fn region(&self) -> &Region;

    /// Gives memory to a range of the own region, before peers are told to write there. Only a `shm` region that was
    /// opened with less memory than it has bytes ([`RegionSize`](crate::shm::RegionSize)) needs it; a range keeps the
    /// memory and the bytes that it has.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`] (an empty range); [`Error::System`]: among others, out of memory.
    #[cfg(all(target_os = "linux", not(loom)))]
    fn commit_region(&self, range: Range<usize>) -> Result<(), Error> {
        memory::check_access(self.region().bytes(), range.start, range.len(), 1)
    }

    /// Returns the length in bytes of the region of `peer`, which bounds writes to it.
    ///
    /// # Errors
    /// [`Error::NoSuchPeer`].
    fn region_bytes(&self, peer: MachineId) -> Result<usize, Error>;

    /// Makes the connection of `worker` to `peer`. There is one for each such pair; it may move to the
    /// worker's thread.
    ///
    /// # Errors
    /// [`Error::NoSuchPeer`] (also for the own machine), [`Error::AlreadyConnected`].
    fn connect(&self, peer: MachineId, worker: WorkerId) -> Result<Box<dyn Connection>, Error>;

    /// Makes the connections of `worker` to all of `peers`, and returns them in the same order: as by
    /// [`connect`](Fabric::connect), but a fabric whose connections take messages has all of them under way at once.
    ///
    /// # Errors
    /// As for [`connect`](Fabric::connect).
    fn connect_all(&self, peers: &[MachineId], worker: WorkerId) -> Result<Vec<Box<dyn Connection>>, Error> {
        peers.iter().map(|peer| self.connect(*peer, worker)).collect()
    }

    /// Puts the calling thread to sleep on the park word at `offset` of the own region until a wake, unless
    /// `is_idle` returns false because there is work. `park` calls `is_idle` after peers can see that this
    /// thread is about to sleep [park-then-poll]; it must look with `Acquire` at every flag that may bring work.
    ///
    /// A park word is 4 bytes, 0 at first, on a cache line that nothing else uses, and only `park` and `wake`
    /// touch it. Only one thread parks on it: that of `worker`, which has flushed its connections before.
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

    /// Whether a caller that has several fabrics on one region has to call this fabric's `park`: it tells
    /// peers that a thread sleeps. Peers that wake the thread by the word itself need no such message.
    fn tells_sleep(&self) -> bool {
        false
    }

    /// Tells the fabric that the thread of `worker` is about to park, and will not poll for a while. For
    /// several fabrics on one region, where the caller calls `park` of another one; `park` implies it.
    fn will_park(&self, worker: WorkerId) {
        let _ = worker;
    }

    /// Wakes the thread of the own machine that sleeps, or is about to, on the park word at `offset`: for
    /// threads of this machine that have work for one another. [write-then-wake] covers the stores that the
    /// caller made before.
    ///
    /// # Errors
    /// As for [`park`](Fabric::park).
    #[cfg(all(target_os = "linux", not(loom)))]
    fn wake(&self, offset: usize) -> Result<(), Error> {
        park::wake(self.region().word32(offset)?)
    }

    /// Advances the fabric's pending work for `worker`: takes completions, finds errors. The worker's thread
    /// calls it in each of its turns; it never waits. Fabrics with no such work do nothing.
    ///
    /// # Errors
    /// An error that ends the use of the fabric: [`Error::System`] and the like, naming the cause.
    fn poll(&self, worker: WorkerId) -> Result<(), Error> {
        let _ = worker;
        Ok(())
    }

    /// Returns why `peer` is lost, in words for the user ("the connection was reset", "it does not answer:
    /// transport retry counter exceeded"), where the fabric knows more than [`Fabric::lost`] says.
    fn cause(&self, peer: MachineId) -> Option<String> {
        let _ = peer;
        None
    }

    /// Returns whether `peer` is gone, and how. Costs a system call at most; never waits.
    ///
    /// A machine that is gone answers nothing, but writes to it may continue to succeed: only this function tells.
    ///
    /// # Errors
    /// [`Error::NoSuchPeer`], [`Error::System`].
    fn lost(&self, peer: MachineId) -> Result<Option<Loss>, Error>;

    /// Waits until a peer that is not among the `known` ones has died, and returns it (any one of them, if several), or
    /// `None` when the timeout has passed, or [`end_watch`](Fabric::end_watch) was called. One thread in this call is
    /// all a machine needs for sharing the fate of its peers. Peers that left do not count.
    ///
    /// # Errors
    /// [`Error::System`].
    fn watch(&self, known: &[MachineId], timeout: Duration) -> Result<Option<MachineId>, Error>;

    /// Shuts out `peer`, which the others have declared dead though it may run: once this has returned, no byte that
    /// `peer` writes is stored in the own region or shares any more, and it counts as dead here. It waits for that, at
    /// most for `timeout`. A fabric that shares memory ends the process of `peer`, for only that stops its stores; a
    /// child that this process forked keeps its mappings until it executes another program.
    ///
    /// # Errors
    /// [`Error::NoSuchPeer`]; [`Error::Unfenced`], also where this fabric cannot do it; [`Error::System`].
    fn fence(&self, peer: MachineId, timeout: Duration) -> Result<(), Error> {
        let _ = timeout;
        Err(Error::Unfenced { machine: peer, reason: "its fabric cannot do that".to_owned() })
    }

    /// Opens a share of the own machine: `bytes` bytes of address space, with nothing committed yet. Peers
    /// may name it from now on. Several fabrics that share a region also share its shares.
    ///
    /// Unopened shares together cost one descriptor and one empty file for all machines of a host on `shm`, 512
    /// bytes of each machine's board on `verbs`, and nothing elsewhere. An open one costs its commit map, a
    /// bit for each [`SHARE_UNIT_BYTES`](crate::SHARE_UNIT_BYTES).
    ///
    /// # Errors
    /// [`Error::Share`]: an invalid number or length, or a share that is open already; [`Error::Verbs`],
    /// [`Error::System`].
    ///
    /// # Example
    /// Machine 1 of two has a share, and commits a part of it; machine 0 writes there and reads it back.
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
    /// let read_id = connection.read_share(TABLE, 64, 8)?;
    /// let mut bytes = [0; 8];
    /// while !connection.take(read_id, &mut bytes)? {} // a worker does something else meanwhile
    /// assert_eq!(&bytes, b"eight by");
    /// assert!(connection.write_share(TABLE, 1 << 20, &bytes).is_err(), "nothing is committed there");
    /// # Ok::<(), comm::Error>(())
    /// ```
    #[cfg(all(target_os = "linux", not(loom)))]
    fn open_share(&self, share: ShareId, bytes: usize) -> Result<(), Error> {
        self.region().shares().open(share, bytes, |share| self.prepare_share(share, 0..0))
    }

    /// Makes a range of an own share usable, by this machine and by its peers. New ranges read as 0; so do
    /// [released](Fabric::release) ranges, except for writes that peers make there in spite of the release.
    /// Committed ranges keep their bytes. Order [commit-before-message]: peers that see a message sent after this
    /// returned may use the range. Takes memory now, and on `verbs` pins it, in chunks of 64 MiB.
    ///
    /// # Errors
    /// [`Error::Misaligned`] (the range is not made of whole units,
    /// [`SHARE_UNIT_BYTES`](crate::SHARE_UNIT_BYTES)), [`Error::OutOfRange`], [`Error::NoSuchShare`];
    /// [`Error::System`], [`Error::Verbs`]: out of memory, or of memory that may be pinned. Then nothing is
    /// newly committed, and only memory that is pinned stays taken.
    #[cfg(all(target_os = "linux", not(loom)))]
    fn commit(&self, share: ShareId, range: Range<usize>) -> Result<(), Error> {
        let share = own_share(self, share)?;
        share.commit(range, |range| self.prepare_share(&share, range))
    }

    /// Gives a range of an own share back to the system. Call it only after all peers that used the range
    /// have been notified, and have answered that they no longer use it. A late access does no harm: a read
    /// returns old bytes or zeros, and a write may be lost, or be found there when the range is committed
    /// again. On `verbs`, memory stays pinned, and is filled with zeros.
    ///
    /// # Errors
    /// As for [`commit`](Fabric::commit).
    #[cfg(all(target_os = "linux", not(loom)))]
    fn release(&self, share: ShareId, range: Range<usize>) -> Result<(), Error> {
        own_share(self, share)?.release(range)
    }

    /// Returns a share as mapped in this process: an own one, or that of a machine whose memory this fabric
    /// maps (`shm`). `None` where it has to be read and written over a connection. The mapping may be used
    /// after the fabric is gone.
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

    /// For fabrics, which call each other's: prepares a range of an own share for use by peers, or (for an
    /// empty range) the share itself before peers ask for it.
    ///
    /// # Errors
    /// [`Error::Verbs`]: out of memory that may be pinned.
    #[doc(hidden)]
    #[cfg(all(target_os = "linux", not(loom)))]
    fn prepare_share(&self, share: &Share, range: Range<usize>) -> Result<(), Error> {
        let _ = (share, range);
        Ok(())
    }

    /// Makes every `watch`, current and later, return at once. For the end of a machine: the watching thread
    /// lets go of the fabric, which can then be dropped, and so leave gracefully.
    fn end_watch(&self);
}

#[cfg(all(target_os = "linux", not(loom)))]
fn own_share(fabric: &(impl Fabric + ?Sized), share: ShareId) -> Result<Arc<Share>, Error> {
    let found = fabric.region().shares().get(share).cloned();
    found.ok_or(Error::NoSuchShare { machine: fabric.machine(), share })
}

/// Path of one worker's writes to one machine, and of its reads from there. Used by one thread at a time.
pub trait Connection: Send {
    /// Returns the machine at the other end.
    fn peer(&self) -> MachineId;

    /// Writes `source` into the peer's region at `remote_offset`. One-sided: no code of the peer takes part
    /// in it, and it waits for none, though it may wait until the fabric has room.
    ///
    /// - Offset and length are multiples of 8; the length is at least 8 and bounded only by the peer's
    ///   region. There is no small and bulk call: a fabric chooses the method by the length.
    /// - Order is that of [flag-last]. The last word is the flag, and must differ from the peer's present word there.
    /// - The caller may use `source` again as soon as this returns. A fabric whose hardware reads later
    ///   (verbs) copies it into its own registered memory, or into the work request.
    /// - The fabric may hold writes back to send several at once, until the next `flush` at the latest.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`]: nothing was written.
    fn write(&mut self, source: &[u8], remote_offset: usize) -> Result<(), Error>;

    /// Wakes the peer's thread that sleeps, or is about to, on the park word at `park_offset` of its region
    /// [write-then-wake]. Call it after the last write of a batch meant for that thread; it costs a fence, and a system
    /// call only if the thread sleeps. Like a write, it may be held back, behind the writes before it.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`] (no multiple of 4), [`Error::System`].
    fn wake(&mut self, park_offset: usize) -> Result<(), Error>;

    /// Sends the writes and wakes that were held back, in order. A worker calls it once a turn and before it
    /// sleeps. It may wait until the fabric has room, never for code of the peer's workers.
    ///
    /// # Errors
    /// [`Error::System`].
    fn flush(&mut self) -> Result<(), Error>;

    /// Writes `source` into a share of the peer at `offset`, one-sided as [`write`](Connection::write):
    /// multiples of 8, held back until the next `flush` at the latest, `source` free at once. It has no flag:
    /// readers learn of it by a message behind it [message-after-writes].
    ///
    /// Where this machine does not know yet that the range is committed, it reads the peer's commit map and
    /// waits for the answer, which needs no worker of the peer. Nothing is written to a peer that is gone.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`], [`Error::NoSuchShare`], [`Error::NotCommitted`]: nothing
    /// was written; [`Error::System`]; [`Error::Share`]: the owner's description of the share is invalid.
    fn write_share(&mut self, share: ShareId, offset: usize, source: &[u8]) -> Result<(), Error>;

    /// Begins to read `bytes` bytes of a share of the peer, from `offset` on [read-after-message]: multiples
    /// of 8. The read sees earlier writes of this connection. It waits only as
    /// [`write_share`](Connection::write_share) does; it may be held back until `take` or `flush`.
    ///
    /// The fabric keeps the bytes until they are [taken](Connection::take), in memory that it allocates when
    /// the first of them arrive. A forgotten read id costs that memory, until the connection is dropped, and
    /// nothing more.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`], [`Error::NoSuchShare`], [`Error::System`],
    /// [`Error::Share`]. `take` reports a range that is not committed, and a peer that is gone.
    fn read_share(&mut self, share: ShareId, offset: usize, bytes: usize) -> Result<ReadId, Error>;

    /// Takes a read if its bytes have arrived: fills `into`, which has the length of the read, uses up the
    /// read id, and returns true. Does not wait for the read, though as `flush` it may wait until the fabric
    /// has room. Arriving bytes wake no thread: a worker that waits for a read calls this in each of its
    /// turns, and does not park.
    ///
    /// Each call for a read passes the same buffer, unchanged since: bytes that have arrived may be in it before all
    /// are there. After an error its contents are unspecified.
    ///
    /// # Errors
    /// [`Error::NotCommitted`], [`Error::Gone`]: the bytes will not come, and the read id is used up.
    /// [`Error::NoSuchRead`]; [`Error::WrongRoom`]: the read can still be taken; [`Error::System`]: among
    /// others, out of memory for it, and the read id is used up.
    fn take(&mut self, read_id: ReadId, into: &mut [u8]) -> Result<bool, Error>;
}
