//! Questions of who watches a program, passed on to its machines on this host, and their answers.
//!
//! Invariant: what machines answer goes to who asked, never to the program's launcher; where nobody waits for it any more it is dropped.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gossamer::control::Look;
use gossamer::view::source::{Parts, answer_limit};

use super::Daemon;
use super::connection::answer;
use crate::wire::link::Link;
use crate::wire::{BEAT_MS, ProgramId, Reply, Sender, ToPart, WireError};

/// The longest that a host waits for answers, beyond what the question itself takes.
const LIMIT_MS_MAX: u32 = 60_000;

type Part = (u16, bool, Vec<u8>);

/// The questions that wait for answers.
#[derive(Default)]
pub(super) struct Looks(Mutex<State>);

#[derive(Default)]
struct State {
    last: u32,
    open: BTreeMap<u32, (ProgramId, mpsc::Sender<Part>)>,
}

impl Looks {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, program: ProgramId) -> (u32, mpsc::Receiver<Part>) {
        let (tell, told) = mpsc::channel();
        let mut state = self.lock();
        state.last = state.last.wrapping_add(1);
        let ask = state.last;
        state.open.insert(ask, (program, tell));
        (ask, told)
    }

    /// A machine of this program has answered.
    pub(super) fn deliver(&self, program: ProgramId, machine: u16, ask: u32, is_last: bool, bytes: Vec<u8>) {
        if let Some((_, tell)) = self.lock().open.get(&ask).filter(|(of, _)| *of == program) {
            let _ = tell.send((machine, is_last, bytes)); // it has just given up
        }
    }
}

/// Asks the machines, and passes their answers on.
pub(super) fn serve(
    daemon: &Arc<Daemon>,
    mut link: Link,
    program: ProgramId,
    look: Vec<u8>,
    limit_ms: u32,
) -> Result<(), WireError> {
    let Some(machines) = daemon.programs.machines(program) else { return answer(link, &Reply::Unknown) };
    let Some(asked) = Look::from_bytes(&look) else {
        return answer(link, &Reply::Refused("this is no question to a machine".to_owned()));
    };
    let limit = Duration::from_millis(limit_ms.min(LIMIT_MS_MAX).into());
    let mut waited_for = Parts::new(machines.iter().copied(), answer_limit(asked, limit));
    let (ask, told) = daemon.looks.open(program);
    let talk = || -> Result<Vec<u16>, WireError> {
        let mut silent = machines.clone();
        if !daemon.programs.tell(program, &ToPart::Look { ask, look }) {
            return Ok(silent);
        }
        while let Some(left) = waited_for.left() {
            match told.recv_timeout(left.min(Duration::from_millis(BEAT_MS))) {
                Ok((machine, is_last, bytes)) => {
                    waited_for.add(machine, &[], is_last);
                    silent.retain(|other| !(is_last && *other == machine));
                    link.sender.send_message(&Reply::Seen { machine, is_last, bytes })?;
                }
                Err(RecvTimeoutError::Timeout) => link.sender.send_message(&Reply::Beat)?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(silent)
    };
    let talked = talk();
    daemon.looks.lock().open.remove(&ask);
    answer(link, &Reply::SeenEnd(talked?))
}
