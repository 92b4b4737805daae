//! Attributes that a process has once, which threads of all machines see: working folder, file mode mask, locale.

use std::ffi::{CStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use libc::mode_t;

use crate::real::real;
use crate::side;

/// Calls `f` on all other machines, with a text that is longer than a closure may be.
fn on_others_with<F: FnOnce(Vec<u8>) + gossamer::NoRef + Send + Copy + 'static>(f: F, text: &[u8]) {
    let own = side::own_machine();
    for machine in (0..side::machines()).filter(|machine| *machine != own) {
        let text = text.to_vec();
        side::outside(move || {
            let through = move |text: Vec<u8>| side::from_worker_with(machine, f, text);
            if gossamer::spawn_with(side::place(own), through, text).join().is_err() {
                gossamer::link::end(&format!("what a thread asked of machine {machine} has panicked"));
            }
        });
    }
}

/// Changes to the folder in which the program now is on the machine that calls this, on all others.
fn bring_folder() {
    let Ok(folder) = side::outside(std::env::current_dir) else { return };
    let go_there = |folder: Vec<u8>| {
        let folder = std::path::Path::new(std::ffi::OsStr::from_bytes(&folder));
        if let Err(error) = std::env::set_current_dir(folder) {
            eprintln!(
                "gossamer: machine {} cannot go to the folder {} as the program did ({error}): its threads find no \
                 files by relative names",
                side::own_machine(),
                folder.display(),
            );
        }
    };
    on_others_with(go_there, folder.as_os_str().as_bytes());
}

/// The C library's function, for all machines.
///
/// # Safety
/// As for the C library's function, here and in all other functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chdir(folder: *const c_char) -> c_int {
    let done = real!(chdir: fn(*const c_char) -> c_int, folder);
    if done == 0 && side::is_machine_in_program() {
        bring_folder();
    }
    done
}

/// See [`chdir`].
#[unsafe(no_mangle)]
pub extern "C" fn fchdir(folder: c_int) -> c_int {
    let done = real!(fchdir: fn(c_int) -> c_int, folder);
    if done == 0 && side::is_machine_in_program() {
        bring_folder();
    }
    done
}

/// The C library's function, for all machines.
#[unsafe(no_mangle)]
pub extern "C" fn umask(mask: mode_t) -> mode_t {
    fn set(mask: mode_t) -> mode_t {
        real!(umask: fn(mode_t) -> mode_t, mask)
    }
    let before = set(mask);
    if side::is_machine_in_program() {
        side::on_others(move || {
            set(mask);
        });
    }
    before
}

/// The C library's function, for all machines.
///
/// # Safety
/// See [`chdir`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setlocale(category: c_int, locale: *const c_char) -> *mut c_char {
    fn set(category: c_int, locale: *const c_char) -> *mut c_char {
        real!(setlocale: fn(c_int, *const c_char) -> *mut c_char, category, locale)
    }
    let done = set(category, locale);
    if !done.is_null() && !locale.is_null() && side::is_machine_in_program() {
        let set_there = move |locale: Vec<u8>| {
            let locale = CStr::from_bytes_with_nul(&locale).map_or(ptr::null(), CStr::as_ptr);
            if set(category, locale).is_null() {
                eprintln!(
                    "gossamer: machine {} does not have the locale that the program set: its threads have another \
                     one; install it there",
                    side::own_machine(),
                );
            }
        };
        // The name that was found: an empty one means the environment, which machines may differ in.
        // SAFETY: a string that the C library returns.
        on_others_with(set_there, unsafe { CStr::from_ptr(done) }.to_bytes_with_nul());
    }
    done
}
