//! The simulation: turns of workers, and arrivals of writes, in the order of their times.
//!
//! A turn does as a worker of a rack does: it looks, deals out what came by machine ways, takes letters, serves, makes
//! new requests, and at its end sends (`sending`). Its cost is the sum of all that; what it sends leaves behind it.
//! Counts that free a pair's allowance travel in the trailers of its frames, and take no time here.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gossamer_ways::machine::{Frame, Write};
use gossamer_ways::news::News;
use gossamer_ways::route::Route;
use gossamer_ways::ways::Way;
use gossamer_ways::{Pair, Peer, Rack, Violation};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::costs::{FOUND_NS, HANDOVER_NS, REQUEST_NS, SPIN_NS, WAKE_NS, bytes_ns, look_ns};
use crate::grid::Grid;
use crate::memory;
use crate::traffic::{Destinations, Traffic};
use crate::verified::Batch;
use crate::worker::{Body, Letter, Machine, Worker};
use crate::{Figures, Scheme, Setup};

pub(crate) enum Event {
    /// A worker's turn begins, unless it was put off or has begun.
    Turn(usize),
    /// A write of the machine way arrives at a machine, from this distance; or the acknowledgement alone.
    Arrive { machine: usize, distance: u16, write: Option<Write<Letter>>, acknowledged: u64 },
    /// A worker has dealt out what came from the machine at this distance.
    Dealt { worker: usize, distance: u16 },
    /// A worker has ended its write to the machine at this distance.
    Written { worker: usize, distance: u16 },
}

/// An event at its time. Of those of one time the first made comes first.
struct Timed(u64, u64, Event);

impl PartialEq for Timed {
    fn eq(&self, other: &Timed) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl Eq for Timed {}

impl Ord for Timed {
    fn cmp(&self, other: &Timed) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Timed) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Counts since the beginning of the figures.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) writes: u64,
    pub(crate) acknowledgements: u64,
    /// Requests and answers in writes, and those that arrived.
    pub(crate) carried: u64,
    arrived: u64,
    answered: u64,
}

pub(crate) struct World {
    pub(crate) setup: Setup,
    pub(crate) rack: Rack,
    pub(crate) route: Route,
    pub(crate) grid: Grid,
    destinations: Destinations,
    pub(crate) machines: Vec<Machine>,
    pub(crate) workers: Vec<Worker>,
    events: BinaryHeap<Reverse<Timed>>,
    events_made: u64,
    random: SmallRng,
    latencies: Vec<u32>,
    pub(crate) counts: Counts,
    /// Slots of a ring today.
    pub(crate) slots: usize,
    pub(crate) most_waiting: usize,
    is_issuing: bool,
}

pub fn run(setup: Setup) -> Result<Figures, String> {
    let mut world = World::new(setup)?;
    let all = world.workers.len() as u64 * u64::from(setup.outstanding);
    let (begin, end) = (all * u64::from(setup.rounds.0), all * u64::from(setup.rounds.0 + setup.rounds.1));
    world.until(|world| world.counts.answered >= begin)?;
    let (begun_ns, before) = (world.now_ns(), world.counts);
    world.latencies.clear();
    world.until(|world| world.counts.answered >= end)?;
    let figures = world.figures(begun_ns, before);
    world.is_issuing = false;
    world.until(|_| false)?;
    world.verify()?;
    Ok(Figures { answered: world.counts.answered, ..figures })
}

impl World {
    fn new(setup: Setup) -> Result<World, String> {
        let (machines, workers) = setup.rack;
        let route = Route::new(machines, Route::DIRECT_MAX);
        let grid = Grid::of(route, machines).ok_or_else(|| format!("{machines} machines make no full rows"))?;
        let rack = Rack::new(&vec![workers; usize::from(machines)]);
        let simulated = if setup.is_whole { usize::from(machines) } else { 1 };
        let all = simulated * usize::from(workers);
        let mut world = World {
            setup,
            route,
            grid,
            destinations: Destinations::new(setup.traffic, setup.rack, grid)?,
            machines: (0..simulated).map(|_| Machine::new(machines)).collect(),
            workers: (0..all).map(|_| Worker::new(&rack, setup.limits)).collect(),
            rack,
            events: BinaryHeap::new(),
            events_made: 0,
            random: SmallRng::seed_from_u64(setup.seed),
            latencies: Vec::new(),
            counts: Counts::default(),
            slots: memory::slots_today(setup.rack).0,
            most_waiting: 0,
            is_issuing: true,
        };
        for index in 0..all {
            world.workers[index].to_issue = setup.outstanding;
            // Not all at once: a worker begins 100 ns behind the one before.
            world.begin_turn(index, 100 * index as u64);
        }
        Ok(world)
    }

