//! Direct ways: opened and given back, order while the way changes, room, and peers that lie.

use gossamer_ways::ways::Limits;

use super::*;
use crate::Place;
use crate::remote::slot::Violation;
use crate::remote::ways::wire::{self, Head, Kind};

const BATCHES: u16 = Limits::DEFAULT.batches;

/// Opens a way with each batch, and finds each way unused at any time.
const EAGER: Limits = Limits { batches: 1, full_bytes: 0, within_ns: 0, rings: 1, unused_ns: 0 };

/// Machines whose workers have so many direct ways.
fn machines(workers: &[u16], direct_ways: u16) -> Vec<Wiring> {
    connected(Layout::choose(workers.to_vec(), 1, Slots::SHM, Some(true)).with_direct_ways(direct_ways))
}

/// Sends a request, and answers it.
fn ask(client: &mut WaysCarrier, trustee: &mut WaysCarrier, (place, back): (usize, usize), round: usize) {
    let (there, answered) = (bytes(100 + round, round), bytes(50 + round, round + 1));
    client.send(place, &mut buffer(&there), round as u32);
    assert!(until(&mut [client, trustee], |carriers| request(carriers[1], back)) == (there, round as u32));
    trustee.answer(back, &mut buffer(&answered), 1);
    assert!(until(&mut [client, trustee], |carriers| answer(carriers[0], place)) == (answered, 1));
}

/// Asks until the pair has a direct way, and once more each way.
fn open(client: &mut WaysCarrier, trustee: &mut WaysCarrier, (place, back): (usize, usize)) {
    let before = (client.direct_ways(), trustee.direct_ways());
    (0..usize::from(BATCHES) + 2).for_each(|round| ask(client, trustee, (place, back), round));
    assert_eq!((client.direct_ways(), trustee.direct_ways()), (before.0 + 1, before.1 + 1));
}

fn turns(carriers: &mut [&mut WaysCarrier]) {
    for _ in 0..TURNS {
        carriers.iter_mut().for_each(|carrier| turn(carrier));
    }
}

/// Writes that machine 1 has had by the machine way of machine 0.
fn writes(machines: &[Wiring]) -> u64 {
    let word = machines[1].layout.way_news_of(1, 0);
    machines[1].fabric.region().word(word).unwrap().load(Ordering::Relaxed)
}

#[test]
fn a_pair_with_many_batches_has_a_direct_way_until_it_has_none_for_long() {
    let machines = machines(&[1, 1], 64);
    let (mut client, mut trustee) = (carrier(&machines[0], 0), carrier(&machines[1], 0));
    for _ in 0..3 {
        (0..usize::from(BATCHES) - 1).for_each(|round| ask(&mut client, &mut trustee, (0, 0), round));
        assert_eq!((client.direct_ways(), trustee.direct_ways()), (0, 0));
        (0..3).for_each(|round| ask(&mut client, &mut trustee, (0, 0), round));
        assert_eq!((client.direct_ways(), trustee.direct_ways()), (1, 1));
        let before = writes(&machines);
        (0..1000).for_each(|round| ask(&mut client, &mut trustee, (0, 0), round));
        assert_eq!(writes(&machines), before, "all of it went directly");
        turns(&mut [&mut client, &mut trustee]);
        assert!(!client.has_work() && !trustee.has_work());
        client.pass(Duration::from_secs(9));
        turns(&mut [&mut client, &mut trustee]);
        assert_eq!((client.direct_ways(), trustee.direct_ways()), (1, 1));
        client.pass(Duration::from_secs(2));
        turns(&mut [&mut client, &mut trustee]);
        assert_eq!((client.direct_ways(), trustee.direct_ways()), (0, 0));
        [&mut client, &mut trustee].into_iter().for_each(|carrier| carrier.pass(Duration::from_secs(1)));
    }
}

#[test]
fn frames_of_any_size_go_directly() {
    let machines = machines(&[1, 1], 64);
    exchange_all_sizes(&machines);
}

