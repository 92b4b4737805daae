//! `together`: calls of one closure on several latched values at once.
//!
//! Here: the accepted sets of trusts, and the client's side. Not here: how the values are gathered
//! (`tasks/together.rs`), futures (`together_future.rs`).

#![allow(unsafe_code)]

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use crate::api::trust::Trust;
use crate::error::Error;
use crate::noref::NoRef;
use crate::property::{Header, Property};
use crate::request::Fault;
use crate::runtime::worker::lines::LatchKind;
use crate::runtime::worker::{self, Context, Worker};
use crate::tasks::deliver::call_back;
use crate::tasks::latch::Latch;
use crate::tasks::together::{
    Failure, Job, Outcome, Part, Parts, Route, kind_of, run_on, together_and_call_back, together_and_wait,
};

/// Set of trusts that one call of [`together`] accepts: a tuple of two to eight `&Trust<Latch<_>>`, an array or a slice
/// of `&Trust<Latch<T>>`, or a slice of `Trust<Latch<T>>`.
///
/// Sealed: it cannot be implemented outside of this crate.
#[diagnostic::on_unimplemented(
    message = "`together` takes trusts of latches, not `{Self}`",
    note = "give it `(&a, &b)`, up to eight, or a slice, of `&Trust<Latch<T>>` where `T: Send`: entrust \
            `Latch::new(value)`"
)]
pub trait Several: sealed::Several {}

/// Mapping from a set of trusts to the arguments of the closure.
pub(crate) mod sealed {
    use super::{LatchKind, NonNull, Parts, Worker};

    pub trait Several {
        /// Types of the values.
        type Values: Values;
        /// Parts, one for each trust.
        #[expect(private_bounds, reason = "nobody outside can name it, nor has to")]
        type Parts: Parts;
        /// Returns the properties, in the order of the arguments.
        fn parts(&self) -> Self::Parts;
        /// Returns the values, in the order of the arguments, if there are few, all free, and of different properties
        /// of this thread's own trustee.
        #[expect(private_interfaces, reason = "nobody outside can name it, nor has to")]
        fn free_here(&self, worker: &Worker) -> Option<impl AsRef<[NonNull<()>]>>;
    }

    pub trait Values: 'static {
        /// Argument of the closure.
        type Refs<'a>;
        /// Returns the kind of latch that holds this argument.
        #[expect(private_interfaces, reason = "nobody outside can name it, nor has to")]
        fn kind(argument: usize) -> &'static LatchKind;
        /// # Safety
        /// The values are of these types, in this order, and nothing else accesses them during `'a`.
        unsafe fn refs<'a>(values: &[NonNull<()>]) -> Self::Refs<'a>;
    }
}

/// Argument of the closure of a call with these trusts: `(&mut A, &mut B)`, `[&mut T; N]` or `Vec<&mut T>`.
pub type Refs<'a, S> = <<S as sealed::Several>::Values as sealed::Values>::Refs<'a>;

macro_rules! tuples {
    ($($name:ident $at:tt),+) => {
        impl<$($name: Send + 'static),+> Several for ($(&Trust<Latch<$name>>,)+) {}
        impl<$($name: Send + 'static),+> sealed::Several for ($(&Trust<Latch<$name>>,)+) {
            type Values = ($($name,)+);
            type Parts = [Part; [$($at),+].len()];
            fn parts(&self) -> Self::Parts {
                [$(Part::new::<$name>(self.$at.parts(), $at)),+]
            }
            #[expect(private_interfaces, reason = "as in the trait")]
            #[inline(always)]
            fn free_here(&self, worker: &Worker) -> Option<impl AsRef<[NonNull<()>]>> {
                let properties = [$(self.$at.parts().0),+];
                let values = [$(free_here(worker, self.$at)?),+];
                are_different(&properties).then_some(values)
            }
        }
        impl<$($name: 'static),+> sealed::Values for ($($name,)+) {
            type Refs<'a> = ($(&'a mut $name,)+);
            #[expect(private_interfaces, reason = "as in the trait")]
            fn kind(argument: usize) -> &'static LatchKind {
                [$(kind_of::<$name>()),+][argument]
            }
            #[inline(always)]
            unsafe fn refs<'a>(values: &[NonNull<()>]) -> Self::Refs<'a> {
                // SAFETY: the caller's promise.
                unsafe { ($(values[$at].cast::<$name>().as_mut(),)+) }
            }
        }
    };
}
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, G 5);
tuples!(A 0, B 1, C 2, D 3, E 4, G 5, H 6);
tuples!(A 0, B 1, C 2, D 3, E 4, G 5, H 6, I 7);

