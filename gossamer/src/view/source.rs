//! Program that can be viewed, on any host.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use trust::link::deadline_after;

use crate::control::Look;

/// Answers of the machines of a program.
#[derive(Debug, Default)]
pub struct Answer {
    /// The bytes of each machine that answered in time.
    pub machines: Vec<(u16, Vec<u8>)>,
    /// Reasons why others did not answer, in words.
    pub troubles: Vec<String>,
}

/// Age after which samples of a running program are taken anew.
const SAMPLE_AGE: Duration = Duration::from_millis(400);

/// Program that can be viewed.
pub trait Source: Send + Sync {
    /// Asks all machines, and waits for their answers, no longer than `limit` beyond the time that the question itself
    /// takes.
    fn look(&self, look: Look, limit: Duration) -> Answer;

    /// Returns the age that a sample shown to the next viewer may have.
    fn sample_age(&self) -> Duration {
        SAMPLE_AGE
    }
}

/// Returns the time to wait for the answer to a question.
#[must_use]
pub fn answer_limit(look: Look, limit: Duration) -> Duration {
    match look {
        Look::Trace(time) => time.saturating_add(limit),
        Look::Sample | Look::Dump | Look::Move { .. } => limit,
    }
}

/// Returns the most bytes that all answers to a question may take together.
#[must_use]
pub fn answer_bytes_max(look: Look) -> usize {
    match look {
        Look::Sample => 32 << 20,
        Look::Dump => 64 << 20,
        Look::Move { .. } => 1 << 20,
        Look::Trace(_) => 512 << 20, // 4 MiB a worker, as numbers of fixed size
    }
}

/// Answers, assembled from their parts.
#[derive(Debug)]
pub struct Parts {
    machines: BTreeMap<u16, Answering>,
    /// Whether these are all machines.
    are_known: bool,
    /// Bytes that may still be kept.
    room: usize,
    until: Instant,
}

/// Progress of a machine's answer.
#[derive(Debug)]
enum Answering {
    Coming(Vec<u8>),
    Whole(Vec<u8>),
    /// Dropped, for want of room here, or on its way.
    Dropped,
}

impl Parts {
    /// Starts with no parts, for the answers of these machines to a question, which may take `limit` beyond its own
    /// time.
    #[must_use]
    pub fn new(machines: impl IntoIterator<Item = u16>, look: Look, limit: Duration) -> Parts {
        let machines = machines.into_iter().map(|machine| (machine, Answering::Coming(Vec::new()))).collect();
        let until = deadline_after(answer_limit(look, limit));
        Parts { machines, are_known: true, room: answer_bytes_max(look), until }
    }

    /// Starts in the same way if it is not known which machines will answer.
    #[must_use]
    pub fn of_any(look: Look, limit: Duration) -> Parts {
        Parts { are_known: false, ..Parts::new([], look, limit) }
    }

    /// Adds a part.
    pub fn add(&mut self, machine: u16, bytes: &[u8], is_last: bool) {
        if !self.are_known {
            self.machines.entry(machine).or_insert_with(|| Answering::Coming(Vec::new()));
        }
        let Some(Answering::Coming(sum)) = self.machines.get_mut(&machine) else { return };
        if bytes.len() > self.room {
            return self.drop_answer(machine);
        }
        self.room -= bytes.len();
        sum.extend_from_slice(bytes);
        if is_last {
            let whole = std::mem::take(sum);
            self.machines.insert(machine, Answering::Whole(whole));
        }
    }

    /// Drops the answer of a machine, with the parts that have come.
    pub fn drop_answer(&mut self, machine: u16) {
        if let Some(answering) = self.machines.get_mut(&machine)
            && let Answering::Coming(bytes) = answering
        {
            self.room += bytes.len();
            *answering = Answering::Dropped;
        }
    }

    /// Forgets a machine with an incomplete answer: that is reported elsewhere.
    pub fn forget(&mut self, machine: u16) {
        self.machines.retain(|other, answering| *other != machine || matches!(answering, Answering::Whole(_)));
    }

    /// Returns whether all have come, or were dropped.
    #[must_use]
    pub fn are_complete(&self) -> bool {
        self.machines.values().all(|answering| !matches!(answering, Answering::Coming(_)))
    }

