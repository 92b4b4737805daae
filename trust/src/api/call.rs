//! `Trust::call`: a call of parts, which gives its errors: an argument or none, a closure, a limit of time or none, and
//! one of three ways to the result.
//!
//! Each part is a type, so the compiler knows the whole and nothing is left of the parts. Not here: how a closure is
//! sent (`delegated.rs`).

use std::future::IntoFuture;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::close::Close;
use crate::api::delegated::{Closure, ClosureWith, Delegated, Launched, LaunchedWith};
use crate::api::future::CallFuture;
use crate::api::trust::Trust;
use crate::error::Error;
use crate::fault::Fault;
use crate::noref::NoRef;
use crate::request::{ANYWHERE, IN_PROCESS};
use crate::tasks::held::Held;
use crate::tasks::latch::Latch;

/// Call that has no closure yet, from [`Trust::call`]; with an argument after [`with`](Call::with), for any value of
/// this process after [`in_process`](Call::in_process).
///
/// The closure is the last argument of [`apply`](Self::apply), [`launch`](Call::launch) or
/// [`launch_held`](Call::launch_held).
#[must_use = "a call without a closure does nothing"]
#[derive(Debug)]
pub struct Call<'t, T, A = ()> {
    trust: &'t Trust<T>,
    argument: A,
}

/// Argument of a [`Call`], which travels serialised.
#[derive(Debug)]
pub struct With<A>(A);

/// Values of a [`Call`] that stay in the process: from [`in_process`](Call::in_process).
#[derive(Debug)]
pub struct InProcess(());

/// Call that can be sent: by [`wait`](ReadyCall::wait), by [`then`](ReadyCall::then), or by `.await`.
///
/// # Async programs
///
/// `.await` is for async programs: as [`apply_async`](Trust::apply_async), with errors. `into_future` of
/// [`IntoFuture`] sends the call at once and returns a [`CallFuture`] to be awaited later, anywhere; this value itself
/// borrows the trust and has sent nothing. Within the process, and for an [`apply`](Call::apply), an argument and its
/// result pass unserialised.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// let pool = trust::Threadpool::new(1);
/// let names = pool.entrust(Vec::new());
/// # runtime.block_on(async {
/// let first = names.call().with("Ada".to_owned()).apply(|names, name| names.push(name)).into_future();
/// let count = names.call().apply(|names| names.len()).await;
/// assert_eq!((first.await, count), (Ok(()), Ok(1)));
/// # });
/// ```
#[must_use = "a call is sent by `wait`, `then` or `await`"]
#[derive(Debug)]
pub struct ReadyCall<'t, P, C> {
    trust: &'t Trust<P>,
    closure: C,
}

/// Call whose caller [waits](TimedCall::wait) for a limited time, from [`timeout`](ReadyCall::timeout).
#[must_use = "a call is sent by `wait`"]
#[derive(Debug)]
pub struct TimedCall<'t, P, C> {
    call: ReadyCall<'t, P, C>,
    time: Duration,
}

impl<T: 'static> Trust<T> {
    /// Begins a call that gives its errors: every combination of an argument or none, the kind of closure, a time limit
    /// or none, and the way to the result.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), trust::Error> {
    /// let pool = trust::Threadpool::new(1);
    /// let names = pool.entrust(vec!["Ada".to_owned()]);
    /// let find = |names: &mut Vec<String>, name: String| names.iter().position(|n| *n == name).expect("unknown");
    ///
    /// assert_eq!(names.call().apply(|names| names.len()).wait()?, 1);
    /// assert_eq!(names.call().with("Ada".to_owned()).apply(find).timeout(Duration::from_secs(60)).wait()?, 0);
    /// names.call().with("Bob".to_owned()).apply(find).then(|result| assert!(result.is_err()));
    /// trust::wait_all();
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn call(&self) -> Call<'_, T> {
        Call { trust: self, argument: () }
    }
}

