//! `select`: waits for the first of several promised values.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::fiber::record::Awaited;
use crate::fiber::timer::Waiter;
use crate::runtime::worker::{self, Worker};
use crate::tasks::one_shot::Waiting;

/// Waiters for a promised value.
#[derive(Default)]
pub(crate) struct Waiters {
    /// Sole waiter, which waits for this value only.
    pub(crate) own: Waiter,
    /// Waiters for several values, or of several fibers: each has one waiter for all its values, which the first value
    /// takes [one-waker].
    selecting: RefCell<Vec<Waiter>>,
}

impl Waiting for Waiters {
    fn wake(&self, worker: &Worker) {
        worker.resume(self.own.take());
        // The waiters remove themselves.
        self.selecting.borrow().iter().for_each(|waiter| worker.resume(waiter.take()));
    }
}

/// Source that [`select`] can wait for: a [`Pending`](crate::Pending).
///
/// Sealed: it cannot be implemented outside of this crate.
pub trait Source: sealed::Source {}

impl<S: sealed::Source> Source for S {}

pub(crate) mod sealed {
    pub trait Source {
        /// Returns whether the value was given, taken or not.
        fn is_settled(&self) -> bool;
        #[expect(private_interfaces, reason = "nobody outside can name it, nor has to")]
        fn waiters(&self) -> &super::Waiters;
    }
}

/// Registration of one waiter with all of these sources; dropping it removes the waiter.
struct Selecting<'a> {
    sources: &'a [&'a dyn Source],
    waiter: Waiter,
}

impl<'a> Selecting<'a> {
    fn new(sources: &'a [&'a dyn Source]) -> Self {
        let waiter = Waiter::default();
        sources.iter().for_each(|source| source.waiters().selecting.borrow_mut().push(Rc::clone(&waiter)));
        Selecting { sources, waiter }
    }
}

impl Drop for Selecting<'_> {
    fn drop(&mut self) {
        for source in self.sources {
            source.waiters().selecting.borrow_mut().retain(|waiter| !Rc::ptr_eq(waiter, &self.waiter));
        }
    }
}

/// Waits until one of these promised values has come or is known never to come, at most for `time` if given. Returns
/// the index of the first such value in the list, which need not be the one that came first; `None` after `time`.
/// Nothing is taken: [`Pending::try_take`](crate::Pending::try_take) returns the value. A value that was taken before
/// also counts: leave it out.
///
/// Anything that calls back can be waited for this way: `trust.apply_then(f, |value| promise.keep(value))`. For
/// channels of a rack program use `gossamer::sync::select`.
///
/// ```
/// use std::time::Duration;
/// use trust::{promise, select};
///
/// let pool = trust::Threadpool::new(2);
/// let ((fast, first), (slow, second)) = (promise::<u32>(), promise::<String>());
/// pool.spawn(move || fast.keep(7));
/// assert_eq!(select(&[&first, &second], None), Some(0));
/// assert_eq!(first.try_take(), Some(Ok(7)));
/// assert_eq!(select(&[&second], Some(Duration::from_millis(1))), None);
/// slow.keep_with("late".to_owned());
/// assert_eq!(select(&[&second], None), Some(0));
/// ```
///
/// # Panics
/// In delegated context and in callbacks, where nothing may wait; for an empty list without a time, which would wait
/// for ever.
pub fn select(sources: &[&dyn Source], time: Option<Duration>) -> Option<usize> {
    worker::with(|worker| {
        worker.assert_may_wait("select");
        assert!(!sources.is_empty() || time.is_some(), "`select` of nothing waits for ever");
        let first = || sources.iter().position(|source| source.is_settled());
        if first().is_none() {
            // No deadline if the clock cannot represent it.
            let end = time.and_then(|time| Instant::now().checked_add(time));
            wait_for_any(worker, Awaited::Promises, sources, end);
        }
        first()
    })
}

/// Waits until one of these has come, or until `end`. Unwinds if the fiber is aborted.
pub(crate) fn wait_for_any(worker: &Worker, awaited: Awaited, sources: &[&dyn Source], end: Option<Instant>) {
    let selecting = Selecting::new(sources);
    let is_any_settled = || sources.iter().any(|source| source.is_settled());
    worker.wait_unless_aborted(awaited, end, &selecting.waiter, is_any_settled);
    drop(selecting);
    worker.heed_abort();
}
