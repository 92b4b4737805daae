//! Standard input for machine 0. The other machines get `/dev/null`.
//!
//! A file or a pipe is inherited. A terminal is not: the machines are in process groups of their own, so that Ctrl-C
//! reaches the launcher alone, and a process outside the terminal's foreground group is stopped when it reads. So a
//! thread here reads the terminal and passes its input on. It never changes the terminal's modes, and it reads only
//! while the launcher is in the foreground, so that a launcher in the background is not stopped either.
//!
//! A non-blocking descriptor is read by a thread here, too: programs take "nothing there yet" for an error.

use std::io::{self, IsTerminal, Read, Write};
use std::process::{ChildStdin, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use serde::{Deserialize, Serialize};

use crate::panics;

const CHUNK_BYTES: usize = 16 * 1024;
const FOREGROUND_CHECK: Duration = Duration::from_millis(100);

/// Machine that reads the launcher's standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Reader {
    /// Machine 0. The launcher may read ahead of it.
    #[default]
    #[value(name = "0")]
    Machine0,
    /// None: each machine reads an end of file. The launcher reads nothing either.
    None,
}

/// Returns the standard input to start machine 0 with.
pub fn for_machine_0(reader: Reader) -> Stdio {
    match reader {
        Reader::None => Stdio::null(),
        Reader::Machine0 if io::stdin().is_terminal() || is_nonblocking() => Stdio::piped(),
        Reader::Machine0 => Stdio::inherit(),
    }
}

fn is_nonblocking() -> bool {
    fcntl_getfl(rustix::stdio::stdin()).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// Passes standard input on, to its end or until the machine reads no more. Nobody joins the thread: it may wait for a
/// key for ever, and ends with the launcher.
pub fn forward(mut machine: ChildStdin) -> io::Result<()> {
    let pass_on = move || pump(|bytes| machine.write_all(bytes).is_ok());
    panics::spawn("input", pass_on).map(drop)
}

/// Reads standard input to its end, or until `take` returns false.
pub fn pump(mut take: impl FnMut(&[u8]) -> bool) {
    let mut chunk = [0u8; CHUNK_BYTES];
    loop {
        if !in_foreground() {
            std::thread::sleep(FOREGROUND_CHECK);
            continue;
        }
        match io::stdin().read(&mut chunk) {
            Ok(0) => return,
            Ok(bytes) if take(&chunk[..bytes]) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => until_readable(),
            _ => return,
        }
    }
}

/// Waits for input or its end, at most until the next check for the foreground.
fn until_readable() {
    let timeout = rustix::event::Timespec::try_from(FOREGROUND_CHECK).ok();
    // Interrupted or refused: the next read reports it.
    let _ = poll(&mut [PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN)], timeout.as_ref());
}

fn in_foreground() -> bool {
    match rustix::termios::tcgetpgrp(rustix::stdio::stdin()) {
        Ok(group) => group == rustix::process::getpgrp(),
        Err(_) => true, // not our terminal: a read stops nobody
    }
}
