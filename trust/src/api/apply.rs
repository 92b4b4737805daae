//! Request of every `apply`: a closure on the property.

#![allow(unsafe_code)]

use std::ptr;

use crate::property::{Header, Property};
use crate::request::{Request, Serving, Target, name_on};
use crate::runtime::worker::poisoned;

/// Closure on the property: the request of every `apply`.
pub(crate) struct Apply<T, F> {
    pub(crate) f: F,
    pub(crate) property: std::marker::PhantomData<fn(&mut T)>,
}

impl<T, F> Apply<T, F> {
    #[inline(always)]
    pub(crate) fn new(f: F) -> Self {
        Apply { f, property: std::marker::PhantomData }
    }
}

impl<T: 'static, U, F: FnOnce(&mut T) -> U> Request for Apply<T, F> {
    const TARGET: Target = Target::property_of::<T>();
    const IS_FLAT: bool = true;

    fn name() -> String {
        name_on::<T, F>()
    }

    #[inline(always)]
    unsafe fn run(self, property: *mut Header, serving: &mut Serving) {
        // SAFETY: live [property-live]; only this thread looks at it.
        if unsafe { (*property).is_poisoned() } {
            // Before the fault: a request that panics when its captures are dropped must not answer twice.
            drop(self);
            return serving.fault(poisoned(property));
        }
        serving.property = property;
        // SAFETY: live [property-live], of type `T` by the type of the trust; the borrow is unique
        // [closures-take-turns].
        let value = (self.f)(unsafe { Property::<T>::value(property) });
        serving.property = ptr::null_mut();
        serving.out.put(value);
    }
}
