//! `scope`: owners are lent to fibers of any machine, which end before they are given back (DRust 4.1.2).
//!
//! No message holds a pointer to the lender's stack: messages hold names of objects, and a promise by which an owner
//! that was lent for writing comes back, with the name that it has then.
//!
//! Invariants
//! - [scope-waits] `scope` does not end, by return or by panic, before each closure that was given to it has run or was
//!   dropped: each carries a promise that is dropped after all that the closure captured, and `scope` waits for all of
//!   these, through aborts too. A closure at a machine that is lost has ended when the loss is settled: nothing that it
//!   does reaches a living machine, and [none-lends-on] nobody else borrows by it.
//! - [none-lends-on] Where the program outlives machines, a fiber that borrows from another machine starts no fiber at
//!   a third: if its own machine is lost, the first lender would not know of that one. So each closure says whether it
//!   borrows from another machine, itself or by an outer scope.
//! - [lent-owner-null] While an owner is lent for writing, its place on the lender's stack holds the null name. An
//!   owner that has not come back when all closures have ended never does: the owner stays so, and says it. It names
//!   the machine, if one was lost with a closure.

#![allow(unsafe_code)]

mod lent;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};
use trust::link::deadline_after;

use gossamer::{NoRef, Pending, Place, Promise};
use trust::link::promise_at;
use trust::{Aborted, Error, link, local_trustee};

use crate::global::{Global, check_may_wait};
use crate::object::Object;
use crate::portable::Portable;
use lent::Loan;
pub use lent::{Lent, LentMut};

/// Time for which an owner lent for writing may be under way after all fibers have ended: one that was dropped on
/// another thread than theirs.
const UNDER_WAY: Duration = Duration::from_secs(1);

thread_local! {
    /// The fibers of this thread that borrow from another machine, by their numbers [none-lends-on].
    static FAR: RefCell<HashSet<u64>> = RefCell::default();
}

/// Does the calling fiber borrow from another machine?
fn is_far() -> bool {
    link::fiber_id().is_some_and(|fiber| FAR.with_borrow(|far| far.contains(&fiber)))
}

/// While it lasts, the calling fiber borrows from another machine.
struct Far(Option<u64>);

impl Far {
    fn begin() -> Far {
        let fiber = link::fiber_id();
        fiber.inspect(|fiber| _ = FAR.with_borrow_mut(|far| far.insert(*fiber)));
        Far(fiber)
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.0.inspect(|fiber| _ = FAR.with_borrow_mut(|far| far.remove(fiber)));
    }
}

