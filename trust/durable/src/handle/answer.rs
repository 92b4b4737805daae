//! From a call to the caller's result: one function for each way of waiting, for any operation at the pool.

use serde::Serialize;
use serde::de::DeserializeOwned;
use trust::{NoRef, Trust, promise};

use super::Durable;
use crate::error::{Error, Result};
use crate::persist::Persist;
use crate::property::{Answer, Outcome, Service, panicked};
use crate::service::client::{self, Call};
use crate::service::core::NEVER;
use crate::service::future::DurableFuture;
use crate::service::told;

/// Result of `trust` for a request.
type Answered<V> = std::result::Result<Answer<V>, trust::Error>;

impl<T: Persist + 'static> Durable<T> {
    /// Runs `run` at the pool, with this thread's client number, and waits for its result.
    #[inline]
    pub(super) fn wait<V, R>(&self, run: R) -> Result<V>
    where
        R: FnOnce(&mut Service<T>, u64) -> Answer<V> + NoRef + Send + 'static,
        V: NoRef + Send + 'static,
    {
        let call = self.begin();
        let client = call.client();
        let answer = self.trust.try_apply(move |service| run(service, client));
        self.finish(call, answer)
    }

    /// As `wait`, with an argument and a result that are serialised.
    ///
    /// # Panics
    /// Those of `Trust::apply_with`, and if there is no answer.
    pub(super) fn wait_with<A, V, R>(&self, run: R, argument: A) -> V
    where
        R: FnOnce(&mut Service<T>, u64, A) -> Answer<V> + NoRef + Send + 'static,
        A: Serialize + DeserializeOwned + 'static,
        V: Serialize + DeserializeOwned + 'static,
    {
        let call = self.begin();
        let client = call.client();
        let answer = self.trust.apply_with(move |service, argument: A| run(service, client, argument), argument);
        self.finish(call, Ok(answer)).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs `run` at the pool, and calls `then` with its result.
    #[inline]
    pub(super) fn post<V, R, H>(&self, run: R, then: H)
    where
        R: FnOnce(&mut Service<T>, u64) -> Answer<V> + NoRef + Send + 'static,
        V: NoRef + Send + 'static,
        H: FnOnce(Result<V>) + 'static,
    {
        let call = self.begin_posted();
        let (client, number) = (call.client(), self.number);
        self.trust.try_apply_then(
            move |service| run(service, client),
            move |answer| hold::<T, _>(call, number, answer, then),
        );
    }

    /// As `post`, with an argument and a result that are serialised.
    pub(super) fn post_with<A, V, R, H>(&self, run: R, argument: A, then: H)
    where
        R: FnOnce(&mut Service<T>, u64, A) -> Answer<V> + NoRef + Send + 'static,
        A: Serialize + DeserializeOwned + 'static,
        V: Serialize + DeserializeOwned + 'static,
        H: FnOnce(Result<V>) + 'static,
    {
        let call = self.begin_posted();
        let (client, number) = (call.client(), self.number);
        self.trust.apply_with_then(
            move |service, argument: A| run(service, client, argument),
            argument,
            move |answer: Answer<V>| hold::<T, _>(call, number, Ok(answer), then),
        );
    }

    /// Runs `run` at the pool and returns a future of its result.
    pub(super) fn future<V, R>(&self, run: R) -> DurableFuture<V>
    where
        R: FnOnce(&mut Service<T>, u64) -> Answer<V> + NoRef + Send + 'static,
        V: NoRef + Send + 'static,
    {
        DurableFuture::new(self.trust.clone(), |carried| {
            self.trust.try_apply_async(move |service| {
                if service.run_for_future(carried.0, run) {
                    std::mem::forget(carried);
                }
            })
        })
    }

    /// Begins a call that [`finish`](Self::finish) ends.
    fn begin(&self) -> Call {
        Call::begin(self.number, |client, ear| {
            self.trust.apply_then(move |service| told::introduce(service.core(), client, ear), |()| ());
        })
    }

    /// Begins a call whose answer is [held](hold): waits for space in the queue, if it may wait, and keeps the pool
    /// alive.
    fn begin_posted(&self) -> Call {
        let call = self.begin();
        if call.is_full() && trust::may_wait() {
            let _ = call.room().wait();
        }
        call.keep(|| self.trust.clone());
        call
    }

    /// Waits for the answer's group and returns the outcome.
    fn finish<V>(&self, call: Call, answer: Answered<V>) -> Result<V> {
        let Answer { pool, mark, outcome } = answer.map_err(|error| call_error(self.number, error))?;
        is_of(pool, self.number)?;
        if mark > 0 {
            call.wait(mark)?;
        }
        match outcome {
            Outcome::Panicked(ticket) => Err(panicked::<T>(text(&self.trust, ticket))),
            known => known.known::<T>(pool, None),
        }
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
    let told = match answer {
        Err(trust::Error::Gone { .. }) => {
            // To keep the order of calls it goes behind the results that are held, which get the same error.
            call.hold(NEVER, move |_| then(Err(Error::Gone)));
            return client::is_gone(number);
        }
        other => other.map_err(|error| call_error(number, error)),
    };
    match told.and_then(|answer| is_of(answer.pool, number).map(|()| answer)) {
        Ok(Answer { pool, mark, outcome }) => call.hold(mark, move |verdict| {
            then(verdict.map_err(Error::from).and_then(|()| outcome.known::<T>(pool, None)));
        }),
        Err(error) => call.hold(0, move |_| then(Err(error))),
    }
}

/// Checks that the answer comes from this handle's pool. Group numbers of one pool mean nothing in another, so a handle
/// whose number was changed on its way gets an error.
fn is_of(pool: u64, number: u64) -> Result<()> {
    if pool == number {
        return Ok(());
    }
    Err(Error::Call { cause: "the handle was changed on its way: it has the number of another pool".into() })
}

/// Fetches the text of a panic by its ticket.
fn text<T: Persist + 'static>(trust: &Trust<Service<T>>, ticket: u64) -> Option<String> {
    let (keeps, text) = promise::<Option<String>>();
    trust.try_apply(move |service| keeps.keep_with(service.core().borrow().take_text(ticket))).ok()?;
    text.wait().ok().flatten()
}

/// Returns the error for a request that did not run.
pub(super) fn call_error(number: u64, error: trust::Error) -> Error {
    match error {
        trust::Error::Gone { .. } => {
            client::is_gone(number);
            Error::Gone
        }
        other => Error::Call { cause: other.to_string() },
    }
}
