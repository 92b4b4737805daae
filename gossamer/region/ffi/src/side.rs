//! The side on which a thread is: in the program's code, with memory of the region, or in ours and the runtime's, with
//! memory of the process itself.
//!
//! A thread of the program has two stacks. The program's functions use one in the region, so that other threads may be
//! given pointers to it; ours run on the thread's own ([`outside`]). A page of the region may be away at any time: a
//! thread that waited for one while holding a lock of the runtime would wait for a page server that waits for the
//! lock. Where threads may move, their own stack is that of a host (`host.rs`).

use std::cell::Cell;
use std::ffi::c_int;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use context::stack::Stack;
use context::{Context, Transfer};
use gossamer::{NoRef, Place};
use serde::Serialize;
use serde::de::DeserializeOwned;
use trust::{Pending, Promise};

use crate::mask::{self, Mask};
use crate::words::words;
use crate::{arena, host};

thread_local! {
    /// Context of the thread's own stack, while it is in the program's code.
    static OWN: Cell<Option<Context>> = const { Cell::new(None) };
    /// Result of the program's function.
    static RESULT: Cell<usize> = const { Cell::new(0) };
    /// Signals that the program's code blocks, while ours blocks all.
    static OPEN: Cell<Option<Mask>> = const { Cell::new(None) };
    /// Whether the thread is a worker, whose fibers run our code.
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
    /// Stack of the program's function.
    static STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Whether the calling thread is one of the program's and in its code.
#[inline(always)]
pub(crate) fn is_in_program() -> bool {
    words().is_in_program.get()
}

/// The machine's process.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Records that this process is a machine.
pub(crate) fn note_process() {
    PROCESS.store(process(), Ordering::Relaxed);
}

/// Returns the id of the calling process. The C library's function, in the program, is machine 0's on all.
pub(crate) fn process() -> u32 {
    // SAFETY: it touches no memory.
    unsafe { libc::syscall(libc::SYS_getpid) as u32 }
}

/// Whether this process is a machine, and no child, as `vfork` makes them: they share the thread's memory.
pub(crate) fn is_machine() -> bool {
    process() == PROCESS.load(Ordering::Relaxed)
}

/// Whether the calling thread is in the program's code, in a machine.
pub(crate) fn is_machine_in_program() -> bool {
    is_in_program() && is_machine()
}

/// Whether the calling code is the program's: in one of its threads, or in a constructor before `main`.
pub(crate) fn is_programs() -> bool {
    is_in_program() || arena::is_open()
}

/// Guard: while it lives, the thread is on one side; then on the previous one.
pub(crate) struct Side(bool);

/// Puts the calling thread in our code until the guard is dropped.
fn ours() -> Side {
    Side(words().is_in_program.replace(false))
}

/// Puts the calling thread, which is on its own stack, in the program's code until the guard is dropped.
pub(crate) fn the_programs() -> Side {
    Side(words().is_in_program.replace(true))
}

impl Drop for Side {
    fn drop(&mut self) {
        words().is_in_program.set(self.0);
    }
}

/// Guard: the calling thread's `errno` is what it was when it is dropped, as of a function that has not failed.
pub(crate) struct KeptErrno(c_int);

impl KeptErrno {
    pub(crate) fn new() -> KeptErrno {
        // SAFETY: the calling thread's own.
        KeptErrno(unsafe { *libc::__errno_location() })
    }
}

impl Drop for KeptErrno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 }
    }
}

/// Runs `f` with signals blocked: handlers are the program's, and may wait for a page. On our side.
pub(crate) fn without_signals<R>(f: impl FnOnce() -> R) -> R {
    let before = mask::block();
    let result = f();
    mask::set_mask(before);
    result
}

/// Work that a thread does on its own stack, between two pieces of the program's code.
struct Errand {
    run: unsafe fn(*mut ()),
    what: *mut (),
}

/// Runs `f` on our side, on the thread's own stack.
pub(crate) fn outside<R>(f: impl FnOnce() -> R) -> R {
    /// # Safety
    /// `what` is the pair of [`outside`], which waits.
    unsafe fn run<F: FnOnce() -> R, R>(what: *mut ()) {
        // SAFETY: as the caller says.
        let (f, result) = unsafe { &mut *what.cast::<(Option<F>, Option<R>)>() };
        // Moved out of the region before it is called.
        let f = f.take();
        let done = f.map(|f| f());
        *result = done;
    }
    if !is_in_program() {
        let _ours = arena::Ours::begin();
        return f();
    }
    let own = OWN.take();
    let mut what = (Some(f), None);
    let Some(own) = own else {
        // Handlers that run while the host waits are not within what asks for it.
        let open = OPEN.take();
        // SAFETY: `run` takes the pair, whose place this function keeps.
        let is_done = unsafe { host::do_errand(runner(&what), (&raw mut what).cast(), open) };
        OPEN.set(open);
        if !is_done {
            let _side = ours(); // on its own stack already
            // SAFETY: as above.
            unsafe { runner(&what)((&raw mut what).cast()) };
        }
        return what.1.unwrap_or_else(|| std::process::abort());
    };
    let errand = Errand { run: runner(&what), what: (&raw mut what).cast() };
    // SAFETY: `run_on` waits there, on this thread, and comes back when it has done the errand.
    let back = unsafe { own.resume((&raw const errand).expose_provenance()) };
    OWN.set(Some(back.context));
    return what.1.unwrap_or_else(|| std::process::abort());

    fn runner<F: FnOnce() -> R, R>(_: &(Option<F>, Option<R>)) -> unsafe fn(*mut ()) {
        run::<F, R>
    }
}

