//! Both ends of a stream over a real fabric (two machines in this process): frames of any size, full rings, sleep, and
//! violations by a peer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use comm::shm::{self, ShmFabric};
use comm::{Fabric, MachineId, Region, WorkerId};
use proptest::prelude::RngExt;
use proptest::test_runner::{RngAlgorithm, TestRng};
use trust::link::{Buffer, Carrier};

use super::connections::Connection;
use super::image::Image;
use super::layout::{Layout, Slots};
use super::slot::{self, Kind, TRAILER_BYTES, Trailer};
use super::stream::FrameStream;
use super::wiring::Wiring;
use crate::Place;

const TIMEOUT: Duration = limits::HANG;
const SMALL: Slots = Slots { per_pair: 3, bytes: 512 };

/// Two machines of a worker each (and a service thread), in this process.
fn machines(slots: Slots) -> Vec<Wiring> {
    let segments = shm::create(2).unwrap();
    let layout = Arc::new(Layout::new(vec![1, 1], slots));
    let open = |machine: u16| {
        let bytes = layout.region_bytes(machine);
        let fabric = ShmFabric::open(segments.bootstrap(MachineId(machine)).unwrap(), bytes, TIMEOUT).unwrap();
        let fabric: Arc<dyn Fabric> = Arc::new(fabric);
        Wiring::new(fabric, Arc::clone(&layout), Image::of_program().unwrap()).unwrap()
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| open(1));
        vec![open(0), other.join().unwrap()]
    })
}

/// One end of the stream on which the worker of machine 0 is a client of that of machine 1.
struct End {
    stream: FrameStream,
    connection: Connection,
    wiring: Wiring,
}

impl End {
    fn of(wiring: &Wiring) -> End {
        let own = wiring.fabric.machine().0;
        let (client, trustee) = wiring.streams(Place::of(own, 0), Place::of(1 - own, 0));
        let connection = Connection::new(wiring.fabric.connect(MachineId(1 - own), WorkerId(0)).unwrap());
        End { stream: if own == 0 { client } else { trustee }, connection, wiring: wiring.clone() }
    }

    fn region(&self) -> &Region {
        self.wiring.fabric.region()
    }

    fn send(&mut self, frame: &[u8], note: u32) {
        self.stream.send(self.wiring.fabric.region(), &self.connection, &mut buffer(frame), note).unwrap();
    }

    /// Runs a worker's turn: goes on, takes, acknowledges.
    fn turn(&mut self) -> Option<(Vec<u8>, u32)> {
        let region = self.wiring.fabric.region();
        self.stream.go_on(region, &self.connection).unwrap();
        let mut into = buffer(b"what was there before");
        let received = self.stream.receive(region, &mut into).unwrap();
        if self.stream.owes_ack() {
            self.stream.send_ack(&self.connection).unwrap();
        }
        self.connection.flush().unwrap();
        received.map(|note| (into.bytes().to_vec(), note))
    }

    fn has_work(&self) -> bool {
        let (offset, before) = self.stream.next_flag();
        let flag = self.region().word(offset).unwrap().load(std::sync::atomic::Ordering::Acquire);
        flag != before || self.stream.can_go_on(self.region())
    }

    fn sleep(&self) {
        let word = self.wiring.layout.park_word(0);
        self.wiring.fabric.park(WorkerId(0), word, TIMEOUT, &mut || !self.has_work()).unwrap();
    }

    /// Turns and sleeps until a frame has come.
    fn wait(&mut self) -> (Vec<u8>, u32) {
        loop {
            match self.turn() {
                Some(frame) => return frame,
                None => self.sleep(),
            }
        }
    }
}

fn buffer(bytes: &[u8]) -> Buffer {
    let mut buffer = Buffer::default();
    buffer.set_len(bytes.len());
    buffer.bytes_mut().copy_from_slice(bytes);
    buffer
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251 + seed) as u8).collect()
}

fn ends(machines: &[Wiring]) -> (End, End) {
    (End::of(&machines[0]), End::of(&machines[1]))
}

