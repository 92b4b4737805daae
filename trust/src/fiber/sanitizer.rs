//! Switches for AddressSanitizer, which must be told the stack that runs next. Without that it takes a fiber's stack
//! for wild memory, and where a panic leaves frames on it, their marks stay behind and the next frame at that place is
//! reported.
//!
//! Only where `build.rs` finds the sanitizer (`cfg(asan)`); elsewhere all functions are empty.

#![allow(unsafe_code)]

#[cfg(not(asan))]
pub(super) use off::{Bounds, Left, arrive, forget, leave};
#[cfg(asan)]
pub(super) use on::{Bounds, Left, arrive, forget, leave};

#[cfg(not(asan))]
mod off {
    use crate::fiber::stack::Stack;
    use std::cell::Cell;

    /// A stack that a switch may go to.
    #[derive(Clone, Copy)]
    pub(in crate::fiber) struct Bounds;

    impl Bounds {
        pub(in crate::fiber) fn of_this_thread() -> Bounds {
            Bounds
        }
        #[inline(always)]
        pub(in crate::fiber) fn of(_: &Cell<Option<Stack>>) -> Bounds {
            Bounds
        }
    }

    /// The sanitizer's state for a side that was left.
    pub(in crate::fiber) struct Left;

    impl Left {
        pub(in crate::fiber) const NOTHING: Left = Left;
    }

    /// Announces a switch to this stack.
    #[inline(always)]
    pub(in crate::fiber) fn leave(_to: Bounds) -> Left {
        Left
    }

    /// Notes that the switch to the running side is done.
    #[inline(always)]
    pub(in crate::fiber) fn arrive(_: Left) {}

    /// Root: notes that no code will go on on this stack.
    #[inline(always)]
    pub(in crate::fiber) fn forget(_: Left, _of: Bounds, _root: Bounds) {}
}

#[cfg(asan)]
mod on {
    use crate::fiber::stack::Stack;
    use libc::c_void;
    use std::cell::Cell;
    use std::ptr;

    // SAFETY: as compiler-rt declares them in `sanitizer/common_interface_defs.h`.
    unsafe extern "C" {
        fn __sanitizer_start_switch_fiber(fake_stack: *mut *mut c_void, bottom: *const c_void, bytes: usize);
        fn __sanitizer_finish_switch_fiber(fake_stack: *mut c_void, bottom: *mut *const c_void, bytes: *mut usize);
    }

    #[derive(Clone, Copy)]
    pub(in crate::fiber) struct Bounds {
        bottom: *const c_void,
        bytes: usize,
    }

    impl Bounds {
        pub(in crate::fiber) fn of_this_thread() -> Bounds {
            let (mut bottom, mut bytes) = (ptr::null_mut(), 0);
            // SAFETY: the attributes are filled in before they are read, and freed after.
            unsafe {
                let mut attributes = std::mem::zeroed();
                if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) == 0 {
                    libc::pthread_attr_getstack(&raw const attributes, &raw mut bottom, &raw mut bytes);
                    libc::pthread_attr_destroy(&raw mut attributes);
                }
            }
            Bounds { bottom, bytes }
        }
        pub(in crate::fiber) fn of(stack: &Cell<Option<Stack>>) -> Bounds {
            // SAFETY: the cell is its thread's own, and nothing sets it meanwhile.
            let stack = unsafe { (*stack.as_ptr()).as_ref() };
            stack.map_or(Bounds { bottom: ptr::null(), bytes: 0 }, |stack| Bounds {
                bottom: stack.bottom(),
                bytes: stack.top().addr() - stack.bottom().addr(),
            })
        }
    }

    /// The frames that it keeps elsewhere, to find uses after a return.
    pub(in crate::fiber) struct Left(*mut c_void);

    impl Left {
        pub(in crate::fiber) const NOTHING: Left = Left(ptr::null_mut());
    }

    pub(in crate::fiber) fn leave(to: Bounds) -> Left {
        let mut fake_stack = ptr::null_mut();
        // SAFETY: the bounds are those of a stack that lives.
        unsafe { __sanitizer_start_switch_fiber(&raw mut fake_stack, to.bottom, to.bytes) };
        Left(fake_stack)
    }

    pub(in crate::fiber) fn arrive(left: Left) {
        // SAFETY: the value that `leave` gave for this side, or nothing for one that begins.
        unsafe { __sanitizer_finish_switch_fiber(left.0, ptr::null_mut(), ptr::null_mut()) };
    }

    /// The sanitizer frees those frames only for the running side: the ended side runs for a moment, in one function,
    /// whose own frame is the root's.
    pub(in crate::fiber) fn forget(left: Left, of: Bounds, root: Bounds) {
        if left.0.is_null() {
            return;
        }
        let mut mine = ptr::null_mut();
        // SAFETY: to the side that has ended and back; nothing refers to its frames any more.
        unsafe {
            __sanitizer_start_switch_fiber(&raw mut mine, of.bottom, of.bytes);
            __sanitizer_finish_switch_fiber(left.0, ptr::null_mut(), ptr::null_mut());
            __sanitizer_start_switch_fiber(ptr::null_mut(), root.bottom, root.bytes);
            __sanitizer_finish_switch_fiber(mine, ptr::null_mut(), ptr::null_mut());
        }
    }
}
