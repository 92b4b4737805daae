//! A closure into bytes and back: the only erasure of closures on the path of a request.
//!
//! A request is `[head][captures]`, padded to 8; the head (`slot/dictionary.rs`) tells operation and property. The
//! [`Operation`] is a static of the closure's type; it knows how to run the captured bytes and how to drop them unrun.
//! On the client's side each request leaves `[continuation: 8 bytes][captures of the response's handler]`, in the same
//! order.
//!
//! Captures implement [`Request`] or [`Response`]; each such type has two forms, itself inline or a pointer to its own
//! allocation (too large or too aligned).
//!
//! Invariants:
//! - [request-read-once] Bytes written for an operation are read once, by `run` or by `refuse` of that operation;
//!   those of a packed form by `run_packed` where they have arrived, or by `drop_packed` where they were not sent.
//! - [continuation-read-once] Likewise for continuations and `resume`.
//! - [next-before-panic] `next` is set before anything that may panic, so that a batch goes on behind a request that
//!   panicked.

#![allow(unsafe_code)]

mod host;

use std::any::{TypeId, type_name};
use std::ptr;

pub(crate) use self::host::Host;
use crate::buffer::fix_padding;
pub(crate) use crate::fault::{Called, Fault};
use crate::ids::TrusteeId;
use crate::property::Header;
use crate::slot::{self, Reader, Writer, align_up, is_inline};
use crate::unwind::quietly;

/// Bytes of a continuation before its captures.
pub(crate) const CONTINUATION_HEAD: usize = 8;

/// Target of a kind of request: checked where another machine has named the request and the property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// No property.
    Nothing,
    /// A property of any type.
    AnyProperty,
    /// A property whose value is of this type.
    Property(TypeId),
}

impl Target {
    pub(crate) const fn property_of<T: 'static>() -> Self {
        Target::Property(TypeId::of::<T>())
    }
}

/// Request of a client to a trustee: the captured part.
pub(crate) trait Request: Sized {
    /// Does it stay in its process? Its values may hold pointers then: it is refused where it would go to another
    /// machine ([`Fault::Apart`]), and has no packed form.
    const STAYS: bool = ANYWHERE;

    /// Runs it at the trustee and puts exactly one response or fault into `serving`.
    ///
    /// # Safety
    /// `property` is the live property that the request was made for ([property-live] in `reclaim.rs`), or null where
    /// the request has none; no other closure of this trustee is running ([closures-take-turns] in `worker/mod.rs`).
    unsafe fn run(self, property: *mut Header, serving: &mut Serving);

    /// Is the packed form (for another machine) the value as it lies in memory, so that it may be written in place?
    /// True only where `pack` is the one below.
    const IS_FLAT: bool = false;
    /// Bytes of the packed form, if they are always as many.
    const PACKED_BYTES: Option<usize> = Some(size_of::<Self>());
    /// Does `submit` run it at once where the trustee's worker is run by the client's? Only where the caller expects an
    /// answer before `submit` returns.
    const RUNS_AT_ONCE: bool = false;
    /// Is there a notice that does the same? Only where the order among the client's requests does not matter, and
    /// there is no answer.
    const HAS_NOTICE: bool = false;
    /// Turns it into that notice.
    fn into_notice(self, _property: *mut Header) -> Result<Notice, Self> {
        Err(self)
    }
    /// The target it runs on.
    const TARGET: Target;

    /// Name of the closure, and of the type of its property, for messages.
    fn name() -> String {
        format!("`{}`", type_name::<Self>())
    }

    /// Appends the packed form. This default is only for types without pointers.
    fn pack(self, to: &mut Vec<u8>) {
        pack_flat(self, to);
    }

    /// The inverse of `pack`; `None` if the length is wrong.
    ///
    /// # Safety
    /// The bytes are the packed form of a `Self` made by this very program.
    unsafe fn unpack(from: &[u8]) -> Option<Self> {
        // SAFETY: the caller's promise.
        (!Self::STAYS && from.len() == size_of::<Self>()).then(|| unsafe { unpack_flat(from) })
    }

    /// Runs it from its packed form; `None` if the length is wrong.
    ///
    /// # Safety
    /// As for `unpack` and `run`.
    unsafe fn run_packed(from: &[u8], property: *mut Header, serving: &mut Serving) -> Option<()> {
        // SAFETY: the caller's promise.
        let request = unsafe { Self::unpack(from) }?;
        // SAFETY: likewise.
        unsafe { request.run(property, serving) };
        Some(())
    }

