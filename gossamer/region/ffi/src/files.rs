//! Descriptors and open files, which are machine 0's: a thread of another machine has its system calls on descriptors
//! and paths done there, so that there is one table of descriptors and one order of calls, as in one process.
//!
//! `calls.rs`: the calls, and the memory that each reads and writes; `image.rs`: a call on its way; `blocking.rs`:
//! threads that do it; `maps.rs`: copies of files that the C library maps; `streams.rs`: open `FILE`s.

mod blocking;
mod calls;
mod image;
mod maps;
pub(crate) mod streams;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ffi::{c_int, c_uint};
use std::sync::{Mutex, PoisonError};

use blocking::Threads;
pub(crate) use calls::numbers;
use image::{Answer, Request, encode};

use crate::{descriptors, ids, side, table};

/// Threads that do calls.
static CALLERS: Threads = Threads::new(|| {});

/// From a thread of the program on another machine than 0: does a system call of [`numbers`], or maps a file. Returns
/// its result, or the negative error.
pub(crate) fn call(number: i64, arguments: [usize; 6]) -> isize {
    let arguments = arguments.map(|argument| argument as u64);
    let result = side::outside_without_signals(move || match number {
        libc::SYS_mmap => maps::map(arguments),
        _ => forward(number, arguments),
    });
    if result == -i64::from(libc::EPIPE) && ends_by_pipe(number, &arguments) {
        raise_pipe();
    }
    result as isize
}

/// Prints the message for a call, the first time. A program goes on as on a system without the call.
fn tell(number: i64, name: Option<&str>) {
    static TOLD: Mutex<BTreeSet<i64>> = Mutex::new(BTreeSet::new());
    if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(number) {
        let name = name.map_or_else(|| format!("system call {number}"), str::to_owned);
        eprintln!(
            "gossamer: {name} does not work in threads of other machines than the first: {} called it; call it in \
             threads of the first machine (--threads-at), or use one machine (--local 1)",
            ids::caller(),
        );
    }
}

/// Has machine 0 do a call. On our side.
fn forward(number: i64, arguments: [u64; 6]) -> i64 {
    if let Some(name) = calls::refused(number) {
        #[cfg(target_arch = "x86_64")]
        if number == libc::SYS_vfork {
            const WHEN: &str = "in a thread of another machine than the first";
            crate::refused::refuse("vfork", const { region_calls::call("vfork", WHEN) });
            return -i64::from(libc::ENOTSUP);
        }
        tell(number, Some(name));
        return -i64::from(libc::ENOSYS);
    }
    let Some(parts) = calls::parts(number, &arguments) else {
        let is_ioctl = number == libc::SYS_ioctl;
        let name = is_ioctl.then(|| format!("ioctl with the request {:#x}", arguments[1]));
        tell(number, name.as_deref());
        return -i64::from(if is_ioctl { libc::ENOTTY } else { libc::ENOSYS });
    };
    let is_shared = |address: u64, bytes: usize| table::are_shared(address as usize, bytes);
    match encode(number, arguments, &parts, &is_shared) {
        Ok((request, pending)) => pending.store(&side::at_with(0, serve, request)),
        Err(errno) => -i64::from(errno),
    }
}

/// In a fiber of machine 0.
fn serve(request: Request) -> Answer {
    if let Some(result) = around_ours(request.number, &request.arguments) {
        return Answer::of(result);
    }
    CALLERS.wait_for(move || execute(&request)).unwrap_or_else(|| Answer::failed(libc::EAGAIN))
}

fn execute(request: &Request) -> Answer {
    let answer = request.execute();
    if answer.result == -i64::from(libc::EPIPE) {
        take_pipe();
    }
    answer
}

/// On machine 0: the result of a call that would close one of our descriptors.
fn around_ours(number: i64, arguments: &[u64; 6]) -> Option<i64> {
    let is_ours = |at: usize| descriptors::is_ours(arguments[at] as c_int);
    let is_refused = match number {
        libc::SYS_close => is_ours(0),
        libc::SYS_dup3 => is_ours(0) || is_ours(1),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => is_ours(0) || is_ours(1),
        libc::SYS_close_range if arguments[0] as c_uint <= arguments[1] as c_uint => {
            let flags = arguments[2] as c_uint;
            let parts = descriptors::parts_of(arguments[0] as c_uint, arguments[1] as c_uint);
            // SAFETY: descriptors of the program.
            let close = |(first, last): (c_uint, c_uint)| unsafe { libc::syscall(number, first, last, flags) };
            let failed = parts.into_iter().map(close).any(|done| done != 0);
            return Some(if failed { -i64::from(libc::EINVAL) } else { 0 });
        }
        _ => false,
    };
    is_refused.then_some(-i64::from(libc::EBADF))
}

/// Whether a call that fails by `EPIPE` sends the caller a signal.
fn ends_by_pipe(number: i64, arguments: &[u64; 6]) -> bool {
    let flags = match number {
        libc::SYS_sendto | libc::SYS_sendmmsg => arguments[3],
        libc::SYS_sendmsg => arguments[2],
        _ => 0,
    };
    flags & libc::MSG_NOSIGNAL as u64 == 0
}

/// Takes the signal that the calling thread, which blocks it, has been sent.
fn take_pipe() {
    let (set, none) = (crate::mask::set_with(libc::SIGPIPE), libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: it reads both.
    unsafe { libc::syscall(libc::SYS_rt_sigtimedwait, &raw const set, 0, &raw const none, 8) };
}

/// In the program's code: sends the signal as the program's action wants it: to the calling thread, or to the program,
/// which it ends.
fn raise_pipe() {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: it fills the structure.
    let handler = unsafe {
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction
    };
    match handler {
        libc::SIG_IGN => {}
        libc::SIG_DFL => side::at(0, || {
            // SAFETY: this process, which the signal ends.
            unsafe { libc::kill(side::process().cast_signed(), libc::SIGPIPE) };
        }),
        _ => {
            // SAFETY: the calling thread.
            unsafe { libc::syscall(libc::SYS_tgkill, side::process(), libc::gettid(), libc::SIGPIPE) };
        }
    }
}
