//! Stacks of workers that do not come to their loop, while a viewer is there.
//!
//! Here: when they are sampled, and which frames are shown. `capture`: registers and memory of a thread; `modules`:
//! unwinding and names.
//!
//! Invariants: nothing is captured, installed or loaded unless a worker is stuck and a viewer asks; a worker is sampled
//! at most once in [`AGAIN`]; the tables of the sampler go with its thread, once no worker is stuck.

mod capture;
mod modules;

use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use trust::link::thread_id;
use trust::{TrusteeId, TrusteeReference};

use modules::{Frame, Modules};

/// Time between two samples of a worker.
const AGAIN: Duration = Duration::from_secs(5);
/// Most frames that are shown.
const FRAMES_MAX: usize = 32;
/// Fewest frames of a sleeping thread that are taken for its stack: with fewer, unwinding has failed.
const SLEEPING_FRAMES_MIN: usize = 3;

/// Stack of a worker's thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// Functions, the innermost first: names with file and line where the executable has them, else the module and an
    /// offset in it. Frames of the runtime under the closure or fiber are left out.
    pub frames: Vec<String>,
    /// Reason why there are no frames, if there are none.
    pub missing: String,
}

/// The last samples.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    /// The sampling thread, if a worker is stuck.
    sampler: Option<Sender<TrusteeReference>>,
    found: Arc<Mutex<Found>>,
}

type Found = HashMap<TrusteeId, Sample>;

#[derive(Debug)]
struct Sample {
    asked: Instant,
    is_pending: bool,
    stack: Option<Stack>,
}

impl Stacks {
    /// Notes the workers that are stuck now, and has those sampled that were not lately.
    pub(super) fn update(&mut self, stuck: &[TrusteeReference]) {
        if stuck.is_empty() {
            if self.sampler.is_some() {
                *self = Stacks::default(); // a sample under way goes to the old map
            }
            return;
        }
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.retain(|worker, _| stuck.iter().any(|other| other.id() == *worker));
        for worker in stuck {
            let sample = found.get(&worker.id());
            if sample.is_some_and(|sample| sample.is_pending || sample.asked.elapsed() < AGAIN) {
                continue;
            }
            if self.sampler.is_none() {
                self.sampler = start(Arc::clone(&self.found));
            }
            if self.sampler.as_ref().is_some_and(|sampler| sampler.send(*worker).is_ok()) {
                let stack = sample.and_then(|sample| sample.stack.clone());
                found.insert(worker.id(), Sample { asked: Instant::now(), is_pending: true, stack });
            }
        }
    }

    /// Returns the stack of a worker that is stuck, if it is known by now.
    pub(super) fn of(&self, worker: TrusteeReference) -> Option<Stack> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.get(&worker.id())?.stack.clone()
    }
}

fn start(found: Arc<Mutex<Found>>) -> Option<Sender<TrusteeReference>> {
    let (sender, asked) = mpsc::channel();
    let sample = move || sample_all(&asked, &found);
    thread::Builder::new().name("gossamer-stacks".to_owned()).spawn(sample).ok().map(|_| sender)
}

/// Samples until there is nobody to ask for it.
fn sample_all(asked: &Receiver<TrusteeReference>, found: &Mutex<Found>) {
    let mut modules = Modules::load();
    while let Ok(worker) = asked.recv() {
        let stack = stack_of(worker, &mut modules);
        // Not there if the worker has come to its loop meanwhile.
        if let Some(sample) = found.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&worker.id()) {
            (sample.is_pending, sample.stack) = (false, Some(stack));
        }
    }
}

/// Returns the stacks of these workers, for a dump.
pub(super) fn text_of(workers: &[TrusteeReference]) -> String {
    let mut text = String::new();
    if workers.is_empty() {
        return text;
    }
    let mut modules = Modules::load();
    for worker in workers {
        let Stack { frames, missing } = stack_of(*worker, &mut modules);
        if frames.is_empty() {
            text += &format!("no stack of {:?}: {missing}\n", worker.id());
            continue;
        }
        text += &format!("stack of {:?}:\n", worker.id());
        frames.iter().for_each(|frame| text += &format!("  {frame}\n"));
    }
    text
}

fn stack_of(worker: TrusteeReference, modules: &mut Modules) -> Stack {
    match frames_of(worker, modules) {
        Ok(frames) => Stack { frames: of_program(frames), missing: String::new() },
        Err(missing) => Stack { frames: Vec::new(), missing },
    }
}

/// Returns all frames of this worker's thread.
fn frames_of(worker: TrusteeReference, modules: &mut Modules) -> Result<Vec<Frame>, String> {
    let thread = thread_id(worker).ok_or("its thread has ended")?;
    let sleeping = capture::of_sleeping(thread).map(|capture| modules.unwind(&capture));
    let addresses = match sleeping {
        Some(addresses) if addresses.len() >= SLEEPING_FRAMES_MIN => addresses,
        _ => modules.unwind(&capture::by_signal(thread)?),
    };
    Ok(addresses.into_iter().flat_map(|address| modules.frames(address)).collect())
}

/// Leaves out the runtime's frames at the outer end; all stay if there are no others.
fn of_program(mut frames: Vec<Frame>) -> Vec<String> {
    let last = frames.iter().rposition(|frame| !frame.is_runtime);
    frames.truncate(last.map_or(FRAMES_MAX, |last| (last + 1).min(FRAMES_MAX)));
    frames.into_iter().map(|frame| frame.text).collect()
}

#[cfg(test)]
mod tests;
