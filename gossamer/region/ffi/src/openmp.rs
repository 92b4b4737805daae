//! OpenMP by GCC's library (libgomp). The threads of its teams are threads of the program, on all machines, and its
//! teams, tasks and barriers are memory of all machines. Only a thread's own record, of which its master has the
//! address, lies in the thread's own storage (`__thread`), which another machine does not have.
//!
//! The library writes to these records where it uses the threads of a team again. It does not for a team within
//! another one: its threads end with it. So each thread of the program runs in a team of its own, of one thread; a
//! thread that was there before the program has loaded the library enters one with each of its teams.
//! Only `ordered` cannot be had that way, and is refused. Locks without a name are the library's own variables: here
//! they are in the table of all machines.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::mem;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use crate::copyin::with_copies;
use crate::objects::{base_of, of_program};
use crate::real::real;
use crate::semaphore::Count;
use crate::side;
use crate::table::table;
use crate::told::tell;

/// A thread's function, with its result.
struct Work {
    function: usize,
    argument: usize,
    result: usize,
}

type Body = unsafe extern "C" fn(*mut Work);

/// The library, where the program has it.
struct Library {
    parallel: unsafe extern "C" fn(Body, *mut Work, c_uint, c_uint),
    set_num_threads: unsafe extern "C" fn(c_int),
    max_threads: unsafe extern "C" fn() -> c_int,
    active_level: unsafe extern "C" fn() -> c_int,
    max_active_levels: unsafe extern "C" fn() -> c_int,
    /// Where it is loaded.
    base: Option<usize>,
}

thread_local! {
    /// Whether the thread is in a team of its own.
    static IS_IN_TEAM: Cell<bool> = const { Cell::new(false) };
}

/// Returns the library, once all machines have it.
fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    let look = || {
        type Ask = unsafe extern "C" fn() -> c_int;
        let (parallel, set_num_threads) = (of_program(c"GOMP_parallel")?, of_program(c"omp_set_num_threads")?);
        let [max_threads, active_level, max_active_levels] = [
            of_program(c"omp_get_max_threads")?,
            of_program(c"omp_get_active_level")?,
            of_program(c"omp_get_max_active_levels")?,
        ];
        // SAFETY: functions of these names have these types in all versions of the library.
        unsafe {
            Some(Library {
                parallel: mem::transmute::<usize, unsafe extern "C" fn(Body, *mut Work, c_uint, c_uint)>(parallel),
                set_num_threads: mem::transmute::<usize, unsafe extern "C" fn(c_int)>(set_num_threads),
                max_threads: mem::transmute::<usize, Ask>(max_threads),
                active_level: mem::transmute::<usize, Ask>(active_level),
                max_active_levels: mem::transmute::<usize, Ask>(max_active_levels),
                base: base_of(parallel),
            })
        }
    };
    match LIBRARY.get() {
        None => look().map(|found| LIBRARY.get_or_init(|| found)),
        found => found,
    }
}

/// On a worker: whether threads run in teams of their own, which have addresses of their variables on one machine.
pub(crate) fn has_teams() -> bool {
    side::machines() > 1 && library().is_some()
}

/// On the thread's own stack: has `run` call a thread's function, in a team of its own where the program has OpenMP.
/// Returns the result.
pub(crate) fn in_team(function: usize, argument: usize, run: impl FnOnce(usize, usize) -> usize) -> usize {
    let Some(library) = library().filter(|_| side::machines() > 1) else { return run(function, argument) };
    // Threads of the library itself are in a team already.
    if base_of(function) == library.base {
        IS_IN_TEAM.set(true);
        return run(function, argument);
    }
    let mut work = Work { function, argument, result: 0 };
    run(enter as *const () as usize, (&raw mut work).expose_provenance())
}

/// In the program's code: enters the team.
extern "C" fn enter(work: *mut Work) -> usize {
    /// Calls the thread's function.
    extern "C" fn body(work: *mut Work) {
        // SAFETY: the work of this thread, which waits in `in_team`; a function as threads have it.
        unsafe {
            let function = mem::transmute::<usize, extern "C" fn(usize) -> usize>((*work).function);
            (*work).result = function((*work).argument);
        }
    }
    let Some(library) = side::outside(library) else { std::process::abort() };
    IS_IN_TEAM.set(true);
    // The library has counted the processors of this machine as it was loaded, before there was a rack.
    let is_told = side::outside(|| std::env::var_os("OMP_NUM_THREADS").is_some());
    // SAFETY: functions of the library, on a thread of the program; `body` has done its work when the call returns.
    unsafe {
        if !is_told {
            (library.set_num_threads)(table().processors.load(Ordering::SeqCst).cast_signed());
        }
        (library.parallel)(body, work, 1, 0);
        IS_IN_TEAM.set(false); // destructors may follow
        (*work).result
    }
}

/// In the program's code: whether a team that is asked for with this number of threads, 0 for any, may have several.
fn may_have_several(threads: usize) -> bool {
    let Some(library) = side::outside(library) else { return threads != 1 };
    // SAFETY: functions of the library, on a thread of the program.
    unsafe {
        let is_one = threads == 0 && (library.max_threads)() == 1;
        threads != 1 && !is_one && (library.active_level)() < (library.max_active_levels)()
    }
}

