//! The trustee's half of one pair: sees a batch, runs it, answers it.

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

use crate::config::OVERFLOW_BYTES;
use crate::ids::TrusteeId;
use crate::local::client::{Requests, for_each_request};
use crate::prefetch;
use crate::property::Header;
use crate::registry::Shared;
use crate::request::{Fault, Host, Pair, Request, Serving, TrusteeSide};
use crate::running::Running;
use crate::slot::{Body, Writer};

/// The trustee's half of one pair.
pub(crate) struct Incoming {
    pub(crate) client: Arc<Shared>,
    side: TrusteeSide,
    /// Requests and batches served for this client since it came.
    served: Cell<u64>,
    batches: Cell<u64>,
}

impl Incoming {
    pub(crate) fn new(client: Arc<Shared>, pair: Arc<Pair>) -> Self {
        Incoming { client, side: TrusteeSide::new(pair), served: Cell::new(0), batches: Cell::new(0) }
    }

    /// Has the client published a batch?
    #[inline(always)]
    pub(crate) fn has_batch(&self) -> bool {
        self.side.request().is_some()
    }

    /// Is the client gone, with all its batches served?
    pub(crate) fn has_left(&self) -> bool {
        self.side.pair().left() && !self.has_batch()
    }

    /// The pair, with the counts of both halves for a reclamation.
    pub(crate) fn pair(&self) -> &Pair {
        self.side.pair()
    }
    pub(crate) fn served(&self) -> u64 {
        self.served.get()
    }
    pub(crate) fn batches(&self) -> u64 {
        self.batches.get()
    }

    /// Serves one batch if there is one. To be called in `Parker::publish_if` of the client.
    // Always: with one caller for tracing and one without, it would be inlined in neither.
    #[inline(always)]
    pub(crate) fn serve(&self, host: &impl Host) -> bool {
        let Some((requests, responses)) = self.side.request() else {
            return false;
        };
        host.mark_busy();
        // SAFETY: the published bodies are this trustee's until it responds (slot/mod.rs).
        let (written, overflowed) = unsafe { serve_batch(host, self.side.pair(), requests, responses, self.client.id) };
        self.served.set(self.served.get() + u64::from(written));
        self.batches.set(self.batches.get() + 1);
        self.side.respond();
        let counters = host.counters();
        counters.requests_served.add(u64::from(written));
        counters.batches_served.add(1);
        if overflowed {
            counters.responses_overflowed.add(1);
        }
        true
    }

    /// Refuses one batch if there is one: drops its closures unrun and answers each with `Gone`.
    pub(crate) fn refuse(&self) -> bool {
        let Some((requests, responses)) = self.side.request() else {
            return false;
        };
        // SAFETY: as in `serve`.
        unsafe {
            let mut writer = Writer::new(responses);
            let mut index = 0;
            for_each_request(self.side.pair(), &Requests::of(requests), |operation, at| {
                writer.put_fault(index, Fault::Gone);
                index += 1;
                (operation.refuse)(at)
            });
            writer.finish();
        }
        self.side.respond();
        true
    }
}

/// Runs a whole batch in delegated context. Returns its number of requests, and whether the responses needed more than
/// their slot.
///
/// # Safety
/// Both bodies are a published slot of this pair that is the trustee's.
unsafe fn serve_batch(
    host: &impl Host,
    pair: &Pair,
    requests: *mut Body,
    responses: *mut Body,
    client: TrusteeId,
) -> (u32, bool) {
    // SAFETY: the caller owns both bodies.
    let Requests { written, in_primary, primary, overflow } = unsafe { Requests::of(requests) };
    if written > in_primary {
        let lines = ((written - in_primary) as usize * 8).min(OVERFLOW_BYTES).div_ceil(prefetch::LINE_BYTES);
        prefetch::will_read(overflow.start, lines);
        // SAFETY: as above. The client's core has read these lines last.
        prefetch::will_write(unsafe { (&raw const (*responses).overflow).cast() }, lines);
    }
    let spread = host.has_many_properties();
    let mut serving = Serving {
        // SAFETY: the caller owns the response body.
        out: unsafe { Writer::new(responses) },
        next: primary.start,
        index: 0,
        property: ptr::null_mut(),
        client,
    };
    let running = &host.counters().running;
    host.delegated(|| {
        loop {
            let ran = catch_unwind(AssertUnwindSafe(|| {
                // SAFETY: requests were written by `client.rs`: `in_primary` of them, then the rest.
                unsafe {
                    run_until(pair, running, &mut serving, in_primary.min(written), spread.then_some(primary.end));
                    if serving.index == in_primary && in_primary < written {
                        serving.next = overflow.start;
                    }
                    run_until(pair, running, &mut serving, written, spread.then_some(overflow.end));
                }
            }));
            match ran {
                Ok(()) => break,
                Err(payload) => {
                    after_panic(host, &mut serving, payload);
                    if serving.index == in_primary {
                        serving.next = overflow.start;
                    }
                }
            }
        }
    });
    running.end();
    (written, serving.out.finish())
}

/// Runs one request in delegated context, and writes its response.
///
/// # Safety
/// As for [`Request::run`] on this host; the response body is the caller's.
pub(crate) unsafe fn serve_one<C: Request>(
    host: &impl Host,
    property: *mut Header,
    request: C,
    client: TrusteeId,
    responses: *mut Body,
) {
    host.mark_busy();
    // SAFETY: the caller's promise.
    let out = unsafe { Writer::new(responses) };
    let mut serving = Serving { out, next: ptr::null_mut(), index: 0, property: ptr::null_mut(), client };
    host.delegated(|| {
        // SAFETY: the caller's promise.
        let run = || unsafe { request.run(property, &mut serving) };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
            after_panic(host, &mut serving, payload);
        }
    });
    serving.out.finish();
}

/// Requests between the running one and the one whose property is fetched.
const AHEAD: usize = 8;

/// Runs requests, one behind the other, up to the one with this index. Where the properties are spread over much
/// memory, the end of the part is given: then they are fetched ahead.
///
/// # Safety
/// That many requests lie behind `serving.next` in the same part of a slot of this pair.
#[inline(always)]
unsafe fn run_until(pair: &Pair, running: &Running, serving: &mut Serving, end: u32, spread: Option<*mut u8>) {
    while serving.index < end {
        let at = serving.next;
        // SAFETY: a request lies at `next` [next-before-panic]; [request-read-once].
        unsafe {
            let (operation, property, captures) = pair.read_head(at);
            running.begin(operation.as_running());
            (operation.run)(captures, property, serving);
            if let Some(part_end) = spread {
                // Assumes that all requests are as long as this one: otherwise some line is fetched and not used.
                let ahead = serving.next.wrapping_add((AHEAD - 1) * (serving.next.addr() - at.addr()));
                if ahead.addr() < part_end.addr() {
                    prefetch::will_follow(ahead.cast::<MaybeUninit<u64>>().read());
                }
            }
        }
        serving.index += 1;
    }
}

/// Handles a panic of a closure: poisons its property and tells its client.
#[cold]
pub(crate) fn after_panic(host: &impl Host, serving: &mut Serving, payload: Box<dyn Any + Send>) {
    let property = std::mem::replace(&mut serving.property, ptr::null_mut());
    if !property.is_null() {
        host.poison(property, &*payload);
    }
    serving.out.put_fault(serving.index, Fault::Panicked(payload));
    serving.index += 1;
}
