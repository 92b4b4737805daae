//! Frames against random requests and damage, and both halves of a pair over a real fabric: two machines in this process.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use comm::shm::{self, ShmFabric};
use comm::{Fabric, MachineId, WorkerId};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use super::answer;
use super::frame::{self, Entry, Frame, Item};
use super::image::Image;
use super::layout::Layout;
use super::pair::{ClientHalf, SharedConnection, TrusteeHalf};
use super::slot::{self, Direction, Head, Kind, SLOT_BYTES, Violation};
use super::wiring::Wiring;
use crate::Place;

const TIMEOUT: Duration = Duration::from_secs(30);

/// An operation without a closure: its position tells how long its requests are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fake(u64);

impl frame::Operation for Fake {
    fn packed_bytes(self) -> Option<usize> {
        self.0.is_multiple_of(2).then_some((self.0 / 2) as usize)
    }
}

fn resolve(position: u64) -> Result<Fake, Violation> {
    if position < 1000 { Ok(Fake(position)) } else { Err(Violation::new("no such operation")) }
}

#[derive(Debug, Clone)]
struct Call {
    position: u64,
    property: u64,
    bytes: Vec<u8>,
}

impl Call {
    fn entry(&self) -> Entry<'_> {
        let is_fixed = frame::Operation::packed_bytes(Fake(self.position)).is_some();
        Entry { position: self.position, is_fixed, property: self.property, bytes: &self.bytes }
    }
}

fn call() -> impl Strategy<Value = Call> {
    let bytes = prop::collection::vec(any::<u8>(), 0..120);
    (0u64..12, any::<u64>(), bytes).prop_map(|(position, property, mut bytes)| {
        if let Some(len) = frame::Operation::packed_bytes(Fake(position)) {
            bytes.resize(len, 7);
        }
        Call { position, property, bytes }
    })
}

fn filled(calls: &[Call]) -> Frame {
    let mut frame = Frame::default();
    let taken = calls.iter().take_while(|call| frame.push(&call.entry())).count();
    assert_eq!(taken, usize::from(frame.count));
    frame
}

fn assert_same(calls: &[Call], data: &[u8], items: &[Item<Fake>]) {
    assert_eq!(calls.len(), items.len());
    for (call, item) in calls.iter().zip(items) {
        assert_eq!((Fake(call.position), call.property), (item.operation, item.property));
        assert_eq!(call.bytes, data[item.start..item.start + item.len]);
    }
}

proptest! {
    /// As many requests as fit a slot come out as they went in.
    #[test]
    fn what_is_encoded_is_decoded(calls in prop::collection::vec(call(), 1..200)) {
        let frame = filled(&calls);
        prop_assert!(frame.data.len() <= Direction::Request.room());
        let taken = usize::from(frame.count);
        let items = frame::decode(&frame.data, &frame.head(Kind::Whole), resolve).unwrap();
        assert_same(&calls[..taken], &frame.data, &items);
        if taken < calls.len() {
            let next = 1 + 8 + 8 + 4 + calls[taken].bytes.len();
            prop_assert!(frame.data.len() + next > Direction::Request.room(), "there was room");
        }
    }
}

/// Damaged slots are errors, or batches that lie inside their data; nothing panics.
#[test]
fn damaged_slots_are_refused_or_in_range() {
    const ROUNDS: usize = 200_000;
    let mut runner = TestRunner::new_with_rng(Default::default(), TestRng::deterministic_rng(RngAlgorithm::XorShift));
    let (mut refused, mut taken) = (0, 0);
    let mut sealed = Vec::new();
    for round in 0..ROUNDS {
        if round % 500 == 0 {
            let calls = prop::collection::vec(call(), 1..40).new_tree(&mut runner).unwrap().current();
            let mut frame = filled(&calls);
            let head = frame.head(Kind::Whole);
            let offset = slot::seal(&mut frame.data, Direction::Request, &head, 1);
            sealed = [vec![0; offset], frame.data].concat();
        }
        let mut damaged = sealed.clone();
        let rng = runner.rng();
        let (trailer_only, changes) = (rng.random::<bool>(), rng.random_range(1..4));
        for _ in 0..changes {
            let from = if trailer_only { Direction::Request.room() } else { 0 };
            let at = rng.random_range(from..SLOT_BYTES - 8);
            damaged[at] = if rng.random() { rng.random() } else { damaged[at] ^ (1 << rng.random_range(0..8)) };
        }
        let trailer = &damaged[Direction::Request.room()..];
        let decoded = slot::parse(trailer, Direction::Request).and_then(|(head, start, bytes)| {
            let data = damaged[start..start + bytes].to_vec();
            frame::decode(&data, &head, resolve).map(|items| (data, items))
        });
        match decoded {
            Err(violation) => refused += usize::from(!violation.0.is_empty()),
            Ok((data, items)) => {
                let mut end = 0;
                for item in items {
                    assert!(end <= item.start && item.start + item.len <= data.len());
                    end = item.start + item.len;
                }
                assert_eq!(end, data.len());
                taken += 1;
            }
        }
    }
    assert!(refused > ROUNDS / 10 && taken > ROUNDS / 100, "the damage tests something: {refused}, {taken}");
}

