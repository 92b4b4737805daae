//! Files that the C library maps by itself (libraries loaded later, locales) in a thread of another machine than 0:
//! copies of them, since a file of machine 0 cannot be mapped here. The program's own `mmap` is `map.rs`.

use std::mem::MaybeUninit;

use super::forward;

/// Bytes of a file that are fetched together.
const CHUNK: usize = 256 << 10;

fn errno() -> i64 {
    -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Maps a copy of a file of machine 0. Returns its address or the negative error. On our side.
pub(super) fn map([at, bytes, protection, flags, file, offset]: [u64; 6]) -> i64 {
    let is_shared = flags & libc::MAP_PRIVATE as u64 == 0;
    if is_shared && protection & libc::PROT_WRITE as u64 != 0 {
        crate::refused::refuse_other("mmap of a file with MAP_SHARED", "MAP_PRIVATE, or write and pwrite");
        return -i64::from(libc::ENOTSUP);
    }
    let mut about = MaybeUninit::<libc::stat>::zeroed();
    match forward(libc::SYS_fstat, [file, about.as_mut_ptr().expose_provenance() as u64, 0, 0, 0, 0]) {
        0 => {}
        failed => return failed,
    }
    // SAFETY: zeros are one, and the call has filled it.
    let size = unsafe { about.assume_init() }.st_size.unsigned_abs();
    // SAFETY: a name that ends with a zero.
    let copy = unsafe { libc::memfd_create(c"gossamer-file".as_ptr(), libc::MFD_CLOEXEC) };
    if copy < 0 {
        return errno();
    }
    let found = match fill(copy, file, offset, size.saturating_sub(offset).min(bytes)) {
        0 => {
            let flags = flags & !(libc::MAP_TYPE as u64) | libc::MAP_PRIVATE as u64;
            // SAFETY: the mapping that the caller of `mmap` asked for, with the same contents.
            match unsafe { libc::syscall(libc::SYS_mmap, at, bytes, protection, flags, copy, 0_u64) } {
                -1 => errno(),
                found => found,
            }
        }
        failed => failed,
    };
    // SAFETY: this function's.
    unsafe { libc::syscall(libc::SYS_close, copy) };
    found
}

/// Copies a part of a file of machine 0 to a file here. Returns 0 or the negative error.
fn fill(copy: i32, file: u64, offset: u64, bytes: u64) -> i64 {
    // SAFETY: the caller's file.
    if unsafe { libc::ftruncate(copy, bytes.cast_signed()) } != 0 {
        return errno();
    }
    let mut chunk = vec![0_u8; CHUNK];
    let mut done = 0;
    while done < bytes {
        let wanted = (bytes - done).min(CHUNK as u64);
        let buffer = chunk.as_mut_ptr().expose_provenance() as u64;
        let read = match forward(libc::SYS_pread64, [file, buffer, wanted, offset + done, 0, 0]) {
            0 => break, // it has become shorter
            read @ 1.. => read.unsigned_abs(),
            failed => return failed,
        };
        // SAFETY: the bytes read just now.
        let wrote = unsafe { libc::pwrite(copy, chunk.as_ptr().cast(), read as usize, done.cast_signed()) };
        if wrote != read.cast_signed() as isize {
            return errno();
        }
        done += read;
    }
    0
}
