//! Startup before the program's `main`, and its end. Machine 0 runs `main`; the others run threads.
//!
//! The machines must load the program and its libraries at the same addresses, which they do without address
//! randomisation.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use trust::Promise;

use crate::mask::{self, Mask};
use crate::real::real;
use crate::stack::{GUARD_BYTES, Stack};
use crate::table::{self, table};
use crate::{ends, heap, marks, memory, report, side, threads};

/// Variable that activates this library and says how memory is shared: `auto` or `explicit`.
const MODE: &CStr = c"GOSSAMER_REGION";
/// Stack of the main function. It takes memory only where it is touched.
const STACK_BYTES: usize = 64 << 20;
/// Stack of the exit handlers.
const HANDLERS_STACK_BYTES: usize = 8 << 20;
/// Status of a machine that could not start.
const FAILURE_STATUS: c_int = 70;

type Main = extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;

static MAIN: AtomicUsize = AtomicUsize::new(0);
static IS_EXPLICIT: AtomicBool = AtomicBool::new(false);
/// Promise by which the first fiber gets the program's exit status.
static END: Mutex<Option<Promise<u8>>> = Mutex::new(None);
static STATUS: AtomicI32 = AtomicI32::new(0);
static ENDS: AtomicBool = AtomicBool::new(false);
/// Status with which [`end_when_asked`] has to end the program.
static ENDER: Mutex<Option<c_int>> = Mutex::new(None);
static END_IS_ASKED: Condvar = Condvar::new();

/// The C library's entry point, interposed by this library.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_start_main(
    main: Main,
    argc: c_int,
    argv: *mut *mut c_char,
    init: *mut c_void,
    fini: *mut c_void,
    rtld_fini: *mut c_void,
    stack_end: *mut c_void,
) -> c_int {
    // SAFETY: a name that ends with a zero; no other thread runs yet.
    let mode = unsafe { libc::getenv(MODE.as_ptr()) };
    let main = match !mode.is_null() {
        true => {
            // SAFETY: a string of the environment, which no other code changes yet.
            IS_EXPLICIT.store(unsafe { CStr::from_ptr(mode) } == c"explicit", Ordering::Relaxed);
            without_random_addresses(argv);
            MAIN.store(main as *const () as usize, Ordering::Relaxed);
            start
        }
        false => main,
    };
    real!(
        __libc_start_main: fn(
            Main, c_int, *mut *mut c_char, *mut c_void, *mut c_void, *mut c_void, *mut c_void
        ) -> c_int,
        main, argc, argv, init, fini, rtld_fini, stack_end
    )
}

