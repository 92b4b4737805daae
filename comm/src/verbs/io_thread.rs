//! I/O thread: the fabric's own thread on each machine. It takes wake messages and wakes sleepers, sends
//! heartbeats to every peer so that a death shows without other writes, takes the device's events, and closes
//! gracefully. It sleeps in `poll` in between; the writes of workers do not pass through it.

use super::board::{HEARTBEAT, LEFT};
use super::core::{Core, LEAVE_TIMEOUT};
use super::lane::{give_way, tag_of};
use super::liveness::failure;
use super::raw::{self, Completion, CompletionChannel, CompletionQueue, Event, QueuePair, WorkRequests};
use crate::deadline::{deadline_after, later};
use crate::error::Error;
use crate::ids::MachineId;
use crate::panics::or_report;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time between two heartbeats to a peer.
pub(super) const BEAT_INTERVAL: Duration = Duration::from_millis(500);
/// Bit in the ids of the I/O thread's own requests; receive requests do not have it.
pub(super) const OWN: u64 = 1 << 63;

/// Path of the I/O thread's own writes to a peer.
pub(super) struct Beat {
    pub(super) peer: MachineId,
    pub(super) queue: QueuePair,
    pub(super) work_requests: WorkRequests,
    /// This machine's part of the peer's board.
    pub(super) board: super::endpoint::Remote,
    pub(super) is_in_flight: bool,
    pub(super) is_dead: bool,
    pub(super) beats: u64,
}

impl Beat {
    /// Returns the tag of the requests to a peer.
    pub(super) fn tag(peer: MachineId) -> u64 {
        OWN | tag_of(peer)
    }

    /// Writes a word of the board.
    pub(super) fn write(&mut self, word: usize, value: u64) -> Result<(), Error> {
        self.work_requests.memory().region().publish(0, &value.to_ne_bytes())?;
        let to = self.board.at(word);
        self.work_requests.write(0, size_of::<u64>(), to.address, to.key)?;
        self.work_requests.sign_last(0);
        self.work_requests.post(&self.queue)?;
        self.is_in_flight = true;
        Ok(())
    }
}

pub(super) struct IoThread {
    pub(super) core: Arc<Core>,
    pub(super) channel: Arc<CompletionChannel>,
    pub(super) queue: Arc<CompletionQueue>,
    pub(super) beats: Vec<Beat>,
}

impl IoThread {
    /// Runs until the machine leaves.
    pub(super) fn run(self) {
        let core = Arc::clone(&self.core);
        let peers: Vec<MachineId> = self.beats.iter().map(|beat| beat.peer).collect();
        let lose = |panic: String| peers.iter().for_each(|peer| core.liveness.mark_lost(*peer, &panic));
        or_report(move || self.serve(), lose);
    }

    fn serve(mut self) {
        let mut next_beat = Instant::now();
        loop {
            if let Err(error) = self.take() {
                self.lose_all(&error.to_string());
            }
            self.take_events();
            // Acquire, pairs with the Release in `Core::leave`.
            if self.core.is_leaving.load(Ordering::Acquire) {
                return self.close_gracefully();
            }
            let now = Instant::now();
            if now >= next_beat {
                next_beat = later(now, BEAT_INTERVAL);
                self.beat();
                self.core.look_again();
            }
            if self.wait(next_beat.saturating_duration_since(now)).is_err() {
                // Waiting is impossible: poll from time to time instead.
                std::thread::sleep(BEAT_INTERVAL.min(Duration::from_millis(10)));
            }
        }
    }

    fn wait(&self, timeout: Duration) -> Result<(), Errno> {
        let fds = [self.channel.as_fd(), self.core.device.events(), self.core.waker.as_fd()];
        let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut fds, Timespec::try_from(timeout).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        self.core.waker.clear();
        Ok(())
    }

    /// Takes wake messages and completions of its own requests.
    fn take(&mut self) -> Result<(), Error> {
        while self.channel.take() {}
        // Armed before it is emptied: completions after the last look are announced.
        self.queue.arm()?;
        let IoThread { core, queue, beats, .. } = self;
        let mut broken = Ok(());
        queue.poll(&mut |completion: Completion| {
            if completion.id & OWN != 0 {
                let peer = MachineId(((completion.id & !OWN) >> 48) as u16);
                if let Some(beat) = beats.iter_mut().find(|beat| beat.peer == peer) {
                    beat.is_in_flight = false;
                    if completion.status != raw::WC_SUCCESS && !beat.is_dead {
                        beat.is_dead = true;
                        core.liveness.mark_lost(peer, &failure(completion.status));
                    }
                }
            } else if let (Some(place), raw::WC_SUCCESS) = (completion.received, completion.status) {
                let taken = core.take_wake_message(completion.queue_pair, place as usize * 4);
                if broken.is_ok() {
                    broken = taken;
                }
            }
        })?;
        broken
    }

    fn take_events(&mut self) {
        while let Some(event) = self.core.device.next_event() {
            match event {
                Event::QueuePair(number, cause) => {
                    if let Some(peer) = self.core.peer_of(number) {
                        self.core.liveness.mark_lost(peer, cause);
                    }
                }
                Event::Completions => self.lose_all("the device reports a broken completion queue"),
                Event::Device => self.lose_all("the RDMA device is gone (fatal error)"),
                Event::Other => {}
            }
        }
    }

    fn lose_all(&self, cause: &str) {
        for beat in &self.beats {
            self.core.liveness.mark_lost(beat.peer, cause);
        }
    }

    /// Sends a heartbeat to each peer that should be there. An incomplete one counts as a new one.
    fn beat(&mut self) {
        for beat in &mut self.beats {
            if beat.is_dead || beat.is_in_flight || self.core.liveness.lost(beat.peer).is_some() {
                continue;
            }
            beat.beats += 1;
            if let Err(error) = beat.write(HEARTBEAT, beat.beats) {
                beat.is_dead = true;
                self.core.liveness.mark_lost(beat.peer, &error.to_string());
            }
        }
    }

    /// Tells every reachable peer that this machine leaves, and waits until they have the message.
    fn close_gracefully(mut self) {
        let deadline = deadline_after(LEAVE_TIMEOUT);
        let mut untold: Vec<MachineId> = self.beats.iter().map(|beat| beat.peer).collect();
        let mut looks = 0;
        loop {
            for beat in self.beats.iter_mut().filter(|beat| !beat.is_in_flight && !beat.is_dead) {
                if untold.contains(&beat.peer) {
                    untold.retain(|peer| *peer != beat.peer);
                    beat.is_dead = beat.write(LEFT, 1).is_err();
                }
            }
            let is_waiting = self.beats.iter().any(|beat| beat.is_in_flight && !beat.is_dead);
            if !is_waiting || self.take().is_err() || Instant::now() >= deadline {
                return;
            }
            give_way(&mut looks);
        }
    }
}
