//! Mapping of a file of which only parts ever have memory.
//!
//! In a process that has its memory locked (`mlockall` with `MCL_FUTURE`) the system provides all pages of a
//! new mapping, and would so allocate the whole file. So this mapping is inaccessible while it is made. Pages
//! that are touched later are locked then.
//!
//! Invariant [mapping-stays] of `memory.rs` holds for it, as long as the file does not shrink: it is readable and
//! writable from its construction until it is dropped.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mprotect, munmap};

/// Mapping of a file, described at the top of this file.
#[derive(Debug)]
pub(crate) struct Sparse {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: addresses of memory that any thread may reach; each access follows the rules of `memory.rs`.
unsafe impl Send for Sparse {}
// SAFETY: as above.
unsafe impl Sync for Sparse {}

impl Sparse {
    /// Maps `bytes` bytes of a file from `offset` on, whole pages that lie within the file.
    pub(crate) fn new(file: impl AsFd, offset: u64, bytes: usize) -> io::Result<Sparse> {
        // The second flag is for emulators of system calls (qemu-user), which map memory of their own there first; a
        // shared mapping of a file reserves no memory anyway.
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping, at an address the system chooses.
        let start = unsafe { mmap(ptr::null_mut(), bytes, ProtFlags::empty(), flags, file, offset) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| io::Error::other("the system mapped address 0"))?;
        let sparse = Sparse { start, bytes };
        // A core dump would include all of it, and allocate the missing pages: many times the memory of the host.
        // SAFETY: the mapping just made; dump advice changes nothing of it.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontDump) }; // refused: dumps are large
        // SAFETY: the mapping just made; no reference to it exists yet.
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
        // SAFETY: mapped by `new` with this length; every reference into it borrowed from it [mapping-stays].
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
    use rustix::mm::{MlockAllFlags, mlockall};

    use super::*;

    /// Marks a child process of this test: locked memory concerns the whole process.
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
        // SAFETY: within the mapping, which this test has to itself.
        unsafe { sparse.start().add(sparse.bytes() - 1).write(7) };
        assert!((1..4 << 20).contains(&taken()), "{} bytes", taken());
    }
}
