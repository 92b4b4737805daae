//! Rules of direct ways one by one, peers that lie, and random traffic. All orders of small traffic: `search/ways.rs`.

use super::*;
use proptest::prelude::*;
use std::hash::Hasher;

/// For the search.
impl<F: Hash> Ways<F> {
    pub(crate) fn hash_state(&self, hasher: &mut impl Hasher) {
        let mut pairs: Vec<_> = self.pairs.iter().collect();
        pairs.sort_unstable_by_key(|(peer, _)| **peer);
        (pairs, &self.rings, &self.notices).hash(hasher);
    }

    pub(crate) fn rings_max(&self) -> usize {
        self.limits.rings
    }
}

const MS: u64 = 1_000_000;

fn peer(machine: u16) -> Peer {
    Peer { machine, worker: 0 }
}

fn ways() -> Ways<u64> {
    Ways::new(Rack::new(&[1; 200]), Limits::DEFAULT)
}

fn notices(ways: &mut Ways<u64>) -> Vec<(Peer, Notice)> {
    std::iter::from_fn(|| ways.next_notice()).collect()
}

/// Bytes of a full batch.
const FULL: usize = Limits::DEFAULT.full_bytes;

/// Sends so many full batches at once.
fn send(ways: &mut Ways<u64>, to: u16, batches: u16, now_ns: u64) -> Vec<(Way, Stamp)> {
    (0..batches).map(|_| ways.send(peer(to), FULL, now_ns)).collect()
}

/// A worker with direct ways to these.
fn with_direct(peers: impl Iterator<Item = u16>, now_ns: u64) -> Ways<u64> {
    let mut ways = ways();
    for to in peers {
        send(&mut ways, to, Limits::DEFAULT.batches, now_ns);
        assert_eq!(notices(&mut ways), [(peer(to), Notice::Open)]);
        ways.hear(peer(to), Notice::Open, now_ns).unwrap();
    }
    ways
}

#[test]
fn sixteen_batches_within_100_ms_open_a_direct_way() {
    let mut ways = ways();
    for batch in 0..100 {
        send(&mut ways, 1, 1, batch * 7 * MS);
    }
    assert_eq!(notices(&mut ways), [], "15 in 100 ms");
    let sent = send(&mut ways, 1, 16, 1000 * MS);
    assert!(sent.iter().all(|(way, stamp)| *way == Way::Machine && stamp.after.is_none()));
    assert_eq!(notices(&mut ways), [(peer(1), Notice::Open)], "once");
    ways.hear(peer(1), Notice::Open, 1000 * MS).unwrap();
    let first = (Way::Direct, Stamp { number: 117, after: Some(116) });
    assert_eq!(send(&mut ways, 1, 2, 1000 * MS), [first, (Way::Direct, Stamp { number: 118, after: None })]);
}

#[test]
fn small_batches_open_none_and_one_without_room_on_the_machine_way_does_at_once() {
    let mut ways = ways();
    (0..1000).for_each(|_| _ = ways.send(peer(1), FULL - 1, 0));
    assert_eq!(notices(&mut ways), []);
    (0..4).for_each(|_| _ = ways.send(peer(1), 4 * FULL, 0));
    assert_eq!(notices(&mut ways), [(peer(1), Notice::Open)], "16 of them");
    ways.send(peer(2), PAIR_BYTES_MAX + 1, 0);
    assert_eq!(notices(&mut ways), [(peer(2), Notice::Open)]);
}

#[test]
fn batches_of_any_size_count_where_none_has_to_be_full() {
    let mut ways = Ways::<u64>::new(Rack::new(&[1; 2]), Limits { full_bytes: 0, ..Limits::DEFAULT });
    (0..100).for_each(|_| _ = ways.send(peer(1), 0, 0));
    (0..15).for_each(|batch| _ = ways.send(peer(1), 1 + 4000 * batch, 0));
    assert_eq!(notices(&mut ways), [], "those of no bytes are no batches");
    ways.send(peer(1), 1, 0);
    assert_eq!(notices(&mut ways), [(peer(1), Notice::Open)]);
}