/// Executes the program again without address randomisation, if it runs with it.
fn without_random_addresses(argv: *mut *mut c_char) {
    const ASK: libc::c_ulong = 0xffff_ffff;
    // SAFETY: neither call touches memory of this process.
    let before = unsafe { libc::personality(ASK) };
    if before & libc::ADDR_NO_RANDOMIZE != 0 {
        return;
    }
    // SAFETY: as above.
    let done = unsafe { libc::personality((before | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong) };
    if done >= 0 {
        let own = std::fs::read_link("/proc/self/exe")
            .ok()
            .and_then(|own| CString::new(own.into_os_string().into_vec()).ok());
        let own = own.as_deref().unwrap_or(c"/proc/self/exe");
        // SAFETY: the arguments as the system gave them.
        unsafe { libc::execv(own.as_ptr(), argv.cast_const().cast()) };
    }
    fail(&format!(
        "the system does not let this program choose its addresses (personality(ADDR_NO_RANDOMIZE): {}); in a \
         container, allow that call (docker run --security-opt seccomp=unconfined)",
        std::io::Error::last_os_error()
    ))
}

fn fail(cause: &str) -> ! {
    eprintln!("gossamer: {cause}");
    // SAFETY: it ends the process.
    unsafe { libc::_exit(FAILURE_STATUS) }
}

/// Runs in place of `main`, on each machine.
extern "C" fn start(argc: c_int, argv: *mut *mut c_char, _: *mut *mut c_char) -> c_int {
    threads::note_processors();
    marks::note(MAIN.load(Ordering::Relaxed));
    threads::note_shares().unwrap_or_else(|cause| fail(&cause));
    unsafe extern "C" {
        fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }
    side::note_process();
    // Programs started by this one are not machines.
    // SAFETY: no other thread runs yet; the handler is a function of this library.
    unsafe {
        libc::unsetenv(c"LD_PRELOAD".as_ptr());
        libc::unsetenv(c"LD_BIND_NOW".as_ptr());
        libc::unsetenv(MODE.as_ptr());
        on_exit(at_exit, std::ptr::null_mut());
    }
    let count = argc.unsigned_abs() as usize;
    // SAFETY: `argc` arguments.
    let arguments: Vec<CString> = (0..count).map(|at| unsafe { CStr::from_ptr(*argv.add(at)) }.to_owned()).collect();
    let settings = gossamer_region::with(gossamer::builder());
    // The runtime's threads inherit it.
    let mask = mask::block();
    if let Err(error) = std::thread::Builder::new().name("gossamer-end".to_owned()).spawn(end_when_asked) {
        fail(&format!("there is no thread for the end of the program: {error}"));
    }
    let status = gossamer::link::main_with_status(settings, move || run_program(&arguments, mask), 1);
    // Not `exit`: its work is done (`at_exit`), and the page servers of the regions have ended.
    // SAFETY: it ends the process.
    unsafe { libc::_exit(c_int::from(status)) }
}

/// The first fiber, on machine 0. The program's first thread begins with the signals of `mask` blocked.
fn run_program(arguments: &[CString], mask: Mask) -> u8 {
    let (promise, pending) = trust::promise();
    *END.lock().unwrap_or_else(PoisonError::into_inner) = Some(promise);
    memory::lay_out(IS_EXPLICIT.load(Ordering::Relaxed));
    let words: Vec<&[u8]> = arguments.iter().map(|word| word.as_bytes_with_nul()).collect();
    let variables: Vec<Vec<u8>> =
        std::env::vars_os().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat()).collect();
    let argv = list(&words);
    let envp = list(&variables.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let first = copy(&[words.len(), argv, envp].map(usize::to_ne_bytes).concat());
    let prepared = threads::prepare(run_main as *const () as usize, first, STACK_BYTES, true);
    if !prepared.is_some_and(|(start, _)| threads::start_here(start.with_mask(mask), Some(end_with_threads))) {
        gossamer::link::end("there is no memory for the program's first thread");
    }
    let status = pending.wait().unwrap_or(FAILURE_STATUS as u8);
    report::tell_if_asked();
    status
}

/// Copies bytes to the program's heap.
fn copy(bytes: &[u8]) -> usize {
    let Some((block, _)) = heap::allocate(bytes.len(), 1) else {
        gossamer::link::end("there is no memory for the program's arguments")
    };
    let to = std::ptr::with_exposed_provenance_mut::<u8>(block);
    // SAFETY: a block of that length, which no other code has.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    block
}

/// Makes a list of strings that ends with a null pointer, in the program's heap.
fn list(words: &[&[u8]]) -> usize {
    let addresses = words.iter().map(|word| copy(word)).chain([0]);
    copy(&addresses.flat_map(usize::to_ne_bytes).collect::<Vec<u8>>())
}

/// The program's first thread.
extern "C" fn run_main(first: *mut c_void) -> *mut c_void {
    // SAFETY: the words that `run_program` has put there, and the program's main function.
    let (main, [argc, argv, envp]) =
        unsafe { (std::mem::transmute::<usize, Main>(MAIN.load(Ordering::Relaxed)), *first.cast::<[usize; 3]>()) };
    let [argv, envp] = [argv, envp].map(std::ptr::with_exposed_provenance_mut::<*mut c_char>);
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }
    // SAFETY: no other thread reads or writes it yet.
    unsafe { environ = envp };
    let status = main(argc as c_int, argv, envp);
    // SAFETY: the program has ended.
    unsafe { exit(status) }
}

/// Ends the program after its last thread, where `main` has ended by `pthread_exit`.
fn end_with_threads() -> ! {
    let _side = side::the_programs();
    end_by_handlers(0)
}

