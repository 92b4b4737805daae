//! The least that a fault can cost: a handler in the same process, by userfaultfd(2) alone, that copies a page and
//! installs it. No protocol, no other process.

#![allow(unsafe_code)]

use crate::prelude::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::ioctl::{Updater, ioctl, opcode};
use rustix::mm::{Advice, MapFlags, ProtFlags, UserfaultfdFlags, madvise, mmap, userfaultfd};
use std::fs::File;
use std::io::Read;
use std::ptr;

const PAGE: usize = 4096;
const GROUP: u8 = 0xaa;
/// The API, features and modes of `<linux/userfaultfd.h>`.
const API: u64 = 0xaa;
const MINOR_SHMEM: u64 = 1 << 10;
const MISSING_AND_MINOR: u64 = 1 | 4;

/// `struct uffdio_api`.
#[repr(C)]
struct Handshake([u64; 3]);
/// `struct uffdio_register`, and `struct uffdio_continue`: start, bytes, mode, and the system's answer.
#[repr(C)]
struct Range([u64; 4]);

/// Nanoseconds of a fault on each second of so many pages, and the sum of their values: the numbers of the pages.
pub fn faults(pages: usize) -> Result<(f64, u64)> {
    let bytes = 2 * pages * PAGE;
    let file = memfd_create("bare", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, bytes as u64)?;
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
    // SAFETY: new mappings of a file of their own, which stay until the process ends.
    let map = || unsafe { mmap(ptr::null_mut(), bytes, access, flags, &file, 0) };
    let (view, alias) = (map()?, map()?);
    // SAFETY: as above; the advice changes no bytes. A kernel without huge pages knows no such advice.
    let _ = unsafe { madvise(view, bytes, Advice::LinuxNoHugepage) };
    // SAFETY: the descriptor's uses are below.
    let mut uffd = File::from(unsafe { userfaultfd(UserfaultfdFlags::CLOEXEC) }.context("userfaultfd")?);
    let (mut api, mut register) =
        (Handshake([API, MINOR_SHMEM, 0]), Range([view.addr() as u64, bytes as u64, MISSING_AND_MINOR, 0]));
    // SAFETY: the opcodes go with the structs; a thread that touches the view gets pages from the thread below.
    unsafe {
        ioctl(&uffd, Updater::<{ opcode::read_write::<Handshake>(GROUP, 0x3f) }, _>::new(&mut api))?;
        ioctl(&uffd, Updater::<{ opcode::read_write::<Range>(GROUP, 0) }, _>::new(&mut register))?;
    }
    let held: Vec<u64> = (0..bytes / 8).map(|i| (i * 8 / PAGE / 2) as u64).collect();
    let (view, alias) = (view.expose_provenance(), alias.expose_provenance());
    let handler = thread::spawn(move || -> Result<()> {
        let mut event = [0; 32];
        for _ in 0..pages {
            ensure!(uffd.read(&mut event)? == event.len(), "half an event");
            let address = u64::from_ne_bytes(*event[16..].first_chunk().context("an address")?) as usize;
            let at = (address - view) / PAGE * PAGE;
            let from = held[at / 8..][..PAGE / 8].as_ptr().cast::<u8>();
            // SAFETY: a page of the alias, which nobody else touches, and which is not in the view yet.
            unsafe { ptr::copy_nonoverlapping(from, ptr::with_exposed_provenance_mut(alias + at), PAGE) };
            let mut page = Range([(view + at) as u64, PAGE as u64, 0, 0]);
            // SAFETY: the opcode goes with the struct; the page is that of the file which is mapped there.
            unsafe { ioctl(&uffd, Updater::<{ opcode::read_write::<Range>(GROUP, 7) }, _>::new(&mut page))? };
        }
        Ok(())
    });
    let (began, mut sum) = (Instant::now(), 0u64);
    for page in 0..pages {
        let word = ptr::with_exposed_provenance::<u64>(view + 2 * page * PAGE);
        // SAFETY: a word of the view; the handler writes it before it is there. Volatile: it is the fault that is
        // measured.
        sum = sum.wrapping_add(unsafe { ptr::read_volatile(word) });
    }
    let ns = began.elapsed().as_nanos() as f64 / pages as f64;
    handler.join().map_err(|_| anyhow::anyhow!("the handler panicked"))??;
    Ok((ns, sum))
}
