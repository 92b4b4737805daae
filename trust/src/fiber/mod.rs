//! Fibers: user-level threads with stacks of their own, pinned to their worker (thesis 2.3.3).
//!
//! The switch is the `context` crate's (`jump.rs`). A fiber that suspends switches straight to the next ready one; the
//! worker's loop (on the thread's own stack, the *root*) gets its turn when the fibers that were ready at its last turn
//! have run, or as many of them as it allowed. Fibers know neither slots nor the loop.
//!
//! Invariants:
//! - [fiber-own-thread] A fiber is resumed on the thread that made it, by its own scheduler, and only while it is
//!   suspended or new.
//! - [one-waker] A suspended fiber is in at most one queue or has promised its pointer to exactly one waker.
//! - [stack-after-return] The stack of a fiber goes back to the pool only after its entry has returned and the root
//!   runs, or if it never ran.
//! - [begun-fiber-ends] A fiber that has begun is resumed to its end or the process ends: it is never dropped, and no
//!   destructor of the thread's thread-locals runs while it is suspended; one that begins in such a destructor ends
//!   there (`runtime/worker/current.rs` sees to that).
//! - [scheduler-stays] A scheduler stays where it is from its first fiber on.

#![allow(unsafe_code)]

pub(crate) mod footprint;
mod interrupt;
mod jump;
pub(crate) mod overflow;
mod queue;
pub(crate) mod record;
mod sanitizer;
pub(crate) mod shown;
pub(crate) mod stack;
pub(crate) mod timer;
mod waits;

pub(crate) use queue::FiberQueue;
pub(crate) use waits::Waits;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::mem::offset_of;
use std::ptr;

use context::{Context, Transfer};

use self::footprint::Footprint;
use self::record::{Revoke, Wait, Whom};
use self::sanitizer::{Bounds, Left};
use self::shown::FiberInfo;
use self::stack::{Stack, StackError, StackPool};
use crate::unwind::quietly;

/// A fiber, for its waker. The pointer is used on the fiber's own thread only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FiberRef(*mut Fiber);

// SAFETY: only the worker that owns the fiber follows the pointer [fiber-own-thread]; others carry it back to that
// worker.
unsafe impl Send for FiberRef {}

/// Entry of a new fiber.
pub(crate) struct Entry {
    pub(crate) run: Box<dyn FnOnce() + Send>,
    pub(crate) origin: Origin,
    pub(crate) whom: Whom,
}

/// Origin of a fiber, for messages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    /// Spawned, with a closure of this type.
    Spawned(&'static str),
    /// A closure that was launched on a property of this type.
    Launched(&'static str),
    /// One of the library itself.
    Internal(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Spawned(of) | Origin::Internal(of) => f.write_str(of),
            Origin::Launched(on) => write!(f, "launched on a `{on}`"),
        }
    }
}

/// A fiber that could not be started, with its entry.
pub(crate) struct NotStarted {
    pub(crate) error: StackError,
    pub(crate) run: Box<dyn FnOnce()>,
}

/// A fiber's record.
#[repr(C)] // The fields of a switch come first, in one cache line.
pub(crate) struct Fiber {
    side: Side,
    next: Cell<*mut Fiber>,
    /// Scheduler of the thread that it runs on.
    scheduler: *const Scheduler,
    has_begun: Cell<bool>,
    run: Cell<Option<Box<dyn FnOnce()>>>,
    /// The property whose latched value it holds exclusively, or null.
    holds: Cell<*const ()>,
    whom: Whom,
    wait: Cell<Option<Wait>>,
    /// Function that takes it out of that wait. Its argument lives as long as the wait.
    revoke: Cell<Option<(*const (), Revoke)>>,
    /// The fiber is to unwind at its next wait.
    is_aborted: Cell<bool>,
    /// Reason why it was taken out of a wait.
    verdict: Cell<Option<Box<str>>>,
    info: FiberInfo,
    origin: Origin,
    stack: Cell<Option<Stack>>,
    /// Its place in the list of all fibers.
    place: Cell<usize>,
}