#[test]
fn frames_of_any_size_go_both_ways() {
    for per_pair in [1, 2, 3] {
        let machines = machines(Slots { per_pair, ..SMALL });
        let (mut client, mut trustee) = ends(&machines);
        let room = SMALL.room_bytes();
        let sizes = [0, 1, 8, room - 8, room - 1, room, room + 1, 2 * room, 2 * room + 1, 7 * room + 5, 100_000];
        for (round, &size) in sizes.iter().enumerate() {
            for &answer in &sizes {
                let (request, answer) = (bytes(size, round), bytes(answer, round + 1));
                let mut turns = 0;
                client.send(&request, 7);
                let received = loop {
                    turns += 1;
                    assert!(turns < 10_000, "nothing goes on");
                    if let Some(received) = trustee.turn() {
                        break received;
                    }
                    assert_eq!(client.turn(), None);
                };
                assert!(received == (request, 7));
                trustee.send(&answer, 8);
                let received = loop {
                    turns += 1;
                    assert!(turns < 10_000, "nothing goes on");
                    if let Some(received) = client.turn() {
                        break received;
                    }
                    assert_eq!(trustee.turn(), None);
                };
                assert!(received == (answer, 8));
            }
        }
    }
}

#[test]
fn as_many_frames_as_there_are_slots_are_under_way() {
    let machines = machines(SMALL);
    let (mut client, mut trustee) = ends(&machines);
    for round in 0..50u32 {
        for n in 0..3 {
            assert!(client.stream.can_send(machines[0].fabric.region()).unwrap(), "round {round}, {n}");
            client.send(&bytes(100, n), n as u32);
        }
        assert!(!client.stream.can_send(machines[0].fabric.region()).unwrap());
        for n in 0..3 {
            assert_eq!(trustee.turn(), Some((bytes(100, n), n as u32)));
        }
        assert_eq!(trustee.turn(), None);
        // The answers carry the acknowledgement of the slots.
        for n in 0..3 {
            trustee.send(&[], n);
            assert_eq!(client.turn(), Some((Vec::new(), n)));
        }
    }
}

/// Both ends send large frames at once, each taking the other's when it may: no deadlock.
#[test]
fn large_frames_cross() {
    let machines = machines(SMALL);
    let (mut client, mut trustee) = ends(&machines);
    for round in 0..20 {
        let (there, back) = (bytes(20_000 + round, round), bytes(30_000 + round, round));
        client.send(&there, 1);
        trustee.send(&back, 2);
        assert!(client.stream.is_sending() && trustee.stream.is_sending());
        let (mut came_there, mut came_back) = (None, None);
        for _ in 0..10_000 {
            came_there = trustee.turn().or(came_there);
            came_back = client.turn().or(came_back);
            if came_there.is_some() && came_back.is_some() {
                break;
            }
        }
        assert!(came_there == Some((there, 1)) && came_back == Some((back, 2)), "round {round}");
    }
}

/// A client acknowledges parts of an answer in its requests, and the trustee takes no request before that answer has
/// gone.
#[test]
fn an_answer_on_its_way_hears_of_room_in_requests_not_consumed() {
    let machines = machines(SMALL);
    let (mut client, mut trustee) = ends(&machines);
    let answer = bytes(20_000, 1);
    client.send(b"first", 1);
    assert!(trustee.turn().is_some());
    trustee.send(&answer, 2);
    let (region, mut into) = (machines[0].fabric.region(), Buffer::default());
    for _ in 0..3 {
        assert_eq!(client.stream.receive(region, &mut into).unwrap(), None);
        // No acknowledgement word: this write carries it.
        client.send(b"next", 3);
        assert!(!client.stream.owes_ack() && trustee.has_work());
        trustee.stream.go_on(machines[1].fabric.region(), &trustee.connection).unwrap();
    }
    let mut turns = 0;
    let (received, _) = loop {
        turns += 1;
        assert!(turns < 1000, "nothing goes on");
        if let Some(received) = client.turn() {
            break received;
        }
        trustee.stream.go_on(machines[1].fabric.region(), &trustee.connection).unwrap();
    };
    assert!(received == answer);
    assert_eq!(trustee.turn(), Some((b"next".to_vec(), 3)));
}

