//! The queue of one lock, and the types of guards. Locks in use: `arrays/locks.rs` of the behavioural suite.

use super::{Kind, LockLine, Locks, ReadGuard, Ticket, WriteGuard};
use proptest::prelude::*;
use std::collections::VecDeque;

use Kind::{Read, Write};

const NOBODY: [u64; 0] = [];

fn ticket(number: u64) -> Ticket {
    Ticket { place: 3, number }
}

/// Makes a queue of these requests, in order; the first ones hold the lock. Each waiter is named after its ticket.
fn line(kinds: &[Kind], have_it: usize) -> LockLine<u64> {
    let mut line = LockLine::default();
    for (number, kind) in (0..).zip(kinds) {
        let told = line.take(ticket(number), *kind, number);
        assert_eq!(told, (number < have_it as u64).then_some(number));
    }
    line
}

#[test]
fn readers_have_a_lock_together() {
    let mut line = line(&[Read, Read], 2);
    assert!(line.try_take(ticket(7), Read));
    assert!(!line.try_take(ticket(8), Write));
    for number in [1, 7, 0] {
        assert!(!line.is_free());
        assert_eq!(line.leave(ticket(number)), NOBODY);
    }
    assert!(line.is_free());
}

#[test]
fn a_writer_has_it_alone() {
    let mut line = line(&[Write, Write, Read], 1);
    assert!(!line.try_take(ticket(7), Read) && !line.try_take(ticket(8), Write));
    assert_eq!(line.leave(ticket(0)), [1]);
    assert_eq!(line.leave(ticket(1)), [2]);
    assert_eq!(line.leave(ticket(2)), NOBODY);
    assert!(line.is_free() && line.try_take(ticket(8), Write));
}

#[test]
fn a_writer_that_waits_stops_later_readers() {
    let mut line = line(&[Read, Write, Read, Read, Write, Read], 1);
    assert!(!line.try_take(ticket(7), Read));
    assert_eq!(line.leave(ticket(0)), [1]);
    assert_eq!(line.leave(ticket(1)), [2, 3], "those that stand together");
    assert_eq!(line.leave(ticket(2)), NOBODY);
    assert_eq!(line.leave(ticket(3)), [4]);
    assert_eq!(line.leave(ticket(4)), [5]);
}

#[test]
fn a_writer_that_waits_no_more_lets_readers_pass() {
    let mut line = line(&[Read, Write, Read], 1);
    assert_eq!(line.leave(ticket(1)), [2]);
    assert!(line.try_take(ticket(7), Read));
}

#[test]
fn a_ticket_that_is_not_there_changes_nothing() {
    let mut line = line(&[Write, Read], 1);
    assert_eq!(line.leave(ticket(9)), NOBODY);
    assert_eq!(line.leave(Ticket { place: 4, number: 0 }), NOBODY, "of another place");
    assert!(!line.try_take(ticket(7), Read));
    assert_eq!(line.leave(ticket(0)), [1]);
}

#[test]
fn a_lock_out_of_use_leaves_nothing_behind() {
    let locks = Locks::default();
    let (promise, _answer) = trust::promise();
    assert!(locks.change(5, |line| line.take(ticket(1), Write, promise)).is_some());
    assert!(!locks.change(5, |line| line.try_take(ticket(2), Read)));
    assert!(locks.change(6, |line| line.try_take(ticket(3), Read)));
    assert_eq!(locks.lines.borrow().len(), 2);
    assert!(locks.change(5, |line| line.leave(ticket(1))).is_empty());
    assert!(locks.change(6, |line| line.leave(ticket(3))).is_empty());
    assert!(locks.change(7, |line| line.leave(ticket(3))).is_empty(), "and one that came too late");
    assert!(locks.lines.borrow().is_empty());
}

#[test]
fn who_waits_is_told_when_there_will_be_no_lock() {
    let locks = Locks::default();
    let (first, has_it) = trust::promise();
    locks.change(5, |line| line.take(ticket(1), Write, first)).unwrap().keep(true);
    let (second, waits) = trust::promise();
    assert!(locks.change(5, |line| line.take(ticket(2), Read, second)).is_none());
    assert_eq!((has_it.wait(), waits.try_take()), (Ok(true), None));
    locks.drop_all();
    assert!(waits.wait().is_err());
}

#[test]
fn guards_stay_on_their_thread() {
    trait Unsure<Why> {
        fn is_send() -> bool {
            false
        }
    }
    impl<T> Unsure<()> for T {}
    struct IsSend;
    impl<T: Send> Unsure<IsSend> for T {}
    // These would not compile if they were `Send`.
    assert!(!ReadGuard::<'static, u64>::is_send() && !WriteGuard::<'static, u64>::is_send());
}

proptest! {
    /// Against a list of all holders and waiters, in order: the holders are its longest prefix of readers, or its first
    /// writer.
    #[test]
    fn random_lines(calls in prop::collection::vec((0..4_u8, any::<prop::sample::Index>()), 1..200)) {
        let mut line = LockLine::default();
        let mut all = VecDeque::<(u64, Kind)>::new();
        let have_it = |all: &VecDeque<(u64, Kind)>| match all.front() {
            Some((_, Write)) => 1,
            _ => all.iter().take_while(|(_, kind)| *kind == Read).count(),
        };
        for (number, (call, which)) in (0..).zip(calls) {
            let before: Vec<_> = all.iter().take(have_it(&all)).map(|(number, _)| *number).collect();
            let mut told = match call {
                0 | 1 => {
                    let kind = if call == 0 { Read } else { Write };
                    all.push_back((number, kind));
                    Vec::from_iter(line.take(ticket(number), kind, number))
                }
                2 => {
                    let kind = if which.index(2) == 0 { Read } else { Write };
                    all.push_back((number, kind));
                    let has_it = line.try_take(ticket(number), kind);
                    prop_assert_eq!(has_it, have_it(&all) == all.len());
                    if !has_it {
                        all.pop_back();
                    }
                    Vec::from_iter(has_it.then_some(number))
                }
                _ if all.is_empty() => Vec::new(),
                _ => {
                    let (gone, _) = all.remove(which.index(all.len())).expect("is there");
                    line.leave(ticket(gone))
                }
            };
            told.retain(|number| !before.contains(number));
            let after = all.iter().take(have_it(&all)).map(|(number, _)| *number);
            prop_assert_eq!(told, after.filter(|number| !before.contains(number)).collect::<Vec<_>>());
            prop_assert_eq!(line.is_free(), all.is_empty());
        }
    }
}
