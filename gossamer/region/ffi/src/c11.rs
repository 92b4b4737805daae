//! Threads of C11 (`<threads.h>`): POSIX's under other names. Types are the same in the C library, and those of results
//! are told apart by number.

use std::ffi::{c_int, c_void};

use libc::{pthread_cond_t, pthread_key_t, pthread_mutex_t, pthread_once_t, pthread_t, timespec};

use crate::{condvar, keys, mutex, threads};

const SUCCESS: c_int = 0;
const BUSY: c_int = 1;
const ERROR: c_int = 2;
const NO_MEMORY: c_int = 3;
const TIMED_OUT: c_int = 4;
/// Bit of a mutex's type.
const RECURSIVE: c_int = 1;

/// Returns C11's result for that of a function of POSIX.
fn result(errno: c_int) -> c_int {
    match errno {
        0 => SUCCESS,
        libc::EBUSY => BUSY,
        libc::ENOMEM | libc::EAGAIN => NO_MEMORY,
        libc::ETIMEDOUT => TIMED_OUT,
        _ => ERROR,
    }
}

/// Functions of C11 that are one of POSIX: `name(types) = function`.
macro_rules! same {
    ($($name:ident($($argument:ident: $type:ty),*) = $of:path;)*) => {$(
        /// The C library's function, for threads of all machines.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: as the caller says.
            result(unsafe { $of($($argument),*) })
        }
    )*};
}

same! {
    thrd_detach(id: pthread_t) = threads::pthread_detach;
    mtx_lock(lock: *mut pthread_mutex_t) = mutex::pthread_mutex_lock;
    mtx_trylock(lock: *mut pthread_mutex_t) = mutex::pthread_mutex_trylock;
    mtx_timedlock(lock: *mut pthread_mutex_t, time: *const timespec) = mutex::pthread_mutex_timedlock;
    mtx_unlock(lock: *mut pthread_mutex_t) = mutex::pthread_mutex_unlock;
    cnd_signal(condition: *mut pthread_cond_t) = condvar::pthread_cond_signal;
    cnd_broadcast(condition: *mut pthread_cond_t) = condvar::pthread_cond_broadcast;
    cnd_wait(condition: *mut pthread_cond_t, lock: *mut pthread_mutex_t) = condvar::pthread_cond_wait;
    cnd_timedwait(condition: *mut pthread_cond_t, lock: *mut pthread_mutex_t, time: *const timespec)
        = condvar::pthread_cond_timedwait;
    tss_create(key: *mut pthread_key_t, destructor: *mut c_void) = keys::pthread_key_create;
    tss_set(key: pthread_key_t, value: *const c_void) = keys::pthread_setspecific;
}

/// The C library's function, for threads of all machines.
///
/// # Safety
/// As for the C library's function, here and in all other functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(id: *mut pthread_t, function: *mut c_void, argument: *mut c_void) -> c_int {
    // Its function returns an `int`, in the register of a pointer.
    // SAFETY: as the caller says.
    result(unsafe { threads::pthread_create(id, std::ptr::null(), function, argument) })
}

/// See [`thrd_create`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_join(id: pthread_t, answer: *mut c_int) -> c_int {
    let mut value = std::ptr::null_mut();
    // SAFETY: as the caller says.
    let joined = unsafe { threads::pthread_join(id, &raw mut value) };
    if joined == 0 && !answer.is_null() {
        // SAFETY: the caller's.
        unsafe { answer.write(value.addr() as c_int) };
    }
    result(joined)
}

/// See [`thrd_create`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_exit(answer: c_int) -> ! {
    // SAFETY: as the caller says.
    unsafe { crate::cleanup::pthread_exit(std::ptr::without_provenance_mut(answer as usize)) }
}

/// See [`thrd_create`].
#[unsafe(no_mangle)]
pub extern "C" fn thrd_current() -> pthread_t {
    threads::pthread_self()
}

/// See [`thrd_create`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_init(lock: *mut pthread_mutex_t, kind: c_int) -> c_int {
    let kind = if kind & RECURSIVE != 0 { libc::PTHREAD_MUTEX_RECURSIVE } else { libc::PTHREAD_MUTEX_NORMAL };
    let mut attributes = std::mem::MaybeUninit::uninit();
    // SAFETY: attributes that are made before they are used; the caller's mutex.
    unsafe {
        libc::pthread_mutexattr_init(attributes.as_mut_ptr());
        libc::pthread_mutexattr_settype(attributes.as_mut_ptr(), kind);
        result(mutex::pthread_mutex_init(lock, attributes.as_ptr()))
    }
}

/// See [`thrd_create`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_destroy(lock: *mut pthread_mutex_t) {
    // SAFETY: as the caller says.
    unsafe { mutex::pthread_mutex_destroy(lock) };
}

/// See [`thrd_create`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cnd_init(condition: *mut pthread_cond_t) -> c_int {
    // SAFETY: as the caller says.
    result(unsafe { condvar::pthread_cond_init(condition, std::ptr::null()) })
}

/// See [`thrd_create`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cnd_destroy(condition: *mut pthread_cond_t) {
    // SAFETY: as the caller says.
    unsafe { condvar::pthread_cond_destroy(condition) };
}

/// See [`thrd_create`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tss_delete(key: pthread_key_t) {
    // SAFETY: as the caller says.
    unsafe { keys::pthread_key_delete(key) };
}

/// See [`thrd_create`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tss_get(key: pthread_key_t) -> *mut c_void {
    // SAFETY: as the caller says.
    unsafe { keys::pthread_getspecific(key) }
}

/// See [`thrd_create`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn call_once(once: *mut pthread_once_t, function: mutex::Init) {
    // SAFETY: as the caller says.
    unsafe { mutex::pthread_once(once, function) };
}