/// Two threads, as fast as they can, with sleeping and waking through the park words; small frames and large.
#[test]
fn two_threads_exchange_frames_and_sleep() {
    const ROUNDS: usize = 3000;
    let size = |round: usize| if round.is_multiple_of(100) { 20_000 } else { round % 700 };
    let machines = machines(SMALL);
    std::thread::scope(|scope| {
        let trustee = &machines[1];
        scope.spawn(move || {
            let mut trustee = End::of(trustee);
            for round in 0..ROUNDS {
                let (frame, note) = trustee.wait();
                assert!(frame == bytes(size(round), round) && note == round as u32, "round {round}");
                trustee.send(&frame, note + 1);
                while trustee.stream.is_sending() {
                    // The next request may come meanwhile: it is left in its slot.
                    trustee.stream.go_on(trustee.wiring.fabric.region(), &trustee.connection).unwrap();
                    std::thread::yield_now();
                }
            }
        });
        let mut client = End::of(&machines[0]);
        let (mut sent, mut answered) = (0, 0);
        while answered < ROUNDS {
            while sent < ROUNDS && client.stream.can_send(machines[0].fabric.region()).unwrap() {
                client.send(&bytes(size(sent), sent), sent as u32);
                sent += 1;
            }
            let (frame, note) = client.wait();
            assert!(frame == bytes(size(answered), answered) && note == answered as u32 + 1, "{answered}");
            answered += 1;
        }
    });
}

/// Makes a write as a peer might, into the slot of this number.
fn write(client: &End, trailer: Trailer, data: &[u8], number: u64) {
    let slots = client.wiring.layout.slots();
    let first = client.wiring.layout.request_slots(Place::of(1, 0), Place::of(0, 0));
    let slot = first + slots.stride_bytes() * (number % u64::from(slots.per_pair)) as usize;
    slot::seal(&mut buffer(data), 0, &trailer, number, |bytes| {
        client.connection.write(bytes, slot + slots.bytes - bytes.len()).unwrap();
    });
}

fn piece(kind: Kind, len: u32, total: u64) -> Trailer {
    Trailer { consumed: 0, len, kind, total, note: 1 }
}

#[test]
fn writes_out_of_turn_are_refused() {
    let refused = |text: &str, writes: &[(Trailer, u64)]| {
        let machines = machines(SMALL);
        let (client, mut trustee) = ends(&machines);
        for (trailer, number) in writes {
            write(&client, *trailer, &bytes(trailer.len as usize, 0), *number);
        }
        let mut into = Buffer::default();
        let outcome = loop {
            match trustee.stream.receive(machines[1].fabric.region(), &mut into) {
                Ok(Some(_)) => {}
                other => break other,
            }
        };
        let violation = outcome.expect_err(text);
        assert!(violation.0.contains(text), "{violation}");
    };
    refused("not its turn", &[(piece(Kind::Last, 8, 16), 1)]);
    refused("not its turn", &[(piece(Kind::Piece, 8, 32), 1), (piece(Kind::Whole, 8, 8), 2)]);
    refused("not its turn", &[(piece(Kind::Piece, 8, 32), 1), (piece(Kind::Last, 8, 32), 2)]);
    refused("not its turn", &[(piece(Kind::Piece, 8, 32), 1), (piece(Kind::Last, 24, 40), 2)]);
    refused("not its turn", &[(piece(Kind::Piece, 8, 24), 1), (piece(Kind::Piece, 16, 24), 2)]);
    // A total above 32 bits; its lower bits alone would fit.
    refused("not its turn", &[(piece(Kind::Piece, 8, (1 << 32) + 16), 1), (piece(Kind::Last, 8, (1 << 32) + 16), 2)]);
    refused("write 4 where write 1 was to come", &[(piece(Kind::Whole, 0, 0), 4)]);
    refused("5 writes are acknowledged, of 0", &[(Trailer { consumed: 5, ..piece(Kind::Whole, 0, 0) }, 1)]);
    refused("of 16, in a slot of 480", &[(piece(Kind::Whole, 8, 16), 1)]);
}

#[test]
fn acknowledgements_beyond_what_was_sent_are_refused() {
    let machines = machines(SMALL);
    let (mut client, trustee) = ends(&machines);
    (0..3).for_each(|n| client.send(&[], n));
    let word = machines[0].layout.request_ack(Place::of(0, 0), Place::of(1, 0));
    trustee.connection.write(&4u64.to_ne_bytes(), word).unwrap();
    let violation = client.stream.can_send(machines[0].fabric.region()).unwrap_err();
    assert!(violation.0.contains("4 writes are acknowledged, of 3"), "{violation}");
    // Sending before the last frame has gone is our own mistake.
    let (mut client, _) = {
        let machines = self::machines(SMALL);
        ends(&machines)
    };
    client.send(&bytes(10_000, 0), 1);
    assert!(catch_unwind(AssertUnwindSafe(|| client.send(&[], 2))).is_err());
}