#[test]
fn a_new_way_counts_as_used() {
    const LATE: u64 = 20_000 * MS;
    let mut ways = ways();
    ways.hear(peer(1), Notice::Open, LATE).unwrap();
    assert_eq!(notices(&mut ways), [(peer(1), Notice::Open)]);
    ways.give_back_unused(LATE);
    ways.give_back_unused(LATE + 9_999 * MS);
    assert_eq!(notices(&mut ways), []);
    ways.give_back_unused(LATE + 10_000 * MS);
    assert_eq!(notices(&mut ways), [(peer(1), Notice::Close { last: 0 })]);
}

#[test]
fn a_frame_that_does_not_count_asks_for_no_way() {
    let mut ways = ways();
    send(&mut ways, 1, 16, 0);
    ways.hear(peer(1), Notice::Open, 0).unwrap();
    ways.give_back_unused(10_000 * MS);
    ways.hear(peer(1), Notice::Close { last: 0 }, 10_000 * MS).unwrap();
    notices(&mut ways);
    for now_ns in [10_000 * MS, 20_000 * MS] {
        assert_eq!(ways.send(peer(1), 0, now_ns).0, Way::Machine);
        assert_eq!(notices(&mut ways), [], "its count is of long ago");
    }
}

#[test]
fn a_way_that_is_given_back_is_not_asked_for_at_once() {
    let mut ways = with_direct(1..=1, 0);
    assert_eq!((ways.way(peer(1)), ways.has_ring(peer(1))), (Way::Direct, true));
    ways.give_back(peer(1), 0);
    ways.give_back(peer(2), 0);
    assert_eq!(notices(&mut ways), [(peer(1), Notice::Close { last: 0 })]);
    assert_eq!((ways.way(peer(1)), ways.has_ring(peer(1))), (Way::Machine, true), "the peer may write into the ring");
    ways.hear(peer(1), Notice::Close { last: 0 }, 0).unwrap();
    assert!(!ways.has_ring(peer(1)));
    send(&mut ways, 1, 100, 99 * MS);
    assert_eq!(notices(&mut ways), []);
    send(&mut ways, 1, 16, 100 * MS);
    assert_eq!(notices(&mut ways), [(peer(1), Notice::Open)]);
}

#[test]
fn a_refused_pair_asks_again_after_a_while() {
    let mut ways = ways();
    send(&mut ways, 1, 16, 0);
    notices(&mut ways);
    ways.hear(peer(1), Notice::Refuse, 0).unwrap();
    assert_eq!(ways.rings(), 0);
    send(&mut ways, 1, 100, 99 * MS);
    assert_eq!(notices(&mut ways), []);
    send(&mut ways, 1, 16, 100 * MS);
    assert_eq!(notices(&mut ways), [(peer(1), Notice::Open)]);
}

#[test]
fn a_worker_has_64_rings_and_refuses_more() {
    let mut ways = with_direct(1..=64, 0);
    send(&mut ways, 65, 16, 0);
    ways.hear(peer(66), Notice::Open, 0).unwrap();
    assert_eq!(notices(&mut ways), [(peer(66), Notice::Refuse)], "all 64 have had 16 batches lately");
    assert_eq!(ways.rings(), 64);
}

#[test]
fn a_pair_that_needs_it_more_gets_the_ring_of_another() {
    let mut ways = with_direct(1..=64, 0);
    for to in 1..=64 {
        send(&mut ways, to, if to == 7 { 3 } else { 16 }, 150 * MS);
    }
    send(&mut ways, 65, 16, 260 * MS);
    let last = 16 + 3;
    assert_eq!(notices(&mut ways), [(peer(7), Notice::Close { last })], "3 batches in its last window");
    ways.hear(peer(7), Notice::Close { last: 0 }, 260 * MS).unwrap();
    assert_eq!(ways.rings(), 63);
    send(&mut ways, 65, 16, 400 * MS);
    assert_eq!(notices(&mut ways), [(peer(65), Notice::Open)]);
}