/// As many small batches as a pair may have under way, and nothing back: room is given by acknowledgements alone.
#[test]
fn writes_that_nothing_answers_are_acknowledged() {
    let machines = machines(&[1, 1], 64);
    let (mut client, mut trustee) = (carrier(&machines[0], 0), carrier(&machines[1], 0));
    open(&mut client, &mut trustee, (0, 0));
    let (mut sent, mut full) = (0, 0);
    for _ in 0..TURNS {
        while sent < 300 && client.can_send(0) {
            client.send(0, &mut buffer(&bytes(64, sent)), sent as u32);
            sent += 1;
        }
        full += u32::from(sent < 300);
        turn(&mut client);
        turn(&mut trustee);
    }
    assert!(sent == 300 && full > 300 / 16, "{sent} sent, {full} times no room");
    for round in 0..300 {
        assert!(request(&mut trustee, 0) == Some((bytes(64, round), round as u32)));
        trustee.answer(0, &mut buffer(&[]), 0);
        turn(&mut trustee);
        turn(&mut client);
        assert!(answer(&mut client, 0).is_some());
    }
}

#[test]
fn both_ends_open_at_once() {
    let machines = machines(&[1, 1], 64);
    let (mut one, mut other) = (carrier(&machines[0], 0), carrier(&machines[1], 0));
    for round in 0..BATCHES {
        one.send(0, &mut buffer(&bytes(20, usize::from(round))), u32::from(round));
        other.send(0, &mut buffer(&bytes(30, usize::from(round))), u32::from(round));
    }
    // Each has asked before it has heard.
    one.flush();
    other.flush();
    turns(&mut [&mut one, &mut other]);
    assert_eq!((one.direct_ways(), other.direct_ways()), (1, 1));
    for round in 0..usize::from(BATCHES) {
        for (carrier, len) in [(&mut other, 20), (&mut one, 30)] {
            assert!(request(carrier, 0) == Some((bytes(len, round), round as u32)));
            carrier.answer(0, &mut buffer(&[]), 0);
        }
    }
    turns(&mut [&mut one, &mut other]);
    assert!((0..BATCHES).all(|_| answer(&mut one, 0).is_some() && answer(&mut other, 0).is_some()));
}

/// A worker that has asked sends by the machine way until it hears the answer; what it sends directly then may come
/// before that.
#[test]
fn the_first_frame_of_a_direct_way_waits_for_the_last_of_the_machine_way() {
    // Two workers: frames wait for those in flight.
    let machines = machines(&[2, 1], 64);
    let (mut client, mut trustee) = (carrier(&machines[0], 0), carrier(&machines[1], 0));
    (0..u32::from(BATCHES)).for_each(|round| client.send(0, &mut buffer(b"ask"), round));
    turn(&mut client);
    turn(&mut trustee);
    assert_eq!((client.direct_ways(), trustee.direct_ways()), (0, 1), "the answer is on its way");
    client.send(0, &mut buffer(b"in flight"), 100);
    client.flush();
    client.send(0, &mut buffer(b"not sent"), 101);
    client.turn();
    assert_eq!(client.direct_ways(), 1);
    client.send(0, &mut buffer(b"direct"), 102);
    client.send(0, &mut buffer(b"direct, too"), 103);
    assert!(ways(&machines[0]).way(1).unwrap().has_unsent());
    turn(&mut trustee);
    assert!(trustee.has_work(), "a frame waits in the ring");
    let mut received = Vec::new();
    let mut receive = |trustee: &mut WaysCarrier| {
        while let Some((_, note)) = request(trustee, 0) {
            received.push(note);
        }
        received.len()
    };
    assert_eq!(receive(&mut trustee), usize::from(BATCHES) + 1);
    until(&mut [&mut client, &mut trustee], |carriers| {
        (receive(carriers[1]) == usize::from(BATCHES) + 4).then_some(())
    });
    assert!(received.iter().copied().eq((0..u32::from(BATCHES)).chain(100..104)), "{received:?}");
}

