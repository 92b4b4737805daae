//! `exec` by the program: the machines end in order, and the process of machine 0 becomes the new program, with the
//! same descriptors, id and folder. All of the C library's functions for it come to two system calls (`trap.rs`).

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::mask::{self, Mask};
use crate::{descriptors, end_of_program, side};

/// Most strings and most bytes of the arguments and of the environment each: the system's limit for both.
const STRINGS_MAX: usize = 1 << 20;
const BYTES_MAX: usize = 6 << 20;
/// Longest beginning of a file that says how it is executed.
const MARKS: [&[u8]; 2] = [b"\x7fELF", b"#!"];

/// A program to become.
#[derive(Serialize, Deserialize)]
struct Next {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    mask: Mask,
}

static NEXT: Mutex<Option<Next>> = Mutex::new(None);

/// Reads a list of strings.
///
/// # Safety
/// Null, or a list of strings that ends with null.
unsafe fn strings(list: usize) -> Option<Vec<CString>> {
    let (mut found, mut bytes) = (vec![], 0);
    if list == 0 {
        return Some(found);
    }
    for at in 0..STRINGS_MAX {
        // SAFETY: as the caller says; the list has not ended before.
        let text = unsafe { *std::ptr::with_exposed_provenance::<*const c_char>(list).add(at) };
        if text.is_null() {
            return Some(found);
        }
        // SAFETY: as the caller says.
        let text = unsafe { CStr::from_ptr(text) }.to_owned();
        bytes += text.as_bytes().len();
        if bytes > BYTES_MAX {
            return None;
        }
        found.push(text);
    }
    None
}

/// From a thread of the program: `execve`. Returns the negative error.
pub(crate) fn call([path, arguments, environment, ..]: [usize; 6]) -> isize {
    if path == 0 {
        return -libc::EFAULT as isize;
    }
    let mask = mask::mask();
    let next = side::outside(move || {
        // SAFETY: the program's arguments of `execve`.
        unsafe {
            let path = CStr::from_ptr(std::ptr::with_exposed_provenance(path)).to_owned();
            let (arguments, environment) = (strings(arguments)?, strings(environment)?);
            Some(Next { path, arguments, environment, mask })
        }
    });
    let errno = next.map_or(libc::E2BIG, |next| side::at_with(0, note, next));
    match errno {
        0 => end_of_program::end_for_next(),
        errno => -errno as isize,
    }
}

/// On machine 0: notes the program to become, if it can be executed. Returns 0 or the error.
fn note(next: Next) -> c_int {
    // SAFETY: a string that ends with a zero.
    let found = unsafe { libc::faccessat(libc::AT_FDCWD, next.path.as_ptr(), libc::X_OK, libc::AT_EACCESS) };
    let errno = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
    if found != 0 {
        return errno(std::io::Error::last_os_error());
    }
    match is_executable(Path::new(OsStr::from_bytes(next.path.as_bytes()))) {
        Err(error) => return errno(error),
        Ok(false) => return libc::ENOEXEC,
        Ok(true) => {}
    }
    let mut to = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
    if to.is_none() {
        *to = Some(next); // the first of several threads
    }
    0
}

fn is_executable(path: &Path) -> std::io::Result<bool> {
    let about = std::fs::metadata(path)?;
    if !about.is_file() || about.mode() & 0o111 == 0 {
        return Err(std::io::Error::from_raw_os_error(libc::EACCES));
    }
    let mut beginning = vec![];
    match File::open(path) {
        // It may be executed and not read.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Ok(true),
        file => file?.take(4).read_to_end(&mut beginning)?,
    };
    Ok(MARKS.iter().any(|mark| beginning.starts_with(mark)))
}

/// Whether the program becomes another one, whose status counts.
pub(crate) fn has_next() -> bool {
    NEXT.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Once all machines have ended: becomes the program that a thread has asked for, if one has. Returns why it cannot.
pub(crate) fn become_next() -> Option<String> {
    let next = NEXT.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    let list = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (list(&next.arguments), list(&next.environment));
    descriptors::give_back();
    mask::set_mask(next.mask);
    // SAFETY: strings and lists of this function.
    unsafe { libc::syscall(libc::SYS_execve, next.path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    Some(format!("{} cannot be executed: {}", next.path.to_string_lossy(), std::io::Error::last_os_error()))
}
