//! All-to-all exchanges.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use gossamer::{Exchange, Inbox, InboxGone, Place, exchange, spawn_with};
use serde::ser::SerializeTuple;
use serde::{Deserialize, Serialize, Serializer};

use super::ground::{JoinOutcome, beside, effort, none_is_lost, panic_of, places, remote, spots};

type Pair = (String, u64);

/// Sends the numbers below a limit, each with a text, to the place of its last digits.
fn send_numbers((exchange, from, limit): (Exchange<Pair>, u64, u64)) {
    let mut outbox = exchange.outbox();
    for number in (from..limit).step_by(places().len()) {
        let text = format!("{}{}", number % 1000, "x".repeat((number % 97) as usize));
        was_sent(outbox.send_by(&(number % 1000), &(text, number)));
    }
}

/// Receives numbers until the end: their count and sum, and the last digits that came.
fn receive_numbers(inbox: Inbox<Pair>) -> (u64, u64, Vec<u64>) {
    assert_eq!(inbox.place(), gossamer::here());
    let mut digits: HashMap<u64, u64> = HashMap::new();
    let (mut count, mut sum) = (0, 0);
    for (text, number) in inbox {
        assert_eq!(text.trim_end_matches('x'), (number % 1000).to_string());
        (count, sum) = (count + 1, sum + number);
        *digits.entry(number % 1000).or_default() += 1;
    }
    (count, sum, digits.into_keys().collect())
}

/// Panics for a value that was not sent: all inboxes live, unless a machine was lost.
#[track_caller]
fn was_sent(sent: Result<(), InboxGone>) {
    if let Err(gone) = sent {
        none_is_lost();
        panic!("{gone}");
    }
}

/// Each value arrives once, at the place of its key, whoever sends it.
pub fn exchanged_values_arrive_once_at_the_place_of_their_key() {
    let limit = effort(40_000);
    let (exchange, inboxes) = exchange::<Pair>();
    assert!(inboxes.iter().map(Inbox::place).eq(gossamer::rack().places()));
    let receivers: Vec<_> =
        inboxes.into_iter().map(|inbox| spawn_with(inbox.place(), receive_numbers, inbox)).collect();
    let send = |(place, from): (Place, u64)| spawn_with(place, send_numbers, (exchange.clone(), from, limit));
    let senders: Vec<_> = places().into_iter().zip(0..).map(send).collect();
    drop(exchange);
    senders.into_iter().for_each(|sender| sender.join().or_its_panic());
    let received: Vec<_> = receivers.into_iter().map(|receiver| receiver.join().or_its_panic()).collect();
    let (count, sum) = received.iter().fold((0, 0), |(count, sum), (its, of_it, _)| (count + its, sum + of_it));
    assert_eq!((count, sum), (limit, limit * (limit - 1) / 2));
    let mut digits: Vec<u64> = received.into_iter().flat_map(|(_, _, digits)| digits).collect();
    let keys = digits.len();
    digits.sort_unstable();
    digits.dedup();
    assert_eq!((keys, digits.len()), (digits.len(), 1000.min(limit as usize)), "a key belongs to one place");
}

/// Values of one outbox keep their order, and have every size, none at all included.
pub fn exchanged_values_keep_their_order_and_size() {
    let (exchange, inboxes) = exchange::<Vec<u8>>();
    let receive = |inbox: Inbox<Vec<u8>>| inbox.into_iter().map(|bytes| bytes.len()).collect::<Vec<usize>>();
    let receivers: Vec<_> = inboxes.into_iter().map(|inbox| spawn_with(inbox.place(), receive, inbox)).collect();
    let sizes = [0, 1, 4095, 65_535, 65_536, 65_537, 3_000_000, 0, 7];
    let mut outbox = exchange.outbox();
    drop(exchange);
    let spots = spots();
    for size in sizes {
        spots.iter().for_each(|spot| was_sent(outbox.send(*spot, &vec![7; size])));
    }
    drop(outbox);
    for (place, receiver) in places().into_iter().zip(receivers) {
        let times = spots.iter().filter(|spot| **spot == place).count();
        let expected: Vec<usize> = sizes.iter().flat_map(|size| std::iter::repeat_n(*size, times)).collect();
        assert_eq!(receiver.join().or_its_panic(), expected, "{place}");
    }

    let (exchange, inboxes) = gossamer::exchange::<()>();
    let count = |inbox: Inbox<()>| inbox.into_iter().count();
    let counts: Vec<_> = inboxes.into_iter().map(|inbox| spawn_with(inbox.place(), count, inbox)).collect();
    let mut outbox = exchange.outbox();
    (0..100_000).for_each(|_| was_sent(outbox.send(remote(), &())));
    drop((exchange, outbox));
    assert_eq!(counts.into_iter().map(|count| count.join().or_its_panic()).sum::<usize>(), 100_000);
}

