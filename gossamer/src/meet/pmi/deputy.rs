//! The one that says goodbye to the process manager where a wrapper, such as a script, has its socket as well: the next
//! program of the wrapper needs the socket, which the process manager closes after a goodbye; without one it kills all
//! others when the wrapper ends.
//!
//! So a process of its own, the deputy, has the socket until the wrapper ends, and says goodbye then. It is forked
//! before the machine has any memory that is large or shared, and makes nothing but system calls. The owner of the
//! socket (`F_SETOWN`) is the deputy, by which the next program finds that there is one.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::super::mark;

const GOODBYE: &[u8] = b"cmd=finalize\n";
/// How long the process manager may take to answer it.
const ANSWER_TIMEOUT_MS: i32 = 1000;
/// How far up a wrapper is looked for.
const WRAPPERS_MAX: usize = 64;

/// Sees to it that the process manager is told goodbye when the wrapper of this process ends. False if there is none,
/// or if that cannot be done: the goodbye is left to this process.
pub(super) fn is_there(socket: &File, number: RawFd) -> bool {
    let Some(wrapper) = wrapper(number) else { return false };
    // SAFETY: PMI2: F_GETOWN takes an open descriptor and answers a process; no memory is involved.
    if unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_GETOWN) } > 0 {
        return true;
    }
    // Where the system has no such descriptors, or they are forbidden, nobody could see the wrapper end.
    let Ok(wrapper) = pidfd_open(wrapper, PidfdFlags::empty()) else { return false };
    fork(socket.as_fd(), &wrapper)
}

/// The first of those ancestors of this process that have the same socket at the same number.
fn wrapper(number: RawFd) -> Option<Pid> {
    let file = |pid: i32| std::fs::read_link(PathBuf::from(format!("/proc/{pid}/fd/{number}"))).ok();
    let own = file(rustix::process::getpid().as_raw_nonzero().get())?;
    let parents = std::iter::successors(rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get()), |pid| {
        mark::parent(*pid).filter(|parent| *parent > 0)
    });
    let wrappers = parents.take(WRAPPERS_MAX).take_while(|pid| file(*pid).as_ref() == Some(&own));
    wrappers.last().and_then(Pid::from_raw)
}

/// By a child that ends at once, so that the deputy is no child of the program, which may wait for all of its own.
fn fork(socket: BorrowedFd<'_>, wrapper: &OwnedFd) -> bool {
    let (socket, wrapper) = (socket.as_raw_fd(), wrapper.as_raw_fd());
    // SAFETY: PMI2: both children make system calls only, which is all that they may where the process has other
    // threads.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: PMI2: as above; both descriptors are open.
        unsafe {
            match libc::fork() {
                0 => stay(socket, wrapper),
                deputy => libc::_exit(i32::from(deputy < 0)),
            }
        }
    }
    let mut status = -1;
    // SAFETY: PMI2: the status is memory of this frame.
    while child > 0 && unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            break;
        }
    }
    status == 0
}

/// The deputy: nobody's output, terminal or process group is held up by it.
///
/// # Safety
/// In a process that was forked for it, with these descriptors open.
unsafe fn stay(socket: RawFd, wrapper: RawFd) -> ! {
    // SAFETY: PMI2: system calls that take numbers, and memory of this frame.
    unsafe {
        libc::setsid();
        libc::fcntl(socket, libc::F_SETOWN, libc::getpid());
        let (first, second) = (socket.min(wrapper) as u32, socket.max(wrapper) as u32);
        for (from, to) in [(0, first.wrapping_sub(1)), (first + 1, second - 1), (second + 1, u32::MAX)] {
            if from <= to {
                libc::syscall(libc::SYS_close_range, from, to, 0);
            }
        }
        let of = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let mut both = [of(socket, libc::POLLRDHUP), of(wrapper, libc::POLLIN)];
        while libc::poll(both.as_mut_ptr(), 2, -1) < 0 {} // interrupted
        if both[0].revents == 0 && libc::write(socket, GOODBYE.as_ptr().cast(), GOODBYE.len()) > 0 {
            // It complains where nobody is there to hear its answer.
            let mut answer = of(socket, libc::POLLIN);
            libc::poll(&raw mut answer, 1, ANSWER_TIMEOUT_MS);
        }
        libc::_exit(0)
    }
}
