//! Calls of threads that have no slots, as those of an async runtime: how they reach a worker, and the bound on their
//! number.
//!
//! A call is a node that its sender allocates. Senders push nodes onto a stack, the worker takes all of it at once and
//! reverses it: so calls of one thread are taken in the order in which they were pushed, without a lock. The word of
//! the stack also tells that there is a message in the inbox: one node, which belongs to the inbox, stands for all its
//! messages.
//!
//! ```text
//! push:  node.next = head, head = node (compare-and-swap, Release)      worker:  head = null (swap, Acquire)
//! close: head = CLOSED (swap): what was pushed before is the worker's, what comes after is given back
//! ```
//!
//! Only the worker removes, and it removes all: there is no ABA problem. Each change of the word is a
//! read-modify-write, so the thread that takes the stack sees the contents of each pushed node.
//!
//! The window. `entered` calls less `left` ones are active; beyond [`CALLS_MAX`] a call must wait ([`Window::wait`]). A
//! waiter stores its waker, sets `has_waiters`, and looks again by a read-modify-write of `left`; a call that leaves
//! counts itself by another one of the same word, and then looks for waiters. One of the two comes later, and sees the
//! other's earlier writes.

#![allow(unsafe_code)]

#[cfg(all(test, not(loom)))]
mod tests;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::PoisonError;
use std::task::Waker;

use crate::config::CALLS_MAX;
use crate::property::Header;
use crate::sync::{AtomicBool, AtomicPtr, AtomicUsize, Mutex, Ordering};
use crate::unwind::quietly;

/// Decision about a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The worker that has taken it runs it.
    Run,
    /// No worker will run it.
    Refuse,
}

/// The start of a call's allocation.
pub(crate) struct CallHead {
    next: Cell<*mut CallHead>,
    /// A property of the worker that will take the call and alone dereferences the pointer; or null, where the call has
    /// a trust of its own.
    property: *mut Header,
    /// Runs or refuses the call; takes over the queue's share in the allocation.
    act: unsafe fn(NonNull<CallHead>, Verdict),
}

impl CallHead {
    pub(crate) fn new(property: *mut Header, act: unsafe fn(NonNull<CallHead>, Verdict)) -> Self {
        CallHead { next: Cell::new(ptr::null_mut()), property, act }
    }
}

/// A queued call. Dropped, it is refused.
pub(crate) struct QueuedCall(NonNull<CallHead>);

// SAFETY: as `new` asks for.
unsafe impl Send for QueuedCall {}

impl QueuedCall {
    /// # Safety
    /// `act` of this head may be called once, on any thread, and until then the head belongs to this value alone.
    pub(crate) unsafe fn new(head: NonNull<CallHead>) -> Self {
        QueuedCall(head)
    }

    /// The property that the worker has to keep until the call has run, or null.
    pub(crate) fn property(&self) -> *mut Header {
        // SAFETY: `new`'s promise.
        unsafe { self.0.as_ref() }.property
    }

    /// Runs the call, on the thread of the worker that has taken it.
    pub(crate) fn run(self) {
        self.act(Verdict::Run);
    }

    fn act(self, verdict: Verdict) {
        let head = mem::ManuallyDrop::new(self).0;
        // SAFETY: `new`'s promise, and that of `act`: it is called once, for `self` is gone.
        unsafe { (head.as_ref().act)(head, verdict) }
    }
}

impl Drop for QueuedCall {
    fn drop(&mut self) {
        let this = QueuedCall(self.0);
        // The captures are the user's.
        quietly(|| this.act(Verdict::Refuse));
    }
}

/// Calls that were taken, in the order in which they were pushed. The rest is refused when it is dropped.
pub(crate) struct Calls(*mut CallHead);

impl Iterator for Calls {
    type Item = QueuedCall;

