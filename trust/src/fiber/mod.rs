//! Fibers: user-level threads with stacks of their own, pinned to their worker (T9, thesis 2.3.3).
//!
//! The switch is the `context` crate's (`jump.rs`). A fiber that suspends switches straight to the next ready one; the
//! worker's loop (on the thread's own stack, the *root*) gets its turn when the fibers that were ready at its
//! last turn have run, or as many of them as it allowed. Fibers know nothing of slots: `worker.rs` brings the two together.
//!
//! Invariants: (S1) a fiber is resumed on the thread that made it, and only while it is suspended or new;
//! (S2) a suspended fiber is in at most one queue or has promised its pointer to exactly one waker; (S3) the
//! stack of a fiber goes back to the pool only after its entry has returned and the root runs, or if it never ran; (S4) a fiber
//! that has begun is resumed to its end or the process ends: it is never dropped, and no destructor of the thread's thread-locals
//! runs while it is suspended; one that begins in such a destructor ends there (`local.rs`).

#![allow(unsafe_code)]

mod jump;
pub(crate) mod overflow;
mod queue;
pub(crate) mod stack;

pub(crate) use queue::FiberQueue;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ptr;

use context::{Context, Transfer};

use self::overflow::FiberInfo;
use self::stack::{Stack, StackError, StackPool};
use crate::request::Fault;
use crate::unwind::quietly;

/// A fiber, for those who may make it ready again. The pointer is used on the fiber's own thread only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FiberRef(*mut Fiber);

// SAFETY: only the worker that owns the fiber follows the pointer (S1); others carry it back to that worker.
unsafe impl Send for FiberRef {}

/// What a new fiber runs.
pub(crate) struct Entry {
    pub(crate) run: Box<dyn FnOnce() + Send>,
    pub(crate) origin: Origin,
}

