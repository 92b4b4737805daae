//! All orders in which frames and notices of some pairs come by both ways, while each end opens and gives back direct
//! ways whenever it may.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Kind, Model, search};
use crate::ways::{Limits, Notice, Stamp, Way, Ways};
use crate::{Peer, Rack};

/// Opens a way with each batch, and finds each way unused at any time.
const EAGER: Limits = Limits { batches: 1, full_bytes: 1, within_ns: 0, rings: 1, unused_ns: 0 };
const NOW_NS: u64 = 1;

#[derive(Clone, Copy, Debug, Hash)]
enum Item {
    Frame(Stamp, u8),
    Notice(Notice),
}

/// One direction of a pair: its ends, and all that is under way.
#[derive(Clone, Debug, Hash)]
struct Lane {
    from: usize,
    to: usize,
    sends: u8,
    sent: u8,
    handed_on: u8,
    machine: VecDeque<Item>,
    direct: VecDeque<(Stamp, u8)>,
}

/// Workers, each on a machine of its own.
#[derive(Clone, Debug)]
struct World {
    ends: Vec<Ways<u8>>,
    lanes: Vec<Lane>,
    /// How often ends may still give back their ways.
    gifts: u8,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Send(usize),
    ByMachine(usize),
    Directly(usize),
    GiveBack(usize),
}

fn peer(end: usize) -> Peer {
    Peer { machine: end as u16, worker: 0 }
}

impl World {
    /// Lanes: from, to, number of frames.
    fn new(ends: usize, rings: usize, gifts: u8, lanes: &[(usize, usize, u8)]) -> World {
        let rack = Rack::new(&vec![1; ends]);
        let lane = |&(from, to, sends)| Lane {
            from,
            to,
            sends,
            sent: 0,
            handed_on: 0,
            machine: VecDeque::new(),
            direct: VecDeque::new(),
        };
        World {
            ends: (0..ends).map(|_| Ways::new(rack.clone(), Limits { rings, ..EAGER })).collect(),
            lanes: lanes.iter().map(lane).collect(),
            gifts,
        }
    }

    /// Puts the notices of all ends on their ways.
    fn post(&mut self) {
        for end in 0..self.ends.len() {
            while let Some((to, notice)) = self.ends[end].next_notice() {
                let is_it = |lane: &&mut Lane| lane.from == end && peer(lane.to) == to;
                let lane = self.lanes.iter_mut().find(is_it).expect("each lane has one back");
                lane.machine.push_back(Item::Notice(notice));
            }
        }
    }

    fn receive(&mut self, index: usize, way: Way, (stamp, frame): (Stamp, u8)) -> Result<(), String> {
        let lane = &mut self.lanes[index];
        let mut ready = Vec::new();
        let received = self.ends[lane.to].receive(peer(lane.from), (way, stamp), (frame, 1), NOW_NS, &mut ready);
        received.map_err(|violation| violation.to_string())?;
        for frame in ready {
            lane.handed_on += 1;
            if frame != lane.handed_on {
                return Err(format!("frame {frame} where {} was to come", lane.handed_on));
            }
        }
        Ok(())
    }
}

impl Model for World {
    type Action = Action;

    fn actions(&self) -> Vec<(Action, Kind)> {
        let mut actions = Vec::new();
        for (index, lane) in self.lanes.iter().enumerate() {
            if lane.sent < lane.sends {
                actions.push((Action::Send(index), Kind::Chosen));
            }
            if !lane.machine.is_empty() {
                actions.push((Action::ByMachine(index), Kind::ByItself));
            }
            if !lane.direct.is_empty() {
                actions.push((Action::Directly(index), Kind::ByItself));
            }
        }
        if self.gifts > 0 {
            let have = |end: &usize| self.ends[*end].rings() > 0;
            actions.extend((0..self.ends.len()).filter(have).map(|end| (Action::GiveBack(end), Kind::Chosen)));
        }
        actions
    }

    fn step(&mut self, action: Action) -> Result<(), String> {
        match action {
            Action::Send(index) => {
                let lane = &mut self.lanes[index];
                lane.sent += 1;
                match self.ends[lane.from].send(peer(lane.to), 1, NOW_NS) {
                    (Way::Machine, stamp) => lane.machine.push_back(Item::Frame(stamp, lane.sent)),
                    (Way::Direct, stamp) => lane.direct.push_back((stamp, lane.sent)),
                }
            }
            Action::ByMachine(index) => match self.lanes[index].machine.pop_front() {
                Some(Item::Frame(stamp, frame)) => self.receive(index, Way::Machine, (stamp, frame))?,
                Some(Item::Notice(notice)) => {
                    let Lane { from, to, .. } = self.lanes[index];
                    let heard = self.ends[to].hear(peer(from), notice, NOW_NS);
                    heard.map_err(|violation| format!("{notice:?}: {violation}"))?;
                }
                None => {}
            },
            Action::Directly(index) => {
                if let Some(frame) = self.lanes[index].direct.pop_front() {
                    self.receive(index, Way::Direct, frame)?;
                }
            }
            Action::GiveBack(end) => {
                self.gifts -= 1;
                self.ends[end].give_back_unused(NOW_NS);
            }
        }
        self.post();
        for lane in &self.lanes {
            if !lane.direct.is_empty() && !self.ends[lane.to].has_ring(peer(lane.from)) {
                return Err("a frame in a ring that is free".to_owned());
            }
        }
        if self.ends.iter().any(|end| end.rings() > end.rings_max()) {
            Err("too many rings".to_owned())
        } else {
            Ok(())
        }
    }

    fn check_end(&self) -> Result<(), String> {
        for lane in &self.lanes {
            if lane.sent != lane.handed_on {
                return Err(format!("{} of {} frames handed on", lane.handed_on, lane.sent));
            }
            let (from, to) = (&self.ends[lane.from], &self.ends[lane.to]);
            if from.way(peer(lane.to)) != to.way(peer(lane.from)) {
                return Err("a way that is direct at one end alone".to_owned());
            }
            if (from.way(peer(lane.to)) == Way::Direct) != from.has_ring(peer(lane.to)) {
                return Err("a ring is neither in use nor free".to_owned());
            }
        }
        Ok(())
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.ends.iter().for_each(|end| end.hash_state(&mut hasher));
        (&self.lanes, self.gifts).hash(&mut hasher);
        hasher.finish()
    }
}

fn states(world: World) -> usize {
    search(world).unwrap_or_else(|fault| panic!("{fault}"))
}

#[test]
fn search_of_a_pair_finds_nothing_wrong() {
    let states = states(World::new(2, 1, 2, &[(0, 1, 4), (1, 0, 3)]));
    assert!(states > 43_000, "{states} states are not all");
}

#[test]
fn search_of_a_pair_that_changes_often_finds_nothing_wrong() {
    let states = states(World::new(2, 1, 4, &[(0, 1, 6), (1, 0, 1)]));
    assert!(states > 42_000, "{states} states are not all");
}

#[test]
fn search_of_two_pairs_and_one_ring_finds_nothing_wrong() {
    let lanes = [(0, 1, 2), (1, 0, 1), (0, 2, 2), (2, 0, 1)];
    let states = states(World::new(3, 1, 1, &lanes));
    assert!(states > 86_000, "{states} states are not all");
}
