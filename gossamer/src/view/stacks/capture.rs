//! Registers and stack of another thread of this process, at one moment.
//!
//! A thread that sleeps in the kernel is left alone: the kernel tells its stack pointer and its place in the program.
//! A thread that runs is sent SIGURG, and the handler copies registers and stack into a buffer that is ready. SIGURG,
//! because its default action is none: one that comes late, or after the handler has gone, does nothing.
//!
//! Invariants, by the label that the SAFETY comments use:
//! - [copy-by-phase] `EXCHANGE.phase` is [`ASKED`] only while buffer, descriptor and handler are there. The handler
//!   writes after it has made that [`COPYING`], which it can do on the asked thread only; the asker takes the question
//!   back, or waits for [`DONE`], before it frees anything.
//! - The handler calls nothing that allocates, locks or panics: it uses atomics, `gettid` and `pread`, and keeps
//!   `errno`. It runs on the alternate stack that each worker has (`trust/src/fiber/overflow.rs`), so that a fiber at
//!   the end of its stack does not overflow it.
//! - Memory is read through `/proc/self/mem`, where an address without memory ends the copy and does not fault.
//! - A handler of the program is never replaced.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Most bytes of a stack that are copied.
const STACK_BYTES: usize = 128 << 10;
/// Time for the handler to run. A thread that has a core takes microseconds.
const HANDLER_LIMIT: Duration = Duration::from_millis(500);
/// Interval of the checks meanwhile.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// Registers that unwinding starts from.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Registers {
    pub(super) program_counter: u64,
    pub(super) stack_pointer: u64,
    pub(super) frame_pointer: u64,
    /// The link register, on processors that have one.
    pub(super) link: u64,
}

/// Registers and stack of a thread.
#[derive(Debug)]
pub(super) struct Capture {
    pub(super) registers: Registers,
    /// Memory from the stack pointer on.
    stack: Vec<u8>,
}

impl Capture {
    /// Returns the word at this address, if it was copied.
    pub(super) fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.registers.stack_pointer)?).ok()?;
        Some(u64::from_ne_bytes(*self.stack.get(at..)?.first_chunk()?))
    }
}

/// Reads memory of this process. An address without memory ends the copy.
pub(super) fn read_memory(address: u64, bytes: usize) -> Option<Vec<u8>> {
    let mut buffer = vec![0; bytes];
    let read = File::open("/proc/self/mem").ok()?.read_at(&mut buffer, address).ok()?;
    buffer.truncate(read);
    Some(buffer)
}

/// Captures a thread that sleeps in the kernel, and does not disturb it. `None` if it runs, or if the kernel does not
/// tell. The frame pointer is not known, and reads as 0.
pub(super) fn of_sleeping(thread: i32) -> Option<Capture> {
    // Other processors need registers that the kernel does not tell.
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    // "running", or numbers with the stack pointer and the program counter last.
    let read = || fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).ok();
    let line = read()?;
    let mut last = line.split_ascii_whitespace().rev().map(|word| word.strip_prefix("0x"));
    let mut register = || u64::from_str_radix(last.next()??, 16).ok();
    let (program_counter, stack_pointer) = (register()?, register()?);
    let stack = read_memory(stack_pointer, STACK_BYTES)?;
    // The copy is of one moment only if it has slept meanwhile.
    let registers = Registers { program_counter, stack_pointer, ..Registers::default() };
    (read()? == line).then_some(Capture { registers, stack })
}

/// The question to a thread, and its answer.
struct Exchange {
    /// Thread that is asked, in the upper bits, and one of the phases below; 0 if nothing is asked.
    phase: AtomicU64,
    memory: AtomicI32,
    buffer: AtomicPtr<u8>,
    copied: AtomicUsize,
    /// In the order of the fields of [`Registers`].
    registers: [AtomicU64; 4],
}

const ASKED: u64 = 1;
const COPYING: u64 = 2;
const DONE: u64 = 3;

static EXCHANGE: Exchange = Exchange {
    phase: AtomicU64::new(0),
    memory: AtomicI32::new(-1),
    buffer: AtomicPtr::new(ptr::null_mut()),
    copied: AtomicUsize::new(0),
    registers: [const { AtomicU64::new(0) }; 4],
};

fn phase(thread: i32, phase: u64) -> u64 {
    u64::from(thread.cast_unsigned()) << 2 | phase
}