/// On a worker of machine 0: ends the program, on a thread of its own, since `exit` first destroys the thread's
/// delegation state. Handlers run on a stack in the region, as all of the program's functions, with the signals of
/// `mask` blocked.
fn start_end(status: c_int, mask: Mask) {
    if ENDS.swap(true, Ordering::SeqCst) {
        return; // it ends already
    }
    STATUS.store(status, Ordering::SeqCst);
    let Some(stack) = Stack::new(HANDLERS_STACK_BYTES, GUARD_BYTES) else {
        gossamer::link::end("there is no memory for the program's exit handlers")
    };
    let run = move || {
        threads::be_the_last();
        mask::set_mask(mask);
        let Range { start: bottom, end: top } = stack.range();
        // SAFETY: memory that is this thread's, which ends with the program.
        unsafe { side::run_on(bottom, top, run_handlers as *const () as usize, status as usize) };
    };
    if std::thread::Builder::new().spawn(run).is_err() {
        gossamer::link::end("there is no thread for the program's exit handlers");
    }
}

extern "C" fn run_handlers(status: usize) -> usize {
    real!(exit: fn(c_int) -> (), status as c_int);
    std::process::abort()
}

/// Ends the program from a thread of any machine.
fn end_by_handlers(status: c_int) -> ! {
    let mask = mask::mask();
    side::at(0, move || start_end(status, mask));
    loop {
        std::thread::park();
    }
}

/// The C library's function, on any machine: ends the program.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exit(status: c_int) -> ! {
    if side::is_machine_in_program() {
        if threads::is_the_last() {
            // By an exit handler: the others run, and then this is the status.
            STATUS.store(status, Ordering::SeqCst);
            real!(exit: fn(c_int) -> (), status);
        }
        ends::destroy_objects();
        end_by_handlers(status);
    }
    if table::has_begun() {
        // The runtime ends this machine: exit handlers of the C library may touch variables whose pages are no longer
        // served. SAFETY: it ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
    real!(exit: fn(c_int) -> (), status);
    std::process::abort()
}

/// The C library's function, on any machine: ends the program at once.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    if side::is_machine_in_program() {
        tell_the_end(status);
    }
    // SAFETY: it ends the process.
    unsafe { libc::syscall(libc::SYS_exit_group, status) };
    std::process::abort()
}

/// Same as [`_exit`].
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}

/// Last exit handler: flushes buffers on all machines, and resumes the first fiber. Functions of the C library that
/// end the program (`err`) come here without our `exit`.
extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    if ENDS.load(Ordering::SeqCst) {
        end_of_program(STATUS.load(Ordering::SeqCst));
    }
    if side::is_machine_in_program() {
        // The C library has destroyed this thread's part of the runtime.
        *ENDER.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
        END_IS_ASKED.notify_one();
        loop {
            // SAFETY: it waits.
            unsafe { libc::pause() };
        }
    }
}

/// Thread of each machine that ends the program for a thread that cannot any more.
fn end_when_asked() {
    let asked = ENDER.lock().unwrap_or_else(PoisonError::into_inner);
    let asked = END_IS_ASKED.wait_while(asked, |asked| asked.is_none()).unwrap_or_else(PoisonError::into_inner);
    let status = asked.unwrap_or(FAILURE_STATUS);
    drop(asked);
    threads::be_the_last();
    let _side = side::the_programs();
    match side::own_machine() {
        0 => end_of_program(status),
        _ => end_by_handlers(status),
    }
}

/// Flushes buffers on all machines, and tells the end.
fn end_of_program(status: c_int) -> ! {
    {
        let _side = side::the_programs();
        // SAFETY: all streams of this process.
        unsafe { libc::fflush(std::ptr::null_mut()) };
    }
    for machine in 0..side::machines() {
        if machine != side::own_machine() {
            side::at(machine, || {
                // SAFETY: as above.
                unsafe { libc::fflush(std::ptr::null_mut()) };
            });
        }
    }
    tell_the_end(status)
}

/// Resumes the first fiber with the program's status.
fn tell_the_end(status: c_int) -> ! {
    side::at(0, move || {
        let promise = END.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(promise) = promise {
            promise.keep(status as u8);
        }
    });
    loop {
        std::thread::park();
    }
}

/// The C library's function; counts the processors of all machines.
#[unsafe(no_mangle)]
pub extern "C" fn sysconf(name: c_int) -> libc::c_long {
    match name {
        libc::_SC_NPROCESSORS_ONLN | libc::_SC_NPROCESSORS_CONF if side::is_in_program() => {
            libc::c_long::from(table().processors.load(Ordering::SeqCst))
        }
        _ => real!(sysconf: fn(c_int) -> libc::c_long, name),
    }
}