    fn next(&mut self) -> Option<QueuedCall> {
        let head = NonNull::new(self.0)?;
        // SAFETY: a node that was taken from the stack is this list's alone.
        self.0 = unsafe { head.as_ref() }.next.get();
        Some(QueuedCall(head))
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

/// Calls and messages that a worker has taken.
pub(crate) struct Drained {
    pub(crate) calls: Calls,
    /// There are messages in the inbox.
    pub(crate) has_messages: bool,
}

/// The stack of one worker.
pub(crate) struct CallQueue {
    head: AtomicPtr<CallHead>,
    /// Node that stands for the messages in the inbox.
    inbox_mark: CallHead,
    /// The active calls.
    pub(crate) window: Window,
}

// SAFETY: the nodes of the stack are `QueuedCall`s, which are `Send`; `inbox_mark.next` is written by the thread that
// has set the inbox's mark, under its lock, before the push, and read by the worker that has taken it, before the mark
// is cleared.
unsafe impl Send for CallQueue {}
// SAFETY: as above.
unsafe impl Sync for CallQueue {}

/// Head of a closed stack: nothing is taken any more.
const CLOSED: *mut CallHead = ptr::without_provenance_mut(1);

impl CallQueue {
    pub(crate) fn new() -> Self {
        CallQueue {
            head: AtomicPtr::new(ptr::null_mut()),
            inbox_mark: CallHead::new(ptr::null_mut(), |_, _| ()),
            window: Window::new(),
        }
    }

    /// Is there a call, or a message?
    #[inline(always)]
    pub(crate) fn has_any(&self) -> bool {
        // Pairs with the Release in `push`.
        self.head.load(Ordering::Acquire).addr() > CLOSED.addr()
    }

    /// Pushes a call; gives it back if the worker takes no more.
    pub(crate) fn push(&self, call: QueuedCall) -> Result<(), QueuedCall> {
        // SAFETY: the queue has the call from here on; it has not if it is closed.
        if unsafe { self.push_node(call.0) } {
            mem::forget(call);
            return Ok(());
        }
        Err(call)
    }

    /// Pushes the node for the inbox's messages. To be called under its lock, and again only when
    /// [`Drained::has_messages`] has been seen.
    pub(crate) fn push_inbox_mark(&self) {
        // SAFETY: the caller's promise: it is not in the stack.
        let _ = unsafe { self.push_node(NonNull::from(&self.inbox_mark)) };
    }

    /// # Safety
    /// The node belongs to the caller, which gives it away, and is in no stack.
    unsafe fn push_node(&self, node: NonNull<CallHead>) -> bool {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            if head == CLOSED {
                return false;
            }
            // SAFETY: the caller's promise.
            unsafe { node.as_ref() }.next.set(head);
            // Release: pairs with the Acquire in `take`.
            match self.head.compare_exchange_weak(head, node.as_ptr(), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => head = now,
            }
        }
    }

    /// Worker: takes all calls.
    pub(crate) fn take(&self) -> Drained {
        if !self.has_any() {
            return Drained { calls: Calls(ptr::null_mut()), has_messages: false };
        }
        self.take_leaving(ptr::null_mut())
    }

    /// Worker: takes all calls and closes the stack.
    pub(crate) fn close(&self) -> Drained {
        let taken = self.take_leaving(CLOSED);
        self.window.close();
        taken
    }

    fn take_leaving(&self, left: *mut CallHead) -> Drained {
        // AcqRel: each push before is seen.
        let mut newest = self.head.swap(left, Ordering::AcqRel);
        if newest == CLOSED {
            newest = ptr::null_mut();
        }
        let (mut oldest, mut has_messages) = (ptr::null_mut(), false);
        while let Some(node) = NonNull::new(newest) {
            // SAFETY: nodes from the stack are this worker's alone from here on.
            let next = unsafe { node.as_ref() }.next.replace(oldest);
            if ptr::eq(node.as_ptr(), &raw const self.inbox_mark) {
                has_messages = true;
            } else {
                oldest = node.as_ptr();
            }
            newest = next;
        }
        Drained { calls: Calls(oldest), has_messages }
    }
}

/// Bound on the active calls, and the waiters for room.
pub(crate) struct Window {
    entered: Counter,
    left: Counter,
    /// Lower bound of `left`: a call that enters reads `left`, which the worker writes all the time, only when it has
    /// to.
    known_to_have_left: AtomicUsize,
    has_waiters: AtomicBool,
    is_closed: AtomicBool,
    waiters: Mutex<Waiters>,
}

#[repr(align(128))]
struct Counter(AtomicUsize);

#[derive(Default)]
struct Waiters {
    next: u64,
    by_number: BTreeMap<u64, Waker>,
}

impl Window {
    fn new() -> Self {
        let counter = || Counter(AtomicUsize::new(0));
        Window {
            entered: counter(),
            left: counter(),
            known_to_have_left: AtomicUsize::new(0),
            has_waiters: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            waiters: Mutex::new(Waiters::default()),
        }
    }

