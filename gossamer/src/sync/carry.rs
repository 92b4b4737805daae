//! Transport of a channel's values, serialised or as raw memory, and the results of sending and receiving.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use trust::{Error, NoRef, Promise, Trust};

use super::loss::Verdict;

/// Result of sending a value.
#[derive(Serialize, Deserialize)]
pub enum Sent<T> {
    Done,
    /// The promise will bring the result: nothing, or the value again if it was refused after all.
    Waits,
    Full(T),
    /// There is no receiver any more.
    Refused(T),
    /// The channel has not been told of all losses yet that the sender knows.
    Behind(T),
    /// It would wait, and this machine is lost.
    Lost(u16, T),
}

/// Result of receiving.
#[derive(Serialize, Deserialize)]
pub enum Answer<T> {
    Value(T),
    /// The promise will bring it, or nothing if the last sender goes.
    Waits,
    Empty,
    /// There is no value, and no sender any more.
    Closed,
    /// There is no value, and the channel has not been told of all losses yet that the receiver knows.
    Behind,
    /// There is no value, and this machine is lost.
    Lost(u16),
}

/// Values travel serialised (serde): strings, vectors, maps, and all other serde types. A channel's default.
#[derive(Debug)]
pub enum Serialised {}

/// Values travel as raw memory: numbers, arrays, plain structs, trusts, promises ([`NoRef`]).
#[derive(Debug)]
pub enum Plain {}

/// Transport of values of type `T`: [`Serialised`] or [`Plain`].
pub trait Carry<T>: Sealed<T> {}

impl<T, C: Sealed<T>> Carry<T> for C {}

/// Operations that a channel needs. Each of these is one request.
pub trait Sealed<T>: 'static {
    fn put<P, F>(to: &Trust<P>, value: T, f: F) -> Result<Sent<T>, Error>
    where
        P: 'static,
        F: FnOnce(&mut P, T) -> Sent<T> + NoRef + Send + 'static;
    /// Posts a value without waiting.
    fn post<P, F>(to: &Trust<P>, value: T, f: F)
    where
        P: 'static,
        F: FnOnce(&mut P, T) + NoRef + Send + 'static;
    fn get<P, F>(from: &Trust<P>, f: F) -> Result<Answer<T>, Error>
    where
        P: 'static,
        F: FnOnce(&mut P) -> Answer<T> + NoRef + Send + 'static;
    /// Takes a waiting sender's value back.
    fn take_back<P, F>(from: &Trust<P>, f: F) -> Result<Verdict<(u16, T)>, Error>
    where
        P: 'static,
        F: FnOnce(&mut P) -> Verdict<(u16, T)> + NoRef + Send + 'static;
    fn keep(promise: Promise<Option<T>>, value: Option<T>);
}

impl<T: Serialize + DeserializeOwned + 'static> Sealed<T> for Serialised {
    fn put<P, F>(to: &Trust<P>, value: T, f: F) -> Result<Sent<T>, Error>
    where
        P: 'static,
        F: FnOnce(&mut P, T) -> Sent<T> + NoRef + Send + 'static,
    {
        to.call().with(value).apply(f).wait()
    }

    fn post<P, F>(to: &Trust<P>, value: T, f: F)
    where
        P: 'static,
        F: FnOnce(&mut P, T) + NoRef + Send + 'static,
    {
        to.call().with(value).apply(f).then(|result| result.unwrap_or_else(|error| panic!("{error}")));
    }

    fn get<P, F>(from: &Trust<P>, f: F) -> Result<Answer<T>, Error>
    where
        P: 'static,
        F: FnOnce(&mut P) -> Answer<T> + NoRef + Send + 'static,
    {
        from.call().with(()).apply(|end, ()| f(end)).wait()
    }

    fn take_back<P, F>(from: &Trust<P>, f: F) -> Result<Verdict<(u16, T)>, Error>
    where
        P: 'static,
        F: FnOnce(&mut P) -> Verdict<(u16, T)> + NoRef + Send + 'static,
    {
        from.call().with(()).apply(|end, ()| f(end)).wait()
    }

    fn keep(promise: Promise<Option<T>>, value: Option<T>) {
        promise.keep_with(value);
    }
}

impl<T: NoRef + Send + 'static> Sealed<T> for Plain {
    fn put<P, F>(to: &Trust<P>, value: T, f: F) -> Result<Sent<T>, Error>
    where
        P: 'static,
        F: FnOnce(&mut P, T) -> Sent<T> + NoRef + Send + 'static,
    {
        to.call().apply(move |end| f(end, value)).wait()
    }

    fn post<P, F>(to: &Trust<P>, value: T, f: F)
    where
        P: 'static,
        F: FnOnce(&mut P, T) + NoRef + Send + 'static,
    {
        to.apply_then(move |end| f(end, value), |()| {});
    }

    fn get<P, F>(from: &Trust<P>, f: F) -> Result<Answer<T>, Error>
    where
        P: 'static,
        F: FnOnce(&mut P) -> Answer<T> + NoRef + Send + 'static,
    {
        from.call().apply(f).wait()
    }

    fn take_back<P, F>(from: &Trust<P>, f: F) -> Result<Verdict<(u16, T)>, Error>
    where
        P: 'static,
        F: FnOnce(&mut P) -> Verdict<(u16, T)> + NoRef + Send + 'static,
    {
        from.call().apply(f).wait()
    }

    fn keep(promise: Promise<Option<T>>, value: Option<T>) {
        promise.keep(value);
    }
}
