//! Sleeps of the C library, before and after which a thread may go to another machine (`wishes.rs`).

use std::ffi::{c_int, c_uint};

use libc::{clockid_t, timespec};

use crate::real::real;
use crate::{clocks, safe_points};

/// Functions of the C library by which a thread sleeps: `name(arguments) -> type`.
macro_rules! sleeps {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        /// The C library's function.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            safe_points::at_call();
            let done = real!($name: fn($($type),*) -> $result $(, $argument)*);
            safe_points::at_call();
            done
        }
    )*};
}

sleeps! {
    sleep(seconds: c_uint) -> c_uint;
    usleep(microseconds: libc::useconds_t) -> c_int;
    nanosleep(time: *const timespec, left: *mut timespec) -> c_int;
    thrd_sleep(time: *const timespec, left: *mut timespec) -> c_int;
}

/// The C library's function, by machine 0's clock (`clocks.rs`).
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    safe_points::at_call();
    let done = clocks::sleep(clock, flags, time, left);
    safe_points::at_call();
    done
}
