//! Traps: system calls of the program's threads that this library answers in the kernel's place.
//!
//! The C library's functions are interposed, but code of other libraries, and of the C library itself, calls the system
//! directly: a wait on a word of memory (`futex(2)`) would wait on one machine for a wake on another. Each thread of
//! the program therefore has a filter (`seccomp(2)`), which it installs before it runs the program's code. The filter
//! stops calls by their number and their address; the thread gets SIGSYS at that instruction, and the handler puts the
//! result in the register where the system would.
//!
//! Invariants
//! - Threads that are not the program's have no filter, nor have processes that the program starts (`spawn.rs`).
//! - SIGSYS is never blocked in a thread that has a filter (`mask.rs`): else the system ends the process.
//! - The filter lets through every call made by [`Call::execute`].

use std::ffi::{c_int, c_long, c_void};
use std::mem;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::{seccomp_data, siginfo_t, sock_filter, sock_fprog};

use crate::call::{Call, OPERATION, WITH_SECOND};
use crate::real::real;
use crate::{arena, side, table, ties};

/// Registers of a stopped thread: those of the call's number, its arguments and its result.
#[cfg(target_arch = "x86_64")]
mod registers {
    use std::ffi::c_long;

    use libc::{REG_R8, REG_R9, REG_R10, REG_RAX, REG_RDI, REG_RDX, REG_RSI, ucontext_t};

    use crate::call::Call;

    /// The system's number of this architecture.
    pub(super) const ARCH: u32 = 0xc000_003e;

    pub(super) fn call(context: &ucontext_t) -> Call {
        let register = |name: i32| context.uc_mcontext.gregs[name as usize];
        let arguments = [REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9].map(|name| register(name) as usize);
        Call { number: register(REG_RAX) as c_long, arguments }
    }

    pub(super) fn set_result(context: &mut ucontext_t, result: isize) {
        context.uc_mcontext.gregs[REG_RAX as usize] = result as i64;
    }
}

#[cfg(target_arch = "aarch64")]
mod registers {
    use std::ffi::c_long;

    use libc::ucontext_t;

    use crate::call::Call;

    /// The system's number of this architecture.
    pub(super) const ARCH: u32 = 0xc000_00b7;

    pub(super) fn call(context: &ucontext_t) -> Call {
        let registers = &context.uc_mcontext.regs;
        let arguments = std::array::from_fn(|at| registers[at] as usize);
        Call { number: registers[8] as c_long, arguments }
    }

    pub(super) fn set_result(context: &mut ucontext_t, result: isize) {
        context.uc_mcontext.regs[0] = result as u64;
    }
}

/// Calls that are stopped whatever their arguments are, by number, and the function that answers all stopped calls: it
/// returns the result, or an error number less than zero.
pub(crate) struct Stopped {
    pub(crate) numbers: fn() -> Vec<c_long>,
    pub(crate) answer: fn(&Call) -> isize,
}

static STOPPED: OnceLock<Stopped> = OnceLock::new();

/// Says which calls are stopped; before [`begin`].
pub(crate) fn note(stopped: Stopped) {
    STOPPED.get_or_init(|| stopped);
}

/// The handler of SIGSYS. A stopped call is a place in the program's code where any function may be called, unless the
/// call was made by a handler of the program's.
extern "C" fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    /// `si_code` of a call that a filter has stopped.
    const SYS_SECCOMP: c_int = 1;
    // SAFETY: as the system calls a handler.
    let (info_code, context_of_call) = unsafe { ((*info).si_code, &mut *context.cast::<libc::ucontext_t>()) };
    if info_code != SYS_SECCOMP {
        return pass_on(signal, info, context);
    }
    // SAFETY: the calling thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let call = registers::call(context_of_call);
    let result = STOPPED.get().map_or_else(|| call.execute(), |stopped| (stopped.answer)(&call));
    registers::set_result(context_of_call, result);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// The program's own handler of SIGSYS.
static HANDLER: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Whether calls of this machine's threads are stopped.
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed) // set before they start
}

/// Whether SIGSYS is taken by this file; then the program's handler of it is what [`exchange_handler`] has last set.
pub(crate) fn takes(signal: c_int) -> bool {
    signal == libc::SIGSYS && is_on()
}

/// Sets the program's handler of SIGSYS, for signals that no filter has sent; returns the one before.
pub(crate) fn exchange_handler(handler: Option<usize>) -> usize {
    match handler {
        Some(handler) => HANDLER.swap(handler, Ordering::SeqCst),
        None => HANDLER.load(Ordering::SeqCst),
    }
}

