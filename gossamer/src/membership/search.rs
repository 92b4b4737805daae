//! Exhaustive search over all states of a model of a small rack (see `model.rs`): all orders of messages, ends, broken
//! pairs, accusations and timers. It proves for these racks that
//! - no step is faulty (the list in `model.rs`);
//! - from each state all that happens by itself comes to an end (its graph has no cycle), and then the program has
//!   ended, or the machines that are left agree.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::model::{Action, Model, World};

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// All states found: how each was first reached, and its successors by what happens by itself.
#[derive(Default)]
struct Found {
    from: Vec<(usize, Option<Action>)>,
    delivered: Vec<Vec<usize>>,
}

impl Found {
    /// Returns the path to a state, and the state.
    fn path(&self, world: World, mut to: usize, last: Option<Action>) -> String {
        let mut actions: Vec<_> = last.into_iter().collect();
        while let (before, Some(action)) = self.from[to] {
            actions.push(action);
            to = before;
        }
        let mut model = Model::new(world);
        let mut text = String::new();
        for action in actions.into_iter().rev() {
            text += &format!("{action:?}\n");
            let _ = model.step(action);
            model = model.normal(world);
        }
        format!("{text}{model:#?}")
    }

    /// Can something go on by itself for ever?
    fn has_cycle(&self) -> bool {
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
fn search(world: World) -> usize {
    let start = Model::new(world);
    let mut known = HashMap::from([(hash(&start), 0)]);
    let mut found = Found { from: vec![(0, None)], delivered: Vec::new() };
    let mut now = vec![start];
    while !now.is_empty() {
        for model in std::mem::take(&mut now) {
            let state = found.delivered.len();
            found.delivered.push(Vec::new());
            let deliveries = model.deliveries();
            if deliveries.is_empty()
                && let Err(error) = model.check_end()
            {
                panic!("{error}, after\n{}", found.path(world, state, None));
            }
            for action in model.actions(world) {
                let mut next = model.clone();
                if let Err(error) = next.step(action) {
                    panic!("{error}, after\n{}", found.path(world, state, Some(action)));
                }
                let next = next.normal(world);
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
                if deliveries.contains(&action) {
                    found.delivered[state].push(index);
                }
            }
        }
    }
    assert!(!found.has_cycle(), "something goes on for ever");
    found.from.len()
}

/// Three machines, of which one may be lost; nothing else happens to them.
const THREE: World = World { machines: 3, survives: 1, breaks: 0, beats: 0, stalls: 0, share_hosts: false };

#[test]
fn search_of_leases_finds_nothing_wrong() {
    let states = search(World { beats: 2, ..THREE });
    assert!(states > 3_000, "{states} states are not all");
}

#[test]
fn search_of_broken_pairs_finds_nothing_wrong() {
    let states = search(World { breaks: 1, share_hosts: true, ..THREE });
    assert!(states > 3_000, "{states} states are not all");
}

#[test]
fn search_of_machines_that_stand_still_finds_nothing_wrong() {
    let states = search(World { survives: 2, stalls: 1, ..THREE });
    assert!(states > 7_000, "{states} states are not all");
}

#[test]
fn search_of_four_machines_finds_nothing_wrong() {
    let states = search(World { machines: 4, share_hosts: true, ..THREE });
    assert!(states > 2_000, "{states} states are not all");
}

#[test]
#[ignore = "takes minutes: `cargo dev stress`"]
fn stress_search_of_all_that_can_happen() {
    let leases = search(World { breaks: 1, beats: 2, ..THREE });
    assert!(leases > 130_000, "{leases} states are not all");
    let losses = search(World { survives: 2, breaks: 1, share_hosts: true, ..THREE });
    assert!(losses > 20_000, "{losses} states are not all");
    let four = search(World { machines: 4, survives: 2, share_hosts: true, ..THREE });
    assert!(four > 50_000, "{four} states are not all");
}