/// The place at which a fiber or the root is resumed.
struct Side {
    /// Empty while it runs.
    context: Cell<Option<Context>>,
    left: Cell<Left>,
}

impl Side {
    fn new(context: Option<Context>) -> Side {
        Side { context: Cell::new(context), left: Cell::new(Left::NOTHING) }
    }
}

/// The fibers of one worker.
pub(crate) struct Scheduler {
    ready: FiberQueue,
    current: Cell<*mut Fiber>,
    root: Side,
    /// The thread's own stack.
    root_stack: Cell<Bounds>,
    /// Fibers that may still run before the root's turn.
    budget: Cell<usize>,
    finished: Cell<*mut Fiber>,
    stacks: RefCell<StackPool>,
    /// Fibers that have not ended.
    all: RefCell<Vec<*mut Fiber>>,
    /// Number of them that have begun.
    begun: Cell<usize>,
    switches: Cell<u64>,
    next_id: Cell<u64>,
    next_wait: Cell<u64>,
    /// Wait of the thread's own code.
    root_wait: Cell<Option<Wait>>,
}

impl Scheduler {
    pub(crate) fn new(stack_bytes: usize) -> Result<Self, StackError> {
        overflow::install();
        Ok(Scheduler {
            ready: FiberQueue::new(),
            current: Cell::new(ptr::null_mut()),
            root: Side::new(None),
            root_stack: Cell::new(Bounds::of_this_thread()),
            budget: Cell::new(0),
            finished: Cell::new(ptr::null_mut()),
            stacks: RefCell::new(StackPool::new(stack_bytes)?),
            all: RefCell::default(),
            begun: Cell::new(0),
            switches: Cell::new(0),
            next_id: Cell::new(0),
            next_wait: Cell::new(0),
            root_wait: Cell::new(None),
        })
    }

    /// The running fiber, or `None` on the root.
    #[inline(always)]
    pub(crate) fn current(&self) -> Option<FiberRef> {
        let current = self.current.get();
        (!current.is_null()).then_some(FiberRef(current))
    }

    /// Number of the running fiber, unique among those of this scheduler for ever, or `None` on the root.
    pub(crate) fn current_id(&self) -> Option<u64> {
        let current = self.current.get();
        // SAFETY: null, or the current fiber, which lives.
        unsafe { current.as_ref() }.map(|fiber| fiber.info.id)
    }

    /// Notes that the running fiber has taken the value of the latch in this property, or with null has given it back.
    pub(crate) fn note_holding(&self, property: *const ()) {
        // SAFETY: as above.
        if let Some(fiber) = unsafe { self.current.get().as_ref() } {
            fiber.holds.set(property);
        }
    }

