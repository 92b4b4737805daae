//! `launch` and its kin: the calls on a latched property, whose closures run in fibers at the trustee and may wait there.
//!
//! Here: the client's side. Not here: the latch (`latch.rs`), what goes on at the trustee (`launch.rs`).

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::held::Held;
use crate::job::{Job, Plain, Serialised};
use crate::latch::Latch;
use crate::noref::NoRef;
use crate::reply::Reply;
use crate::request::Fault;
use crate::serial;
use crate::trust::Trust;
use crate::worker::{self, Worker};

impl<T: 'static> Trust<Latch<T>> {
    /// Applies `f` to the latched value in a fiber at the trustee: `f` may wait, and delegate in turn. No other
    /// launched closure has the value meanwhile, in the order in which they came.
    ///
    /// # Panics
    /// As [`apply`](Trust::apply).
    ///
    /// ```
    /// use trust::Latch;
    /// let pool = trust::Threadpool::new(2);
    /// let log = pool.entrust(Vec::new());
    /// let account = pool.entrust(Latch::new(10));
    /// let left = account.launch(move |balance| {
    ///     *balance -= 3;
    ///     let spent = *balance;
    ///     log.apply(move |log| log.push(spent));      // waits, here at the trustee
    ///     *balance
    /// });
    /// assert_eq!(left, 7);
    /// ```
    ///
    /// Source: thesis 2.4.3.
    pub fn launch<U, F>(&self, f: F) -> U
    where
        F: FnOnce(&mut T) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
    {
        self.hold_and_wait("launch", move |held| f(held))
    }

    /// As [`launch`](Self::launch); `f` is given the value by way of [`Held`], which lets it give the value up for a while
    /// ([`Held::released`]).
    ///
    /// # Panics
    /// As [`launch`](Self::launch).
    pub fn launch_held<U, F>(&self, f: F) -> U
    where
        F: FnOnce(&mut Held<'_, T>) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
    {
        self.hold_and_wait("launch_held", f)
    }

    /// As [`launch`](Self::launch), without waiting; `then` is called with the result as by
    /// [`apply_then`](Trust::apply_then).
    pub fn launch_then<U, F, H>(&self, f: F, then: H)
    where
        F: FnOnce(&mut T) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        H: FnOnce(U) + 'static,
    {
        let then = move |outcome| match outcome {
            Ok(value) => then(value),
            Err(fault) => Fault::report::<T>(fault, "launch_then"),
        };
        let job = Plain(move |held: &mut Held<'_, T>| f(held));
        worker::with(|worker| self.launch_on(worker, job, Box::new(then)));
    }

    /// As [`launch`](Self::launch), with argument and result serialised as in
    /// [`apply_with`](Trust::apply_with).
    ///
    /// # Panics
    /// As [`apply_with`](Trust::apply_with).
    pub fn launch_with<A, U, F>(&self, f: F, argument: A) -> U
    where
        F: FnOnce(&mut T, A) -> U + NoRef + Send + 'static,
        A: Serialize + DeserializeOwned + 'static,
        U: Serialize + DeserializeOwned + 'static,
    {
        self.hold_with_and_wait("launch_with", move |held: &mut Held<'_, T>, argument: A| f(held, argument), argument)
    }

    /// As [`launch_held`](Self::launch_held), with argument and result as in [`launch_with`](Self::launch_with).
    ///
    /// # Panics
    /// As [`launch_with`](Self::launch_with).
    pub fn launch_held_with<A, U, F>(&self, f: F, argument: A) -> U
    where
        F: FnOnce(&mut Held<'_, T>, A) -> U + NoRef + Send + 'static,
        A: Serialize + DeserializeOwned + 'static,
        U: Serialize + DeserializeOwned + 'static,
    {
        self.hold_with_and_wait("launch_held_with", f, argument)
    }

    fn hold_and_wait<U, F>(&self, call: &str, f: F) -> U
    where
        F: FnOnce(&mut Held<'_, T>) -> U + Send + 'static,
        U: Send + 'static,
    {
        self.launch_and_wait(call, Plain(f)).unwrap_or_else(|fault| fault.resume::<T>())
    }

    fn hold_with_and_wait<A, U, F>(&self, call: &str, f: F, argument: A) -> U
    where
        F: FnOnce(&mut Held<'_, T>, A) -> U + Send + 'static,
        A: Serialize + DeserializeOwned + 'static,
        U: Serialize + DeserializeOwned + 'static,
    {
        let outcome = serial::encode(&argument, serial::limit_bytes(self.parts().1)).and_then(|argument| {
            let job = Serialised { f, argument, types: PhantomData };
            self.launch_and_wait::<Serialised<A, U, F>>(call, job)?.and_then(serial::decode)
        });
        outcome.unwrap_or_else(|fault| fault.resume::<T>())
    }

    fn launch_and_wait<J: Job<T>>(&self, call: &str, job: J) -> Result<J::Output, Fault> {
        worker::with(|worker| {
            worker.assert_may_wait(call);
            let reply = Reply::new();
            self.launch_on(worker, job, Box::new(reply.answer()));
            reply.wait(worker)
        })
    }

    fn launch_on<J: Job<T>>(&self, worker: &Worker, job: J, then: Box<dyn FnOnce(Result<J::Output, Fault>)>) {
        let (property, trustee) = self.parts();
        crate::launch::launch(worker, trustee, property, job, then);
    }
}
