//! Page faults in user space: the part of userfaultfd(2) that regions use.
//!
//! One descriptor per process, never closed: closing it before the views are unmapped would let threads read whatever
//! lies there. Needs Linux 5.19. Before 6.4 (`UFFDIO_CONTINUE_MODE_WP`) pages can only be mapped writable: `can_share`.

#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, Opcode, Setter, Updater, ioctl, opcode};
use rustix::mm::{UserfaultfdFlags, userfaultfd};

use crate::error::{Doing, Failure};
use crate::page::PAGE_BYTES;

const GROUP: u8 = 0xaa;
/// Constants of `<linux/userfaultfd.h>`.
const API: u64 = 0xaa;
const FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
const FEATURE_THREAD_ID: u64 = 1 << 8;
const FEATURE_MINOR_SHMEM: u64 = 1 << 10;
const FEATURE_EXACT_ADDRESS: u64 = 1 << 11;
const FEATURE_WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
/// Came with Linux 6.4, as `CONTINUE_MODE_WP` did, which has no bit of its own.
const FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const FEATURES: u64 = FEATURE_PAGEFAULT_FLAG_WP
    | FEATURE_THREAD_ID
    | FEATURE_MINOR_SHMEM
    | FEATURE_EXACT_ADDRESS
    | FEATURE_WP_HUGETLBFS_SHMEM;
/// Set by tests: behaves as a kernel before 6.4.
const OLD_KERNEL: &str = "GOSSAMER_REGION_OLD_KERNEL";
const REGISTER_MODES: u64 = 1 /* MISSING */ | 2 /* WP */ | 4 /* MINOR */;
const CONTINUE: Opcode = opcode::read_write::<Fill>(GROUP, 7);
const ZEROPAGE: Opcode = opcode::read_write::<Fill>(GROUP, 4);
const CONTINUE_MODE_WP: u64 = 2;
const WRITEPROTECT_MODE_WP: u64 = 1;
const EVENT_PAGEFAULT: u8 = 0x12;
const PAGEFAULT_FLAG_WRITE: u64 = 1;

#[repr(C)]
struct Handshake {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Span {
    start: u64,
    bytes: u64,
}

#[repr(C)]
struct Register {
    span: Span,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct WriteProtect {
    span: Span,
    mode: u64,
}

/// `struct uffdio_continue` and `struct uffdio_zeropage`.
#[repr(C)]
struct Fill {
    span: Span,
    mode: u64,
    mapped: i64,
}

/// `struct uffd_msg` of a page fault.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread: u64,
}

const _: () = assert!(size_of::<Event>() == 32 && size_of::<Fill>() == 32 && size_of::<Register>() == 32);

/// A page fault; its thread waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) address: usize,
    pub(crate) write: bool,
    /// The system's id of the thread.
    pub(crate) thread: u32,
}

/// The userfaultfd descriptor.
#[derive(Debug)]
pub(crate) struct Uffd {
    file: File,
    can_share: bool,
}

impl Span {
    fn of(range: &Range<usize>) -> Span {
        Span { start: range.start as u64, bytes: range.len() as u64 }
    }
}

impl Uffd {
    /// Opens it with the features that regions need, and with those that make them faster if there are.
    pub(crate) fn open() -> Result<Uffd, Failure> {
        if std::env::var_os(OLD_KERNEL).is_none() {
            match Uffd::with(FEATURES | FEATURE_WP_UNPOPULATED) {
                Err(Failure::OldKernel) => {}
                opened => return opened.map(|file| Uffd { file, can_share: true }),
            }
        }
        Uffd::with(FEATURES).map(|file| Uffd { file, can_share: false })
    }

    /// Whether pages can be installed read-only.
    pub(crate) fn can_share(&self) -> bool {
        self.can_share
    }

    fn with(features: u64) -> Result<File, Failure> {
        // SAFETY: the descriptor is passed to `Uffd` alone, which vouches for every operation on it.
        let fd = match unsafe { userfaultfd(UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK) } {
            Err(Errno::PERM) => by_device()?,
            Err(Errno::NOSYS) => return Err(Failure::NoUserfaultfd),
            other => other.map_err(|errno| Failure::system(Doing::Open, errno))?,
        };
        let mut handshake = Handshake { api: API, features, ioctls: 0 };
        // SAFETY: the opcode matches the struct, which the system reads and writes.
        let shaken =
            unsafe { ioctl(&fd, Updater::<{ opcode::read_write::<Handshake>(GROUP, 0x3f) }, _>::new(&mut handshake)) };
        match shaken {
            Ok(()) => Ok(File::from(fd)),
            Err(Errno::INVAL) => Err(Failure::OldKernel),
            Err(errno) => Err(Failure::system(Doing::Handshake, errno)),
        }
    }