/// Damaged slots are refused, or give frames no longer than their total; nothing panics.
#[test]
fn damaged_slots_are_refused_or_in_range() {
    const ROUNDS: u64 = 20_000;
    let mut rng = TestRng::deterministic_rng(RngAlgorithm::XorShift);
    let machines = machines(SMALL);
    let (client, first) = ends(&machines);
    let (mut refused, mut taken) = (0, 0);
    let mut trustee = first.stream;
    let mut number = 0;
    for round in 0..ROUNDS {
        number += 1;
        let len = rng.random_range(0..200u32);
        let mut trailer = piece(Kind::Whole, len, u64::from(len));
        match rng.random_range(0..6) {
            0 => trailer.total = rng.random(),
            1 => trailer.len = rng.random_range(0..490) & !7,
            2 => trailer.kind = Kind::Piece,
            3 => trailer.kind = Kind::Last,
            4 => trailer.consumed = rng.random(),
            _ => {}
        }
        let data = bytes(200.max(trailer.len as usize), round as usize);
        let number_written = if rng.random_range(0..20) == 0 { number + rng.random_range(1..5u64) } else { number };
        write(&client, trailer, &data, number_written);
        let mut into = Buffer::default();
        match trustee.receive(machines[1].fabric.region(), &mut into) {
            Ok(Some(_)) => {
                assert!(into.len() <= trailer.total as usize);
                taken += 1;
            }
            Ok(None) => taken += 1,
            Err(violation) => {
                assert!(!violation.0.is_empty());
                refused += 1;
                // The program would have ended: a new one begins with clean slots.
                trustee = machines[1].streams(Place::of(1, 0), Place::of(0, 0)).1;
                number = 0;
                let words = machines[1].fabric.region();
                for slot in 0..3 {
                    let at = machines[1].layout.request_slots(Place::of(1, 0), Place::of(0, 0));
                    let flag = at + slot * SMALL.stride_bytes() + SMALL.bytes - 8;
                    words.word(flag).unwrap().store(0, std::sync::atomic::Ordering::Relaxed);
                }
            }
        }
    }
    assert!(refused > ROUNDS / 10 && taken > ROUNDS / 10, "the damage tests something: {refused}, {taken}");
}

/// The same through the functions that `trust` calls, with several peers: each sender is found, in turn, and no other
/// peer.
#[test]
fn a_carrier_finds_who_has_sent() {
    let machines = machines(SMALL);
    let (mut client, mut trustee) = (machines[0].carrier(0).unwrap(), machines[1].carrier(0).unwrap());
    // The other machine's worker, and its service thread.
    assert_eq!(client.peers().len(), 2);
    assert_eq!(client.services(), &client.peers()[1..]);
    assert!(!trustee.has_work() && trustee.find_requests(0).is_none());
    assert!(client.can_send(0));
    client.send(0, &mut buffer(b"request"), 1);
    client.flush();
    assert!(trustee.has_work() && trustee.find_requests(0) == Some(0) && trustee.find_requests(1).is_none());
    let mut into = Buffer::default();
    assert_eq!(trustee.receive_requests(0, &mut into), Some(1));
    assert_eq!(into.bytes(), b"request");
    assert!(trustee.find_requests(0).is_none() && !trustee.has_work() && !client.has_work());

    // An answer that does not fit stalls; no request is taken before it has gone.
    trustee.answer(0, &mut buffer(&bytes(5000, 3)), 0);
    client.send(0, &mut buffer(b"next"), 2);
    assert!(trustee.find_requests(0).is_none() && trustee.receive_requests(0, &mut into).is_none());
    let mut turns = 0;
    while client.receive_answer(0, &mut into).is_none() {
        client.flush();
        trustee.turn();
        turns += 1;
        assert!(turns < 1000);
    }
    assert_eq!(into.bytes(), bytes(5000, 3));
    trustee.turn();
    assert_eq!(trustee.find_requests(0), Some(0));
    assert_eq!(trustee.receive_requests(0, &mut into), Some(2));

    // The service thread is asked meanwhile, in its only slot.
    let mut service = machines[1].carrier(1).unwrap();
    for round in 0..3 {
        client.send(1, &mut buffer(b"question"), 3);
        assert!(!client.can_send(1) && !trustee.has_work() && service.find_requests(0) == Some(0));
        assert_eq!(service.receive_requests(0, &mut into), Some(3));
        service.answer(0, &mut buffer(b"its answer"), 0);
        service.flush();
        assert_eq!((client.receive_answer(1, &mut into), into.bytes()), (Some(0), &b"its answer"[..]), "round {round}");
        client.flush();
        assert!(client.can_send(1));
    }
}

const _: () = assert!(TRAILER_BYTES < 512);
