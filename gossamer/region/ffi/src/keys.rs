//! `pthread_key_create` and its kin: a key is the same on all machines, values are each thread's own.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use libc::pthread_key_t;

use crate::real::real;
use crate::side;
use crate::table::{self, KEYS_MAX, Key, table};

/// First of our keys: the C library's own are below.
const FIRST: pthread_key_t = 1 << 24;
/// Rounds of destructors that leave values behind (POSIX's minimum).
const ROUNDS: usize = 4;

thread_local! {
    /// Value of each key, by its place, with the turn of the key that set it. Freed by [`destroy_values`]: a destructor
    /// would be registered with the C library, which allocates for it, and an allocator of the program may come here
    /// from its first block.
    static VALUES: RefCell<ManuallyDrop<Vec<(u64, usize)>>> = const { RefCell::new(ManuallyDrop::new(vec![])) };
}

/// Keys of constructors, which the table has from `main` on.
static EARLY: [Key; KEYS_MAX] = [const { Key { turn: AtomicU64::new(0), destructor: AtomicUsize::new(0) } }; KEYS_MAX];

fn keys() -> &'static [Key; KEYS_MAX] {
    if table::has_begun() { &table().keys } else { &EARLY }
}

/// On machine 0, once the table is there: puts the keys of constructors into it.
pub(crate) fn hand_over() {
    for (early, key) in EARLY.iter().zip(&table().keys).filter(|(early, _)| early.turn.load(Ordering::SeqCst) != 0) {
        key.destructor.store(early.destructor.load(Ordering::SeqCst), Ordering::SeqCst);
        key.turn.store(early.turn.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

fn place_of(key: pthread_key_t) -> Option<usize> {
    key.checked_sub(FIRST).map(|place| place as usize).filter(|place| *place < KEYS_MAX)
}

/// The C library's function, for threads of all machines.
///
/// # Safety
/// As for the C library's function, here and in all other functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_key_create(key: *mut pthread_key_t, destructor: *mut c_void) -> c_int {
    if !side::is_programs() {
        return real!(pthread_key_create: fn(*mut pthread_key_t, *mut c_void) -> c_int, key, destructor);
    }
    for (place, other) in keys().iter().enumerate() {
        let turn = other.turn.load(Ordering::SeqCst);
        if turn.is_multiple_of(2)
            && other.turn.compare_exchange(turn, turn + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            other.destructor.store(destructor.expose_provenance(), Ordering::SeqCst);
            // SAFETY: the caller's.
            unsafe { key.write(FIRST + place as pthread_key_t) };
            return 0;
        }
    }
    libc::EAGAIN
}

/// See [`pthread_key_create`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_key_delete(key: pthread_key_t) -> c_int {
    let Some(place) = place_of(key) else { return real!(pthread_key_delete: fn(pthread_key_t) -> c_int, key) };
    let other = &keys()[place];
    let turn = other.turn.load(Ordering::SeqCst);
    match turn % 2 == 1 && other.turn.compare_exchange(turn, turn + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
        true => 0,
        false => libc::EINVAL,
    }
}

/// See [`pthread_key_create`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setspecific(key: pthread_key_t, value: *const c_void) -> c_int {
    let Some(place) = place_of(key) else {
        return real!(pthread_setspecific: fn(pthread_key_t, *const c_void) -> c_int, key, value);
    };
    let turn = keys()[place].turn.load(Ordering::SeqCst);
    if turn.is_multiple_of(2) {
        return libc::EINVAL;
    }
    let value = value.expose_provenance();
    side::outside(move || {
        VALUES.with_borrow_mut(|values| {
            if values.len() <= place {
                values.resize(place + 1, (0, 0));
            }
            values[place] = (turn, value);
        });
    });
    0
}

/// See [`pthread_key_create`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getspecific(key: pthread_key_t) -> *mut c_void {
    let Some(place) = place_of(key) else {
        return real!(pthread_getspecific: fn(pthread_key_t) -> *mut c_void, key);
    };
    let turn = keys()[place].turn.load(Ordering::SeqCst);
    let value = side::outside(move || VALUES.with_borrow(|values| values.get(place).copied().unwrap_or_default()));
    match value {
        (of, value) if of == turn => std::ptr::with_exposed_provenance_mut(value),
        _ => std::ptr::null_mut(),
    }
}

/// Takes the values of the calling thread, which goes to another machine, on our side.
pub(crate) fn take() -> Vec<(u64, usize)> {
    VALUES.with_borrow_mut(|values| std::mem::take(&mut **values))
}

/// Gives these to the calling thread, on our side.
pub(crate) fn put(values: Vec<(u64, usize)>) {
    VALUES.with_borrow_mut(|own| **own = values);
}

/// At the end of a thread, in the program's code: passes its values to their destructors.
pub(crate) fn destroy_values() {
    let take = || side::outside(take);
    for _ in 0..ROUNDS {
        let values = take();
        for (place, (turn, value)) in values.iter().copied().enumerate().filter(|(_, (_, value))| *value != 0) {
            let key = &table().keys[place];
            let destructor = key.destructor.load(Ordering::SeqCst);
            if key.turn.load(Ordering::SeqCst) == turn && destructor != 0 {
                // SAFETY: the function that the program gave for values of this key.
                let destructor = unsafe { std::mem::transmute::<usize, extern "C" fn(*mut c_void)>(destructor) };
                destructor(std::ptr::with_exposed_provenance_mut(value));
            }
        }
        side::outside(move || drop(values));
    }
    side::outside(|| drop(take()));
}
