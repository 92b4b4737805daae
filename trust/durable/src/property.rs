//! The property behind a `Durable`: the core of its pool and the type of its root.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::convert::Infallible;
use std::marker::PhantomData;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use trust::Promise;

use crate::error::Error;
use crate::persist::Persist;
use crate::service::core::Core;
use crate::service::future;
use crate::service::texts;
use crate::tx::{Ended, Panic, Tx};

/// Answer to a request.
#[derive(Serialize, Deserialize)]
pub struct Answer<V> {
    /// The pool's number, independent of the number in the handle.
    pub(crate) pool: u64,
    /// Group that has to be durable before the result is delivered; 0 for none.
    pub(crate) mark: u64,
    pub(crate) outcome: Outcome<V>,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Outcome<V> {
    Value(V),
    /// Id of the text of the panic.
    Panicked(u64),
    /// The pool is lost. The cause is sent with the notification for `mark`, a group that never becomes durable.
    Lost,
    Closed,
}

impl<V> Outcome<V> {
    pub(crate) fn map<W>(self, f: impl FnOnce(V) -> W) -> Outcome<W> {
        match self {
            Outcome::Value(value) => Outcome::Value(f(value)),
            Outcome::Panicked(text_id) => Outcome::Panicked(text_id),
            Outcome::Lost => Outcome::Lost,
            Outcome::Closed => Outcome::Closed,
        }
    }

    /// Converts to a result, with the information that this process has. `cause` is the cause of a loss.
    pub(crate) fn into_result<T>(self, pool: u64, cause: Option<&str>) -> Result<V, Error> {
        match self {
            Outcome::Value(value) => Ok(value),
            Outcome::Panicked(text_id) => Err(panicked::<T>(texts::text(pool, text_id))),
            Outcome::Lost => Err(Error::Lost { cause: cause.unwrap_or("its disk failed").into() }),
            Outcome::Closed => Err(Error::Closed),
        }
    }
}

/// Returns the client's error for a panic, with its text where that is known.
pub(crate) fn panicked<T>(text: Option<String>) -> Error {
    let panic = text.unwrap_or_else(|| "(its text is on the trustee's machine, or not kept any more)".into());
    Error::Panicked { property: std::any::type_name::<T>(), panic }
}

impl<V> Answer<Result<V, Infallible>> {
    /// Removes the error that cannot occur.
    pub(crate) fn flat(self) -> Answer<V> {
        Answer { pool: self.pool, mark: self.mark, outcome: self.outcome.map(|Ok(value)| value) }
    }
}

/// Core of the pool, which never leaves the trustee's thread.
struct Here(Rc<RefCell<Core>>);

// SAFETY: it is made by a closure on the property, at its trustee, which stays on that thread from then on
// (`bind_here`), and is never taken out of it. So closures on the property, and its destructor, run on that one thread.
unsafe impl Send for Here {}

/// The property. Its core reaches the trustee in a box; the first closure moves it into place.
pub struct Service<T> {
    arriving: Option<Box<Core>>,
    here: Option<Here>,
    root: PhantomData<fn(T)>,
}

impl<T: Persist + 'static> Service<T> {
    /// Wraps a pool that was opened for a root of type `T`, or whose root `init` or `change_type` makes before anything
    /// else runs.
    pub(crate) fn new(core: Core) -> Self {
        Service { arriving: Some(Box::new(core)), here: None, root: PhantomData }
    }

    pub(crate) fn core(&mut self) -> &RefCell<Core> {
        let arriving = &mut self.arriving;
        let here = self.here.get_or_insert_with(|| {
            let Some(core) = arriving.take() else { unreachable!("a core arrives once") };
            let core = Rc::new(RefCell::new(*core));
            Core::register(&core);
            trust::link::bind_here();
            Here(core)
        });
        &here.0
    }

