//! A program in which nothing goes on after a fiber has ended by a panic, or was aborted: reports every wait and names
//! that fiber, for others may wait for something that it would have done.
//!
//! Before a fiber has ended so nothing of this happens. From then on all workers are asked now and then. The program
//! stands still if in two rounds each of its fibers, on all machines, is in the same wait for something that only a
//! fiber or a closure gives, all workers answer, and none has a timer set. A thread that is no worker may still end a
//! wait, so this is only reported and no fiber is interrupted.
//!
//! On a rack, machine 0 asks the others once it stands still itself, and makes the report.

use std::any::Any;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::config::{RACK_ANSWER_MS, STILL_EVERY_MS};
use crate::deadline::deadline_after;
use crate::error::{Aborted, panic_text};
use crate::fiber::record::{Awaited, Doing, Wait, now_ms};
use crate::registry::report::Report;
use crate::runtime::worker::{self, Worker};

/// Most ended fibers that a report names: the last ones.
const FALLEN_MAX: usize = 4;
/// Most waits that a report lists.
const WAITS_MAX: usize = 20;
/// Rounds take at most one part in this many of the time: a round costs each worker a look at its fibers.
const COST_PARTS: u32 = 50;

/// Ends of fibers that are not reported yet.
static FALLEN: Mutex<Vec<Fallen>> = Mutex::new(Vec::new());

/// Fiber that others may wait for although it has ended: its name, and its end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Fallen(String);

/// The waits of all fibers of a machine that stands still.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Waits {
    /// A hash that changes as soon as any fiber is in another wait.
    sum: u64,
    /// Longest waits first.
    lines: Vec<String>,
}

/// Notes that the current fiber has ended with this payload of a panic.
#[cold]
pub(crate) fn note_fallen(payload: &(dyn Any + Send)) {
    let who = worker::existing(|worker: &Worker| (worker.scheduler.name_of_current(), worker.id));
    let Some((name, id)) = who else { return };
    let name = name.unwrap_or_else(|| "a fiber".to_owned());
    let text = match payload.downcast_ref::<Aborted>() {
        Some(_) => format!("{name} of {id:?} was aborted"),
        None => format!("{name} of {id:?} has panicked: {}", panic_text(payload)),
    };
    let mut fallen = FALLEN.lock().unwrap_or_else(PoisonError::into_inner);
    if fallen.len() < FALLEN_MAX {
        fallen.push(Fallen(text));
    }
    drop(fallen);
    super::unpark();
}

/// Returns the waits of all fibers of this machine; `None` if any of them may go on by itself.
pub(super) fn waits() -> Option<Waits> {
    let (reports, unanswered) = super::ask(true);
    unanswered.is_empty().then(|| waits_of(&reports, now_ms())).flatten()
}

/// Is the wait for something that only a fiber or a closure of the program gives, however long it takes?
fn is_for_fibers(wait: &Wait) -> bool {
    matches!(
        wait.awaited,
        Awaited::Result(_)
            | Awaited::Together(_)
            | Awaited::Value { .. }
            | Awaited::End(_)
            | Awaited::Latch(_)
            | Awaited::Promise(_)
            | Awaited::Promises
    )
}

fn waits_of(reports: &[Report], at_ms: u64) -> Option<Waits> {
    let mut all = Vec::new();
    for report in reports {
        if report.has_timers {
            return None;
        }
        for seen in &report.fibers {
            let wait = seen.wait.filter(|wait| seen.doing == Doing::Waits && is_for_fibers(wait))?;
            all.push((wait.since_ms, report.worker, wait, seen.name.as_str()));
        }
        if let Some(wait) = report.root {
            is_for_fibers(&wait).then_some(())?;
            all.push((wait.since_ms, report.worker, wait, "the code"));
        }
    }
    all.sort_by_key(|&(since, worker, wait, _)| (since, worker, wait.number));
    let mut sum = DefaultHasher::new();
    all.iter().for_each(|(_, worker, wait, _)| (worker, wait.number).hash(&mut sum));
    let line = |(since, worker, wait, name): &(u64, crate::ids::TrusteeId, Wait, &str)| {
        let waited = Duration::from_millis(at_ms.saturating_sub(*since)).as_secs_f64();
        format!("{name} of {worker:?} waits for {}, since {waited:.1} s", wait.awaited)
    };
    Some(Waits { sum: sum.finish(), lines: all.iter().map(line).collect() })
}

/// The rest of the rack, seen from the reporting machine.
pub(super) trait Others {
    /// Asks all of them for their waits. False if there are none.
    fn ask(&self, round: u64) -> bool;
    /// Tells the reporting machine. False if this is that one.
    fn pass_on(&self, fallen: &Fallen) -> bool;
    /// The other machines, but for those that are lost.
    fn machines(&self) -> Vec<u16>;
}

