//! A worker with a peer that these tests play: the batches sent, the order of answers, the order in which waiters go
//! on, and the requests of the peer that are run.

mod losses;
mod machines;
mod sending;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::frame::{Malformed, Writer};
use crate::api::link::{Buffer, Carrier, Operation, attach};
use crate::config::REMOTE_SERVED_A_TURN;
use crate::ids::{TrusteeId, worker_id};
use crate::property::Header;
use crate::request::{Fault, Host, OperationOf, Request, Serving, Target};
use crate::runtime::worker;
use crate::{Error, Trust, spawn, yield_now};

const ROOM_BYTES: usize = 400;
const SENDS_MAX: usize = 2;

/// State of the peer: the batches it was sent and has not answered, and its answers that have not been taken; the
/// batches that it sends itself, and the answers to them.
#[derive(Default)]
struct Peer {
    sent: VecDeque<u32>,
    /// The batches that it has been sent.
    frames: Vec<Vec<u8>>,
    takes_nothing: bool,
    is_lost: bool,
    answers: VecDeque<(Vec<u8>, u32)>,
    flushes: usize,
    requests: VecDeque<(Vec<u8>, u32)>,
    served: VecDeque<(Buffer, u32)>,
}

impl Peer {
    /// Answers the oldest batch, whose closures have no results. False if there is none.
    fn answer(&mut self) -> bool {
        self.sent.pop_front().map(|_| self.answers.push_back((Vec::new(), 0))).is_some()
    }
}

/// Takes two batches at a time to a peer, which is a trustee only.
struct Played {
    peers: [TrusteeId; 1],
    peer: Rc<RefCell<Peer>>,
}

// SAFETY: the operations are those that are named here, and probes; the answers are those of the closures of each test.
unsafe impl Carrier for Played {
    fn peers(&self) -> &[TrusteeId] {
        &self.peers
    }
    fn service(&self) -> TrusteeId {
        worker::with(|worker| worker.id)
    }
    fn services(&self) -> &[TrusteeId] {
        &self.peers
    }
    fn room_bytes(&self) -> usize {
        ROOM_BYTES
    }
    fn position(&self, operation: &'static Operation) -> u64 {
        operation.position() as u64
    }
    fn operation_at(&self, position: u64) -> Option<&'static Operation> {
        let position = usize::try_from(position).ok()?;
        let probes = [
            OperationOf::<Probe<NONE>>::INLINE,
            OperationOf::<Probe<ANY>>::INLINE,
            OperationOf::<Probe<NUMBER>>::INLINE,
        ];
        // SAFETY: all other positions are those that `position` has given.
        probes.get(position).copied().or_else(|| unsafe { Operation::at(position) })
    }
    fn can_send(&mut self, _: usize) -> bool {
        let peer = self.peer.borrow();
        peer.sent.len() < SENDS_MAX && !peer.takes_nothing
    }
    fn send(&mut self, _: usize, batch: &mut Buffer, requests: u32) {
        assert!(self.can_send(0) && !batch.is_empty());
        let mut peer = self.peer.borrow_mut();
        assert!(!peer.is_lost, "a batch for a lost machine");
        peer.sent.push_back(requests);
        peer.frames.push(batch.bytes().to_vec());
    }
    fn receive_answer(&mut self, _: usize, into: &mut Buffer) -> Option<u32> {
        let (bytes, faults) = self.peer.borrow_mut().answers.pop_front()?;
        into.set_len(bytes.len());
        into.bytes_mut().copy_from_slice(&bytes);
        Some(faults)
    }
    fn find_requests(&self, from: usize) -> Option<usize> {
        (from == 0 && !self.peer.borrow().requests.is_empty()).then_some(0)
    }
    fn receive_requests(&mut self, _: usize, into: &mut Buffer) -> Option<u32> {
        let (bytes, requests) = self.peer.borrow_mut().requests.pop_front()?;
        into.set_len(bytes.len());
        into.bytes_mut().copy_from_slice(&bytes);
        Some(requests)
    }
    fn answer(&mut self, _: usize, answer: &mut Buffer, faults_bytes: u32) {
        self.peer.borrow_mut().served.push_back((std::mem::take(answer), faults_bytes));
    }
    fn turn(&mut self) {}
    fn flush(&mut self) {
        self.peer.borrow_mut().flushes += 1;
    }
    fn has_work(&self) -> bool {
        !self.peer.borrow().answers.is_empty()
    }
    fn lose(&mut self, machine: u16) {
        assert_eq!(machine, self.peers[0].machine());
        let mut peer = self.peer.borrow_mut();
        (peer.answers, peer.requests, peer.is_lost) = (VecDeque::new(), VecDeque::new(), true);
    }
    fn end(&self, _: usize, what: &str) -> ! {
        panic!("{what}")
    }
}

