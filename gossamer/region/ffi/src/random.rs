//! `rand`, `random`, `drand48` and their kin: one state for all machines, in the program's heap, under a lock.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_long, c_uint, c_ushort};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use crate::real::real;
use crate::semaphore::Count;
use crate::table::{self, table};
use crate::{arena, heap, side};

/// Seed of a program that sets none.
const SEED: c_uint = 1;

/// The C library's `struct random_data`: pointers into the numbers, and their kind.
#[repr(C)]
struct Additive {
    pointers: [*mut i32; 3],
    kinds: [c_int; 3],
    end: *mut i32,
}

/// The C library's `struct drand48_data`.
#[repr(C)]
struct Linear {
    now: [c_ushort; 3],
    before: [c_ushort; 3],
    addend: c_ushort,
    is_begun: c_ushort,
    factor: u64,
}

/// The state; zeros, but for the numbers.
#[repr(C)]
struct Random {
    lock: AtomicI32,
    additive: UnsafeCell<Additive>,
    linear: UnsafeCell<Linear>,
    numbers: UnsafeCell<[u64; 16]>,
}

unsafe extern "C" {
    fn random_r(state: *mut Additive, result: *mut i32) -> c_int;
    fn srandom_r(seed: c_uint, state: *mut Additive) -> c_int;
    fn initstate_r(seed: c_uint, numbers: *mut c_char, bytes: usize, state: *mut Additive) -> c_int;
    fn setstate_r(numbers: *mut c_char, state: *mut Additive) -> c_int;
    fn drand48_r(state: *mut Linear, result: *mut f64) -> c_int;
    fn lrand48_r(state: *mut Linear, result: *mut c_long) -> c_int;
    fn mrand48_r(state: *mut Linear, result: *mut c_long) -> c_int;
    fn erand48_r(now: *mut c_ushort, state: *mut Linear, result: *mut f64) -> c_int;
    fn nrand48_r(now: *mut c_ushort, state: *mut Linear, result: *mut c_long) -> c_int;
    fn jrand48_r(now: *mut c_ushort, state: *mut Linear, result: *mut c_long) -> c_int;
    fn srand48_r(seed: c_long, state: *mut Linear) -> c_int;
    fn seed48_r(seed: *mut c_ushort, state: *mut Linear) -> c_int;
    fn lcong48_r(parameters: *mut c_ushort, state: *mut Linear) -> c_int;
}

/// Address of the state before `main`.
static EARLY: AtomicUsize = AtomicUsize::new(0);

/// Makes the state; 0: there is no memory.
fn make() -> usize {
    let Some((block, _)) = heap::allocate(size_of::<Random>(), align_of::<Random>()) else { return 0 };
    let state = ptr::with_exposed_provenance_mut::<Random>(block);
    // SAFETY: a block of that size, which no other code has; zeros are a state without numbers.
    unsafe {
        ptr::write_bytes(state.cast::<u8>(), 0, size_of::<Random>());
        let numbers = (*state).numbers.get();
        initstate_r(SEED, numbers.cast(), size_of_val(&*numbers), (*state).additive.get());
    }
    block
}

/// On machine 0, once the table is there and before the program begins: makes the state that all machines have, or
/// takes that of constructors.
pub(crate) fn hand_over() {
    let state = match EARLY.load(Ordering::Relaxed) {
        0 => make(),
        early => early,
    };
    table().random.store(state, Ordering::SeqCst);
}

/// Returns the state that all machines have, for code of the program; none where each has its own.
fn state() -> Option<&'static Random> {
    let address = match table::has_begun() {
        true if side::is_in_program() => table().random.load(Ordering::Relaxed),
        true => 0,
        false if !arena::is_open() || arena::is_explicit() => 0,
        false => match EARLY.load(Ordering::Relaxed) {
            0 => {
                EARLY.store(make(), Ordering::Relaxed);
                EARLY.load(Ordering::Relaxed)
            }
            early => early,
        },
    };
    // SAFETY: a state that stays, which is changed under its lock only.
    (address != 0).then(|| unsafe { &*ptr::with_exposed_provenance::<Random>(address) })
}

impl Random {
    /// Calls `f` with the state of `random` and that of `drand48`, which no other thread uses meanwhile.
    fn with<R>(&self, f: impl FnOnce(*mut Additive, *mut Linear) -> R) -> R {
        // SAFETY: a word that stays, and is changed as a count only.
        let lock = unsafe { Count::at(self.lock.as_ptr(), 1) };
        // Before `main` there is one thread.
        let locks = table::has_begun();
        if locks {
            lock.take(None);
        }
        let result = f(self.additive.get(), self.linear.get());
        if locks {
            lock.give();
        }
        result
    }
}

/// Functions of the one state, each of which is another one of a given state.
macro_rules! of_state {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty,
        |$additive:pat_param, $linear:pat_param| $call:expr;)*) => {$(
        /// The C library's function, with one state for all machines.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            match state() {
                // SAFETY: the arguments of the caller, and a state that no other thread uses meanwhile.
                Some(state) => state.with(|$additive, $linear| unsafe { $call }),
                None => real!($name: fn($($type),*) -> $result $(, $argument)*),
            }
        }
    )*};
}

/// Returns the number that `f` writes.
fn number<T: Default>(f: impl FnOnce(*mut T) -> c_int) -> T {
    let mut result = T::default();
    f(&raw mut result);
    result
}

/// Returns what `setstate` and `initstate` do: the numbers before, if `f` succeeds.
///
/// # Safety
/// `state` is a state.
unsafe fn numbers_before(state: *mut Additive, f: impl FnOnce() -> c_int) -> *mut c_char {
    // SAFETY: as the caller says; one word before the numbers is their kind.
    let before = unsafe { (*state).pointers[2].sub(1) };
    if f() == 0 { before.cast() } else { ptr::null_mut() }
}

of_state! {
    rand() -> c_int, |state, _| number(|to| random_r(state, to));
    random() -> c_long, |state, _| number(|to| random_r(state, to)).into();
    srand(seed: c_uint) -> (), |state, _| { srandom_r(seed, state); };
    srandom(seed: c_uint) -> (), |state, _| { srandom_r(seed, state); };
    initstate(seed: c_uint, numbers: *mut c_char, bytes: usize) -> *mut c_char, |state, _|
        numbers_before(state, || initstate_r(seed, numbers, bytes, state));
    setstate(numbers: *mut c_char) -> *mut c_char, |state, _| numbers_before(state, || setstate_r(numbers, state));
    drand48() -> f64, |_, state| number(|to| drand48_r(state, to));
    lrand48() -> c_long, |_, state| number(|to| lrand48_r(state, to));
    mrand48() -> c_long, |_, state| number(|to| mrand48_r(state, to));
    erand48(now: *mut c_ushort) -> f64, |_, state| number(|to| erand48_r(now, state, to));
    nrand48(now: *mut c_ushort) -> c_long, |_, state| number(|to| nrand48_r(now, state, to));
    jrand48(now: *mut c_ushort) -> c_long, |_, state| number(|to| jrand48_r(now, state, to));
    srand48(seed: c_long) -> (), |_, state| { srand48_r(seed, state); };
    seed48(seed: *mut c_ushort) -> *mut c_ushort, |_, state| {
        seed48_r(seed, state);
        (&raw mut (*state).before).cast()
    };
    lcong48(parameters: *mut c_ushort) -> (), |_, state| { lcong48_r(parameters, state); };
}
