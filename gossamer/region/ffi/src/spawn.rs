//! Processes that the program starts. A process has the filter of the thread that starts it (`trap.rs`), and would be
//! ended by the first call that it stops: a thread without a filter starts it. That thread is the program's meanwhile,
//! in place of the one that waits for it.

use std::ffi::{c_char, c_int, c_void};

use libc::pid_t;

use crate::real::real;
use crate::{ids, mask, refused, side, table};

/// Calls `f` on a thread without a filter, as if the calling thread did; returns its result, with its `errno`. `None`:
/// there is no thread.
pub(crate) fn without_filter<R>(f: impl FnOnce() -> R) -> Option<R> {
    /// # Safety
    /// `what` is the triple of [`without_filter`], which waits.
    unsafe fn run<F: FnOnce() -> R, R>(what: *mut ()) {
        // SAFETY: as the caller says.
        let (f, result, errno) = unsafe { &mut *what.cast::<(Option<F>, Option<R>, c_int)>() };
        *result = f.take().map(|f| f());
        // SAFETY: the calling thread's own.
        *errno = unsafe { *libc::__errno_location() };
    }
    fn runner<F: FnOnce() -> R, R>(_: &(Option<F>, Option<R>, c_int)) -> unsafe fn(*mut ()) {
        run::<F, R>
    }
    let mut what = (Some(f), None, 0);
    // Functions have the same addresses on all machines.
    let (run, at) = (runner(&what) as usize, (&raw mut what).expose_provenance());
    let (mask, id) = (mask::mask(), ids::own());
    let as_caller = move || {
        ids::act_as(id);
        // Handlers are the program's: no signal comes on our side.
        let side = side::the_programs();
        mask::set_mask(mask);
        // SAFETY: the function above, for the caller of `without_filter`, which waits there and does not touch it.
        unsafe {
            let run = std::mem::transmute::<usize, unsafe fn(*mut ())>(run);
            run(std::ptr::with_exposed_provenance_mut(at));
        }
        mask::block();
        drop(side);
    };
    // All processes that the program starts are machine 0's children, with its descriptors.
    let machine = if table::is_explicit() { side::own_machine() } else { 0 };
    // The function runs with the caller's mask; meanwhile the caller takes no signal in its place.
    let own_mask = mask::block();
    let has_run = side::at(machine, move || {
        let (promise, done) = trust::promise();
        let thread = std::thread::Builder::new().spawn(move || {
            as_caller();
            promise.keep(());
        });
        thread.is_ok() && done.wait().is_ok()
    });
    mask::set_mask(own_mask);
    let (_, result, errno) = what;
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = if has_run { errno } else { libc::EAGAIN } };
    result
}

/// Whether the calling thread cannot start a process: where the program names its shared memory, machine 0, whose child
/// that would be, does not have the arguments.
fn is_refused(name: &'static str) -> bool {
    let is_refused = table::is_explicit() && side::own_machine() != 0;
    if is_refused {
        refused::refuse_other(name, "it in a thread of the first machine, or --region auto");
        // SAFETY: the calling thread's own.
        unsafe { *libc::__errno_location() = libc::ENOTSUP };
    }
    is_refused
}

/// The C library's functions that start a process: `name(types) -> type, result without a thread, result if refused`.
macro_rules! starts_process {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty, $failed:expr, $refused:expr;)*) => {$(
        /// The C library's function.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            let start = || real!($name: fn($($type),*) -> $result $(, $argument)*);
            match side::is_machine_in_program() {
                true if is_refused(stringify!($name)) => $refused,
                true => without_filter(start).unwrap_or($failed),
                false => start(),
            }
        }
    )*};
}

starts_process! {
    posix_spawn(process: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int, libc::EAGAIN, libc::ENOTSUP;
    posix_spawnp(process: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int, libc::EAGAIN, libc::ENOTSUP;
    system(command: *const c_char) -> c_int, -1, -1;
    popen(command: *const c_char, kind: *const c_char) -> *mut c_void, std::ptr::null_mut(),
        std::ptr::null_mut();
}