/// Captures a thread by a signal.
///
/// # Errors
/// The reason why there is no answer, in words.
pub(super) fn by_signal(thread: i32) -> Result<Capture, String> {
    static ONE: Mutex<()> = Mutex::new(());
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if blocks_signal(thread) {
        return Err("its thread blocks SIGURG".to_owned());
    }
    let memory = File::open("/proc/self/mem").map_err(|error| format!("/proc/self/mem: {error}"))?;
    let handler = Handler::install()?;
    let mut stack = vec![0; STACK_BYTES];
    let exchange = &EXCHANGE;
    exchange.memory.store(memory.as_raw_fd(), Ordering::Relaxed);
    exchange.buffer.store(stack.as_mut_ptr(), Ordering::Relaxed);
    // Release: the fields above; pairs with the Acquire in `copy`.
    exchange.phase.store(phase(thread, ASKED), Ordering::Release);
    // SAFETY: sends a signal to a thread of this process, for which there is a handler.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, std::process::id().cast_signed(), thread, libc::SIGURG) == 0 };
    let start = Instant::now();
    // Acquire, here and below: pairs with the Release in `copy`.
    while exchange.phase.load(Ordering::Acquire) != phase(thread, DONE) {
        let is_over = !sent || start.elapsed() > HANDLER_LIMIT;
        if is_over
            && (exchange.phase).compare_exchange(phase(thread, ASKED), 0, Ordering::Acquire, Ordering::Acquire).is_ok()
        {
            drop(handler);
            let why = if sent { "its thread does not get to a signal handler" } else { "its thread has ended" };
            return Err(why.to_owned());
        }
        thread::sleep(LOOK_AGAIN);
    }
    exchange.phase.store(0, Ordering::Relaxed);
    drop(handler);
    stack.truncate(exchange.copied.load(Ordering::Relaxed));
    let [program_counter, stack_pointer, frame_pointer, link] =
        exchange.registers.each_ref().map(|register| register.load(Ordering::Relaxed));
    drop(one);
    Ok(Capture { registers: Registers { program_counter, stack_pointer, frame_pointer, link }, stack })
}

/// Returns whether this thread blocks SIGURG. If it begins to later, the signal stays pending, which is harmless.
fn blocks_signal(thread: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigBlk:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (libc::SIGURG - 1) != 0)
}

/// Our handler, in force while this lives.
struct Handler {
    previous: libc::sigaction,
}

impl Handler {
    /// # Errors
    /// If the program has a handler of its own.
    fn install() -> Result<Handler, String> {
        let own = || Err("the program handles SIGURG itself".to_owned());
        if !is_free(&action_now()) {
            return own();
        }
        // SAFETY: all zeros is a valid sigaction.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = copy as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: `copy` has the signature that SA_SIGINFO asks for, and does nothing that a handler may not.
        let handler = Handler { previous: unsafe { replace(&action) } };
        // The program may have installed its own a moment ago: dropping ours puts that back.
        if is_free(&handler.previous) { Ok(handler) } else { own() }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        // SAFETY: the action that was in force before.
        let ours = unsafe { replace(&self.previous) };
        if ours.sa_sigaction != copy as *const () as usize {
            // SAFETY: the action that the program has installed meanwhile.
            unsafe { replace(&ours) };
        }
    }
}

fn is_free(action: &libc::sigaction) -> bool {
    matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
}

fn action_now() -> libc::sigaction {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks only; all zeros is valid too.
    unsafe {
        libc::sigaction(libc::SIGURG, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    }
}

/// Installs an action for SIGURG, and returns the one before.
///
/// # Safety
/// As for `sigaction`: a handler has the signature that the flags say, and does only what handlers may.
unsafe fn replace(action: &libc::sigaction) -> libc::sigaction {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the caller's promise; all zeros is valid, if the call fails.
    unsafe {
        libc::sigaction(libc::SIGURG, action, before.as_mut_ptr());
        before.assume_init()
    }
}

/// The handler: answers if its thread is asked.
///
/// # Safety
/// Called by the kernel only, as SA_SIGINFO says.
unsafe extern "C" fn copy(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let exchange = &EXCHANGE;
    // SAFETY: gettid has no conditions, and the location of `errno` is the thread's own.
    let (thread, errno) = unsafe { (libc::gettid(), libc::__errno_location()) };
    let (asked, copying) = (phase(thread, ASKED), phase(thread, COPYING));
    // Acquire: pairs with the Release in `by_signal`.
    if exchange.phase.compare_exchange(asked, copying, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return;
    }
    // SAFETY: the kernel passes the context of the code that it has interrupted.
    let registers = registers(unsafe { &*context.cast::<libc::ucontext_t>() });
    let values = [registers.program_counter, registers.stack_pointer, registers.frame_pointer, registers.link];
    exchange.registers.iter().zip(values).for_each(|(register, value)| register.store(value, Ordering::Relaxed));
    let (memory, buffer) = (exchange.memory.load(Ordering::Relaxed), exchange.buffer.load(Ordering::Relaxed));
    // SAFETY: [copy-by-phase]: the buffer has so many bytes, and the descriptor is open.
    let copied = unsafe {
        let before = *errno;
        let copied = libc::pread(memory, buffer.cast(), STACK_BYTES, registers.stack_pointer.cast_signed());
        *errno = before;
        copied
    };
    exchange.copied.store(usize::try_from(copied).unwrap_or(0), Ordering::Relaxed);
    // Release: all of the answer; pairs with the Acquire in `by_signal`.
    exchange.phase.store(phase(thread, DONE), Ordering::Release);
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let register = |name: c_int| context.uc_mcontext.gregs[name as usize].cast_unsigned();
    Registers {
        program_counter: register(libc::REG_RIP),
        stack_pointer: register(libc::REG_RSP),
        frame_pointer: register(libc::REG_RBP),
        link: 0,
    }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    Registers {
        program_counter: machine.pc,
        stack_pointer: machine.sp,
        frame_pointer: machine.regs[29],
        link: machine.regs[30],
    }
}