    /// Makes the root and requests the first files. Returns the text of the panic if that fails.
    pub(crate) fn init(&mut self, f: impl for<'p> FnOnce(&Tx<'p>) -> T::At<'p>) -> Outcome<()> {
        let mut core = self.core().borrow_mut();
        let made = core.memory.init::<T>(f);
        Self::made(&mut core, made, Core::create)
    }

    /// Makes the root from one of another type, with which the pool was opened, and requests its files. Returns the
    /// text of the panic if that fails; then the files stay as they are.
    pub(crate) fn change_type<Old: Persist + 'static>(
        &mut self,
        f: impl for<'p> FnOnce(Old::At<'p>, &Tx<'p>) -> T::At<'p>,
    ) -> Outcome<()> {
        let mut core = self.core().borrow_mut();
        // SAFETY: `new` was called for a pool with a root of type `Old`, and no call came before this one.
        let made = unsafe { core.memory.change_type::<Old, T>(f) };
        Self::made(&mut core, made, Core::change_type)
    }

    /// Requests the files of a root that was made just now; closes a pool that has none.
    fn made(core: &mut Core, made: Result<(), Panic>, request_files: fn(&mut Core)) -> Outcome<()> {
        match made {
            Ok(()) => {
                request_files(core);
                Outcome::Value(())
            }
            Err(panic) => {
                core.is_closed = true;
                Outcome::Panicked(core.keep_text(panic))
            }
        }
    }

    /// Runs a transaction that is committed with any result, also an error.
    #[inline]
    pub(crate) fn apply<U>(
        &mut self,
        client: u64,
        f: impl for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> U,
    ) -> Answer<U> {
        self.attempt(client, |root, tx| Ok::<U, Infallible>(f(root, tx))).flat()
    }

    /// Runs a transaction that is undone if it returns an error.
    #[inline]
    pub(crate) fn attempt<U, E>(
        &mut self,
        client: u64,
        f: impl for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> Result<U, E>,
    ) -> Answer<Result<U, E>> {
        let mut core = self.core().borrow_mut();
        let pool = core.number();
        if let Some((mark, outcome)) = core.refuses(client) {
            return Answer { pool, mark, outcome };
        }
        // SAFETY: `new` was called for a pool with a root of type `T`.
        let (outcome, is_undone) = match unsafe { core.memory.run::<T, U, E>(f) } {
            Ended::Done(value) => (Outcome::Value(Ok(value)), false),
            Ended::Refused(error) => (Outcome::Value(Err(error)), true),
            Ended::Panicked(panic) => (Outcome::Panicked(core.keep_text(panic)), true),
        };
        Answer { pool, mark: core.after(is_undone, client), outcome }
    }

    pub(crate) fn look<U>(&mut self, f: impl for<'a, 'p> FnOnce(&'a T::At<'p>) -> U) -> Answer<U> {
        let mut core = self.core().borrow_mut();
        let pool = core.number();
        if core.is_closed {
            return Answer { pool, mark: 0, outcome: Outcome::Closed };
        }
        // SAFETY: as above.
        let outcome = match unsafe { core.memory.look::<T, U>(f) } {
            Ok(value) => Outcome::Value(value),
            Err(panic) => Outcome::Panicked(core.keep_text(panic)),
        };
        Answer { pool, mark: 0, outcome }
    }

    pub(crate) fn sync(&mut self, client: u64) -> Answer<()> {
        let mut core = self.core().borrow_mut();
        let pool = core.number();
        match core.refuses(client) {
            Some((mark, outcome)) => Answer { pool, mark, outcome },
            None => Answer { pool, mark: core.sync(client), outcome: Outcome::Value(()) },
        }
    }

    /// Runs a transaction for a future of this process and leaves the outcome in the table. Returns whether the outcome
    /// waits for a group.
    pub(crate) fn run_for_future<V: Send + 'static>(
        &mut self,
        future: u64,
        run: impl FnOnce(&mut Self, u64) -> Answer<V>,
    ) -> bool {
        let Answer { pool, mark, outcome } = run(self, 0);
        let mut core = self.core().borrow_mut();
        let lost = core.lost.clone();
        let waits = mark > 0 && lost.is_none();
        if waits {
            core.note_future(mark, future);
        }
        drop(core);
        future::put(future, outcome.into_result::<T>(pool, lost.as_deref()));
        waits
    }

    pub(crate) fn close(&mut self, promise: Promise<Option<String>>) {
        self.core().borrow_mut().close_pool(promise);
    }

    pub(crate) fn created(&mut self, promise: Promise<Option<String>>) {
        self.core().borrow_mut().created(promise);
    }

    pub(crate) fn snapshot(&mut self, promise: Promise<bool>) {
        self.core().borrow_mut().snapshot(promise);
    }
}

impl<T> Drop for Service<T> {
    fn drop(&mut self) {
        if let Some(here) = &self.here {
            let number = here.0.borrow().number();
            Core::forget(number);
        }
    }
}
