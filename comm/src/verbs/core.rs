//! State of a machine's verbs fabric that its threads share: lanes, board, liveness. Connections keep it
//! alive, so they stay usable after the fabric is dropped.

use super::board::Sleep;
use super::directory::Directory;
use super::lane::{Lane, give_way};
use super::lanes::{Held, Lanes};
use super::link::Counts;
use super::liveness::VerbsLiveness;
use super::raw::{Device, MemoryRegion, QueuePair};
use crate::deadline::deadline_after;
use crate::error::Error;
use crate::ids::{MachineId, Wake, WorkerId};
use crate::memory::Region;
use crate::park;
use crate::waker::Waker;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Duration;

/// Worker number of the thread that starts a machine.
pub(super) const MAIN_THREAD: WorkerId = WorkerId(u16::MAX);
/// Time that a leaving machine waits for its peers' devices to take its writes, and then the message of its graceful
/// close.
pub(super) const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct Core {
    pub(super) machine: MachineId,
    pub(super) machines: u16,
    /// Every queue pair on which wake messages can come, by number. Those without a lane here only receive.
    /// First field, so that `Link` holds the last reference to a queue pair, and destroys it before the memory that
    /// its reads land in.
    pub(super) receivers: HashMap<u32, (MachineId, Arc<QueuePair>)>,
    pub(super) lanes: Lanes<Lane>,
    pub(super) sleepers: Vec<Sleeper>,
    pub(super) memory: Arc<MemoryRegion>,
    /// Kept for as long as peers may write it.
    pub(super) _board: Arc<MemoryRegion>,
    pub(super) region_bytes: BTreeMap<MachineId, usize>,
    pub(super) liveness: Arc<VerbsLiveness>,
    pub(super) device: Arc<Device>,
    pub(super) waker: Waker,
    pub(super) is_leaving: AtomicBool,
    pub(super) wake_messages_received: AtomicU64,
    pub(super) registered_bytes: u64,
    pub(super) directory: Directory,
}

/// Sleep of a thread of this machine.
pub(super) struct Sleeper {
    /// Offset of the word on which it parked last.
    parked_at: AtomicUsize,
    /// Number of its last sleep.
    sleeps: AtomicU32,
}

impl Sleeper {
    pub(super) fn new() -> Sleeper {
        Sleeper { parked_at: AtomicUsize::new(usize::MAX), sleeps: AtomicU32::new(0) }
    }
}

impl Core {
    pub(super) fn region(&self) -> &Region {
        self.memory.region()
    }

    /// Returns the number of a worker among the threads of the machine: the thread that starts it comes first.
    fn thread(&self, worker: WorkerId) -> Result<usize, Error> {
        let workers = (self.sleepers.len() - 1) as u16;
        match worker {
            MAIN_THREAD => Ok(0),
            WorkerId(worker) if worker < workers => Ok(1 + usize::from(worker)),
            WorkerId(worker) => Err(Error::NoSuchWorker { worker, workers }),
        }
    }

    /// Returns the lane by which a worker writes to this peer.
    pub(super) fn lane_of(&self, worker: WorkerId, peer: MachineId) -> Result<usize, Error> {
        let (own, machines) = (self.machine, self.machines);
        self.lanes.to(self.thread(worker)?, peer).ok_or(Error::NoSuchPeer { machine: peer, own, machines })
    }

