//! PMI-1, the text protocol of process managers over an inherited socket (`PMI_FD`): Slurm's `--mpi=pmi2`, MPICH's
//! hydra, Flux. One line each way, `cmd=… key=value …`.
#![allow(unsafe_code)] // an inherited descriptor comes as a number

mod deputy;

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};
use trust::link::deadline_after;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::FdFlags;

use super::detect::PmiVariables;
use super::{Limit, REPORT_INTERVAL, RendezvousError};
use crate::complain::complain;

/// Key of machine 0's value, followed by a number, for programs that follow one another in the same place.
pub(super) const KEY: &str = "gossamer-meeting";
/// Longest line that is read.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Time in which the process manager must answer requests that need no other process.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Time in which it must acknowledge the goodbye.
const FINALIZE_TIMEOUT: Duration = Duration::from_secs(1);

/// Connection to the process manager.
pub(super) struct Pmi {
    socket: std::fs::File,
    unread: Vec<u8>,
    rank: u16,
    space: String,
    value_bytes_max: usize,
    /// Another process says goodbye, when no other program can follow.
    has_deputy: bool,
    is_finalized: bool,
}

type Answer = HashMap<String, String>;

/// Returns whether this is a socket that this process has inherited, and has not opened itself.
pub(super) fn is_handed_over(fd: i32) -> bool {
    // SAFETY: F_GETFD takes any number and answers EBADF when it is no descriptor; no memory is involved.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    if flags < 0 || fd < 3 || flags & libc::FD_CLOEXEC != 0 {
        return false;
    }
    // SAFETY: [pmi-descriptor]: it is open, and nothing in this process closes the descriptor that PMI_FD names.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::net::sockopt::socket_type(file).is_ok()
}

impl Pmi {
    /// Takes over the inherited descriptor, and introduces this process.
    pub(super) fn connect(variables: &PmiVariables, limit: &Limit) -> Result<Pmi, RendezvousError> {
        let fd = variables.fd;
        if !is_handed_over(fd) {
            return Err(RendezvousError::PmiClosed { fd });
        }
        // SAFETY: [pmi-descriptor]: the process manager left this descriptor open for this process (it is open,
        // inherited and none of the standard streams), and `gossamer::main`, which calls this once, is the only user of
        // PMI_FD.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC).map_err(RendezvousError::system("take over PMI_FD"))?;
        let mut pmi = Pmi::over(fd.into(), variables.rank, limit)?;
        pmi.has_deputy = deputy::is_there(&pmi.socket, variables.fd);
        Ok(pmi)
    }

