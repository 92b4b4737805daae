//! From a call to the caller's result: one function for each way of waiting, for any operation at the pool. The
//! builder: `call.rs`.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use trust::link::promise_at;
use trust::{NoRef, Trust};

use super::Durable;
use crate::error::{Error, Result};
use crate::persist::Persist;
use crate::property::{Answer, Outcome, Service, panicked};
use crate::service::client::{self, Call};
use crate::service::core::NEVER;
use crate::service::future::DurableFuture;
use crate::service::notifications;

/// Result of `trust` for a request.
type Answered<V> = std::result::Result<Answer<V>, trust::Error>;

/// Request to the pool: a closure on its property that gets the number of this thread as a client. Public only because
/// types of the public builder name it.
#[allow(private_bounds, private_interfaces)] // No other crate can name the trait.
pub trait Request<T: Persist + 'static>: Sized {
    /// Result of the transaction.
    type Output: 'static;

    /// Sends the request and waits for its result.
    #[track_caller]
    fn wait(self, durable: &Durable<T>) -> Result<Self::Output>;

    /// Sends the request and waits for its result, at most for `time`.
    #[track_caller]
    fn wait_up_to(self, durable: &Durable<T>, time: Duration) -> Result<Self::Output>;

    /// Sends the request; `then` is called with its result.
    fn post(self, durable: &Durable<T>, then: impl FnOnce(Result<Self::Output>) + 'static);
}

/// [`Request`] whose result an async program may await.
pub trait AsyncRequest<T: Persist + 'static>: Request<T, Output: Send> {
    /// Sends the request and returns a future of its result.
    fn future(self, durable: &Durable<T>) -> DurableFuture<Self::Output>;
}

/// Request without an argument.
#[derive(Debug)]
pub struct Plain<R>(pub(super) R);

/// Request with an argument and a result that are serialised.
#[derive(Debug)]
pub struct Serialised<A, R> {
    pub(super) run: R,
    pub(super) argument: A,
}

impl<T, V, R> Request<T> for Plain<R>
where
    T: Persist + 'static,
    R: FnOnce(&mut Service<T>, u64) -> Answer<V> + NoRef + Send + 'static,
    V: NoRef + Send + 'static,
{
    type Output = V;

    #[inline]
    fn wait(self, durable: &Durable<T>) -> Result<V> {
        let call = durable.begin();
        let client = call.client();
        let answer = durable.trust.call().apply(move |service| (self.0)(service, client)).wait();
        durable.finish(call, answer, None)
    }

    fn wait_up_to(self, durable: &Durable<T>, time: Duration) -> Result<V> {
        let end = Instant::now().checked_add(time);
        let call = durable.begin();
        let client = call.client();
        let answer = durable.trust.call().apply(move |service| (self.0)(service, client)).timeout(time).wait();
        durable.finish(call, answer, end)
    }

    #[inline]
    fn post(self, durable: &Durable<T>, then: impl FnOnce(Result<V>) + 'static) {
        let call = durable.begin_posted();
        let (client, number) = (call.client(), durable.number);
        let sent = durable.trust.call().apply(move |service| (self.0)(service, client));
        sent.then(move |answer| hold::<T, _>(call, number, answer, then));
    }
}

impl<T, V, R> AsyncRequest<T> for Plain<R>
where
    T: Persist + 'static,
    R: FnOnce(&mut Service<T>, u64) -> Answer<V> + NoRef + Send + 'static,
    V: NoRef + Send + 'static,
{
    fn future(self, durable: &Durable<T>) -> DurableFuture<V> {
        DurableFuture::new(durable.trust.clone(), |carried| {
            let run = move |service: &mut Service<T>| {
                if service.run_for_future(carried.0, self.0) {
                    std::mem::forget(carried);
                }
            };
            durable.trust.call().apply(run).into_future()
        })
    }
}

impl<T, A, V, R> Request<T> for Serialised<A, R>
where
    T: Persist + 'static,
    R: FnOnce(&mut Service<T>, u64, A) -> Answer<V> + NoRef + Send + 'static,
    A: Serialize + DeserializeOwned + 'static,
    V: Serialize + DeserializeOwned + 'static,
{
    type Output = V;

    fn wait(self, durable: &Durable<T>) -> Result<V> {
        let Serialised { run, argument } = self;
        let call = durable.begin();
        let client = call.client();
        let sent = durable.trust.call().with(argument);
        let answer = sent.apply(move |service, argument| run(service, client, argument)).wait();
        durable.finish(call, answer, None)
    }

    fn wait_up_to(self, durable: &Durable<T>, time: Duration) -> Result<V> {
        let Serialised { run, argument } = self;
        let end = Instant::now().checked_add(time);
        let call = durable.begin();
        let client = call.client();
        let sent = durable.trust.call().with(argument);
        let answer = sent.apply(move |service, argument| run(service, client, argument)).timeout(time).wait();
        durable.finish(call, answer, end)
    }

    fn post(self, durable: &Durable<T>, then: impl FnOnce(Result<V>) + 'static) {
        let Serialised { run, argument } = self;
        let call = durable.begin_posted();
        let (client, number) = (call.client(), durable.number);
        let sent = durable.trust.call().with(argument);
        let sent = sent.apply(move |service, argument| run(service, client, argument));
        sent.then(move |answer| hold::<T, _>(call, number, answer, then));
    }
}

