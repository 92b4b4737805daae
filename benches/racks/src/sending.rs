//! Sending, at the end of a turn: batches and notices by the ways of their pairs, and writes of machine ways.

use gossamer_ways::machine::{Frame, Write};
use gossamer_ways::ways::{Stamp, Way};
use gossamer_ways::{Pair, Peer};

use crate::Scheme;
use crate::costs::{FRAME_HEAD_BYTES, HOP_NS, WRITE_NS, bytes_ns};
use crate::memory::SLOT_BYTES;
use crate::verified::Batch;
use crate::worker::{Body, Letter};
use crate::world::{Event, Turn, World};

impl World {
    pub(crate) fn send_all(&mut self, turn: &mut Turn) -> Result<(), String> {
        for (to, answer) in std::mem::take(&mut self.workers[turn.worker].answers) {
            self.send(turn, to, answer)?;
        }
        for to in self.workers[turn.worker].ledger.take_ready() {
            let batch = self.workers[turn.worker].ledger.next_batch(to);
            self.send(turn, to, batch)?;
        }
        match self.setup.scheme {
            Scheme::Rings => self.acknowledge_rings(turn),
            Scheme::Ways => self.send_machine_ways(turn),
        }
        Ok(())
    }

    /// Sends a batch. As a pair has one of each kind under way, it has room.
    fn send(&mut self, turn: &mut Turn, to: Peer, batch: Batch) -> Result<(), String> {
        if self.setup.scheme == Scheme::Rings {
            self.workers[turn.worker].owed.remove(&to);
            self.write_directly(turn, to, None, batch);
            return Ok(());
        }
        let from = self.seen_from(turn.worker, 0);
        let pair = Pair { from, to };
        let (way, stamp) = self.workers[turn.worker].ways.send(to, batch.bytes(), turn.now_ns);
        if way == Way::Direct {
            self.write_directly(turn, to, Some((way, stamp)), batch);
        } else if self.machines[turn.machine].allowance.take(pair, batch.bytes()) {
            let body = Letter { from, place: Some((way, stamp)), body: Body::Batch(batch) };
            self.add(turn, Frame { pair, bytes: batch.bytes(), body });
        } else {
            return Err(format!("{pair:?} has no room for {batch:?}"));
        }
        Ok(())
    }

    /// Writes a batch into the ring of its pair, in as many slots as it needs.
    fn write_directly(&mut self, turn: &mut Turn, to: Peer, place: Option<(Way, Stamp)>, batch: Batch) {
        let writes = batch.bytes().div_ceil(SLOT_BYTES) as u64;
        turn.now_ns += writes * WRITE_NS + bytes_ns(batch.bytes());
        turn.has_worked = true;
        self.counts.writes += writes;
        self.counts.carried += u64::from(batch.count);
        let from = self.seen_from(turn.worker, to.machine);
        let receiver = self.worker_at(turn.machine, to);
        self.workers[receiver].letters.add(turn.now_ns + HOP_NS, Letter { from, place, body: Body::Batch(batch) });
        self.wake(receiver, turn.now_ns + HOP_NS);
    }

    /// Acknowledges half a ring of answers, where no request went along. Direct ways are for pairs where one does soon.
    fn acknowledge_rings(&mut self, turn: &mut Turn) {
        let most = self.slots.div_ceil(2) as u32;
        let owed = &mut self.workers[turn.worker].owed;
        let before = owed.len();
        owed.retain(|_, answers| *answers < most);
        let acknowledgements = (before - owed.len()) as u64;
        turn.now_ns += acknowledgements * WRITE_NS;
        self.counts.acknowledgements += acknowledgements;
    }

    pub(crate) fn send_machine_ways(&mut self, turn: &mut Turn) {
        while let Some((to, notice)) = self.workers[turn.worker].ways.next_notice() {
            let from = self.seen_from(turn.worker, 0);
            let body = Letter { from, place: None, body: Body::Notice(notice) };
            self.add(turn, Frame { pair: Pair { from, to }, bytes: FRAME_HEAD_BYTES, body });
        }
        turn.touched.sort_unstable();
        turn.touched.dedup();
        for distance in std::mem::take(&mut turn.touched) {
            let channel = self.machines[turn.machine].channel(distance, &self.rack);
            if (channel.outbox.is_due() || channel.owes_ack) && channel.outbox_lock.try_take() {
                turn.has_worked = true;
                turn.now_ns = self.write(turn.worker, distance, turn.now_ns);
            }
        }
    }

    /// Writes what an outbox has, or the acknowledgement that is owed, and returns when that has ended. Its lock is
    /// held until then.
    fn write(&mut self, worker: usize, distance: u16, now_ns: u64) -> u64 {
        let machine = worker / usize::from(self.setup.rack.1);
        let channel = self.machines[machine].channel(distance, &self.rack);
        self.most_waiting = self.most_waiting.max(channel.outbox.bytes());
        let write = channel.outbox.take();
        let owes_ack = std::mem::take(&mut channel.owes_ack);
        let mut ended_ns = now_ns;
        if write.is_some() || owes_ack {
            let bytes = write.iter().flat_map(|write| &write.frames).map(|frame| frame.bytes).sum();
            ended_ns += WRITE_NS + bytes_ns(bytes);
            let batches = write.iter().flat_map(|write| &write.frames).filter_map(|frame| match frame.body.body {
                Body::Batch(batch) => Some(u64::from(batch.count)),
                Body::Notice(_) => None,
            });
            self.counts.carried += batches.sum::<u64>();
            self.counts.writes += u64::from(write.is_some());
            self.counts.acknowledgements += u64::from(write.is_none());
            self.depart(machine, distance, ended_ns, write);
        }
        self.schedule(ended_ns, Event::Written { worker, distance });
        ended_ns
    }

    /// A write arrives at the other machine, where all distances are by one hop less.
    fn depart(&mut self, machine: usize, distance: u16, now_ns: u64, mut write: Option<Write<Letter>>) {
        let acknowledged = self.machines[machine].channel(distance, &self.rack).inbox.taken();
        let back = self.grid.back(distance);
        for frame in write.iter_mut().flat_map(|write| &mut write.frames) {
            frame.pair.from.machine = self.grid.add(frame.pair.from.machine, back);
            frame.pair.to.machine = self.grid.add(frame.pair.to.machine, back);
        }
        let there = self.at(machine, distance);
        self.schedule(now_ns + HOP_NS, Event::Arrive { machine: there, distance: back, write, acknowledged });
    }

    pub(crate) fn written(&mut self, worker: usize, distance: u16, now_ns: u64) {
        let machine = worker / usize::from(self.setup.rack.1);
        let channel = self.machines[machine].channel(distance, &self.rack);
        if !channel.outbox_lock.has_more_or_give_back() {
            return;
        }
        let ended_ns = self.write(worker, distance, now_ns);
        self.put_off(worker, ended_ns);
    }
}
