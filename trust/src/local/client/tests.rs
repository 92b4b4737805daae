//! Both halves of one pair on one thread: the time at which each request is sent, the capacity of a batch, and the fate
//! of requests in each place where they can be when their trustee closes or their client ends.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::Arc;

use super::{CONTINUATION_BLOCKS, Outgoing, Room};
use crate::buffer::Block;
use crate::config::{HEAD_BYTES, OVERFLOW_BYTES, PRIMARY_BYTES, SLOTS};
use crate::local::trustee::Incoming;
use crate::property::Header;
use crate::registry::{self, Shared};
use crate::request::Pair;
use crate::request::{Fault, Ignore, Request, Response, Resuming, Serving, Target};
use crate::runtime::worker;
use crate::slot::{REQUESTS_MAX, Reader};

/// Request that answers with its number. Large if `BYTES` is; notes when it is dropped.
struct Ask<const BYTES: usize> {
    number: u64,
    bytes: [u8; BYTES],
    drops: Rc<Cell<usize>>,
}

impl<const BYTES: usize> Request for Ask<BYTES> {
    const TARGET: Target = Target::Nothing;
    unsafe fn run(self, _: *mut Header, serving: &mut Serving) {
        assert!(self.bytes.iter().all(|byte| *byte == self.number as u8));
        serving.out.put(self.number);
    }
}

impl<const BYTES: usize> Drop for Ask<BYTES> {
    fn drop(&mut self) {
        self.drops.set(self.drops.get() + 1);
    }
}

/// Request without captures or answer.
struct Tell;

impl Request for Tell {
    const TARGET: Target = Target::Nothing;
    unsafe fn run(self, _: *mut Header, serving: &mut Serving) {
        serving.out.put(());
    }
}

/// Results of requests, in order: the answer, or `None` if the trustee is gone.
type Seen = Rc<RefCell<Vec<Option<u64>>>>;

/// Continuation that notes the result of an [`Ask`]. Large if `BYTES` is.
struct Note<const BYTES: usize> {
    seen: Seen,
    bytes: [u8; BYTES],
}

impl<const BYTES: usize> Response for Note<BYTES> {
    unsafe fn resume(self, resuming: &mut Resuming, fault: Option<Fault>) {
        assert!(self.bytes.iter().all(|byte| *byte == 5));
        let outcome = match fault {
            // SAFETY: `Ask` puts a `u64`.
            None => Some(unsafe { resuming.responses.take::<u64>() }),
            Some(Fault::Gone) => None,
            Some(_) => panic!("it does not fail otherwise"),
        };
        self.seen.borrow_mut().push(outcome);
    }
}

/// Notes that a [`Tell`] has been answered.
struct Told<const BYTES: usize>(Rc<Cell<usize>>, [u8; BYTES]);

impl<const BYTES: usize> Response for Told<BYTES> {
    unsafe fn resume(self, _: &mut Resuming, fault: Option<Fault>) {
        assert!(fault.is_none() && self.1.iter().all(|byte| *byte == 5));
        self.0.set(self.0.get() + 1);
    }
}

/// A pair, of which the test is client and trustee.
struct Both {
    client: Outgoing,
    trustee: Incoming,
    /// The trustee as its client sees it, without a thread behind it.
    peer: Arc<Shared>,
    seen: Seen,
    drops: Rc<Cell<usize>>,
    asked: Cell<u64>,
}

impl Both {
    fn new() -> Both {
        let peer = registry::register().expect("ids are left");
        let own = worker::with(|worker| Arc::clone(&worker.shared));
        let pair = Pair::new();
        Both {
            client: Outgoing::new(Arc::clone(&own), Arc::clone(&peer), Arc::clone(&pair)),
            trustee: Incoming::new(own, pair),
            peer,
            seen: Rc::default(),
            drops: Rc::default(),
            asked: Cell::new(0),
        }
    }

