//! Calls of one closure on each of many properties: all requests are sent, then all answers are awaited.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::delegated::{Closure, ClosureWith, Delegated};
use crate::api::trust::Trust;
use crate::error::Error;
use crate::fiber::{FiberRef, Waits};
use crate::noref::NoRef;
use crate::request::{ANYWHERE, Fault};
use crate::runtime::worker;
use crate::unwind::quietly;

/// Outcomes of calls, in the order of the calls.
struct Outcomes<U> {
    outcomes: RefCell<Vec<Option<Result<U, Fault>>>>,
    left: Cell<usize>,
    /// Fiber that waits for the last outcome.
    waiter: Cell<Option<FiberRef>>,
}

impl<U> Outcomes<U> {
    /// Adds a place for one more outcome.
    fn add(&self) -> usize {
        self.left.set(self.left.get() + 1);
        let mut outcomes = self.outcomes.borrow_mut();
        outcomes.push(None);
        outcomes.len() - 1
    }

    fn set(&self, place: usize, outcome: Result<U, Fault>) {
        self.outcomes.borrow_mut()[place] = Some(outcome);
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0
            && let Some(fiber) = self.waiter.take()
        {
            worker::with(|worker| worker.resume(Some(fiber)));
        }
    }
}

/// Sends all these calls and waits until all are answered.
fn ask_each<'a, P: 'static, C: Delegated<P>>(
    name: &str,
    calls: impl Iterator<Item = (&'a Trust<P>, C)>,
) -> Vec<Result<C::Output, Fault>> {
    worker::with(|worker| {
        worker.assert_may_wait(name);
        // Not on the stack: the iterator is user code, and may panic while answers are under way.
        let all = Rc::new(Outcomes { outcomes: RefCell::default(), left: Cell::new(0), waiter: Cell::new(None) });
        for (trust, call) in calls {
            let (place, answered) = (all.add(), Rc::clone(&all));
            call.send(trust, worker, move |outcome| answered.set(place, outcome));
        }
        if all.left.get() > 0 {
            all.waiter.set(worker.fiber());
            worker.wait_until(|| all.left.get() == 0);
        }
        let outcomes = all.outcomes.take();
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| unreachable!("none is left"))).collect()
    })
}

/// Returns the results, or resumes the first panic or fault.
#[track_caller]
pub(super) fn resume_first<T, U>(outcomes: Vec<Result<U, Fault>>) -> Vec<U> {
    if outcomes.iter().all(Result::is_ok) {
        return outcomes.into_iter().filter_map(Result::ok).collect();
    }
    let mut first = None;
    for outcome in outcomes {
        match outcome {
            Err(fault) if first.is_none() => first = Some(fault),
            // Each by itself: a destructor that panics during another panic would abort the process.
            other => drop(quietly(|| drop(other))),
        }
    }
    match first {
        Some(fault) => fault.resume::<T>(),
        None => unreachable!("one of them failed"),
    }
}

/// Returns the results with errors for a property of type `T`.
pub(super) fn into_errors<T, U>(outcomes: Vec<Result<U, Fault>>) -> Vec<Result<U, Error>> {
    outcomes.into_iter().map(|outcome| outcome.map_err(Fault::into_error::<T>)).collect()
}

/// Applies `f` to each of these properties and waits for all of them. The requests are sent one after the other, run in
/// parallel where the trustees differ, and the caller waits once. The results are in the order of the trusts.
///
/// Not atomic: each property changes by itself, and others may see one change without another;
/// [`together`](crate::together) is atomic. Several requests to one trustee go in one batch.
///
/// ```
/// let pool = trust::Threadpool::new(2);
/// let shards: Vec<_> = (0..8).map(|shard| pool.entrust(vec![shard; shard])).collect();
/// let sizes = trust::apply_each(&shards, |shard| shard.len());
/// assert_eq!(sizes, [0, 1, 2, 3, 4, 5, 6, 7]);
/// ```
///
/// # Panics
/// Same as [`Trust::apply`], after all have answered: with the first panic or fault in the order of the trusts.
#[track_caller]
pub fn apply_each<'a, T, U, F>(trusts: impl IntoIterator<Item = &'a Trust<T>>, f: F) -> Vec<U>
where
    T: 'static,
    F: FnOnce(&mut T) -> U + NoRef + Clone + Send + 'static,
    U: NoRef + Send + 'static,
{
    let calls = trusts.into_iter().map(|trust| (trust, Closure::<_, ANYWHERE>(f.clone())));
    resume_first::<T, U>(ask_each("apply_each", calls))
}