    fn now_ns(&self) -> u64 {
        self.events.peek().map_or(0, |next| next.0.0)
    }

    pub(crate) fn schedule(&mut self, at_ns: u64, event: Event) {
        self.events_made += 1;
        self.events.push(Reverse(Timed(at_ns, self.events_made, event)));
    }

    fn begin_turn(&mut self, worker: usize, at_ns: u64) {
        self.workers[worker].next_turn_ns = Some(at_ns);
        self.schedule(at_ns, Event::Turn(worker));
    }

    fn until(&mut self, is_over: impl Fn(&World) -> bool) -> Result<(), String> {
        while !is_over(self) {
            let Some(Reverse(Timed(at_ns, _, event))) = self.events.pop() else { break };
            match event {
                Event::Turn(worker) if self.workers[worker].next_turn_ns == Some(at_ns) => self.turn(worker, at_ns)?,
                Event::Turn(_) => {}
                Event::Arrive { machine, distance, write, acknowledged } => {
                    self.arrive(machine, distance, write, acknowledged).map_err(|violation| violation.to_string())?;
                    self.wake_one(machine, at_ns);
                }
                Event::Dealt { worker, distance } => self.dealt(worker, distance, at_ns),
                Event::Written { worker, distance } => self.written(worker, distance, at_ns),
            }
        }
        Ok(())
    }

    /// The machine at a distance from one. In a folded rack all are the same.
    pub(crate) fn at(&self, machine: usize, distance: u16) -> usize {
        if self.setup.is_whole { usize::from(self.grid.add(machine as u16, distance)) } else { 0 }
    }

    pub(crate) fn worker_at(&self, machine: usize, peer: Peer) -> usize {
        self.at(machine, peer.machine) * usize::from(self.setup.rack.1) + usize::from(peer.worker)
    }

    /// Itself, as the worker at a distance sees it.
    pub(crate) fn seen_from(&self, worker: usize, distance: u16) -> Peer {
        let number = (worker % usize::from(self.setup.rack.1)) as u16;
        Peer { machine: self.grid.back(distance), worker: number }
    }

    /// Sees to it that a worker that has nothing to do looks at this time.
    pub(crate) fn wake(&mut self, worker: usize, at_ns: u64) {
        let one = &self.workers[worker];
        if one.next_turn_ns.is_none() {
            let sleeps = at_ns.saturating_sub(one.idle_since_ns) > SPIN_NS;
            self.begin_turn(worker, at_ns + if sleeps { WAKE_NS } else { 0 });
        } else if one.is_waiting(at_ns) {
            self.begin_turn(worker, at_ns);
        }
    }

    fn wake_one(&mut self, machine: usize, at_ns: u64) {
        while let Some(worker) = self.machines[machine].idle.pop() {
            self.workers[worker].is_listed = false;
            if self.workers[worker].is_free() {
                return self.wake(worker, at_ns);
            }
        }
    }

    fn arrive(
        &mut self,
        machine: usize,
        distance: u16,
        write: Option<Write<Letter>>,
        acknowledged: u64,
    ) -> Result<(), Violation> {
        let World { machines, rack, .. } = self;
        let channel = machines[machine].channel(distance, rack);
        channel.outbox.acknowledge(acknowledged)?;
        if let Some(write) = write {
            channel.inbox.arrive(write)?;
        }
        machines[machine].news.set(distance);
        Ok(())
    }

    fn turn(&mut self, worker: usize, now_ns: u64) -> Result<(), String> {
        let mut turn = Turn::new(worker, self.setup.rack.1, now_ns + self.look_ns(worker));
        if self.setup.scheme == Scheme::Ways {
            self.deal(&mut turn);
        }
        self.take_letters(&mut turn)?;
        self.issue(&mut turn);
        if !turn.has_worked {
            self.workers[worker].ways.give_back_unused(now_ns);
        }
        self.send_all(&mut turn)?;
        let one = &mut self.workers[worker];
        let next_ns = if turn.has_worked { Some(turn.now_ns) } else { one.letters.next_ns() };
        one.waits_for_letter = !turn.has_worked;
        one.next_turn_ns = None;
        if !turn.has_worked {
            one.idle_since_ns = now_ns;
            if !std::mem::replace(&mut one.is_listed, true) {
                self.machines[turn.machine].idle.push(worker);
            }
        }
        if let Some(next_ns) = next_ns {
            self.begin_turn(worker, next_ns.max(turn.now_ns));
        }
        Ok(())
    }