/// In the program's code: starts a team from a team of the calling thread's own.
fn in_own_team<R>(start: impl FnOnce() -> R) -> R {
    /// # Safety
    /// `work` is the pair of [`in_own_team`], which waits.
    unsafe extern "C" fn body<F: FnOnce() -> R, R>(work: *mut Work) {
        // SAFETY: as the caller says.
        let (start, result) = unsafe { &mut *work.cast::<(Option<F>, Option<R>)>() };
        *result = start.take().map(|start| start());
    }
    if IS_IN_TEAM.get() || !side::is_machine_in_program() || side::machines() == 1 {
        return start();
    }
    let Some(library) = side::outside(library) else { return start() };
    IS_IN_TEAM.set(true);
    let mut work = (Some(start), None);
    // SAFETY: a function of the library, on a thread of the program; `body` has done its work when the call returns.
    unsafe { (library.parallel)(body_of(&work), (&raw mut work).cast(), 1, 0) };
    IS_IN_TEAM.set(false);
    return work.1.unwrap_or_else(|| std::process::abort());

    fn body_of<F: FnOnce() -> R, R>(_: &(Option<F>, Option<R>)) -> Body {
        body::<F, R>
    }
}

/// Beginnings of teams: of their arguments, eight at most, the second one is the address of words for the threads, and
/// the third one the number of threads.
macro_rules! teams {
    ($($name:ident)*) => {$(
        /// The library's function; thread-local variables that the team takes over reach the threads of all machines.
        ///
        /// # Safety
        /// As for the library's function.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, non_snake_case)]
        pub unsafe extern "C-unwind" fn $name(
            a: usize, given: usize, threads: usize, d: usize, e: usize, f: usize, g: usize, h: usize,
        ) -> usize {
            let start = || real!(
                $name: fn(usize, usize, usize, usize, usize, usize, usize, usize) -> usize,
                a, given, threads, d, e, f, g, h
            );
            let is_shared = side::is_machine_in_program() && side::machines() > 1;
            // `unsigned int`: the upper half of the register may have anything.
            if is_shared && may_have_several(threads as c_uint as usize) {
                return with_copies(given, || in_own_team(start));
            }
            in_own_team(start)
        }
    )*};
}

teams! {
    GOMP_parallel
    GOMP_parallel_loop_static
    GOMP_parallel_loop_dynamic
    GOMP_parallel_loop_guided
    GOMP_parallel_loop_runtime
    GOMP_parallel_loop_nonmonotonic_dynamic
    GOMP_parallel_loop_nonmonotonic_guided
    GOMP_parallel_loop_nonmonotonic_runtime
    GOMP_parallel_loop_maybe_nonmonotonic_runtime
    GOMP_parallel_reductions
    GOMP_parallel_sections
}

/// Beginnings of loops with `ordered`, where the threads of a team wake one another by their own records.
macro_rules! ordered {
    ($($name:ident)*) => {$(
        /// The library's function; refused on several machines. It has ten arguments at most.
        ///
        /// # Safety
        /// As for the library's function.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, non_snake_case)]
        pub unsafe extern "C" fn $name(
            a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: *mut c_void, h: *mut c_void,
            i: *mut c_void, j: *mut c_void,
        ) -> bool {
            if side::is_in_program() && side::machines() > 1 {
                tell("OpenMP's ordered", "a critical section, or one machine");
                // SAFETY: it ends the program.
                unsafe { libc::exit(1) };
            }
            real!(
                $name: fn(
                    usize, usize, usize, usize, usize, usize, *mut c_void, *mut c_void, *mut c_void, *mut c_void
                ) -> bool,
                a, b, c, d, e, f, g, h, i, j
            )
        }
    )*};
}

ordered! {
    GOMP_loop_ordered_static_start
    GOMP_loop_ordered_dynamic_start
    GOMP_loop_ordered_guided_start
    GOMP_loop_ordered_runtime_start
    GOMP_loop_ordered_start
    GOMP_loop_ull_ordered_static_start
    GOMP_loop_ull_ordered_dynamic_start
    GOMP_loop_ull_ordered_guided_start
    GOMP_loop_ull_ordered_runtime_start
    GOMP_loop_ull_ordered_start
}

/// Locks without a name: `start end lock`.
macro_rules! locks {
    ($($start:ident $end:ident $lock:ident;)*) => {$(
        /// The library's function, for threads of all machines.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub extern "C" fn $start() {
            if !side::is_in_program() {
                return real!($start: fn() -> ());
            }
            // SAFETY: a word of the table, which stays, and is changed here only.
            unsafe { Count::at(table().openmp.$lock.as_ptr(), 1) }.take(None);
        }

        /// The library's function, for threads of all machines.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub extern "C" fn $end() {
            if !side::is_in_program() {
                return real!($end: fn() -> ());
            }
            // SAFETY: as above.
            unsafe { Count::at(table().openmp.$lock.as_ptr(), 1) }.give();
        }
    )*};
}

locks! {
    GOMP_critical_start GOMP_critical_end critical;
    GOMP_atomic_start GOMP_atomic_end atomic;
}
