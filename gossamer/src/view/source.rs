//! A program that can be looked at, wherever it runs.

use std::sync::mpsc;
use std::time::{Duration, Instant};
use trust::link::deadline_after;

use super::answer::Answers;
use crate::control::Look;
use crate::rack::try_program;

/// What the machines of a program have answered.
#[derive(Debug, Default)]
pub struct Answer {
    /// Of each machine that answered in time: its bytes.
    pub machines: Vec<(u16, Vec<u8>)>,
    /// What kept others from it, in words.
    pub troubles: Vec<String>,
}

/// Samples of a running program are asked for anew when they are older.
const SAMPLE_AGE: Duration = Duration::from_millis(400);

/// A program that can be looked at.
pub trait Source: Send + Sync {
    /// Asks all machines, and waits for their answers, no longer than this beyond what the question itself takes.
    fn look(&self, look: Look, limit: Duration) -> Answer;

    /// How old a sample may be that is shown to who asks next.
    fn sample_age(&self) -> Duration {
        SAMPLE_AGE
    }
}

/// The program of this very process, if it is all of it.
pub struct Here;

impl Source for Here {
    fn look(&self, look: Look, limit: Duration) -> Answer {
        static ANSWERS: std::sync::OnceLock<Answers> = std::sync::OnceLock::new();
        let Some(program) = try_program() else { return Answer::default() };
        let (tell, told) = mpsc::channel();
        let reply = move |bytes| drop(tell.send(bytes)); // who asked may have gone
        ANSWERS.get_or_init(Answers::default).answer(look, Box::new(reply));
        let machines = told.recv_timeout(answer_limit(look, limit)).ok().map(|bytes| (program.rack.machine(), bytes));
        Answer { machines: machines.into_iter().collect(), troubles: Vec::new() }
    }
}

/// How long to wait for the answer to a question.
#[must_use]
pub fn answer_limit(look: Look, limit: Duration) -> Duration {
    match look {
        Look::Trace(time) => time.saturating_add(limit),
        Look::Sample | Look::Dump => limit,
    }
}

/// Parts of answers, put together.
#[derive(Debug)]
pub struct Parts {
    machines: Vec<(u16, Vec<u8>, bool)>,
    until: Instant,
}

/// The longest answer of a machine that is kept.
const ANSWER_BYTES_MAX: usize = 1 << 30;

impl Parts {
    /// For the answers of these machines, which may take so long.
    #[must_use]
    pub fn new(machines: impl IntoIterator<Item = u16>, limit: Duration) -> Parts {
        let machines = machines.into_iter().map(|machine| (machine, Vec::new(), false)).collect();
        Parts { machines, until: deadline_after(limit) }
    }

    /// A part has come.
    pub fn add(&mut self, machine: u16, bytes: &[u8], is_last: bool) {
        let known = self.machines.iter_mut().find(|(known, _, is_whole)| *known == machine && !is_whole);
        let Some((_, sum, is_whole)) = known else { return };
        if sum.len() + bytes.len() <= ANSWER_BYTES_MAX {
            sum.extend_from_slice(bytes);
            *is_whole = is_last;
        }
    }

    /// Whether all have come.
    #[must_use]
    pub fn are_complete(&self) -> bool {
        self.machines.iter().all(|(_, _, is_whole)| *is_whole)
    }

    /// How long to wait still, unless all have come.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        (!self.are_complete() && !left.is_zero()).then_some(left)
    }

    /// Those that have come whole.
    #[must_use]
    pub fn into_answer(self) -> Answer {
        let is_silent = |(machine, ..): &&(u16, Vec<u8>, bool)| format!("machine {machine} has not answered in time");
        let troubles = self.machines.iter().filter(|(_, _, is_whole)| !is_whole).map(|it| is_silent(&it)).collect();
        let whole = self.machines.into_iter().filter(|(_, _, is_whole)| *is_whole);
        Answer { machines: whole.map(|(machine, bytes, _)| (machine, bytes)).collect(), troubles }
    }
}

/// What all machines tell in a dump, each line behind the machine's name.
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
