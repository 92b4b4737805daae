//! Loom models of the slot protocol: `cargo dev loom`, or
//! `RUSTFLAGS="--cfg loom" cargo test -p gossamer-trust --release --lib loom_`.
//!
//! The real [`ClientSide`], [`TrusteeSide`], [`Writer`], [`Reader`] and `Parker` run here; `client.rs`, `trustee.rs`
//! and `end.rs` are replaced by a batch that is one number. Every access to a body goes through [`touch`], so loom
//! reports a data race if the ready bits do not hand the body over.

use std::sync::Arc;

use loom::thread;

use super::{Body, Reader, Writer};
use crate::config::SLOTS;
use crate::fault::Fault;
use crate::park::{Parker, Presence};

/// Pairs whose requests name nothing.
pub(crate) type Pair = super::Pair<()>;
pub(crate) type ClientSide = super::ClientSide<()>;
pub(crate) type TrusteeSide = super::TrusteeSide<()>;

/// Explores a model. A thread may be interrupted where it would not wait by itself at most 3 times, unless
/// `LOOM_MAX_PREEMPTIONS` says otherwise.
pub(crate) fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    let model = Arc::new(model);
    builder.check(move || {
        let model = Arc::clone(&model);
        spawn(move || model()).join().unwrap();
    });
}

/// Starts a thread with room for a few pairs on its stack; loom's own threads have 32 KiB.
pub(crate) fn spawn<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> thread::JoinHandle<R> {
    thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap()
}

/// One access to the bytes of a body, which loom sees.
pub(crate) fn touch<R>(body: *mut Body, f: impl FnOnce(*mut Body) -> R) -> R {
    // SAFETY: the pair that the body is in outlives the model's threads; `watch` is shared by design.
    let watch = unsafe { &(*body).watch };
    watch.with_mut(|_| f(body))
}

/// Writes a batch: one number.
pub(crate) fn write_number(body: *mut Body, number: u64) {
    // SAFETY: the caller owns the body, or loom reports the race.
    touch(body, |body| unsafe { (*body).head = number });
}

/// Reads a batch.
pub(crate) fn read_number(body: *mut Body) -> u64 {
    // SAFETY: as above.
    touch(body, |body| unsafe { (*body).head })
}

/// Publishes a batch if a slot is free.
fn publish(client: &ClientSide, number: u64) -> bool {
    let Some((_, body)) = client.filling() else {
        return false;
    };
    write_number(body, number);
    client.publish();
    true
}

/// Outcome of a batch, as its client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The request was served, with this response.
    Served(u64),
    /// The trustee answered that it is gone.
    Refused,
    /// The trustee never answered, and the client has taken the batch back.
    Reclaimed(u64),
}

const ANSWER: u64 = 1000;

/// Serves (or refuses) one batch; returns its number.
fn answer(trustee: &TrusteeSide, refuse: bool) -> Option<u64> {
    let (request, response) = trustee.request()?;
    let number = read_number(request);
    touch(response, |body| {
        // SAFETY: published, so the response body is the trustee's, or loom reports the race.
        let mut writer = unsafe { Writer::new(body) };
        if refuse {
            writer.put_fault(0, Fault::Gone);
        } else {
            writer.put(ANSWER + number);
        }
        writer.finish();
    });
    trustee.respond();
    Some(number)
}

/// Takes the next answer if it has come.
fn collect(client: &ClientSide) -> Option<Outcome> {
    let (_, body) = client.response()?;
    let outcome = touch(body, |body| {
        // SAFETY: answered, so the response body is the client's, or loom reports the race; read once.
        let mut reader = unsafe { Reader::new(body) };
        if reader.take_faults().is_empty() {
            // SAFETY: the trustee puts a `u64` where it puts no fault.
            Outcome::Served(unsafe { reader.take() })
        } else {
            Outcome::Refused
        }
    });
    client.release();
    Some(outcome)
}

/// More batches than slots, so that slots are filled again and the bits turn back: each is served once, in
/// order, and each response belongs to its request.
fn ring(batches: u64) {
    explore(move || {
        let pair = Pair::new();
        let trustee = thread::spawn({
            let trustee = TrusteeSide::new(Arc::clone(&pair));
            move || {
                for expected in 0..batches {
                    let number = loop {
                        match answer(&trustee, false) {
                            Some(number) => break number,
                            None => thread::yield_now(),
                        }
                    };
                    assert_eq!(number, expected);
                }
                assert!(trustee.request().is_none());
            }
        });
        let client = ClientSide::new(pair);
        let (mut sent, mut answered) = (0, 0);
        while answered < batches {
            while sent < batches && publish(&client, sent) {
                sent += 1;
            }
            match collect(&client) {
                Some(outcome) => {
                    assert_eq!(outcome, Outcome::Served(ANSWER + answered));
                    answered += 1;
                }
                None => thread::yield_now(),
            }
        }
        assert_eq!(client.in_flight(), 0);
        trustee.join().unwrap();
    });
}

#[test]
fn loom_slots_one_round() {
    ring(SLOTS as u64);
}

#[test]
fn loom_slots_are_filled_again() {
    ring(2 * SLOTS as u64 + 1);
}

