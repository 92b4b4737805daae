//! Processors that a thread may use, as runtimes count them before they start threads: those of all machines, until the
//! thread is bound to some of its own machine's.

use std::ffi::{c_int, c_long};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use libc::{cpu_set_t, pid_t, pthread_t};

use crate::real::real;
use crate::table::table;
use crate::{ids, of_other, side};

/// Processors that the process may use, from before any worker was pinned to one.
static PROCESSORS: OnceLock<libc::cpu_set_t> = OnceLock::new();

/// Records and counts the processors; called before any thread starts.
pub(crate) fn note_processors() -> u32 {
    // SAFETY: zeros are a set, which the call fills.
    let set = PROCESSORS.get_or_init(|| unsafe {
        let mut set = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        set
    });
    // SAFETY: it reads the set.
    unsafe { libc::CPU_COUNT(set) }.unsigned_abs().max(1)
}

/// Returns the numbers of the processors that this machine may use.
pub(crate) fn processors_here() -> impl Iterator<Item = usize> {
    let set = PROCESSORS.get();
    // SAFETY: a set that the system has filled.
    let has = move |processor: &usize| set.is_some_and(|set| unsafe { libc::CPU_ISSET(*processor, set) });
    (0..libc::CPU_SETSIZE as usize).filter(has)
}

/// Lets the calling thread, which a worker has started, run on all processors of the process.
pub(crate) fn use_all_processors() {
    if let Some(processors) = PROCESSORS.get() {
        // SAFETY: a set that the system has filled.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), processors) };
    }
}

/// Whether the calling thread may not use all processors of this machine.
pub(crate) fn is_bound() -> bool {
    let mut set: Sent = [0; _];
    let to = set.as_mut_ptr().cast();
    let done = real!(sched_getaffinity: fn(pid_t, usize, *mut cpu_set_t) -> c_int, 0, size_of::<Sent>(), to);
    done == 0 && !processors(&set).eq(processors_here())
}

/// Returns the processors of a set, in ascending order.
fn processors(set: &[u8]) -> impl Iterator<Item = usize> {
    (0..set.len() * 8).filter(|processor| set[processor / 8] & 1 << (processor % 8) != 0)
}

/// Adds the processors behind the last one, as far as there is room, until there are `count`.
fn fill_up(set: &mut [u8], count: usize) {
    let (has, next) = (processors(set).count(), processors(set).last().map_or(0, |last| last + 1));
    for processor in (next..set.len() * 8).take(count.saturating_sub(has)) {
        set[processor / 8] |= 1 << (processor % 8);
    }
}

fn of_all_machines() -> usize {
    table().processors.load(Ordering::SeqCst) as usize
}

/// Turns the set of a thread of the program, which the system has filled, into one that counts all machines'.
///
/// # Safety
/// `set` has this many bytes, which only the caller uses.
unsafe fn count_all(set: *mut cpu_set_t, bytes: usize) {
    // SAFETY: as the caller says.
    let set = unsafe { std::slice::from_raw_parts_mut(set.cast(), bytes) };
    if processors(set).eq(processors_here()) {
        fill_up(set, of_all_machines());
    }
}

/// Whether a thread of the program asks for processors of other machines only: it stays where it is.
///
/// # Safety
/// `set` is null, or has this many bytes, which no other code changes.
unsafe fn is_elsewhere(set: *const cpu_set_t, bytes: usize) -> bool {
    if set.is_null() || !side::is_machine_in_program() {
        return false;
    }
    // SAFETY: as the caller says.
    are_elsewhere(unsafe { std::slice::from_raw_parts(set.cast(), bytes) })
}

/// Whether all processors of a set are other machines'.
fn are_elsewhere(set: &[u8]) -> bool {
    let mut wanted = processors(set).peekable();
    let next = processors_here().last().map_or(0, |last| last + 1);
    let count = of_all_machines().saturating_sub(processors_here().count());
    wanted.peek().is_some() && wanted.all(|processor| (next..next.saturating_add(count)).contains(&processor))
}

/// The C library's function; counts the processors of all machines.
///
/// # Safety
/// As for the C library's function, here and in all other functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_getaffinity(process: pid_t, bytes: usize, set: *mut cpu_set_t) -> c_int {
    let done = real!(sched_getaffinity: fn(pid_t, usize, *mut cpu_set_t) -> c_int, process, bytes, set);
    if done == 0 && side::is_machine_in_program() {
        // SAFETY: the caller's, which the system has filled.
        unsafe { count_all(set, bytes) };
    }
    done
}

/// A set on its way to the machine of another thread.
type Sent = [u8; size_of::<cpu_set_t>()];

