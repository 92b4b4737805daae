//! Hosts (`--move asked`): plain threads of the C library that run the program's threads in blocks (`block.rs`). A host
//! changes the thread pointer together with the stack: where the program's code runs, the thread pointer is the
//! block's; on our side it is the host's. So the variables of our code that say on which side a thread is are two, and
//! each is right where it is read.
//!
//! A thread crosses to its host's side with all signals blocked: a handler of the program would find the host's
//! variables there. Where the host waits, it returns to the program's side for a moment, for handlers.
//!
//! Here: crossings, in both directions. Not here: threads without a block (`side.rs`).
//!
//! Invariant: the host's thread pointer is its own whenever it is not in [`visit`].

use std::cell::Cell;
use std::ffi::c_int;
use std::ops::Range;

use context::stack::Stack;
use context::{Context, Transfer};

use crate::arithmetic::Arithmetic;
use crate::mask::{self, Mask};
use crate::words;

thread_local! {
    /// Whether these are the variables of a block.
    static IS_BLOCK: Cell<bool> = const { Cell::new(false) };
    /// In a block: where the thread's host waits, while the thread is in the program's code.
    static HOST: Cell<Option<Context>> = const { Cell::new(None) };
    /// In a host: where its thread waits for an errand.
    static PROGRAM: Cell<Option<Program>> = const { Cell::new(None) };
}

struct Program {
    context: Context,
    /// The thread pointer of its block.
    pointer: usize,
    /// Signals that it blocks.
    mask: Mask,
}

/// Work on our side.
#[derive(Clone, Copy)]
struct Errand {
    run: unsafe fn(*mut ()),
    what: *mut (),
}

/// A thread's reason to cross to its host's side.
#[derive(Clone, Copy)]
enum Reason {
    Errand(Errand),
    /// Its function has ended, with this result, and this arithmetic.
    Ends(usize, Arithmetic),
    /// It goes to this machine.
    Departs(u16),
}

struct Crossing {
    reason: Reason,
    /// The thread's, changed by the errand.
    errno: c_int,
    /// Signals that the thread blocks.
    mask: Mask,
}

/// News for a thread that has departed.
struct Arrival {
    /// 0: it has arrived; or the error for which it has not gone.
    errno: c_int,
    words: ThreadWords,
}

/// Words that our code has for a thread on both sides, for the program's side.
#[derive(Clone, Copy)]
pub(crate) struct ThreadWords {
    pub(crate) id: u64,
    pub(crate) noted: usize,
    pub(crate) record: usize,
    /// Puts them where our code finds them on the program's side.
    pub(crate) put: fn(ThreadWords),
}

/// A thread that its host does not run any more.
pub(crate) enum Left {
    /// Its function has ended, with this result; it blocks these signals, and has this arithmetic.
    Ended(usize, Mask, Arithmetic),
    /// It waits there, and goes to this machine.
    Departs(Context, u16),
}

/// Arguments with which a thread in a block begins.
struct Entry {
    function: usize,
    argument: usize,
    words: ThreadWords,
}

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".hidden gossamer_region_visit",
    ".globl gossamer_region_visit",
    ".type gossamer_region_visit, @function",
    "gossamer_region_visit:",
    ".cfi_startproc",
    "push rcx", // the host's thread pointer
    ".cfi_adjust_cfa_offset 8",
    "wrfsbase rdx",
    "call jump_fcontext",
    "pop rcx",
    ".cfi_adjust_cfa_offset -8",
    "wrfsbase rcx",
    "ret",
    ".cfi_endproc",
    ".size gossamer_region_visit, . - gossamer_region_visit",
);

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    /// Resumes `to`, with the thread pointer `program`; on return it is `own`.
    fn gossamer_region_visit(to: Context, data: usize, program: usize, own: usize) -> Transfer;
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn gossamer_region_visit(_: Context, _: usize, _: usize, _: usize) -> Transfer {
    unreachable!("blocks are for x86-64")
}

/// Goes to the program's side, until it crosses back.
///
/// # Safety
/// `to` waits in the block with this thread pointer, and no other host visits it.
unsafe fn visit(to: Context, data: usize, pointer: usize) -> Transfer {
    // SAFETY: as the caller says.
    unsafe { gossamer_region_visit(to, data, pointer, thread_pointer()) }
}

