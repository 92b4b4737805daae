//! A program in which nothing goes on any more after a fiber has ended by a panic, or was aborted: who waits for what
//! is said, and which fiber it was, for others may wait for what it would have done.
//!
//! Before a fiber has ended so nothing of this happens. From then on all workers are asked now and then. The program
//! stands still where in two rounds each of its fibers, on all machines, is in the same wait for something that only a
//! fiber or a closure gives, all workers answer, and none has a timer set. A thread that is no worker may end a wait
//! all the same, so it is said, and nothing is done about it.
//!
//! On a rack machine 0 asks the others, if it stands still itself, and says it.

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

/// Fibers that have ended so are told of, the last ones.
const FALLEN_MAX: usize = 4;
/// As many waits are told of.
const WAITS_MAX: usize = 20;
/// A round costs each worker the time to look at its fibers: rounds take one part in so many of it.
const COST_PARTS: u32 = 50;

/// How fibers have ended, told to nobody yet.
static NEWS: Mutex<Vec<Fallen>> = Mutex::new(Vec::new());

/// A fiber that others may wait for in vain: which it was, and how it has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Fallen(String);

/// The waits of all fibers of a machine that stands still.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Waits {
    /// Another number as soon as any fiber is in another wait.
    sum: u64,
    /// Those that have waited longest first.
    lines: Vec<String>,
}

/// The current fiber has ended with this payload of a panic.
#[cold]
pub(crate) fn note_fallen(payload: &(dyn Any + Send)) {
    let who = worker::existing(|worker: &Worker| (worker.scheduler.name_of_current(), worker.id));
    let Some((name, id)) = who else { return };
    let name = name.unwrap_or_else(|| "a fiber".to_owned());
    let text = match payload.downcast_ref::<Aborted>() {
        Some(_) => format!("{name} of {id:?} was aborted"),
        None => format!("{name} of {id:?} has panicked: {}", panic_text(payload)),
    };
    let mut news = NEWS.lock().unwrap_or_else(PoisonError::into_inner);
    if news.len() < FALLEN_MAX {
        news.push(Fallen(text));
    }
    drop(news);
    super::unpark();
}

/// The waits of all fibers of this machine; `None` if any of them may go on by itself.
pub(super) fn waits() -> Option<Waits> {
    let (reports, unanswered) = super::ask(true);
    unanswered.is_empty().then(|| waits_of(&reports, now_ms())).flatten()
}

/// For something that only a fiber or a closure of the program gives, however long it takes.
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

/// The rest of the rack, to the machine that says it.
pub(super) trait Others {
    /// Asks all of them what they wait for. False if there are none.
    fn ask(&self, round: u64) -> bool;
    /// Tells the machine that says it. False if this is that one.
    fn pass_on(&self, fallen: &Fallen) -> bool;
    /// How many there are.
    fn count(&self) -> usize;
}

/// Of this machine.
#[derive(Default)]
pub(super) struct Still {
    fallen: VecDeque<(Fallen, Instant)>,
    /// When it is looked again; `None` before any fiber has ended so.
    due: Option<Instant>,
    asking: Option<Asking>,
    round: u64,
    /// The findings of the last round, by machine.
    before: Option<Vec<u64>>,
    /// Those that have been said.
    said: Option<Vec<u64>>,
}

/// Other machines are asked.
struct Asking {
    own: Waits,
    /// By machine, of this round.
    heard: BTreeMap<u16, Option<Waits>>,
    end: Instant,
}

impl Still {
    /// A fiber has ended so, here or on another machine.
    pub(super) fn note(&mut self, fallen: Fallen) {
        if self.fallen.len() == FALLEN_MAX {
            self.fallen.pop_front();
        }
        self.fallen.push_back((fallen, Instant::now()));
        self.said = None;
        self.due.get_or_insert_with(|| deadline_after(Duration::from_millis(STILL_EVERY_MS)));
    }

    /// The waits of another machine.
    pub(super) fn hear(&mut self, machine: u16, round: u64, waits: Option<Waits>) {
        if let Some(asking) = self.asking.as_mut().filter(|_| round == self.round) {
            asking.heard.insert(machine, waits);
        }
    }

    /// Does what there is to do. Returns when to come again, if not for a message, and what there is to say.
    pub(super) fn turn(&mut self, others: &dyn Others) -> (Option<Instant>, Option<String>) {
        let news = std::mem::take(&mut *NEWS.lock().unwrap_or_else(PoisonError::into_inner));
        news.into_iter().filter(|fallen| !others.pass_on(fallen)).for_each(|fallen| self.note(fallen));
        let now = Instant::now();
        if let Some(asking) = &self.asking {
            if asking.heard.len() < others.count() && now < asking.end {
                return (Some(asking.end), None);
            }
            let text = self.close(others.count());
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
        let text = self.close(0);
        (self.due, text)
    }

    /// All have answered, or will not in time.
    fn close(&mut self, others: usize) -> Option<String> {
        let Asking { own, heard, .. } = self.asking.take()?;
        let mut all = vec![own];
        all.extend(heard.into_values().flatten());
        if all.len() <= others {
            self.before = None; // somebody goes on, or does not answer
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

/// The report, in lines of which each but the first begins with two spaces.
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