#[test]
fn an_unused_way_is_given_back() {
    let mut ways = with_direct(1..=2, 0);
    let mut ready = Vec::new();
    ways.receive(peer(2), (Way::Direct, Stamp { number: 1, after: None }), (1, FULL), 9000 * MS, &mut ready).unwrap();
    ways.give_back_unused(9999 * MS);
    assert_eq!(notices(&mut ways), []);
    ways.give_back_unused(10_000 * MS);
    assert_eq!(notices(&mut ways), [(peer(1), Notice::Close { last: 0 })], "the other one was used by its peer");
    let (way, stamp) = ways.send(peer(1), FULL, 10_000 * MS);
    assert_eq!((way, stamp), (Way::Machine, Stamp { number: 17, after: None }), "nothing had gone directly");
}

#[test]
fn the_first_frame_of_a_new_way_waits_for_the_last_of_the_old() {
    let mut ways = with_direct(1..=1, 0);
    let mut ready = Vec::new();
    let mut early = Vec::new();
    let mut receive = |way, number, after| {
        early.push(ways.is_early(peer(1)));
        ways.receive(peer(1), (way, Stamp { number, after }), (number, FULL), 0, &mut ready).unwrap();
        std::mem::take(&mut ready)
    };
    assert_eq!(receive(Way::Machine, 1, None), [1]);
    assert_eq!(receive(Way::Direct, 4, Some(3)), []);
    assert_eq!(receive(Way::Direct, 5, None), []);
    assert_eq!(receive(Way::Machine, 2, None), [2]);
    assert_eq!(receive(Way::Machine, 6, Some(5)), [] as [u64; 0], "both ways wait for frame 3, which is behind");
    assert_eq!(receive(Way::Machine, 7, None), [] as [u64; 0]);
    assert_eq!(early, [false, false, true, true, true, true]);
}

#[test]
fn a_lost_machine_frees_its_rings() {
    let mut ways = with_direct(1..=64, 0);
    ways.lose(7);
    assert_eq!(ways.rings(), 63);
    send(&mut ways, 65, 16, 0);
    assert_eq!(notices(&mut ways), [(peer(65), Notice::Open)]);
}

#[test]
fn a_peer_that_lies_is_refused() {
    let nobody = Peer { machine: 3, worker: 1 };
    let stamp = |number, after| Stamp { number, after };
    let mut ready = Vec::new();
    let mut ways = with_direct(1..=1, 0);
    let mut receive = |from, way, stamp| ways.receive(from, (way, stamp), (0, FULL), 0, &mut ready);
    assert_eq!(receive(nobody, Way::Machine, stamp(1, None)), Err(Violation::NoSuchWorker(nobody)));
    assert_eq!(receive(peer(2), Way::Direct, stamp(1, None)), Err(Violation::NotOpened), "a way it did not open");
    assert_eq!(receive(peer(1), Way::Direct, stamp(0, None)), Err(Violation::FromThePast(0)));
    assert_eq!(receive(peer(1), Way::Direct, stamp(3, None)), Err(Violation::Gap(3)));
    assert_eq!(receive(peer(1), Way::Direct, stamp(3, Some(1))), Err(Violation::Gap(3)));
    assert_eq!(receive(peer(1), Way::Direct, stamp(3, Some(2))), Ok(()));
    assert_eq!(receive(peer(1), Way::Direct, stamp(3, None)), Err(Violation::FromThePast(3)));
    for number in 4..3 + HELD_MAX as u64 {
        assert_eq!(receive(peer(1), Way::Direct, stamp(number, None)), Ok(()));
    }
    assert_eq!(receive(peer(1), Way::Direct, stamp(3 + HELD_MAX as u64, None)), Err(Violation::TooMuch));
    assert_eq!(receive(peer(1), Way::Direct, stamp(u64::MAX, Some(u64::MAX - 1))), Err(Violation::TooMuch));
    assert_eq!(ready, []);
    let heard = [(peer(2), Notice::Refuse), (peer(2), Notice::Close { last: 0 }), (peer(1), Notice::Open)];
    for (from, notice) in heard {
        assert_eq!(ways.hear(from, notice, 0), Err(Violation::Notice), "{notice:?}");
    }
    assert_eq!(ways.hear(nobody, Notice::Open, 0), Err(Violation::NoSuchWorker(nobody)));
    assert_eq!(ways.hear(peer(1), Notice::Close { last: 2 }, 0), Err(Violation::NotOpened), "3 came directly");
    ways.hear(peer(1), Notice::Close { last: 5000 }, 0).unwrap();
    let late = (Way::Direct, stamp(5001, Some(5000)));
    assert_eq!(ways.receive(peer(1), late, (0, FULL), 0, &mut ready), Err(Violation::NotOpened), "behind its own end");
}

