//! Machines of a rack that look for cycles together: their messages, and when they are sent. Cycles, and when one is
//! believed: `paths.rs`.
//!
//! Machine 0 coordinates. A machine whose own rounds find a path that leads through it twice in a row tells machine 0,
//! which then asks all machines. Nothing is sent while no fiber waits so. Messages go from service thread to service
//! thread and are read and written by each machine's watcher thread: service threads wait for nothing.
//!
//! A machine that ends takes the program with it. Until then messages to it and messages it has not sent are lost, and
//! a round goes on without it when its time is up. Where the program outlives it, later rounds leave it out.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::circle::{Cycle, Node, Path};
use super::graph::Graph;
use super::paths::{CycleSearch, Next, Question, Verdict};
use super::still::{self, Fallen, Still, Waits};
use crate::config::{RACK_ANSWER_MS, RACK_SEARCH_EVERY_MS, WATCH_EVERY_MS};
use crate::deadline::{deadline_after, later};
use crate::fiber::record::now_ms;
use crate::ids::TrusteeId;
use crate::registry::{self, Message};

/// Number of the coordinating machine.
const COORDINATOR: u16 = 0;

/// This process's view of the rack.
pub(crate) struct Rack {
    /// The service threads, by machine.
    services: Vec<TrusteeId>,
    own: u16,
    /// Takes bytes to the service thread of another machine, and there to [`received`]; called on that of this machine.
    send: fn(TrusteeId, &[u8]),
    /// Machines that the program has outlived.
    lost: Mutex<HashSet<u16>>,
}

static RACK: OnceLock<Rack> = OnceLock::new();
/// Messages that have come from other machines.
static INBOX: Mutex<Vec<RackMessage>> = Mutex::new(Vec::new());

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum RackMessage {
    /// To machine 0: there are paths that leave this machine.
    Leaving,
    Ask(Question),
    ReportPaths {
        machine: u16,
        round: u64,
        paths: Vec<Path>,
    },
    Break {
        on: Node,
        why: String,
    },
    /// To machine 0: a fiber has ended by a panic, or was aborted.
    Fallen(Fallen),
    /// To all machines: asks for all of their waits.
    AskWaits {
        round: u64,
    },
    ReportWaits {
        machine: u16,
        round: u64,
        waits: Option<Waits>,
    },
}

/// Makes this process a machine of a rack with these service threads. Called once.
pub(crate) fn set(services: Vec<TrusteeId>, own: u16, send: fn(TrusteeId, &[u8])) {
    // A process is one machine of one rack.
    let _ = RACK.set(Rack { services, own, send, lost: Mutex::default() });
}

/// Leaves this machine, which is lost, out of all later rounds.
pub(crate) fn lose(machine: u16) {
    if let Some(rack) = RACK.get() {
        rack.lost().insert(machine);
    }
}

/// Takes a message of another machine. Bytes that are no message are ignored.
pub(crate) fn received(bytes: &[u8]) {
    let Ok((message, _)) = bincode::serde::decode_from_slice(bytes, bincode::config::standard()) else { return };
    INBOX.lock().unwrap_or_else(PoisonError::into_inner).push(message);
    super::wake_for_message();
}