    /// Makes a request, in the open batch if there is room. Returns its place.
    fn make<C: Request, R: Response>(&self, request: C, response: R) -> Room {
        let property = std::ptr::without_provenance_mut(4096);
        let mut pair = (ManuallyDrop::new(request), ManuallyDrop::new(response));
        for _ in 0..3 {
            // SAFETY: on true both were moved out, and are not used again.
            if unsafe { self.client.try_push(property, &raw mut *pair.0, &raw mut *pair.1) } {
                return Room::Available;
            }
            let room = self.client.make_room::<C, R>();
            if matches!(room, Room::Available) {
                continue;
            }
            let (request, response) = (ManuallyDrop::into_inner(pair.0), ManuallyDrop::into_inner(pair.1));
            if matches!(room, Room::Full) {
                self.client.enqueue(property, request, response);
            }
            return room;
        }
        panic!("there is no room where room was made");
    }

    fn ask_large<const REQUEST: usize, const RESPONSE: usize>(&self) -> Room {
        let number = self.asked.replace(self.asked.get() + 1);
        let request = Ask { number, bytes: [number as u8; REQUEST], drops: Rc::clone(&self.drops) };
        self.make(request, Note { seen: Rc::clone(&self.seen), bytes: [5; RESPONSE] })
    }
    fn ask(&self) -> Room {
        self.ask_large::<0, 0>()
    }

    fn serve(&self) -> bool {
        worker::with(|worker| self.trustee.serve(worker))
    }
    fn serve_all(&self) {
        for _ in 0..100 {
            if !self.serve() {
                return;
            }
            self.client.collect();
        }
        panic!("there is no end");
    }
    /// Takes the results of all requests since the last call.
    fn seen(&self) -> Vec<Option<u64>> {
        self.seen.take()
    }
    fn close(&self) {
        self.peer.parker.begin_closing();
        self.peer.parker.close();
    }
    /// Fills all slots with one request each, and queues one.
    fn fill(&self) {
        for _ in 0..SLOTS {
            assert!(matches!(self.ask(), Room::Available));
            self.client.send_open();
        }
        assert!(matches!(self.ask(), Room::Full));
    }
}

impl Drop for Both {
    fn drop(&mut self) {
        registry::unregister(self.peer.id);
    }
}

#[test]
fn a_batch_goes_when_nothing_is_in_flight_or_it_must() {
    let both = Both::new();
    let client = &both.client;
    assert!(Arc::ptr_eq(client.slab(), &both.peer.slab));
    assert!(client.is_at_rest() && !client.is_outstanding() && !client.is_full());
    client.flush();
    client.send_open();
    assert!(client.is_at_rest() && !both.trustee.has_batch(), "there is none");
    let _ = both.ask();
    assert!(client.is_at_rest() && client.is_outstanding() && !both.trustee.has_batch());
    client.flush();
    assert!(!client.is_at_rest() && client.is_outstanding() && both.trustee.has_batch());
    let _ = (both.ask(), both.ask());
    client.flush();
    assert!(both.serve() && !both.serve(), "the second batch waits for the answer to the first");
    assert!(!client.is_full() && client.collect() && client.is_at_rest() && client.is_outstanding());
    client.flush();
    let _ = both.ask();
    client.send_open();
    assert!(client.is_full(), "each slot is in flight");
    assert!(both.serve() && both.serve() && !both.serve());
    assert!(client.collect() && !client.collect());
    assert!(client.is_at_rest() && !client.is_outstanding() && !client.is_full());
    assert_eq!(both.seen(), [Some(0), Some(1), Some(2), Some(3)]);
    assert_eq!((both.trustee.served(), both.trustee.batches(), both.trustee.pair().published()), (4, 3, 4));
    assert_eq!(both.drops.get(), 4);
}

#[test]
fn what_is_queued_goes_behind_what_was_made_before() {
    let both = Both::new();
    both.fill();
    let client = &both.client;
    assert!(client.is_full() && client.is_outstanding());
    for _ in 0..3 {
        assert!(matches!(both.ask(), Room::Full), "behind those that are queued");
    }
    assert!(both.serve() && client.collect());
    assert!(!client.is_full(), "the queue is in the open batch");
    let _ = both.ask();
    client.send_open();
    both.serve_all();
    assert_eq!(both.seen(), (0..7).map(Some).collect::<Vec<_>>());
    assert_eq!((both.drops.get(), both.trustee.served()), (7, 7));
    assert!(!client.is_outstanding());
}

