//! Request of every `apply`: a closure on the property.

#![allow(unsafe_code)]

use std::ptr;

use crate::property::{Header, Property};
use crate::request::{Request, Serving, Target, name_on};
use crate::runtime::worker::poisoned;

/// Closure on the property: the request of every `apply`.
pub(crate) struct Apply<T, F, const STAYS: bool> {
    f: F,
    pub(crate) property: std::marker::PhantomData<fn(&mut T)>,
}

impl<T, F, const STAYS: bool> Apply<T, F, STAYS> {
    #[inline(always)]
    pub(crate) fn new(f: F) -> Self {
        Apply { f, property: std::marker::PhantomData }
    }
}

impl<T: 'static, U, F: FnOnce(&mut T) -> U, const STAYS: bool> Request for Apply<T, F, STAYS> {
    const STAYS: bool = STAYS;
    const TARGET: Target = Target::property_of::<T>();
    const IS_FLAT: bool = true;
    const RUNS_AT_ONCE: bool = true;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{ANYWHERE, IN_PROCESS};

    #[test]
    fn a_request_within_the_process_has_no_packed_form() {
        fn unpacks<F: FnOnce(&mut u64)>(_: &F) -> [bool; 2] {
            let bytes = vec![0; size_of::<F>()];
            // SAFETY: the captures are a number, for which all bytes are valid.
            unsafe {
                [
                    Apply::<u64, F, ANYWHERE>::unpack(&bytes).is_some(),
                    Apply::<u64, F, IN_PROCESS>::unpack(&bytes).is_some(),
                ]
            }
        }
        let step = 7u64;
        assert_eq!(unpacks(&move |number: &mut u64| *number += step), [true, false]);
    }
}