    /// Drops it unrun, from its packed form.
    ///
    /// # Safety
    /// As for `unpack`.
    unsafe fn drop_packed(from: &[u8]) {
        // SAFETY: the caller's promise.
        drop(unsafe { Self::unpack(from) });
    }
}

/// [`Request::STAYS`] of requests to any machine, and of those within the process.
pub(crate) const ANYWHERE: bool = false;
pub(crate) const IN_PROCESS: bool = true;

/// Describes a closure on a property, for messages.
pub(crate) fn name_on<T, F>() -> String {
    format!("`{}` on a `{}`", type_name::<F>(), type_name::<T>())
}

/// A request that stays in its process. A packed form of it is refused.
pub(crate) trait LocalRequest: Sized {
    /// # Safety
    /// Same as [`Request::run`].
    unsafe fn run(self, property: *mut Header, serving: &mut Serving);
}

impl<R: LocalRequest> Request for R {
    const STAYS: bool = IN_PROCESS;
    const TARGET: Target = Target::Nothing;
    const PACKED_BYTES: Option<usize> = None;

    /// Never called to any effect.
    fn pack(self, _to: &mut Vec<u8>) {}

    unsafe fn unpack(_from: &[u8]) -> Option<Self> {
        None
    }

    #[inline(always)]
    unsafe fn run(self, property: *mut Header, serving: &mut Serving) {
        // SAFETY: the caller's promise.
        unsafe { LocalRequest::run(self, property, serving) }
    }
}

/// A request as a message, where there is no slot for it.
pub(crate) enum Notice {
    /// Trusts of this property were cloned or dropped.
    Count(*mut Header, i32),
    /// This property was entrusted.
    Adopt(*mut Header),
}

/// Appends a value as it lies in memory.
pub(crate) fn pack_flat<C>(value: C, to: &mut Vec<u8>) {
    let start = to.len();
    to.resize(start + size_of::<C>(), 0);
    // SAFETY: the room was just made; the value is moved there.
    unsafe { to.as_mut_ptr().add(start).cast::<C>().write_unaligned(value) }
    fix_padding(to.as_mut_ptr());
}

/// A value from the first bytes of `from`.
///
/// # Safety
/// `pack_flat` of a `C` made them; there are enough.
pub(crate) unsafe fn unpack_flat<C>(from: &[u8]) -> C {
    debug_assert!(from.len() >= size_of::<C>());
    // SAFETY: the caller's promise.
    unsafe { from.as_ptr().cast::<C>().read_unaligned() }
}

/// The client's handler of the response to one request.
pub(crate) trait Response: Sized {
    /// Must the client see it? If not it captures nothing.
    const IS_AWAITED: bool = true;

    /// # Safety
    /// `resuming` stands at the response of the request this was submitted with.
    unsafe fn resume(self, resuming: &mut Resuming, fault: Option<Fault>);
}

/// The slots through which a client's requests go to a trustee.
pub(crate) type Pair = slot::Pair<Operation>;
pub(crate) type ClientSide = slot::ClientSide<Operation>;
pub(crate) type TrusteeSide = slot::TrusteeSide<Operation>;
pub(crate) type RequestHead = slot::RequestHead<Operation>;

/// The trustee's functions for the captured bytes of one type of request.
#[repr(C)]
pub struct Operation {
    /// Mark of an operation, checked where only an address came.
    magic: u64,
    /// Runs the request whose captures lie at the pointer (not yet aligned for them) on the property.
    pub(crate) run: unsafe fn(*mut u8, *mut Header, &mut Serving),
    /// Drops the captures unrun, and returns the start of the next request.
    pub(crate) refuse: unsafe fn(*mut u8) -> *mut u8,
    /// Runs the request from its packed form.
    pub(crate) run_packed: unsafe fn(&[u8], *mut Header, &mut Serving),
    /// Drops the request unrun, from its packed form.
    pub(crate) drop_packed: unsafe fn(&[u8]),
    packed_bytes: Option<usize>,
    pub(crate) target: Target,
    pub(crate) name: fn() -> String,
}

impl Operation {
    /// Its address, for [`Running`](crate::running::Running).
    #[inline(always)]
    pub(crate) fn as_running(&'static self) -> *const () {
        ptr::from_ref(self).cast()
    }