/// Returns the calling thread's pointer, at which its record begins.
#[cfg(target_arch = "x86_64")]
pub(crate) fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: it reads the record's first word.
    unsafe { std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(readonly, nostack)) };
    pointer
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn thread_pointer() -> usize {
    unreachable!("blocks are for x86-64")
}

/// Whether the calling thread is in the program's code, in a block.
pub(crate) fn is_in_block() -> bool {
    IS_BLOCK.get()
}

/// From the program's code in a block: whether [`depart`] would find the thread's host.
pub(crate) fn may_cross() -> bool {
    let host = HOST.take();
    let may = host.is_some();
    HOST.set(host);
    may
}

/// From the program's code in a block: blocks signals, and returns where the host waits. None: the thread is in no
/// block, or at its end.
fn take_host() -> Option<(Context, Mask)> {
    if !IS_BLOCK.get() {
        return None;
    }
    let before = mask::block();
    let host = HOST.take();
    if host.is_none() {
        mask::set_mask(before);
    }
    Some((host?, before))
}

fn errno() -> &'static mut c_int {
    // SAFETY: the calling thread's own, used at once.
    unsafe { &mut *libc::__errno_location() }
}

/// From the program's code: has the host do an errand, if the thread is in a block. `false`: it is not, or the thread
/// is on its host's side.
///
/// # Safety
/// `run` may be called with `what`, on another stack.
pub(crate) unsafe fn do_errand(run: unsafe fn(*mut ()), what: *mut (), open: Option<Mask>) -> bool {
    let Some((mut host, before)) = take_host() else { return false };
    let reason = Reason::Errand(Errand { run, what });
    let mut crossing = Crossing { reason, errno: *errno(), mask: open.unwrap_or(before) };
    let mut data = (&raw mut crossing).expose_provenance();
    loop {
        // SAFETY: a host waits there for this thread, and comes back.
        let back = unsafe { host.resume(data) };
        if back.data == 0 {
            HOST.set(Some(back.context));
            break;
        }
        // The host waits, and lets handlers of signals run.
        // SAFETY: `let_signals_in` has put it there, and waits.
        let open = unsafe { *std::ptr::with_exposed_provenance::<Mask>(back.data) };
        HOST.set(Some(back.context));
        mask::set_mask(open);
        mask::block();
        host = HOST.take().unwrap_or_else(|| std::process::abort());
        data = 0;
    }
    *errno() = crossing.errno;
    mask::set_mask(before);
    true
}

/// From the program's code: ends the thread's function, if it is in a block.
pub(crate) fn leave(result: usize) {
    let Some((host, mask)) = take_host() else { return };
    let reason = Reason::Ends(result, Arithmetic::of_this_thread());
    let crossing = Crossing { reason, errno: 0, mask };
    // SAFETY: the host waits there, and does not come back.
    unsafe { host.resume((&raw const crossing).expose_provenance()) };
    std::process::abort()
}

/// From the program's code in a block, with signals blocked: goes to another machine, where it calls `arrived` first,
/// and they are blocked still. Returns 0, or the error for which it is still here. None: the thread is in no block.
pub(crate) fn depart(to: u16, arrived: impl FnOnce()) -> Option<c_int> {
    let (host, mask) = take_host()?;
    let crossing = Crossing { reason: Reason::Departs(to), errno: 0, mask };
    let arithmetic = Arithmetic::of_this_thread(); // its flags are not on the stack
    // SAFETY: a host waits there for this thread; one of the other machine comes back.
    let back = unsafe { host.resume((&raw const crossing).expose_provenance()) };
    // SAFETY: `go_on` has put it there, and waits.
    let Arrival { errno, words } = unsafe { std::ptr::read(std::ptr::with_exposed_provenance(back.data)) };
    HOST.set(Some(back.context));
    (words.put)(words);
    arithmetic.take_over();
    begin_locale();
    arrived();
    Some(errno)
}