/// Runs a function of the program on this stack, to its end, and returns its result.
///
/// # Safety
/// `bottom` to `top` is memory that no other code uses meanwhile.
pub(crate) unsafe fn run_on(bottom: usize, top: usize, function: usize, argument: usize) -> usize {
    extern "C" fn enter(transfer: Transfer) -> ! {
        // SAFETY: `run_on` has put it there, and waits.
        let [function, argument] = unsafe { *std::ptr::with_exposed_provenance::<[usize; 2]>(transfer.data) };
        OWN.set(Some(transfer.context));
        // SAFETY: a thread's function of the program.
        let function = unsafe { std::mem::transmute::<usize, extern "C" fn(usize) -> usize>(function) };
        leave(function(argument))
    }
    let start = [function, argument];
    STACK.set((bottom, top));
    let [top, bottom] = [top, bottom].map(std::ptr::with_exposed_provenance_mut);
    // SAFETY: as the caller says; `enter` does not return.
    let mut program = unsafe { Context::new(&Stack::new(top, bottom), enter) };
    let mut data = (&raw const start).expose_provenance();
    loop {
        let side = the_programs();
        // SAFETY: the context where the program left, on this thread.
        let left = unsafe { program.resume(data) };
        drop(side);
        if left.data == 0 {
            return RESULT.get();
        }
        // SAFETY: `outside` has put it there, and waits.
        unsafe {
            let Errand { run, what } = *std::ptr::with_exposed_provenance::<Errand>(left.data);
            run(what);
        }
        (program, data) = (left.context, 0);
    }
}

/// Returns the stack on which [`run_on`] has last run a function on this thread.
pub(crate) fn stack() -> Range<usize> {
    let (bottom, top) = STACK.get();
    bottom..top
}

/// Ends the program's function: the thread continues in `run_on`.
pub(crate) fn leave(result: usize) -> ! {
    host::leave(result);
    RESULT.set(result);
    if let Some(own) = OWN.take() {
        // SAFETY: `run_on` waits there, on this thread, and nothing left behind here is used again.
        unsafe { own.resume(0) };
    }
    std::process::abort()
}

/// Records that the calling thread is the worker of this machine that runs our code.
pub(crate) fn note_worker() {
    IS_WORKER.set(true);
}

/// Returns the worker of a machine that runs our code.
pub(crate) fn place(machine: u16) -> Place {
    Place { machine, worker: 0 }
}

pub(crate) fn own_machine() -> u16 {
    gossamer::rack().machine()
}

pub(crate) fn machines() -> u16 {
    gossamer::rack().machines().len() as u16
}

/// Longest piece of a wait, between which handlers of signals run: where the program has none, where it has some, and
/// where such a wait has taken [`LONG`].
const PIECE_MAX: Duration = Duration::from_millis(50);
const PIECE_WITH_HANDLERS_MAX: Duration = Duration::from_millis(2);
const PIECE_OF_LONG_WAIT_MAX: Duration = Duration::from_millis(10);
const LONG: Duration = Duration::from_secs(1);

/// Whether the program has had a handler of a signal.
static HAS_HANDLERS: AtomicBool = AtomicBool::new(false);

/// Records that the program has a handler of a signal.
pub(crate) fn note_handler() {
    HAS_HANDLERS.store(true, Ordering::Relaxed);
}

/// Returns the next piece of a wait that has taken this long so far.
fn piece_after(waited: Duration) -> Duration {
    let max = match HAS_HANDLERS.load(Ordering::Relaxed) {
        false => PIECE_MAX,
        true if waited < LONG => PIECE_WITH_HANDLERS_MAX,
        true => PIECE_OF_LONG_WAIT_MAX,
    };
    waited.clamp(Duration::from_millis(1), max)
}

/// Waits on our side for this long. `Err`: the value has not come.
fn wait<R: 'static>(pending: Box<Pending<R>>, piece: Duration) -> Result<Option<R>, Box<Pending<R>>> {
    pending.wait_timeout(piece).map(Result::ok).ok_or(pending)
}

