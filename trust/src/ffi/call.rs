//! `trust_apply` and `trust_apply_then`: requests that are a C function with bytes as arguments.
//!
//! Up to [`INLINE_BYTES`] of arguments lie in the slot behind the function's address, in one of a few sizes; more get a
//! separate allocation. Results are byte strings in the response half of the slot (`Writer::put_room`), of any length.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use super::types::{Block, Failure, Function, Handle, Result, Status, Then, TrustResult, Value, null};
use super::{may_wait, with_worker};
use crate::config::MESSAGE_BYTES_MAX;
use crate::ids::TrusteeId;
use crate::property::{Header, Property};
use crate::request::{Fault, Host, Request, Response, Resuming, Serving, Target};
use crate::runtime::worker::{self, Context, Worker};
use crate::tasks::reply::Reply;
use crate::unwind::quietly;

/// Function that is not null.
pub(super) type Called =
    unsafe extern "C" fn(property: *mut c_void, arguments: *const c_void, length: usize, result: *mut TrustResult);
/// Callback that is not null.
type Callback = unsafe extern "C" fn(context: *mut c_void, status: Status, result: *const c_void, length: usize);

/// Most words of arguments that travel in the slot: with the function, as much as any capture may have.
const INLINE_WORDS: usize = crate::config::INLINE_BYTES / 8 - 1;
/// The same in bytes.
pub const INLINE_BYTES: usize = 8 * INLINE_WORDS;
/// Bits of an address; the bits above hold a length.
const ADDRESS_BITS: u32 = 48;

/// Argument block of a call that is being made.
#[derive(Clone, Copy)]
pub(super) struct Arguments {
    at: *const c_void,
    length: usize,
}

impl Arguments {
    /// # Safety
    /// If the length is not 0, as many bytes at `at` can be read while this is used.
    pub(super) unsafe fn new(at: *const c_void, length: usize) -> Result<Self> {
        if at.is_null() && length > 0 {
            return Err(null("the argument block"));
        }
        if length > MESSAGE_BYTES_MAX {
            let text = format!(
                "{length} bytes of arguments, and one request carries {MESSAGE_BYTES_MAX} at most: send a pointer"
            );
            return Err(Failure::new(Status::TRUST_TOO_LARGE, text));
        }
        Ok(Arguments { at, length })
    }

    fn copy_to(self, to: *mut u8) {
        if self.length > 0 {
            // SAFETY: the promise of `new`; all callers have made room for as many bytes.
            unsafe { ptr::copy_nonoverlapping(self.at.cast(), to, self.length) }
        }
    }

    pub(super) fn to_block(self) -> ArgumentBlock {
        let mut words = Box::new_uninit_slice(self.length.div_ceil(8));
        self.copy_to(words.as_mut_ptr().cast());
        ArgumentBlock { words, length: self.length }
    }
}

/// Arguments in a separate allocation.
pub(super) struct ArgumentBlock {
    words: Box<[MaybeUninit<u64>]>,
    length: usize,
}

impl ArgumentBlock {
    pub(super) fn parts(&self) -> (*const c_void, usize) {
        (self.words.as_ptr().cast(), self.length)
    }
}

/// Function with arguments that travel in the slot: the bits above the function's address hold the length.
struct Call<const WORDS: usize> {
    word: u64,
    arguments: [MaybeUninit<u64>; WORDS],
}

impl<const WORDS: usize> Call<WORDS> {
    #[inline(always)]
    fn new(function: Called, arguments: Arguments) -> Self {
        let address = function as *const () as u64;
        let word = address | ((arguments.length as u64) << ADDRESS_BITS);
        let mut call = Call { word, arguments: [MaybeUninit::uninit(); WORDS] };
        arguments.copy_to(call.arguments.as_mut_ptr().cast());
        call
    }
}

impl<const WORDS: usize> Request for Call<WORDS> {
    const TARGET: Target = Target::property_of::<Value>();

    #[inline(always)]
    unsafe fn run(self, property: *mut Header, serving: &mut Serving) {
        let address = (self.word & ((1 << ADDRESS_BITS) - 1)) as usize;
        // SAFETY: `new` took the word from a function of this type, whose address fits (`post`).
        let function = unsafe { std::mem::transmute::<*const (), Called>(ptr::with_exposed_provenance(address)) };
        let length = (self.word >> ADDRESS_BITS) as usize;
        // SAFETY: the caller's promise; the arguments live until the end of this call.
        unsafe { run(function, self.arguments.as_ptr().cast(), length, property, serving) }
    }
}

/// Function with arguments in a separate allocation.
struct LongCall {
    function: Called,
    arguments: ArgumentBlock,
}

impl Request for LongCall {
    const TARGET: Target = Target::property_of::<Value>();

    unsafe fn run(self, property: *mut Header, serving: &mut Serving) {
        let (at, length) = self.arguments.parts();
        // SAFETY: as for `Call`.
        unsafe { run(self.function, at, length, property, serving) }
    }
}