    /// Makes faults in this range come as events.
    ///
    /// # Safety
    /// The range is a mapping of a memory file, and stays one; its pages get bytes only through this crate.
    pub(crate) unsafe fn register(&self, range: &Range<usize>) -> Result<(), Errno> {
        let mut register = Register { span: Span::of(range), mode: REGISTER_MODES, ioctls: 0 };
        // SAFETY: the opcode matches the struct; the range is as the caller says.
        unsafe { ioctl(&self.file, Updater::<{ opcode::read_write::<Register>(GROUP, 0) }, _>::new(&mut register)) }
    }

    /// Maps the pages that the file has, writable or not (if it can), and wakes the waiters there. Pages that are
    /// mapped already stay as they are.
    pub(crate) fn install(&self, range: Range<usize>, writable: bool) -> Result<(), Errno> {
        let mode = if writable { 0 } else { CONTINUE_MODE_WP };
        self.map::<CONTINUE>(range, mode, &|mapped| self.wake(mapped))
    }

    /// Makes pages of zeros, maps them writable, and wakes the waiters there. Pages that the file has are mapped as
    /// they are.
    pub(crate) fn install_zeros(&self, range: Range<usize>) -> Result<(), Errno> {
        self.map::<ZEROPAGE>(range, 0, &|page| self.install(page, true))
    }

    /// Maps page after page; `if_there` is called for those that are there already. The system takes no range of more
    /// than one mapping, and a view is several where the protection of a part was changed, as guards of stacks do
    /// (`ffi/src/stack.rs`).
    fn map<const OPCODE: Opcode>(
        &self,
        range: Range<usize>,
        mode: u64,
        if_there: &dyn Fn(Range<usize>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut at = range.start;
        while at < range.end {
            let mut asked = Fill { span: Span::of(&(at..range.end)), mode, mapped: 0 };
            // SAFETY: the opcode matches the struct; the pages are those of the file that the range maps.
            let done = unsafe { ioctl(&self.file, Updater::<OPCODE, _>::new(&mut asked)) };
            at += usize::try_from(asked.mapped).unwrap_or(0);
            match done {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) if asked.mapped <= 0 => {
                    if_there(at..at + PAGE_BYTES)?;
                    at += PAGE_BYTES;
                }
                Err(Errno::AGAIN | Errno::EXIST | Errno::INTR) => {}
                Err(Errno::NOENT) if range.end - at > PAGE_BYTES => {
                    let middle = middle(&(at..range.end));
                    self.map::<OPCODE>(at..middle, mode, if_there)?;
                    at = middle;
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Protects mapped pages from writes, or makes them writable and wakes the waiters for that.
    pub(crate) fn protect(&self, range: &Range<usize>, is_protected: bool) -> Result<(), Errno> {
        let mode = if is_protected { WRITEPROTECT_MODE_WP } else { 0 };
        loop {
            let mut asked = WriteProtect { span: Span::of(range), mode };
            // SAFETY: the opcode matches the struct.
            let done = unsafe {
                ioctl(&self.file, Updater::<{ opcode::read_write::<WriteProtect>(GROUP, 6) }, _>::new(&mut asked))
            };
            match done {
                Err(Errno::AGAIN | Errno::INTR) => {}
                // More than one mapping, which kernels before 6.2 refuse here too.
                Err(Errno::NOENT) if range.len() > PAGE_BYTES => {
                    let middle = middle(range);
                    self.protect(&(range.start..middle), is_protected)?;
                    return self.protect(&(middle..range.end), is_protected);
                }
                other => return other,
            }
        }
    }

    /// Lets the waiters there try again.
    pub(crate) fn wake(&self, range: Range<usize>) -> Result<(), Errno> {
        // SAFETY: the opcode matches the struct, which the system reads.
        unsafe { ioctl(&self.file, Setter::<{ opcode::read::<Span>(GROUP, 2) }, _>::new(Span::of(&range))) }
    }

    /// Waits until there are faults.
    pub(crate) fn wait(&self) -> Result<(), Errno> {
        let mut fds = [rustix::event::PollFd::new(&self.file, rustix::event::PollFlags::IN)];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, None)).map(drop)
    }

    /// Appends the pending faults.
    pub(crate) fn read(&self, faults: &mut Vec<Fault>) -> Result<(), Errno> {
        let mut bytes = [0u8; 32 * size_of::<Event>()];
        let got = match rustix::io::retry_on_intr(|| rustix::io::read(&self.file, &mut bytes)) {
            Err(Errno::AGAIN) => 0,
            got => got?,
        };
        for event in bytes[..got].chunks_exact(size_of::<Event>()) {
            let word = |at: usize| u64::from_ne_bytes(*event[at..].first_chunk().unwrap_or(&[0; 8]));
            if event[0] == EVENT_PAGEFAULT {
                let write = word(8) & PAGEFAULT_FLAG_WRITE != 0;
                faults.push(Fault { address: word(16) as usize, write, thread: word(24) as u32 });
            }
        }
        Ok(())
    }
}

/// Returns a page boundary in the middle of several pages.
fn middle(range: &Range<usize>) -> usize {
    range.start + (range.len() / 2).next_multiple_of(PAGE_BYTES)
}

/// Opens the descriptor through the device, for users that may not call userfaultfd(2).
fn by_device() -> Result<OwnedFd, Failure> {
    let device = File::options().read(true).write(true).open("/dev/userfaultfd").map_err(|_| Failure::NotAllowed)?;
    let flags = (UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK).bits() as usize;
    // SAFETY: the opcode matches the number.
    let made =
        unsafe { ioctl(device.as_fd(), NewDescriptor(IntegerSetter::<{ opcode::none(GROUP, 0) }>::new_usize(flags))) };
    // SAFETY: the system has just made the descriptor, and nothing else owns it.
    made.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).map_err(|_| Failure::NotAllowed)
}

/// `USERFAULTFD_IOC_NEW`: takes flags, returns a descriptor.
struct NewDescriptor(IntegerSetter<{ opcode::none(GROUP, 0) }>);

// SAFETY: everything but the result is that of the inner ioctl.
unsafe impl rustix::ioctl::Ioctl for NewDescriptor {
    type Output = RawFd;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> rustix::ioctl::Opcode {
        self.0.opcode()
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        self.0.as_ptr()
    }

