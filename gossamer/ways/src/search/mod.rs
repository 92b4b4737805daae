//! Exhaustive search over the states of small configurations: `ways` has pairs of workers, `wakes` the workers of two
//! machines. Here: the search itself.

mod wakes;
mod ways;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Debug;

/// A configuration with all that can happen in it.
trait Model: Clone + Debug {
    type Action: Copy + Debug;

    /// Actions that are possible now. Those that go on by themselves come to an end, which `check_end` judges.
    fn actions(&self) -> Vec<(Self::Action, Kind)>;
    fn step(&mut self, action: Self::Action) -> Result<(), String>;
    /// Is this state right where nothing goes on by itself any more?
    fn check_end(&self) -> Result<(), String>;
    /// A hash of all that tells this state from others.
    fn fingerprint(&self) -> u64;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Somebody's choice.
    Chosen,
    /// Happens sooner or later.
    ByItself,
}

/// Goes through all states, breadth first. Returns their number, or a fault with the shortest path to it.
fn search<M: Model>(start: M) -> Result<usize, String> {
    let mut known = HashMap::from([(start.fingerprint(), 0)]);
    let mut from: Vec<(usize, Option<M::Action>)> = vec![(0, None)];
    let mut by_itself: Vec<Vec<usize>> = Vec::new();
    let mut now = vec![start.clone()];
    while !now.is_empty() {
        for model in std::mem::take(&mut now) {
            let state = by_itself.len();
            by_itself.push(Vec::new());
            let actions = model.actions();
            if !actions.iter().any(|(_, kind)| *kind == Kind::ByItself) {
                model.check_end().map_err(|error| path(&start, &from, state, None, &error))?;
            }
            for (action, kind) in actions {
                let mut next = model.clone();
                next.step(action).map_err(|error| path(&start, &from, state, Some(action), &error))?;
                let index = match known.entry(next.fingerprint()) {
                    Entry::Occupied(entry) => *entry.get(),
                    Entry::Vacant(entry) => {
                        entry.insert(from.len());
                        from.push((state, Some(action)));
                        now.push(next);
                        from.len() - 1
                    }
                };
                if kind == Kind::ByItself {
                    by_itself[state].push(index);
                }
            }
        }
    }
    if has_cycle(&by_itself) { Err("something goes on for ever".to_owned()) } else { Ok(from.len()) }
}

fn has_cycle(next: &[Vec<usize>]) -> bool {
    let mut before = vec![0_u32; next.len()];
    next.iter().flatten().for_each(|to| before[*to] += 1);
    let mut free: Vec<_> = (0..before.len()).filter(|state| before[*state] == 0).collect();
    let mut done = 0;
    while let Some(state) = free.pop() {
        done += 1;
        for to in &next[state] {
            before[*to] -= 1;
            if before[*to] == 0 {
                free.push(*to);
            }
        }
    }
    done < before.len()
}

/// The fault, behind the actions that lead to it and the last state that was right.
fn path<M: Model>(
    start: &M,
    from: &[(usize, Option<M::Action>)],
    mut to: usize,
    last: Option<M::Action>,
    error: &str,
) -> String {
    let mut actions = Vec::new();
    while let (before, Some(action)) = from[to] {
        actions.push(action);
        to = before;
    }
    let mut model = start.clone();
    for action in actions.iter().rev() {
        let _ = model.step(*action);
    }
    actions.reverse();
    format!("{error}, after {actions:?} and {last:?}\n{model:#?}")
}

#[test]
fn cycles_are_found() {
    assert!(has_cycle(&[vec![1], vec![2], vec![1]]));
    assert!(!has_cycle(&[vec![1, 2], vec![2], vec![]]));
}
