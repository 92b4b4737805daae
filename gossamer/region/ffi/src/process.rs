//! Attributes that a process has once, which threads of all machines see: file mode mask, locale. The working folder is
//! machine 0's (`files.rs`).

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::mode_t;

use crate::real::real;
use crate::{arena, side};

/// Calls `f` on all other machines, with a text that is longer than a closure may be.
fn on_others_with<F: FnOnce(Vec<u8>) + gossamer::NoRef + Send + Copy + 'static>(f: F, text: &[u8]) {
    let own = side::own_machine();
    for machine in (0..side::machines()).filter(|machine| *machine != own) {
        side::at_with(machine, f, side::outside(|| text.to_vec()));
    }
}

/// Attributes as `main` was to begin: mask and locale.
struct Early {
    mask: mode_t,
    locale: Vec<u8>,
}

static EARLY: OnceLock<Early> = OnceLock::new();

/// Records the attributes that constructors have set; before the runtime starts.
pub(crate) fn note() {
    let mask = set_mask(0o077);
    set_mask(mask);
    let locale = set_locale(libc::LC_ALL, ptr::null());
    // SAFETY: a string that the C library returns.
    let locale = unsafe { CStr::from_ptr(locale) }.to_bytes_with_nul().to_vec();
    EARLY.get_or_init(|| Early { mask, locale });
    note_locale(true);
}

/// Whether the locale is the one with which programs begin.
static HAS_PLAIN_LOCALE: AtomicBool = AtomicBool::new(true);

/// Notes the locale. Once it was another one, the program may have pointers into tables.
fn note_locale(was_plain: bool) {
    let locale = set_locale(libc::LC_ALL, ptr::null());
    // SAFETY: a string that the C library returns.
    let is_plain = !locale.is_null() && matches!(unsafe { CStr::from_ptr(locale) }.to_bytes(), b"C" | b"POSIX");
    HAS_PLAIN_LOCALE.store(was_plain && is_plain, Ordering::Relaxed);
}

/// Whether tables of the locale, to which the program may have pointers, are in the C library's image: those of others
/// are at other addresses on each machine.
pub(crate) fn has_plain_locale() -> bool {
    HAS_PLAIN_LOCALE.load(Ordering::Relaxed)
}

/// Before a change of the locale: from its begin on, threads may have pointers into the new tables. Returns whether the
/// locale was plain.
fn begin_change() -> bool {
    HAS_PLAIN_LOCALE.swap(false, Ordering::Relaxed)
}

/// In a fiber of machine 0: gives these attributes to the other machines.
pub(crate) fn hand_over() {
    let Some(early) = EARLY.get() else { return };
    let mask = early.mask;
    for machine in 1..side::machines() {
        side::from_worker(machine, move || {
            set_mask(mask);
        });
        side::from_worker_with(machine, |locale| set_locale_there(libc::LC_ALL, &locale), early.locale.clone());
    }
}

fn set_mask(mask: mode_t) -> mode_t {
    real!(umask: fn(mode_t) -> mode_t, mask)
}

fn set_locale(category: c_int, locale: *const c_char) -> *mut c_char {
    real!(setlocale: fn(c_int, *const c_char) -> *mut c_char, category, locale)
}

/// In a constructor. Each new thread reads the locale, also while the program's memory is laid out, when that cannot be
/// read: so the C library has the locale in memory of its own, and the program a copy of the name.
fn set_early_locale(category: c_int, locale: *const c_char) -> *mut c_char {
    let ours = arena::Ours::begin();
    let done = set_locale(category, locale);
    drop(ours);
    // SAFETY: a string that the C library returns.
    if done.is_null() { done } else { unsafe { libc::strdup(done) } }
}

/// Sets a locale, which ends with a zero, as another machine has.
fn set_locale_there(category: c_int, locale: &[u8]) {
    let locale = CStr::from_bytes_with_nul(locale).map_or(ptr::null(), CStr::as_ptr);
    let was_plain = begin_change();
    if set_locale(category, locale).is_null() {
        eprintln!(
            "gossamer: machine {} does not have the locale that the program set: its threads have another one; install \
             it there",
            side::own_machine(),
        );
    }
    note_locale(was_plain);
}

/// The C library's function, for all machines.
#[unsafe(no_mangle)]
pub extern "C" fn umask(mask: mode_t) -> mode_t {
    let before = set_mask(mask);
    if side::is_machine_in_program() {
        side::on_others(move || {
            set_mask(mask);
        });
    }
    before
}

/// The C library's function, for all machines.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setlocale(category: c_int, locale: *const c_char) -> *mut c_char {
    if arena::is_open() {
        return set_early_locale(category, locale);
    }
    let was_plain = if locale.is_null() { has_plain_locale() } else { begin_change() };
    let done = set_locale(category, locale);
    if !done.is_null() && !locale.is_null() && side::is_machine_in_program() {
        let set_there = move |locale: Vec<u8>| set_locale_there(category, &locale);
        // The name that was found: an empty one means the environment, which machines may differ in.
        // SAFETY: a string that the C library returns.
        on_others_with(set_there, unsafe { CStr::from_ptr(done) }.to_bytes_with_nul());
    }
    if !locale.is_null() {
        note_locale(was_plain);
    }
    done
}