    fn look_ns(&self, worker: usize) -> u64 {
        match self.setup.scheme {
            Scheme::Rings => look_ns(memory::flags_today(self.setup.rack)),
            Scheme::Ways => {
                let bits = News::bytes(usize::from(self.setup.rack.0)).div_ceil(64);
                look_ns(self.workers[worker].ways.rings() + bits)
            }
        }
    }

    /// Deals out what came by machine ways.
    fn deal(&mut self, turn: &mut Turn) {
        while let Some(distance) = self.machines[turn.machine].news.take() {
            turn.has_worked = true;
            turn.now_ns += FOUND_NS;
            turn.touched.push(distance);
            if self.machines[turn.machine].channel(distance, &self.rack).inbox_lock.try_take() {
                self.deal_channel(turn, distance);
            }
        }
    }

    /// Deals out the writes of an inbox. Its lock is held until that has ended.
    fn deal_channel(&mut self, turn: &mut Turn, distance: u16) {
        let channel = self.machines[turn.machine].channel(distance, &self.rack);
        let dealt = channel.inbox.deal();
        channel.owes_ack |= !dealt.is_empty();
        if !channel.inbox.is_empty() {
            self.machines[turn.machine].news.set(distance);
        }
        for frame in dealt {
            turn.now_ns += REQUEST_NS / 2 + bytes_ns(frame.bytes);
            self.pass_on(turn, frame);
        }
        self.schedule(turn.now_ns, Event::Dealt { worker: turn.worker, distance });
    }

    /// A worker has dealt out an inbox: once more, if another one came to do so meanwhile.
    fn dealt(&mut self, worker: usize, distance: u16, now_ns: u64) {
        let mut turn = Turn::new(worker, self.setup.rack.1, now_ns);
        let channel = self.machines[turn.machine].channel(distance, &self.rack);
        if !channel.inbox_lock.has_more_or_give_back() {
            return;
        }
        turn.touched.push(distance);
        self.deal_channel(&mut turn, distance);
        self.send_machine_ways(&mut turn);
        self.put_off(worker, turn.now_ns);
    }

    /// A worker is busy until then.
    pub(crate) fn put_off(&mut self, worker: usize, until_ns: u64) {
        if self.workers[worker].next_turn_ns.is_none_or(|next_ns| next_ns < until_ns) {
            self.workers[worker].waits_for_letter = false;
            self.begin_turn(worker, until_ns);
        }
    }

    /// Gives a frame to its worker, or to the outbox of the next machine.
    fn pass_on(&mut self, turn: &mut Turn, frame: Frame<Letter>) {
        let to = frame.pair.to;
        if to.machine != 0 {
            return self.add(turn, frame);
        }
        let letter = Letter { from: frame.pair.from, ..frame.body };
        let worker = self.worker_at(turn.machine, to);
        let handover_ns = if worker == turn.worker { 0 } else { HANDOVER_NS };
        self.workers[worker].letters.add(turn.now_ns + handover_ns, letter);
        self.wake(worker, turn.now_ns + handover_ns);
    }

    pub(crate) fn add(&mut self, turn: &mut Turn, frame: Frame<Letter>) {
        let distance = self.route.next(0, frame.pair.to.machine, |_| false);
        turn.now_ns += REQUEST_NS / 2;
        self.machines[turn.machine].channel(distance, &self.rack).outbox.add(frame);
        turn.touched.push(distance);
    }

    fn take_letters(&mut self, turn: &mut Turn) -> Result<(), String> {
        let mut ready = Vec::new();
        while let Some(Letter { from, place, body }) = self.workers[turn.worker].letters.take(turn.now_ns) {
            turn.has_worked = true;
            if let (Some((Way::Machine, _)), Body::Batch(batch)) = (place, body) {
                self.free_allowance(turn, from, batch)?;
            }
            let one = &mut self.workers[turn.worker];
            let taken = match (body, place) {
                (Body::Notice(notice), _) => one.ways.hear(from, notice, turn.now_ns),
                (Body::Batch(batch), Some(place)) => {
                    let bytes = batch.bytes();
                    one.ways.receive(from, place, (batch, bytes), turn.now_ns, &mut ready)
                }
                (Body::Batch(batch), None) => {
                    ready.push(batch);
                    Ok(())
                }
            };
            taken.map_err(|violation| format!("{from:?}: {violation}"))?;
            if let (Body::Batch(batch), None | Some((Way::Direct, _))) = (body, place) {
                turn.now_ns += FOUND_NS + bytes_ns(batch.bytes());
            }
            for batch in ready.drain(..) {
                turn.now_ns += u64::from(batch.count) * REQUEST_NS / 4;
                self.counts.arrived += u64::from(batch.count);
                if batch.is_answer {
                    one.ledger.collect(from, batch, turn.now_ns, &mut self.latencies)?;
                    one.to_issue += batch.count;
                    *one.owed.entry(from).or_default() += u32::from(place.is_none());
                    self.counts.answered += u64::from(batch.count);
                } else {
                    let answer = one.ledger.serve(from, batch)?;
                    one.answers.push((from, answer));
                }
            }
        }
        Ok(())
    }

