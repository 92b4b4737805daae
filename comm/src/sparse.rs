//! A mapping of a file of which only parts ever have memory.
//!
//! In a process that has its memory locked (`mlockall` with `MCL_FUTURE`) the system provides all pages of a mapping as
//! it is made, and would make the file as large as it is long. So this one is accessible to nobody while it is made.
//! Pages that are touched later are locked then.
//!
//! Invariant M1 of `memory.rs` holds for it, as long as the file does not shrink: it is readable and writable from its
//! construction until it is dropped.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mprotect, munmap};

/// See the file's documentation.
#[derive(Debug)]
pub(crate) struct Sparse {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: addresses of memory that any thread may reach; who does so has the rules of `memory.rs`.
unsafe impl Send for Sparse {}
// SAFETY: as above.
unsafe impl Sync for Sparse {}

impl Sparse {
    /// Maps so many bytes of a file, which are there, from `offset` on, whole pages.
    pub(crate) fn new(file: impl AsFd, offset: u64, bytes: usize) -> io::Result<Sparse> {
        // SAFETY: a new mapping, wherever the system has room.
        let start = unsafe { mmap(ptr::null_mut(), bytes, ProtFlags::empty(), MapFlags::SHARED, file, offset) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| io::Error::other("the system mapped address 0"))?;
        let sparse = Sparse { start, bytes };
        // A core dump would have all of it, and make the pages that are not there: many times the memory of the host.
        // SAFETY: the mapping just made; a dump changes nothing of it.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontDump) }; // refused, a dump is large
        // SAFETY: the mapping just made; nobody has a reference to it yet.
        unsafe { mprotect(start.as_ptr().cast(), bytes, MprotectFlags::READ | MprotectFlags::WRITE) }?;
        Ok(sparse)
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Sparse {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; whoever had references into it borrowed it (M1).
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
    use rustix::mm::{MlockAllFlags, mlockall};

    use super::*;

    /// Says to a child process of this test that it is one: what is locked is the whole process'.
    const CHILD: &str = "COMM_TEST_LOCKED";

    #[test]
    fn a_process_whose_memory_is_locked_has_what_is_touched() {
        if std::env::var_os(CHILD).is_none() {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            let name = "sparse::tests::a_process_whose_memory_is_locked_has_what_is_touched";
            let output = command.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
            return said.lines().filter(|line| line.starts_with("SKIPPED")).for_each(|line| println!("{line}"));
        }
        if let Err(error) = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE) {
            return println!("SKIPPED: memory cannot be locked here: {error}");
        }
        const BYTES: usize = 256 << 20;
        let file = memfd_create("sparse", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 2 * BYTES as u64).unwrap();
        let sparse = Sparse::new(&file, 4096, BYTES).unwrap();
        let taken = || fstat(&file).unwrap().st_blocks as usize * 512;
        assert_eq!(taken(), 0);
        // SAFETY: within the mapping, which nobody else has.
        unsafe { sparse.start().add(sparse.bytes() - 1).write(7) };
        assert!((1..4 << 20).contains(&taken()), "{} bytes", taken());
    }
}