#[test]
fn a_way_is_given_back_while_frames_are_in_it() {
    let machines = machines(&[1, 1], 64);
    let (mut client, mut trustee) = (carrier(&machines[0], 0), carrier(&machines[1], 0));
    open(&mut client, &mut trustee, (0, 0));
    let send = |client: &mut WaysCarrier, rounds: std::ops::Range<u32>| {
        for round in rounds {
            client.send(0, &mut buffer(b"frame"), round);
            client.flush();
        }
    };
    send(&mut client, 0..3);
    trustee.send(0, &mut buffer(b"the other way"), 9);
    let before = writes(&machines);
    client.give_back(0);
    send(&mut client, 3..6);
    assert!(writes(&machines) > before);
    let mut received = Vec::new();
    for _ in 0..TURNS {
        turn(&mut trustee);
        while let Some((_, note)) = request(&mut trustee, 0) {
            received.push(note);
            trustee.answer(0, &mut buffer(&[]), 0);
        }
        turn(&mut client);
    }
    assert_eq!(received, [0, 1, 2, 3, 4, 5]);
    assert_eq!(request(&mut client, 0), Some((b"the other way".to_vec(), 9)));
    assert_eq!((client.direct_ways(), trustee.direct_ways()), (0, 0));
}

#[test]
fn a_pair_that_needs_it_more_gets_the_ring_of_another() {
    let machines = machines(&[1, 1, 1], 1);
    let mut client = carrier(&machines[0], 0);
    let (mut one, mut other) = (carrier(&machines[1], 0), carrier(&machines[2], 0));
    open(&mut client, &mut one, (0, 0));
    // Place 2: behind the service thread of machine 1. All had their batches lately, so the ring stays.
    (0..40).for_each(|round| ask(&mut client, &mut other, (2, 0), round));
    assert_eq!((client.direct_ways(), one.direct_ways(), other.direct_ways()), (1, 1, 0));
    [&mut client, &mut other].into_iter().for_each(|carrier| carrier.pass(Duration::from_millis(300)));
    (0..40).for_each(|round| ask(&mut client, &mut other, (2, 0), round));
    turns(&mut [&mut client, &mut one, &mut other]);
    assert_eq!((client.direct_ways(), one.direct_ways(), other.direct_ways()), (0, 0, 0));
    [&mut client, &mut other].into_iter().for_each(|carrier| carrier.pass(Duration::from_millis(300)));
    open(&mut client, &mut other, (2, 0));
    (0..5).for_each(|round| ask(&mut client, &mut one, (0, 0), round));
}

#[test]
fn a_lost_machine_frees_its_direct_ways() {
    let machines = machines(&[1, 1, 1], 1);
    let mut client = carrier(&machines[0], 0);
    let (mut lost, mut other) = (carrier(&machines[1], 0), carrier(&machines[2], 0));
    open(&mut client, &mut lost, (0, 0));
    client.send(0, &mut buffer(&bytes(400_000, 1)), 1);
    lost.send(0, &mut buffer(b"to be forgotten"), 1);
    client.lose(1);
    assert_eq!(client.direct_ways(), 0);
    turn(&mut client);
    assert!(client.find_requests(0).is_none() && !client.has_work());
    open(&mut client, &mut other, (2, 0));
}

/// Writes to shares go by the machine way, and so do messages behind them.
#[test]
fn a_message_behind_a_write_to_a_share_goes_by_the_machine_way() {
    let machines = machines(&[1, 1], 64);
    let (mut client, mut trustee) = (carrier(&machines[0], 0), carrier(&machines[1], 0));
    open(&mut client, &mut trustee, (0, 0));
    let before = writes(&machines);
    ask(&mut client, &mut trustee, (0, 0), 1);
    assert_eq!(writes(&machines), before);
    client.share_writes()[1].set(1);
    ask(&mut client, &mut trustee, (0, 0), 2);
    assert!(writes(&machines) > before);
    turns(&mut [&mut client, &mut trustee]);
    assert_eq!((client.direct_ways(), trustee.direct_ways()), (0, 0));
    [&mut client, &mut trustee].into_iter().for_each(|carrier| carrier.pass(Duration::from_millis(200)));
    open(&mut client, &mut trustee, (0, 0));
}