impl<T: 'static, const N: usize> sealed::Values for [T; N] {
    type Refs<'a> = [&'a mut T; N];
    #[expect(private_interfaces, reason = "as in the trait")]
    fn kind(_argument: usize) -> &'static LatchKind {
        kind_of::<T>()
    }
    unsafe fn refs<'a>(values: &[NonNull<()>]) -> Self::Refs<'a> {
        // SAFETY: the caller's promise; there are N.
        std::array::from_fn(|at| unsafe { values[at].cast::<T>().as_mut() })
    }
}

impl<T: 'static> sealed::Values for Vec<T> {
    type Refs<'a> = Vec<&'a mut T>;
    #[expect(private_interfaces, reason = "as in the trait")]
    fn kind(_argument: usize) -> &'static LatchKind {
        kind_of::<T>()
    }
    unsafe fn refs<'a>(values: &[NonNull<()>]) -> Self::Refs<'a> {
        // SAFETY: the caller's promise.
        values.iter().map(|value| unsafe { value.cast::<T>().as_mut() }).collect()
    }
}

/// Makes the part of the trust at this place of a list.
fn part_of<T: Send + 'static>(at: usize, trust: &impl Borrow<Trust<Latch<T>>>) -> Part {
    Part::new::<T>(trust.borrow().parts(), at)
}

macro_rules! lists {
    ($([$($generic:tt)*] $list:ty, $values:ty, $parts:ty, $of:expr;)+) => {$(
        impl<T: Send + 'static, $($generic)*> Several for $list {}
        impl<T: Send + 'static, $($generic)*> sealed::Several for $list {
            type Values = $values;
            type Parts = $parts;
            fn parts(&self) -> Self::Parts {
                let of: fn(&Self) -> Self::Parts = $of;
                of(self)
            }
            #[expect(private_interfaces, reason = "as in the trait")]
            #[inline(always)]
            fn free_here(&self, worker: &Worker) -> Option<impl AsRef<[NonNull<()>]>> {
                FreeHere::of(worker, self.iter().map(|trust| trust.borrow()))
            }
        }
    )+};
}
lists! {
    [const N: usize] [&Trust<Latch<T>>; N], [T; N], [Part; N],
        |all| std::array::from_fn(|at| part_of::<T>(at, &all[at]));
    [] &[&Trust<Latch<T>>], Vec<T>, Vec<Part>,
        |all| all.iter().enumerate().map(|(at, one)| part_of::<T>(at, one)).collect();
    [] &[Trust<Latch<T>>], Vec<T>, Vec<Part>,
        |all| all.iter().enumerate().map(|(at, one)| part_of::<T>(at, one)).collect();
}

/// Returns the value of a latch of this thread's own trustee. `None` if it needs more than a look-up: it is another
/// trustee's, in use, or poisoned.
#[inline(always)]
fn free_here<T: 'static>(worker: &Worker, trust: &Trust<Latch<T>>) -> Option<NonNull<()>> {
    if !trust.is_at(worker) {
        return None;
    }
    let (property, _) = trust.parts();
    // SAFETY: live, for this is a trust of it; of this trustee and type; the context is free, so nothing borrows it.
    unsafe {
        if (*property).is_poisoned_or_in_line() {
            return None;
        }
        Property::<Latch<T>>::value(property).get().map(|value| NonNull::from(value).cast())
    }
}

