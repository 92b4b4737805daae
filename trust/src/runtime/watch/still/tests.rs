//! Programs that stand still, and when this is reported.

use std::cell::Cell;

use super::*;
use crate::fiber::record::{Seen, Whom};
use crate::ids::worker_id;

fn wait(awaited: Awaited, number: u64) -> Option<Wait> {
    Some(Wait { awaited, number, since_ms: 100 })
}

fn fiber(doing: Doing, wait: Option<Wait>) -> Seen {
    Seen { id: 3, whom: Whom::Nobody, doing, wait, holds: 0, name: "fiber 3".into() }
}

fn report(fibers: Vec<Seen>) -> Report {
    let (worker, thread) = (worker_id(1, 2), String::new());
    Report { worker, thread, fibers, root: None, has_timers: false, gathered: Vec::new() }
}

fn promised(number: u64) -> Seen {
    fiber(Doing::Waits, wait(Awaited::Promise("Opening"), number))
}

#[test]
fn who_waits_for_other_fibers_is_named_with_what_it_waits_for() {
    let idle = report(vec![]);
    let found = waits_of(&[idle.clone(), report(vec![promised(7)])], 1_300).unwrap();
    assert_eq!(found.lines, ["fiber 3 of m1w2 waits for a promised `Opening`, since 1.2 s"]);
    let again = waits_of(&[idle, report(vec![promised(8)])], 1_300).unwrap();
    assert_ne!(found.sum, again.sum, "another wait for the same");
    let root = Report { root: wait(Awaited::End(5), 1), ..report(vec![]) };
    assert!(waits_of(&[root], 1_300).unwrap().lines[0].starts_with("the code of m1w2 waits for the end of a fiber"));
}

#[test]
fn a_program_that_may_go_on_by_itself_does_not_stand_still() {
    for other in [
        fiber(Doing::Runs, None),
        fiber(Doing::Ready, wait(Awaited::Promises, 1)),
        fiber(Doing::New, None),
        fiber(Doing::Waits, None), // for an answer
        fiber(Doing::Waits, wait(Awaited::Time, 1)),
        fiber(Doing::Waits, wait(Awaited::Answer("u8"), 1)),
    ] {
        assert!(waits_of(&[report(vec![promised(7), other.clone()])], 200).is_none(), "{other:?}");
    }
    let timed = Report { has_timers: true, ..report(vec![promised(7)]) };
    assert!(waits_of(&[timed], 200).is_none());
    let sleeps = Report { root: wait(Awaited::Time, 1), ..report(vec![promised(7)]) };
    assert!(waits_of(&[sleeps], 200).is_none());
}

/// A rack with these other machines.
struct Rack {
    others: Vec<u16>,
    asked: Cell<u64>,
}

impl Others for Rack {
    fn ask(&self, round: u64) -> bool {
        self.asked.set(round);
        !self.others.is_empty()
    }

    /// Fibers of other tests of this process are not counted here.
    fn pass_on(&self, _: &Fallen) -> bool {
        true
    }

    fn machines(&self) -> Vec<u16> {
        self.others.clone()
    }
}

/// One round, in which this machine and the others are in these waits.
fn round(still: &mut Still, own: u64, others: &[Option<u64>]) -> Option<String> {
    let waits = |sum: u64| Waits { sum, lines: vec![format!("fiber {sum} waits")] };
    still.round += 1;
    still.asking = Some(Asking { own: waits(own), heard: BTreeMap::new(), end: Instant::now() });
    still.receive(9, still.round - 1, Some(waits(0))); // late: of another round
    for (machine, other) in (1..).zip(others) {
        still.receive(machine, still.round, other.map(waits));
    }
    still.turn(&Rack { others: (1..).take(others.len()).collect(), asked: Cell::new(0) }).1
}

#[test]
fn it_is_said_once_when_two_rounds_have_found_all_in_the_same_waits() {
    let mut still = Still::default();
    still.note(Fallen("fiber 8 of m1w0 has panicked: bad cell".into()));
    assert_eq!(round(&mut still, 1, &[Some(2)]), None);
    let text = round(&mut still, 1, &[Some(2)]).unwrap();
    for words in [
        "no fiber can go on",
        "\n  fiber 1 waits\n  fiber 2 waits\n",
        "\n  fiber 8 of m1w0 has panicked: bad cell (0.0 s ago)",
    ] {
        assert!(text.contains(words), "{text}");
    }
    assert_eq!(round(&mut still, 1, &[Some(2)]), None, "once");
    assert_eq!(round(&mut still, 1, &[Some(3)]), None);
    assert!(round(&mut still, 1, &[Some(3)]).is_some(), "they have gone on, and stand still again");
}

#[test]
fn nothing_is_said_where_a_machine_goes_on_or_does_not_answer() {
    let mut still = Still::default();
    still.note(Fallen("a fiber was aborted".into()));
    for _ in 0..3 {
        assert_eq!(round(&mut still, 1, &[Some(2), None]), None);
        assert_eq!(round(&mut still, 1, &[]), None, "another round between");
        assert_eq!(round(&mut still, 4, &[]), None);
    }
    // Without an answer, when the time is up.
    assert_eq!(round(&mut still, 1, &[Some(2)]), None);
    still.round += 1;
    still.asking = Some(Asking { own: Waits { sum: 1, lines: vec![] }, heard: BTreeMap::new(), end: Instant::now() });
    assert_eq!(still.turn(&Rack { others: vec![1], asked: Cell::new(0) }).1, None);
    assert_eq!(round(&mut still, 1, &[Some(2)]), None, "the round between was not complete");
    assert!(round(&mut still, 1, &[Some(2)]).is_some());
}

#[test]
fn a_lost_machine_is_not_waited_for() {
    let mut still = Still::default();
    still.note(Fallen("a fiber was aborted".into()));
    let waits = |sum: u64| Waits { sum, lines: vec![format!("fiber {sum} waits")] };
    let mut round = |heard: &[(u16, u64)], living: &[u16]| {
        still.round += 1;
        let heard = heard.iter().map(|&(machine, sum)| (machine, Some(waits(sum)))).collect();
        still.asking = Some(Asking { own: waits(1), heard, end: deadline_after(Duration::from_secs(300)) });
        let (next, text) = still.turn(&Rack { others: living.to_vec(), asked: Cell::new(0) });
        assert!(next.is_some());
        let is_over = still.asking.is_none();
        still.asking = None;
        (is_over, text)
    };
    assert_eq!(round(&[(2, 7)], &[1, 2]), (false, None), "machine 1 has time");
    assert_eq!(round(&[(2, 7)], &[2]), (true, None));
    // It answered before it was lost.
    let (is_over, text) = round(&[(1, 5), (2, 7)], &[2]);
    let text = text.expect("two rounds are the same");
    assert!(is_over && text.contains("fiber 7 waits") && !text.contains("fiber 5"), "{text}");
}

#[test]
fn before_a_fiber_has_fallen_nobody_is_asked() {
    let rack = Rack { others: vec![1], asked: Cell::new(0) };
    assert!(Still::default().turn(&rack).0.is_none());
    assert_eq!(rack.asked.get(), 0);
}
