//! Transport of a channel's values, serialised or as raw memory, and the results of sending and receiving.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use trust::{NoRef, Promise, Trust};

/// Result of sending a value.
#[derive(Serialize, Deserialize)]
pub enum Sent<T> {
    Done,
    /// The promise will bring the result: nothing, or the value again if it was refused after all.
    Waits,
    Full(T),
    /// There is no receiver any more.
    Refused(T),
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
    fn put<P, F>(to: &Trust<P>, value: T, f: F) -> Sent<T>
    where
        P: 'static,
        F: FnOnce(&mut P, T) -> Sent<T> + NoRef + Send + 'static;
    /// Posts a value without waiting.
    fn post<P, F>(to: &Trust<P>, value: T, f: F)
    where
        P: 'static,
        F: FnOnce(&mut P, T) + NoRef + Send + 'static;
    fn get<P, F>(from: &Trust<P>, f: F) -> Answer<T>
    where
        P: 'static,
        F: FnOnce(&mut P) -> Answer<T> + NoRef + Send + 'static;
    fn keep(promise: Promise<Option<T>>, value: Option<T>);
}

impl<T: Serialize + DeserializeOwned + 'static> Sealed<T> for Serialised {
    fn put<P, F>(to: &Trust<P>, value: T, f: F) -> Sent<T>
    where
        P: 'static,
        F: FnOnce(&mut P, T) -> Sent<T> + NoRef + Send + 'static,
    {
        to.apply_with(f, value)
    }

    fn post<P, F>(to: &Trust<P>, value: T, f: F)
    where
        P: 'static,
        F: FnOnce(&mut P, T) + NoRef + Send + 'static,
    {
        to.call().with(value).apply(f).then(|result| result.unwrap_or_else(|error| panic!("{error}")));
    }

    fn get<P, F>(from: &Trust<P>, f: F) -> Answer<T>
    where
        P: 'static,
        F: FnOnce(&mut P) -> Answer<T> + NoRef + Send + 'static,
    {
        from.apply_with(|end, ()| f(end), ())
    }

    fn keep(promise: Promise<Option<T>>, value: Option<T>) {
        promise.keep_with(value);
    }
}

impl<T: NoRef + Send + 'static> Sealed<T> for Plain {
    fn put<P, F>(to: &Trust<P>, value: T, f: F) -> Sent<T>
    where
        P: 'static,
        F: FnOnce(&mut P, T) -> Sent<T> + NoRef + Send + 'static,
    {
        to.apply(move |end| f(end, value))
    }

    fn post<P, F>(to: &Trust<P>, value: T, f: F)
    where
        P: 'static,
        F: FnOnce(&mut P, T) + NoRef + Send + 'static,
    {
        to.apply_then(move |end| f(end, value), |()| {});
    }

    fn get<P, F>(from: &Trust<P>, f: F) -> Answer<T>
    where
        P: 'static,
        F: FnOnce(&mut P) -> Answer<T> + NoRef + Send + 'static,
    {
        from.apply(f)
    }

    fn keep(promise: Promise<Option<T>>, value: Option<T>) {
        promise.keep(value);
    }
}
