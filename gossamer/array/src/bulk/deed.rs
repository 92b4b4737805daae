//! Operations of packets on elements: [`Read`], [`Write`], [`Combine`].

#![allow(unsafe_code)]

use crate::array::Array;
use crate::directory::Right;
use crate::element::Element;
use crate::operator::{Op, Operator, checked_combine};

/// Operation of a packet on each of its elements. It is a type parameter of the closure that carries the packet.
pub(super) trait Deed<T: Element>: 'static {
    /// Does a value come with each element? If not, each element is returned in the answer.
    const BRINGS_VALUES: bool = true;
    /// Does it run no code of the program?
    const IS_PLAIN: bool = true;
    fn right() -> Right<Op>;
    /// Returns the new value of an element.
    fn change(element: T, value: T) -> T;
    /// Applies the operation to an element.
    ///
    /// # Safety
    /// The element lies there, and may be read, and written if the right includes more than reading.
    #[inline(always)]
    unsafe fn take(element: *mut T, value: T, answer: Option<&mut T>) {
        // SAFETY: the caller's promise.
        let before = unsafe { element.read() };
        match answer {
            Some(answer) => *answer = before,
            // SAFETY: as before; a write has no answer. Read and write are separate, because the operator in between is
            // the user's code.
            None => unsafe { element.write(Self::change(before, value)) },
        }
    }
    /// Applies the operation at once if the right is at this place; returns the element if it was read.
    fn here(array: &Array<T>, i: usize, value: T) -> Option<T>;
}

pub(super) struct Read;

impl<T: Element> Deed<T> for Read {
    const BRINGS_VALUES: bool = false;
    fn right() -> Right<Op> {
        Right::Read
    }
    fn change(element: T, _value: T) -> T {
        element
    }
    fn here(array: &Array<T>, i: usize, _value: T) -> Option<T> {
        array.get_here(i)
    }
}

pub(super) struct Write;

impl<T: Element> Deed<T> for Write {
    fn right() -> Right<Op> {
        Right::Write
    }
    fn change(_element: T, value: T) -> T {
        value
    }
    fn here(array: &Array<T>, i: usize, value: T) -> Option<T> {
        array.set_here(i, value).then_some(value)
    }
}

pub(super) struct Combine<O>(std::marker::PhantomData<O>);

impl<T: Element, O: Operator<T>> Deed<T> for Combine<O> {
    const IS_PLAIN: bool = O::PLAIN.is_plain();
    fn right() -> Right<Op> {
        Right::Combine(Op::of::<T, O>())
    }
    fn change(element: T, value: T) -> T {
        checked_combine::<T, O>(element, value)
    }
    fn here(array: &Array<T>, i: usize, value: T) -> Option<T> {
        array.apply_here::<O>(i, value).then_some(value)
    }
}