/// A trustee that does not find the mark of a request knows that the request is published or served.
#[test]
fn loom_marks_are_never_behind_what_is_published() {
    explore(|| {
        let pair = Pair::new();
        let client = thread::spawn({
            let pair = Arc::clone(&pair);
            move || {
                let client = ClientSide::new(pair);
                for number in 1..=SLOTS as u64 {
                    mark(&client, number as usize);
                    client.note_published(number);
                    assert!(publish(&client, number));
                }
                // Made, and never sent.
                mark(&client, SLOTS + 1);
            }
        });
        let trustee = TrusteeSide::new(pair);
        let mut served = 0;
        while let Some(number) = answer(&trustee, false) {
            served = number;
            let marked = trustee.pair().marks(served).next();
            let published = trustee.pair().published();
            assert!(published >= served);
            // One request a batch: it takes the place of all that were marked before.
            assert!(marked.is_none_or(|(batch, property)| batch + 1 == property as u64 && published >= batch));
        }
        client.join().unwrap();
        assert_eq!(trustee.pair().published(), SLOTS as u64);
        assert_eq!(trustee.pair().marks(served).next(), Some((SLOTS as u64, SLOTS + 1)));
    });
}

/// Marks the first request of the open batch with a number for a property.
fn mark(client: &ClientSide, property: usize) {
    // SAFETY: there is room for one request.
    unsafe { client.mark(0, property) };
}

/// A client that has left has nothing to be served: the trustee may forget the pair.
#[test]
fn loom_who_has_left_has_been_served() {
    explore(|| {
        let pair = Pair::new();
        let client = thread::spawn({
            let pair = Arc::clone(&pair);
            move || {
                let client = ClientSide::new(pair);
                assert!(publish(&client, 1));
                while collect(&client).is_none() {
                    thread::yield_now();
                }
                client.leave();
            }
        });
        let trustee = TrusteeSide::new(pair);
        let mut served = 0;
        while !(trustee.pair().left() && trustee.request().is_none()) {
            match answer(&trustee, false) {
                Some(_) => served += 1,
                None => thread::yield_now(),
            }
        }
        assert_eq!(served, 1);
        client.join().unwrap();
    });
}

/// The steps of `Worker::end` that others can see. Returns the numbers served and refused.
fn end_trustee(trustee: &TrusteeSide, parker: &Parker, client: &Parker) -> (Vec<u64>, Vec<u64>) {
    let (mut served, mut refused) = (Vec::new(), Vec::new());
    parker.begin_closing();
    let mut serve = || answer(trustee, false).map(|number| served.push(number)).is_some();
    while client.publish_if(&mut serve).is_some() {}
    while let Some(number) = answer(trustee, true) {
        refused.push(number);
    }
    parker.close();
    let _ = client.publish(|| ());
    (served, refused)
}

/// The steps of `Outgoing::collect`. True if the trustee is gone: then nothing may be published any more.
fn collect_or_reclaim(client: &ClientSide, trustee: &Parker, outcomes: &mut Vec<Outcome>) -> bool {
    let before = outcomes.len();
    while let Some(outcome) = collect(client) {
        outcomes.push(outcome);
    }
    let none = outcomes.len() == before;
    let gone = client.in_flight() > 0 && none && trustee.presence() == Presence::Closed && !client.has_response();
    if gone {
        // SAFETY: closed, and the oldest slot has no answer.
        while let Some((_, body)) = unsafe { client.reclaim() } {
            outcomes.push(Outcome::Reclaimed(read_number(body)));
            client.release();
        }
    }
    gone
}

/// The trustee ends while a client sends it `batches` batches and sleeps between: each is served, refused or reclaimed,
/// once, in order; the client is woken; and each batch sent to a trustee that was seen to be here is answered by it.
fn closing(batches: u64) {
    explore(move || {
        let pair = Pair::new();
        let parkers = Arc::new((Parker::new(0), Parker::new(0)));
        let trustee = thread::spawn({
            let (trustee, parkers) = (TrusteeSide::new(Arc::clone(&pair)), Arc::clone(&parkers));
            move || end_trustee(&trustee, &parkers.0, &parkers.1)
        });
        let client = ClientSide::new(pair);
        let (to, own) = (&parkers.0, &parkers.1);
        let (mut sent, mut outcomes, mut promised) = (0, Vec::new(), 0);
        let mut gone = false;
        while !gone && (outcomes.len() as u64) < batches {
            while sent < batches
                && let Some(presence) = to.publish_if(|| publish(&client, sent))
            {
                sent += 1;
                if presence == Presence::Here {
                    promised = sent;
                }
            }
            gone = collect_or_reclaim(&client, to, &mut outcomes);
            if client.in_flight() > 0 {
                own.park(None, || client.has_response() || to.presence() == Presence::Closed);
            }
        }
        let (served, refused) = trustee.join().unwrap();
        assert!(gone || sent == batches);
        assert_eq!(outcomes.len() as u64, sent);
        for number in 0..sent {
            let expected = if served.contains(&number) {
                Outcome::Served(ANSWER + number)
            } else if refused.contains(&number) {
                Outcome::Refused
            } else {
                assert!(number >= promised, "the trustee was here when {number} was sent");
                Outcome::Reclaimed(number)
            };
            assert_eq!(outcomes[number as usize], expected);
        }
        let answered: Vec<_> = served.into_iter().chain(refused).collect();
        assert!(answered.is_sorted_by(|a, b| a < b), "in order, none twice: {answered:?}");
    });
}

#[test]
fn loom_closing_answers_or_leaves_one() {
    closing(1);
}

#[test]
fn loom_closing_answers_or_leaves_a_ring() {
    closing(SLOTS as u64);
}

#[test]
fn loom_closing_with_a_slot_filled_again() {
    closing(SLOTS as u64 + 1);
}