/// Same as [`apply_each`], for callers that handle errors, for each property by itself.
///
/// # Errors
/// In the place of each call that fails: as [`ReadyCall::wait`](crate::ReadyCall::wait).
///
/// ```
/// let pool = trust::Threadpool::new(2);
/// let numbers = [0, 5, 2].map(|number| pool.entrust(number));
/// let quotients = trust::try_apply_each(&numbers, |number| 10 / *number);
/// assert!(matches!(&quotients[..], [Err(trust::Error::Panicked { .. }), Ok(2), Ok(5)]));
/// ```
///
/// # Panics
/// Inside a delegated closure or a callback, where nothing may wait.
pub fn try_apply_each<'a, T, U, F>(trusts: impl IntoIterator<Item = &'a Trust<T>>, f: F) -> Vec<Result<U, Error>>
where
    T: 'static,
    F: FnOnce(&mut T) -> U + NoRef + Clone + Send + 'static,
    U: NoRef + Send + 'static,
{
    let calls = trusts.into_iter().map(|trust| (trust, Closure::<_, ANYWHERE>(f.clone())));
    into_errors::<T, U>(ask_each("try_apply_each", calls))
}

/// Same as [`apply_each`], with an argument for each property. Arguments and results travel serialised: see
/// [`Trust::apply_with`].
///
/// ```
/// let pool = trust::Threadpool::new(2);
/// let shards = [(); 2].map(|()| pool.entrust(Vec::<String>::new()));
/// let words = [vec!["to".to_owned(), "be".to_owned()], vec!["or".to_owned()]];
/// let sizes = trust::apply_each_with(shards.iter().zip(words), |shard, words| { shard.extend(words); shard.len() });
/// assert_eq!(sizes, [2, 1]);
/// ```
///
/// # Panics
/// Same as [`Trust::apply_with`], after all have answered: with the first panic or fault in the order of the trusts.
#[track_caller]
pub fn apply_each_with<'a, T, A, U, F>(trusts: impl IntoIterator<Item = (&'a Trust<T>, A)>, f: F) -> Vec<U>
where
    T: 'static,
    F: FnOnce(&mut T, A) -> U + NoRef + Clone + Send + 'static,
    A: Serialize + DeserializeOwned + 'static,
    U: Serialize + DeserializeOwned + 'static,
{
    let calls = trusts.into_iter().map(|(trust, argument)| (trust, ClosureWith::new(f.clone(), argument)));
    resume_first::<T, U>(ask_each("apply_each_with", calls))
}

/// Same as [`apply_each_with`], for callers that handle errors, for each property by itself.
///
/// # Errors
/// In the place of each call that fails: as [`ReadyCall::wait`](crate::ReadyCall::wait).
///
/// ```
/// let pool = trust::Threadpool::new(2);
/// let names = [vec!["Ada".to_owned()], Vec::new()].map(|names| pool.entrust(names));
/// let wanted = ["Ada", "Bob"].map(str::to_owned);
/// let at = |names: &mut Vec<String>, name: String| names.iter().position(|other| *other == name).expect("unknown");
/// let places = trust::try_apply_each_with(names.iter().zip(wanted), at);
/// assert!(matches!(&places[..], [Ok(0), Err(trust::Error::Panicked { .. })]));
/// ```
///
/// # Panics
/// Inside a delegated closure or a callback, where nothing may wait.
pub fn try_apply_each_with<'a, T, A, U, F>(
    trusts: impl IntoIterator<Item = (&'a Trust<T>, A)>,
    f: F,
) -> Vec<Result<U, Error>>
where
    T: 'static,
    F: FnOnce(&mut T, A) -> U + NoRef + Clone + Send + 'static,
    A: Serialize + DeserializeOwned + 'static,
    U: Serialize + DeserializeOwned + 'static,
{
    let calls = trusts.into_iter().map(|(trust, argument)| (trust, ClosureWith::new(f.clone(), argument)));
    into_errors::<T, U>(ask_each("try_apply_each_with", calls))
}