/// Runs `test` on a worker of its own, with a trust of a property that the peer has.
fn play(test: impl FnOnce(&Rc<RefCell<Peer>>, &Trust<u64>) + Send + 'static) {
    play_after(|| (), |peer, there, ()| test(peer, there));
}

/// Same as [`play`], on a worker that has done this before it had peers.
fn play_after<B>(
    before: impl FnOnce() -> B + Send + 'static,
    test: impl FnOnce(&Rc<RefCell<Peer>>, &Trust<u64>, B) + Send + 'static,
) {
    let thread = std::thread::spawn(move || {
        let before = before();
        let peer = Rc::<RefCell<Peer>>::default();
        let id = worker_id(7, 0);
        attach(Some(Box::new(Played { peers: [id], peer: Rc::clone(&peer) })), None);
        let there = Trust::of(std::ptr::without_provenance_mut(4096), id);
        test(&peer, &there, before);
        drop(there);
        // Up to the end of this thread, which waits for answers.
        while worker::with(|worker| worker.remote.is_outstanding()) {
            peer.borrow_mut().answer();
            yield_now();
        }
    });
    thread.join().unwrap();
}

/// Makes requests without waiting, as a callback does.
fn post(there: &Trust<u64>, then: impl FnOnce() + 'static) {
    worker::with(|worker| worker.call_back(|| there.apply_then(|v| *v += 1, move |()| then())));
}

#[test]
fn callbacks_run_in_order_and_batches_grow_while_one_is_away() {
    play(|peer, there| {
        let seen = Rc::new(RefCell::new(Vec::new()));
        for round in 0..200 {
            let seen = Rc::clone(&seen);
            post(there, move || seen.borrow_mut().push(round));
        }
        yield_now();
        let sent: u32 = peer.borrow().sent.iter().sum();
        assert!(peer.borrow().sent.len() == SENDS_MAX && sent > 60, "full batches go at once: {sent}");
        while seen.borrow().len() < 200 {
            assert!(peer.borrow_mut().answer());
            yield_now();
        }
        assert!(seen.borrow().iter().copied().eq(0..200));
        assert!(peer.borrow().flushes > 0);

        post(there, || {});
        yield_now();
        (0..10).for_each(|_| post(there, || {}));
        yield_now();
        assert_eq!(peer.borrow().sent, [1], "the next batch waits for the answer to this one");
        peer.borrow_mut().answer();
        yield_now();
        assert_eq!(peer.borrow().sent, [10]);
    });
}

#[test]
fn what_is_to_go_at_once_goes_as_soon_as_there_is_room() {
    play(|peer, there| {
        for _ in 0..3 {
            post(there, || {});
            worker::with(|worker| worker.remote.send_now(worker, there.trustee().id()));
        }
        assert_eq!(peer.borrow().sent, [1, 1], "no more are taken");
        yield_now();
        assert_eq!(peer.borrow().sent, [1, 1]);
        peer.borrow_mut().answer();
        yield_now();
        assert_eq!(peer.borrow().sent, [1, 1], "the third, though the second is not answered");
        // Once it has gone, batches grow again.
        post(there, || {});
        yield_now();
        assert_eq!(peer.borrow().sent, [1, 1]);
    });
}

