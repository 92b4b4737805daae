//! Our own descriptors, which lie above those that the program gets: it opens 3, 4, .. as in one process, and its loops
//! of `close` and its `dup2` do not reach ours.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_uint};
use std::sync::OnceLock;

use libc::rlimit;

use crate::real::real;
use crate::{refused, side};

/// Number from which ours lie, if the process may have more descriptors than that.
const BASE: c_int = 1024;
/// Descriptors that the runtime has room for.
const ROOM: c_int = 512;

static OURS: OnceLock<BTreeSet<c_int>> = OnceLock::new();
/// Limits of the process before this file raised one.
static LIMIT: OnceLock<rlimit> = OnceLock::new();

/// Fillers of the numbers below ours, while the runtime starts.
pub(crate) struct Fillers(Vec<c_int>);

/// Variables by which the launcher names descriptors that a machine inherits: `machine:number,number,..` and
/// `number:device:inode`.
const MEMORY: &str = "COMM_SHM";
const CONTROL: &str = gossamer::bootstrap::CONTROL;

/// Moves the launcher's descriptors up, and occupies the numbers that are to be the program's. Called before the
/// runtime opens any, while no other thread runs.
pub(crate) fn fill() -> Fillers {
    let base = base_of(*LIMIT.get_or_init(limit));
    for (variable, of_numbers) in [(MEMORY, 1), (CONTROL, 0)] {
        if let Ok(text) = std::env::var(variable) {
            let moved = with_numbers(&text, of_numbers, |number| move_up(number, base));
            // SAFETY: no other thread runs.
            unsafe { std::env::set_var(variable, moved) };
        }
    }
    // SAFETY: a path that ends with a zero.
    let first = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    let mut fillers = vec![first];
    // Ends: each call takes the lowest free number, or fails.
    while fillers.last().is_some_and(|last| (0..base).contains(last)) {
        // SAFETY: a descriptor of this function.
        fillers.push(unsafe { libc::fcntl(first, libc::F_DUPFD_CLOEXEC, 0) });
    }
    // The last one is none, or not below.
    close_here(fillers.pop().unwrap_or(-1));
    Fillers(fillers)
}

/// Replaces the numbers in one of a text's fields.
fn with_numbers(text: &str, field: usize, mut replace: impl FnMut(c_int) -> c_int) -> String {
    let mut number = |text: &str| text.parse().map_or_else(|_| text.to_owned(), |number| replace(number).to_string());
    let fields = text.split(':').enumerate().map(|(at, text)| match at == field {
        true => text.split(',').map(&mut number).collect::<Vec<_>>().join(","),
        false => text.to_owned(),
    });
    fields.collect::<Vec<_>>().join(":")
}

/// Gives a descriptor a number from `base` on; returns it, or the old one where the system refuses.
fn move_up(number: c_int, base: c_int) -> c_int {
    // Inherited, as the runtime expects it. SAFETY: a descriptor that the launcher has left to this process.
    match unsafe { libc::fcntl(number, libc::F_DUPFD, base) } {
        moved @ 0.. => {
            close_here(number);
            moved
        }
        _ => number,
    }
}

impl Fillers {
    /// Frees the numbers, for the program; descriptors above them are ours from here on.
    pub(crate) fn release(self) {
        let above = self.0.iter().copied().max().unwrap_or(2);
        let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let ours = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|number| *number > above);
        OURS.get_or_init(|| ours.collect());
        self.0.into_iter().for_each(close_here);
    }
}

fn limit() -> rlimit {
    let mut limit = rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: it fills the structure.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit
}

/// Returns the first number for ours, and raises the process's limit by their room where it may.
fn base_of(limit: rlimit) -> c_int {
    let may_have = |count: libc::rlim_t| c_int::try_from(count).unwrap_or(c_int::MAX);
    let base = may_have(limit.rlim_cur).min(BASE);
    let raised = rlimit { rlim_cur: limit.rlim_cur.max((base + ROOM) as libc::rlim_t), ..limit };
    // SAFETY: it reads the structure.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } {
        0 => base,
        _ => (may_have(limit.rlim_max).min(BASE) / 2).max(3),
    }
}