/// From a thread of the program: calls `send`, and waits for the value that comes by the promise. `None`: none comes.
///
/// Handlers of the program may send, too, but a thread waits once at a time (`trust`). So they run between two pieces
/// of the wait, in the program's code.
pub(crate) fn wait_for<R: 'static>(send: impl FnOnce(Promise<R>)) -> Option<R> {
    let _errno = KeptErrno::new();
    // In the program's code still: a handler that ran on our side would be taken for our code.
    let before = mask::block();
    let open = OPEN.get().unwrap_or(before);
    let mut waited = outside(move || {
        let (promise, pending) = trust::promise();
        send(promise);
        wait(Box::new(pending), piece_after(Duration::ZERO))
    });
    let start = Instant::now();
    loop {
        match waited {
            Ok(value) => {
                mask::set_mask(before);
                return value;
            }
            Err(pending) => {
                if !host::let_signals_in() {
                    let program = the_programs();
                    let nested = OPEN.take();
                    mask::set_mask(open);
                    mask::block();
                    OPEN.set(nested);
                    drop(program);
                }
                let piece = piece_after(start.elapsed());
                waited = outside(move || wait(pending, piece));
            }
        }
    }
}

/// Same as [`outside`], with signals blocked but between two pieces of waits ([`wait_for`]).
pub(crate) fn outside_without_signals<R>(f: impl FnOnce() -> R) -> R {
    let before = mask::block();
    let nested = OPEN.replace(Some(OPEN.get().unwrap_or(before)));
    let result = outside(f);
    OPEN.set(nested);
    mask::set_mask(before);
    result
}

/// Runs `f` in a fiber of a machine, and waits for it. From a thread of the program, or a fiber of the worker.
pub(crate) fn at<R, F>(machine: u16, f: F) -> R
where
    R: NoRef + Send + 'static,
    F: FnOnce() -> R + NoRef + Send + 'static,
{
    let own = own_machine();
    if IS_WORKER.get() {
        return if machine == own { f() } else { from_worker(machine, f) };
    }
    let result = wait_for(move |promise| {
        let ask = move || promise.keep(if machine == own { f() } else { from_worker(machine, f) });
        drop(trust::spawn_on(&place(own).trustee(), ask));
    });
    result.unwrap_or_else(|| has_panicked(machine))
}

/// Ends the program: what a thread asked of a machine has no result.
fn has_panicked(machine: u16) -> ! {
    outside(|| gossamer::link::end(&format!("what a thread asked of machine {machine} has panicked")))
}

/// Same as [`at`] from a thread of the program, with an argument and a result that are longer than a request may be.
pub(crate) fn at_with<A, R, F>(machine: u16, f: F, argument: A) -> R
where
    F: FnOnce(A) -> R + NoRef + Send + 'static,
    A: Serialize + DeserializeOwned + Send + 'static,
    R: Serialize + DeserializeOwned + Send + 'static,
{
    let _errno = KeptErrno::new();
    let mut fiber = None;
    let is_done = wait_for(|promise| {
        let ask = move |argument| {
            let result = match machine == own_machine() {
                true => f(argument),
                false => from_worker_with(machine, f, argument),
            };
            promise.keep(());
            result
        };
        fiber = Some(gossamer::spawn_with(place(own_machine()), ask, argument));
    });
    let result = || without_signals(|| is_done.and(fiber).and_then(|fiber| fiber.join().ok()));
    outside(result).unwrap_or_else(|| has_panicked(machine))
}

/// From a thread of the program: calls `f` on all other machines.
pub(crate) fn on_others<F: FnOnce() + NoRef + Send + Copy + 'static>(f: F) {
    let own = own_machine();
    (0..machines()).filter(|machine| *machine != own).for_each(|machine| at(machine, f));
}

/// Same as [`at`], from a fiber.
pub(crate) fn from_worker<R, F>(machine: u16, f: F) -> R
where
    R: NoRef + Send + 'static,
    F: FnOnce() -> R + NoRef + Send + 'static,
{
    match gossamer::spawn_on(place(machine), f).join() {
        Ok(result) => result,
        Err(_) => gossamer::link::end(&format!("what was asked of machine {machine} has panicked")),
    }
}

/// Same as [`from_worker`], on all other machines at the same time.
pub(crate) fn from_worker_on_others<F: FnOnce() + NoRef + Send + Copy + 'static>(f: F) {
    let own = own_machine();
    let others = (0..machines()).filter(|machine| *machine != own);
    let asked: Vec<_> = others.map(|machine| (machine, gossamer::spawn_on(place(machine), f))).collect();
    for (machine, asked) in asked {
        if asked.join().is_err() {
            gossamer::link::end(&format!("what was asked of machine {machine} has panicked"));
        }
    }
}

/// Same as [`from_worker`], with an argument and a result that travel serialised.
pub(crate) fn from_worker_with<A, R, F>(machine: u16, f: F, argument: A) -> R
where
    F: FnOnce(A) -> R + NoRef + Send + 'static,
    A: Serialize + DeserializeOwned + Send + 'static,
    R: Serialize + DeserializeOwned + Send + 'static,
{
    match gossamer::spawn_with(place(machine), f, argument).join() {
        Ok(result) => result,
        Err(_) => gossamer::link::end(&format!("what was sent to machine {machine} has not arrived")),
    }
}

/// Whether POSIX accepts it as a time.
pub(crate) fn is_time(time: &libc::timespec) -> bool {
    (0..1_000_000_000).contains(&time.tv_nsec)
}