fn take_messages() -> Vec<RackMessage> {
    std::mem::take(&mut *INBOX.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Rack {
    fn lost(&self) -> MutexGuard<'_, HashSet<u16>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machines that are not lost.
    fn machines(&self) -> Vec<u16> {
        let lost = self.lost();
        (0..self.services.len() as u16).filter(|machine| !lost.contains(machine)).collect()
    }

    fn others(&self) -> Vec<u16> {
        let mut machines = self.machines();
        machines.retain(|&machine| machine != self.own);
        machines
    }

    fn send(&self, machine: u16, message: &RackMessage) {
        let to = self.services.get(usize::from(machine));
        let bytes = bincode::serde::encode_to_vec(message, bincode::config::standard());
        let own = self.services.get(usize::from(self.own)).and_then(|&own| registry::find(own));
        if let (Some(&to), Ok(bytes), Some(own)) = (to, bytes, own) {
            let send = self.send;
            // A worker that takes no messages has ended, and all others before.
            let _ = own.send(Message::Run(Box::new(move || send(to, &bytes))));
        }
    }

    /// Asks this machine's workers.
    fn answer(question: &Question) -> Vec<Path> {
        let (reports, _) = super::ask(question.with_names);
        let mut paths = Graph::new(&reports).paths(now_ms(), question.with_names);
        paths.retain(|path| question.is_about(path));
        paths
    }

    fn carry_out(&self, Verdict { on, why }: Verdict) {
        let Node::Fiber(worker, ..) = on else { return };
        if worker.machine() == self.own {
            interrupt(on, why);
        } else {
            self.send(worker.machine(), &RackMessage::Break { on, why });
        }
    }
}

fn interrupt(on: Node, why: String) {
    if let Node::Fiber(worker, fiber, wait) = on
        && let Some(worker) = registry::find(worker)
    {
        // A worker that takes no messages has ended, and its fibers with it.
        let _ = worker.send(Message::Interrupt(fiber, wait, why.into_boxed_str()));
    }
}

/// The other machines, if this process is one of a rack.
pub(super) struct Others;

impl still::Others for Others {
    fn ask(&self, round: u64) -> bool {
        let Some(rack) = RACK.get() else { return false };
        let machines = rack.others();
        machines.iter().for_each(|&machine| rack.send(machine, &RackMessage::AskWaits { round }));
        !machines.is_empty()
    }

    fn pass_on(&self, fallen: &Fallen) -> bool {
        let elsewhere = RACK.get().filter(|rack| rack.own != COORDINATOR);
        elsewhere.inspect(|rack| rack.send(COORDINATOR, &RackMessage::Fallen(fallen.clone()))).is_some()
    }

    fn machines(&self) -> Vec<u16> {
        RACK.get().map_or_else(Vec::new, Rack::others)
    }
}

/// This machine's part: its own findings, and on machine 0 the coordinator.
#[derive(Default)]
pub(super) struct Part {
    /// Paths that the last round of this machine has found.
    paths: HashSet<Cycle>,
    search: CycleSearch,
    stage: Stage,
    /// Some machine has found paths since the coordinator has begun.
    is_wanted: bool,
}

/// Event that the coordinator waits for.
#[derive(Clone, Copy, Default)]
enum Stage {
    /// A machine finds a path.
    #[default]
    Idle,
    /// The end of a rest, at this time.
    Resting(Instant),
    /// Answers, up to this time.
    Asking(Instant),
    /// The time to look at the answers: some time is to pass between two rounds.
    Pausing(Instant),
}

impl Part {
    /// Notes the result of a round of this machine. True if another machine may be involved.
    pub(super) fn note(&mut self, graph: &Graph<'_>) -> bool {
        let Some(rack) = RACK.get() else { return false };
        let paths: HashSet<Cycle> = graph.paths(0, false).iter().map(Path::nodes).collect();
        if paths.intersection(&self.paths).next().is_some() {
            if rack.own == COORDINATOR {
                self.is_wanted = true;
            } else {
                rack.send(COORDINATOR, &RackMessage::Leaving);
            }
        }
        self.paths = paths;
        !self.paths.is_empty()
    }

    /// Does the work that is due. Returns the time of the next turn, if a message does not come first.
    pub(super) fn turn(&mut self, still: &mut Still) -> Option<Instant> {
        let rack = RACK.get()?;
        for message in take_messages() {
            match message {
                RackMessage::Leaving => self.is_wanted |= rack.own == COORDINATOR,
                RackMessage::Ask(question) => {
                    let paths = Rack::answer(&question);
                    rack.send(
                        COORDINATOR,
                        &RackMessage::ReportPaths { machine: rack.own, round: question.round, paths },
                    );
                }
                RackMessage::ReportPaths { machine, round, paths } => self.search.receive(machine, round, paths),
                RackMessage::Break { on, why } => interrupt(on, why),
                RackMessage::Fallen(fallen) => still.note(fallen),
                RackMessage::AskWaits { round } => {
                    rack.send(
                        COORDINATOR,
                        &RackMessage::ReportWaits { machine: rack.own, round, waits: still::waits() },
                    );
                }
                RackMessage::ReportWaits { machine, round, waits } => still.receive(machine, round, waits),
            }
        }
        loop {
            let now = Instant::now();
            match self.stage {
                Stage::Idle if self.is_wanted => self.begin(rack),
                Stage::Idle => return None,
                Stage::Resting(end) if now >= end => self.stage = Stage::Idle,
                Stage::Asking(end) if now >= end || self.search.is_complete() => {
                    let pause = later(now, Duration::from_millis(WATCH_EVERY_MS));
                    self.stage = Stage::Pausing(pause);
                }
                Stage::Pausing(end) if now >= end => self.close(rack),
                Stage::Resting(end) | Stage::Asking(end) | Stage::Pausing(end) => return Some(end),
            }
        }
    }

    fn begin(&mut self, rack: &Rack) {
        self.is_wanted = false;
        let question = self.search.begin(rack.machines().into_iter());
        self.ask(rack, question);
    }

    fn close(&mut self, rack: &Rack) {
        match self.search.close(rack.machines().into_iter()) {
            Next::Ask(question) => self.ask(rack, question),
            Next::Over(verdicts) => {
                verdicts.into_iter().for_each(|verdict| rack.carry_out(verdict));
                self.stage = Stage::Resting(deadline_after(Duration::from_millis(RACK_SEARCH_EVERY_MS)));
            }
        }
    }

    fn ask(&mut self, rack: &Rack, question: Question) {
        for machine in rack.others() {
            rack.send(machine, &RackMessage::Ask(question.clone()));
        }
        self.search.receive(rack.own, question.round, Rack::answer(&question));
        self.stage = Stage::Asking(deadline_after(Duration::from_millis(RACK_ANSWER_MS)));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ids::worker_id;
    use crate::runtime::watch::circle::{Answer, Step};

    #[test]
    fn a_lost_machine_is_left_out() {
        let services = (0..4).map(|machine| worker_id(machine, 2)).collect();
        let rack = Rack { services, own: 2, send: |_, _| unreachable!(), lost: Mutex::default() };
        assert_eq!((rack.machines(), rack.others()), (vec![0, 1, 2, 3], vec![0, 1, 3]));
        rack.lost().extend([1, 1]);
        assert_eq!((rack.machines(), rack.others()), (vec![0, 2, 3], vec![0, 3]));
    }

    #[test]
    fn what_is_sent_is_what_comes() {
        let [here, there] = [0, 1].map(|machine| worker_id(machine, 3));
        let words = ["fiber 1".to_owned(), "a value".to_owned()];
        let steps = [Node::Fiber(here, 4, 5), Node::Gather(there, 6, here, 16)];
        let step = |node| Step { node, waited_ms: 7, can_leave: true, words: words.clone() };
        let (from, to) = (Answer { client: here, token: 1 }, Answer { client: there, token: u64::MAX });
        let path = Path { from, to, steps: steps.map(step).to_vec() };
        let question = Question { round: 9, only: Some(vec![from, to]), with_names: true };
        for message in [
            RackMessage::Leaving,
            RackMessage::Ask(question),
            RackMessage::ReportPaths { machine: 65_000, round: 2, paths: vec![path] },
            RackMessage::Break { on: steps[0], why: "deadlock".to_owned() },
            RackMessage::AskWaits { round: 3 },
            RackMessage::ReportWaits { machine: 1, round: 3, waits: Some(Waits::default()) },
        ] {
            let bytes = bincode::serde::encode_to_vec(&message, bincode::config::standard()).unwrap();
            let (back, used) =
                bincode::serde::decode_from_slice::<RackMessage, _>(&bytes, bincode::config::standard()).unwrap();
            assert_eq!((back, used), (message, bytes.len()));
            // A part of a message is no message.
            for cut in 0..bytes.len() {
                let part =
                    bincode::serde::decode_from_slice::<RackMessage, _>(&bytes[..cut], bincode::config::standard());
                assert!(part.is_err());
            }
        }
    }
}
