//! Questions of watchers about a program, passed on to its machines on this host, and their answers.
//!
//! Invariants: a machine's answer goes to the watcher that asked, never to the program's launcher; where the watcher
//! has given up the answer is dropped. The waiting answers are bounded, for each question and for all: a watcher that
//! reads slowly, or was stopped, learns which machines' answers were dropped.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gossamer::control::Look;
use gossamer::view::backlog::{self, Backlog, Given, Giver, Part};
use gossamer::view::source::Parts;

use super::Daemon;
use crate::wire::link::Link;
use crate::wire::{BEAT_MS, ProgramId, Reply, Sender, ToPart, WireError};

/// Longest wait of a host for answers, beyond the time that the question itself takes.
const LIMIT_MS_MAX: u32 = 60_000;

/// Most bytes of waiting answers, to one question and to all.
const WAITING_MAX: usize = 32 << 20;
const ALL_WAITING_MAX: usize = 64 << 20;

/// Open questions.
pub(super) struct Looks {
    state: Mutex<State>,
    waiting: Arc<Backlog>,
}

#[derive(Default)]
struct State {
    last: u32,
    open: BTreeMap<u32, (ProgramId, Giver)>,
}

impl Default for Looks {
    fn default() -> Self {
        Looks { state: Mutex::default(), waiting: Backlog::new(ALL_WAITING_MAX) }
    }
}

impl Looks {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the last question: late answers to earlier ones are not taken for those to later ones.
    pub(super) fn last(&self) -> u32 {
        self.lock().last
    }

    /// Goes on after the last question of a former daemon.
    pub(super) fn resume(&self, last: u32) {
        self.lock().last = last;
    }

    fn open(&self, program: ProgramId) -> (u32, Receiver<Given>) {
        let (tell, told) = backlog::channel(vec![Backlog::new(WAITING_MAX), Arc::clone(&self.waiting)]);
        let mut state = self.lock();
        state.last = state.last.wrapping_add(1);
        let ask = state.last;
        state.open.insert(ask, (program, tell));
        (ask, told)
    }

    /// Passes on the answer of a machine of this program.
    pub(super) fn deliver(&self, program: ProgramId, machine: u16, ask: u32, is_last: bool, bytes: Vec<u8>) {
        if let Some((_, tell)) = self.lock().open.get_mut(&ask).filter(|(of, _)| *of == program) {
            tell.give(machine, is_last, bytes); // the watcher may have just given up
        }
    }

    /// Notes that the answer of a machine was dropped on its way here.
    pub(super) fn drop_answer(&self, program: ProgramId, machine: u16, ask: u32) {
        if let Some((_, tell)) = self.lock().open.get_mut(&ask).filter(|(of, _)| *of == program) {
            tell.drop_answer(machine); // as above
        }
    }
}

/// Asks the machines, and passes their answers on.
pub(super) fn serve(
    daemon: &Arc<Daemon>,
    mut link: Link,
    program: ProgramId,
    look: Look,
    limit_ms: u32,
) -> Result<(), WireError> {
    let Some(machines) = daemon.programs.machines(program) else { return link.answer(&Reply::Unknown) };
    let limit = Duration::from_millis(limit_ms.min(LIMIT_MS_MAX).into());
    let mut waited_for = Parts::new(machines.iter().copied(), look, limit);
    let (ask, told) = daemon.looks.open(program);
    let mut talk = || -> Result<Reply, WireError> {
        let (mut silent, mut dropped) = (machines.clone(), Vec::new());
        if !daemon.programs.tell(program, &ToPart::Look { ask, look }) {
            return Ok(Reply::SeenEnd { silent, dropped });
        }
        while let Some(left) = waited_for.left() {
            match told.recv_timeout(left.min(Duration::from_millis(BEAT_MS))) {
                Ok(Given { machine, part, .. }) if !machines.contains(&machine) => drop(part), // not on this host
                Ok(mut given) => {
                    let machine = given.machine;
                    match std::mem::replace(&mut given.part, Part::Dropped) {
                        Part::Bytes(bytes, is_last) => {
                            waited_for.add(machine, &[], is_last);
                            silent.retain(|other| !(is_last && *other == machine));
                            link.sender.send_message(&Reply::Seen { machine, is_last, bytes })?;
                        }
                        Part::Dropped => {
                            waited_for.drop_answer(machine);
                            silent.retain(|other| *other != machine);
                            dropped.push(machine);
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => link.sender.send_message(&Reply::Beat)?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(Reply::SeenEnd { silent, dropped })
    };
    let talked = talk();
    daemon.looks.lock().open.remove(&ask);
    link.answer(&talked?)
}