/// Gives the process its limit back, for a program that it becomes.
pub(crate) fn give_back() {
    if let Some(limit) = LIMIT.get() {
        // SAFETY: it reads the structure.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limit) };
    }
}

fn close_here(number: c_int) {
    // SAFETY: a descriptor of this file, or none.
    unsafe { libc::syscall(libc::SYS_close, number) };
}

/// Whether a descriptor of this process is ours.
pub(crate) fn is_ours(number: c_int) -> bool {
    OURS.get().is_some_and(|ours| ours.contains(&number))
}

/// Returns the parts of a range of numbers that are not ours.
pub(crate) fn parts_of(first: c_uint, last: c_uint) -> Vec<(c_uint, c_uint)> {
    parts(first, last, OURS.get().into_iter().flatten().map(|number| number.unsigned_abs()))
}

fn parts(first: c_uint, last: c_uint, ours: impl Iterator<Item = c_uint>) -> Vec<(c_uint, c_uint)> {
    let (mut found, mut next) = (vec![], Some(first));
    for number in ours.filter(|number| (first..=last).contains(number)) {
        if let Some(next) = next.filter(|next| *next < number) {
            found.push((next, number - 1));
        }
        next = number.checked_add(1);
    }
    found.extend(next.filter(|next| *next <= last).map(|next| (next, last)));
    found
}

fn fail(errno: c_int) -> c_int {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Whether a call of the program on this number of this machine is to be refused.
fn is_out_of_reach(number: c_int) -> bool {
    is_ours(number) && side::own_machine() == 0 && side::is_machine_in_program()
}

/// The C library's function; ours are not open for the program.
///
/// # Safety
/// As for the C library's function, here and in all other functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(number: c_int) -> c_int {
    if is_out_of_reach(number) {
        return fail(libc::EBADF);
    }
    real!(close: fn(c_int) -> c_int, number)
}

/// See [`close`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(number: c_int, to: c_int) -> c_int {
    if is_out_of_reach(number) || is_out_of_reach(to) {
        refused::refuse_other("dup2 to a descriptor of Gossamer's own", "a lower number");
        return fail(libc::EBADF);
    }
    real!(dup2: fn(c_int, c_int) -> c_int, number, to)
}

/// See [`close`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(number: c_int, to: c_int, flags: c_int) -> c_int {
    if is_out_of_reach(number) || is_out_of_reach(to) {
        refused::refuse_other("dup3 to a descriptor of Gossamer's own", "a lower number");
        return fail(libc::EBADF);
    }
    real!(dup3: fn(c_int, c_int, c_int) -> c_int, number, to, flags)
}

/// See [`close`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let close = |first: c_uint, last: c_uint| {
        // SAFETY: as the caller says.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) as c_int }
    };
    if !side::is_machine_in_program() || side::own_machine() != 0 || first > last {
        return close(first, last);
    }
    let parts = side::outside(move || parts_of(first, last));
    parts.iter().map(|(first, last)| close(*first, *last)).find(|done| *done != 0).unwrap_or(0)
}

/// See [`close`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: as the caller says.
    unsafe { close_range(first.max(0).unsigned_abs(), c_uint::MAX, 0) };
}

#[cfg(test)]
mod tests {
    use super::{parts, with_numbers};

    #[test]
    fn numbers_in_variables_are_replaced() {
        let up = |text, field| with_numbers(text, field, |number| number + 1000);
        assert_eq!(up("1:3,4,5", 1), "1:1003,1004,1005");
        assert_eq!(up("7:12:99", 0), "1007:12:99");
        assert_eq!(up("none", 0), "none");
    }

    #[test]
    fn a_range_is_closed_around_ours() {
        let of = |first, last| parts(first, last, [5, 6, 9].into_iter());
        assert_eq!(of(3, u32::MAX), [(3, 4), (7, 8), (10, u32::MAX)]);
        assert_eq!(of(6, 8), [(7, 8)]);
        assert!(of(5, 6).is_empty());
        assert_eq!(of(0, 4), [(0, 4)]);
        assert!(of(9, 9).is_empty());
    }
}