impl<T, A, V, R> AsyncRequest<T> for Serialised<A, R>
where
    T: Persist + 'static,
    R: FnOnce(&mut Service<T>, u64, A) -> Answer<V> + NoRef + Send + 'static,
    A: Serialize + DeserializeOwned + Send + 'static,
    V: Serialize + DeserializeOwned + Send + 'static,
{
    fn future(self, durable: &Durable<T>) -> DurableFuture<V> {
        let Serialised { run, argument } = self;
        DurableFuture::new(durable.trust.clone(), |carried| {
            let run = move |service: &mut Service<T>, argument: A| {
                let run = |service: &mut Service<T>, client| run(service, client, argument);
                if service.run_for_future(carried.0, run) {
                    std::mem::forget(carried);
                }
            };
            durable.trust.call().with(argument).apply(run).into_future()
        })
    }
}

impl<T: Persist + 'static> Durable<T> {
    /// Begins a call that [`finish`](Self::finish) ends.
    fn begin(&self) -> Call {
        Call::begin(self.number, self.trust.trustee().id(), |client, subscriber| {
            let introduce =
                move |service: &mut Service<T>| notifications::introduce(service.core(), client, subscriber);
            // If the trustee is gone the call itself gives the error.
            self.trust.call().apply(introduce).then(drop);
        })
    }

    /// Begins a call whose answer is [held](hold): waits for space in the queue, if it may wait, and keeps the pool
    /// alive.
    #[track_caller]
    fn begin_posted(&self) -> Call {
        let call = self.begin();
        if call.is_full() && trust::may_wait() {
            let _ = call.room().wait();
        }
        call.keep(|| self.trust.clone());
        call
    }

    /// Waits for the answer's group, at most until `end`, and returns the outcome.
    #[track_caller]
    fn finish<V>(&self, call: Call, answer: Answered<V>, end: Option<Instant>) -> Result<V> {
        let Answer { pool, mark, outcome } = answer.map_err(|error| call_error(self.number, error))?;
        check_pool(pool, self.number)?;
        if mark > 0 {
            call.wait(mark, end).ok_or(Error::TimedOut)??;
        }
        match outcome {
            Outcome::Panicked(text_id) => Err(panicked::<T>(text(&self.trust, text_id, end))),
            known => known.into_result::<T>(pool, None),
        }
    }
}

/// Returns the value of a call that cannot return an error.
///
/// # Panics
/// With the text of the error, at the caller's line.
#[track_caller]
pub(super) fn value_or_panic<V>(outcome: Result<V>) -> V {
    match outcome {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

/// Wraps `then` to be called with a value only; an error is written to standard error.
pub(super) fn or_tell<V>(name: &'static str, then: impl FnOnce(V) + 'static) -> impl FnOnce(Result<V>) + 'static {
    move |outcome| match outcome {
        Ok(value) => then(value),
        Err(error) => eprintln!("trust-durable: `{name}` has no result: {error}"),
    }
}

/// Calls `then` with the outcome when its group is durable.
fn hold<T: 'static, V: 'static>(call: Call, number: u64, answer: Answered<V>, then: impl FnOnce(Result<V>) + 'static) {
    let answer = match answer {
        Err(trust::Error::Gone { .. } | trust::Error::Lost { .. }) => {
            // To keep the order of calls it goes behind the results that are held, which get the same error.
            call.hold(NEVER, move |_| then(Err(Error::Gone)));
            return client::mark_gone(number);
        }
        other => other.map_err(|error| call_error(number, error)),
    };
    match answer.and_then(|answer| check_pool(answer.pool, number).map(|()| answer)) {
        Ok(Answer { pool, mark, outcome }) => call.hold(mark, move |verdict| {
            then(verdict.map_err(Error::from).and_then(|()| outcome.into_result::<T>(pool, None)));
        }),
        Err(error) => call.hold(0, move |_| then(Err(error))),
    }
}

/// Checks that the answer comes from this handle's pool. Group numbers of one pool mean nothing in another, so a handle
/// whose number was changed on its way gets an error.
fn check_pool(pool: u64, number: u64) -> Result<()> {
    if pool == number {
        return Ok(());
    }
    Err(Error::Call { cause: "the handle was changed on its way: it has the number of another pool".into() })
}

/// Fetches the text of a panic by its id; none if it does not come before `end`.
#[track_caller]
fn text<T: Persist + 'static>(trust: &Trust<Service<T>>, text_id: u64, end: Option<Instant>) -> Option<String> {
    let (keeps, text) = promise_at::<Option<String>>(trust.trustee().id());
    let asked = trust.call().apply(move |service| keeps.keep_with(service.core().borrow().take_text(text_id)));
    let Some(end) = end else {
        asked.wait().ok()?;
        return text.wait().ok().flatten();
    };
    asked.timeout(client::left(end)).wait().ok()?;
    text.wait_timeout(client::left(end))?.ok().flatten()
}

/// Returns the error for a request that did not run.
pub(super) fn call_error(number: u64, error: trust::Error) -> Error {
    match error {
        trust::Error::Gone { .. } | trust::Error::Lost { .. } => {
            client::mark_gone(number);
            Error::Gone
        }
        trust::Error::TimedOut { .. } => Error::TimedOut,
        other => Error::Call { cause: other.to_string() },
    }
}