    fn over(socket: std::fs::File, rank: u16, limit: &Limit) -> Result<Pmi, RendezvousError> {
        let mut pmi = Pmi {
            socket,
            unread: Vec::new(),
            rank,
            space: String::new(),
            value_bytes_max: 0,
            has_deputy: false,
            is_finalized: false,
        };
        let time = ANSWER_TIMEOUT.min(limit.left());
        pmi.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", time).map_err(|error| match error {
            RendezvousError::System { source, .. } if is_closed(&source) => RendezvousError::Pmi(
                "it has closed the socket that PMI_FD names, for it was told that this process needs it no longer: \
                 start each program with an mpiexec of its own"
                    .into(),
            ),
            error => error,
        })?;
        let maxes = pmi.ask("cmd=get_maxes", "maxes", time)?;
        pmi.value_bytes_max = maxes.get("vallen_max").and_then(|most| most.parse().ok()).unwrap_or(256);
        let name = pmi.ask("cmd=get_my_kvsname", "my_kvsname", time)?;
        pmi.space =
            name.get("kvsname").cloned().ok_or_else(|| RendezvousError::Pmi("it names no key-value space".into()))?;
        Ok(pmi)
    }

    /// Exchanges machine 0's value: machine 0 gives it, all wait for one another, and the others get it.
    pub(super) fn exchange(&mut self, value: Option<&[u8]>, limit: &Limit) -> Result<Option<Vec<u8>>, RendezvousError> {
        if let Some(value) = value {
            // Values are text.
            let text = hex::encode(value);
            if text.len() >= self.value_bytes_max {
                let (bytes, most) = (text.len(), self.value_bytes_max);
                return Err(RendezvousError::Pmi(format!(
                    "a value of {bytes} bytes is too long for it, which takes {most}"
                )));
            }
            let number = self.last_published(limit)?.map_or(0, |(number, _)| number + 1);
            let put = format!("cmd=put kvsname={} key={KEY}-{number} value={text}", self.space);
            self.ask(&put, "put_result", ANSWER_TIMEOUT.min(limit.left()))?;
        }
        self.barrier(limit)?;
        if value.is_some() {
            return Ok(None);
        }
        let value = self.last_published(limit)?.and_then(|(_, text)| hex::decode(text).ok());
        value.map(Some).ok_or_else(|| RendezvousError::Pmi("machine 0 has not said where it is".into()))
    }

    /// Returns machine 0's last value, and its number: earlier programs of the same wrapper have met as well.
    fn last_published(&mut self, limit: &Limit) -> Result<Option<(u32, String)>, RendezvousError> {
        let mut last = None;
        for number in 0.. {
            let get = format!("cmd=get kvsname={} key={KEY}-{number}", self.space);
            match self.ask(&get, "get_result", ANSWER_TIMEOUT.min(limit.left())) {
                Ok(mut found) => last = found.remove("value").map(|text| (number, text)),
                Err(RendezvousError::Pmi(_)) => break, // there is none
                Err(error) => return Err(error),
            }
        }
        Ok(last)
    }

    /// Waits until all have come to the barrier, within the time limit of the start. The process manager does not tell
    /// which are missing.
    fn barrier(&mut self, limit: &Limit) -> Result<(), RendezvousError> {
        self.send("cmd=barrier_in")?;
        loop {
            match self.answer("barrier_out", REPORT_INTERVAL.min(limit.left())) {
                Ok(_) => return Ok(()),
                Err(RendezvousError::System { source, .. }) if source.kind() == io::ErrorKind::TimedOut => {}
                Err(error) => return Err(error),
            }
            if limit.left().is_zero() {
                return Err(RendezvousError::Barrier(limit.timeout));
            }
            if self.rank == 0 {
                let waited = limit.start.elapsed().as_secs();
                complain(format_args!("waiting for other tasks at PMI's barrier, {waited} s of {:?}", limit.timeout));
            }
        }
    }

    /// Says goodbye: this process is about to end in order.
    pub(super) fn finalize(&mut self) {
        self.is_finalized = true;
        if self.has_deputy {
            return;
        }
        // The process manager may have gone: then there is nothing to tell it.
        let _ = self.ask("cmd=finalize", "finalize_ack", FINALIZE_TIMEOUT);
    }

    /// Returns whether this process has said goodbye.
    pub(super) fn is_finalized(&self) -> bool {
        self.is_finalized
    }

    /// Returns the same connection, for callers that may not wait for an answer.
    pub(super) fn socket(&self) -> io::Result<std::fs::File> {
        self.socket.try_clone()
    }

    fn ask(&mut self, words: &str, answer: &str, time: Duration) -> Result<Answer, RendezvousError> {
        self.send(words)?;
        self.answer(answer, time)
    }

    fn send(&mut self, words: &str) -> Result<(), RendezvousError> {
        let sent = self.socket.write_all(format!("{words}\n").as_bytes());
        sent.map_err(RendezvousError::system("write to the process manager (PMI_FD)"))
    }

    /// Reads the next line, which must be this answer and report no error.
    fn answer(&mut self, wanted: &str, time: Duration) -> Result<Answer, RendezvousError> {
        let line = self
            .line(deadline_after(time))
            .map_err(RendezvousError::system("read from the process manager (PMI_FD)"))?;
        let pairs = line.split_whitespace().filter_map(|pair| pair.split_once('='));
        let answer: Answer = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let is_well = answer.get("rc").is_none_or(|code| code == "0");
        match answer.get("cmd") {
            Some(found) if found == wanted && is_well => Ok(answer),
            // A key or a secret may be in the line: it is not shown.
            Some(found) => Err(RendezvousError::Pmi(format!(
                "it answers {found:?} with rc={:?}, not {wanted:?}",
                answer.get("rc")
            ))),
            None => Err(RendezvousError::Pmi("it sent a line that is not PMI-1".to_owned())),
        }
    }

    fn line(&mut self, deadline: Instant) -> io::Result<String> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            if self.unread.len() > LINE_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok();
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], timeout.as_ref()) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let mut some = [0; 4096];
            match self.socket.read(&mut some)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => self.unread.extend_from_slice(&some[..bytes]),
            }
        }
    }
}

/// Returns whether the other end is gone.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof)
}

#[cfg(test)]
mod tests;