/// On the host's side: goes on at `program`, and does its errands. `Ok`: it has none, and waits there.
fn serve(mut program: Context, mut data: usize, pointer: usize) -> Result<Context, Left> {
    loop {
        // SAFETY: this host's thread.
        let left = unsafe { visit(program, data, pointer) };
        if left.data == 0 {
            return Ok(left.context);
        }
        // SAFETY: `do_errand`, `leave` or `depart` has put it there, and waits.
        let crossing = unsafe { &mut *std::ptr::with_exposed_provenance_mut::<Crossing>(left.data) };
        let mask = crossing.mask;
        let Errand { run, what } = match crossing.reason {
            Reason::Errand(errand) => errand,
            Reason::Ends(result, arithmetic) => return Err(Left::Ended(result, mask, arithmetic)),
            Reason::Departs(to) => return Err(Left::Departs(left.context, to)),
        };
        *errno() = crossing.errno;
        PROGRAM.set(Some(Program { context: left.context, pointer, mask }));
        // SAFETY: as the caller of `do_errand` says.
        unsafe { run(what) };
        program = PROGRAM.take().unwrap_or_else(|| std::process::abort()).context;
        crossing.errno = *errno();
        data = 0;
    }
}

/// On the host's side, amid an errand: lets handlers of signals run, in the program's code. `false`: the calling thread
/// is no host, or does no errand.
pub(crate) fn let_signals_in() -> bool {
    let Some(Program { context, pointer, mask }) = PROGRAM.take() else { return false };
    let Ok(context) = serve(context, (&raw const mask).expose_provenance(), pointer) else {
        gossamer::link::end("a handler of a signal has left a call of the C library (siglongjmp or pthread_exit)")
    };
    PROGRAM.set(Some(Program { context, pointer, mask }));
    true
}

/// The locale that threads have which have none of their own (`LC_GLOBAL_LOCALE`).
pub(crate) const OF_ALL_THREADS: libc::locale_t = std::ptr::without_provenance_mut(usize::MAX);

/// In a block that is new, or has come to another machine: has the C library find this machine's tables of the
/// program's locale.
fn begin_locale() {
    // SAFETY: no locale to free.
    unsafe { libc::uselocale(OF_ALL_THREADS) };
}

/// On the host's side: runs a function of the program in the block with this thread pointer, on this stack, until the
/// thread leaves.
///
/// # Safety
/// `stack` is memory that no other code uses meanwhile.
pub(crate) unsafe fn run(
    pointer: usize,
    stack: Range<usize>,
    words: ThreadWords,
    function: usize,
    argument: usize,
) -> Left {
    extern "C" fn enter(transfer: Transfer) -> ! {
        // SAFETY: `run` has put it there, and waits.
        let Entry { function, argument, words } =
            unsafe { std::ptr::read(std::ptr::with_exposed_provenance::<Entry>(transfer.data)) };
        HOST.set(Some(transfer.context));
        words::words().is_in_program.set(true);
        (words.put)(words);
        if !IS_BLOCK.replace(true) {
            begin_locale();
        }
        // SAFETY: a thread's function of the program.
        let function = unsafe { std::mem::transmute::<usize, extern "C" fn(usize) -> usize>(function) };
        leave(function(argument));
        std::process::abort()
    }
    let entry = Entry { function, argument, words };
    let [top, bottom] = [stack.end, stack.start].map(std::ptr::with_exposed_provenance_mut);
    // SAFETY: as the caller says; `enter` does not return.
    let program = unsafe { Context::new(&Stack::new(top, bottom), enter) };
    until_it_leaves(program, (&raw const entry).expose_provenance(), pointer)
}

fn until_it_leaves(program: Context, data: usize, pointer: usize) -> Left {
    match serve(program, data, pointer) {
        Err(left) => left,
        // It waits for nothing.
        Ok(_) => std::process::abort(),
    }
}

/// On the host's side: has a thread that has departed go on here, until it leaves. With an error it has not gone.
///
/// # Safety
/// `program` is where it waits, in this block, and no other host goes on with it.
pub(crate) unsafe fn go_on(pointer: usize, program: Context, words: ThreadWords, errno: c_int) -> Left {
    let arrival = Arrival { errno, words };
    until_it_leaves(program, (&raw const arrival).expose_provenance(), pointer)
}

/// Address of a place where a thread waits, and back.
pub(crate) fn address_of(program: Context) -> usize {
    // SAFETY: a context is an address.
    unsafe { std::mem::transmute::<Context, usize>(program) }
}

/// # Safety
/// An address of [`address_of`], used once.
pub(crate) unsafe fn context_at(address: usize) -> Context {
    // SAFETY: as the caller says.
    unsafe { std::mem::transmute::<usize, Context>(address) }
}