    pub(super) fn lane(&self, index: usize) -> Held<'_, Lane> {
        self.lanes.lock(index)
    }

    /// See `Fabric::poll`.
    pub(super) fn poll(&self, worker: WorkerId) -> Result<(), Error> {
        self.lanes.poll(self.thread(worker)?)
    }

    pub(super) fn peer_of(&self, queue_pair: u32) -> Option<MachineId> {
        self.receivers.get(&queue_pair).map(|(peer, _)| *peer)
    }

    /// See `Fabric::park`.
    pub(super) fn park(
        &self,
        worker: WorkerId,
        offset: usize,
        timeout: Duration,
        is_idle: &mut dyn FnMut() -> bool,
    ) -> Result<Wake, Error> {
        let word = self.region().word32(offset)?;
        let thread = self.thread(worker)?;
        // Release, pairs with the Acquire in `take_wake_message`.
        self.sleepers[thread].parked_at.store(offset, Ordering::Release);
        let mut is_announced = false;
        let mut broken = None;
        let woke = park::park(word, timeout, &mut || {
            if !is_idle() {
                return false;
            }
            is_announced = true;
            match self.announce(thread, offset, is_idle) {
                Ok(is_idle) => is_idle,
                Err(error) => {
                    broken = Some(error);
                    false
                }
            }
        });
        if is_announced {
            let awake = Sleep::awake(self.sleepers[thread].sleeps.load(Ordering::Relaxed));
            self.lanes.of(thread).try_for_each(|lane| self.lane(lane).retract(thread, awake))?;
        }
        broken.map_or(woke, Err)
    }

    /// Announces the sleep to the peers, waits until they have it, and looks for work for the last time.
    fn announce(&self, thread: usize, offset: usize, is_idle: &mut dyn FnMut() -> bool) -> Result<bool, Error> {
        // Relaxed: only the thread itself counts its sleeps.
        let number = self.sleepers[thread].sleeps.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let sleep = Sleep::asleep(number, offset)?;
        self.lanes.of(thread).try_for_each(|lane| self.lane(lane).announce(thread, sleep))?;
        let mut looks = 0;
        for lane in self.lanes.of(thread) {
            loop {
                self.lanes.poll(thread)?;
                if self.lanes.try_lock(lane).is_some_and(|lane| lane.is_announced(thread)) {
                    break;
                }
                if !is_idle() {
                    return Ok(false);
                }
                give_way(&mut looks);
            }
        }
        // [park-then-poll], once more: the peers have the announcement, and look at it after their writes are done.
        fence(Ordering::SeqCst);
        Ok(is_idle())
    }

    /// Takes a wake message: makes room for another, and wakes the thread that sleeps at `park_offset`. It
    /// may come late, for a sleep that is over; then it wakes no thread, or one that finds no work.
    pub(super) fn take_wake_message(&self, queue_pair: u32, park_offset: usize) -> Result<(), Error> {
        self.wake_messages_received.fetch_add(1, Ordering::Relaxed);
        // Acquire, pairs with the Release in `park`: a sleeper has stored its place before it told its peers.
        // A word where no thread parks is not touched, even if the peer names it.
        let is_parked = |sleeper: &Sleeper| sleeper.parked_at.load(Ordering::Acquire) == park_offset;
        let woken = match self.sleepers.iter().any(is_parked) {
            true => park::wake(self.region().word32(park_offset)?),
            false => Ok(()),
        };
        if let Some((peer, queue)) = self.receivers.get(&queue_pair)
            && let Err(error) = queue.post_receive()
        {
            self.liveness.mark_lost(*peer, &error.to_string());
        }
        woken
    }

    /// See `Lane::look_again`. A lane that a thread holds needs no help.
    pub(super) fn look_again(&self) {
        for mut lane in self.lanes.all().filter_map(|lane| self.lanes.try_lock(lane)) {
            // On failure, the lane's own threads meet the error when they poll.
            let _ = lane.look_again();
        }
    }

    /// Delivers all writes to their peers, as far as that is possible, and makes the I/O thread close gracefully.
    pub(super) fn leave(&self) {
        let deadline = deadline_after(LEAVE_TIMEOUT);
        for lane in self.lanes.all() {
            // Writes that can no longer be delivered are lost with their peer.
            let _ = self.lane(lane).drain(deadline);
        }
        // Release, pairs with the Acquire in `IoThread::run`.
        self.is_leaving.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(super) fn counts(&self) -> Counts {
        let mut sum = Counts {
            wake_messages_received: self.wake_messages_received.load(Ordering::Relaxed),
            registered_bytes: self.registered_bytes + self.directory.registered_bytes.load(Ordering::Relaxed),
            queue_pairs: self.receivers.len() as u64,
            ..Counts::default()
        };
        self.lanes.all().for_each(|lane| sum.add_sends(&self.lane(lane).counts()));
        sum
    }
}