/// What a fiber is, for messages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    /// Spawned, with a closure of this type.
    Spawned(&'static str),
    /// A closure that was launched on a property of this type.
    Launched(&'static str),
    /// The library's own.
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

/// A fiber that could not be made, with what it was to run.
pub(crate) struct NotMade {
    pub(crate) error: StackError,
    pub(crate) run: Box<dyn FnOnce()>,
}

impl NotMade {
    /// For who asked for it. What it was to run is dropped first, for that is the user's code.
    pub(crate) fn into_fault(self) -> Fault {
        quietly(|| drop(self.run));
        Fault::Refused(self.error.to_string())
    }
}

/// A fiber's record.
pub(crate) struct Fiber {
    /// Where to resume it; empty while it runs.
    context: Cell<Option<Context>>,
    next: Cell<*mut Fiber>,
    run: Cell<Option<Box<dyn FnOnce()>>>,
    has_begun: Cell<bool>,
    info: FiberInfo,
    origin: Origin,
    stack: Cell<Option<Stack>>,
    /// Its place in the list of all fibers.
    place: Cell<usize>,
}

/// The fibers of one worker.
pub(crate) struct Scheduler {
    ready: FiberQueue,
    current: Cell<*mut Fiber>,
    root: Cell<Option<Context>>,
    /// How many more fibers may run before the root's turn.
    budget: Cell<usize>,
    finished: Cell<*mut Fiber>,
    stacks: RefCell<StackPool>,
    /// Fibers that have not ended.
    all: RefCell<Vec<*mut Fiber>>,
    /// How many of them have begun.
    begun: Cell<usize>,
    switches: Cell<u64>,
    next_id: Cell<u64>,
}

impl Scheduler {
    pub(crate) fn new(stack_bytes: usize) -> Result<Self, StackError> {
        overflow::install();
        Ok(Scheduler {
            ready: FiberQueue::new(),
            current: Cell::new(ptr::null_mut()),
            root: Cell::new(None),
            budget: Cell::new(0),
            finished: Cell::new(ptr::null_mut()),
            stacks: RefCell::new(StackPool::new(stack_bytes)?),
            all: RefCell::default(),
            begun: Cell::new(0),
            switches: Cell::new(0),
            next_id: Cell::new(0),
        })
    }

    /// The running fiber, or `None` on the root.
    #[inline(always)]
    pub(crate) fn current(&self) -> Option<FiberRef> {
        let current = self.current.get();
        (!current.is_null()).then_some(FiberRef(current))
    }

    /// A number that no other fiber of this thread ever has, or `None` on the root.
    pub(crate) fn current_id(&self) -> Option<u64> {
        let current = self.current.get();
        // SAFETY: null, or the current fiber, which lives.
        unsafe { current.as_ref() }.map(|fiber| fiber.info.id)
    }

    pub(crate) fn live(&self) -> usize {
        self.all.borrow().len()
    }
    /// Fibers in the middle of their code.
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
    pub(crate) fn spawn(&self, run: Box<dyn FnOnce()>, name: Option<Box<str>>, origin: Origin) -> Result<(), NotMade> {
        let (stack, stack_bytes) = {
            let mut stacks = self.stacks.borrow_mut();
            match stacks.take() {
                Ok(stack) => (stack, stacks.stack_bytes()),
                // Given back: its captures are not to be dropped in here.
                Err(error) => return Err(NotMade { error, run }),
            }
        };
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let info = FiberInfo { guard: stack.guard(), stack_bytes, id, name };
        // SAFETY: the stack is ours, mapped and at least the minimum; `start` never returns.
        let context =
            unsafe { Context::new(&context::stack::Stack::new(stack.top().cast(), stack.bottom().cast()), start) };
        let fiber = Box::new(Fiber {
            context: Cell::new(Some(context)),
            next: Cell::new(ptr::null_mut()),
            run: Cell::new(Some(run)),
            has_begun: Cell::new(false),
            info,
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

    /// Puts a suspended fiber behind the ready ones.
    #[inline]
    pub(crate) fn ready(&self, fiber: FiberRef) {
        debug_assert!(self.current.get() != fiber.0, "a fiber that runs cannot be made ready (S2)");
        self.ready.push(fiber);
    }

    /// Root: runs fibers that are ready now, once each, and so many at most (one at least). True if there was one.
    #[inline]
    pub(crate) fn run_ready(&self, at_most: usize) -> bool {
        let Some(first) = self.ready.pop() else {
            return false;
        };
        self.budget.set(self.ready.len().min(at_most.saturating_sub(1)));
        let mut next = Some(first);
        while let Some(fiber) = next.take() {
            // SAFETY: ready, so suspended or new (S1, S2); the root is what runs now.
            unsafe { self.switch(&self.root, fiber.0) };
            let finished = self.finished.replace(ptr::null_mut());
            if !finished.is_null() {
                self.recycle(finished);
                next = self.pop_budget();
            }
        }
        true
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

    /// Fiber: runs others until someone makes this fiber ready again.
    #[inline]
    pub(crate) fn suspend(&self) {
        let me = self.current.get();
        debug_assert!(!me.is_null(), "only fibers suspend");
        // SAFETY: the current fiber lives; a ready one is suspended or new (S1, S2).
        unsafe {
            match self.pop_budget() {
                Some(next) if next.0 == me => {}
                Some(next) => self.switch(&(*me).context, next.0),
                None => self.switch_to_root(&(*me).context),
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

    /// Leaves what runs now, to be resumed through `from`, for `to`.
    ///
    /// # Safety
    /// `to` lives and is suspended or new (S1); `from` is the cell of what runs now.
    #[inline(always)]
    unsafe fn switch(&self, from: &Cell<Option<Context>>, to: *mut Fiber) {
        self.switches.set(self.switches.get() + 1);
        self.current.set(to);
        // SAFETY: `to` lives (S3); it is not running, so its context is there (S1).
        unsafe {
            overflow::set_current(&raw const (*to).info);
            if let Some(context) = (*to).context.take() {
                resume(from, context);
            }
        }
    }

    /// # Safety
    /// A fiber runs, and `from` is its cell.
    #[inline(always)]
    unsafe fn switch_to_root(&self, from: &Cell<Option<Context>>) {
        self.switches.set(self.switches.get() + 1);
        self.current.set(ptr::null_mut());
        // SAFETY: no fiber is current from here on; a fiber runs, so the root left its context.
        unsafe {
            overflow::set_current(ptr::null());
            if let Some(root) = self.root.take() {
                resume(from, root);
            }
        }
    }

    /// Root: the fiber's entry has returned, or has never been called and was taken out. No code of users runs here.
    fn recycle(&self, fiber: *mut Fiber) {
        // SAFETY: nothing refers to it any more (S2), and its stack is not in use (S3).
        let fiber = unsafe { Box::from_raw(fiber) };
        if fiber.has_begun.get() {
            self.begun.set(self.begun.get() - 1);
        }
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

    /// Root, where no fiber is in the middle (S4): what a fiber that has not begun was to run. The fiber is no more.
    pub(crate) fn take_new(&self) -> Option<Box<dyn FnOnce()>> {
        debug_assert!(self.begun() == 0, "only new fibers can be taken back");
        let FiberRef(fiber) = self.ready.pop()?;
        // SAFETY: in the queue, so it lives (S2).
        let run = unsafe { (*fiber).run.take() };
        self.recycle(fiber);
        run
    }

    /// For messages: which fibers are in the middle of their code; the first few of them.
    pub(crate) fn names_of_begun(&self) -> String {
        const TOLD: usize = 4;
        let all = self.all.borrow();
        // SAFETY: in the list, so they have not been recycled.
        let begun = all.iter().map(|&fiber| unsafe { &*fiber }).filter(|fiber| fiber.has_begun.get());
        let mut names: Vec<String> = begun.take(TOLD).map(ToString::to_string).collect();
        if self.begun() > TOLD {
            names.push(format!("{} more", self.begun() - TOLD));
        }
        names.join(", ")
    }
}

impl fmt::Display for Fiber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.info.name {
            Some(name) => write!(f, "fiber '{name}' ({})", self.origin),
            None => write!(f, "fiber {} ({})", self.info.id, self.origin),
        }
    }
}

/// Saves what runs now in `from` and goes on in `to`; returns when someone resumes `from`.
#[inline(always)]
unsafe fn resume(from: &Cell<Option<Context>>, to: Context) {
    // SAFETY: `to` was saved by a switch (or is new) and is resumed once, since it was taken out of its cell.
    let transfer = unsafe { jump::jump(to, ptr::from_ref(from).expose_provenance()) };
    // SAFETY: as in `save`.
    unsafe { save(transfer) }
}

/// Stores the context that a switch left behind where that side will be resumed from.
#[inline(always)]
unsafe fn save(transfer: Transfer) {
    // SAFETY: every switch passes the address of the cell of the side it leaves, and that side (a fiber's
    // record or the scheduler) outlives its suspension.
    unsafe {
        let cell = ptr::with_exposed_provenance::<Cell<Option<Context>>>(transfer.data);
        (*cell).set(Some(transfer.context));
    }
}

/// Where a fiber begins, on its own stack.
extern "C" fn start(transfer: Transfer) -> ! {
    // SAFETY: a switch to a new fiber brought us here.
    unsafe { save(transfer) };
    crate::local::scheduler(|scheduler| {
        let me = scheduler.current.get();
        // SAFETY: the current fiber lives.
        let fiber = unsafe { &*me };
        fiber.has_begun.set(true);
        scheduler.begun.set(scheduler.begun.get() + 1);
        if let Some(run) = fiber.run.take() {
            // What it leaves behind is dropped here, where it may wait, and may panic.
            quietly(run);
        }
        scheduler.finished.set(me);
        // SAFETY: `me` lives until the root recycles it, and is not resumed after.
        unsafe { scheduler.switch_to_root(&(*me).context) };
    });
    std::process::abort();
}
