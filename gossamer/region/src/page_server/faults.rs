//! The path of page faults to the page server: a thread of its own, `gossamer-faults`, reads them and only passes them
//! on.
//!
//! Invariant: neither this thread nor the page server ever touches a view, since no thread could serve its fault; such
//! a fault ends the program.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gossamer::link;
use trust::link::{post, set_linger};

use super::{BYTES_MAX, knobs, slow::say, with};
use crate::error::{Doing, Failure};
use crate::linger::linger;
use crate::page::PAGE_BYTES;
use crate::uffd::{Fault, Uffd};

/// Time for which an idle page server, and the thread that reads faults, yield their core before they sleep. Where a
/// wake-up takes 30 us, as in a virtual machine, a page fetched with all of them asleep takes eight times as long as
/// with none asleep (measured: 120 and 15 us).
const LINGER: Duration = Duration::from_micros(500);

/// Time for which a thread waits at a page after the program's end before that is reported: a process that is just
/// ending is gone by then.
const GRACE: Duration = Duration::from_secs(2);

/// Whether the page server has ended, so that faults are no longer served.
static HAS_ENDED: AtomicBool = AtomicBool::new(false);
static UFFD: OnceLock<Uffd> = OnceLock::new();
/// Thread ids of the page server and of the thread that reads faults.
static NEVER_FAULTS: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

/// Returns the userfaultfd; `None` before the first region.
pub(super) fn uffd() -> Option<&'static Uffd> {
    UFFD.get()
}

/// Sets up all that the first region needs.
pub(super) fn start() -> Result<(), Failure> {
    if UFFD.get().is_some() {
        return Ok(());
    }
    let bytes = rustix::param::page_size();
    if bytes != PAGE_BYTES {
        return Err(Failure::PageSize(bytes));
    }
    knobs::read();
    let uffd = Uffd::open()?;
    link::open_share(link::REGION, BYTES_MAX).map_err(|error| Failure::tell_share(&error))?;
    let uffd = UFFD.get_or_init(|| uffd);
    NEVER_FAULTS[0].store(own_thread(), Ordering::Relaxed);
    set_linger(LINGER);
    let thread = std::thread::Builder::new().name("gossamer-faults".to_owned());
    // Threads that wait for pages would wait for ever.
    let started = thread.spawn(move || link::or_end("the thread that reads page faults", || pass_faults_on(uffd)));
    started.map(drop).map_err(|error| Failure::System(Doing::Thread, error.raw_os_error().unwrap_or(0)))
}

/// Body of the thread that reads faults.
fn pass_faults_on(uffd: &'static Uffd) {
    // Relaxed: only this thread reads it, and the page server's was stored before this thread started.
    NEVER_FAULTS[1].store(own_thread(), Ordering::Relaxed);
    let server = link::page_server(gossamer::rack().machine());
    let (mut faults, mut bytes) = (vec![], vec![]);
    let mut since = Instant::now();
    loop {
        if let Err(errno) = uffd.read(&mut faults) {
            link::abort(&format!("page faults cannot be read: {errno}"));
        }
        if faults.is_empty() {
            if !linger(since, LINGER)
                && let Err(errno) = uffd.wait()
            {
                link::abort(&format!("page faults cannot be waited for: {errno}"));
            }
            continue;
        }
        since = Instant::now();
        #[cfg(test)]
        super::planted::panic_on("faults");
        // Acquire: with the Release of `end`.
        if HAS_ENDED.load(Ordering::Acquire) {
            tell_of_the_end(faults[0].address);
        }
        for fault in faults.drain(..) {
            if NEVER_FAULTS.iter().any(|never| never.load(Ordering::Relaxed) == fault.thread) {
                let address = fault.address;
                link::abort(&format!(
                    "the page server has touched a region, at {address:#x}: nobody could answer its fault"
                ));
            }
            encode(fault, &mut bytes);
        }
        post(server, faulted, &bytes);
        bytes.clear();
    }
}

/// Ends serving faults. Threads that wait at pages of these ranges fault again, and those faults are reported.
pub(super) fn end(regions: impl Iterator<Item = Range<usize>>) {
    let Some(uffd) = uffd() else { return };
    // Release: with the Acquire of `pass_faults_on`.
    HAS_ENDED.store(true, Ordering::Release);
    for range in regions {
        if let Err(errno) = uffd.wake(range) {
            say(format_args!("gossamer: threads that wait for pages cannot be woken: {errno}"));
        }
    }
}

/// Ends the process, a thread of which waits forever. Without exit handlers: that thread may hold the lock of a stream.
fn tell_of_the_end(address: usize) -> ! {
    std::thread::sleep(GRACE);
    say(format_args!(
        "gossamer: a thread has touched a region, at {address:#x}, after the program's end: other machines have \
         its pages, and have ended. Use \
         spans before `gsm_main` returns: copy what is needed afterwards (`to_vec`), and join the threads that \
         have spans"
    ));
    std::process::abort()
}

const FAULT_BYTES: usize = size_of::<usize>() + size_of::<u32>() + 1;

fn encode(Fault { address, write, thread }: Fault, to: &mut Vec<u8>) {
    to.extend_from_slice(&address.to_ne_bytes());
    to.extend_from_slice(&thread.to_ne_bytes());
    to.push(u8::from(write));
}

fn decode(bytes: &[u8; FAULT_BYTES]) -> Option<Fault> {
    let (address, rest) = bytes.split_first_chunk()?;
    let (thread, write) = rest.split_first_chunk()?;
    let (address, thread) = (usize::from_ne_bytes(*address), u32::from_ne_bytes(*thread));
    Some(Fault { address, write: write != [0], thread })
}

fn faulted(bytes: &[u8]) {
    with(|server, errands| {
        #[cfg(test)]
        super::planted::panic_on("server");
        for fault in bytes.as_chunks().0.iter().filter_map(decode) {
            server.fault(fault, errands);
        }
    });
}

fn own_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}
