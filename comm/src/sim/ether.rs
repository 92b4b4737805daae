//! Traffic between the machines of a simulated network, and the one thread that delivers it.
//!
//! Here: delays, pieces, cuts, deaths. Not here: the calls of a user of the fabric (`mod.rs`).
//!
//! Invariants
//! - The loads of one flow (that is, one connection) arrive in the order they were sent: each is due later
//!   than the one before, and the delivery thread takes them by their time. The pieces of one write are loads
//!   of their own, its flag the last.
//! - A load that a cut keeps from delivery is put aside with its time, and comes back with it: order is kept.
//! - The delivery thread waits only for the clock, so a sender that waits for room gets it.

use super::Conditions;
use crate::deadline::later;
use crate::error::Error;
use crate::ids::{Loss, MachineId, WorkerId};
use crate::liveness::Liveness;
use crate::memory::{Region, WORD_BYTES};
use crate::park;
use crate::share::{Landing, Outcome, PendingReads, ReadId, ShareId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most bytes of one flow under way; a sender of more waits.
const FLOW_BYTES_MAX: usize = 4 << 20;
/// One of this many writes is split into pieces.
const TORN_ONE_IN: u64 = 4;
/// Most pieces a write's body is split into; the flag is written separately.
const PIECES_MAX: u64 = 4;

/// Item to be delivered.
#[derive(Debug)]
pub(super) enum Load {
    /// Bytes for the region, or for a share.
    Bytes {
        share: Option<ShareId>,
        offset: usize,
        bytes: Vec<u8>,
    },
    Wake {
        offset: usize,
    },
    /// A query, whose answer goes back by the other flow.
    Read {
        part: Part,
        answers: usize,
    },
    /// An answer; `None` where the bytes are not committed.
    Answer {
        part: Part,
        bytes: Option<Vec<u8>>,
    },
}

/// A part of a read.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) share: ShareId,
    pub(super) offset: usize,
    pub(super) bytes: usize,
    pub(super) read_id: ReadId,
    /// Offset in the read.
    pub(super) at: usize,
    pub(super) pending: Arc<Mutex<PendingReads<Landing>>>,
}

impl Load {
    fn bytes(&self) -> usize {
        match self {
            Load::Bytes { bytes, .. } | Load::Answer { bytes: Some(bytes), .. } => bytes.len(),
            Load::Wake { .. } | Load::Read { .. } | Load::Answer { bytes: None, .. } => WORD_BYTES,
        }
    }
}

/// Path from a worker to a machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    pub(super) from: MachineId,
    pub(super) to: MachineId,
    pub(super) worker: WorkerId,
}

/// A load and its time: earliest first, in the order of sending at the same time.
#[derive(Debug)]
struct Due {
    at: Instant,
    number: u64,
    flow: usize,
    load: Load,
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.number == other.number
    }
}

impl Eq for Due {}

/// A flow, and the state of its traffic.
#[derive(Debug)]
struct FlowState {
    flow: Flow,
    last_due: Instant,
    bytes: usize,
    /// Source of the random decisions.
    random: fastrand::Rng,
}

#[derive(Debug)]
struct Member {
    joined: Option<(Arc<Region>, Arc<Liveness>)>,
    cut_since: Option<Instant>,
    is_dead: bool,
    has_left: bool,
}

#[derive(Debug)]
struct NetworkState {
    members: Vec<Member>,
    flows: Vec<FlowState>,
    under_way: BinaryHeap<Reverse<Due>>,
    /// Loads held back by a cut.
    aside: Vec<Due>,
    sent: u64,
    has_ended: bool,
}

/// The network between the machines.
#[derive(Debug)]
pub(super) struct Ether {
    conditions: Conditions,
    state: Mutex<NetworkState>,
    /// Signal to the delivery thread: there is new traffic.
    news: Condvar,
    /// Signal to machines: a machine has joined, or a flow has room.
    progress: Condvar,
}

/// The delivery thread; ends with the last sender.
#[derive(Debug)]
pub(super) struct DeliveryThread {
    ether: Arc<Ether>,
    thread: Option<JoinHandle<()>>,
}