#[inline(always)]
fn are_different(properties: &[*mut Header]) -> bool {
    // Not by `contains`, which is not inlined.
    (1..properties.len()).all(|at| (0..at).all(|before| properties[before] != properties[at]))
}

/// Most values of a list that are looked up before the trusts are sorted.
const FEW: usize = 8;

/// Free values of a list of different properties of this thread's own trustee.
struct FreeHere {
    values: [NonNull<()>; FEW],
    count: usize,
}

impl FreeHere {
    fn of<'a, T: 'static>(worker: &Worker, trusts: impl ExactSizeIterator<Item = &'a Trust<Latch<T>>>) -> Option<Self> {
        let count = trusts.len();
        let mut found = FreeHere { values: [NonNull::dangling(); FEW], count };
        let mut properties = [ptr::null_mut(); FEW];
        if count > FEW {
            return None;
        }
        for (at, trust) in trusts.enumerate() {
            properties[at] = trust.parts().0;
            found.values[at] = free_here(worker, trust)?;
        }
        are_different(&properties[..count]).then_some(found)
    }
}

impl AsRef<[NonNull<()>]> for FreeHere {
    fn as_ref(&self) -> &[NonNull<()>] {
        &self.values[..self.count]
    }
}

/// Closure and the types of its values.
pub(super) struct OnValues<V, F, U> {
    f: F,
    types: PhantomData<fn(V) -> U>,
}

impl<V, F, U> OnValues<V, F, U> {
    pub(super) fn new(f: F) -> Self {
        OnValues { f, types: PhantomData }
    }
}

impl<V, F, U> Job for OnValues<V, F, U>
where
    V: sealed::Values,
    F: for<'a> FnOnce(V::Refs<'a>) -> U + Send + 'static,
    U: Send + 'static,
{
    type Output = U;
    fn kind(argument: usize) -> &'static LatchKind {
        V::kind(argument)
    }
    #[inline(always)]
    unsafe fn run(self, values: &[NonNull<()>]) -> U {
        // SAFETY: the caller's promise; the references end with the call, for the result is `'static`.
        (self.f)(unsafe { V::refs(values) })
    }
}

/// Runs `f` on the values of several latched properties at once, of one or several trustees of this process, and
/// returns its result. While it runs nothing else has any of the values. If a trustee is gone, or a property poisoned,
/// `f` does not run; if `f` panics, all the properties are poisoned, and its changes remain.
///
/// `f` receives `(&mut A, &mut B)` for a tuple of trusts, `[&mut T; N]` for an array, `Vec<&mut T>` for a slice.
///
/// The order in which the trusts are named does not matter: calls that overlap never wait for each other in a cycle.
/// Waiters for a value, launched closures among them, get it in turn (those that run at the same trustee together). `f`
/// runs at one of the trustees and cannot wait, like a closure of [`apply`](Trust::apply); its captures and its result
/// are [`NoRef`]. A call costs one request if all values are at one trustee, else two messages for each trustee; none
/// for the values of this thread's own trustee.
///
/// `f` runs after the closures of [`apply_then`](Trust::apply_then) and its variants that the same thread has sent to
/// these trustees before. [`apply`](Trust::apply) on the property itself, the [`Latch`], finds the latch empty while a
/// call has its value, as while a launched closure has it.
///
/// ```
/// use trust::{Latch, Threadpool, together};
///
/// let pool = Threadpool::new(2);
/// let (mine, yours) = (pool.entrust(Latch::new(100)), pool.entrust(Latch::new(0)));
/// let left = together((&mine, &yours), |(mine, yours)| {
///     *mine -= 30;
///     *yours += 30;
///     *mine
/// });
/// assert_eq!(left, 70);
///
/// let all = [mine, yours];
/// assert_eq!(together(&all[..], |all| all.iter().map(|one| **one).sum::<i32>()), 100);
/// ```
///
/// # Panics
/// With the panic of `f`; where [`try_together`] returns an error, with its text; inside a delegated closure or a
/// callback, where nothing may wait; in a [launched](Trust::launch) closure, which holds a value already.
#[track_caller]
pub fn together<S, U, F>(trusts: S, f: F) -> U
where
    S: Several,
    F: for<'a> FnOnce(Refs<'a, S>) -> U + NoRef + Send + 'static,
    U: NoRef + Send + 'static,
{
    resume(act::<S, U, F>("together", &trusts, f))
}

