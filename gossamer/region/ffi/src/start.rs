//! Startup before the program's `main`, and its end. Machine 0 runs `main`; the others run threads.
//!
//! The machines must load the program and its libraries at the same addresses, which they do without address
//! randomisation.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use trust::Promise;

use crate::real::real;
use crate::table::{self, table};
use crate::{heap, marks, memory, report, side, threads};

/// Variable that activates this library and says how memory is shared: `auto` or `explicit`.
const MODE: &CStr = c"GOSSAMER_REGION";
/// Stack of the main function. It takes memory only where it is touched.
const STACK_BYTES: usize = 64 << 20;
/// Status of a machine that could not start.
const FAILURE_STATUS: c_int = 70;

type Main = extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;

static MAIN: AtomicUsize = AtomicUsize::new(0);
static IS_EXPLICIT: AtomicBool = AtomicBool::new(false);
/// Promise by which the first fiber gets the program's exit status.
static END: Mutex<Option<Promise<u8>>> = Mutex::new(None);
static STATUS: AtomicI32 = AtomicI32::new(0);
static ENDS: AtomicBool = AtomicBool::new(false);

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
    // Programs started by this one are not machines.
    // SAFETY: no other thread runs yet; the handler is a function of this library.
    unsafe {
        libc::unsetenv(c"LD_PRELOAD".as_ptr());
        libc::unsetenv(c"LD_BIND_NOW".as_ptr());
        libc::unsetenv(MODE.as_ptr());
        libc::atexit(at_exit);
    }
    let count = argc.unsigned_abs() as usize;
    // SAFETY: `argc` arguments.
    let arguments: Vec<CString> = (0..count).map(|at| unsafe { CStr::from_ptr(*argv.add(at)) }.to_owned()).collect();
    let settings = gossamer_region::with(gossamer::builder());
    let status = gossamer::link::main_with_status(settings, move || run_program(&arguments), 1);
    // Not `exit`: its work is done (`at_exit`), and the page servers of the regions have ended.
    // SAFETY: it ends the process.
    unsafe { libc::_exit(c_int::from(status)) }
}

/// The first fiber, on machine 0.
fn run_program(arguments: &[CString]) -> u8 {
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
    if !prepared.is_some_and(|(start, _)| threads::start_here(start, Some(end_with_threads))) {
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
    // SAFETY: the last thread has ended, and with it the program.
    unsafe { exit(0) }
}

/// Ends the program, on a thread of machine 0 of its own, since `exit` first destroys the thread's delegation state.
fn end(status: c_int) {
    let _side = side::the_programs();
    threads::be_the_last();
    STATUS.store(status, Ordering::SeqCst);
    ENDS.store(true, Ordering::SeqCst);
    real!(exit: fn(c_int) -> (), status);
}

/// The C library's function, on any machine: ends the program.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exit(status: c_int) -> ! {
    if side::is_in_program() {
        side::at(0, move || drop(std::thread::spawn(move || end(status))));
        loop {
            std::thread::park();
        }
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
    if side::is_in_program() {
        tell_the_end(status);
    }
    // SAFETY: it ends the process.
    unsafe { libc::syscall(libc::SYS_exit_group, status) };
    std::process::abort()
}

/// Last exit handler: flushes buffers on all machines, and resumes the first fiber.
extern "C" fn at_exit() {
    if ENDS.load(Ordering::SeqCst) {
        tell_the_end(STATUS.load(Ordering::SeqCst));
    }
}

fn tell_the_end(status: c_int) -> ! {
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
