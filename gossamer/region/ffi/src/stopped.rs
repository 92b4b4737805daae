//! Calls that the filters of threads stop (`trap.rs`), and the files that answer them.

use std::ffi::{c_int, c_long};

use crate::call::Call;
use crate::end_of_program::_exit;
use crate::real::real;
use crate::trap::{self, Stopped};
use crate::{exec, files, futex, places, side};

pub(crate) const CALLS: Stopped = Stopped { numbers, answer };

fn answer(call: &Call) -> isize {
    match call.number {
        libc::SYS_futex => futex::call(call),
        _ if !side::is_machine_in_program() => call.execute(),
        libc::SYS_execve => exec::call(call.arguments),
        // The C library then executes the descriptor's path.
        libc::SYS_execveat => -libc::ENOSYS as isize,
        libc::SYS_exit_group => _exit(call.arguments[0] as c_int),
        libc::SYS_mmap if side::own_machine() == 0 => places::map(call),
        libc::SYS_mmap if call.arguments[3] & libc::MAP_ANONYMOUS as usize != 0 => call.execute(),
        number => files::call(number, call.arguments),
    }
}

fn numbers() -> Vec<c_long> {
    let mut numbers = vec![libc::SYS_execve, libc::SYS_execveat, libc::SYS_exit_group];
    match side::own_machine() {
        0 => numbers.push(libc::SYS_mmap),
        _ => numbers.extend(files::numbers()),
    }
    numbers
}

/// The C library's function. Libraries wait and wake by it, so a futex is answered here and not stopped: a stop costs
/// many times as much as a wake without waiters.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    first: usize,
    second: usize,
    third: usize,
    fourth: usize,
    fifth: usize,
    sixth: usize,
) -> c_long {
    if number != libc::SYS_futex || !side::is_in_program() || !trap::is_on() {
        return real!(
            syscall: fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long,
            number, first, second, third, fourth, fifth, sixth
        );
    }
    // SAFETY: the calling thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let result = futex::call(&Call { number, arguments: [first, second, third, fourth, fifth, sixth] });
    // SAFETY: as above.
    unsafe { *errno = if result < 0 { -result as c_int } else { before } };
    if result < 0 { -1 } else { result as c_long }
}