/// More requests are queued than a batch holds.
#[test]
fn a_long_queue_is_drained_batch_by_batch() {
    let both = Both::new();
    both.fill();
    (0..500).for_each(|_| drop(both.ask_large::<200, 200>()));
    for _ in 0..20 {
        both.serve_all();
        both.client.flush();
    }
    assert!(!both.client.is_outstanding());
    assert_eq!(both.seen(), (0..503).map(Some).collect::<Vec<_>>());
    let batches = both.trustee.batches();
    assert!(batches < 20, "{batches} batches of many requests each");
}

/// Properties as a trustee finds them in the queue, and in marks of batches it has not served.
fn noted(both: &Both) -> (Vec<usize>, Vec<usize>) {
    let mut queued = Vec::new();
    both.trustee.pair().queued(|address| queued.push(address));
    let marks = both.trustee.pair().marks(both.trustee.batches()).map(|(_, address)| address);
    (queued, marks.take_while(|address| *address != 0).collect())
}

/// Each property of a queued request is in the queue or marked, and no batch has more requests than marks: also where
/// requests join the last chunk.
#[test]
fn queued_requests_are_noted_until_they_are_served() {
    const OTHER: usize = 8192;
    let both = Both::new();
    both.fill();
    let told = Rc::new(Cell::new(0));
    let tell = || Told(Rc::clone(&told), [5; 0]);
    for number in 1..2 * REQUESTS_MAX {
        let address = OTHER + number / 10 * 8;
        both.client.enqueue(std::ptr::without_provenance_mut(address), Tell, tell());
    }
    let (queued, marks) = noted(&both);
    assert_eq!(marks, [4096], "that of the second slot");
    // A chunk begins with a run of its own.
    assert_eq!((queued[0], queued[1], queued.len()), (4096, OTHER, 1 + 2 * REQUESTS_MAX / 10 + 2));
    assert!(both.serve() && both.client.collect());
    let (rest, marks) = noted(&both);
    assert_eq!((marks.len(), marks[0], marks[1]), (REQUESTS_MAX, 4096, OTHER));
    assert!(queued.iter().all(|address| rest.contains(address) || marks.contains(address)));
    assert!(rest.len() < queued.len() && rest.contains(&(OTHER + (2 * REQUESTS_MAX - 1) / 10 * 8)));
    // The rest is an open batch with room for what it was short of marks.
    assert!(both.serve() && both.client.collect() && both.serve() && both.client.collect());
    assert!(noted(&both).0.is_empty() && !both.client.is_full() && !both.trustee.has_batch());
    let _ = both.make(Tell, tell());
    both.client.send_open();
    both.serve_all();
    assert!(!both.client.is_outstanding());
    assert_eq!((told.get(), both.seen().len()), (2 * REQUESTS_MAX, 3));
    assert_eq!(both.trustee.pair().published(), both.trustee.served());
}

/// A chunk that is open takes requests up to the number of marks.
#[test]
fn an_open_chunk_is_filled_up_to_its_last_mark() {
    let both = Both::new();
    let told = Rc::new(Cell::new(0));
    // No other request of this pair: it has a name in each build, so its head takes 8 bytes (`slot/dictionary.rs`).
    let tell = || both.make(Tell, Told(Rc::clone(&told), [5; 0]));
    for _ in 0..SLOTS {
        assert!(matches!(tell(), Room::Available));
        both.client.send_open();
    }
    (0..2).for_each(|_| assert!(matches!(tell(), Room::Full)));
    assert!(both.serve() && both.client.collect());
    for _ in 2..REQUESTS_MAX {
        assert!(matches!(tell(), Room::Available) && !both.client.is_full());
    }
    assert!(matches!(tell(), Room::Full), "with the second batch in flight, this is the third");
    both.serve_all();
    both.client.flush();
    both.serve_all();
    assert_eq!((told.get(), both.trustee.batches()), (SLOTS + REQUESTS_MAX + 1, 4));
}