/// Many senders, and a receiver that begins late: they wait for room, and nothing is lost.
pub fn senders_wait_while_an_inbox_is_full() {
    let (exchange, mut inboxes) = exchange::<[u64; 32]>();
    let inbox = inboxes.pop().expect("one for each place");
    let to = inbox.place();
    let send = |(exchange, to): (Exchange<[u64; 32]>, Place)| {
        let mut outbox = exchange.outbox();
        (0..8000).for_each(|number| outbox.send(to, &[number; 32]).expect("the inbox lives"));
    };
    let senders: Vec<_> = spots().into_iter().map(|place| spawn_with(place, send, (exchange.clone(), to))).collect();
    drop(exchange);
    // Two megabytes of each are more than outbox and inbox hold.
    gossamer::sleep(std::time::Duration::from_millis(20));
    if senders.iter().any(|sender| sender.is_finished()) {
        none_is_lost(); // a wait for room ends with a loss
    }
    assert!(senders.iter().all(|sender| !sender.is_finished()), "nobody has received yet");
    let mut next = HashMap::new();
    for [number, rest @ ..] in inbox {
        assert!(rest.iter().all(|other| *other == number));
        *next.entry(number).or_insert(0) += 1;
    }
    assert!(next.len() == 8000 && next.values().all(|times| *times == 3), "each number came from each sender");
    senders.into_iter().for_each(|sender| sender.join().or_its_panic());
}

/// An inbox that is gone, a place that is none, and a value that does not travel are told.
pub fn wrong_exchanges_are_told() {
    let (exchange, inboxes) = exchange::<[u64; 32]>();
    drop(inboxes);
    for place in [beside(), remote()] {
        let mut outbox = exchange.outbox();
        let gone = (0..100_000).find_map(|_| outbox.send(place, &[0; 32]).err()).expect("nobody can receive");
        assert!(matches!(gone, InboxGone { place: at, .. } if at == place));
        assert_eq!(
            gone.to_string(),
            format!("the inbox of {place} is gone: the fiber that received from it has ended before its senders")
        );
    }
    let nowhere = panic_of(|| exchange.outbox().send(Place::of(999, 0), &[0; 32]));
    assert!(nowhere.starts_with("there is no place m999w0"), "{nowhere}");
    let (trusts, _inboxes) = gossamer::exchange::<gossamer::Trust<u64>>();
    let trust = gossamer::entrust(5);
    let refused = panic_of(|| trusts.outbox().send(remote(), &trust));
    assert!(refused.contains("does not serialise: ") && refused.contains("a trust can be serialised"), "{refused}");
}

/// Panics after half of it is written, where it is 13.
#[derive(Deserialize, Debug, PartialEq)]
struct Superstitious(u64, u64);

impl Serialize for Superstitious {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut pair = serializer.serialize_tuple(2)?;
        pair.serialize_element(&self.0)?;
        assert_ne!(self.0, 13, "planted");
        pair.serialize_element(&self.1)?;
        pair.end()
    }
}

/// A value that panics while it is written leaves nothing in its batch.
pub fn values_that_panic_leave_the_others_whole() {
    let (exchange, mut inboxes) = exchange::<Superstitious>();
    let mut outbox = exchange.outbox();
    for number in 0..20 {
        let sent = catch_unwind(AssertUnwindSafe(|| outbox.send(remote(), &Superstitious(number, !number))));
        assert_eq!(sent.is_err(), number == 13);
    }
    drop((exchange, outbox));
    let inbox = inboxes.pop().expect("one for each place");
    assert_eq!(inbox.place(), remote());
    let expected = (0..20).filter(|number| *number != 13).map(|number| Superstitious(number, !number));
    assert!(inbox.into_iter().eq(expected));
}
