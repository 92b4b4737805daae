//! Files without `O_DIRECT`, where machines have memories of their own: a direct read has the kernel hold the buffer's
//! pages while the device fills them, also those that another machine fetches meanwhile, which would miss the bytes.
//! Through the kernel's cache, bytes are copied to where the page is then.
//!
//! Here: functions of the C library that open a file or change its flags. Not here: pipes, where the flag has another
//! meaning, descriptors that the program inherits, and system calls that are made without the C library.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;

use gossamer_region::link::is_common;
use libc::{O_DIRECT, mode_t};

use crate::real::real;
use crate::side;

/// Whether the caller's files are to be without the flag.
fn is_left_out(flags: c_int) -> bool {
    flags & O_DIRECT != 0 && side::is_machine_in_program() && side::machines() > 1 && !is_common()
}

/// Returns the flags to open a file with.
fn of_open(flags: c_int) -> c_int {
    if is_left_out(flags) { flags & !O_DIRECT } else { flags }
}

/// In a thread of the program, on any machine.
fn is_pipe(number: c_int) -> bool {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: it fills the structure.
    let found = unsafe {
        libc::fstat(number, found.as_mut_ptr());
        found.assume_init()
    };
    found.st_mode & libc::S_IFMT == libc::S_IFIFO
}

/// The C library's function; the mode is not read where the call has none.
///
/// # Safety
/// As for the C library's function, here and in all other functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    real!(open: fn(*const c_char, c_int, mode_t) -> c_int, path, of_open(flags), mode)
}

/// See [`open`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    real!(open64: fn(*const c_char, c_int, mode_t) -> c_int, path, of_open(flags), mode)
}

/// See [`open`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    real!(openat: fn(c_int, *const c_char, c_int, mode_t) -> c_int, folder, path, of_open(flags), mode)
}

/// See [`open`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    real!(openat64: fn(c_int, *const c_char, c_int, mode_t) -> c_int, folder, path, of_open(flags), mode)
}

/// See [`open`]; of programs built with `_FORTIFY_SOURCE`.
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    real!(__open_2: fn(*const c_char, c_int) -> c_int, path, of_open(flags))
}

/// See [`__open_2`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
    real!(__open64_2: fn(*const c_char, c_int) -> c_int, path, of_open(flags))
}

/// See [`__open_2`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __openat_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    real!(__openat_2: fn(c_int, *const c_char, c_int) -> c_int, folder, path, of_open(flags))
}

/// See [`__open_2`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __openat64_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    real!(__openat64_2: fn(c_int, *const c_char, c_int) -> c_int, folder, path, of_open(flags))
}

/// Whether a descriptor has the flag already: it is inherited, and others may use its file.
fn is_direct(number: c_int) -> bool {
    let flags = real!(fcntl: fn(c_int, c_int, usize) -> c_int, number, libc::F_GETFL, 0);
    flags != -1 && flags & O_DIRECT != 0
}

/// Returns the argument of a call of `fcntl`.
fn of_fcntl(number: c_int, command: c_int, argument: usize) -> usize {
    match command {
        libc::F_SETFL if is_left_out(argument as c_int) && !is_pipe(number) && !is_direct(number) => {
            argument & !(O_DIRECT as usize)
        }
        _ => argument,
    }
}

/// The C library's function; the argument is not read where the command has none.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(number: c_int, command: c_int, argument: usize) -> c_int {
    real!(fcntl: fn(c_int, c_int, usize) -> c_int, number, command, of_fcntl(number, command, argument))
}

/// See [`fcntl`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(number: c_int, command: c_int, argument: usize) -> c_int {
    real!(fcntl64: fn(c_int, c_int, usize) -> c_int, number, command, of_fcntl(number, command, argument))
}