/// Fibers that wait for room go on, one with each answered batch, although callbacks fill all room there is.
#[test]
fn callbacks_that_keep_asking_do_not_starve_fibers() {
    play(|peer, there| {
        fn again(there: &Rc<Trust<u64>>, stop: &Rc<std::cell::Cell<bool>>) {
            // More than the answered batch had room for.
            for _ in 0..40 {
                if !stop.get() {
                    let (next, stop) = (Rc::clone(there), Rc::clone(stop));
                    there.apply_then(|v| *v += 1, move |()| again(&next, &stop));
                }
            }
        }
        let (callers, stop) = (Rc::new(there.clone()), Rc::new(std::cell::Cell::new(false)));
        worker::with(|worker| worker.call_back(|| (0..10).for_each(|_| again(&callers, &stop))));
        let passed = Rc::new(RefCell::new(Vec::new()));
        for fiber in 0..20 {
            let there = there.clone();
            let passed = crate::Shared::new(Local(Rc::clone(&passed)));
            drop(spawn(move || {
                there.apply_then(|v| *v += 1, |()| {});
                passed.0.borrow_mut().push(fiber);
            }));
        }
        yield_now();
        assert!(passed.borrow().is_empty(), "there is no room");
        for answered in 1..=20 {
            assert!(peer.borrow_mut().answer());
            (0..3).for_each(|_| yield_now());
            assert_eq!(passed.borrow().len(), answered, "{:?}", passed.borrow());
        }
        assert!(passed.borrow().iter().copied().eq(0..20), "in the order in which they came: {:?}", passed.borrow());
        stop.set(true);
        drop(callers);
    });
}

/// A value that stays on its thread, in a fiber of that thread.
struct Local<T>(T);
// SAFETY: the tests above spawn on their own worker, and fibers stay on theirs.
unsafe impl<T> Send for Local<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Local<T> {}

#[test]
fn memory_is_bounded_where_callers_may_wait() {
    play(|peer, there| {
        let made = Rc::new(std::cell::Cell::new(0));
        for _ in 0..3 {
            let (there, made) = (there.clone(), crate::Shared::new(Local(Rc::clone(&made))));
            drop(spawn(move || {
                for _ in 0..5000 {
                    there.apply_then(|v| *v += 1, |()| {});
                    made.0.set(made.0.get() + 1);
                }
            }));
        }
        yield_now();
        let before = made.get();
        assert!(before < 500, "{before} requests were made with no answer");
        while made.get() < 15_000 {
            let before = made.get();
            peer.borrow_mut().answer();
            (0..8).for_each(|_| yield_now());
            assert!(made.get() - before < 500, "one answer let {} requests through", made.get() - before);
        }
    });
}

#[test]
fn faults_reach_who_asked() {
    play(|peer, there| {
        let seen = Rc::new(RefCell::new(Vec::new()));
        for _ in 0..3 {
            let seen = Rc::clone(&seen);
            there.call().apply(|v| *v).then(move |outcome| seen.borrow_mut().push(outcome));
        }
        yield_now();
        let mut answer = Buffer::default();
        answer.set_len(16);
        answer.bytes_mut()[..8].copy_from_slice(&5u64.to_ne_bytes());
        answer.bytes_mut()[8..].copy_from_slice(&6u64.to_ne_bytes());
        let faults = super::fault::append(&mut answer, vec![(1, crate::request::Fault::Gone)]);
        peer.borrow_mut().sent.pop_front();
        peer.borrow_mut().answers.push_back((answer.bytes().to_vec(), faults));
        yield_now();
        match &seen.borrow()[..] {
            [Ok(5), Err(Error::Gone { .. }), Ok(6)] => {}
            other => panic!("{other:?}"),
        };
    });
}

#[test]
fn who_is_no_peer_is_refused() {
    play(|_, _| {
        let nobody = Trust::<u64>::of(std::ptr::without_provenance_mut(4096), worker_id(7, 1));
        assert!(matches!(nobody.call().apply(|v| *v).wait(), Err(Error::Refused { .. })));
    });
}

thread_local! {
    /// Properties on which a [`Probe`] has run.
    static PROBED: RefCell<Vec<u64>> = RefCell::default();
}

/// A request that only notes the property it was run on, without looking at it. Its response is the value it holds.
struct Probe<const TARGET: u64>(u64);

/// The targets of probes: no property, any property, and one of type `u64`.
const NONE: u64 = 0;
const ANY: u64 = 1;
const NUMBER: u64 = 2;

impl<const TARGET: u64> Request for Probe<TARGET> {
    const TARGET: Target = match TARGET {
        NONE => Target::Nothing,
        ANY => Target::AnyProperty,
        _ => Target::property_of::<u64>(),
    };

    unsafe fn run(self, property: *mut Header, serving: &mut Serving) {
        PROBED.with_borrow_mut(|probed| probed.push(property.addr() as u64));
        serving.out.put(self.0);
    }
}

