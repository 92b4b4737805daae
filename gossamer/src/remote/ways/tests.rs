//! Machine ways between machines in this process, over a real fabric: any thread deals, nobody waits, a thread that
//! computes holds up its own frames alone, and violations by a peer.

mod direct;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use comm::shm::{self, ShmFabric};
use comm::{Fabric, MachineId, WorkerId};
use gossamer_ways::machine::{PAIR_BYTES_MAX, WRITES_MAX};
use trust::link::{Buffer, Carrier, Waker};

use super::super::image::Image;
use super::super::layout::{Layout, Slots};
use super::super::slot::{self, Kind as Part, Trailer};
use super::super::wiring::Wiring;
use super::way::Sight;
use super::wire::{HEAD_BYTES, PIECE_BYTES, frame_bytes};
use super::{ServiceWaker, Ways, WaysCarrier};

const TIMEOUT: Duration = limits::HANG;
/// Turns in which all that is under way has arrived.
const TURNS: usize = 1000;

/// Machines without direct ways.
fn machines(workers: &[u16]) -> Vec<Wiring> {
    connected(Layout::choose(workers.to_vec(), 1, Slots::SHM, Some(true)).with_direct_ways(0))
}

fn connected(layout: Layout) -> Vec<Wiring> {
    let (count, layout) = (layout.machines(), Arc::new(layout));
    let segments = shm::create(count).unwrap();
    let open = |machine: u16| {
        let bytes = layout.region_bytes(machine);
        let fabric = ShmFabric::open(segments.bootstrap(MachineId(machine)).unwrap(), bytes, TIMEOUT).unwrap();
        let fabric: Arc<dyn Fabric> = Arc::new(fabric);
        Wiring::new(fabric, Arc::clone(&layout), Image::of_program().unwrap()).unwrap()
    };
    std::thread::scope(|scope| {
        let open = &open;
        let others: Vec<_> = (1..count).map(|machine| scope.spawn(move || open(machine))).collect();
        let first = open(0);
        std::iter::once(first).chain(others.into_iter().map(|other| other.join().unwrap())).collect()
    })
}

fn ways(machine: &Wiring) -> &Arc<Ways> {
    machine.ways.as_ref().unwrap()
}

