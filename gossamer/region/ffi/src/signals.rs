//! Signals. Those of the program come to machine 0, as its terminal and its timers are there: its threads take them
//! there as in one process, and a thread of another machine that waits for one (`sigwait`) waits there. Actions are the
//! same on all machines. Threads that are not the program's block all signals: a handler may touch a page that they
//! serve.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libc::{pid_t, sigaction as Action, siginfo_t, sigset_t, timespec};

use crate::mask::{self, ENDING, Mask, OF_FAULTS, mask_of, set_of};
use crate::real::real;
use crate::{block, side, ties, timer, trap};

fn is_function(handler: usize) -> bool {
    handler != libc::SIG_DFL && handler != libc::SIG_IGN
}

/// Returns what this machine has in place of a handler of the program. All machines are told to end together: machine 0
/// alone runs its handler for that.
fn handler_here(signal: c_int, handler: usize) -> usize {
    if is_function(handler) && !OF_FAULTS.contains(&signal) {
        side::note_handler();
    }
    match handler {
        libc::SIG_DFL | libc::SIG_IGN => handler,
        _ if ENDING.contains(&signal) && side::own_machine() != 0 => libc::SIG_IGN,
        // SIGSYS is our own.
        _ if block::are_on() && signal != libc::SIGSYS => {
            if let Some(to) = place_of(signal) {
                to.store(handler, Ordering::SeqCst);
            }
            relay as *const () as usize
        }
        _ => handler,
    }
}

/// Handlers of the program by signal, where its threads may move.
static RELAYED: [AtomicUsize; 65] = [const { AtomicUsize::new(0) }; 65];

fn place_of(signal: c_int) -> Option<&'static AtomicUsize> {
    RELAYED.get(usize::try_from(signal).ok()?)
}

fn relayed(signal: c_int) -> usize {
    place_of(signal).map_or(0, |handler| handler.load(Ordering::SeqCst))
}

/// Calls the program's handler, in which its thread does not move. One of a fault may throw.
extern "C-unwind" fn relay(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: a handler of the program; one that takes the signal alone does not look at the others.
    let handler = unsafe {
        std::mem::transmute::<usize, extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void)>(relayed(signal))
    };
    ties::in_handler(|| handler(signal, info, context));
}

/// Returns the program's handler in place of ours; `before` is what that was before the last change.
fn unrelayed(handler: usize, before: usize) -> usize {
    if handler == relay as *const () as usize { before } else { handler }
}

/// Sets the program's action of a signal that this library takes.
fn set_behind_own(action: *const Action, before: *mut Action) -> c_int {
    // SAFETY: the caller's, or null.
    let (action, before) = unsafe { (action.as_ref(), before.as_mut()) };
    let handler = trap::exchange_handler(action.map(|action| action.sa_sigaction));
    if let Some(before) = before {
        // SAFETY: zeros are an action.
        *before = unsafe { std::mem::zeroed() };
        before.sa_sigaction = handler;
    }
    0
}

type ActionWords = [u64; size_of::<Action>() / 8];

/// Actions other than the default as `main` was to begin.
static EARLY: OnceLock<Vec<(c_int, ActionWords)>> = OnceLock::new();

/// Records the actions that constructors have set; before the runtime starts.
pub(crate) fn note() {
    let action = |signal: c_int| {
        let mut words: ActionWords = [0; size_of::<Action>() / 8];
        let action = (&raw mut words).cast::<Action>();
        let done = set(signal, ptr::null(), action);
        // SAFETY: the words of an action.
        let handler = unsafe { (*action).sa_sigaction };
        if done == 0 && is_function(handler) && !OF_FAULTS.contains(&signal) {
            side::note_handler();
        }
        (done == 0 && handler != libc::SIG_DFL).then_some((signal, words))
    };
    EARLY.get_or_init(|| (1..=libc::SIGRTMAX()).filter_map(action).collect());
}

/// Whether the program handles a signal that comes from outside of its threads.
pub(crate) fn has_handlers() -> bool {
    /// The first of those that the C library may keep for itself.
    const REAL_TIME: c_int = 32;
    let handles = |signal: c_int| {
        let mut action = std::mem::MaybeUninit::<Action>::zeroed();
        // SAFETY: zeros are an action, which the call fills.
        let handler = unsafe {
            set(signal, ptr::null(), action.as_mut_ptr());
            action.assume_init().sa_sigaction
        };
        is_function(handler)
    };
    (1..REAL_TIME)
        .chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
        .any(|signal| !OF_FAULTS.contains(&signal) && handles(signal))
}

/// In a fiber of machine 0: has the other machines take these actions.
pub(crate) fn hand_over() {
    for (signal, words) in EARLY.get().into_iter().flatten().copied() {
        // Machine 0 has them, but where threads may move.
        for machine in u16::from(!block::are_on())..side::machines() {
            side::from_worker(machine, move || {
                set_here(signal, words, ptr::null_mut());
            });
        }
    }
}