/// On the machine of another thread: its processors.
///
/// # Safety
/// As for `pthread_getaffinity_np`.
unsafe fn get_of_other(id: pthread_t, bytes: usize, set: *mut cpu_set_t) -> c_int {
    let (done, found) = of_other::on_its_machine(id, (libc::ESRCH, [0; _]), move |id| {
        let (mut found, most): (Sent, _) = ([0; _], bytes.min(size_of::<Sent>()));
        let to = found.as_mut_ptr().cast();
        let done = real!(pthread_getaffinity_np: fn(pthread_t, usize, *mut cpu_set_t) -> c_int, id, most, to);
        if done == 0 {
            // SAFETY: a set of this function.
            unsafe { count_all(to, most) };
        }
        (done, found)
    });
    if done == 0 {
        // SAFETY: as the caller says.
        let set = unsafe { std::slice::from_raw_parts_mut(set.cast::<u8>(), bytes) };
        let (front, back) = set.split_at_mut(bytes.min(found.len()));
        front.copy_from_slice(&found[..front.len()]);
        back.fill(0);
    }
    done
}

/// On the machine of another thread: changes its processors.
///
/// # Safety
/// As for `pthread_setaffinity_np`.
unsafe fn set_of_other(id: pthread_t, bytes: usize, set: *const cpu_set_t) -> c_int {
    let (mut sent, most): (Sent, _) = ([0; _], bytes.min(size_of::<Sent>()));
    // SAFETY: as the caller says.
    sent[..most].copy_from_slice(unsafe { std::slice::from_raw_parts(set.cast(), most) });
    of_other::on_its_machine(id, libc::ESRCH, move |id| match are_elsewhere(&sent) {
        true => 0,
        false => {
            let set = sent.as_ptr().cast();
            real!(pthread_setaffinity_np: fn(pthread_t, usize, *const cpu_set_t) -> c_int, id, most, set)
        }
    })
}

/// See [`sched_getaffinity`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getaffinity_np(id: pthread_t, bytes: usize, set: *mut cpu_set_t) -> c_int {
    let Some(id) = ids::real_of(id) else {
        // SAFETY: as the caller says.
        return unsafe { get_of_other(id, bytes, set) };
    };
    let done = real!(pthread_getaffinity_np: fn(pthread_t, usize, *mut cpu_set_t) -> c_int, id, bytes, set);
    if done == 0 && side::is_machine_in_program() {
        // SAFETY: as in `sched_getaffinity`.
        unsafe { count_all(set, bytes) };
    }
    done
}

/// The C library's function; processors of other machines are left out.
///
/// # Safety
/// See [`sched_getaffinity`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_setaffinity(process: pid_t, bytes: usize, set: *const cpu_set_t) -> c_int {
    // SAFETY: the caller's.
    if unsafe { is_elsewhere(set, bytes) } {
        return 0;
    }
    real!(sched_setaffinity: fn(pid_t, usize, *const cpu_set_t) -> c_int, process, bytes, set)
}

/// See [`sched_setaffinity`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setaffinity_np(id: pthread_t, bytes: usize, set: *const cpu_set_t) -> c_int {
    let Some(id) = ids::real_of(id) else {
        // SAFETY: as the caller says.
        return unsafe { set_of_other(id, bytes, set) };
    };
    // SAFETY: the caller's.
    if unsafe { is_elsewhere(set, bytes) } {
        return 0;
    }
    real!(pthread_setaffinity_np: fn(pthread_t, usize, *const cpu_set_t) -> c_int, id, bytes, set)
}

/// The C library's function; counts the processors of all machines.
#[unsafe(no_mangle)]
pub extern "C" fn sysconf(name: c_int) -> c_long {
    match name {
        libc::_SC_NPROCESSORS_ONLN | libc::_SC_NPROCESSORS_CONF if side::is_in_program() => {
            c_long::from(table().processors.load(Ordering::SeqCst))
        }
        _ => real!(sysconf: fn(c_int) -> c_long, name),
    }
}

/// See [`sysconf`].
#[unsafe(no_mangle)]
pub extern "C" fn get_nprocs() -> c_int {
    match side::is_in_program() {
        true => table().processors.load(Ordering::SeqCst).cast_signed(),
        false => real!(get_nprocs: fn() -> c_int),
    }
}

/// See [`sysconf`].
#[unsafe(no_mangle)]
pub extern "C" fn get_nprocs_conf() -> c_int {
    match side::is_in_program() {
        true => table().processors.load(Ordering::SeqCst).cast_signed(),
        false => real!(get_nprocs_conf: fn() -> c_int),
    }
}

#[cfg(test)]
mod tests {
    use super::{fill_up, processors};

    #[test]
    fn sets_are_filled_behind_the_last_processor() {
        let filled = |mut bytes: [u8; 2], count| {
            fill_up(&mut bytes, count);
            bytes
        };
        assert_eq!(filled([0b0101, 0], 2), [0b0101, 0]);
        assert_eq!(filled([0b0101, 0], 4), [0b1_1101, 0]);
        assert_eq!(filled([0b1100_0000, 0], 5), [0b1100_0000, 0b111]);
        // No more than there is room for.
        assert_eq!(filled([0, 0b1000_0000], 4), [0, 0b1000_0000]);
        assert_eq!(filled([1, 0], 100), [0xff, 0xff]);
        assert_eq!(processors(&[0b0101, 1]).collect::<Vec<_>>(), [0, 2, 8]);
    }
}