impl DeliveryThread {
    pub(super) fn start(machines: u16, conditions: Conditions) -> Result<DeliveryThread, Error> {
        let member = |_| Member { joined: None, cut_since: None, is_dead: false, has_left: false };
        let state = NetworkState {
            members: (0..machines).map(member).collect(),
            flows: Vec::new(),
            under_way: BinaryHeap::new(),
            aside: Vec::new(),
            sent: 0,
            has_ended: false,
        };
        let (news, progress) = (Condvar::new(), Condvar::new());
        let ether = Arc::new(Ether { conditions, state: Mutex::new(state), news, progress });
        let carried = Arc::clone(&ether);
        let thread = std::thread::Builder::new().name("comm-sim".to_owned()).spawn(move || carried.carry());
        let thread = Some(thread.map_err(Error::system("starting the thread of a simulated network"))?);
        Ok(DeliveryThread { ether, thread })
    }

    pub(super) fn ether(&self) -> &Ether {
        &self.ether
    }
}

impl Drop for DeliveryThread {
    fn drop(&mut self) {
        self.ether.state().has_ended = true;
        self.ether.news.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been reported; the tests find the missing writes.
            let _ = thread.join();
        }
    }
}

impl Ether {
    /// Lets `machine` join, and returns all regions when all machines have joined.
    pub(super) fn join(
        &self,
        machine: MachineId,
        region: Arc<Region>,
        liveness: Arc<Liveness>,
        timeout: Duration,
    ) -> Result<Vec<Arc<Region>>, Error> {
        let start = Instant::now();
        let mut state = self.state();
        match state.members.get_mut(usize::from(machine.0)) {
            Some(member) if member.joined.is_none() => member.joined = Some((region, liveness)),
            _ => return Err(Error::bootstrap(format!("{machine} is not of this network, or joined it before"))),
        }
        self.progress.notify_all();
        loop {
            let regions =
                state.members.iter().map(|member| member.joined.as_ref().map(|(region, _)| Arc::clone(region)));
            if let Some(regions) = regions.collect() {
                return Ok(regions);
            }
            let missing = state.members.iter().position(|member| member.joined.is_none()).unwrap_or_default();
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                let machine = MachineId(missing as u16);
                return Err(Error::PeerMissing { machine, step: "start", waited_ms: timeout.as_millis() });
            }
            state = self.progress.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Opens a flow; returns its number for `send`.
    pub(super) fn add_flow(&self, flow: Flow) -> usize {
        let mut state = self.state();
        state.flows.push(FlowState::new(flow, self.conditions.seed));
        state.flows.len() - 1
    }

    /// Sends these loads, in order, when the flow has room.
    pub(super) fn send(&self, flow: usize, loads: Vec<Load>) {
        let mut state = self.state();
        while state.flows[flow].bytes > FLOW_BYTES_MAX && state.reaches(flow) {
            state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if !state.reaches(flow) {
            return;
        }
        let now = Instant::now();
        for load in loads {
            for piece in state.flows[flow].torn(load) {
                state.enter(flow, piece, now, &self.conditions);
            }
        }
        self.news.notify_all();
    }

    /// Returns whether loads of this flow can still arrive.
    pub(super) fn reaches(&self, flow: usize) -> bool {
        self.state().reaches(flow)
    }

    pub(super) fn cut(&self, machine: MachineId) {
        let mut state = self.state();
        state.members[usize::from(machine.0)].cut_since.get_or_insert_with(Instant::now);
        self.news.notify_all();
    }

    pub(super) fn restore(&self, machine: MachineId) {
        let mut state = self.state();
        state.members[usize::from(machine.0)].cut_since = None;
        let aside = std::mem::take(&mut state.aside);
        state.under_way.extend(aside.into_iter().map(Reverse));
        self.news.notify_all();
    }

    pub(super) fn kill(&self, machine: MachineId) {
        let mut state = self.state();
        state.members[usize::from(machine.0)].is_dead = true;
        state.tell_others(machine, Loss::Died, "it was killed");
        self.progress.notify_all();
    }

    /// Graceful end of a machine. Machines that are cut off do not hear of it.
    pub(super) fn leave(&self, machine: MachineId) {
        let mut state = self.state();
        let member = &mut state.members[usize::from(machine.0)];
        member.has_left = true;
        if member.cut_since.is_none() && !member.is_dead {
            state.tell_others(machine, Loss::Left, "");
        }
    }

    /// Body of the delivery thread.
    fn carry(&self) {
        let mut due = Vec::new();
        let mut state = self.state();
        while !state.has_ended {
            let now = Instant::now();
            let silent_until = state.mark_silent_dead(now, self.conditions.silence);
            state.take_due(now, &mut due);
            if due.is_empty() {
                let next = state.under_way.peek().map(|Reverse(next)| next.at).into_iter().chain(silent_until).min();
                self.progress.notify_all();
                let wait = next.map_or(Duration::MAX, |next| next.saturating_duration_since(now));
                state = self.news.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            drop(state);
            let answers: Vec<_> = due.drain(..).filter_map(|(region, load)| deliver(&region, load)).collect();
            state = self.state();
            for (flow, answer) in answers {
                state.enter(flow, answer, Instant::now(), &self.conditions);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, NetworkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Delivers a load, which was checked against this region and its shares when it was sent. Returns the
/// answer, and its flow.
fn deliver(region: &Region, load: Load) -> Option<(usize, Load)> {
    let share = |id| region.shares().get(id);
    let delivered = match load {
        Load::Bytes { share: None, offset, bytes } => region.publish(offset, &bytes),
        Load::Bytes { share: Some(id), offset, bytes } => {
            // A share released meanwhile gets no more bytes.
            let share = share(id).filter(|share| share.is_committed(offset, bytes.len()));
            share.map_or(Ok(()), |share| share.data().publish(offset, &bytes))
        }
        Load::Wake { offset } => region.word32(offset).and_then(park::wake),
        Load::Read { part, answers } => {
            let share = share(part.share).filter(|share| share.is_committed(part.offset, part.bytes));
            let bytes = share.and_then(|share| {
                let mut bytes = vec![0; part.bytes];
                share.data().read(part.offset, &mut bytes).is_ok().then_some(bytes)
            });
            return Some((answers, Load::Answer { part, bytes }));
        }
        Load::Answer { part, bytes } => {
            let outcome = bytes.as_deref().map_or(Outcome::Refused(part.bytes), Outcome::Bytes);
            part.pending.lock().unwrap_or_else(PoisonError::into_inner).land(part.read_id, part.at, outcome);
            Ok(())
        }
    };
    delivered.expect("checked when it was sent");
    None
}

impl NetworkState {
    fn member(&self, machine: MachineId) -> &Member {
        &self.members[usize::from(machine.0)]
    }

    /// Returns whether loads of this flow can still arrive.
    fn reaches(&self, flow: usize) -> bool {
        let Flow { from, to, .. } = self.flows[flow].flow;
        let has_given_up = |member: &Member| member.is_dead || member.joined.is_none();
        !has_given_up(self.member(from)) && !has_given_up(self.member(to))
    }

    fn is_cut(&self, flow: usize) -> bool {
        let Flow { from, to, .. } = self.flows[flow].flow;
        self.member(from).cut_since.is_some() || self.member(to).cut_since.is_some()
    }

    fn enter(&mut self, flow: usize, load: Load, now: Instant, conditions: &Conditions) {
        let state = &mut self.flows[flow];
        let (least, most) = (*conditions.delay.start(), *conditions.delay.end());
        let spread_ns = most.saturating_sub(least).as_nanos() as u64;
        let delay = least.saturating_add(Duration::from_nanos(state.random.u64(..=spread_ns)));
        state.last_due = later(now, delay).max(later(state.last_due, Duration::from_nanos(1)));
        state.bytes += load.bytes();
        self.sent += 1;
        self.under_way.push(Reverse(Due { at: state.last_due, number: self.sent, flow, load }));
    }

    /// Moves the loads that are due into `due`, each with the region it is for.
    fn take_due(&mut self, now: Instant, due: &mut Vec<(Arc<Region>, Load)>) {
        while self.under_way.peek().is_some_and(|Reverse(next)| next.at <= now) {
            let Some(Reverse(next)) = self.under_way.pop() else { return };
            if !self.reaches(next.flow) {
                self.flows[next.flow].bytes -= next.load.bytes();
            } else if self.is_cut(next.flow) {
                self.aside.push(next);
            } else {
                self.flows[next.flow].bytes -= next.load.bytes();
                let to = self.flows[next.flow].flow.to;
                if let Some((region, _)) = &self.member(to).joined {
                    due.push((Arc::clone(region), next.load));
                }
            }
        }
    }

    /// Marks machines dead that have been cut off for too long; returns when to look again.
    fn mark_silent_dead(&mut self, now: Instant, silence: Duration) -> Option<Instant> {
        let mut next = None;
        for index in 0..self.members.len() {
            let Some(since) = self.members[index].cut_since.filter(|_| !self.members[index].is_dead) else { continue };
            if now < later(since, silence) {
                next = Some(next.map_or(later(since, silence), |next: Instant| next.min(later(since, silence))));
                continue;
            }
            let (machine, cause) = (MachineId(index as u16), format!("it was silent for {silence:?}"));
            self.members[index].is_dead = true;
            self.tell_others(machine, Loss::Died, &cause);
            if let Some((_, liveness)) = &self.member(machine).joined {
                for other in (0..self.members.len()).filter(|other| *other != index && !self.members[*other].has_left) {
                    liveness.mark_lost(MachineId(other as u16), Loss::Died, cause.as_str());
                }
            }
        }
        next
    }

    fn tell_others(&self, machine: MachineId, loss: Loss, cause: &str) {
        let others = self.members.iter().enumerate().filter(|(index, _)| *index != usize::from(machine.0));
        for (_, liveness) in others.filter_map(|(_, member)| member.joined.as_ref()) {
            liveness.mark_lost(machine, loss, cause);
        }
    }
}

impl FlowState {
    /// A flow without traffic, whose random decisions follow from the seed and its ends.
    fn new(flow: Flow, seed: u64) -> FlowState {
        let number = (u64::from(flow.from.0) << 32) | (u64::from(flow.to.0) << 16) | u64::from(flow.worker.0);
        let seed = fastrand::Rng::with_seed(seed).u64(..) ^ number;
        FlowState { flow, last_due: Instant::now(), bytes: 0, random: fastrand::Rng::with_seed(seed) }
    }

    /// Returns a load as it is sent: whole, or in pieces of which the last has the flag.
    fn torn(&mut self, load: Load) -> Vec<Load> {
        let words = load.bytes() as u64 / WORD_BYTES as u64;
        let Load::Bytes { share, offset, bytes } = load else { return vec![load] };
        if words < 2 || self.random.u64(..TORN_ONE_IN) != 0 {
            return vec![Load::Bytes { share, offset, bytes }];
        }
        let piece_bytes = WORD_BYTES * (words - 1).div_ceil(self.random.u64(1..=PIECES_MAX)) as usize;
        let (body, flag) = bytes.split_at(bytes.len() - WORD_BYTES);
        let piece = |(index, piece): (usize, &[u8])| Load::Bytes {
            share,
            offset: offset + index * piece_bytes,
            bytes: piece.to_vec(),
        };
        let mut pieces: Vec<Load> = body.chunks(piece_bytes).enumerate().map(piece).collect();
        self.random.shuffle(&mut pieces);
        pieces.push(Load::Bytes { share, offset: offset + body.len(), bytes: flag.to_vec() });
        pieces
    }
}

/// The first random decisions on a flow.
#[cfg(test)]
pub(super) fn tosses(seed: u64, flow: Flow, count: usize) -> Vec<u64> {
    let mut state = FlowState::new(flow, seed);
    (0..count).map(|_| state.random.u64(..)).collect()
}
