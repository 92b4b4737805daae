//! Tasks of the heap and threads of C programs, which go from machine to machine: as lines of `top`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use gossamer::view::tasks::TaskSample;
use gossamer::view::threads::ThreadSample;
use gossamer::view::{MachineSample, Snapshot};

use super::console::plain;

/// Machine that a task or thread came from, and the reason.
type Origin = Option<(u16, String)>;

/// A task or thread.
struct Mover<'a> {
    name: String,
    machine: u16,
    busy: u16,
    moves: u32,
    came_from: &'a Origin,
}

/// Returns the samples of the machines that live.
pub(super) fn living(now: &Snapshot) -> impl Iterator<Item = &MachineSample> {
    now.machines.iter().filter(|seen| seen.lost.is_none()).map(|seen| &seen.sample)
}

/// Returns the threads of these machines, with their machines.
pub(super) fn all_threads(now: &Snapshot) -> impl Iterator<Item = (u16, &ThreadSample)> {
    living(now).flat_map(|sample| sample.threads.threads.iter().map(|thread| (sample.machine, thread)))
}

/// Renders the tasks of all machines, if there are or were any, and the `most` busiest of them.
pub(super) fn tasks<'now>(now: &'now Snapshot, most: usize) -> String {
    let sum = |of: fn(&MachineSample) -> u64| living(now).map(of).sum::<u64>();
    let (count, runnable) = (sum(|sample| sample.tasks.count), sum(|sample| sample.tasks.runnable));
    let left = added(living(now).map(|sample| &sample.tasks.left[..]));
    if count == 0 && left.is_empty() {
        return String::new();
    }
    let all = living(now).flat_map(|sample| sample.tasks.busiest.iter().map(|task| (sample.machine, task)));
    let mover = |(machine, task): (u16, &'now TaskSample)| Mover {
        name: format!("task {}", task.name),
        machine,
        busy: task.busy,
        moves: task.moves,
        came_from: &task.came_from,
    };
    lines(&format!("{count} task(s), {runnable} runnable"), &left, all.map(mover).collect(), most)
}

/// Renders the threads of all machines, if there are or were any, and the `most` busiest of them.
pub(super) fn threads<'now>(now: &'now Snapshot, most: usize) -> String {
    let count = all_threads(now).count();
    let left = added(living(now).map(|sample| &sample.threads.left[..]));
    if count == 0 && left.is_empty() {
        return String::new();
    }
    let mover = |(machine, thread): (u16, &'now ThreadSample)| Mover {
        name: format!("thread {} `{}`", thread.id, thread.function),
        machine,
        busy: thread.busy,
        moves: thread.moves,
        came_from: &thread.came_from,
    };
    lines(&format!("{count} thread(s)"), &left, all_threads(now).map(mover).collect(), most)
}

/// Renders a machine, and the reason for which something came from there.
pub(super) fn origin(came_from: &Origin) -> String {
    came_from.as_ref().map_or_else(String::new, |(from, reason)| format!("m{from}: {}", plain(reason)))
}

/// Adds the moves of all machines, by their reasons.
fn added<'a>(left: impl Iterator<Item = &'a [(String, u64)]>) -> BTreeMap<&'a str, u64> {
    let mut all = BTreeMap::new();
    left.flatten().for_each(|(reason, times)| *all.entry(reason.as_str()).or_default() += times);
    all
}

fn lines(count: &str, left: &BTreeMap<&str, u64>, mut all: Vec<Mover<'_>>, most: usize) -> String {
    let moves: u64 = left.values().sum();
    let reasons: Vec<String> = left.iter().map(|(reason, times)| format!("{}: {times}", plain(reason))).collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
    let mut text = format!("{count}, {moves} move(s){reasons}\n");
    all.sort_by_key(|mover| Reverse(mover.busy));
    for Mover { name, machine, busy, moves, came_from } in all.into_iter().take(most) {
        let _ = write!(text, "{} at m{machine}: {:.0} % busy, {moves} move(s)", plain(&name), f64::from(busy) / 10.0);
        let came = if came_from.is_some() { ", came from " } else { "" };
        let _ = writeln!(text, "{came}{}", origin(came_from));
    }
    text
}