    fn free_allowance(&mut self, turn: &Turn, from: Peer, batch: Batch) -> Result<(), String> {
        let sender = self.worker_at(turn.machine, from);
        let machine = self.at(turn.machine, from.machine);
        let pair = Pair { from: self.seen_from(sender, 0), to: self.seen_from(turn.worker, from.machine) };
        let given = self.machines[machine].allowance.give(pair, batch.bytes());
        given.map_err(|violation| format!("{pair:?}: {violation}"))
    }

    fn issue(&mut self, turn: &mut Turn) {
        let one = &mut self.workers[turn.worker];
        let is_phase = self.setup.traffic == Traffic::Phases;
        if !self.is_issuing || one.to_issue == 0 || is_phase && one.to_issue < self.setup.outstanding {
            return;
        }
        turn.has_worked = true;
        let number = (turn.worker % usize::from(self.setup.rack.1)) as u16;
        for _ in 0..std::mem::take(&mut one.to_issue) {
            turn.now_ns += REQUEST_NS / 4;
            let to = self.destinations.pick(number, one.phase, &mut self.random);
            one.ledger.issue(to, turn.now_ns);
        }
        one.phase += u32::from(is_phase);
    }

    fn figures(&mut self, begun_ns: u64, before: Counts) -> Figures {
        let seconds = (self.now_ns() - begun_ns) as f64 / 1e9;
        let machines = self.machines.len();
        let a_machine = |count: u64| count as f64 / seconds / machines as f64;
        let Counts { writes, acknowledgements, carried, arrived, answered } = self.counts;
        let data_writes = writes - before.writes;
        let rings = self.workers.iter().map(|worker| worker.ways.rings()).sum::<usize>() / machines;
        let known = self.workers.iter().map(|worker| worker.ledger.known()).max().unwrap_or(0);
        let (queue_pairs, bytes) = match self.setup.scheme {
            Scheme::Rings => (memory::queue_pairs_today(self.setup.rack), memory::slots_today(self.setup.rack).1),
            Scheme::Ways => {
                let waiting = self.most_waiting * memory::machine_ways(self.setup.rack);
                (memory::machine_ways(self.setup.rack) + rings, memory::bytes(self.setup.rack, rings, known) + waiting)
            }
        };
        let mut quantile = |part: f64| {
            let last = self.latencies.len().saturating_sub(1);
            let at = (last as f64 * part) as usize;
            self.latencies.select_nth_unstable(at).1.to_owned() as f64 / 1e3
        };
        Figures {
            requests_a_write: (carried - before.carried) as f64 / data_writes as f64,
            writes_a_second: a_machine(data_writes + acknowledgements - before.acknowledgements),
            mops: a_machine(answered - before.answered) / 1e6,
            hops: (carried - before.carried) as f64 / (arrived - before.arrived) as f64,
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            direct_ways: rings,
            queue_pairs,
            bytes,
            answered,
        }
    }

    /// All that was asked has been answered.
    fn verify(&self) -> Result<(), String> {
        let asked: u32 = self.workers.iter().map(|worker| worker.ledger.outstanding).sum();
        let answered: u64 = self.workers.iter().map(|worker| worker.ledger.answered).sum();
        if asked > 0 {
            return Err(format!("{asked} requests were never answered"));
        }
        if answered == self.counts.answered { Ok(()) } else { Err("answers were counted wrong".to_owned()) }
    }
}

/// A turn of a worker so far.
pub(crate) struct Turn {
    pub(crate) worker: usize,
    pub(crate) machine: usize,
    pub(crate) now_ns: u64,
    /// Machine ways for which it had something, or found something.
    pub(crate) touched: Vec<u16>,
    pub(crate) has_worked: bool,
}

impl Turn {
    fn new(worker: usize, workers: u16, now_ns: u64) -> Turn {
        Turn { worker, machine: worker / usize::from(workers), now_ns, touched: Vec::new(), has_worked: false }
    }
}