    /// Returns the time to wait still, unless all have come.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        (!self.are_complete() && !left.is_zero()).then_some(left)
    }

    /// Returns the complete answers, with reasons for the others.
    #[must_use]
    pub fn into_answer(self) -> Answer {
        let mut answer = Answer::default();
        let mut dropped = Vec::new();
        for (machine, answering) in self.machines {
            match answering {
                Answering::Whole(bytes) => answer.machines.push((machine, bytes)),
                Answering::Coming(_) => answer.troubles.push(format!("machine {machine} has not answered in time")),
                Answering::Dropped => dropped.push(machine),
            }
        }
        answer.troubles.extend(dropped_text(&dropped));
        answer
    }
}

/// Returns the message that the answers of these machines were dropped; none if there are none.
#[must_use]
pub fn dropped_text(machines: &[u16]) -> Option<String> {
    let names: Vec<String> = machines.iter().take(NAMED_MAX).map(u16::to_string).collect();
    let more = if machines.len() > NAMED_MAX { ", .." } else { "" };
    let what = match machines.len() {
        0 => return None,
        1 => "the answer of 1 machine was".to_owned(),
        count => format!("the answers of {count} machines were"),
    };
    let why = "they came faster than they were taken, or are too long";
    Some(format!("{what} dropped ({}{more}): {why}", names.join(", ")))
}

/// Most machines that a message names.
const NAMED_MAX: usize = 16;

/// Longest wait for the outcome of a move, beyond the two seconds that a thread has for it.
pub const MOVE_LIMIT: Duration = Duration::from_secs(4);

/// Returns the outcome of a question to a thread to move: [`DONE`](super::threads::DONE), or why it has not.
#[must_use]
pub fn move_text(answer: &Answer) -> String {
    let told = answer.machines.iter().map(|(_, bytes)| String::from_utf8_lossy(bytes));
    let outcome = told.filter(|text| !text.is_empty()).map(String::from).next();
    outcome.unwrap_or_else(|| match answer.troubles.is_empty() {
        true => "no machine has such a thread".to_owned(),
        false => answer.troubles.join("; "),
    })
}

/// Returns the dumps of all machines, each line behind the machine's name.
#[must_use]
pub fn dump_text(answer: &Answer) -> String {
    let mut text = String::new();
    for (machine, bytes) in &answer.machines {
        for line in String::from_utf8_lossy(bytes).lines() {
            text += &format!("m{machine} | {line}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn answers_are_whole_or_told() {
        let mut parts = Parts::new([0, 1, 2], Look::Sample, LIMIT);
        parts.add(1, b"on", false);
        parts.add(3, b"nobody's", true);
        parts.add(1, b"e", true);
        parts.add(1, b"more", true);
        parts.add(2, b"begun", false);
        assert!(!parts.are_complete() && parts.left().is_some());
        parts.drop_answer(2);
        parts.add(2, b"again", true);
        parts.add(0, b"", true);
        assert!(parts.are_complete() && parts.left().is_none());
        let answer = parts.into_answer();
        assert_eq!(answer.machines, [(0, Vec::new()), (1, b"one".to_vec())]);
        assert!(
            answer.troubles.len() == 1 && answer.troubles[0].contains("of 1 machine was dropped (2)"),
            "{answer:?}"
        );
    }

    #[test]
    fn answers_without_end_take_bounded_memory() {
        for look in [Look::Sample, Look::Dump] {
            let mut parts = Parts::of_any(look, LIMIT);
            let piece = vec![0; 1 << 20];
            let pieces = answer_bytes_max(look) / piece.len();
            parts.add(5, b"short", true);
            // Each alone would fit.
            (0..pieces - 1).for_each(|_| parts.add(6, &piece, false));
            (0..pieces - 1).for_each(|_| parts.add(7, &piece, false));
            let kept = |parts: &Parts| -> usize {
                let bytes = |answering: &Answering| match answering {
                    Answering::Coming(bytes) | Answering::Whole(bytes) => bytes.len(),
                    Answering::Dropped => 0,
                };
                parts.machines.values().map(bytes).sum()
            };
            assert!(kept(&parts) <= answer_bytes_max(look));
            // The room of a dropped one is for others.
            (0..4 * pieces).for_each(|_| parts.add(6, &piece, false));
            assert_eq!(kept(&parts), 5);
            parts.add(8, &piece, true);
            let answer = parts.into_answer();
            assert_eq!(answer.machines.len(), 2);
            assert!(
                answer.troubles[0].contains("the answers of 2 machines were dropped (6, 7)"),
                "{:?}",
                answer.troubles
            );
        }
    }
}
