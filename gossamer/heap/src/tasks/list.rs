//! The tasks of the rack, for people and tests, and those of this machine for its view.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;

use gossamer::link::{self, BUSIEST_MAX, TaskSample, TasksSample};

use super::registry::{self, Slot};
use super::task_id::TaskId;

/// Tasks in an answer.
const PAGE: usize = 32;

/// A task, as [`tasks`] lists it. Shown as `7: machine 1, 0.3 busy, 1 move`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct TaskInfo {
    /// Its name.
    pub id: TaskId,
    /// Machine where it is.
    pub machine: u16,
    /// Part of the last tenth of a second, or of the time since it slept, for which it was in a step.
    pub busy: f32,
    /// Times that it has moved to another machine.
    pub moves: u32,
}

impl fmt::Display for TaskInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TaskInfo { id, machine, busy, moves } = self;
        write!(f, "{id}: machine {machine}, {busy:.1} busy, {moves} move{}", if *moves == 1 { "" } else { "s" })
    }
}

/// Lists the tasks of the rack that have not ended, by their ids. Asks each living machine, and waits; all answer, also
/// while all workers compute. A task that moves meanwhile is listed once, or not at all.
///
/// ```
/// use gossamer_heap::{Step, Task, tasks};
/// gossamer::main(
///     || {
///         let task = Task::new(0u32, |count| {
///             *count += 1;
///             if *count < 10 { Step::Next } else { Step::Done(*count) }
///         });
///         tasks().iter().for_each(|task| println!("{task}")); // 0: machine 0, 0.0 busy, 0 moves
///         assert_eq!(task.join().unwrap(), 10);
///         assert!(tasks().is_empty());
///     },
///     1,
/// );
/// ```
///
/// # Panics
/// Outside of `gossamer::main`; where nothing may wait (delegated closures, callbacks, destructors).
pub fn tasks() -> Vec<TaskInfo> {
    let rack = gossamer::rack();
    let mut all = BTreeMap::<TaskId, TaskInfo>::new();
    for machine in (0..rack.machines().len() as u16).filter(|machine| !link::is_lost(*machine)) {
        let mut after = None;
        loop {
            let page = if machine == rack.machine() {
                page(after)
            } else {
                match trust::link::call(link::service(machine), move || page(after)) {
                    Ok(page) => page,
                    Err(_) if link::is_lost(machine) => break,
                    Err(error) => panic!("machine {machine} does not list its tasks: {error}"),
                }
            };
            for info in page.into_iter().flatten() {
                let known = all.entry(info.id).or_insert(info);
                if known.moves < info.moves {
                    *known = info;
                }
            }
            after = page[PAGE - 1].map(|last| last.id);
            if after.is_none() {
                break;
            }
        }
    }
    all.into_values().collect()
}

/// Returns the tasks of this machine behind that one.
fn page(after: Option<TaskId>) -> [Option<TaskInfo>; PAGE] {
    let mut registry = registry::lock();
    registry.measure();
    let machine = gossamer::rack().machine();
    let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
    // One that leaves is for the next machine to list: it may have ended there before this one hears of its arrival.
    let stays = |(_, slot): &(&TaskId, &Slot)| slot.entry.leaving().is_none();
    let mut infos = registry.slots().range((behind, Bound::Unbounded)).filter(stays).map(|(id, slot)| TaskInfo {
        id: *id,
        machine,
        busy: slot.busy() as f32,
        moves: slot.entry.past.moves,
    });
    std::array::from_fn(|_| infos.next())
}

/// The view of the program shows the tasks of this machine.
pub(super) fn show() {
    link::show_tasks(sample);
}

fn sample() -> TasksSample {
    let mut registry = registry::lock();
    registry.measure();
    let mut here: Vec<(&TaskId, &Slot)> = registry.slots().iter().collect();
    here.sort_by(|(_, one), (_, other)| other.busy().total_cmp(&one.busy()));
    let of_slot = |(id, slot): (&TaskId, &Slot)| TaskSample {
        name: id.to_string(),
        busy: (slot.busy() * 1000.0) as u16,
        fetched_bytes: slot.fetched_bytes(),
        moves: slot.entry.past.moves,
        came_from: slot.entry.past.came_from.map(|move_here| (move_here.machine, move_here.reason.name().to_owned())),
    };
    TasksSample {
        count: here.len() as u64,
        runnable: registry.runnable().into(),
        left: registry.left().map(|(reason, times)| (reason.name().to_owned(), times)).collect(),
        busiest: here.into_iter().take(BUSIEST_MAX).map(of_slot).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_shown_in_a_line() {
        let info = TaskInfo { id: TaskId::of(0, 7), machine: 1, busy: 0.31, moves: 1 };
        assert_eq!(info.to_string(), "7: machine 1, 0.3 busy, 1 move");
        assert_eq!(TaskInfo { moves: 0, ..info }.to_string(), "7: machine 1, 0.3 busy, 0 moves");
    }
}