/// State of this machine.
#[derive(Default)]
pub(super) struct Still {
    fallen: VecDeque<(Fallen, Instant)>,
    /// Time of the next look; `None` before any fiber has ended so.
    due: Option<Instant>,
    asking: Option<Asking>,
    round: u64,
    /// The findings of the last round, by machine.
    before: Option<Vec<u64>>,
    /// Findings that have been reported.
    said: Option<Vec<u64>>,
}

/// A round in which other machines are asked.
struct Asking {
    own: Waits,
    /// Answers of this round, by machine.
    heard: BTreeMap<u16, Option<Waits>>,
    end: Instant,
}

impl Still {
    /// Notes a fiber that has ended so, here or on another machine.
    pub(super) fn note(&mut self, fallen: Fallen) {
        if self.fallen.len() == FALLEN_MAX {
            self.fallen.pop_front();
        }
        self.fallen.push_back((fallen, Instant::now()));
        self.said = None;
        self.due.get_or_insert_with(|| deadline_after(Duration::from_millis(STILL_EVERY_MS)));
    }

    /// Takes the waits of another machine.
    pub(super) fn receive(&mut self, machine: u16, round: u64, waits: Option<Waits>) {
        if let Some(asking) = self.asking.as_mut().filter(|_| round == self.round) {
            asking.heard.insert(machine, waits);
        }
    }

    /// Does the work that is due. Returns the time of the next turn, if a message does not come first, and the report,
    /// if there is one.
    pub(super) fn turn(&mut self, others: &dyn Others) -> (Option<Instant>, Option<String>) {
        let fallen = std::mem::take(&mut *FALLEN.lock().unwrap_or_else(PoisonError::into_inner));
        fallen.into_iter().filter(|one| !others.pass_on(one)).for_each(|one| self.note(one));
        let now = Instant::now();
        if let Some(asking) = &self.asking {
            let machines = others.machines();
            if machines.iter().any(|machine| !asking.heard.contains_key(machine)) && now < asking.end {
                return (Some(asking.end), None);
            }
            let text = self.close(&machines);
            return (self.due, text);
        }
        if self.due.is_none_or(|due| now < due) {
            return (self.due, None);
        }
        let found = waits();
        let every = Duration::from_millis(STILL_EVERY_MS).max(COST_PARTS * now.elapsed());
        self.due = Some(deadline_after(every));
        let Some(own) = found else {
            self.before = None;
            return (self.due, None);
        };
        self.round += 1;
        let end = deadline_after(Duration::from_millis(RACK_ANSWER_MS));
        self.asking = Some(Asking { own, heard: BTreeMap::new(), end });
        if others.ask(self.round) {
            return (Some(end), None);
        }
        let text = self.close(&[]);
        (self.due, text)
    }

    /// Closes the round: all these machines have answered, or the time is up.
    fn close(&mut self, others: &[u16]) -> Option<String> {
        let Asking { own, mut heard, .. } = self.asking.take()?;
        let mut all = vec![own];
        all.extend(others.iter().filter_map(|machine| heard.remove(machine).flatten()));
        if all.len() <= others.len() {
            self.before = None; // a fiber goes on, or a machine does not answer
            return None;
        }
        let sums: Vec<u64> = all.iter().map(|waits| waits.sum).collect();
        let is_the_same = self.before.as_ref() == Some(&sums);
        self.before = Some(sums.clone());
        if !is_the_same || self.said.as_ref() == Some(&sums) || all.iter().all(|waits| waits.lines.is_empty()) {
            return None;
        }
        self.said = Some(sums);
        Some(text(&self.fallen, all.into_iter().flat_map(|waits| waits.lines).collect()))
    }
}

/// Formats the report: each line but the first begins with two spaces.
fn text(fallen: &VecDeque<(Fallen, Instant)>, lines: Vec<String>) -> String {
    let mut text = "no fiber can go on, unless a thread that is no worker ends one of these waits:".to_owned();
    for line in lines.iter().take(WAITS_MAX) {
        let _ = write!(text, "\n  {line}"); // a string takes it
    }
    if lines.len() > WAITS_MAX {
        let _ = write!(text, "\n  and {} more: `trust::dump` has all of a machine", lines.len() - WAITS_MAX);
    }
    text += "\n  before that:";
    for (Fallen(what), at) in fallen {
        let ago = at.elapsed().as_secs_f64();
        let _ = write!(text, "\n  {what} ({ago:.1} s ago)");
    }
    text
}

#[cfg(all(test, not(loom)))]
mod tests;