/// The frame of a peer with one request to each of these properties.
fn frame<const TARGET: u64>(properties: &[u64]) -> Vec<u8> {
    let mut writer = Writer::new();
    properties.iter().for_each(|property| add::<TARGET>(&mut writer, *property));
    writer.frame().bytes().to_vec()
}

fn add<const TARGET: u64>(writer: &mut Writer, property: u64) {
    let at = writer.add(OperationOf::<Probe<TARGET>>::INLINE, 16, 9000, || TARGET).expect("there is room");
    // SAFETY: `Writer::add` gave out 16 bytes.
    unsafe { at.cast::<[u64; 2]>().write_unaligned([property, !property]) };
}

/// Has the peer send these requests to this worker. Returns those that were run, and those that were notified that the
/// property is gone.
fn asked<const TARGET: u64>(peer: &Rc<RefCell<Peer>>, properties: &[u64]) -> (Vec<u64>, Vec<u32>) {
    let count = properties.len() as u32;
    peer.borrow_mut().requests.push_back((frame::<TARGET>(properties), count));
    yield_now();
    let (mut answer, faults_bytes) = peer.borrow_mut().served.pop_front().expect("it is served in one turn");
    let mut faults = Vec::new();
    if faults_bytes > 0 {
        faults = super::fault::split_off(&mut answer, faults_bytes, count).expect("they can be read");
    }
    let ran = PROBED.take();
    let responses: Vec<u64> =
        answer.bytes().chunks_exact(8).map(|value| u64::from_ne_bytes(value.try_into().unwrap())).collect();
    assert!(
        responses.iter().copied().eq(ran.iter().map(|property| !property)),
        "those that ran have a response, and no others"
    );
    assert!(faults.iter().all(|(_, fault)| matches!(fault, Fault::Gone)), "{faults:?}");
    (ran, faults.into_iter().map(|(index, _)| index).collect())
}

fn address<T>(trust: &Trust<T>) -> u64 {
    trust.parts().0.expose_provenance() as u64
}

#[test]
fn a_peer_s_request_is_run_on_a_property_of_this_trustee_only() {
    play(|peer, there| {
        let (one, two) = (crate::local_trustee().entrust(1u64), crate::local_trustee().entrust(2u64));
        let (one, two) = ((address(&one), one), (address(&two), two));
        assert_eq!(asked::<ANY>(peer, &[one.0, two.0]), (vec![one.0, two.0], vec![]));
        // Addresses of no property here: the peer's own, none, the last address, and the middle of an existing one.
        for stranger in [address(there), 0, u64::MAX, one.0 + 8, one.0 + 1] {
            assert_eq!(asked::<ANY>(peer, &[stranger]), (vec![], vec![0]), "{stranger:#x}");
        }
        // After any earlier look-up.
        let mixed = [one.0, 4096, one.0, 4096, 4096, two.0, two.0, 0];
        assert_eq!(asked::<ANY>(peer, &mixed), (vec![one.0, one.0, two.0, two.0], vec![1, 3, 4, 7]));
        // To drop them, the peer would have to be asked.
        std::mem::forget((one, two));
    });
}

#[test]
fn a_peer_s_request_is_run_on_a_property_from_before_there_were_peers_unless_it_was_dropped() {
    let before = || {
        let value = std::sync::Arc::new(5);
        let entrust = || crate::local_trustee().entrust(std::sync::Arc::clone(&value));
        let (kept, dropped) = (entrust(), entrust());
        let gone = address(&dropped);
        drop(dropped);
        let is_dropped = || std::sync::Arc::strong_count(&value) == 2;
        (0..10_000).take_while(|_| !is_dropped()).for_each(|_| yield_now());
        assert!(is_dropped(), "nobody else can have a trust of it");
        (address(&kept), gone, kept)
    };
    play_after(before, |peer, _, (kept, gone, trust)| {
        assert_eq!(asked::<ANY>(peer, &[gone, kept, gone, kept]), (vec![kept, kept], vec![0, 2]));
        std::mem::forget(trust);
    });
}

#[test]
fn a_request_that_is_of_no_property_names_any() {
    play(|peer, _| {
        let ran = asked::<NONE>(peer, &[0, 4096, 7]);
        assert_eq!(ran, (vec![0, 4096, 7], vec![]));
    });
}