impl<'t, T: 'static> Call<'t, T> {
    /// Gives the call an argument, the closure's second parameter. Argument and result travel serialised: see
    /// [`apply_with`](Trust::apply_with).
    ///
    /// ```
    /// let names = trust::local_trustee().entrust(Vec::new());
    /// let count = names.call().with("Ada".to_owned()).apply(|names, name: String| { names.push(name); names.len() });
    /// assert_eq!(count.wait(), Ok(1));
    /// ```
    #[inline]
    pub fn with<A>(self, argument: A) -> Call<'t, T, With<A>>
    where
        A: Serialize + DeserializeOwned + 'static,
    {
        Call { trust: self.trust, argument: With(argument) }
    }

    /// Lets the closure capture and return any `Send` value of this process: a `String`, a `Vec`, a `Box<dyn
    /// FnOnce()>`, an `Arc`. They move to the trustee and back as they are, unserialised, at the price of a plain
    /// call. A property on another machine of a rack is refused: [`Error::Apart`].
    ///
    /// For generic code within a process: its bounds are `Send + 'static`, whichever compiler and settings the final
    /// program has ([`NoRef`] depends on them).
    ///
    /// ```
    /// # use std::collections::HashMap;
    /// let pool = trust::Threadpool::new(1);
    /// let ages = pool.entrust(HashMap::new());
    /// let (name, age) = ("Ada".to_owned(), 36);
    /// ages.call().in_process().apply(move |ages| ages.insert(name, age)).wait()?;
    /// let names = ages.call().in_process().apply(|ages| ages.keys().cloned().collect::<Vec<_>>());
    /// assert_eq!(names.wait()?, ["Ada"]);
    /// # Ok::<(), trust::Error>(())
    /// ```
    #[inline]
    pub fn in_process(self) -> Call<'t, T, InProcess> {
        Call { trust: self.trust, argument: InProcess(()) }
    }

    /// Gives the call a closure that the trustee runs, as [`Trust::apply`] does.
    ///
    /// ```
    /// let number = trust::local_trustee().entrust(0u32);
    /// assert!(matches!(number.call().apply(|n| 10 / *n).wait(), Err(trust::Error::Panicked { .. })));
    /// assert!(matches!(number.call().apply(|n| *n).wait(), Err(trust::Error::Poisoned { .. })));
    /// number.clear_poison();
    /// assert_eq!(number.call().apply(|n| *n).wait(), Ok(0));
    /// ```
    #[inline]
    pub fn apply<U, F>(self, f: F) -> ReadyCall<'t, T, impl Delegated<T, Output = U, Value = T> + use<T, U, F>>
    where
        F: FnOnce(&mut T) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
    {
        ReadyCall { trust: self.trust, closure: Closure::<_, ANYWHERE>(f) }
    }

    /// Makes it the call that ends the property, as [`Trust::close`] does.
    ///
    /// ```
    /// let number = trust::local_trustee().entrust(7);
    /// number.apply_then(|_| (), |()| ());
    /// number.call().close().then(|outcome| assert_eq!(outcome, Ok(())));
    /// assert!(number.call().apply(|n| *n).wait().is_err());
    /// ```
    #[inline]
    pub fn close(self) -> ReadyCall<'t, T, impl Delegated<T, Output = (), Value = T> + use<T>> {
        ReadyCall { trust: self.trust, closure: Close }
    }
}

impl<'t, T: 'static, A: Serialize + DeserializeOwned + 'static> Call<'t, T, With<A>> {
    /// Gives the call a closure that the trustee runs with the argument, as [`Trust::apply_with`] does.
    #[inline]
    pub fn apply<U, F>(self, f: F) -> ReadyCall<'t, T, impl Delegated<T, Output = U, Value = T> + use<T, A, U, F>>
    where
        F: FnOnce(&mut T, A) -> U + NoRef + Send + 'static,
        U: Serialize + DeserializeOwned + 'static,
    {
        ReadyCall { trust: self.trust, closure: ClosureWith::new(f, self.argument.0) }
    }
}

impl<'t, T: 'static> Call<'t, T, InProcess> {
    /// Gives the call a closure that the trustee runs, as [`Trust::apply`] does.
    #[inline]
    pub fn apply<U, F>(self, f: F) -> ReadyCall<'t, T, impl Delegated<T, Output = U, Value = T> + use<T, U, F>>
    where
        F: FnOnce(&mut T) -> U + Send + 'static,
        U: Send + 'static,
    {
        ReadyCall { trust: self.trust, closure: Closure::<_, IN_PROCESS>(f) }
    }
}