/// A batch holds as many requests as a slot has bytes for, however large their continuations are. The first one begins
/// with the primary part alone.
#[test]
fn a_slot_is_filled_up_to_its_last_byte() {
    fn fill<const BYTES: usize>() {
        let in_primary = (PRIMARY_BYTES - HEAD_BYTES) / 8;
        let both = Both::new();
        let told = Rc::new(Cell::new(0));
        let tell = || both.make(Tell, Told(Rc::clone(&told), [5; BYTES]));
        for _ in 0..in_primary {
            assert!(matches!(tell(), Room::Available) && both.client.is_at_rest());
        }
        let _ = tell();
        assert!(both.serve() && !both.serve());
        assert_eq!(both.trustee.served(), in_primary as u64);
        // The batch is in the second slot, and the answer to the first batch is not looked at.
        for _ in 1..REQUESTS_MAX {
            assert!(matches!(tell(), Room::Available) && !both.trustee.has_batch());
        }
        assert!(matches!(tell(), Room::Full));
        for (continuations, requests) in both.client.continuations.iter().zip([in_primary, REQUESTS_MAX]) {
            // SAFETY: no continuation runs.
            let bytes = unsafe { (*continuations.get()).len() } * size_of::<Block>();
            assert!(
                bytes <= (2 * requests * (BYTES + 16)).max(CONTINUATION_BLOCKS * size_of::<Block>()),
                "{bytes} bytes"
            );
        }
        assert!(both.serve() && !both.serve());
        assert_eq!(both.trustee.served(), (in_primary + REQUESTS_MAX) as u64);
        assert!(both.client.collect());
        assert_eq!(told.get(), in_primary + REQUESTS_MAX);
        both.client.flush();
        both.serve_all();
        assert_eq!(told.get(), in_primary + REQUESTS_MAX + 1);
    }
    assert_eq!(REQUESTS_MAX * 8, PRIMARY_BYTES - HEAD_BYTES + OVERFLOW_BYTES);
    fill::<0>();
    fill::<8>();
    fill::<240>();
}

#[test]
fn requests_and_responses_of_all_sizes_have_room() {
    let both = Both::new();
    let check = |room: Room| {
        assert!(matches!(room, Room::Available));
        both.client.send_open();
        both.serve_all();
        assert!(!both.client.is_outstanding());
    };
    check(both.ask_large::<5000, 0>());
    check(both.ask_large::<0, 5000>());
    check(both.ask_large::<5000, 5000>());
    check(both.ask_large::<200, 200>());
    assert_eq!(both.seen(), [Some(0), Some(1), Some(2), Some(3)]);
    assert_eq!((both.drops.get(), both.trustee.batches()), (4, 4));
}

#[test]
fn there_is_news_when_an_answer_has_come_or_none_will() {
    let both = Both::new();
    let client = &both.client;
    assert!(!client.has_responses());
    let _ = both.ask();
    assert!(!client.has_responses());
    client.send_open();
    assert!(!client.has_responses());
    assert!(both.serve() && client.has_responses());
    assert!(client.collect() && !client.has_responses());
    both.close();
    assert!(!client.has_responses() && !client.collect(), "nobody waits for it");
    let _ = both.ask();
    assert!(client.has_responses() && client.collect() && !client.has_responses());
    assert_eq!(both.seen(), [Some(0), None]);
}

/// Answers that came before the end are taken; unanswered requests are refused: in flight, in either part of the open
/// batch, queued.
#[test]
fn a_closed_trustee_leaves_nothing_open() {
    for (asked, answered) in [(3, 1), (1, 0), (0, 0)] {
        for open in [0, 1, 3, 30] {
            let both = Both::new();
            for _ in 0..asked.min(SLOTS as u64) {
                let _ = both.ask();
                both.client.send_open();
            }
            (0..answered).for_each(|_| assert!(both.serve()));
            if asked > SLOTS as u64 {
                // Queued, in place of the open batch.
                (0..open + 1).for_each(|_| assert!(matches!(both.ask(), Room::Full)));
            } else {
                (0..open).for_each(|_| assert!(matches!(both.ask(), Room::Available)));
            }
            let all = both.asked.get();
            both.close();
            both.client.abandon_if_closed();
            let expected: Vec<_> = (0..all).map(|number| (number < answered).then_some(number)).collect();
            assert_eq!(both.seen(), expected, "{asked} sent, {open} not");
            assert_eq!(both.drops.get() as u64, all);
            assert!(!both.client.is_outstanding() && !both.client.is_full());
            if all > 0 {
                assert!(matches!(both.ask(), Room::Gone), "it takes no more");
            }
        }
    }
}