fn set(signal: c_int, action: *const Action, before: *mut Action) -> c_int {
    if trap::takes(signal) {
        return set_behind_own(action, before);
    }
    real!(sigaction: fn(c_int, *const Action, *mut Action) -> c_int, signal, action, before)
}

fn set_here(signal: c_int, mut words: ActionWords, before: *mut Action) -> c_int {
    // SAFETY: the words of an action.
    let action = unsafe { &mut *(&raw mut words).cast::<Action>() };
    action.sa_sigaction = handler_here(signal, action.sa_sigaction);
    // SAFETY: a set.
    action.sa_mask = mask::blockable(mask::of_program(unsafe { mask_of(&raw const action.sa_mask) }));
    set(signal, (&raw const words).cast(), before)
}

/// The C library's function, for all machines.
///
/// # Safety
/// As for the C library's function, here and in all other functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(signal: c_int, action: *const Action, before: *mut Action) -> c_int {
    if timer::takes(signal) {
        return fail(libc::EINVAL);
    }
    let relayed = relayed(signal);
    // SAFETY: the caller's, or null.
    let own = || unsafe { before.as_mut() }.map(|own| own.sa_sigaction = unrelayed(own.sa_sigaction, relayed));
    if action.is_null() || !side::is_machine_in_program() {
        let done = set(signal, action, before);
        own();
        return done;
    }
    // SAFETY: the caller's; functions of the program have the same addresses on all machines.
    let words = unsafe { action.cast::<ActionWords>().read_unaligned() };
    let done = set_here(signal, words, before);
    if done == 0 {
        own();
        side::on_others(move || {
            set_here(signal, words, ptr::null_mut());
        });
    }
    done
}

/// See [`sigaction`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: *mut c_void) -> *mut c_void {
    fn set(signal: c_int, handler: *mut c_void) -> *mut c_void {
        if trap::takes(signal) {
            return ptr::with_exposed_provenance_mut(trap::exchange_handler(Some(handler.expose_provenance())));
        }
        real!(signal: fn(c_int, *mut c_void) -> *mut c_void, signal, handler)
    }
    fn set_here(signal: c_int, handler: usize) -> *mut c_void {
        set(signal, ptr::with_exposed_provenance_mut(handler_here(signal, handler)))
    }
    if timer::takes(signal) {
        fail(libc::EINVAL);
        return ptr::without_provenance_mut(libc::SIG_ERR);
    }
    if !side::is_machine_in_program() {
        return set(signal, handler);
    }
    let (handler, relayed) = (handler.expose_provenance(), relayed(signal));
    let before = set_here(signal, handler);
    let before = ptr::with_exposed_provenance_mut::<c_void>(unrelayed(before.expose_provenance(), relayed));
    if before.addr() != libc::SIG_ERR {
        side::on_others(move || {
            set_here(signal, handler);
        });
    }
    before
}

/// Signal, or 0 and the error; and what is known of it.
type Came = (c_int, c_int, [u64; size_of::<siginfo_t>() / 8]);

/// Waits for a signal of this process.
fn wait_here(mask: Mask, time: Option<Duration>) -> Came {
    let set = set_of(mask);
    let time = time.map(|time| timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    let mut info = [0; size_of::<siginfo_t>() / 8];
    let came = real!(
        sigtimedwait: fn(*const sigset_t, *mut siginfo_t, *const timespec) -> c_int,
        &raw const set, (&raw mut info).cast(), time
    );
    let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
    if came < 0 { (0, error, info) } else { (came, 0, info) }
}

/// The same, in a fiber of machine 0.
fn wait_in_thread(mask: Mask, time: Option<Duration>) -> Came {
    let (promise, came) = trust::promise();
    let failed = (0, libc::EAGAIN, [0; size_of::<siginfo_t>() / 8]);
    match std::thread::Builder::new().spawn(move || promise.keep(wait_here(mask, time))) {
        Ok(_) => came.wait().unwrap_or(failed),
        Err(_) => failed,
    }
}

/// On a machine other than 0: waits for a signal of machine 0, or of this one, where a thread may have raised it or a
/// timer of its own sends it.
fn wait_here_and_there(mask: Mask, time: Option<Duration>) -> Came {
    const SLICE: Duration = Duration::from_millis(50);
    let end = time.and_then(|time| Instant::now().checked_add(time));
    loop {
        let own = wait_here(mask, Some(Duration::ZERO));
        if own.0 != 0 {
            return own;
        }
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let slice = left.map_or(SLICE, |left| left.min(SLICE));
        let came = side::at(0, move || wait_in_thread(mask, Some(slice)));
        if came.0 != 0 || came.1 != libc::EAGAIN || left == Some(slice) {
            return came;
        }
    }
}

/// The C library's function; on any machine it waits for signals of machine 0, too.
///
/// # Safety
/// See [`sigaction`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigtimedwait(set: *const sigset_t, info: *mut siginfo_t, time: *const timespec) -> c_int {
    if !side::is_machine_in_program() || side::own_machine() == 0 {
        return real!(
            sigtimedwait: fn(*const sigset_t, *mut siginfo_t, *const timespec) -> c_int, set, info, time
        );
    }
    // SAFETY: the caller's; a time may be absent.
    let (mask, time) = unsafe { (mask::of_program(mask_of(set)), time.as_ref()) };
    if time.is_some_and(|time| !side::is_time(time)) {
        return fail(libc::EINVAL);
    }
    let time = time.map(|time| Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec as u32));
    let (came, error, words) = wait_here_and_there(mask, time);
    if came == 0 {
        return fail(error);
    }
    if !info.is_null() {
        // SAFETY: the caller's.
        unsafe { info.cast::<[u64; size_of::<siginfo_t>() / 8]>().write_unaligned(words) };
    }
    came
}