/// A step of the random traffic of two workers.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send(usize),
    ByMachine(usize),
    Directly(usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..2_usize).prop_map(Step::Send),
        3 => (0..2_usize).prop_map(Step::ByMachine),
        3 => (0..2_usize).prop_map(Step::Directly),
        1 => (0..200_u64).prop_map(Step::Pass),
    ]
}

#[derive(Clone, Copy)]
enum Item {
    Frame(Stamp, u64),
    Notice(Notice),
}

proptest! {
    /// Random sends, deliveries and times under small limits: all arrives once and in order.
    #[test]
    fn random_traffic_arrives_once_and_in_order(steps in prop::collection::vec(step(), 1..2000)) {
        let limits = Limits { batches: 3, full_bytes: 1, within_ns: 100, rings: 1, unused_ns: 150 };
        let rack = Rack::new(&[1, 1]);
        let mut ends = [Ways::new(rack.clone(), limits), Ways::new(rack, limits)];
        let mut machine: [VecDeque<Item>; 2] = Default::default();
        let mut direct: [VecDeque<(Stamp, u64)>; 2] = Default::default();
        let (mut sent, mut handed_on, mut now_ns) = ([0; 2], [0; 2], 0);
        let rest = [Step::ByMachine(0), Step::ByMachine(1), Step::Directly(0), Step::Directly(1)];
        let steps: Vec<_> = steps.into_iter().chain(rest.into_iter().cycle().take(16_000)).collect();
        for step in steps {
            let mut ready = Vec::new();
            match step {
                Step::Send(from) => {
                    sent[from] += 1;
                    match ends[from].send(peer(1 - from as u16), 1, now_ns) {
                        (Way::Machine, stamp) => machine[from].push_back(Item::Frame(stamp, sent[from])),
                        (Way::Direct, stamp) => direct[from].push_back((stamp, sent[from])),
                    }
                }
                Step::ByMachine(from) => match machine[from].pop_front() {
                    Some(Item::Notice(notice)) => ends[1 - from].hear(peer(from as u16), notice, now_ns).unwrap(),
                    Some(Item::Frame(stamp, frame)) => {
                        let place = (Way::Machine, stamp);
                        ends[1 - from].receive(peer(from as u16), place, (frame, 1), now_ns, &mut ready).unwrap();
                    }
                    None => {}
                },
                Step::Directly(from) => {
                    if let Some((stamp, frame)) = direct[from].pop_front() {
                        let place = (Way::Direct, stamp);
                        ends[1 - from].receive(peer(from as u16), place, (frame, 1), now_ns, &mut ready).unwrap();
                    }
                }
                Step::Pass(time_ns) => {
                    now_ns += time_ns;
                    ends.iter_mut().for_each(|end| end.give_back_unused(now_ns));
                }
            }
            if let Step::ByMachine(from) | Step::Directly(from) = step {
                for frame in ready {
                    handed_on[from] += 1;
                    prop_assert_eq!(frame, handed_on[from]);
                }
            }
            for from in 0..2 {
                while let Some((_, notice)) = ends[from].next_notice() {
                    machine[from].push_back(Item::Notice(notice));
                }
            }
        }
        prop_assert_eq!(sent, handed_on);
    }
}
