//! Questions of watchers about a program with all machines on this host, in a form for `poll`: a pipe wakes the thread
//! that has the machines. Matching of answers to questions: `gossamer::view::looks`.

use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use gossamer::control::Look;
use gossamer::view::looks::{self, Looker};
use rustix::fs::{OFlags, fcntl_setfl};

/// End of the thread that has the machines.
pub struct Looks {
    woken: PipeReader,
    inner: looks::Looks,
}

/// Makes both ends, for a program with this many machines.
///
/// # Errors
/// When the process has no file descriptors left.
pub fn channel(machines: u16) -> io::Result<(Looker, Looks)> {
    let (woken, wake) = io::pipe()?;
    fcntl_setfl(&woken, OFlags::NONBLOCK)?;
    fcntl_setfl(&wake, OFlags::NONBLOCK)?;
    let wake = move || drop((&wake).write(&[0])); // full: it will wake anyway
    let (looker, inner) = looks::channel(machines, wake);
    Ok((looker, Looks { woken, inner }))
}

impl Looks {
    /// Returns a descriptor that is readable when a watcher has asked.
    #[must_use]
    pub fn asked(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }

    /// Returns the questions since the last call, each with its number.
    pub fn questions(&mut self) -> Vec<(u32, Look)> {
        let _ = (&self.woken).read(&mut [0; 256]); // nothing there: nobody has asked
        self.inner.questions()
    }

    /// Notes that the program goes on without this machine.
    pub fn lose(&mut self, machine: u16) {
        self.inner.lose(machine);
    }

    /// Passes on an answer of a machine.
    pub fn on_seen(&mut self, machine: u16, ask: u32, is_last: bool, bytes: Vec<u8>) {
        self.inner.on_seen(machine, ask, is_last, bytes);
    }
}