/// Likewise for the faults of an answer.
#[test]
fn damaged_answers_are_refused_or_in_range() {
    const ROUNDS: usize = 100_000;
    let mut runner = TestRunner::new_with_rng(Default::default(), TestRng::deterministic_rng(RngAlgorithm::XorShift));
    let faults: Vec<(u32, (u8, String))> = vec![(1, (0, "first".into())), (300, (4, "größer".into()))];
    let (data, count) = answer::encode(vec![1, 2, 3], &faults).unwrap();
    let whole = answer::decode::<(u8, String)>(data.clone(), count, 301).unwrap();
    assert_eq!(whole, (vec![1, 2, 3], faults));
    assert!(answer::decode::<(u8, String)>(data.clone(), count, 300).is_err(), "a fault beyond the batch");
    let mut refused = 0;
    for _ in 0..ROUNDS {
        let rng = runner.rng();
        let mut damaged = data.clone();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..damaged.len());
            damaged[at] = rng.random();
        }
        damaged.truncate(rng.random_range(0..=damaged.len()));
        match answer::decode::<(u8, String)>(damaged, rng.random_range(0..4), 301) {
            Err(_) => refused += 1,
            Ok((_, faults)) => assert!(faults.iter().all(|(index, _)| *index < 301)),
        }
    }
    assert!(refused > ROUNDS / 2);
}

/// Two machines of a worker each, in this process.
fn machines() -> Vec<Wiring> {
    let segments = shm::create(2).unwrap();
    let layout = Arc::new(Layout::new(vec![1, 1]));
    let open = |machine: u16| {
        let bytes = layout.region_bytes(machine);
        let fabric = ShmFabric::open(segments.bootstrap(MachineId(machine)).unwrap(), bytes, TIMEOUT).unwrap();
        let fabric: Arc<dyn Fabric> = Arc::new(fabric);
        Wiring { fabric, layout: Arc::clone(&layout), image: Image::of_program().unwrap() }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| open(1));
        vec![open(0), other.join().unwrap()]
    })
}

fn connection(wiring: &Wiring) -> SharedConnection {
    let peer = MachineId(1 - wiring.fabric.machine().0);
    Rc::new(RefCell::new(wiring.fabric.connect(peer, WorkerId(0)).unwrap()))
}

/// The worker of machine 0 as a client of that of machine 1.
fn pair(machines: &[Wiring]) -> (ClientHalf, TrusteeHalf) {
    let (client, trustee) = (Place::of(0, 0), Place::of(1, 0));
    let (half, _) = machines[0].halves(&connection(&machines[0]), client, trustee);
    let (_, other) = machines[1].halves(&connection(&machines[1]), trustee, client);
    (half, other)
}

/// Both sides in turn until the frame is there.
fn until_received(client: &mut ClientHalf, trustee: &mut TrusteeHalf) -> (Vec<u8>, Head) {
    loop {
        assert!(trustee.has_news());
        if let Some(frame) = trustee.receive().unwrap() {
            return frame;
        }
        assert!(!trustee.has_news() && client.has_news());
        assert!(client.receive().unwrap().is_none());
    }
}

/// Both sides in turn until the answer is there.
fn until_answered(client: &mut ClientHalf, trustee: &mut TrusteeHalf) -> (Vec<u8>, u16) {
    loop {
        assert!(client.has_news());
        if let Some(answer) = client.receive().unwrap() {
            return answer;
        }
        assert!(!client.has_news() && trustee.has_news());
        assert!(trustee.receive().unwrap().is_none());
    }
}

