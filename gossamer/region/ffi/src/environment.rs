//! `setenv` and its kin: the environment is a list in the program's heap, which the variable `environ` of each machine
//! points to.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use crate::real::real;
use crate::semaphore::Count;
use crate::table::{self, table};
use crate::{heap, side};

type List = *mut *mut c_char;

unsafe extern "C" {
    static mut environ: List;
}

/// Makes this list the environment of all machines. From the program's code.
fn set_list(list: usize) {
    fn set_here(list: usize) {
        // SAFETY: the C library's variable, or the program's copy of it; a race is the program's.
        unsafe { environ = ptr::with_exposed_provenance_mut(list) };
    }
    set_here(list);
    // A program that refers to it has it among its own variables, which all machines share.
    if !table::is_shared((&raw const environ).addr()) {
        side::on_others(move || set_here(list));
    }
}

/// In the program's first thread: makes this list the environment of machine 0, and of all others where they share all
/// memory.
pub(crate) fn begin(list: List) {
    match table::is_explicit() {
        // SAFETY: no other thread reads or writes it yet.
        true => unsafe { environ = list },
        false => set_list(list.expose_provenance()),
    }
}

/// Whether the calling thread changes the environment of all machines.
fn is_for_all() -> bool {
    side::is_machine_in_program() && !table::is_explicit()
}

/// Calls `f` while no other thread changes the environment.
fn alone<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: a word of the table, which stays, and is changed by this function only.
    let lock = unsafe { Count::at(table().environment.as_ptr(), 1) };
    lock.take(None);
    let result = f();
    lock.give();
    result
}

fn fail(errno: c_int) -> c_int {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Returns the number of variables.
///
/// # Safety
/// `list` is null or ends with null.
unsafe fn count(list: List) -> usize {
    // SAFETY: as the caller says.
    if list.is_null() { 0 } else { (0..).find(|at| unsafe { *list.add(*at) }.is_null()).unwrap_or(0) }
}

/// Whether a variable has this name.
///
/// # Safety
/// `variable` is a string.
unsafe fn has_name(variable: *const c_char, name: &[u8]) -> bool {
    // SAFETY: as the caller says.
    let variable = unsafe { CStr::from_ptr(variable) }.to_bytes();
    variable.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&b'='))
}

/// Puts a variable in place of those of its name, or at the end. `false`: there is no memory.
///
/// # Safety
/// `variable` is a string that stays, and the environment a list.
unsafe fn put(name: &[u8], variable: *mut c_char) -> bool {
    // SAFETY: as the caller says.
    unsafe {
        let (list, count) = (environ, count(environ));
        if let Some(at) = (0..count).find(|at| has_name(*list.add(*at), name)) {
            *list.add(at) = variable;
            return true;
        }
        // The former list stays: other threads may be reading it.
        let Some((new, _)) = heap::allocate((count + 2) * size_of::<*mut c_char>(), 1) else { return false };
        let to = ptr::with_exposed_provenance_mut::<*mut c_char>(new);
        if count > 0 {
            ptr::copy_nonoverlapping(list, to, count);
        }
        *to.add(count) = variable;
        *to.add(count + 1) = ptr::null_mut();
        set_list(new);
        true
    }
}

/// Returns the bytes of a name, if it may be one.
///
/// # Safety
/// `name` is null or a string.
unsafe fn checked<'a>(name: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: as the caller says.
    let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_bytes())?;
    (!name.is_empty() && !name.contains(&b'=')).then_some(name)
}

/// The C library's function, for all machines.
///
/// # Safety
/// As for the C library's function, here and in all other functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setenv(name: *const c_char, value: *const c_char, replaces: c_int) -> c_int {
    if !is_for_all() {
        return real!(setenv: fn(*const c_char, *const c_char, c_int) -> c_int, name, value, replaces);
    }
    // SAFETY: the caller's.
    let (name, value) = match unsafe { checked(name) } {
        // SAFETY: as above.
        Some(name) => (name, unsafe { CStr::from_ptr(value) }.to_bytes_with_nul()),
        None => return fail(libc::EINVAL),
    };
    alone(|| {
        // SAFETY: the environment is a list.
        let is_there = unsafe { (0..count(environ)).any(|at| has_name(*environ.add(at), name)) };
        if is_there && replaces == 0 {
            return 0;
        }
        let Some((block, _)) = heap::allocate(name.len() + 1 + value.len(), 1) else { return fail(libc::ENOMEM) };
        let variable = ptr::with_exposed_provenance_mut::<u8>(block);
        // SAFETY: a block of that length, which no other code has, and which stays, as in the C library.
        let done = unsafe {
            ptr::copy_nonoverlapping(name.as_ptr(), variable, name.len());
            variable.add(name.len()).write(b'=');
            ptr::copy_nonoverlapping(value.as_ptr(), variable.add(name.len() + 1), value.len());
            put(name, variable.cast())
        };
        if done { 0 } else { fail(libc::ENOMEM) }
    })
}

/// See [`setenv`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unsetenv(name: *const c_char) -> c_int {
    if !is_for_all() {
        return real!(unsetenv: fn(*const c_char) -> c_int, name);
    }
    // SAFETY: the caller's.
    let Some(name) = (unsafe { checked(name) }) else { return fail(libc::EINVAL) };
    alone(|| {
        let mut kept = 0;
        // SAFETY: the environment is a list.
        unsafe {
            let (list, count) = (environ, count(environ));
            for at in 0..count {
                let variable = *list.add(at);
                if !has_name(variable, name) {
                    *list.add(kept) = variable;
                    kept += 1;
                }
            }
            if kept < count {
                *list.add(kept) = ptr::null_mut();
            }
        }
        0
    })
}

/// See [`setenv`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn putenv(variable: *mut c_char) -> c_int {
    if !is_for_all() {
        return real!(putenv: fn(*mut c_char) -> c_int, variable);
    }
    // SAFETY: the caller's.
    let text = unsafe { CStr::from_ptr(variable) }.to_bytes();
    match text.iter().position(|byte| *byte == b'=') {
        // SAFETY: the caller's string, which becomes a part of the environment.
        Some(end) if alone(|| unsafe { put(&text[..end], variable) }) => 0,
        Some(_) => fail(libc::ENOMEM),
        // SAFETY: as the caller says.
        None => unsafe { unsetenv(variable) },
    }
}

/// See [`setenv`].
#[unsafe(no_mangle)]
pub extern "C" fn clearenv() -> c_int {
    if !is_for_all() {
        return real!(clearenv: fn() -> c_int);
    }
    alone(|| set_list(0));
    0
}

/// The C library's function, on all machines.
#[unsafe(no_mangle)]
pub extern "C" fn tzset() {
    fn set_here() {
        real!(tzset: fn() -> ());
    }
    set_here();
    if is_for_all() {
        side::on_others(set_here);
    }
}
