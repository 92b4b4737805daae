//! Functions of the C library about another thread of the program, which its machine calls: names and priorities. Its
//! processors are in `affinity.rs`, its policy is in `policy.rs`.

use std::ffi::{c_char, c_int};

use gossamer::NoRef;
use libc::{clockid_t, pthread_t, sched_param};
use region_calls::call;

use crate::real::real;
use crate::{block, ids, joins, refused, side};

/// Most bytes of a thread's name, with the zero at its end.
const NAME_BYTES: usize = 16;

/// Calls a function with the C library's id of another thread, on its machine. Returns `absent` if it has ended.
pub(crate) fn on_its_machine<R, F>(id: pthread_t, absent: R, f: F) -> R
where
    R: NoRef + Send + 'static,
    F: FnOnce(pthread_t) -> R + NoRef + Send + Copy + 'static,
{
    let first = ids::machine_of(id);
    if !block::are_on() {
        return side::at(first, move || joins::real_of(id).map_or(absent, f));
    }
    // Again, where it has moved meanwhile.
    while let Some(machine) = side::at(first, move || joins::machine_of(id)) {
        if let Some(result) = side::at(machine, move || joins::real_of(id).map(f)) {
            return result;
        }
    }
    absent
}

/// The C library's function, for threads of all machines.
///
/// # Safety
/// As for the C library's function, here and in all other functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setname_np(id: pthread_t, name: *const c_char) -> c_int {
    fn set(id: pthread_t, name: *const c_char) -> c_int {
        real!(pthread_setname_np: fn(pthread_t, *const c_char) -> c_int, id, name)
    }
    if let Some(id) = ids::real_of(id) {
        return set(id, name);
    }
    let mut sent = [0; NAME_BYTES];
    // SAFETY: the caller's text.
    let bytes = unsafe { std::ffi::CStr::from_ptr(name) }.to_bytes_with_nul();
    let Some(to) = sent.get_mut(..bytes.len()) else { return libc::ERANGE };
    to.copy_from_slice(bytes);
    on_its_machine(id, libc::ESRCH, move |id| set(id, sent.as_ptr().cast()))
}

/// See [`pthread_setname_np`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getname_np(id: pthread_t, name: *mut c_char, bytes: usize) -> c_int {
    fn get(id: pthread_t, name: *mut c_char, bytes: usize) -> c_int {
        real!(pthread_getname_np: fn(pthread_t, *mut c_char, usize) -> c_int, id, name, bytes)
    }
    if let Some(id) = ids::real_of(id) {
        return get(id, name, bytes);
    }
    if bytes < NAME_BYTES {
        return libc::ERANGE;
    }
    let (done, found) = on_its_machine(id, (libc::ESRCH, [0; NAME_BYTES]), move |id| {
        let mut found = [0_u8; NAME_BYTES];
        (get(id, found.as_mut_ptr().cast(), NAME_BYTES), found)
    });
    if done == 0 {
        // SAFETY: the caller's, which has room for it.
        unsafe { name.cast::<[u8; NAME_BYTES]>().write_unaligned(found) };
    }
    done
}

/// See [`pthread_setname_np`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getschedparam(
    id: pthread_t,
    policy: *mut c_int,
    parameters: *mut sched_param,
) -> c_int {
    fn get(id: pthread_t, policy: *mut c_int, parameters: *mut sched_param) -> c_int {
        real!(pthread_getschedparam: fn(pthread_t, *mut c_int, *mut sched_param) -> c_int, id, policy, parameters)
    }
    if let Some(id) = ids::real_of(id) {
        return get(id, policy, parameters);
    }
    let (done, found, priority) = on_its_machine(id, (libc::ESRCH, 0, 0), |id| {
        let (mut found, mut of_it) = (0, sched_param { sched_priority: 0 });
        (get(id, &raw mut found, &raw mut of_it), found, of_it.sched_priority)
    });
    if done == 0 {
        // SAFETY: the caller's.
        unsafe {
            policy.write(found);
            parameters.write(sched_param { sched_priority: priority });
        }
    }
    done
}

/// See [`pthread_setname_np`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setschedprio(id: pthread_t, priority: c_int) -> c_int {
    let set = move |id| real!(pthread_setschedprio: fn(pthread_t, c_int) -> c_int, id, priority);
    match ids::real_of(id) {
        Some(id) => set(id),
        None => on_its_machine(id, libc::ESRCH, set),
    }
}

/// The C library's function, for threads of the caller's machine; refused for others, whose clocks are not there.
///
/// # Safety
/// See [`pthread_setname_np`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getcpuclockid(id: pthread_t, clock: *mut clockid_t) -> c_int {
    fn get(id: pthread_t, clock: *mut clockid_t) -> c_int {
        real!(pthread_getcpuclockid: fn(pthread_t, *mut clockid_t) -> c_int, id, clock)
    }
    if let Some(id) = ids::real_of(id) {
        return get(id, clock);
    }
    // Where it is now; it may go there before it is asked for its clock here.
    let (first, own) = (ids::machine_of(id), side::own_machine());
    let of_it = |id| {
        let mut found = 0;
        (get(id, &raw mut found), found)
    };
    let found = match side::at(first, move || joins::machine_of(id)) {
        None => Some((libc::ESRCH, 0)),
        Some(machine) if machine == own => side::at(own, move || joins::real_of(id).map(of_it)),
        Some(_) => None,
    };
    let Some((done, found)) = found else {
        const NAME: &str = "pthread_getcpuclockid";
        refused::refuse(NAME, const { call(NAME, "of a thread of another machine") });
        return libc::ENOTSUP;
    };
    if done == 0 {
        // SAFETY: the caller's.
        unsafe { clock.write(found) };
    }
    done
}