/// Same as [`together`], for callers that handle errors.
///
/// # Errors
/// [`Error::Panicked`]; [`Error::Poisoned`] and [`Error::Gone`] of any of the properties, when `f` has not run;
/// [`Error::Twice`] if two of the trusts are of one property, [`Error::Apart`] if one is of another machine.
///
/// ```
/// use trust::{Error, Latch, local_trustee, try_together};
/// let a = local_trustee().entrust(Latch::new(1));
/// assert!(matches!(try_together((&a, &a.clone()), |_| ()), Err(Error::Twice { .. })));
/// ```
///
/// # Panics
/// Inside a delegated closure or a callback, and in a launched closure.
pub fn try_together<S, U, F>(trusts: S, f: F) -> Result<U, Error>
where
    S: Several,
    F: for<'a> FnOnce(Refs<'a, S>) -> U + NoRef + Send + 'static,
    U: NoRef + Send + 'static,
{
    into_result(act::<S, U, F>("try_together", &trusts, f))
}

/// Same as [`together`], without waiting: `then` is called with the result, on this thread, as by
/// [`apply_then`](Trust::apply_then). Legal everywhere but in a launched closure. When it is called in a delegated
/// closure or a callback, `f` may run before requests that the thread has sent earlier to trustees other than the
/// first.
///
/// ```
/// use std::{cell::Cell, rc::Rc};
/// use trust::{Latch, Threadpool, together_then};
///
/// let pool = Threadpool::new(2);
/// let (a, b) = (pool.entrust(Latch::new(1)), pool.entrust(Latch::new(2)));
/// let sum = Rc::new(Cell::new(0));
/// let seen = Rc::clone(&sum);
/// together_then((&a, &b), |(a, b)| *a + *b, move |both| seen.set(both));
/// trust::wait_all();
/// assert_eq!(sum.get(), 3);
/// ```
///
/// # Panics
/// In a launched closure. Other errors are reported on standard error, and `then` is dropped.
pub fn together_then<S, U, F, H>(trusts: S, f: F, then: H)
where
    S: Several,
    F: for<'a> FnOnce(Refs<'a, S>) -> U + NoRef + Send + 'static,
    U: NoRef + Send + 'static,
    H: FnOnce(U) + 'static,
{
    try_together_then(trusts, f, |outcome| match outcome {
        Ok(value) => then(value),
        Err(error) => {
            crate::unwind::tell(format_args!("the callback of a `together_then` does not run: {error}"));
        }
    });
}

/// Same as [`together_then`], but `then` also receives the error if there is no result.
///
/// # Panics
/// In a launched closure.
///
/// ```
/// use trust::{Latch, Threadpool, try_together_then, wait_all};
/// let pool = Threadpool::new(2);
/// let (a, b) = (pool.entrust(Latch::new(10)), pool.entrust(Latch::new(0)));
/// try_together_then((&a, &b), |(a, b)| { *b += *a; *a = 0; *b }, |sum| assert_eq!(sum, Ok(10)));
/// try_together_then((&a, &a), |_| (), |outcome| assert!(outcome.is_err())); // the same one twice
/// wait_all();
/// assert_eq!((a.launch(|a| *a), b.launch(|b| *b)), (0, 10));
/// ```
pub fn try_together_then<S, U, F, H>(trusts: S, f: F, then: H)
where
    S: Several,
    F: for<'a> FnOnce(Refs<'a, S>) -> U + NoRef + Send + 'static,
    U: NoRef + Send + 'static,
    H: FnOnce(Result<U, Error>) + 'static,
{
    worker::with(|worker| {
        refuse_holder(worker, "together_then");
        let job = OnValues::<S::Values, F, U>::new(f);
        // SAFETY: trusts of these latches, which live as long as this call; `Several` asks for `Send`.
        unsafe { send(worker, trusts.parts(), job, |outcome| then(into_result(outcome))) };
    });
}

