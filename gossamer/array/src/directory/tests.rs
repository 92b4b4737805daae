//! The transitions of the protocol one by one (DArray fig. 9, table 1), invalid messages, and random operations of many
//! places.

use super::model::{Model, RIGHTS};
use super::{Entry, Nonsense, PlaceNumber, Right, Step, Who};
use proptest::prelude::*;

type K = Entry<char>;
type Steps = Vec<Step<char>>;
use Right::{Combine, Glance, InPlace, Read, Write};
use Who::{Home, Place};

const ADD: Right<char> = Combine('+');
const MIN: Right<char> = Combine('<');

/// Makes a chunk after these requests, none of which conflicts.
fn after(wants: &[(Who, Right<char>)]) -> K {
    let mut entry = K::new();
    for &(who, right) in wants {
        let steps = want(&mut entry, who, right);
        assert!(matches!(steps[..], [Step::Grant { .. }]), "{who:?} is in somebody's way: {steps:?}");
    }
    entry
}

fn want(entry: &mut K, who: Who, right: Right<char>) -> Steps {
    let mut steps = Vec::new();
    entry.want(who, right, &mut steps);
    steps
}

fn back(entry: &mut K, from: PlaceNumber, number: u64, reads: bool) -> Result<Steps, Nonsense> {
    let mut steps = Vec::new();
    entry.back(from, number, reads, &mut steps).map(|()| steps)
}

fn grant(to: Who, right: Right<char>) -> Step<char> {
    Step::Grant { to, right, with_data: false }
}

fn grant_with_data(to: Who, right: Right<char>) -> Step<char> {
    Step::Grant { to, right, with_data: true }
}

fn recall(from: PlaceNumber, number: u64) -> Step<char> {
    Step::Recall { from, number, keeps_reading: false }
}

fn recall_to_read(from: PlaceNumber, number: u64) -> Step<char> {
    Step::Recall { from, number, keeps_reading: true }
}

#[test]
fn a_new_chunk_is_at_rest_and_home_does_all_with_it() {
    let mut entry = K::new();
    assert!(entry.is_at_rest());
    for right in [Read, Write, ADD, MIN] {
        assert_eq!(want(&mut entry, Home, right), [grant(Home, right)]);
        assert_eq!(entry.right_of_home(), Some(Write));
    }
    assert!(entry.is_at_rest());
}

#[test]
fn unshared_to_shared_when_a_place_reads() {
    let mut entry = K::new();
    assert_eq!(want(&mut entry, Place(1), Read), [grant_with_data(Place(1), Read)]);
    assert_eq!(entry.right_of_home(), Some(Read));
    assert!(!entry.is_at_rest());
    assert_eq!(want(&mut entry, Home, Read), [grant(Home, Read)]);
    assert_eq!(want(&mut entry, Place(2), Read), [grant_with_data(Place(2), Read)]);
}

#[test]
fn unshared_to_dirty_when_a_place_writes() {
    let mut entry = K::new();
    assert_eq!(want(&mut entry, Place(1), Write), [grant_with_data(Place(1), Write)]);
    assert_eq!(entry.right_of_home(), None);
}

#[test]
fn unshared_to_in_place_when_a_worker_of_the_process_sets() {
    let mut entry = K::new();
    assert_eq!(want(&mut entry, Place(1), InPlace), [grant(Place(1), InPlace)]);
    assert_eq!(entry.right_of_home(), Some(InPlace));
    assert_eq!(want(&mut entry, Place(2), InPlace), [grant(Place(2), InPlace)]);
    assert_eq!(want(&mut entry, Home, InPlace), [grant(Home, InPlace)]);
    // A look at one element takes part; one at the chunk takes it back.
    assert_eq!(want(&mut entry, Place(3), Glance), [grant(Place(3), InPlace)]);
    assert_eq!(want(&mut entry, Place(1), Read), [recall(2, 1), recall(3, 1)]);
    assert_eq!(back(&mut entry, 2, 1, false), Ok(vec![]));
    assert_eq!(back(&mut entry, 3, 1, false), Ok(vec![grant_with_data(Place(1), Read)]));
    assert_eq!(want(&mut entry, Place(2), Glance), [grant_with_data(Place(2), Read)]);
}

