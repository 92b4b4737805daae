//! [`Own`]: the common part of a `Global` and a `Box`, for structures that can be made of either.

use std::ops::{Deref, DerefMut};

use gossamer_heap::{Global, Object, Portable};

/// The one owner of an object.
pub trait Own {
    /// The object.
    type Target: ?Sized;

    /// Reads it.
    fn read(&self) -> impl Deref<Target = Self::Target>;

    /// Writes it.
    fn write(&mut self) -> impl DerefMut<Target = Self::Target>;
}

impl<T: ?Sized + Object + Portable> Own for Global<T> {
    type Target = T;

    fn read(&self) -> impl Deref<Target = T> {
        Global::read(self)
    }

    fn write(&mut self) -> impl DerefMut<Target = T> {
        Global::write(self)
    }
}

impl<T: ?Sized> Own for Box<T> {
    type Target = T;

    fn read(&self) -> impl Deref<Target = T> {
        &**self
    }

    fn write(&mut self) -> impl DerefMut<Target = T> {
        &mut **self
    }
}

/// The owner of a slice, made element by element.
pub trait Slice<T>: Own<Target = [T]> {
    /// Element `i` is `f(i)`.
    fn make(len: usize, f: impl FnMut(usize) -> T) -> Self;
}

impl<T: Portable> Slice<T> for Global<[T]> {
    fn make(len: usize, f: impl FnMut(usize) -> T) -> Self {
        gossamer_heap::slice(len, f)
    }
}

impl<T> Slice<T> for Box<[T]> {
    fn make(len: usize, f: impl FnMut(usize) -> T) -> Self {
        (0..len).map(f).collect()
    }
}