#[test]
fn frames_and_answers_of_any_size_take_turns() {
    let machines = machines();
    let (mut client, mut trustee) = pair(&machines);
    assert!(!client.has_news() && !trustee.has_news() && client.is_idle());
    let room = Direction::Request.room();
    // Around the ends of one and of several slots: head of a request of unknown length is 13 bytes.
    let sizes = [0, 1, room - 14, room - 13, room - 12, 2 * room - 13, 2 * room - 12, 100_000];
    for (round, &size) in sizes.iter().enumerate() {
        for &answer_size in &[0, 1, 8, 4080, 4081, 2 * 4080, 2 * 4080 + 1, 70_001] {
            let bytes: Vec<u8> = (0..size + round).map(|n| (n * 7) as u8).collect();
            let call = Call { position: 1, property: 5, bytes };
            let mut frame = filled(std::slice::from_ref(&call));
            client.send(&mut frame).unwrap();
            assert!(!client.is_idle() && !client.has_news());
            let (data, head) = until_received(&mut client, &mut trustee);
            assert_same(&[call], &data, &frame::decode(&data, &head, resolve).unwrap());
            let answer: Vec<u8> = (0..answer_size).map(|n| (n * 11) as u8).collect();
            trustee.answer(answer.clone(), 3).unwrap();
            assert!(!trustee.has_news());
            assert_eq!(until_answered(&mut client, &mut trustee), (answer, 3));
            assert!(client.is_idle() && !client.has_news() && !trustee.has_news());
        }
    }
}

/// Two threads, as fast as they can, with sleeping and waking through the park words.
#[test]
fn two_threads_exchange_batches_and_sleep() {
    const ROUNDS: usize = 20_000;
    let machines = machines();
    let sleep = |wiring: &Wiring, has_news: &dyn Fn() -> bool| {
        wiring.fabric.park(comm::WorkerId(0), wiring.layout.park_word(0), TIMEOUT, &mut || !has_news()).unwrap();
    };
    let calls: Vec<Call> = (0..30).map(|n| Call { position: n % 7, property: n, bytes: vec![n as u8; 3] }).collect();
    let calls: Vec<Call> = calls
        .into_iter()
        .map(|call| match frame::Operation::packed_bytes(Fake(call.position)) {
            Some(len) => Call { bytes: vec![call.property as u8; len], ..call },
            None => call,
        })
        .collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (_, mut trustee) = machines[1].halves(&connection(&machines[1]), Place::of(1, 0), Place::of(0, 0));
            for _ in 0..ROUNDS {
                let (data, head) = loop {
                    match trustee.receive().unwrap() {
                        Some(frame) => break frame,
                        None => sleep(&machines[1], &|| trustee.has_news()),
                    }
                };
                let items = frame::decode(&data, &head, resolve).unwrap();
                assert_same(&calls, &data, &items);
                let properties = items.iter().flat_map(|item| item.property.to_ne_bytes()).collect();
                trustee.answer(properties, 0).unwrap();
            }
        });
        let (mut client, _) = machines[0].halves(&connection(&machines[0]), Place::of(0, 0), Place::of(1, 0));
        let expected: Vec<u8> = calls.iter().flat_map(|call| call.property.to_ne_bytes()).collect();
        for _ in 0..ROUNDS {
            client.send(&mut filled(&calls)).unwrap();
            let answer = loop {
                match client.receive().unwrap() {
                    Some(answer) => break answer,
                    None => sleep(&machines[0], &|| client.has_news()),
                }
            };
            assert_eq!(answer, (expected.clone(), 0));
        }
    });
}

/// What a peer writes out of turn, twice, or with the wrong number is told from what it may write.
#[test]
fn writes_out_of_turn_are_refused() {
    let empty = |kind, number| {
        let mut bytes = Vec::new();
        let offset = slot::seal(&mut bytes, Direction::Request, &Head::new(kind, 1), number);
        (bytes, offset)
    };
    for (kind, number, text) in [
        (Kind::Go, 1, "not its turn"),
        (Kind::Whole, 2, "write 2 where write 1 was to come"),
        (Kind::Whole, u64::MAX, "where write 1 was to come"),
    ] {
        let machines = machines();
        let connection = connection(&machines[0]);
        let (_, mut trustee) = machines[1].halves(&self::connection(&machines[1]), Place::of(1, 0), Place::of(0, 0));
        let (bytes, offset) = empty(kind, number);
        let slot = machines[0].layout.request_slot(Place::of(1, 0), Place::of(0, 0));
        connection.borrow_mut().write(&bytes, slot + offset).unwrap();
        assert!(trustee.has_news());
        let violation = trustee.receive().unwrap_err();
        assert!(violation.0.contains(text), "{violation}");
    }
    // A second request before the answer to the first.
    let machines = machines();
    let (mut client, mut trustee) = pair(&machines);
    client.send(&mut filled(&[Call { position: 0, property: 0, bytes: Vec::new() }])).unwrap();
    assert!(trustee.receive().unwrap().is_some());
    assert!(trustee.receive().unwrap().is_none());
    // Sending twice, or answering twice, is our own mistake.
    assert!(catch_unwind(AssertUnwindSafe(|| client.send(&mut Frame::default()))).is_err());
    trustee.answer(Vec::new(), 0).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| trustee.answer(Vec::new(), 0))).is_err());
}