#[test]
fn in_place_to_what_the_only_worker_wants_or_to_unshared() {
    for (right, granted) in [(Read, grant_with_data as fn(_, _) -> _), (Write, grant_with_data), (ADD, grant)] {
        let mut entry = after(&[(Place(1), InPlace)]);
        assert_eq!(want(&mut entry, Place(1), right), [granted(Place(1), right)]);
    }
    let mut entry = after(&[(Place(1), InPlace)]);
    assert_eq!(want(&mut entry, Home, ADD), [recall(1, 1)]);
    assert_eq!(back(&mut entry, 1, 1, false), Ok(vec![grant(Home, ADD)]));
    assert!(entry.is_at_rest());
}

#[test]
fn shared_to_unshared_when_all_readers_have_dropped_it() {
    let mut entry = after(&[(Place(1), Read), (Place(2), Read)]);
    assert_eq!(back(&mut entry, 1, 0, false), Ok(vec![]));
    assert_eq!(entry.right_of_home(), Some(Read));
    assert_eq!(back(&mut entry, 2, 0, false), Ok(vec![]));
    assert!(entry.is_at_rest());
}

#[test]
fn shared_to_unshared_when_home_writes() {
    let mut entry = after(&[(Place(1), Read), (Place(2), Read)]);
    assert_eq!(want(&mut entry, Home, Write), [recall(1, 1), recall(2, 1)]);
    assert_eq!(back(&mut entry, 2, 1, false), Ok(vec![]));
    assert_eq!(entry.right_of_home(), Some(Read));
    assert_eq!(back(&mut entry, 1, 1, false), Ok(vec![grant(Home, Write)]));
    assert!(entry.is_at_rest());
}

#[test]
fn shared_to_dirty_when_another_place_writes() {
    let mut entry = after(&[(Place(1), Read), (Place(2), Read)]);
    assert_eq!(want(&mut entry, Place(3), Write), [recall(1, 1), recall(2, 1)]);
    assert_eq!(back(&mut entry, 1, 1, false), Ok(vec![]));
    assert_eq!(back(&mut entry, 2, 1, false), Ok(vec![grant_with_data(Place(3), Write)]));
    assert_eq!(entry.right_of_home(), None);
}

#[test]
fn shared_to_dirty_when_one_of_the_readers_writes() {
    let mut entry = after(&[(Place(1), Read), (Place(2), Read)]);
    assert_eq!(want(&mut entry, Place(1), Write), [recall(2, 1)]);
    assert_eq!(back(&mut entry, 2, 1, false), Ok(vec![grant(Place(1), Write)]));
}

#[test]
fn read_to_write_by_the_only_reader_moves_no_data() {
    let mut entry = after(&[(Place(1), Read)]);
    assert_eq!(want(&mut entry, Place(1), Write), [grant(Place(1), Write)]);
    assert_eq!(entry.right_of_home(), None);
}

#[test]
fn of_two_readers_that_both_write_the_second_is_sent_the_data() {
    let mut entry = after(&[(Place(1), Read), (Place(2), Read)]);
    assert_eq!(want(&mut entry, Place(1), Write), [recall(2, 1)]);
    assert_eq!(want(&mut entry, Place(2), Write), []);
    assert_eq!(back(&mut entry, 2, 1, false), Ok(vec![grant(Place(1), Write), recall(1, 2)]));
    assert_eq!(back(&mut entry, 1, 2, false), Ok(vec![grant_with_data(Place(2), Write)]));
}

#[test]
fn dirty_to_unshared_when_the_writer_drops_it() {
    let mut entry = after(&[(Place(1), Write)]);
    assert_eq!(back(&mut entry, 1, 0, false), Ok(vec![]));
    assert!(entry.is_at_rest());
}

#[test]
fn dirty_to_unshared_when_home_writes() {
    let mut entry = after(&[(Place(1), Write)]);
    assert_eq!(want(&mut entry, Home, Write), [recall(1, 1)]);
    assert_eq!(back(&mut entry, 1, 1, false), Ok(vec![grant(Home, Write)]));
    assert!(entry.is_at_rest());
}

