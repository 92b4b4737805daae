//! Walks along a batch: over its requests, and over the continuations of its responses.

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

/// Walks the requests of a batch; `visit` returns the start of the next one.
///
/// # Safety
/// The caller owns the published request body.
pub(crate) unsafe fn for_each_request(
    pair: &Pair,
    body: *mut Body,
    mut visit: impl FnMut(&'static Operation, *mut u8) -> *mut u8,
) {
    // SAFETY: the caller's promise; the parts hold as many requests as the head says.
    unsafe {
        let (in_primary, written) = ((*body).head as u32, ((*body).head >> 32) as u32);
        let mut at: *mut u8 = (&raw mut (*body).primary).cast();
        for index in 0..written {
            if index == in_primary {
                at = (&raw mut (*body).overflow).cast();
            }
            let (operation, _, captures) = pair.read_head::<Header>(at);
            at = visit(operation, captures);
        }
    }
}