/// Outcome of a call, or the reason why it could not be made.
pub(super) type CallOutcome<U> = Result<Outcome<U>, Error>;

/// Makes the outcome of a call without a result.
pub(super) fn lost<U>(fault: Fault) -> Outcome<U> {
    Err(Box::new(Failure::lost(fault)))
}

pub(super) fn into_result<U>(outcome: CallOutcome<U>) -> Result<U, Error> {
    outcome?.map_err(|failure| failure.into_error())
}

/// Returns the closure's result; resumes its own panic, and panics with the text of any other error.
#[track_caller]
pub(super) fn resume<U>(outcome: CallOutcome<U>) -> U {
    match outcome {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => match *failure {
            Failure { fault: Fault::Panicked(payload), .. } => std::panic::resume_unwind(payload),
            failure => panic!("{}", failure.into_error()),
        },
        Err(error) => panic!("{error}"),
    }
}

/// Sends the call; `then` is called on this thread with the outcome.
///
/// # Safety
/// Same as [`together_and_call_back`]: the trusts live as long as this call.
pub(super) unsafe fn send<P: Parts, J: Job>(
    worker: &Worker,
    parts: P,
    job: J,
    then: impl FnOnce(CallOutcome<J::Output>) + 'static,
) {
    match Route::new(worker, parts) {
        Ok(route) => {
            let answer = move |outcome: Result<Outcome<J::Output>, Fault>| then(Ok(outcome.unwrap_or_else(lost)));
            // SAFETY: the caller's promise.
            unsafe { together_and_call_back(worker, route, job, Box::new(answer)) };
        }
        Err(error) => call_back(worker, || then(Err(error))),
    }
}

#[inline(always)]
fn act<S, U, F>(call: &str, trusts: &S, f: F) -> CallOutcome<U>
where
    S: Several,
    F: for<'a> FnOnce(Refs<'a, S>) -> U + Send + 'static,
    U: Send + 'static,
{
    worker::with(|worker| {
        worker.assert_may_wait(call);
        refuse_holder(worker, call);
        let job = OnValues::<S::Values, F, U>::new(f);
        if let Some(found) = trusts.free_here(worker) {
            // SAFETY: the values that the job is for, in order, which nothing else accesses.
            let outcome = match unsafe { run_on(worker, job, found.as_ref()) } {
                Ok(value) => Ok(value),
                Err(payload) => Err(Route::new(worker, trusts.parts())?.after_panic(worker, payload)),
            };
            worker.count_run_here();
            return Ok(outcome);
        }
        let route = Route::new(worker, trusts.parts())?;
        // SAFETY: trusts of these latches, which the caller lends while this waits; `Several` asks for `Send`.
        Ok(unsafe { together_and_wait(worker, route, job) })
    })
}

/// Panics if this fiber holds a value: it could wait for a fiber that has another value and waits for this one, a cycle
/// that no order prevents.
#[inline(always)]
pub(super) fn refuse_holder(worker: &Worker, call: &str) {
    if worker.context() == Context::Free && worker.scheduler.is_holding() {
        holds_already(call);
    }
}

#[cold]
fn holds_already(call: &str) -> ! {
    panic!(
        "`{call}` in a closure that was launched, which holds the value of a latch already: name all of them in one \
         call, without `launch`, or give the value up for the call (`Held::released`)"
    )
}