#[test]
fn dirty_to_shared_when_others_read_and_the_writer_reads_on() {
    for who in [Home, Place(2)] {
        let mut entry = after(&[(Place(1), Write)]);
        assert_eq!(want(&mut entry, who, Read), [recall_to_read(1, 1)]);
        let granted = Step::Grant { to: who, right: Read, with_data: who != Home };
        assert_eq!(back(&mut entry, 1, 1, true), Ok(vec![granted]));
        assert_eq!(entry.right_of_home(), Some(Read));
        assert_eq!(back(&mut entry, 1, 0, false), Ok(vec![]), "it was among the readers");
    }
}

#[test]
fn dirty_to_dirty_when_another_place_writes() {
    let mut entry = after(&[(Place(1), Write)]);
    assert_eq!(want(&mut entry, Place(2), Write), [recall(1, 1)]);
    assert_eq!(back(&mut entry, 1, 1, false), Ok(vec![grant_with_data(Place(2), Write)]));
}

#[test]
fn unshared_to_operated_at_once_and_without_data() {
    let mut entry = K::new();
    assert_eq!(want(&mut entry, Place(1), ADD), [grant(Place(1), ADD)]);
    assert_eq!(entry.right_of_home(), Some(ADD));
    assert_eq!(want(&mut entry, Place(2), ADD), [grant(Place(2), ADD)]);
    assert_eq!(want(&mut entry, Home, ADD), [grant(Home, ADD)]);
}

#[test]
fn shared_to_operated_when_all_other_readers_have_answered() {
    for who in [Home, Place(1), Place(3)] {
        let mut entry = after(&[(Place(1), Read), (Place(2), Read)]);
        let others: Vec<_> = [1, 2].into_iter().filter(|place| who != Place(*place)).collect();
        let recalls: Steps = others.iter().map(|place| recall(*place, 1)).collect();
        assert_eq!(want(&mut entry, who, ADD), recalls);
        for place in &others {
            let steps = back(&mut entry, *place, 1, false).unwrap();
            assert_eq!(steps, if *place == 2 { vec![grant(who, ADD)] } else { vec![] });
        }
        // Home alone needs no state of its own.
        assert_eq!(entry.right_of_home(), Some(if who == Home { Write } else { ADD }));
    }
}

#[test]
fn dirty_to_operated_after_it_is_written_back() {
    for who in [Home, Place(2)] {
        let mut entry = after(&[(Place(1), Write)]);
        assert_eq!(want(&mut entry, who, ADD), [recall(1, 1)]);
        assert_eq!(back(&mut entry, 1, 1, false), Ok(vec![grant(who, ADD)]));
    }
}

#[test]
fn operated_to_unshared_when_all_have_dropped_it() {
    let mut entry = after(&[(Place(1), ADD), (Place(2), ADD)]);
    assert_eq!(back(&mut entry, 2, 0, false), Ok(vec![]));
    assert_eq!(entry.right_of_home(), Some(ADD));
    assert_eq!(back(&mut entry, 1, 0, false), Ok(vec![]));
    assert!(entry.is_at_rest());
}

#[test]
fn another_operator_a_read_or_a_write_merges_first() {
    for right in [MIN, Read, Write] {
        for who in [Home, Place(1), Place(3)] {
            let mut entry = after(&[(Place(1), ADD), (Place(2), ADD)]);
            assert_eq!(want(&mut entry, who, right), [recall(1, 1), recall(2, 1)], "the one that asks too");
            assert_eq!(back(&mut entry, 1, 1, false), Ok(vec![]));
            assert_eq!(entry.right_of_home(), Some(ADD));
            let granted = Step::Grant { to: who, right, with_data: who != Home && right != MIN };
            assert_eq!(back(&mut entry, 2, 1, false), Ok(vec![granted]));
        }
    }
}

#[test]
fn the_line_is_served_in_order_and_alike_together() {
    let mut entry = after(&[(Place(1), Write)]);
    assert_eq!(want(&mut entry, Place(2), Read), [recall_to_read(1, 1)]);
    for (who, right) in [(Home, Read), (Place(3), Read), (Place(4), Write), (Place(5), Read)] {
        assert_eq!(want(&mut entry, who, right), []);
    }
    let granted = [grant_with_data(Place(2), Read), grant(Home, Read), grant_with_data(Place(3), Read)];
    let recalls = [recall(1, 2), recall(2, 2), recall(3, 2)];
    assert_eq!(back(&mut entry, 1, 1, true), Ok([granted, recalls].concat()));
    assert_eq!(want(&mut entry, Home, Read), [], "a reader does not overtake a writer that waits");
    assert_eq!(back(&mut entry, 3, 2, false), Ok(vec![]));
    assert_eq!(back(&mut entry, 2, 2, false), Ok(vec![]));
    assert_eq!(back(&mut entry, 1, 2, false), Ok(vec![grant_with_data(Place(4), Write), recall_to_read(4, 3)]));
    assert_eq!(back(&mut entry, 4, 3, true), Ok(vec![grant_with_data(Place(5), Read), grant(Home, Read)]));
}