    /// The operation that [`as_running`](Self::as_running) gave.
    ///
    /// # Safety
    /// It gave this address.
    pub(crate) unsafe fn of_running(what: *const ()) -> &'static Operation {
        // SAFETY: the caller's promise; operations are statics.
        unsafe { &*what.cast() }
    }

    const MAGIC: u64 = 0x6f70_6572_6174_696f;
    /// Bytes of an operation.
    pub const BYTES: usize = size_of::<Operation>();

    /// Bytes of each packed request of this kind, or `None` if they differ.
    pub fn packed_bytes(&self) -> Option<usize> {
        self.packed_bytes
    }

    /// Its address, the same relative to the program's image on every machine.
    pub fn position(&'static self) -> usize {
        std::ptr::from_ref(self).expose_provenance()
    }

    /// The operation at an address, if there is one.
    ///
    /// # Safety
    /// [`Operation::BYTES`] bytes at the address, which is a multiple of 8, may be read and never change.
    pub unsafe fn at(address: usize) -> Option<&'static Operation> {
        let pointer = std::ptr::with_exposed_provenance::<Operation>(address);
        // SAFETY: the caller's promise; only the magic is looked at before it is known to be an operation.
        unsafe { ((&raw const (*pointer).magic).read() == Self::MAGIC).then(|| &*pointer) }
    }
}

/// The client's function for the response to one request.
pub(crate) struct Continuation {
    /// Must the client see the response? If not it captures nothing.
    pub(crate) is_awaited: bool,
    /// Takes its captures from the pointer (not yet aligned for them) and the response from the responses.
    pub(crate) resume: unsafe fn(*mut u8, &mut Resuming, Option<Fault>),
}

/// The trustee's state while it serves one batch.
pub(crate) struct Serving {
    pub(crate) out: Writer,
    /// Start of the request after the current one.
    pub(crate) next: *mut u8,
    pub(crate) index: u32,
    /// Property of the closure that runs now; null between closures.
    pub(crate) property: *mut Header,
    pub(crate) client: TrusteeId,
}

impl Serving {
    #[cold]
    pub(crate) fn fault(&mut self, fault: Fault) {
        self.out.put_fault(self.index, fault);
    }
}

/// The client's state while it handles the responses of one batch.
pub(crate) struct Resuming {
    pub(crate) responses: Reader,
    /// Start of the continuation after the current one.
    pub(crate) next: *mut u8,
}

/// Is a `C` captured as itself, or as a pointer to an allocation of its own?
pub(crate) const fn travels_inline<C>() -> bool {
    is_inline(size_of::<C>(), align_of::<C>())
}

/// Bytes that captures of type `C` take behind a head, where they begin at a multiple of 8.
pub(crate) const fn capture_bytes<C>() -> usize {
    let over = if align_of::<C>() > 8 { align_of::<C>() - 8 } else { 0 };
    over + size_of::<C>().next_multiple_of(8)
}

/// Reads captures of type `C` that begin at or behind `at`, and returns the start of the next record.
///
/// # Safety
/// Captures of type `C` were written there by [`write_captures`], and are read once.
#[inline(always)]
pub(crate) unsafe fn read_captures<C>(at: *mut u8) -> (C, *mut u8) {
    // SAFETY: the caller's promise.
    let value = unsafe { align_up(at, align_of::<C>()).cast::<C>().read() };
    (value, at.wrapping_add(capture_bytes::<C>()))
}

/// # Safety
/// `capture_bytes::<C>()` bytes at `at`, a multiple of 8, may be written.
#[inline(always)]
pub(crate) unsafe fn write_captures<C>(at: *mut u8, value: C) {
    // SAFETY: the caller's promise.
    unsafe { align_up(at, align_of::<C>()).cast::<C>().write(value) }
}

/// The operations of requests of type `C`.
pub(crate) struct OperationOf<C>(std::marker::PhantomData<C>);

impl<C: Request> OperationOf<C> {
    pub(crate) const INLINE: &'static Operation = &Self::operation(Self::run_inline, refuse_captures::<C>);
    pub(crate) const BOXED: &'static Operation = &Self::operation(Self::run_boxed, refuse_captures::<Box<C>>);

    const fn operation(
        run: unsafe fn(*mut u8, *mut Header, &mut Serving),
        refuse: unsafe fn(*mut u8) -> *mut u8,
    ) -> Operation {
        Operation {
            magic: Operation::MAGIC,
            run,
            refuse,
            run_packed: Self::run_packed,
            drop_packed: Self::drop_packed,
            packed_bytes: C::PACKED_BYTES,
            target: C::TARGET,
            name: C::name,
        }
    }

