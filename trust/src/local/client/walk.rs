//! Where the requests of a batch lie; walks over them, and over the continuations of their responses.

use std::mem::MaybeUninit;

use crate::config::QUEUE_CHUNK_BYTES;
use crate::property::Header;
use crate::request::{CONTINUATION_HEAD, Continuation, Fault, Operation, Pair, Resuming};
use crate::slot::Body;
use crate::unwind::quietly;

/// Runs the continuations of a batch of `count` requests, of which some failed.
///
/// # Safety
/// They lie one behind the other from `next` on [continuation-read-once], in the order of the responses.
pub(crate) unsafe fn resume_batch(resuming: &mut Resuming, faults: Vec<(u32, Fault)>, count: u32) {
    let mut faults = faults.into_iter();
    let mut failed = faults.next();
    let mut index = 0;
    while index < count {
        let run = || {
            // Up to the next fault; the fault; and so on.
            while index < count {
                let until = failed.as_ref().map_or(count, |(index, _)| *index);
                while index < until {
                    index += 1;
                    // SAFETY: the caller's promise.
                    unsafe { resume_next(resuming, None) };
                }
                if let Some((_, fault)) = std::mem::replace(&mut failed, faults.next()) {
                    index += 1;
                    // SAFETY: as above.
                    unsafe { resume_next(resuming, Some(fault)) };
                }
            }
        };
        // A panic of a callback is reported by the panic hook; the next ones run.
        quietly(run);
    }
}

/// Runs the continuation that lies at `next`.
///
/// # Safety
/// There is one [continuation-read-once], and the responses stand at its response unless there is a fault.
#[inline(always)]
pub(super) unsafe fn resume_next(resuming: &mut Resuming, fault: Option<Fault>) {
    let at = resuming.next;
    // SAFETY: the caller's promise; `next` is moved on by the continuation [next-before-panic].
    unsafe {
        let continuation = *at.cast::<&'static Continuation>();
        (continuation.resume)(at.add(CONTINUATION_HEAD), resuming, fault);
    }
}

/// Memory for requests, one behind the other.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) start: *mut u8,
    pub(crate) end: *mut u8,
}

impl Part {
    fn of<const BYTES: usize>(part: *mut [MaybeUninit<u8>; BYTES]) -> Self {
        Part { start: part.cast(), end: part.wrapping_add(1).cast() }
    }
}

/// Requests of a batch: first those in the primary part, then the rest. Those of a batch that was queued are in a chunk
/// of memory, whose address the slot's body has; it counts as primary part.
pub(crate) struct Requests {
    pub(crate) written: u32,
    pub(crate) in_primary: u32,
    pub(crate) primary: Part,
    pub(crate) overflow: Part,
}

/// Stands for the number of requests in the primary part where they are in a chunk.
const IN_CHUNK: u32 = u32::MAX;

impl Requests {
    /// # Safety
    /// The caller owns the request body, whose head was written by this type. A chunk is the caller's as the body is.
    #[inline(always)]
    pub(crate) unsafe fn of(body: *mut Body) -> Requests {
        // SAFETY: the caller's promise.
        unsafe {
            let (in_primary, written) = ((*body).head as u32, ((*body).head >> 32) as u32);
            let (mut primary, overflow) = (Part::of(&raw mut (*body).primary), Part::of(&raw mut (*body).overflow));
            if in_primary != IN_CHUNK {
                return Requests { written, in_primary, primary, overflow };
            }
            let start = primary.start.cast::<*mut u8>().read();
            primary = Part { start, end: start.wrapping_add(QUEUE_CHUNK_BYTES) };
            Requests { written, in_primary: written, primary, overflow }
        }
    }

    /// Writes the head of a body for requests in its own parts.
    ///
    /// # Safety
    /// The caller owns the body.
    #[inline(always)]
    pub(super) unsafe fn write(body: *mut Body, in_primary: u32, written: u32) {
        // SAFETY: the caller's promise.
        unsafe { (*body).head = u64::from(in_primary) | (u64::from(written) << 32) }
    }

    /// Writes a body for requests in a chunk that begins at `start`.
    ///
    /// # Safety
    /// As for `write`.
    pub(super) unsafe fn write_chunk(body: *mut Body, start: *mut u8, written: u32) {
        // SAFETY: the caller's promise; the primary part is aligned to 8 bytes.
        unsafe {
            (&raw mut (*body).primary).cast::<*mut u8>().write(start);
            Self::write(body, IN_CHUNK, written);
        }
    }
}

/// Walks the requests of a batch; `visit` returns the start of the next one.
///
/// # Safety
/// They are the caller's.
pub(crate) unsafe fn for_each_request(
    pair: &Pair,
    requests: &Requests,
    mut visit: impl FnMut(&'static Operation, *mut u8) -> *mut u8,
) {
    let mut at = requests.primary.start;
    for index in 0..requests.written {
        if index == requests.in_primary {
            at = requests.overflow.start;
        }
        // SAFETY: the caller's promise; the parts hold as many requests as the numbers say.
        let (operation, _, captures) = unsafe { pair.read_head::<Header>(at) };
        at = visit(operation, captures);
    }
}
