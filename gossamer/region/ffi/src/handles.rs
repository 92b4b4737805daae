//! Handles of the C library that lead to mappings of one machine: the tables of a locale (`newlocale`), the code of a
//! conversion (`iconv_open`). A thread that may move stays where it has made one, until it is freed (`ties.rs`).

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use libc::locale_t;

use crate::real::real;
use crate::{host, ids, side, table};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Locale,
    Conversion,
}

/// Handles of this machine, with the thread that has made each. Locked on our side, with signals blocked.
static MADE: Mutex<BTreeMap<usize, (u64, Kind)>> = Mutex::new(BTreeMap::new());

fn made<R>(f: impl FnOnce(&mut BTreeMap<usize, (u64, Kind)>) -> R) -> R {
    side::outside(|| side::without_signals(|| f(&mut MADE.lock().unwrap_or_else(PoisonError::into_inner))))
}

/// Notes a handle of the calling thread, if it may move. That of the locale "C" is a variable of the C library, which
/// is the same on all machines.
fn note(handle: usize, kind: Kind) {
    if host::is_in_block() && table::is_shared(handle) {
        let thread = ids::own();
        made(move |all| all.insert(handle, (thread, kind)));
    }
}

/// Forgets a handle, of whichever thread.
fn forget(handle: usize) -> Option<(u64, Kind)> {
    let is_known = side::is_machine_in_program() && table::is_shared(handle);
    if is_known { made(move |all| all.remove(&handle)) } else { None }
}

/// Whether the calling thread, which may move, has a handle of this kind.
pub(crate) fn has(kind: Kind) -> bool {
    let own = (ids::own(), kind);
    made(move |all| all.values().any(|one| *one == own))
}

/// Functions of the C library that make and free locales, under both of their names.
macro_rules! of_locales {
    ($($new:ident $duplicate:ident $free:ident;)*) => {$(
        /// The C library's function.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $new(mask: c_int, name: *const c_char, base: locale_t) -> locale_t {
            // Before the call, which may free it.
            let before = forget(base.addr());
            let new = real!($new: fn(c_int, *const c_char, locale_t) -> locale_t, mask, name, base);
            match (new.is_null(), before) {
                (false, _) => note(new.addr(), Kind::Locale),
                (true, Some(before)) => _ = made(move |all| all.insert(base.addr(), before)),
                (true, None) => {}
            }
            new
        }

        /// The C library's function.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $duplicate(locale: locale_t) -> locale_t {
            let new = real!($duplicate: fn(locale_t) -> locale_t, locale);
            note(new.addr(), Kind::Locale);
            new
        }

        /// The C library's function.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $free(locale: locale_t) {
            forget(locale.addr());
            real!($free: fn(locale_t) -> (), locale)
        }
    )*};
}

of_locales! {
    newlocale duplocale freelocale;
    __newlocale __duplocale __freelocale;
}

/// The C library's function.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iconv_open(to: *const c_char, from: *const c_char) -> *mut c_void {
    let new = real!(iconv_open: fn(*const c_char, *const c_char) -> *mut c_void, to, from);
    note(new.addr(), Kind::Conversion); // no memory, where it has failed
    new
}

/// The C library's function.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iconv_close(conversion: *mut c_void) -> c_int {
    forget(conversion.addr());
    real!(iconv_close: fn(*mut c_void) -> c_int, conversion)
}