/// A callback of an answer learns that the trustee is closed, while the next answer is there.
#[test]
fn who_settles_accounts_within_a_callback_leaves_the_rest_to_the_outer_one() {
    struct Settle(Rc<Both>);
    impl Response for Settle {
        unsafe fn resume(self, resuming: &mut Resuming, _: Option<Fault>) {
            // SAFETY: `Ask` puts a `u64`.
            let _ = unsafe { resuming.responses.take::<u64>() };
            self.0.client.abandon_if_closed();
            assert!(self.0.seen.borrow().is_empty());
        }
    }
    let both = Rc::new(Both::new());
    let first = Ask { number: 0, bytes: [], drops: Rc::clone(&both.drops) };
    let _ = both.make(first, Settle(Rc::clone(&both)));
    both.client.send_open();
    let _ = both.ask();
    both.client.send_open();
    assert!(both.serve() && both.serve());
    both.close();
    assert!(both.client.collect());
    assert_eq!(both.seen(), [Some(0)], "it was answered");
    assert!(!both.client.is_outstanding());
}

#[test]
fn a_client_that_ends_sees_through_what_somebody_waits_for() {
    let both = Both::new();
    let client = &both.client;
    assert!(!client.must_be_seen_through());
    // For each number of batches in flight, one is awaited: the oldest or the newest.
    for (batches, awaited) in [(1, 0), (2, 0), (2, 1), (2, 2)] {
        for batch in 0..batches {
            let _ = both.make(Tell, Ignore);
            if batch == awaited {
                let _ = both.ask();
            }
            let _ = both.make(Tell, Ignore);
            assert_eq!(client.must_be_seen_through(), batch >= awaited, "{batch} of {batches}, {awaited}");
        }
        both.serve_all();
        assert!(!client.is_outstanding() && !client.must_be_seen_through());
    }
    (0..SLOTS)
        .for_each(|_| assert!(matches!(both.make(Tell, Ignore), Room::Available) && !client.must_be_seen_through()));
    assert!(matches!(both.make(Tell, Ignore), Room::Full) && client.must_be_seen_through(), "it is not sent yet");
    assert!(both.serve() && client.collect() && !client.has_queue());
    assert!(client.must_be_seen_through(), "it is sent, and lies in the client's memory");
    assert_eq!(both.seen().len(), 3);
    client.leave();
    assert!(!both.trustee.has_left(), "there is something to serve");
    both.serve_all();
    client.send_open();
    both.serve_all();
    assert!(both.trustee.has_left());
}

#[test]
fn a_client_that_gives_up_sends_what_it_can_and_refuses_the_rest() {
    let both = Both::new();
    both.fill();
    let _ = (both.ask(), both.ask());
    both.client.give_up();
    assert_eq!(both.seen(), [None; 3]);
    assert_eq!(both.drops.get(), 3);
    assert!(matches!(both.ask(), Room::Gone) && !both.client.is_full());
    both.serve_all();
    assert_eq!(both.seen(), [Some(0), Some(1)]);
    // The open batch has a slot, and is sent.
    let both = Both::new();
    let _ = both.ask();
    both.client.give_up();
    both.serve_all();
    assert_eq!(both.seen(), [Some(0)]);
}

#[test]
fn a_trustee_that_closes_refuses_each_request() {
    let both = Both::new();
    assert!(!both.trustee.refuse());
    let _ = both.ask();
    both.client.send_open();
    (0..40).for_each(|_| drop(both.ask()));
    both.client.send_open();
    assert!(both.trustee.refuse() && both.trustee.refuse() && !both.trustee.refuse());
    assert!(both.client.collect());
    assert_eq!(both.seen(), [None; 41]);
    assert_eq!((both.drops.get(), both.trustee.served()), (41, 0));
}

#[test]
fn a_refused_batch_names_each_of_its_requests() {
    let both = Both::new();
    (0..5).for_each(|_| drop(both.make(Tell, Ignore)));
    both.client.send_open();
    assert!(both.trustee.refuse());
    let (_, body) = both.client.side.response().expect("it is answered");
    // SAFETY: the answer is the client's, and read once: nothing is collected here.
    let faults = unsafe { Reader::new(body) }.take_faults();
    assert!(faults.into_iter().map(|(index, _)| index).eq(0..5));
}
