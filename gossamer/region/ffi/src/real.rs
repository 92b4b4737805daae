//! The functions that this library interposes: the C library's, and of other libraries those that come next.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::objects::{c_function, next};
use crate::side;

/// A function of the C library, looked up once.
pub(crate) struct Real {
    name: &'static CStr,
    found: AtomicUsize,
}

impl Real {
    pub(crate) const fn new(name: &'static CStr) -> Real {
        Real { name, found: AtomicUsize::new(0) }
    }

    #[inline(always)]
    pub(crate) fn address(&self) -> usize {
        match self.found.load(Ordering::Relaxed) {
            0 => self.look_up(),
            found => found,
        }
    }

    #[cold]
    #[inline(never)]
    fn look_up(&self) -> usize {
        let look = || c_function(self.name).or_else(|| next(self.name));
        // Every C library that this is built for has it. Of another library, the caller has the function.
        let found = side::outside(look).unwrap_or_else(|| {
            eprintln!("gossamer: no loaded library has the function {}", self.name.to_string_lossy());
            std::process::abort()
        });
        self.found.store(found, Ordering::Relaxed);
        found
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
        // SAFETY: the C library's definition, with the type that the standard gives it; the caller passes on the
        // program's arguments.
        unsafe {
            // It may call the program's functions, which may throw.
            std::mem::transmute::<usize, unsafe extern "C-unwind" fn($($type),*) -> $result>(REAL.address())(
                $($argument),*
            )
        }
    }};
}
pub(crate) use real;