#[test]
fn a_place_that_drops_what_is_recalled_answers_all_the_same() {
    let mut entry = after(&[(Place(1), Write)]);
    assert_eq!(want(&mut entry, Place(2), Read), [recall_to_read(1, 1)]);
    assert_eq!(back(&mut entry, 1, 0, false), Ok(vec![]), "its answer is on its way");
    assert_eq!(want(&mut entry, Place(1), Read), [], "and it is behind in line");
    let granted = vec![grant_with_data(Place(2), Read), grant_with_data(Place(1), Read)];
    assert_eq!(back(&mut entry, 1, 1, false), Ok(granted));
}

#[test]
fn nobody_gives_back_what_he_has_not() {
    assert_eq!(back(&mut K::new(), 1, 0, false), Err(Nonsense));
    for right in [Read, Write, ADD] {
        let mut entry = after(&[(Place(1), right)]);
        let before = entry.clone();
        assert_eq!(back(&mut entry, 2, 0, false), Err(Nonsense), "{right:?}");
        assert_eq!(entry, before, "and nothing has changed");
    }
}

#[test]
fn nobody_answers_what_he_was_not_asked() {
    let mut entry = after(&[(Place(1), Read), (Place(2), Read)]);
    assert_eq!(back(&mut entry, 1, 1, false), Err(Nonsense), "no round");
    assert_eq!(want(&mut entry, Place(1), Write), [recall(2, 1)]);
    let before = entry.clone();
    assert_eq!(back(&mut entry, 1, 1, false), Err(Nonsense), "another place");
    assert_eq!(back(&mut entry, 2, 2, false), Err(Nonsense), "another round");
    assert_eq!(entry, before, "and nothing has changed");
    assert_eq!(back(&mut entry, 2, 1, false), Ok(vec![grant(Place(1), Write)]));
    assert_eq!(back(&mut entry, 2, 1, false), Err(Nonsense), "twice");
}

#[test]
fn a_place_that_asks_for_what_it_has_is_kept_once() {
    for right in [Read, ADD] {
        let mut entry = after(&[(Place(1), right), (Place(1), right)]);
        assert_eq!(back(&mut entry, 1, 0, false), Ok(vec![]));
        assert!(entry.is_at_rest(), "{right:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Every choice is one of the actions that are possible then; the model checks the result.
    #[test]
    fn random_operations_of_many_places_go_as_they_should(
        places in 1..=9_usize,
        choices in prop::collection::vec(any::<prop::sample::Index>(), 0..300),
    ) {
        let mut model = Model::new(places);
        for choice in choices {
            let action = *choice.get(&model.actions(&RIGHTS));
            model.step(action).map_err(TestCaseError::fail)?;
        }
        let bound = 100 * places;
        for _ in 0..bound {
            let Some(action) = model.deliveries().pop() else { break };
            model.step(action).map_err(TestCaseError::fail)?;
        }
        prop_assert!(model.deliveries().is_empty(), "messages go round");
        model.check_end().map_err(TestCaseError::fail)?;
    }

    /// After any messages from places the protocol terminates, without a panic.
    #[test]
    fn nonsense_does_no_harm(
        calls in prop::collection::vec((any::<bool>(), 0..4_u32, 0..RIGHTS.len(), 0..6_u64, any::<bool>()), 0..100),
    ) {
        let mut entry = Entry::new();
        let mut steps = Vec::new();
        for (wants, place, right, number, reads) in calls {
            if wants {
                let who = if place == 0 { Who::Home } else { Who::Place(place) };
                entry.want(who, RIGHTS[right], &mut steps);
            } else {
                let before = entry.clone();
                if entry.back(place, number, reads, &mut steps) == Err(Nonsense) {
                    prop_assert!(entry == before);
                }
            }
            prop_assert!(steps.len() < 1000);
        }
    }
}
