//! Answers to the viewers of this machine, in a thread that starts with the first question and ends when none has come
//! for [`WATCHED`]. Long ones (a dump, a trace) are answered by a thread of their own.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use trust::link::later;

use super::chrome::MachineTrace;
use super::probe::{LOOK_AGAIN, Probes};
use super::sample::{MachineSample, workers};
use super::{stacks, threads};
use crate::control::{Control, Look, MAX_SEEN_BYTES, Message};

/// Time after a request for a sample during which the machine counts as watched.
pub(super) const WATCHED: Duration = Duration::from_secs(3);
/// Interval of the probes meanwhile.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Destination of an answer.
type Reply = Box<dyn FnOnce(Vec<u8>) + Send>;

/// Answering thread, if there is one now.
#[derive(Default)]
pub(crate) struct Answers {
    sampler: Arc<Mutex<Option<Sender<Reply>>>>,
}

impl Answers {
    /// Answers a question of the launcher.
    pub(crate) fn look(&self, control: &Arc<Control>, ask: u32, look: Look) {
        let control = Arc::clone(control);
        self.answer(look, Box::new(move |bytes| send(&control, ask, &bytes)));
    }

    /// Answers a question. Without a thread there is no answer.
    pub(super) fn answer(&self, look: Look, reply: Reply) {
        match look {
            Look::Sample => self.sample(reply),
            Look::Dump => drop(spawn(move || reply(dump().into_bytes()))),
            Look::Move { thread, machine } => drop(spawn(move || reply(threads::go(thread, machine).into_bytes()))),
            Look::Trace(time) => drop(spawn(move || reply(MachineTrace::take(time).to_bytes()))),
        }
    }

    fn sample(&self, reply: Reply) {
        let mut sampler = self.sampler.lock().unwrap_or_else(PoisonError::into_inner);
        let reply = match &*sampler {
            Some(asked) => match asked.send(reply) {
                Ok(()) => return,
                Err(mpsc::SendError(reply)) => reply,
            },
            None => reply,
        };
        let (asked, questions) = mpsc::channel();
        let _ = asked.send(reply); // its receiver is here
        let own = Arc::clone(&self.sampler);
        *sampler = spawn(move || sample_all(&questions, &own)).ok().map(|()| asked);
    }
}

/// Returns the waits of all fibers, and the stacks of the threads that do not tell theirs; or the state of a machine
/// that has no workers yet.
fn dump() -> String {
    let dump = trust::dump();
    let waits = format!("{dump}{}", stacks::text_of(&trust::link::unanswered(&dump)));
    if waits.is_empty() { "no worker has started yet: this machine waits for the others".to_owned() } else { waits }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    thread::Builder::new().name("gossamer-view".to_owned()).spawn(work).map(drop)
}

/// Answers, and probes, until no question has come for a while.
fn sample_all(questions: &mpsc::Receiver<Reply>, own: &Mutex<Option<Sender<Reply>>>) {
    let mut probes = Probes::default();
    let (mut asked_at, mut probe_at) = (Instant::now(), Instant::now());
    loop {
        let now = Instant::now();
        let is_due = now >= probe_at;
        if is_due {
            probe_at = later(now, PROBE_EVERY);
        }
        probes.look(&workers(), is_due);
        let wait = probe_at.saturating_duration_since(Instant::now());
        match questions.recv_timeout(if probes.are_waiting() { wait.min(LOOK_AGAIN) } else { wait }) {
            Ok(reply) => {
                asked_at = Instant::now();
                probes.look(&workers(), false);
                reply(MachineSample::take(&probes).map_or_else(Vec::new, |sample| sample.to_bytes()));
            }
            Err(RecvTimeoutError::Timeout) if asked_at.elapsed() < WATCHED => {}
            Err(_) => {
                let mut sampler = own.lock().unwrap_or_else(PoisonError::into_inner);
                match questions.try_recv() {
                    Ok(reply) => {
                        drop(sampler);
                        asked_at = Instant::now();
                        reply(MachineSample::take(&probes).map_or_else(Vec::new, |sample| sample.to_bytes()));
                    }
                    // No sender is left: the next question starts another thread.
                    Err(_) => return *sampler = None,
                }
            }
        }
    }
}

/// Sends an answer to the launcher, in parts.
fn send(control: &Control, ask: u32, bytes: &[u8]) {
    let parts = bytes.len().div_ceil(MAX_SEEN_BYTES).max(1);
    for part in 0..parts {
        let end = bytes.len().min((part + 1) * MAX_SEEN_BYTES);
        let bytes = bytes[part * MAX_SEEN_BYTES..end].to_vec();
        // A launcher that is gone ends this process.
        if control.send(&Message::Seen { ask, is_last: part + 1 == parts, bytes }).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_goes_when_nobody_asks_and_comes_back() {
        let answers = Answers::default();
        let is_there = || answers.sampler.lock().unwrap().is_some();
        assert!(!is_there(), "nobody has asked");
        for _ in 0..2 {
            let (tell, told) = mpsc::channel();
            let asked = Instant::now();
            for _ in 0..3 {
                let tell = tell.clone();
                answers.answer(Look::Sample, Box::new(move |bytes| tell.send(bytes).unwrap()));
                told.recv_timeout(Duration::from_secs(30)).expect("an answer, though no program runs");
            }
            assert!(is_there());
            while is_there() {
                assert!(asked.elapsed() < WATCHED + limits::HANG, "the thread stays");
                thread::sleep(Duration::from_millis(50));
            }
            assert!(asked.elapsed() >= WATCHED);
        }
    }
}