    unsafe fn run_packed(bytes: &[u8], property: *mut Header, serving: &mut Serving) {
        // SAFETY: the peer runs this very program and packed a `C` under this operation.
        // It keeps the promises of `Request::run` too.
        if unsafe { C::run_packed(bytes, property, serving) }.is_none() {
            serving.fault(Fault::Codec("a packed request has the wrong length".to_owned()));
        }
    }

    unsafe fn drop_packed(bytes: &[u8]) {
        // SAFETY: the caller of an operation gives the packed form of a `C` [request-read-once].
        // A panic of dropped captures is reported by the panic hook; the requests behind are dropped too.
        quietly(|| unsafe { C::drop_packed(bytes) });
    }

    unsafe fn run_inline(at: *mut u8, property: *mut Header, serving: &mut Serving) {
        // SAFETY: [request-read-once]; this operation is written with captures `C`.
        let (request, next) = unsafe { read_captures::<C>(at) };
        serving.next = next;
        // SAFETY: the caller of an operation keeps the promises of `Request::run`.
        unsafe { request.run(property, serving) }
    }

    unsafe fn run_boxed(at: *mut u8, property: *mut Header, serving: &mut Serving) {
        // SAFETY: [request-read-once]; this operation is written with captures `Box<C>`.
        let (request, next) = unsafe { read_captures::<Box<C>>(at) };
        serving.next = next;
        // SAFETY: as in `run_inline`.
        unsafe { request.run(property, serving) }
    }
}

/// Drops captures of type `C` that will not run.
unsafe fn refuse_captures<C>(at: *mut u8) -> *mut u8 {
    // SAFETY: [request-read-once]; the operation is written with captures `C`.
    let (value, next) = unsafe { read_captures::<C>(at) };
    // A panic of dropped captures is reported by the panic hook; the requests behind are refused too.
    quietly(|| drop(value));
    next
}

/// The continuations of type `R`.
pub(crate) struct ContinuationOf<R>(std::marker::PhantomData<R>);

impl<R: Response> ContinuationOf<R> {
    pub(crate) const INLINE: &'static Continuation =
        &Continuation { is_awaited: R::IS_AWAITED, resume: Self::resume_inline };
    pub(crate) const BOXED: &'static Continuation = &Continuation { is_awaited: true, resume: Self::resume_boxed };

    unsafe fn resume_inline(at: *mut u8, resuming: &mut Resuming, fault: Option<Fault>) {
        // SAFETY: [continuation-read-once]; this continuation is written with captures `R`.
        let (response, next) = unsafe { read_captures::<R>(at) };
        resuming.next = next;
        // SAFETY: the caller of a continuation stands at its response.
        unsafe { response.resume(resuming, fault) }
    }

    unsafe fn resume_boxed(at: *mut u8, resuming: &mut Resuming, fault: Option<Fault>) {
        // SAFETY: [continuation-read-once]; this continuation is written with captures `Box<R>`.
        let (response, next) = unsafe { read_captures::<Box<R>>(at) };
        resuming.next = next;
        // SAFETY: as in `resume_inline`.
        unsafe { response.resume(resuming, fault) }
    }
}

/// Hands the outcome of a request to a closure.
pub(crate) struct Then<U, H> {
    then: H,
    pub(crate) value: std::marker::PhantomData<fn(U)>,
}

impl<U, H> Then<U, H> {
    #[inline(always)]
    pub(crate) fn new(then: H) -> Self {
        Then { then, value: std::marker::PhantomData }
    }
}

impl<U, H: FnOnce(Result<U, Fault>)> Response for Then<U, H> {
    #[inline(always)]
    unsafe fn resume(self, resuming: &mut Resuming, fault: Option<Fault>) {
        match fault {
            // SAFETY: no fault, so the operation put a `U`: the submitting code pairs the two types.
            None => (self.then)(Ok(unsafe { resuming.responses.take::<U>() })),
            Some(fault) => (self.then)(Err(fault)),
        }
    }
}

/// The response of requests that have no value and no waiter (counting, entrusting).
pub(crate) struct Ignore;

impl Response for Ignore {
    const IS_AWAITED: bool = false;

    #[inline(always)]
    unsafe fn resume(self, _resuming: &mut Resuming, _fault: Option<Fault>) {}
}