    /// Does the running fiber hold the value of a latch?
    #[inline(always)]
    pub(crate) fn is_holding(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.current.get().as_ref() }.is_some_and(|fiber| !fiber.holds.get().is_null())
    }

    /// Root: notes that the calling thread runs the fibers from now on. There are none at this moment.
    pub(crate) fn enter_thread(&self) {
        debug_assert!(self.live() == 0, "a fiber stays on its thread [fiber-own-thread]");
        self.root_stack.set(Bounds::of_this_thread());
    }

    /// Record of its stacks' mappings.
    pub(crate) fn footprint(&self) -> Footprint {
        self.stacks.borrow().footprint()
    }

    pub(crate) fn live(&self) -> usize {
        self.all.borrow().len()
    }
    /// Number of fibers in the middle of their code.
    pub(crate) fn begun(&self) -> usize {
        self.begun.get()
    }
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }
    /// Switches since the last call.
    pub(crate) fn take_switches(&self) -> u64 {
        self.switches.replace(0)
    }

    /// Makes a fiber that will run `run`.
    pub(crate) fn spawn(
        &self,
        run: Box<dyn FnOnce()>,
        name: Option<Box<str>>,
        origin: Origin,
        whom: Whom,
    ) -> Result<(), NotStarted> {
        let (stack, stack_bytes) = {
            let mut stacks = self.stacks.borrow_mut();
            match stacks.take() {
                Ok(stack) => (stack, stacks.stack_bytes()),
                // Given back: its captures are not to be dropped in here.
                Err(error) => return Err(NotStarted { error, run }),
            }
        };
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let info = FiberInfo { guard: stack.guard(), stack_bytes, id, name };
        // SAFETY: the stack is ours, mapped and at least the minimum; `start` never returns.
        let context =
            unsafe { Context::new(&context::stack::Stack::new(stack.top().cast(), stack.bottom().cast()), start) };
        let fiber = Box::new(Fiber {
            side: Side::new(Some(context)),
            next: Cell::new(ptr::null_mut()),
            run: Cell::new(Some(run)),
            has_begun: Cell::new(false),
            holds: Cell::new(ptr::null()),
            whom,
            wait: Cell::new(None),
            revoke: Cell::new(None),
            is_aborted: Cell::new(false),
            verdict: Cell::new(None),
            info,
            scheduler: self,
            origin,
            stack: Cell::new(Some(stack)),
            place: Cell::new(0),
        });
        let mut all = self.all.borrow_mut();
        fiber.place.set(all.len());
        let fiber = Box::into_raw(fiber);
        all.push(fiber);
        self.ready.push(FiberRef(fiber));
        Ok(())
    }

    /// Puts a suspended fiber behind the ready ones of its own scheduler, which may be another one of this thread: code
    /// of a trustee may wake fibers of the worker that runs it (`runtime/seats`).
    #[inline]
    pub(crate) fn ready(&self, fiber: FiberRef) {
        // SAFETY: a suspended fiber lives, and is one of this thread [fiber-own-thread]; its scheduler lives as long.
        let own = unsafe { &*(*fiber.0).scheduler };
        debug_assert!(own.current.get() != fiber.0, "a fiber that runs cannot be made ready");
        own.ready.push(fiber);
    }

    /// Lets a waiting fiber go on; a thread's own code checks for itself.
    #[inline(always)]
    pub(crate) fn resume(&self, fiber: Option<FiberRef>) {
        if let Some(fiber) = fiber {
            self.ready(fiber);
        }
    }

    /// Resumes all fibers in a queue.
    #[inline(always)]
    pub(crate) fn resume_all(&self, queue: &FiberQueue) {
        while let Some(fiber) = queue.pop() {
            self.ready(fiber);
        }
    }

    /// Root: runs fibers that are ready now, once each, up to this number (one at least). True if there was one.
    #[inline]
    pub(crate) fn run_ready(&self, at_most: usize) -> bool {
        let Some(first) = self.ready.pop() else {
            return false;
        };
        self.budget.set(self.ready.len().min(at_most.saturating_sub(1)));
        let mut next = Some(first);
        while let Some(fiber) = next.take() {
            // SAFETY: ready, so suspended or new [fiber-own-thread], [one-waker]; the root runs now.
            unsafe { self.switch(&self.root, fiber.0) };
            let finished = self.finished.replace(ptr::null_mut());
            if !finished.is_null() {
                self.recycle(finished);
                next = self.pop_budget();
            }
        }
        true
    }

    /// Root, in a trace: as `run_ready`, with a return to the root after each fiber, and until one lets others run
    /// first. Calls `ran` after each, with its number and whether it waits.
    pub(crate) fn run_ready_traced(&self, at_most: usize, mut ran: impl FnMut(u64, bool)) -> bool {
        let fibers = self.ready.len().min(at_most.max(1));
        for _ in 0..fibers {
            let Some(fiber) = self.ready.pop() else { break };
            self.budget.set(0);
            // SAFETY: ready, so it lives, and is suspended or new [fiber-own-thread], [one-waker]; the root runs now.
            let id = unsafe {
                let id = (*fiber.0).info.id;
                self.switch(&self.root, fiber.0);
                id
            };
            let finished = self.finished.replace(ptr::null_mut());
            let is_ready = finished.is_null() && self.ready.last() == Some(fiber);
            ran(id, finished.is_null() && !is_ready);
            if !finished.is_null() {
                self.recycle(finished);
            }
            if is_ready {
                break;
            }
        }
        fibers > 0
    }

    pub(crate) fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// Numbers of the ready fibers behind the first `skipped`.
    pub(crate) fn ready_ids(&self, skipped: usize) -> impl Iterator<Item = u64> + '_ {
        // SAFETY: in the queue, so it lives [one-waker].
        self.ready.iter().skip(skipped).map(|fiber| unsafe { (*fiber.0).info.id })
    }

    #[inline(always)]
    fn pop_budget(&self) -> Option<FiberRef> {
        let budget = self.budget.get();
        if budget == 0 {
            return None;
        }
        self.budget.set(budget - 1);
        self.ready.pop()
    }

    /// Fiber: runs others until this fiber is made ready again.
    #[inline]
    pub(crate) fn suspend(&self) {
        let me = self.current.get();
        debug_assert!(!me.is_null(), "only fibers suspend");
        // SAFETY: the current fiber lives; a ready one is suspended or new [fiber-own-thread], [one-waker].
        unsafe {
            match self.pop_budget() {
                Some(next) if next.0 == me => {}
                Some(next) => self.switch(&(*me).side, next.0),
                None => self.switch_to_root(&(*me).side),
            }
        }
    }

    /// Fiber: lets the other ready fibers run first.
    pub(crate) fn yield_now(&self) {
        self.ready.push(FiberRef(self.current.get()));
        self.suspend();
    }

    /// Fiber: lets the root have its turn before any other fiber.
    pub(crate) fn yield_to_root(&self) {
        self.budget.set(0);
        self.yield_now();
    }

    /// Switches to `to`, leaving the running side to be resumed through `from`.
    ///
    /// # Safety
    /// `to` lives and is suspended or new [fiber-own-thread]; `from` is the side that runs now.
    #[inline(always)]
    unsafe fn switch(&self, from: &Side, to: *mut Fiber) {
        self.switches.set(self.switches.get() + 1);
        self.current.set(to);
        // SAFETY: `to` lives [stack-after-return]; it is not running, so its context is there [fiber-own-thread].
        unsafe {
            overflow::set_current(&raw const (*to).info);
            if let Some(context) = (*to).side.context.take() {
                resume(from, context, Bounds::of(&(*to).stack));
            }
        }
    }

    /// # Safety
    /// A fiber runs, and `from` is its side.
    #[inline(always)]
    unsafe fn switch_to_root(&self, from: &Side) {
        self.switches.set(self.switches.get() + 1);
        self.current.set(ptr::null_mut());
        // SAFETY: no fiber is current from here on; a fiber runs, so the root left its context.
        unsafe {
            overflow::set_current(ptr::null());
            if let Some(root) = self.root.context.take() {
                resume(from, root, self.root_stack.get());
            }
        }
    }

    /// Root: recycles a fiber whose entry has returned, or has never been called and was taken out. No code of users
    /// runs here.
    fn recycle(&self, fiber: *mut Fiber) {
        // SAFETY: nothing refers to it any more [one-waker], and its stack is not in use [stack-after-return].
        let fiber = unsafe {
            overflow::before_free(&raw const (*fiber).info);
            Box::from_raw(fiber)
        };
        if fiber.has_begun.get() {
            self.begun.set(self.begun.get() - 1);
        }
        sanitizer::forget(fiber.side.left.replace(Left::NOTHING), Bounds::of(&fiber.stack), self.root_stack.get());
        if let Some(stack) = fiber.stack.take() {
            self.stacks.borrow_mut().put(stack);
        }
        let mut all = self.all.borrow_mut();
        let place = fiber.place.get();
        all.swap_remove(place);
        if let Some(&moved) = all.get(place) {
            // SAFETY: in the list, so it has not been recycled.
            unsafe { (*moved).place.set(place) };
        }
    }

    /// Root, with no fiber in the middle of its code [begun-fiber-ends]: takes the entry of a fiber that has not begun,
    /// and ends the fiber.
    pub(crate) fn take_new(&self) -> Option<Box<dyn FnOnce()>> {
        debug_assert!(self.begun() == 0, "only new fibers can be taken back");
        let FiberRef(fiber) = self.ready.pop()?;
        // SAFETY: in the queue, so it lives [one-waker].
        let run = unsafe { (*fiber).run.take() };
        self.recycle(fiber);
        run
    }
}