    // SAFETY: as the trait says; the system returns the descriptor.
    unsafe fn output_from_ptr(out: rustix::ioctl::IoctlOutput, _: *mut std::ffi::c_void) -> rustix::io::Result<RawFd> {
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::ptr;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect};

    use super::*;

    const PAGES: usize = 8;
    const CLOSED: usize = 3;

    /// Maps a file's pages, with the page in `CLOSED` inaccessible.
    fn view(file: &File, uffd: &Uffd) -> Range<usize> {
        let (bytes, access) = (PAGES * PAGE_BYTES, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping of a memory file, which stays.
        let start = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0) }.unwrap();
        let range = start.expose_provenance()..start.addr() + bytes;
        // SAFETY: the same mapping; a page within it.
        unsafe {
            uffd.register(&range).unwrap();
            mprotect(start.byte_add(CLOSED * PAGE_BYTES), PAGE_BYTES, MprotectFlags::empty()).unwrap();
        }
        range
    }

    /// Reads the first word of each page that is not closed. They must be installed: no thread would serve a fault.
    fn words(view: &Range<usize>) -> Vec<u64> {
        let open = (0..PAGES).filter(|page| *page != CLOSED);
        // SAFETY: pages of the view that may be read.
        let word =
            |page| unsafe { ptr::with_exposed_provenance::<u64>(view.start + page * PAGE_BYTES).read_volatile() };
        open.map(word).collect()
    }

    #[test]
    fn runs_go_over_guards_of_stacks() {
        let uffd = match Uffd::open() {
            Ok(uffd) => uffd,
            Err(failure) => return println!("SKIPPED: no page faults of our own: {failure:?}"),
        };
        let file = || {
            let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
            ftruncate(&file, (PAGES * PAGE_BYTES) as u64).unwrap();
            file
        };
        let (new, written) = (file(), file());
        let zeros = view(&new, &uffd);
        uffd.install_zeros(zeros.clone()).unwrap();
        uffd.protect(&zeros, true).unwrap();
        uffd.protect(&zeros, false).unwrap();
        assert_eq!(words(&zeros), [0; PAGES - 1]);
        for page in 0..PAGES {
            written.write_all_at(&(page as u64 + 1).to_ne_bytes(), (page * PAGE_BYTES) as u64).unwrap();
        }
        let numbers = view(&written, &uffd);
        uffd.install(numbers.clone(), true).unwrap();
        uffd.install(numbers.clone(), true).unwrap();
        assert_eq!(words(&numbers), [1, 2, 3, 5, 6, 7, 8]);
    }
}