fn fail(errno: c_int) -> c_int {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// See [`sigtimedwait`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) -> c_int {
    // SAFETY: as the caller says.
    unsafe { sigtimedwait(set, info, ptr::null()) }
}

/// See [`sigtimedwait`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigwait(set: *const sigset_t, signal: *mut c_int) -> c_int {
    loop {
        // SAFETY: as the caller says.
        match unsafe { sigtimedwait(set, ptr::null_mut(), ptr::null()) } {
            -1 => match std::io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                error => return error.unwrap_or(libc::EINVAL),
            },
            came => {
                // SAFETY: the caller's.
                unsafe { signal.write(came) };
                return 0;
            }
        }
    }
}

/// The C library's function: on all machines, machine 0's process.
#[unsafe(no_mangle)]
pub extern "C" fn getpid() -> pid_t {
    match is_elsewhere() {
        true => first().0,
        false => side::process().cast_signed(),
    }
}

/// See [`getpid`].
#[unsafe(no_mangle)]
pub extern "C" fn getppid() -> pid_t {
    match is_elsewhere() {
        true => first().1,
        false => parent(),
    }
}

fn parent() -> pid_t {
    // SAFETY: it touches no memory.
    unsafe { libc::syscall(libc::SYS_getppid) as pid_t }
}

/// Whether the caller is a thread of the program on another machine than 0.
fn is_elsewhere() -> bool {
    side::is_machine_in_program() && side::own_machine() != 0
}

/// Returns machine 0's process and its parent.
fn first() -> (pid_t, pid_t) {
    static FIRST: OnceLock<(pid_t, pid_t)> = OnceLock::new();
    if let Some(first) = FIRST.get() {
        return *first;
    }
    // Not within the cell's closure: a handler may ask for it meanwhile.
    let first = side::at(0, || (side::process().cast_signed(), parent()));
    *FIRST.get_or_init(|| first)
}

/// The C library's function; a signal that a thread of any machine sends goes out from machine 0, which is the process
/// that the program knows.
#[unsafe(no_mangle)]
pub extern "C" fn kill(process: pid_t, signal: c_int) -> c_int {
    fn send(process: pid_t, signal: c_int) -> c_int {
        real!(kill: fn(pid_t, c_int) -> c_int, process, signal)
    }
    if !is_elsewhere() {
        return send(process, signal);
    }
    let error = side::at(0, move || match send(process, signal) {
        0 => 0,
        _ => std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL),
    });
    if error == 0 { 0 } else { fail(error) }
}

/// Functions of the C library with a set of signals that the thread then blocks, or an absent one.
macro_rules! with_mask {
    ($($name:ident($($before:ident: $before_type:ty,)* [$set:ident] $(, $after:ident: $after_type:ty)*);)*) => {$(
        /// The C library's function; SIGSYS is not blocked.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($before: $before_type,)* $set: *const sigset_t $(, $after: $after_type)*
        ) -> c_int {
            // SAFETY: null, or the caller's set.
            let set = (!$set.is_null()).then(|| mask::blockable(mask::of_program(unsafe { mask_of($set) })));
            let $set = set.as_ref().map_or(ptr::null(), ptr::from_ref);
            real!(
                $name: fn($($before_type,)* *const sigset_t $(, $after_type)*) -> c_int,
                $($before,)* $set $(, $after)*
            )
        }
    )*};
}

with_mask! {
    pthread_sigmask(how: c_int, [set], before: *mut sigset_t);
    sigprocmask(how: c_int, [set], before: *mut sigset_t);
    sigsuspend([set]);
    ppoll(files: *mut c_void, count: libc::nfds_t, time: *const timespec, [set]);
    pselect(count: c_int, read: *mut c_void, write: *mut c_void, other: *mut c_void, time: *const timespec, [set]);
    epoll_pwait(epoll: c_int, events: *mut c_void, count: c_int, ms: c_int, [set]);
}