/// # Safety
/// Same as [`Request::run`], of a property that is a [`Value`].
#[inline(always)]
unsafe fn run(function: Called, at: *const c_void, length: usize, property: *mut Header, serving: &mut Serving) {
    // SAFETY: live [property-live], a `Value` by its handle; nothing else borrows it [closures-take-turns]. Nothing
    // else uses the writer meanwhile, for requests made by the function wait for their turn. The C program has promised
    // that the function is as its type says.
    unsafe {
        let mut result = TrustResult::in_slot(&raw mut serving.out);
        function(Property::<Value>::value(property).data, at, length, &raw mut result);
        result.finish();
    }
}

/// Callback of the client, which receives the outcome.
pub(super) struct Answer {
    then: Callback,
    context: *mut c_void,
}

impl Answer {
    /// Makes the callback; without a function the outcome is ignored.
    pub(super) fn new(then: Then, context: *mut c_void) -> Self {
        Answer { then: then.unwrap_or(ignore), context }
    }

    /// Calls back with an error.
    #[cold]
    pub(super) fn fail(self, fault: Fault) {
        let failure = Failure::from(fault);
        super::note(&failure.text);
        // SAFETY: the promise that came with the function.
        unsafe { (self.then)(self.context, failure.status, ptr::null(), 0) }
    }

    #[inline(always)]
    pub(super) fn give(self, result: *const c_void, length: usize) {
        // SAFETY: as above.
        unsafe { (self.then)(self.context, Status::TRUST_OK, result, length) }
    }
}

impl Response for Answer {
    #[inline(always)]
    unsafe fn resume(self, resuming: &mut Resuming, fault: Option<Fault>) {
        match fault {
            // SAFETY: without a fault `run` has put bytes.
            None => unsafe { resuming.responses.take_bytes(|result| self.give(result.as_ptr().cast(), result.len())) },
            Some(fault) => self.fail(fault),
        }
    }
}

/// Applies a function and continues; `then` is called with the outcome.
///
/// # Errors
/// If the call cannot be made; then `then` is not called.
///
/// # Safety
/// The handle is of a trust that is not dropped; the functions may be called as their types say, on the threads that
/// docs/c-api.md says; if the length is not 0 as many bytes at `arguments` can be read.
#[inline]
pub unsafe fn apply_then(
    handle: Handle,
    function: Function,
    (arguments, length): (*const c_void, usize),
    then: Then,
    context: *mut c_void,
) -> Result<()> {
    let function = function.ok_or_else(|| null("the function"))?;
    let answer = Answer::new(then, context);
    let (property, trustee) = handle.parts_of::<Value>()?;
    // SAFETY: the caller's promise.
    let arguments = unsafe { Arguments::new(arguments, length) }?;
    with_worker(|worker| {
        // SAFETY: the caller's promise.
        unsafe { post(worker, (property, trustee), function, arguments, answer) };
        Ok(())
    })
}

// SAFETY: it does nothing.
unsafe extern "C" fn ignore(_context: *mut c_void, _status: Status, _result: *const c_void, _length: usize) {}

/// # Safety
/// Same as [`apply_then`].
#[inline(always)]
unsafe fn post(
    worker: &Worker,
    (property, trustee): (*mut Header, TrusteeId),
    function: Called,
    arguments: Arguments,
    answer: Answer,
) {
    if trustee == worker.home.get() {
        // SAFETY: the caller's promise.
        return unsafe { post_here(worker, property, function, arguments, answer) };
    }
    let may_wait = worker.context() == Context::Free;
    macro_rules! submit {
        ($words:expr) => {
            worker.submit(trustee, property, Call::<{ $words }>::new(function, arguments), answer, may_wait)
        };
    }
    if (function as *const () as u64) >> ADDRESS_BITS != 0 {
        return worker.submit(
            trustee,
            property,
            LongCall { function, arguments: arguments.to_block() },
            answer,
            may_wait,
        );
    }
    match arguments.length.div_ceil(8) {
        0 => submit!(0),
        1 => submit!(1),
        2 => submit!(2),
        3 => submit!(3),
        4 => submit!(4),
        5..=6 => submit!(6),
        7..=8 => submit!(8),
        9..=12 => submit!(12),
        13..=16 => submit!(16),
        17..=24 => submit!(24),
        25..=INLINE_WORDS => submit!(INLINE_WORDS),
        _ => worker.submit(trustee, property, LongCall { function, arguments: arguments.to_block() }, answer, may_wait),
    }
}

/// Calls a function on this thread's own trustee: at once, or as soon as the running function has returned.
///
/// # Safety
/// Same as [`apply_then`]; the property is of this trustee.
unsafe fn post_here(worker: &Worker, property: *mut Header, function: Called, arguments: Arguments, answer: Answer) {
    let is_free = worker.context() == Context::Free;
    if is_free && arguments.at.addr().is_multiple_of(8) {
        // SAFETY: the caller's promise; the context is free.
        return unsafe { call_here(worker, property, function, (arguments.at, arguments.length), answer) };
    }
    let block = arguments.to_block();
    if is_free {
        // SAFETY: as above.
        return unsafe { call_here(worker, property, function, block.parts(), answer) };
    }
    // SAFETY: live; counted until the call has run.
    unsafe { worker.count(property, 1) };
    worker.defer(Box::new(move || {
        worker::with(|worker| {
            // SAFETY: the count above; deferred calls run in free context.
            unsafe {
                call_here(worker, property, function, block.parts(), answer);
                worker.count(property, -1);
            }
        })
    }));
}