/// A fiber's name for messages.
struct Named<'a>(&'a FiberInfo, &'a Origin);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Named(info, origin) = self;
        match &info.name {
            Some(name) => write!(f, "fiber '{name}' ({origin})"),
            None => write!(f, "fiber {} ({origin})", info.id),
        }
    }
}

impl fmt::Display for Fiber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Named(&self.info, &self.origin).fmt(f)
    }
}

/// Name for messages of the fiber with this record, on any thread.
///
/// # Safety
/// The record is that of a fiber of a scheduler, and is not freed meanwhile.
unsafe fn name_of(record: *const FiberInfo) -> String {
    let fiber: *const Fiber = record.wrapping_byte_sub(offset_of!(Fiber, info)).cast();
    // SAFETY: it lives; these two fields are never written to after they were made, though its thread may write the
    // others.
    let (info, origin) = unsafe { (&(*fiber).info, &(*fiber).origin) };
    Named(info, origin).to_string()
}

/// Saves the running side in `from` and goes on in `to`; returns when `from` is resumed.
#[inline(always)]
unsafe fn resume(from: &Side, to: Context, stack: Bounds) {
    from.left.set(sanitizer::leave(stack));
    // SAFETY: `to` was saved by a switch (or is new) and is resumed once, since it was taken out of its cell.
    let transfer = unsafe { jump::jump(to, ptr::from_ref(from).expose_provenance()) };
    sanitizer::arrive(from.left.replace(Left::NOTHING));
    // SAFETY: as in `save`.
    unsafe { save(transfer) }
}

