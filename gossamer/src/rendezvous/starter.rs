//! Launcher of the processes: it is notified of their end, and this process ends with it.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::pmi::Pmi;
use super::pmix::Pmix;
use super::{Limit, RendezvousError, end_with_starter};
use crate::fate;

/// Launcher of this process.
pub(super) enum Starter {
    /// No launcher that needs messages.
    None,
    /// A process manager with PMI; also its socket, for messages that cannot wait for another thread's answer.
    Pmi(Mutex<Pmi>, File),
    /// A process manager with PMIx.
    Pmix(Box<Pmix>),
}

impl Starter {
    /// Makes a launcher of a process manager with PMI.
    pub(super) fn pmi(pmi: Pmi) -> Result<Starter, RendezvousError> {
        let socket = pmi.socket().map_err(RendezvousError::system("keep PMI_FD"))?;
        Ok(Starter::Pmi(Mutex::new(pmi), socket))
    }

    /// Exchanges machine 0's address: machine 0 gives it (`Some`), all wait for one another, and the others get it.
    pub(super) fn publish(&self, value: Option<&[u8]>, limit: &Limit) -> Result<Option<Vec<u8>>, RendezvousError> {
        match self {
            Starter::None => Ok(None),
            Starter::Pmi(pmi, _) => pmi.lock().unwrap_or_else(PoisonError::into_inner).exchange(value, limit),
            Starter::Pmix(pmix) => pmix.exchange(value, limit),
        }
    }

    /// Makes this process end when the launcher on its host has gone, which no other machine may see.
    pub(super) fn watch(self: &Arc<Starter>) -> Result<(), RendezvousError> {
        match &**self {
            Starter::None => Ok(()),
            Starter::Pmi(..) => {
                let starter = Arc::clone(self);
                let watch = move || starter.end_with_socket();
                let thread = std::thread::Builder::new().name("gossamer-pmi".to_owned()).stack_size(128 * 1024);
                let watch = move || fate::or_end("the thread that watches the process manager", watch);
                thread.spawn(watch).map(drop).map_err(RendezvousError::system("start a thread"))
            }
            Starter::Pmix(pmix) => {
                pmix.watch();
                Ok(())
            }
        }
    }

    /// Waits until the other end of PMI's socket is closed, and ends the process. A goodbye closes the socket as well.
    fn end_with_socket(&self) {
        let Starter::Pmi(pmi, socket) = self else { return };
        loop {
            let mut ready = [PollFd::new(socket, PollFlags::RDHUP)];
            match poll(&mut ready, None) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(_) => return, // no memory: its end is not seen
            }
        }
        if !pmi.lock().unwrap_or_else(PoisonError::into_inner).is_finalized() {
            end_with_starter();
        }
    }

    /// Says goodbye: this process is about to end in order.
    pub(super) fn finalize(&self) {
        match self {
            Starter::None => {}
            Starter::Pmi(pmi, _) => pmi.lock().unwrap_or_else(PoisonError::into_inner).finalize(),
            Starter::Pmix(pmix) => pmix.finalize(),
        }
    }

    /// Asks the launcher to end all processes, stopped ones too; this one may be among them.
    pub(super) fn abort(&self, status: u8, why: &str) {
        match self {
            Starter::None => {}
            // One write: another thread that waits for an answer is not in the middle of a line. The launcher may have
            // gone.
            Starter::Pmi(_, socket) => drop((&*socket).write_all(format!("cmd=abort exitcode={status}\n").as_bytes())),
            Starter::Pmix(pmix) => pmix.abort(status, why),
        }
    }
}