/// # Safety
/// Same as [`post_here`], in free context.
unsafe fn call_here(
    worker: &Worker,
    property: *mut Header,
    function: Called,
    (at, length): (*const c_void, usize),
    answer: Answer,
) {
    let mut block = Block::new();
    // SAFETY: the caller's promise; the block is used by this call alone.
    let outcome = unsafe {
        worker.run_alone(property, |value: &mut Value| {
            let mut result = TrustResult::in_block(&raw mut block);
            function(value.data, at, length, &raw mut result);
            result.finish();
        })
    };
    let (result, length) = block.bytes();
    worker.call_back(|| {
        quietly(|| match outcome {
            Ok(()) => answer.give(result, length),
            Err(fault) => answer.fail(fault),
        })
    });
    worker.after_run_here();
}

/// Place in which a waiting caller receives its result.
pub(super) struct Waiting {
    reply: Reply<Status>,
    result: *mut c_void,
    capacity: usize,
    length: usize,
    /// Text of a failure. Also noted for the thread, but other failures may overwrite it before the waiter continues.
    text: String,
}

impl Waiting {
    /// # Safety
    /// A length that is not null is the room at `result`; both may be written.
    pub(super) unsafe fn new(result: *mut c_void, length: *mut usize) -> Result<Self> {
        // SAFETY: the caller's promise.
        let capacity = if length.is_null() { 0 } else { unsafe { length.read() } };
        if result.is_null() && capacity > 0 {
            return Err(null("the room for the result"));
        }
        Ok(Waiting { reply: Reply::new(), result, capacity, length: 0, text: String::new() })
    }

    /// Receives the outcome.
    ///
    /// # Safety
    /// The context is a `Waiting` that waits; the result may be read.
    pub(super) unsafe extern "C" fn receive(this: *mut c_void, status: Status, result: *const c_void, length: usize) {
        let this = this.cast::<Waiting>();
        // SAFETY: `wait` has not returned: only this function fills the reply, and the waiter reads the other fields
        // afterwards. The room belongs to the caller, and is as large as the capacity.
        unsafe {
            if length > 0 && length <= (*this).capacity {
                ptr::copy_nonoverlapping(result.cast::<u8>(), (*this).result.cast(), length);
            }
            (*this).length = length;
            if status != Status::TRUST_OK {
                (*this).text = super::noted();
            }
            ((*this).reply.answer())(Ok(status));
        }
    }

    /// # Safety
    /// This was made into the context of one request, which is under way; `length` is the argument of `new`.
    pub(super) unsafe fn wait(this: *mut Self, worker: &Worker, length: *mut usize) -> Result<()> {
        // SAFETY: `receive` writes through the same pointer, and before the reply is there.
        let status = unsafe { (*this).reply.wait(worker) }?;
        // SAFETY: the outcome is there, so nothing else uses it.
        let this = unsafe { &mut *this };
        if !length.is_null() {
            // SAFETY: the caller's promise.
            unsafe { length.write(this.length) };
        }
        match status {
            Status::TRUST_OK if this.length > this.capacity && !length.is_null() => {
                let text = format!("the result has {} bytes, and there is room for {}", this.length, this.capacity);
                Err(Failure::new(Status::TRUST_TOO_LARGE, text))
            }
            Status::TRUST_OK => Ok(()),
            status => Err(Failure { status, text: std::mem::take(&mut this.text) }),
        }
    }
}

/// Applies a function and waits for its result.
///
/// # Errors
/// If the call cannot be made, or has no result, or the room for it is too small.
///
/// # Safety
/// Same as [`apply_then`]; a length that is not null is the room at `result`.
pub unsafe fn apply(
    handle: Handle,
    function: Function,
    (arguments, arguments_length): (*const c_void, usize),
    result: *mut c_void,
    length: *mut usize,
) -> Result<()> {
    let function = function.ok_or_else(|| null("the function"))?;
    let (property, trustee) = handle.parts_of::<Value>()?;
    // SAFETY: the caller's promise.
    let (arguments, mut waiting) =
        unsafe { (Arguments::new(arguments, arguments_length)?, Waiting::new(result, length)?) };
    with_worker(|worker| {
        may_wait(worker)?;
        let waiting = &raw mut waiting;
        let answer = Answer { then: Waiting::receive, context: waiting.cast() };
        // SAFETY: the caller's promise; `waiting` stays until the outcome is there.
        unsafe {
            post(worker, (property, trustee), function, arguments, answer);
            Waiting::wait(waiting, worker, length)
        }
    })
}