/// Lends owners to fibers of any machine, and waits for these fibers: as `std::thread::scope`, with objects of the heap
/// as the shared data.
///
/// ```
/// use gossamer_heap::{Global, scope, slice};
/// gossamer::main(
///     || {
///         let (numbers, mut sum) = (slice(100, |i| i as u64), Global::new(0u64));
///         let there = gossamer::rack().places().last().unwrap();
///         scope(|s| {
///             let (numbers, mut sum) = (s.lend(&numbers), s.lend_mut(&mut sum));
///             s.spawn_on(there, move || *sum.write() = numbers.read().iter().sum());
///         });
///         assert_eq!((*sum.read(), numbers.read().len()), (4950, 100)); // both are here again
///     },
///     2,
/// );
/// ```
///
/// Captures of a closure may not refer to the stack, here as elsewhere: owners are lent, all else goes by value.
///
/// ```compile_fail
/// gossamer::main(
///     || {
///         let mut count = 0;
///         gossamer_heap::scope(|s| {
///             s.spawn_on(gossamer::here(), || count += 1);
///         });
///     },
///     1,
/// );
/// ```
///
/// Where a program outlives the loss of machines ([`Builder::survives`](gossamer::Builder::survives)), the fibers on a
/// lost machine have ended; owners lent for writing that have not come back from there are lost, and all others are
/// here again. A fiber that borrows from another machine starts none at a third one there:
/// start that from the outer scope.
///
/// # Panics
/// Where nothing may wait (delegated closures, callbacks, destructors), and in plain threads. With the panic of `f`; if
/// a fiber panicked, or was lost, that nobody [joined](ScopedHandle::join). All after the fibers have ended.
///
/// Source: DRust, section 4.1.2.
pub fn scope<'env, F, R>(f: F) -> R
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
{
    check_may_wait("scope");
    let scope = Scope {
        ends: RefCell::default(),
        told: RefCell::default(),
        loans: RefCell::default(),
        failed: Rc::default(),
        is_far: is_far(),
        scope: PhantomData,
        env: PhantomData,
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    // [scope-waits].
    let aborted = scope.finish();
    match (outcome, aborted) {
        (Err(panic), _) | (Ok(_), Some(panic)) => resume_unwind(panic),
        (Ok(value), None) => {
            scope.failed.check();
            value
        }
    }
}

/// The fibers that have no result, and that nobody joined.
#[derive(Default)]
struct Failed {
    /// Texts of their panics.
    panicked: RefCell<Vec<String>>,
    lost: Cell<usize>,
    /// Machine of the last of these.
    machine: Cell<u16>,
}

impl Failed {
    fn add(&self, error: &Error, is_lost: bool, machine: u16) {
        if is_lost {
            self.lost.set(self.lost.get() + 1);
            self.machine.set(machine);
        } else {
            self.panicked.borrow_mut().push(panic_of(error));
        }
    }

    /// Takes out one that was joined.
    fn take(&self, error: &Error, is_lost: bool) {
        if is_lost {
            self.lost.set(self.lost.get() - 1);
            return;
        }
        let (mut panicked, joined) = (self.panicked.borrow_mut(), panic_of(error));
        if let Some(at) = panicked.iter().position(|text| *text == joined) {
            panicked.remove(at);
        }
    }

    /// Panics if there are some.
    fn check(&self) {
        if let Some(first) = self.panicked.borrow().first() {
            panic!("a fiber of a scope panicked: {first}");
        }
        if self.lost.get() > 0 {
            let machine = self.machine.get();
            panic!("a fiber of a scope was lost with machine {machine}: `join` tells that as an error")
        }
    }
}

/// The text of a fiber's panic, or of another error.
fn panic_of(error: &Error) -> String {
    match error {
        Error::Panicked { panic, .. } => panic.clone(),
        other => other.to_string(),
    }
}

/// Has a fiber of that machine this error because the machine was lost?
fn is_loss(error: &Error, machine: u16) -> bool {
    matches!(error, Error::Lost { .. } | Error::Gone { .. }) && gossamer::link::is_lost(machine)
}

/// Lends owners, and starts fibers. Made by [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    /// Each is settled when a closure has run and is gone, or its machine, whose number is beside it [scope-waits].
    ends: RefCell<Vec<(Pending<()>, u16)>>,
    /// Each is settled when the outcome of a fiber has come.
    told: RefCell<Vec<Rc<Pending<()>>>>,
    /// Owners that are to come back.
    loans: RefCell<Vec<Box<dyn Loan>>>,
    failed: Rc<Failed>,
    /// The fiber of this scope borrows from another machine [none-lends-on].
    is_far: bool,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// A closure, and the promise that reports its end: dropped in this order [scope-waits].
struct Scoped<F> {
    f: F,
    end: Promise<()>,
    is_far: bool,
}

impl<R, F: FnOnce() -> R> Scoped<F> {
    fn run(self) -> R {
        let Scoped { f, end, is_far } = self;
        // Of two variables the later is dropped first, where it unwinds too.
        let end = end;
        let far = is_far.then(Far::begin);
        let value = f();
        drop(far);
        drop(end);
        value
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Lends an owner to be read, by as many as there are copies of the handle. Does not wait.
    ///
    /// Example: at [`scope`].
    pub fn lend<T: ?Sized + Object + Portable>(&'scope self, owner: &'scope Global<T>) -> Lent<'scope, T> {
        Lent::of(owner)
    }

    /// Lends an owner for writing to the holder of the handle. It comes back when the handle is dropped. Does not wait.
    ///
    /// An owner with a forgotten handle (`std::mem::forget`) does not come back: to read or write that owner panics,
    /// and its object is never freed.
    ///
    /// Example: at [`scope`].
    pub fn lend_mut<T: ?Sized + Object + Portable>(&'scope self, owner: &'scope mut Global<T>) -> LentMut<'scope, T> {
        let (lent, loan) = lent::lend(owner);
        self.loans.borrow_mut().push(loan);
        lent
    }

    /// Starts a fiber at a place, as [`gossamer::spawn_on`]; its closure may capture owners that this scope lends. Does
    /// not wait.
    ///
    /// Example: at [`scope`].
    ///
    /// # Panics
    /// If there is no such place; where the program outlives machines, if the calling fiber borrows from another
    /// machine and the place is on a third, or back on that one.
    #[track_caller]
    pub fn spawn_on<F, R>(&'scope self, place: Place, f: F) -> ScopedHandle<'scope, R>
    where
        F: FnOnce() -> R + NoRef + Send + 'scope,
        R: NoRef + Send + 'static,
    {
        let trustee = place.trustee();
        let leaves = place.machine != gossamer::rack().machine();
        // [none-lends-on]
        assert!(
            !(self.is_far && leaves && gossamer::link::outlives_losses()),
            "this fiber borrows from another machine by a `scope`, and the program is to outlive machines \
             (`survives`): if this one is lost, nobody would wait for a fiber at {place}; start that from the outer \
             scope"
        );
        // Each settled by its machine alone: the loss of another one is nothing to it.
        let (end, ended) = promise_at(trustee.id());
        let (tell, told) = promise_at(local_trustee().id());
        let (told, outcome, failed) = (Rc::new(told), Rc::new(Cell::new(None)), Rc::clone(&self.failed));
        self.ends.borrow_mut().push((ended, place.machine));
        self.told.borrow_mut().push(Rc::clone(&told));
        let slot = Rc::clone(&outcome);
        let then = move |outcome: Result<R, Error>| {
            let outcome = outcome.map_err(|error| {
                let is_lost = is_loss(&error, place.machine);
                failed.add(&error, is_lost, place.machine);
                (error, is_lost)
            });
            slot.set(Some(outcome));
            tell.keep(());
        };
        let scoped = Scoped { f, end, is_far: self.is_far || leaves };
        // SAFETY: [scope-waits]: the borrows of `f` are for `'scope`, which lasts until `scope` has waited for `end`;
        // that is dropped after `f`, run or unrun.
        unsafe { link::call_scoped(trustee, move || scoped.run(), then) };
        ScopedHandle { told, outcome, failed: Rc::clone(&self.failed), scope: PhantomData }
    }

    /// Starts a fiber at the place of an object, with the object lent. Does not wait.
    ///
    /// ```
    /// use gossamer_heap::{scope, slice};
    /// gossamer::main(
    ///     || {
    ///         let numbers = slice(100, |i| i as u64);
    ///         let sum = scope(|s| s.spawn_to(&s.lend(&numbers), |numbers| numbers.read().iter().sum::<u64>()).join());
    ///         assert_eq!(sum.unwrap(), 4950);
    ///     },
    ///     1,
    /// );
    /// ```
    pub fn spawn_to<T, F, R>(&'scope self, lent: &Lent<'scope, T>, f: F) -> ScopedHandle<'scope, R>
    where
        T: ?Sized + Object + Portable,
        F: FnOnce(Lent<'scope, T>) -> R + NoRef + Send + 'scope,
        R: NoRef + Send + 'static,
    {
        let lent = lent.clone();
        self.spawn_on(lent.place(), move || f(lent))
    }

    /// Waits for all closures, takes lent owners back, and waits for the results of the fibers. Returns the first abort
    /// that came meanwhile.
    fn finish(&self) -> Option<Box<dyn Any + Send>> {
        let mut aborted = None;
        // Closures start no others here: they have no reference to this.
        let ends = self.ends.take();
        for (end, _) in &ends {
            while wait(end, None, &mut aborted).is_none() {}
        }
        let lost = ends.iter().map(|(_, machine)| *machine).find(|machine| gossamer::link::is_lost(*machine));
        let until = deadline_after(UNDER_WAY);
        for loan in self.loans.take() {
            loan.end(until, lost, &mut aborted);
        }
        for told in self.told.take() {
            wait(&told, None, &mut aborted);
        }
        aborted
    }
}

/// Waits for a promised value, up to a time; an abort that comes meanwhile is kept, and waits.
fn wait<T: 'static>(
    pending: &Pending<T>,
    until: Option<Instant>,
    aborted: &mut Option<Box<dyn Any + Send>>,
) -> Option<Result<T, Error>> {
    loop {
        let time = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
        match catch_unwind(AssertUnwindSafe(|| pending.wait_timeout(time))) {
            Ok(outcome) => return outcome,
            Err(panic) if panic.is::<Aborted>() => {
                aborted.get_or_insert(panic);
            }
            Err(_) => {
                // No caller may go on while its owners are lent.
                eprintln!("gossamer-heap: the fibers of a scope cannot be waited for: the process ends");
                std::process::abort()
            }
        }
    }
}

/// Result of a fiber. An error says beside it whether it is the loss of the machine.
type Outcome<R> = Result<R, (Error, bool)>;

/// A fiber of a scope. Dropped, the fiber runs on, and the scope waits for it.
pub struct ScopedHandle<'scope, R> {
    told: Rc<Pending<()>>,
    outcome: Rc<Cell<Option<Outcome<R>>>>,
    failed: Rc<Failed>,
    scope: PhantomData<&'scope ()>,
}

impl<R: 'static> ScopedHandle<'_, R> {
    /// Waits until the fiber has ended, and returns its result.
    ///
    /// Example: at [`Scope::spawn_to`].
    ///
    /// # Errors
    /// The panic of the fiber, as text; where the program outlives the fiber's machine, [`gossamer::Error`].
    pub fn join(self) -> Result<R, Box<dyn Any + Send>> {
        self.told.wait_timeout(Duration::MAX);
        match self.outcome.take() {
            Some(Ok(value)) => Ok(value),
            Some(Err((error, is_lost))) => {
                self.failed.take(&error, is_lost);
                Err(if is_lost { Box::new(error) } else { Box::new(panic_of(&error)) })
            }
            None => Err(Box::new("the fiber has no result: its thread has ended")),
        }
    }
}