fn carrier(machine: &Wiring, thread: u16) -> WaysCarrier {
    machine.ways_carrier(ways(machine), thread)
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

fn turn(carrier: &mut WaysCarrier) {
    carrier.turn();
    carrier.flush();
}

/// Runs turns of `carriers` until `done` has something to say of the last one.
fn until<R>(carriers: &mut [&mut WaysCarrier], mut done: impl FnMut(&mut [&mut WaysCarrier]) -> Option<R>) -> R {
    for _ in 0..TURNS {
        carriers.iter_mut().for_each(|carrier| turn(carrier));
        if let Some(result) = done(carriers) {
            return result;
        }
    }
    panic!("nothing goes on");
}

fn request(carrier: &mut WaysCarrier, place: usize) -> Option<(Vec<u8>, u32)> {
    let mut into = buffer(b"what was there before");
    carrier.receive_requests(place, &mut into).map(|note| (into.bytes().to_vec(), note))
}

fn answer(carrier: &mut WaysCarrier, place: usize) -> Option<(Vec<u8>, u32)> {
    let mut into = Buffer::default();
    carrier.receive_answer(place, &mut into).map(|note| (into.bytes().to_vec(), note))
}

#[test]
fn a_thread_that_looks_deals_out_what_came_for_another() {
    let machines = machines(&[1, 2]);
    let (mut client, mut looker, mut owner) =
        (carrier(&machines[0], 0), carrier(&machines[1], 0), carrier(&machines[1], 1));
    assert_eq!(client.peers().len(), 3);
    assert_eq!(client.services(), &client.peers()[2..]);
    assert!(!looker.has_work() && !owner.has_work() && client.can_send(1));
    client.send(1, &mut buffer(b"request"), 3);
    client.flush();
    assert!(looker.has_work() && owner.has_work(), "either may look");
    looker.turn();
    assert!(!looker.has_work() && owner.has_work());
    assert_eq!(looker.find_requests(0), None, "it is not for this one");
    owner.turn();
    assert_eq!((owner.find_requests(0), owner.find_requests(1)), (Some(0), None));
    assert_eq!(request(&mut owner, 0), Some((b"request".to_vec(), 3)));
    owner.answer(0, &mut buffer(b"answer"), 5);
    owner.flush();
    assert!(client.has_work());
    client.turn();
    assert_eq!((answer(&mut client, 0), answer(&mut client, 1)), (None, Some((b"answer".to_vec(), 5))));
    looker.flush();
    assert!(!client.has_work() && !looker.has_work() && !owner.has_work());
}

#[test]
fn frames_of_any_size_go_both_ways() {
    exchange_all_sizes(&machines(&[1, 1]));
}

fn exchange_all_sizes(machines: &[Wiring]) {
    let (mut client, mut trustee) = (carrier(&machines[0], 0), carrier(&machines[1], 0));
    let sizes = [0, 1, 8, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, PAIR_BYTES_MAX, 1_000_003];
    for (round, &size) in sizes.iter().enumerate() {
        for &answer_size in &sizes {
            let (there, back) = (bytes(size, round), bytes(answer_size, round + 1));
            client.send(0, &mut buffer(&there), 7);
            let received = until(&mut [&mut client, &mut trustee], |carriers| request(carriers[1], 0));
            assert!(received == (there, 7), "{size} bytes");
            trustee.answer(0, &mut buffer(&back), 8);
            let received = until(&mut [&mut client, &mut trustee], |carriers| answer(carriers[0], 0));
            assert!(received == (back, 8), "{answer_size} bytes");
        }
    }
}

/// Large frames of a pair cross, as client and as trustee of one another, with small ones between.
#[test]
fn large_frames_cross() {
    let machines = machines(&[1, 1]);
    let (mut one, mut other) = (carrier(&machines[0], 0), carrier(&machines[1], 0));
    let (there, back) = (bytes(300_000, 1), bytes(400_000, 2));
    one.send(0, &mut buffer(&there), 1);
    other.send(0, &mut buffer(&back), 2);
    assert!(!one.can_send(0) && !other.can_send(0), "they wait for room");
    let got = until(&mut [&mut one, &mut other], |carriers| request(carriers[1], 0));
    assert!(got == (there, 1));
    other.answer(0, &mut buffer(&back), 3);
    let got = until(&mut [&mut one, &mut other], |carriers| request(carriers[0], 0));
    assert!(got == (back.clone(), 2));
    one.answer(0, &mut buffer(b"small"), 4);
    let got = until(&mut [&mut one, &mut other], |carriers| answer(carriers[1], 0));
    assert_eq!(got, (b"small".to_vec(), 4));
    assert!(until(&mut [&mut one, &mut other], |carriers| answer(carriers[0], 0)) == (back, 3));
}

/// A thread that takes nothing stops the pairs with itself alone, whoever deals: here another worker, then the service
/// thread. It has all in its order when it comes back.
#[test]
fn a_thread_that_computes_holds_up_its_own_frames_alone() {
    for lookers in [0..1, 2..3] {
        let machines = machines(&[1, 2]);
        let mut client = carrier(&machines[0], 0);
        let mut looker = carrier(&machines[1], lookers.start);
        let mut sent = 0;
        // Worker 1 does not look.
        while client.can_send(1) {
            client.send(1, &mut buffer(&bytes(5000, sent)), sent as u32);
            sent += 1;
            turn(&mut client);
            turn(&mut looker);
        }
        assert!((sent + 1) * frame_bytes(5000) + frame_bytes(PIECE_BYTES) > PAIR_BYTES_MAX, "{sent} batches");
        let place = usize::from(lookers.start);
        for round in 0..3 * WRITES_MAX as usize {
            client.send(place, &mut buffer(&bytes(9000, round)), 1);
            let got = until(&mut [&mut client, &mut looker], |carriers| request(carriers[1], 0));
            assert!(got == (bytes(9000, round), 1));
            looker.answer(0, &mut buffer(&[]), 0);
            until(&mut [&mut client, &mut looker], |carriers| answer(carriers[0], place));
        }
        assert!(!client.can_send(1));
        let mut late = carrier(&machines[1], 1);
        for round in 0..sent {
            let got = until(&mut [&mut client, &mut late], |carriers| request(carriers[1], 0));
            assert!(got == (bytes(5000, round), round as u32));
            late.answer(0, &mut buffer(&[]), 0);
        }
        until(&mut [&mut client, &mut late], |carriers| carriers[0].can_send(1).then_some(()));
    }
}

/// No write is acknowledged, for nobody looks: frames leave as long as the ring has room, and the rest when the service
/// thread of the other machine has looked. The sender never waits.
#[test]
fn a_full_ring_holds_up_frames_until_the_service_thread_has_looked() {
    let machines = machines(&[1, 8]);
    let mut client = carrier(&machines[0], 0);
    let way = ways(&machines[0]).way(1).unwrap();
    for place in 0..8 {
        client.send(place, &mut buffer(&bytes(60_000, place)), 1);
        turn(&mut client);
        // About to sleep: what is there leaves early.
        assert!(client.has_work() || !way.could_send());
        client.flush();
    }
    assert!(way.has_unsent() && !way.could_send() && !client.has_work(), "the ring is full, and the thread may sleep");
    let mut service = carrier(&machines[1], 8);
    for place in 0..8 {
        let mut owner = carrier(&machines[1], place);
        let carriers = &mut [&mut client, &mut service, &mut owner];
        assert!(until(carriers, |carriers| request(carriers[2], 0)) == (bytes(60_000, usize::from(place)), 1));
    }
}

/// Frames that have to wait for those in flight leave at the end of the next turn in which nothing comes: the thread
/// may poll for long before it sleeps.
#[test]
fn frames_in_waiting_leave_in_a_turn_that_brings_nothing() {
    let machines = machines(&[2, 1]);
    let (mut client, mut trustee) = (carrier(&machines[0], 0), carrier(&machines[1], 0));
    let way = ways(&machines[0]).way(1).unwrap();
    client.send(0, &mut buffer(b"first"), 1);
    turn(&mut client);
    assert!(!way.has_unsent());
    client.send(0, &mut buffer(b"second"), 2);
    turn(&mut client);
    assert!(way.has_unsent(), "the first one is in flight");
    turn(&mut client);
    assert!(!way.has_unsent());
    turn(&mut trustee);
    assert_eq!(request(&mut trustee, 0), Some((b"first".to_vec(), 1)));
    trustee.answer(0, &mut buffer(&[]), 0);
    assert_eq!(request(&mut trustee, 0), Some((b"second".to_vec(), 2)));
}

/// The only worker of a machine has none to wait for.
#[test]
fn frames_of_an_only_worker_leave_at_the_end_of_its_turn() {
    let machines = machines(&[1, 1]);
    let mut client = carrier(&machines[0], 0);
    let way = ways(&machines[0]).way(1).unwrap();
    for number in 0..WRITES_MAX {
        client.send(0, &mut buffer(b"small"), number as u32);
        turn(&mut client);
        assert!(!way.has_unsent());
    }
    client.send(0, &mut buffer(b"small"), 9);
    turn(&mut client);
    assert!(way.has_unsent(), "the ring is full");
}

/// A thread that has the lock of a way and does not come on keeps nobody waiting, and is told of what others leave.
#[test]
fn nobody_waits_for_a_thread_that_has_the_lock() {
    let machines = machines(&[2, 1]);
    let (mut one, mut other) = (carrier(&machines[0], 0), carrier(&machines[0], 1));
    let mut trustee = carrier(&machines[1], 0);
    let lock = ways(&machines[0]).way(1).unwrap().lock();
    assert!(lock.try_take());
    one.send(0, &mut buffer(b"one"), 1);
    other.send(0, &mut buffer(b"other"), 2);
    turn(&mut one);
    turn(&mut other);
    turn(&mut trustee);
    assert!(trustee.find_requests(0).is_none());
    assert!(lock.has_more_or_give_back() && !lock.has_more_or_give_back(), "others have left work");
    // Nobody adds anything: each thread sees to what it has used, in its next turn.
    turn(&mut other);
    turn(&mut trustee);
    assert_eq!(request(&mut trustee, 0), Some((b"one".to_vec(), 1)));
    assert_eq!(request(&mut trustee, 1), Some((b"other".to_vec(), 2)));

    // A thread of the receiving machine that would sleep leaves the news to the thread that has the lock.
    let lock = ways(&machines[1]).way(0).unwrap().lock();
    one.send(0, &mut buffer(b"more"), 1);
    until(&mut [&mut one], |_| trustee.has_work().then_some(()));
    assert!(lock.try_take());
    assert!(!trustee.has_work() && lock.has_more_or_give_back(), "the holder has to look once more");
    assert!(!lock.has_more_or_give_back() && trustee.has_work());
}

/// The service thread may go to sleep while another thread, which only looks, sees to a way and its bit is clear: it is
/// woken for what stays unsent, as the other one may compute before its turn ends.
#[test]
fn what_a_look_leaves_unsent_wakes_the_service_thread() {
    let machines = machines(&[2, 1]);
    let mut client = carrier(&machines[0], 0);
    let own = Arc::clone(ways(&machines[0]));
    client.send(0, &mut buffer(b"first"), 1);
    turn(&mut client);
    client.send(0, &mut buffer(b"second"), 2);
    turn(&mut client);
    let way = own.way(1).unwrap();
    assert!(way.has_unsent(), "the first one is in flight");
    own.arrears.clear(1);
    let (is_asleep, is_awake) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (falls_asleep, wakes, service) = (Arc::clone(&is_asleep), Arc::clone(&is_awake), Arc::clone(&own));
    std::thread::spawn(move || {
        ServiceWaker::new(service).park(None, &mut || {
            falls_asleep.store(1, Ordering::Relaxed);
            true
        });
        wakes.store(1, Ordering::Relaxed);
    });
    limits::wait_until("the service thread sleeps", || is_asleep.load(Ordering::Relaxed) == 1);
    let look = Sight { thread: 0, early: false, acknowledges: false };
    assert!(!way.see_to(&own, look).unwrap());
    assert!(way.has_unsent());
    limits::wait_until("the service thread is woken", || is_awake.load(Ordering::Relaxed) == 1);
}

/// Writes as a peer might make them: the text of the refusal, of the way or of the thread.
#[test]
fn a_peer_that_lies_is_refused() {
    let good = |from: u16, to: u16, number: u64| {
        let mut head = [0; HEAD_BYTES];
        head[..2].copy_from_slice(&from.to_ne_bytes());
        head[2..4].copy_from_slice(&to.to_ne_bytes());
        head[5] = Part::Whole as u8;
        head[24..32].copy_from_slice(&number.to_ne_bytes());
        head.to_vec()
    };
    let refused_of = |kind: Part, text: &str, number: u64, writes: &[Vec<u8>]| {
        let machines = machines(&[1, 1]);
        let from = ways(&machines[0]).way(1).unwrap();
        for (number, data) in (number..).zip(writes) {
            let slots = Layout::WAY;
            let first = machines[0].layout.way_ring(1, 0);
            let slot = first + slots.stride_bytes() * (number % u64::from(slots.per_pair)) as usize;
            let len = data.len() as u32;
            let total = u64::from(len) + u64::from(kind == Part::Piece);
            let trailer = Trailer { consumed: 0, len, kind, total, note: 1 };
            slot::seal(&mut buffer(data), 0, &trailer, number, |bytes| {
                from.with_connection(|connection| connection.write(bytes, slot + slots.bytes - bytes.len())).unwrap();
            });
        }
        let to = ways(&machines[1]);
        let sight = Sight { thread: 0, early: false, acknowledges: true };
        let mut receiver = carrier(&machines[1], 0);
        let outcome = to.way(0).unwrap().see_to(to, sight).map(drop);
        let outcome = outcome.and_then(|()| receiver.sort_mail().map_err(|(_, violation)| violation));
        let violation = outcome.expect_err(text);
        assert!(violation.0.contains(text), "{violation}");
    };
    let refused = |text: &str, number: u64, writes: &[Vec<u8>]| refused_of(Part::Whole, text, number, writes);
    // Writes are whole: pieces would be kept beyond all bounds.
    refused_of(Part::Piece, "a Piece that was not its turn", 1, &[good(0, 0, 1)]);
    refused("worker 7 of machine 1 does not exist", 1, &[good(0, 7, 1)]);
    refused("worker 2 of machine 0 does not exist", 1, &[good(2, 0, 1)]);
    refused("write 5 where write 1 was to come", 5, &[good(0, 0, 1)]);
    refused("a write that ends within a head", 1, &[good(0, 0, 1)[..HEAD_BYTES - 1].to_vec()]);
    refused("number 1 has been there before", 1, &[good(0, 0, 1), good(0, 0, 1)]);
    refused("number 3 leaves a gap", 1, &[good(0, 0, 1), good(0, 0, 3)]);
    let mut answer = good(0, 0, 1);
    answer[4] = 1;
    refused("an answer to nothing", 1, &[answer]);
    let mut credit = good(0, 0, 1);
    (credit[4], credit[32]) = (2, 8);
    refused("a credit of [8, 0] bytes", 1, &[credit.clone()]);
    credit[33] = 0x80;
    refused("more than may be under way", 1, &[credit]);
    // No bound but the mailbox's: the receiving thread does not look.
    let answers = |from: u64| (from..from + 1000).flat_map(|number| good(0, 0, number)).collect();
    let writes: Vec<Vec<u8>> = (0..4).map(|write| answers(1 + 1000 * write)).collect();
    refused("more than may be under way", 1, &writes);
    let piece = |number| {
        let mut piece = good(0, 0, number);
        piece[8..12].copy_from_slice(&8000u32.to_ne_bytes());
        piece[16..24].copy_from_slice(&8000u64.to_ne_bytes());
        piece.resize(HEAD_BYTES + 8000, 1);
        piece
    };
    refused("more than may be under way", 1, &[(1..6).flat_map(piece).collect(), (6..10).flat_map(piece).collect()]);
}

/// A count of writes that have not come ends the program, and not the sleep of all threads that look at it.
#[test]
fn a_count_without_its_write_is_refused() {
    let machines = machines(&[1, 1]);
    let receiver = carrier(&machines[1], 0);
    let from = ways(&machines[0]).way(1).unwrap();
    let word = machines[0].layout.way_news_of(1, 0);
    from.with_connection(|connection| connection.write(&u64::MAX.to_ne_bytes(), word)).unwrap();
    assert!(receiver.has_work());
    let to = ways(&machines[1]);
    let sight = Sight { thread: 0, early: false, acknowledges: true };
    let violation = to.way(0).unwrap().see_to(to, sight).unwrap_err();
    assert!(violation.0.contains("is said to have come, and has not"), "{violation}");
}

/// Two threads of each of two machines, of which one takes nothing: what waits for it is bounded by what its pairs may
/// have under way, 64 KiB of requests and as much of answers, whatever is sent. All of it arrives in the end.
#[test]
fn an_outbox_holds_no_more_than_its_pairs_may_have_under_way() {
    let machines = machines(&[2, 2]);
    let (mut one, mut two) = (carrier(&machines[0], 0), carrier(&machines[0], 1));
    let (mut three, mut four) = (carrier(&machines[1], 0), carrier(&machines[1], 1));
    for asker in [&mut three, &mut four] {
        (0..2).for_each(|place| asker.send(place, &mut buffer(b"ask"), 1));
        (0..2).for_each(|_| turn(asker));
    }
    for owner in [&mut one, &mut two] {
        turn(owner);
        for place in 0..2 {
            assert_eq!(request(owner, place), Some((b"ask".to_vec(), 1)));
            owner.answer(place, &mut buffer(&bytes(500_000, place)), 0);
            owner.send(place, &mut buffer(&bytes(500_000, place)), 1);
            assert!(!owner.can_send(place));
        }
    }
    (0..TURNS).for_each(|_| [&mut one, &mut two].into_iter().for_each(turn));
    let unsent = ways(&machines[0]).way(1).unwrap().unsent();
    // Four writes are in the ring.
    let most = 4 * 2 * PAIR_BYTES_MAX;
    assert!((most / 4..=most - 3 * PAIR_BYTES_MAX).contains(&unsent), "{unsent} of {most} bytes");
    for place in 0..2 {
        for asker in [2, 3] {
            let carriers = &mut [&mut one, &mut two, &mut three, &mut four];
            assert!(until(carriers, |carriers| answer(carriers[asker], place)) == (bytes(500_000, asker - 2), 0));
            assert!(until(carriers, |carriers| request(carriers[asker], place)) == (bytes(500_000, asker - 2), 1));
            carriers[asker].answer(place, &mut buffer(&[]), 0);
        }
    }
}

/// Nothing of a lost machine is left, and the others go on.
#[test]
fn a_lost_machine_frees_its_way() {
    let machines = machines(&[1, 1, 1]);
    let mut client = carrier(&machines[0], 0);
    let (mut lost, mut other) = (carrier(&machines[1], 0), carrier(&machines[2], 0));
    // Places of the workers, each before its service thread.
    client.send(0, &mut buffer(&bytes(200_000, 1)), 1);
    lost.send(0, &mut buffer(b"to be forgotten"), 1);
    turn(&mut lost);
    turn(&mut client);
    assert_eq!(client.find_requests(0), Some(0));
    client.lose(1);
    let way = ways(&machines[0]).way(1).unwrap();
    assert!(client.find_requests(0).is_none() && !way.is_in_arrears() && !client.has_work());
    client.send(2, &mut buffer(b"on"), 2);
    let got = until(&mut [&mut client, &mut other], |carriers| request(carriers[1], 0));
    assert_eq!(got, (b"on".to_vec(), 2));
}

/// All workers of two machines ask all of the other one, as fast as they can; all threads sleep and wake, and each
/// frame comes once and in order. The service threads do no more than see to what others leave.
#[test]
fn threads_exchange_frames_and_sleep() {
    exchange_and_sleep(&machines(&[3, 3]), |_| {});
}

fn exchange_and_sleep(machines: &[Wiring], prepare: fn(&mut WaysCarrier)) {
    const WORKERS: u16 = 3;
    const ROUNDS: usize = 400;
    let working = AtomicUsize::new(2 * usize::from(WORKERS));
    std::thread::scope(|scope| {
        for machine in machines {
            for worker in 0..WORKERS {
                let working = &working;
                scope.spawn(move || {
                    let mut carrier = carrier(machine, worker);
                    prepare(&mut carrier);
                    exchange(machine, worker, carrier, ROUNDS);
                    working.fetch_sub(1, Ordering::Relaxed);
                });
            }
            let working = &working;
            scope.spawn(move || {
                let mut carrier = carrier(machine, WORKERS);
                let waker = ServiceWaker::new(Arc::clone(ways(machine)));
                while working.load(Ordering::Relaxed) > 0 {
                    turn(&mut carrier);
                    waker.park(Some(Duration::from_millis(100)), &mut || !carrier.has_work());
                }
            });
        }
    });
}

fn size(round: usize) -> usize {
    if round.is_multiple_of(50) { 90_000 } else { round * 13 % 700 }
}

/// Asks each worker of the other machine so many times, two at once, and answers as many.
fn exchange(machine: &Wiring, worker: u16, mut carrier: WaysCarrier, rounds: usize) {
    let peers = carrier.peers().len() - 1;
    let (mut sent, mut answered, mut served) = (vec![0; peers], vec![0; peers], vec![0; peers]);
    let is_done = |count: &[usize]| count.iter().all(|count| *count == rounds);
    let mut into = Buffer::default();
    loop {
        carrier.turn();
        for peer in 0..peers {
            while let Some(note) = carrier.receive_answer(peer, &mut into) {
                let round = answered[peer];
                assert!(note == round as u32 && into.bytes() == bytes(size(round), round + 1), "answer {round}");
                answered[peer] += 1;
            }
            while sent[peer] < rounds && sent[peer] < answered[peer] + 2 && carrier.can_send(peer) {
                let round = sent[peer];
                carrier.send(peer, &mut buffer(&bytes(size(round), round)), round as u32);
                sent[peer] += 1;
            }
        }
        let mut from = 0;
        while let Some(peer) = carrier.find_requests(from) {
            while let Some(note) = carrier.receive_requests(peer, &mut into) {
                let round = served[peer];
                assert!(note == round as u32 && into.bytes() == bytes(size(round), round), "request {round}");
                carrier.answer(peer, &mut buffer(&bytes(size(round), round + 1)), note);
                served[peer] += 1;
            }
            from = peer + 1;
        }
        carrier.flush();
        if is_done(&answered) && is_done(&served) && !carrier.is_stalled() {
            return;
        }
        let word = machine.layout.park_word(worker);
        machine.fabric.park(WorkerId(worker), word, TIMEOUT, &mut || !carrier.has_work()).unwrap();
    }
}

/// `cargo test --release -p gossamer-rack exchange_costs -- --ignored --nocapture`: a batch of one small request to
/// another machine and its answer, in one thread; under `valgrind --tool=callgrind --toggle-collect='*exchange_many*'`
/// its instructions.
#[test]
#[ignore = "measures"]
fn exchange_costs() {
    let machines = machines(&[1, 1]);
    exchange_many("a machine way", &mut carrier(&machines[0], 0), &mut carrier(&machines[1], 0));
}

/// The same by a direct way.
#[test]
#[ignore = "measures"]
fn exchange_costs_of_a_direct_way() {
    let machines = connected(Layout::choose(vec![1, 1], 1, Slots::SHM, Some(true)));
    exchange_many("a direct way", &mut carrier(&machines[0], 0), &mut carrier(&machines[1], 0));
}

/// The same by rings.
#[test]
#[ignore = "measures"]
fn exchange_costs_of_rings() {
    let machines = connected(Layout::choose(vec![1, 1], 1, Slots::SHM, Some(false)));
    let [mut client, mut trustee] = [&machines[0], &machines[1]].map(|machine| machine.carrier(0).unwrap());
    exchange_many("rings", &mut client, &mut trustee);
}

#[inline(never)]
fn exchange_many(by: &str, client: &mut dyn Carrier, trustee: &mut dyn Carrier) {
    const EXCHANGES: u32 = 100_000;
    let (mut batch, mut into, start) = (Buffer::default(), Buffer::default(), Instant::now());
    for _ in 0..EXCHANGES {
        batch.set_len(48);
        client.send(0, &mut batch, 1);
        client.flush();
        // More than one turn only while the way changes.
        let requests = (0..TURNS).find_map(|_| {
            trustee.turn();
            trustee.receive_requests(0, &mut into)
        });
        assert_eq!(requests, Some(1));
        batch.set_len(32);
        trustee.answer(0, &mut batch, 0);
        trustee.flush();
        let answered = (0..TURNS).find_map(|_| {
            client.turn();
            client.receive_answer(0, &mut into)
        });
        assert_eq!(answered, Some(0));
    }
    println!("{} ns by {by}", start.elapsed().as_nanos() / u128::from(EXCHANGES));
}