#[test]
fn a_peer_s_closure_is_run_on_properties_of_its_type_only() {
    play(|peer, _| {
        let here = crate::local_trustee();
        let (number, text) = (here.entrust(1u64), here.entrust(String::from("not a number")));
        // A type of the same size and alignment, one that lies in a box, and one that wraps it.
        let (signed, large) = (here.entrust(1i64), here.entrust([0u64; 1000]));
        let latched = here.entrust(crate::Latch::new(1u64));
        let right = address(&number);
        assert_eq!(asked::<NUMBER>(peer, &[right, right]), (vec![right, right], vec![]));
        worker::with(|worker| {
            let peers = worker.remote.peers.get().expect("it is attached");
            for other in [address(&text), address(&signed), address(&large), address(&latched)] {
                let mut behind_any = Writer::new();
                add::<NUMBER>(&mut behind_any, right);
                add::<ANY>(&mut behind_any, other);
                add::<NUMBER>(&mut behind_any, other);
                let mixed = behind_any.frame().bytes().to_vec();
                for (frame, requests) in
                    [(frame::<NUMBER>(&[other]), 1), (frame::<NUMBER>(&[right, other]), 2), (mixed, 3)]
                {
                    let outcome = super::server::run(worker, peers, worker_id(7, 0), &frame, requests);
                    assert!(matches!(outcome, Err(Malformed(text)) if text.contains("another type")));
                    assert_eq!(PROBED.take().len(), requests as usize - 1, "all but the last have run");
                }
            }
        });
        std::mem::forget((number, text, signed, large, latched));
    });
}

#[test]
fn a_batch_of_another_number_of_requests_than_it_says_is_malformed() {
    play(|_, _| {
        let frame = frame::<NONE>(&[1, 2, 3]);
        worker::with(|worker| {
            let peers = worker.remote.peers.get().expect("it is attached");
            for said in [0, 2, 4, u32::MAX] {
                let outcome = super::server::run(worker, peers, worker_id(7, 0), &frame, said);
                assert!(matches!(outcome, Err(Malformed(_))), "{said}");
            }
            let outcome = super::server::run(worker, peers, worker_id(7, 0), &frame, 3);
            let (answer, faults) = outcome.unwrap_or_else(|Malformed(what)| panic!("{what}"));
            assert!(faults.is_empty() && answer.len() == 3 * 8);
            // Room for an answer in one piece, and for the bytes that a carrier puts behind it.
            assert_eq!(answer.capacity(), (ROOM_BYTES + super::BEHIND_BYTES).next_multiple_of(64));
        });
    });
}

#[test]
fn a_peer_s_requests_are_numbered_as_they_are_served() {
    play(|peer, _| {
        let served = || worker::with(|worker| worker.remote.peers.get().expect("it is attached").clients[0].served());
        assert_eq!(served(), 0);
        for (properties, so_far) in [(&[0, 1, 2][..], 3), (&[7], 4), (&[1; 30], 34)] {
            let _ = asked::<NONE>(peer, properties);
            assert_eq!(served(), so_far);
        }
    });
}

#[test]
fn a_turn_serves_some_batches_of_a_peer_and_tells_whether_there_were_any() {
    play(|peer, _| {
        let batches = |count: usize| {
            (0..count).for_each(|_| peer.borrow_mut().requests.push_back((frame::<NONE>(&[1, 2]), 2)));
        };
        worker::with(|worker| {
            let peers = worker.remote.peers.get().expect("it is attached");
            let serve = || {
                let any = super::server::serve(worker, peers, 0);
                (any, peer.borrow_mut().served.drain(..).count())
            };
            let (requests, batches_served) =
                (worker.shared.counters.requests_served.get(), worker.shared.counters.batches_served.get());
            assert_eq!(serve(), (false, 0));
            batches(1);
            assert_eq!([serve(), serve()], [(true, 1), (false, 0)]);
            batches(REMOTE_SERVED_A_TURN + 2);
            assert_eq!([serve(), serve(), serve()], [(true, REMOTE_SERVED_A_TURN), (true, 2), (false, 0)]);
            let count = REMOTE_SERVED_A_TURN as u64 + 3;
            assert_eq!(worker.shared.counters.requests_served.get() - requests, 2 * count);
            assert_eq!(worker.shared.counters.batches_served.get() - batches_served, count);
        });
    });
}
