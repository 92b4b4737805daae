//! The end of a machine at one of its writes to other machines over tcp: at none, some or all of its bytes.
//!
//! The kernel stops each `sendmsg`, the only call that the transport writes with, for a handler on the same thread,
//! which counts it and makes it itself, or ends the process. No other thread writes once the last write has begun.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{seccomp_data, sock_filter, sock_fprog, ucontext_t};

/// Writes still to be made before the last one.
static LEFT: AtomicU64 = AtomicU64::new(0);
/// How much of the last one is made: see [`Part`].
static LAST: AtomicU64 = AtomicU64::new(0);

/// How much of the last write arrives.
#[derive(Clone, Copy)]
pub enum Part {
    /// No byte.
    Nothing,
    /// About the first half of the bytes.
    Half,
    /// All bytes, and nothing after them.
    All,
}

/// A bit of the argument `flags` that the kernel does not read: it takes 32 of them. The handler's own calls have it.
const OWN: u64 = 1 << 32;

/// Ends this process at the write that comes after so many others.
pub fn end_at(write: u64, last: Part) {
    LEFT.store(write, Ordering::Relaxed);
    LAST.store(last as u64, Ordering::Relaxed);
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_write;
    // SAFETY: the action is a whole one, with a handler of the form that SA_SIGINFO wants.
    let is_set = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut())
    };
    assert_eq!(is_set, 0, "{}", std::io::Error::last_os_error());

    let load = |offset: usize| sock_filter {
        code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
        jt: 0,
        jf: 0,
        k: offset as u32,
    };
    let skip_unless = |value: u32, jf: u8| sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: 0,
        jf,
        k: value,
    };
    let result = |action: u32| sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: action };
    let flags_high = offset_of!(seccomp_data, args) + 2 * size_of::<u64>() + size_of::<u32>();
    let mut filter = [
        load(offset_of!(seccomp_data, nr)),
        skip_unless(libc::SYS_sendmsg as u32, 3),
        load(flags_high),
        skip_unless(0, 1),
        result(libc::SECCOMP_RET_TRAP),
        result(libc::SECCOMP_RET_ALLOW),
    ];
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the filter outlives the calls, which copy it.
    let is_set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    assert_eq!(is_set, 0, "{}", std::io::Error::last_os_error());
}

/// Makes the write that was stopped, or ends the process.
extern "C" fn on_write(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a handler of this form its context, which it has to itself; `errno` is this thread's,
    // and the code that was stopped does not expect it to change.
    unsafe {
        let registers = &mut (*context.cast::<ucontext_t>()).uc_mcontext;
        let [socket, message, flags] = arguments(registers);
        let errno = *libc::__errno_location();
        let send = |message: u64| libc::syscall(libc::SYS_sendmsg, socket, message, flags | OWN);
        let left = LEFT.fetch_sub(1, Ordering::Relaxed).cast_signed();
        if left < 0 {
            // Another thread makes the last one.
            loop {
                libc::pause();
            }
        }
        if left == 0 {
            if LAST.load(Ordering::Relaxed) == Part::All as u64 {
                send(message);
            } else if LAST.load(Ordering::Relaxed) == Part::Half as u64 {
                let mut half = *(message as *const libc::msghdr);
                let mut first = *half.msg_iov;
                if half.msg_iovlen > 1 {
                    half.msg_iovlen /= 2;
                } else {
                    first.iov_len /= 2;
                    half.msg_iov = &raw mut first;
                }
                send((&raw const half) as u64);
            }
            libc::kill(libc::getpid(), libc::SIGKILL);
        }
        let sent = send(message);
        let sent = if sent < 0 { -i64::from(*libc::__errno_location()) } else { sent };
        *libc::__errno_location() = errno;
        set_result(registers, sent);
    }
}

#[cfg(target_arch = "x86_64")]
fn arguments(registers: &libc::mcontext_t) -> [u64; 3] {
    [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX].map(|register| registers.gregs[register as usize].cast_unsigned())
}

#[cfg(target_arch = "x86_64")]
fn set_result(registers: &mut libc::mcontext_t, result: i64) {
    registers.gregs[libc::REG_RAX as usize] = result;
}

#[cfg(target_arch = "aarch64")]
fn arguments(registers: &libc::mcontext_t) -> [u64; 3] {
    [registers.regs[0], registers.regs[1], registers.regs[2]]
}

#[cfg(target_arch = "aarch64")]
fn set_result(registers: &mut libc::mcontext_t, result: i64) {
    registers.regs[0] = result.cast_unsigned();
}