/// Handles a SIGSYS that no filter has sent, as the program has asked.
fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    match HANDLER.load(Ordering::SeqCst) {
        libc::SIG_IGN => {}
        libc::SIG_DFL => {
            set_action(libc::SIG_DFL);
            // SAFETY: it ends the process when this handler returns, or at once.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), signal) };
        }
        handler => {
            // SAFETY: a handler of the program; one that takes the signal alone does not look at the others.
            let handler =
                unsafe { mem::transmute::<usize, extern "C" fn(c_int, *mut siginfo_t, *mut c_void)>(handler) };
            ties::in_handler(|| handler(signal, info, context));
        }
    }
}

/// Sets the handler of SIGSYS, which may run again within itself, and lets the program's handlers in. Returns the one
/// before.
fn set_action(handler: usize) -> usize {
    // SAFETY: zeros are an action, with an empty mask.
    let [mut action, mut before]: [libc::sigaction; 2] = unsafe { mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART;
    real!(
        sigaction: fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int,
        libc::SIGSYS, &raw const action, &raw mut before
    );
    before.sa_sigaction
}

/// The filter of this machine's threads; empty where there is none.
static FILTER: OnceLock<Vec<sock_filter>> = OnceLock::new();

/// On a worker: has this machine's threads filtered from now on. The program's memory is laid out.
pub(crate) fn begin() {
    if side::machines() == 1 {
        return; // nothing is elsewhere
    }
    HANDLER.store(set_action(handle as *const () as usize), Ordering::SeqCst);
    IS_ON.store(true, Ordering::SeqCst);
    let numbers = STOPPED.get().map_or_else(Vec::new, |stopped| (stopped.numbers)());
    FILTER.get_or_init(|| filter(&ranges(), &numbers, Call::returns_to()));
}

/// Returns the addresses whose futexes are stopped; `futex.rs` knows which of them the machines share.
fn ranges() -> Vec<Range<usize>> {
    let (heap, bytes) = table::heap();
    let variables = table::variables().iter().cloned();
    [heap..heap.saturating_add(bytes), arena::pages()].into_iter().chain(variables).collect()
}

/// Installs the filter in the calling thread, which is about to run the program's code. Where that fails the program
/// ends: without it the thread would use other files than it means, or wait for ever.
pub(crate) fn filter_this_thread() {
    /// Most steps of a filter (`BPF_MAXINSNS`).
    const STEPS_MAX: usize = 4096;
    let Some(filter) = FILTER.get() else { return };
    if filter.len() > STEPS_MAX {
        gossamer::link::end(
            "the program has more libraries with variables than a filter of system calls can tell apart: link fewer, \
             or run it on one machine (--local 1)",
        );
    }
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the system reads the filter; both calls change the calling thread only.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            // Speculation of stores stays as in other threads: this filter is no wall against the thread itself.
            libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW,
            &raw const program,
        )
    };
    if installed != 0 {
        gossamer::link::end(&format!(
            "the system gives the program's threads no filter of system calls (seccomp: {}), by which those of \
             several machines have the same files and wait for each other; in a container, allow that call (docker \
             run --security-opt seccomp=unconfined), or run the program on one machine (--local 1)",
            std::io::Error::last_os_error()
        ));
    }
}

/// Offsets of what a filter may look at.
mod at {
    use super::seccomp_data;

    pub(super) const NUMBER: usize = std::mem::offset_of!(seccomp_data, nr);
    pub(super) const ARCH: usize = std::mem::offset_of!(seccomp_data, arch);
    pub(super) const INSTRUCTION: usize = std::mem::offset_of!(seccomp_data, instruction_pointer);

    pub(super) const fn argument(number: usize) -> usize {
        std::mem::offset_of!(seccomp_data, args) + 8 * number
    }
}

// The lower half of a word of 64 bits comes first.
const _: () = assert!(cfg!(target_endian = "little"));

/// Calls that no library needs, as it falls back on the older one; their addresses are in memory, where a filter cannot
/// look.
const NEWER: [c_long; 4] = [
    449, // futex_waitv
    454, // futex_wake
    455, // futex_wait
    456, // futex_requeue
];

