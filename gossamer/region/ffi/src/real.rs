//! The C library's functions that this library interposes.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The next definition of a function, looked up once.
pub(crate) struct Real {
    name: &'static CStr,
    found: AtomicUsize,
}

impl Real {
    pub(crate) const fn new(name: &'static CStr) -> Real {
        Real { name, found: AtomicUsize::new(0) }
    }

    pub(crate) fn address(&self) -> usize {
        match self.found.load(Ordering::Relaxed) {
            0 => {
                // SAFETY: a name that ends with a zero.
                let find = || unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) }.addr();
                let found = crate::side::outside(find);
                if found == 0 {
                    // Every C library that this is built for has it.
                    std::process::abort();
                }
                self.found.store(found, Ordering::Relaxed);
                found
            }
            found => found,
        }
    }
}

/// Calls the C library's own function: `real!(name: fn(types) -> type, arguments)`.
macro_rules! real {
    ($name:ident : fn($($type:ty),*) -> $result:ty $(, $argument:expr)*) => {{
        static REAL: $crate::real::Real = {
            // The name ends with the zero that was added above.
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => $crate::real::Real::new(name),
                Err(_) => panic!(),
            }
        };
        // SAFETY: the definition behind ours, with the type that the standard gives it; the caller passes on the
        // program's arguments.
        unsafe {
            std::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> $result>(REAL.address())($($argument),*)
        }
    }};
}
pub(crate) use real;