    /// Number of active calls. While others enter and leave, the result may be off by those.
    fn under_way(&self) -> usize {
        // In this order: it is not negative.
        let left = self.left.0.load(Ordering::SeqCst);
        self.entered.0.load(Ordering::SeqCst).wrapping_sub(left)
    }

    fn has_room(&self) -> bool {
        let (entered, known) = (self.entered.0.load(Ordering::SeqCst), self.known_to_have_left.load(Ordering::Relaxed));
        // The known value may be old, even older than that of another thread.
        entered.wrapping_sub(known) < CALLS_MAX || self.has_room_now()
    }

    #[cold]
    fn has_room_now(&self) -> bool {
        self.known_to_have_left.store(self.left.0.load(Ordering::SeqCst), Ordering::Relaxed);
        self.under_way() < CALLS_MAX || self.is_closed.load(Ordering::SeqCst)
    }

    /// Enters a call, if there is room. A few threads may find the last place at the same time: then the bound is
    /// exceeded by as many.
    #[must_use]
    pub(crate) fn try_enter(&self) -> bool {
        let has_room = self.has_room();
        if has_room {
            self.enter();
        }
        has_room
    }

    /// Same as `try_enter`, for a call that must not wait.
    pub(crate) fn enter(&self) {
        self.entered.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Leaves: a call is at its end.
    pub(crate) fn leave(&self) {
        self.left.0.fetch_add(1, Ordering::SeqCst);
        if self.has_waiters.load(Ordering::SeqCst) {
            self.wake_waiters();
        }
    }

    /// Closes the window: no call has to wait any more, for each will be refused.
    fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.wake_waiters();
    }

    /// Leaves a waker to be woken when there may be room, replacing the one of this number, if it still waits. `None`
    /// if there is room.
    pub(crate) fn wait(&self, number: Option<u64>, waker: &Waker) -> Option<u64> {
        // The executor's code: not under the lock.
        let waker = waker.clone();
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        let number = number.filter(|number| waiters.by_number.contains_key(number)).unwrap_or(waiters.next);
        waiters.next = waiters.next.max(number + 1);
        let replaced = waiters.by_number.insert(number, waker);
        self.has_waiters.store(true, Ordering::SeqCst);
        // Comes before each `leave` that it does not see, which sees the line above.
        self.left.0.fetch_add(0, Ordering::SeqCst);
        let has_room = self.has_room_now();
        let removed = if has_room { waiters.by_number.remove(&number) } else { None };
        drop(waiters);
        // As above.
        drop((replaced, removed));
        (!has_room).then_some(number)
    }

    /// Removes the waiter of this number. False if it was woken.
    pub(crate) fn forget(&self, number: u64) -> bool {
        let removed = self.waiters.lock().unwrap_or_else(PoisonError::into_inner).by_number.remove(&number);
        removed.is_some()
    }

    /// Passes the turn on: a woken waiter has not sent its call.
    pub(crate) fn pass_on(&self) {
        self.wake_waiters();
    }

    /// Wakes as many waiters as there is room for: when one of the active calls leaves, the next ones have their turn,
    /// even if those woken before do not come. With none active no call will leave, so all are woken.
    #[cold]
    fn wake_waiters(&self) {
        let mut woken = Vec::new();
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        let under_way = self.under_way();
        let is_last = under_way == 0 || self.is_closed.load(Ordering::SeqCst);
        let room = if is_last { usize::MAX } else { CALLS_MAX.saturating_sub(under_way) };
        while woken.len() < room
            && let Some((_, waker)) = waiters.by_number.pop_first()
        {
            woken.push(waker);
        }
        self.has_waiters.store(!waiters.by_number.is_empty(), Ordering::SeqCst);
        drop(waiters);
        // The executors' code, on the worker's thread or in a destructor.
        for waker in woken {
            quietly(|| waker.wake());
        }
    }
}
