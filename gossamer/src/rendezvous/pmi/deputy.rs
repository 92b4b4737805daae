//! Goodbye to the process manager where a wrapper, such as a script, has its socket as well. The wrapper's next program
//! needs the socket, which the process manager closes after a goodbye; without a goodbye it kills all others when the
//! wrapper ends.
//!
//! So a separate process, the deputy, holds the socket until the wrapper ends, and says goodbye then. It is forked
//! before the machine has any memory that is large or shared, and makes only system calls. The deputy is the owner of
//! the socket (`F_SETOWN`); by this the next program finds that there is one.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::super::mark;

const GOODBYE: &[u8] = b"cmd=finalize\n";
/// Time for the process manager's answer to it.
const ANSWER_TIMEOUT_MS: i32 = 1000;
/// Most ancestors that are checked for a wrapper.
const WRAPPERS_MAX: usize = 64;

/// Ensures that a deputy says goodbye to the process manager when the wrapper of this process ends. False if there is
/// no wrapper, or if that fails: this process must say goodbye.
pub(super) fn is_there(socket: &File, number: RawFd) -> bool {
    let Some(wrapper) = wrapper(number) else { return false };
    // SAFETY: [deputy-system-calls]: F_GETOWN takes an open descriptor and answers a process; no memory is involved.
    if unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_GETOWN) } > 0 {
        return true;
    }
    // If the system has no such descriptors, or forbids them, the deputy could not see the wrapper end.
    let Ok(wrapper) = pidfd_open(wrapper, PidfdFlags::empty()) else { return false };
    fork(socket.as_fd(), &wrapper)
}

/// Returns the outermost ancestor of this process in an unbroken line with the same socket at the same number.
fn wrapper(number: RawFd) -> Option<Pid> {
    let file = |pid: i32| std::fs::read_link(PathBuf::from(format!("/proc/{pid}/fd/{number}"))).ok();
    let own = file(rustix::process::getpid().as_raw_nonzero().get())?;
    let parents = std::iter::successors(rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get()), |pid| {
        mark::parent(*pid).filter(|parent| *parent > 0)
    });
    let wrappers = parents.take(WRAPPERS_MAX).take_while(|pid| file(*pid).as_ref() == Some(&own));
    wrappers.last().and_then(Pid::from_raw)
}

/// Forks the deputy by a child that ends at once: so the deputy is no child of the program, which may wait for all its
/// children.
fn fork(socket: BorrowedFd<'_>, wrapper: &OwnedFd) -> bool {
    let (socket, wrapper) = (socket.as_raw_fd(), wrapper.as_raw_fd());
    // SAFETY: [deputy-system-calls]: both children make system calls only, as they must where the process has other
    // threads.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: [deputy-system-calls]: as above; both descriptors are open.
        unsafe {
            match libc::fork() {
                0 => stay(socket, wrapper),
                deputy => libc::_exit(i32::from(deputy < 0)),
            }
        }
    }
    let mut status = -1;
    // SAFETY: [deputy-system-calls]: the status is memory of this frame.
    while child > 0 && unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            break;
        }
    }
    status == 0
}

/// Runs the deputy: it holds no output, terminal or process group of another process.
///
/// # Safety
/// To be called in a process that was forked for it, with these descriptors open.
unsafe fn stay(socket: RawFd, wrapper: RawFd) -> ! {
    // SAFETY: [deputy-system-calls]: system calls that take numbers, and memory of this frame.
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
            // The process manager complains if there is no reader for its answer.
            let mut answer = of(socket, libc::POLLIN);
            libc::poll(&raw mut answer, 1, ANSWER_TIMEOUT_MS);
        }
        libc::_exit(0)
    }
}