/// Returns a filter that stops futexes in these ranges, and calls with these numbers, but for calls that return to
/// `stub`.
///
/// The system remembers a decision that the number alone makes: such calls do not run the filter.
fn filter(ranges: &[Range<usize>], numbers: &[c_long], stub: usize) -> Vec<sock_filter> {
    const STOP: u32 = libc::SECCOMP_RET_TRAP;
    const ABSENT: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let inside = |argument| ranges.iter().flat_map(move |range| stops_in(range, at::argument(argument)));
    let mut second = vec![load(at::argument(1)), step(libc::BPF_ALU | libc::BPF_AND, OPERATION as u32)];
    // The last one that fails goes to the end of the calls, which pass.
    let [first, next, last] = WITH_SECOND.map(|operation| operation as u32);
    second.extend([equal(first, 3, 0), equal(next, 2, 0), equal(last, 1, 0), done(PASS)]);
    second.extend(inside(4));
    let futex: Vec<_> = passes_at(stub).into_iter().chain(inside(0)).chain(second).chain([done(PASS)]).collect();
    let mut filter = vec![load(at::ARCH), equal(registers::ARCH, 1, 0), done(PASS), load(at::NUMBER)];
    for number in NEWER {
        filter.extend([equal(number as u32, 0, 1), done(ABSENT)]);
    }
    filter.extend([equal(libc::SYS_futex as u32, 1, 0), skip(futex.len())]);
    filter.extend(futex);
    for (at, number) in numbers.iter().enumerate() {
        // Behind the numbers that follow, of two steps each, and the end for those that are none of them.
        filter.extend([equal(*number as u32, 0, 1), skip((numbers.len() - 1 - at) * 2 + 1)]);
    }
    filter.push(done(PASS));
    filter.extend(passes_at(stub));
    filter.push(done(STOP));
    return filter;

    const PASS: u32 = libc::SECCOMP_RET_ALLOW;

    fn step(code: u32, value: u32) -> sock_filter {
        sock_filter { code: code as u16, jt: 0, jf: 0, k: value }
    }

    fn load(offset: usize) -> sock_filter {
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset as u32)
    }

    fn done(verdict: u32) -> sock_filter {
        step(libc::BPF_RET | libc::BPF_K, verdict)
    }

    /// Leaves out this many steps.
    fn skip(steps: usize) -> sock_filter {
        step(libc::BPF_JMP | libc::BPF_JA, steps as u32)
    }

    fn jump(kind: u32, value: u32, steps_if: u8, steps_else: u8) -> sock_filter {
        sock_filter { jt: steps_if, jf: steps_else, ..step(libc::BPF_JMP | kind | libc::BPF_K, value) }
    }

    /// Leaves out this many steps if the loaded value is this one, or else that many.
    fn equal(value: u32, steps_if: u8, steps_else: u8) -> sock_filter {
        jump(libc::BPF_JEQ, value, steps_if, steps_else)
    }

    fn halves(value: usize) -> (u32, u32) {
        ((value as u64 >> 32) as u32, value as u32)
    }

    /// Lets calls through that return to this address.
    fn passes_at(stub: usize) -> [sock_filter; 5] {
        let (high, low) = halves(stub);
        [load(at::INSTRUCTION), equal(low, 0, 3), load(at::INSTRUCTION + 4), equal(high, 0, 1), done(PASS)]
    }

    /// Stops calls with an address of this range at this offset.
    fn stops_in(range: &Range<usize>, offset: usize) -> [sock_filter; 11] {
        let ((first_high, first_low), (end_high, end_low)) = (halves(range.start), halves(range.end));
        let (high, low) = (offset + 4, offset);
        [
            load(high),
            jump(libc::BPF_JGT, first_high, 3, 0),
            equal(first_high, 0, 8),
            load(low),
            jump(libc::BPF_JGE, first_low, 0, 6),
            load(high),
            jump(libc::BPF_JGT, end_high, 4, 0),
            equal(end_high, 0, 2),
            load(low),
            jump(libc::BPF_JGE, end_low, 1, 0),
            done(STOP),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUB: usize = 0x7f12_3456_789a;
    const NUMBERS: [c_long; 3] = [libc::SYS_read, libc::SYS_write, libc::SYS_openat];

    /// Returns a filter's verdict on a call, as the system computes it, for the steps that filters here have.
    fn verdict(filter: &[sock_filter], data: &seccomp_data) -> u32 {
        // SAFETY: plain words.
        let words: [u32; size_of::<seccomp_data>() / 4] = unsafe { mem::transmute_copy(data) };
        let (mut loaded, mut at) = (0, 0);
        loop {
            let step = filter[at];
            let k = step.k;
            at += 1;
            let is_so = match u32::from(step.code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    loaded = words[k as usize / 4];
                    continue;
                }
                code if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K => {
                    loaded &= k;
                    continue;
                }
                code if code == libc::BPF_JMP | libc::BPF_JA => {
                    at += k as usize;
                    continue;
                }
                code if code == libc::BPF_RET | libc::BPF_K => return k,
                code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => loaded == k,
                code if code == libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K => loaded > k,
                code if code == libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K => loaded >= k,
                other => panic!("a step of kind {other:#x}"),
            };
            at += usize::from(if is_so { step.jt } else { step.jf });
        }
    }

    fn call(number: c_long, arguments: [usize; 6], instruction: usize) -> seccomp_data {
        seccomp_data {
            nr: number as c_int,
            arch: registers::ARCH,
            instruction_pointer: instruction as u64,
            args: arguments.map(|argument| argument as u64),
        }
    }

    const RANGES: [Range<usize>; 3] =
        [0x404000..0x405000, 0x5555_5555_9000..0x5555_5556_1000, 0x1000_0000_0000..0x1010_0000_0000];

    /// Addresses at, before and behind the bounds of the ranges, also with another upper or lower half.
    fn addresses() -> impl Iterator<Item = usize> {
        let bounds = RANGES.iter().flat_map(|range| [range.start, range.end]);
        let halves = [0, 1 << 32, usize::MAX << 32, 0x8000_0000];
        bounds.flat_map(move |bound| halves.map(|half| bound ^ half)).flat_map(|at| [at - 4, at - 1, at, at + 4])
    }

    fn is_stopped(data: &seccomp_data) -> bool {
        match verdict(&filter(&RANGES, &NUMBERS, STUB), data) {
            libc::SECCOMP_RET_TRAP => true,
            libc::SECCOMP_RET_ALLOW => false,
            other => panic!("the verdict {other:#x}"),
        }
    }

    #[test]
    fn futexes_of_the_ranges_are_stopped() {
        let is_inside = |address: usize| RANGES.iter().any(|range| range.contains(&address));
        let (mut inside, mut outside) = (0, 0);
        for address in addresses() {
            *if is_inside(address) { &mut inside } else { &mut outside } += 1;
            for operation in [libc::FUTEX_WAIT, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, libc::FUTEX_LOCK_PI] {
                let of = |arguments, instruction| is_stopped(&call(libc::SYS_futex, arguments, instruction));
                assert_eq!(of([address, operation as usize, 1, 0, 0, 0], 5), is_inside(address), "{address:#x}");
                assert!(!of([address, operation as usize, 1, 0, 0, 0], STUB));
                assert!(!of([0, operation as usize, 1, 0, address, 0], 5));
            }
            for operation in WITH_SECOND {
                for flags in [0, libc::FUTEX_PRIVATE_FLAG] {
                    let second = [64, (operation | flags) as usize, 1, 1, address, 0];
                    assert_eq!(is_stopped(&call(libc::SYS_futex, second, 5)), is_inside(address), "{address:#x}");
                }
            }
        }
        assert!(inside > 10 && outside > 10, "{inside} addresses are inside, {outside} are not");
    }

    #[test]
    fn other_calls_are_stopped_by_their_number() {
        for number in 0..600 {
            if number == libc::SYS_futex || NEWER.contains(&number) {
                continue;
            }
            let of = |instruction| is_stopped(&call(number, [0x404000; 6], instruction));
            assert_eq!(of(5), NUMBERS.contains(&number), "{number}");
            assert_eq!(of(STUB ^ 1), NUMBERS.contains(&number), "{number}");
            assert_eq!(of(STUB ^ 1 << 32), NUMBERS.contains(&number), "{number}");
            assert!(!of(STUB), "{number}");
        }
        for number in NEWER {
            let verdict = verdict(&filter(&RANGES, &NUMBERS, STUB), &call(number, [0x404000; 6], 5));
            assert_eq!(verdict, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
        }
    }

    #[test]
    fn calls_of_another_architecture_pass() {
        for number in 0..600 {
            assert!(!is_stopped(&seccomp_data { arch: 0x4000_0003, ..call(number, [0x404000; 6], 5) }));
        }
    }

    #[test]
    fn a_call_is_executed_with_its_arguments() {
        let mut ends = [0; 2];
        let pipe = Call { number: libc::SYS_pipe2, arguments: [(&raw mut ends).addr(), 0, 0, 0, 0, 0] };
        assert_eq!(pipe.execute(), 0);
        let [from, to] = ends.map(|end: c_int| end as usize);
        let text = *b"six arguments";
        let write = Call { number: libc::SYS_write, arguments: [to, text.as_ptr().expose_provenance(), 13, 0, 0, 0] };
        assert_eq!(write.execute(), 13);
        let mut found = [0_u8; 13];
        let into = (&raw mut found).expose_provenance();
        let read = Call { number: libc::SYS_read, arguments: [from, into, 13, 0, 0, 0] };
        assert_eq!((read.execute(), found), (13, text));
        // The kernel looks at all six.
        let bytes = 2 * crate::PAGE_BYTES;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
        let mapped =
            Call { number: libc::SYS_mmap, arguments: [0, bytes, libc::PROT_READ as usize, flags, usize::MAX, 0] };
        let at = mapped.execute();
        assert!(at > 0);
        let unmap = Call { number: libc::SYS_munmap, arguments: [at as usize, bytes, 0, 0, 0, 0] };
        assert_eq!(unmap.execute(), 0);
        for end in ends {
            let close = Call { number: libc::SYS_close, arguments: [end as usize, 0, 0, 0, 0, 0] };
            assert_eq!(close.execute(), 0);
            assert_eq!(close.execute(), -libc::EBADF as isize);
        }
    }
}
