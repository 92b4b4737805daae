//! Startup before the program's `main`, and its end. Machine 0 runs `main`; the others run threads.
//!
//! The machines must load the program and its libraries at the same addresses, which they do without address
//! randomisation.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, SyncSender};

use crate::arena::{self, MODE};
use crate::descriptors::{self, Fillers};
use crate::mask::{self, Mask};
use crate::moves::Begin;
use crate::objects::{self, INIT_ARRAY_BYTES};
use crate::real::real;
use crate::{
    FAILURE_STATUS, affinity, anywhere, bind, block, callers, clocks, end_of_program, environment, exec, files, hang,
    heap, ids, listed, marks, memory, own_address, process, refused, report, safe_points, side, signals, spread,
    stopped, threads, trap, wishes,
};

/// Stack of the main function. It takes memory only where it is touched.
const STACK_BYTES: usize = 64 << 20;
/// Stack of the thread on which the runtime starts.
const RUNTIME_STACK_BYTES: usize = 8 << 20;
type Main = extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;

static MAIN: AtomicUsize = AtomicUsize::new(0);
static IS_EXPLICIT: AtomicBool = AtomicBool::new(false);

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
            // Before all handlers of the program, so that it is the last to run.
            end_of_program::register();
            start
        }
        false => main,
    };
    let init = match !mode.is_null() && is_other_machine() {
        true => without_constructors(init),
        false => init,
    };
    // `at_exit` runs the destructors, but not those of libraries that the runtime still needs.
    let rtld_fini = if mode.is_null() { rtld_fini } else { std::ptr::null_mut() };
    real!(
        __libc_start_main: fn(
            Main, c_int, *mut *mut c_char, *mut c_void, *mut c_void, *mut c_void, *mut c_void
        ) -> c_int,
        main, argc, argv, init, fini, rtld_fini, stack_end
    )
}

/// Argument of `personality` that asks for the present one.
const ASK: libc::c_ulong = 0xffff_ffff;

/// Gives processes that this one starts random addresses again. Its own stay.
fn with_random_addresses_for_others() {
    // SAFETY: neither call touches memory of this process.
    unsafe {
        let before = libc::personality(ASK);
        libc::personality((before & !libc::ADDR_NO_RANDOMIZE) as libc::c_ulong);
    }
}

/// Whether the process is a machine other than 0.
fn is_other_machine() -> bool {
    std::env::var_os(gossamer::bootstrap::MACHINE).is_some_and(|machine| machine != "0")
}

/// Keeps the program's constructors from running here: their outcome is that of machine 0, and what else they do is
/// done once. Returns the function that is to run them in a program of an older C library.
fn without_constructors(init: *mut c_void) -> *mut c_void {
    extern "C" fn nothing(_: c_int, _: *mut *mut c_char, _: *mut *mut c_char) {}
    if let Some(program) = objects::all().first()
        && let Some(bytes) = program.place_of(INIT_ARRAY_BYTES)
    {
        bind::write(program, &[(bytes.addr(), 0)]);
    }
    if init.is_null() { init } else { nothing as *const () as *mut c_void }
}