impl<'t, T: 'static> Call<'t, Latch<T>> {
    /// Gives the call a closure that runs in a fiber at the trustee and may wait, as [`Trust::launch`] does.
    ///
    /// ```
    /// let pool = trust::Threadpool::new(1);
    /// let number = pool.entrust(trust::Latch::new(6));
    /// assert_eq!(number.call().launch(|n| { trust::yield_now(); *n * 7 }).wait(), Ok(42));
    /// ```
    #[inline]
    pub fn launch<U, F>(
        self,
        f: F,
    ) -> ReadyCall<'t, Latch<T>, impl Delegated<Latch<T>, Output = U, Value = T> + use<T, U, F>>
    where
        F: FnOnce(&mut T) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
    {
        ReadyCall { trust: self.trust, closure: Launched::<_, ANYWHERE>(move |held: &mut Held<'_, T>| f(held)) }
    }

    /// Same as [`launch`](Self::launch), but `f` receives the value as a [`Held`], which can give it up for a while
    /// ([`Held::released`]).
    ///
    /// ```
    /// use trust::{Latch, Threadpool};
    /// let pool = Threadpool::new(1);
    /// let stock = pool.entrust(Latch::new(0));
    /// let seller = stock.clone();
    /// let sold = pool.spawn(move || seller.call().launch_held(|stock| {
    ///     while **stock < 3 {
    ///         stock.released(trust::yield_now); // others may fill it up meanwhile
    ///     }
    ///     std::mem::take(&mut **stock)
    /// }).wait());
    /// stock.launch(|stock| *stock += 5);
    /// assert_eq!(sold.join().unwrap(), Ok(5));
    /// ```
    #[inline]
    pub fn launch_held<U, F>(
        self,
        f: F,
    ) -> ReadyCall<'t, Latch<T>, impl Delegated<Latch<T>, Output = U, Value = T> + use<T, U, F>>
    where
        F: FnOnce(&mut Held<'_, T>) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
    {
        ReadyCall { trust: self.trust, closure: Launched::<_, ANYWHERE>(f) }
    }
}

impl<'t, T: 'static, A: Serialize + DeserializeOwned + 'static> Call<'t, Latch<T>, With<A>> {
    /// Same as [`launch`](Call::launch) of a call without an argument; the closure gets it as its second parameter.
    ///
    /// ```
    /// let pool = trust::Threadpool::new(1);
    /// let names = pool.entrust(trust::Latch::new(vec!["Ada".to_owned()]));
    /// let add = |names: &mut Vec<String>, name: String| { trust::yield_now(); names.push(name); names.join(" ") };
    /// assert_eq!(names.call().with("Byron".to_owned()).launch(add).wait().as_deref(), Ok("Ada Byron"));
    /// ```
    #[inline]
    pub fn launch<U, F>(
        self,
        f: F,
    ) -> ReadyCall<'t, Latch<T>, impl Delegated<Latch<T>, Output = U, Value = T> + use<T, A, U, F>>
    where
        F: FnOnce(&mut T, A) -> U + NoRef + Send + 'static,
        U: Serialize + DeserializeOwned + 'static,
    {
        let on_value = move |held: &mut Held<'_, T>, argument: A| f(held, argument);
        ReadyCall { trust: self.trust, closure: LaunchedWith::new(on_value, self.argument.0) }
    }

    /// Same as [`launch_held`](Call::launch_held) of a call without an argument; the closure gets it as its second
    /// parameter.
    #[inline]
    pub fn launch_held<U, F>(
        self,
        f: F,
    ) -> ReadyCall<'t, Latch<T>, impl Delegated<Latch<T>, Output = U, Value = T> + use<T, A, U, F>>
    where
        F: FnOnce(&mut Held<'_, T>, A) -> U + NoRef + Send + 'static,
        U: Serialize + DeserializeOwned + 'static,
    {
        ReadyCall { trust: self.trust, closure: LaunchedWith::new(f, self.argument.0) }
    }
}

impl<'t, T: 'static> Call<'t, Latch<T>, InProcess> {
    /// Same as [`launch`](Call::launch) of a call between machines.
    ///
    /// ```
    /// let pool = trust::Threadpool::new(1);
    /// let names = pool.entrust(trust::Latch::new(vec!["Ada".to_owned()]));
    /// let name = "Byron".to_owned();
    /// let add = move |names: &mut Vec<String>| { trust::yield_now(); names.push(name); names.join(" ") };
    /// assert_eq!(names.call().in_process().launch(add).wait().as_deref(), Ok("Ada Byron"));
    /// ```
    #[inline]
    pub fn launch<U, F>(
        self,
        f: F,
    ) -> ReadyCall<'t, Latch<T>, impl Delegated<Latch<T>, Output = U, Value = T> + use<T, U, F>>
    where
        F: FnOnce(&mut T) -> U + Send + 'static,
        U: Send + 'static,
    {
        let on_value = move |held: &mut Held<'_, T>| f(held);
        ReadyCall { trust: self.trust, closure: Launched::<_, IN_PROCESS>(on_value) }
    }

    /// Same as [`launch_held`](Call::launch_held) of a call between machines.
    #[inline]
    pub fn launch_held<U, F>(
        self,
        f: F,
    ) -> ReadyCall<'t, Latch<T>, impl Delegated<Latch<T>, Output = U, Value = T> + use<T, U, F>>
    where
        F: FnOnce(&mut Held<'_, T>) -> U + Send + 'static,
        U: Send + 'static,
    {
        ReadyCall { trust: self.trust, closure: Launched::<_, IN_PROCESS>(f) }
    }
}

impl<'t, P: 'static, C: Delegated<P>> ReadyCall<'t, P, C> {
    /// Limits the time that the caller waits. A sent closure cannot be taken back: after [`Error::TimedOut`] it may run
    /// later, may be running, or has run with its result on the way here, which is then dropped. So a limit fits
    /// closures where that does no harm, or is detected later: reads, and closures that can be sent twice. A launched
    /// fiber runs to its end, and has the value until then. A call that timed out uses memory until it is answered.
    ///
    /// `time` also bounds the wait for a place in the queue to the trustee. It does not bound an [`apply`](Call::apply)
    /// whose trustee is this thread, which runs it at once. [`JoinHandle::abort`](crate::JoinHandle::abort) ends the
    /// wait as well. Futures have the limits of their runtime.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use std::time::Duration;
    /// static IS_OVER: AtomicBool = AtomicBool::new(false);
    /// let pool = trust::Threadpool::new(1);
    /// let number = pool.entrust(7);
    /// assert_eq!(number.call().apply(|n| *n).timeout(Duration::from_secs(60)).wait(), Ok(7));
    /// let slow = |_: &mut i32| while !IS_OVER.load(Ordering::Relaxed) { std::thread::yield_now() };
    /// let late = number.call().apply(slow).timeout(Duration::from_millis(1)).wait();
    /// assert!(matches!(late, Err(trust::Error::TimedOut { .. })));
    /// IS_OVER.store(true, Ordering::Relaxed);
    /// ```
    #[inline]
    pub fn timeout(self, time: Duration) -> TimedCall<'t, P, C> {
        TimedCall { call: self, time }
    }

    /// Sends the call and waits for its result. Other fibers run meanwhile; on a thread's own stack the thread serves
    /// its trustee and runs its fibers meanwhile.
    ///
    /// # Errors
    /// [`Error::Panicked`], [`Error::Poisoned`], [`Error::Gone`]; for a [`close`](Call::close) those of
    /// [`Trust::close`]; launched closures also give [`Error::Refused`] if the
    /// trustee has no memory for another fiber, and [`Error::Deadlock`]; those with an argument [`Error::Codec`] and
    /// [`Error::TooLarge`]; those within the process [`Error::Apart`].
    ///
    /// # Panics
    /// Inside a delegated closure or a callback, where nothing may wait.
    #[inline]
    #[track_caller]
    pub fn wait(self) -> Result<C::Output, Error> {
        self.closure.wait(self.trust, C::NAME, |outcome, _| outcome.map_err(|fault| fault.into_error::<C::Value>()))
    }

    /// Sends the call and continues at once; `then` is called with the result or the error, as the callback of
    /// [`Trust::apply_then`] is. Legal everywhere, also inside delegated closures and callbacks.
    ///
    /// ```
    /// # use std::{cell::Cell, rc::Rc};
    /// let pool = trust::Threadpool::new(1);
    /// let number = pool.entrust(0u32);
    /// let failed = Rc::new(Cell::new(false));
    /// let told = Rc::clone(&failed);
    /// number.call().apply(|n| 10 / *n).then(move |result| told.set(result.is_err()));
    /// trust::wait_all();
    /// assert!(failed.get());
    /// ```
    #[inline]
    pub fn then<H>(self, then: H)
    where
        H: FnOnce(Result<C::Output, Error>) + 'static,
    {
        self.closure.then(self.trust, move |outcome| then(outcome.map_err(Fault::into_error::<C::Value>)));
    }
}

impl<P: 'static, C: Delegated<P>> TimedCall<'_, P, C> {
    /// Sends the call and waits for its result, at most for the time given.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and those of [`ReadyCall::wait`].
    ///
    /// # Panics
    /// Inside a delegated closure or a callback, where nothing may wait.
    #[inline]
    #[track_caller]
    pub fn wait(self) -> Result<C::Output, Error> {
        let ReadyCall { trust, closure } = self.call;
        match closure.wait_up_to(trust, C::NAME, self.time) {
            Some(outcome) => outcome.map_err(Fault::into_error::<C::Value>),
            None => Err(Error::TimedOut { property: std::any::type_name::<C::Value>() }),
        }
    }
}

impl<P: 'static, C> IntoFuture for ReadyCall<'_, P, C>
where
    C: Delegated<P, Output: Send> + Send + 'static,
{
    type Output = Result<C::Output, Error>;
    type IntoFuture = CallFuture<C::Output>;

    /// Sends the call, and returns the future of its result.
    fn into_future(self) -> CallFuture<C::Output> {
        CallFuture::new(self.trust, self.closure, (), |fault, ()| fault.into_error::<C::Value>())
    }
}