/// The service thread has none.
#[test]
fn large_frames_to_a_service_thread_go_by_the_machine_way() {
    let machines = machines(&[1, 1], 64);
    let (mut client, mut service) = (carrier(&machines[0], 0), carrier(&machines[1], 1));
    for round in 0..usize::from(BATCHES) * 2 {
        let there = bytes(100_000, round);
        client.send(1, &mut buffer(&there), 1);
        assert!(until(&mut [&mut client, &mut service], |carriers| request(carriers[1], 0)) == (there, 1));
        service.answer(0, &mut buffer(&bytes(100_000, 1)), 0);
        until(&mut [&mut client, &mut service], |carriers| answer(carriers[0], 1));
    }
    assert_eq!((client.direct_ways(), service.direct_ways()), (0, 0));
}

/// Workers that open and give back their ways as often as they can, awake and asleep.
#[test]
fn threads_exchange_frames_while_their_ways_change() {
    exchange_and_sleep(&machines(&[3, 3], 64), |carrier| carrier.set_limits(EAGER));
    exchange_and_sleep(&machines(&[3, 3], 64), |carrier| carrier.set_limits(Limits { rings: 3, ..EAGER }));
    exchange_and_sleep(&machines(&[3, 3], 64), |_| {});
}

/// Writes a piece as the worker of machine 0 might, directly to that of machine 1.
fn write_directly(machines: &[Wiring], number: u64, ends: (u16, u16), head: &Head) {
    let mut piece = Buffer::default();
    piece.set_len(head.len as usize);
    wire::append_head(&mut piece, ends, head);
    let slots = Layout::DIRECT;
    let ring = machines[0].layout.direct_ring(Place { machine: 1, worker: 0 }, 0);
    let slot = ring + slots.stride_bytes() * (number % u64::from(slots.per_pair)) as usize;
    let len = piece.len() as u32;
    let trailer = Trailer { consumed: 0, len, kind: Part::Whole, total: u64::from(len), note: 0 };
    slot::seal(&mut piece, 0, &trailer, number, |bytes| {
        let way = ways(&machines[0]).way(1).unwrap();
        way.with_connection(|connection| connection.write(bytes, slot + slots.bytes - bytes.len())).unwrap();
    });
}

#[test]
fn a_peer_that_lies_directly_is_refused() {
    let refused = |text: &str, write: fn(&[Wiring])| {
        let machines = machines(&[1, 1], 64);
        let (mut client, mut trustee) = (carrier(&machines[0], 0), carrier(&machines[1], 0));
        // The client has asked, and sends nothing directly.
        (0..u32::from(BATCHES)).for_each(|round| client.send(0, &mut buffer(b"ask"), round));
        turn(&mut client);
        turn(&mut trustee);
        assert_eq!((client.direct_ways(), trustee.direct_ways()), (0, 1));
        write(&machines);
        let outcome = trustee.take_ring(0);
        let Violation(violation) = outcome.expect_err(text);
        assert!(violation.contains(text), "{violation}");
    };
    refused("number 16 has been there before", |machines| {
        write_directly(machines, 1, (0, 0), &Head::empty(Kind::Ack, 0, 16));
    });
    refused("number 0 has been there before", |machines| {
        write_directly(machines, 1, (0, 0), &Head { changes: true, ..Head::empty(Kind::Ack, 0, 0) });
    });
    refused("number 18 leaves a gap", |machines| {
        write_directly(machines, 1, (0, 0), &Head::empty(Kind::Ack, 0, 18));
    });
    refused("of the kind Ack, of thread 1 to 0", |machines| {
        write_directly(machines, 1, (1, 0), &Head::empty(Kind::Ack, 0, 17));
    });
    refused("of the kind Open", |machines| write_directly(machines, 1, (0, 0), &Head::empty(Kind::Open, 0, 17)));
    refused("write 5 where write 1 was to come", |machines| {
        // Slot of write 1.
        write_directly(machines, 17, (0, 0), &Head::empty(Kind::Ack, 0, 17));
        write_directly(machines, 1, (0, 0), &Head::empty(Kind::Ack, 0, 17));
        let slots = Layout::DIRECT;
        let ring = machines[0].layout.direct_ring(Place { machine: 1, worker: 0 }, 0);
        let flag = ring + slots.stride_bytes() + slots.bytes - 8;
        machines[1].fabric.region().word(flag).unwrap().store(5, Ordering::Relaxed);
    });
    refused("an answer to nothing", |machines| {
        write_directly(machines, 1, (0, 0), &Head::empty(Kind::Answer, 0, 17));
    });
}