/// Executes the program again without address randomisation, if it runs with it.
fn without_random_addresses(argv: *mut *mut c_char) {
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
    arena::close();
    objects::at_start();
    let sigmask = objects::c_function(c"pthread_sigmask");
    mask::note(sigmask.unwrap_or_else(|| fail("no loaded library has the function pthread_sigmask")));
    process::note();
    signals::note();
    own_address::begin();
    affinity::note_processors();
    block::note(IS_EXPLICIT.load(Ordering::Relaxed)).unwrap_or_else(|cause| fail(&cause));
    safe_points::note(wishes::at_call);
    callers::note(Begin::run as *const () as usize);
    listed::begin();
    if !is_other_machine() {
        anywhere::begin();
    }
    marks::note(MAIN.load(Ordering::Relaxed));
    threads::note_shares().unwrap_or_else(|cause| fail(&cause));
    side::note_process();
    ids::note_first();
    trap::note(stopped::CALLS);
    with_random_addresses_for_others();
    let fillers = descriptors::fill();
    files::streams::note();
    // Programs started by this one are not machines.
    // SAFETY: no other thread runs yet.
    unsafe {
        libc::unsetenv(c"LD_PRELOAD".as_ptr());
        libc::unsetenv(c"LD_BIND_NOW".as_ptr());
        libc::unsetenv(MODE.as_ptr());
    }
    let count = argc.unsigned_abs() as usize;
    // SAFETY: `argc` arguments.
    let arguments: Vec<CString> = (0..count).map(|at| unsafe { CStr::from_ptr(*argv.add(at)) }.to_owned()).collect();
    let settings = gossamer_region::with(gossamer::builder());
    // As `bind` has the C library's own calls: a program's allocator does not know its blocks.
    gossamer::link::call_c_library();
    // The runtime's threads inherit it.
    let mask = mask::block_all_but_faults();
    if let Err(error) =
        std::thread::Builder::new().name("gossamer-end".to_owned()).spawn(end_of_program::end_when_asked)
    {
        fail(&format!("there is no thread for the end of the program: {error}"));
    }
    let (starter, first) = mpsc::sync_channel::<Box<dyn FnOnce() + Send>>(1);
    let run = move || {
        let begin = move || run_program(&arguments, mask, fillers, &starter);
        let status = gossamer::link::main_with_status(settings, begin, 1);
        if let Some(failed) = exec::become_next() {
            fail(&failed);
        }
        // Not `exit`: its work is done (`at_exit`), and the page servers of the regions have ended.
        // SAFETY: it ends the process.
        unsafe { libc::_exit(c_int::from(status)) }
    };
    if let Err(error) = std::thread::Builder::new().stack_size(RUNTIME_STACK_BYTES).spawn(run) {
        fail(&format!("there is no thread for the runtime: {error}"));
    }
    if let Ok(first) = first.recv() {
        first();
    }
    loop {
        std::thread::park();
    }
}

/// The first fiber, on machine 0. The program's first thread begins with the signals of `mask` blocked, on the thread
/// that waits at `starter`.
fn run_program(
    arguments: &[CString],
    mask: Mask,
    fillers: Fillers,
    starter: &SyncSender<Box<dyn FnOnce() + Send>>,
) -> u8 {
    let (promise, pending) = trust::promise();
    end_of_program::note(promise);
    anywhere::hand_over();
    memory::lay_out(IS_EXPLICIT.load(Ordering::Relaxed));
    let words: Vec<&[u8]> = arguments.iter().map(|word| word.as_bytes_with_nul()).collect();
    let variables: Vec<Vec<u8>> =
        std::env::vars_os().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat()).collect();
    let argv = list(&words);
    let envp = list(&variables.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let first = copy(&[words.len(), argv, envp].map(usize::to_ne_bytes).concat());
    files::streams::replace();
    fillers.release();
    if block::are_on() {
        clocks::begin(end_of_program::has_begun);
    }
    let prepared = threads::prepare(run_main as *const () as usize, first, STACK_BYTES, true, None);
    let first = prepared.and_then(|(start, _)| threads::first(start.with_mask(mask), end_of_program::end_with_threads));
    if first.is_none_or(|first| starter.send(Box::new(first)).is_err()) {
        gossamer::link::end("there is no memory for the program's first thread");
    }
    hang::watch();
    spread::begin();
    let status = pending.wait().unwrap_or(FAILURE_STATUS as u8);
    report::tell_if_asked();
    if exec::has_next() { status } else { refused::status_after(status) }
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
    environment::begin(envp);
    let status = main(argc as c_int, argv, envp);
    // SAFETY: the program has ended.
    unsafe { end_of_program::exit(status) }
}
