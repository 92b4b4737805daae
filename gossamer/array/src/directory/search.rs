//! Exhaustive search over all states of a model of one chunk (see `model.rs`), without a bound on the number of
//! operations. Counters are taken relative to the present, and places are interchangeable, so the states are finite. It
//! proves that
//! - no step is faulty (the list in `model.rs`);
//! - from each state, in any order of the messages in flight, deliveries come to an end (their graph has no cycle), and
//!   then every request has been granted;
//! - from each such end home returns to its initial state.

use super::model::{Action, Model, Op, RIGHTS, ToHome, ToPlace, Value};
use super::{Right, State, Who};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Number of the present round in the normal form of a state.
const ROUND: u64 = 1 << 32;

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Returns the normal form: versions, operands and rounds relative to the present ones, places and lists of them
/// sorted.
fn normal(mut model: Model) -> Model {
    let truth = std::mem::take(&mut model.truth);
    let relative = |value: &mut Value| {
        let old = Value { version: -1, operands: [0; 2] };
        let operands = [0, 1].map(|op| value.operands[op] - truth.operands[op]);
        *value = if value.version == truth.version { Value { version: 0, operands } } else { old };
    };
    relative(&mut model.home);
    let round = std::mem::replace(&mut model.entry.number, ROUND);
    for place in &mut model.places {
        place.copy.iter_mut().for_each(relative);
        for message in &mut place.to_home {
            if let ToHome::Back { number, data, .. } = message {
                data.iter_mut().for_each(relative);
                *number = if *number == 0 { 0 } else { *number + ROUND - round };
            }
        }
        for message in &mut place.to_place {
            match message {
                ToPlace::Grant { data, .. } => data.iter_mut().for_each(relative),
                ToPlace::Recall { number, .. } => *number = *number + ROUND - round,
            }
        }
    }
    in_order(model)
}

/// Renumbers the places so that states that differ only in the numbering become equal.
fn in_order(mut model: Model) -> Model {
    let entry = &mut model.entry;
    let held = |number| match &entry.state {
        State::Unshared => false,
        State::Dirty(place) => *place == number,
        State::Shared(places) | State::Operated(_, places) | State::InPlace(places) => places.contains(&number),
    };
    let mut order: Vec<_> = (0..).zip(std::mem::take(&mut model.places)).collect();
    order.sort_by_cached_key(|(number, place)| {
        let in_line = entry.line.iter().position(|(who, _)| *who == Who::Place(*number));
        hash(&(place, held(*number), in_line, entry.awaited.contains(number)))
    });
    let renumber = |old: &mut u32| *old = (0..).zip(&order).find(|(_, (number, _))| number == old).expect("is there").0;
    match &mut entry.state {
        State::Unshared => {}
        State::Dirty(place) => renumber(place),
        State::Shared(places) | State::Operated(_, places) | State::InPlace(places) => {
            places.iter_mut().for_each(renumber);
            places.sort_unstable();
        }
    }
    entry.awaited.iter_mut().for_each(renumber);
    entry.awaited.sort_unstable();
    for (who, _) in &mut entry.line {
        if let Who::Place(number) = who {
            renumber(number);
        }
    }
    model.places = order.into_iter().map(|(_, place)| place).collect();
    model
}

/// All states found: how each was first reached, and its successors by a delivery.
#[derive(Default)]
struct Found {
    from: Vec<(usize, Option<Action>)>,
    delivered: Vec<Vec<usize>>,
}

impl Found {
    /// Returns the path to a state. Each action uses the place numbers of the state before it.
    fn way(&self, places: usize, mut to: usize, last: Option<Action>) -> String {
        let mut actions: Vec<_> = last.into_iter().collect();
        while let (before, Some(action)) = self.from[to] {
            actions.push(action);
            to = before;
        }
        let mut model = Model::new(places);
        let mut text = String::new();
        for action in actions.into_iter().rev() {
            text += &format!("{action:?}\n");
            let _ = model.step(action);
            model = normal(model);
        }
        format!("{text}{model:#?}")
    }

    /// Can messages circulate for ever?
    fn has_circle(&self) -> bool {
        let mut before = vec![0_u32; self.delivered.len()];
        self.delivered.iter().flatten().for_each(|to| before[*to] += 1);
        let mut free: Vec<_> = (0..before.len()).filter(|state| before[*state] == 0).collect();
        let mut done = 0;
        while let Some(state) = free.pop() {
            done += 1;
            for to in &self.delivered[state] {
                before[*to] -= 1;
                if before[*to] == 0 {
                    free.push(*to);
                }
            }
        }
        done < before.len()
    }
}

/// Searches breadth first. Returns the number of states.
fn search(places: usize, rights: &[Right<Op>]) -> usize {
    let start = normal(Model::new(places));
    let mut known = HashMap::from([(hash(&start), 0)]);
    let mut found = Found { from: vec![(0, None)], delivered: Vec::new() };
    let mut now = vec![start];
    while !now.is_empty() {
        for model in std::mem::take(&mut now) {
            let state = found.delivered.len();
            found.delivered.push(Vec::new());
            if model.deliveries().is_empty()
                && let Err(error) = model.clone().check_end()
            {
                panic!("{error}, after\n{}", found.way(places, state, None));
            }
            for action in model.actions(rights) {
                let mut next = model.clone();
                if let Err(error) = next.step(action) {
                    panic!("{error}, after\n{}", found.way(places, state, Some(action)));
                }
                let next = normal(next);
                let index = match known.entry(hash(&next)) {
                    Entry::Occupied(entry) => *entry.get(),
                    Entry::Vacant(entry) => {
                        let index = found.from.len();
                        entry.insert(index);
                        found.from.push((state, Some(action)));
                        now.push(next);
                        index
                    }
                };
                if matches!(action, Action::AtHome(_) | Action::AtPlace(_)) {
                    found.delivered[state].push(index);
                }
            }
        }
    }
    assert!(!found.has_circle(), "messages go round for ever");
    found.from.len()
}

#[test]
fn search_of_two_places_finds_nothing_wrong() {
    let states = search(2, &RIGHTS);
    assert!(states > 20_000, "{states} states are not all");
}

#[test]
fn search_of_three_places_and_one_operator_finds_nothing_wrong() {
    let states = search(3, &[Right::Read, Right::Write, Right::Combine(0)]);
    assert!(states > 150_000, "{states} states are not all");
}

#[test]
fn search_of_three_places_with_access_in_place_finds_nothing_wrong() {
    let states = search(3, &[Right::Glance, Right::InPlace, Right::Write]);
    assert!(states > 100_000, "{states} states are not all");
}

#[test]
#[ignore = "takes a minute: `cargo dev stress`"]
fn stress_search_of_three_places() {
    let states = search(3, &RIGHTS);
    assert!(states > 800_000, "{states} states are not all");
}