/// Stores the context that a switch left behind where that side will be resumed from.
#[inline(always)]
unsafe fn save(transfer: Transfer) {
    // SAFETY: every switch passes the address of the side it leaves, and that side (a fiber's
    // record or the scheduler) outlives its suspension.
    unsafe {
        let side = ptr::with_exposed_provenance::<Side>(transfer.data);
        (*side).context.set(Some(transfer.context));
    }
}

/// Start of a fiber, on its own stack.
extern "C" fn start(transfer: Transfer) -> ! {
    sanitizer::arrive(Left::NOTHING);
    // SAFETY: a switch to a new fiber brought us here.
    unsafe { save(transfer) };
    // The switch has made this fiber's record the current one; the record is a part of the fiber.
    let me: *mut Fiber = overflow::current().wrapping_byte_sub(offset_of!(Fiber, info)).cast_mut().cast();
    // SAFETY: the current fiber lives; so does its scheduler, which has not moved [scheduler-stays].
    let (fiber, scheduler) = unsafe { (&*me, &*(*me).scheduler) };
    fiber.has_begun.set(true);
    scheduler.begun.set(scheduler.begun.get() + 1);
    if let Some(run) = fiber.run.take() {
        // Its captures are dropped here, where their destructors may wait, and may panic.
        if fiber.is_aborted.replace(false) {
            quietly(|| drop(run))
        } else {
            quietly(run)
        };
    }
    scheduler.finished.set(me);
    // SAFETY: `me` lives until the root recycles it, and is not resumed after.
    unsafe { scheduler.switch_to_root(&(*me).side) };
    std::process::abort();
}
