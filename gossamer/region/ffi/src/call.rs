//! System calls as the system sees them, a number and six words; and `mmap`, which this library interposes.

use std::ffi::{c_int, c_long, c_void};

/// System call that was stopped, or is to be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) number: c_long,
    pub(crate) arguments: [usize; 6],
}

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".hidden gossamer_region_system_call",
    ".globl gossamer_region_system_call",
    ".type gossamer_region_system_call, @function",
    "gossamer_region_system_call:",
    ".cfi_startproc",
    "mov rax, rdi",
    "mov r11, rsi",
    "mov rdi, [r11]",
    "mov rsi, [r11 + 8]",
    "mov rdx, [r11 + 16]",
    "mov r10, [r11 + 24]",
    "mov r8, [r11 + 32]",
    "mov r9, [r11 + 40]",
    "syscall",
    ".hidden gossamer_region_system_call_return",
    ".globl gossamer_region_system_call_return",
    "gossamer_region_system_call_return:",
    "ret",
    ".cfi_endproc",
    ".size gossamer_region_system_call, . - gossamer_region_system_call",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".hidden gossamer_region_system_call",
    ".globl gossamer_region_system_call",
    ".type gossamer_region_system_call, %function",
    "gossamer_region_system_call:",
    ".cfi_startproc",
    "mov x8, x0",
    "mov x9, x1",
    "ldp x0, x1, [x9]",
    "ldp x2, x3, [x9, #16]",
    "ldp x4, x5, [x9, #32]",
    "svc #0",
    ".hidden gossamer_region_system_call_return",
    ".globl gossamer_region_system_call_return",
    "gossamer_region_system_call_return:",
    "ret",
    ".cfi_endproc",
    ".size gossamer_region_system_call, . - gossamer_region_system_call",
);

unsafe extern "C" {
    fn gossamer_region_system_call(number: c_long, arguments: *const [usize; 6]) -> isize;
    /// Address that a thread has while it is in that call; the filter knows it.
    static gossamer_region_system_call_return: u8;
}

impl Call {
    /// Returns the address to which the system returns from [`Call::execute`].
    pub(crate) fn returns_to() -> usize {
        (&raw const gossamer_region_system_call_return).addr()
    }

    /// Executes the call; no filter stops it. Returns its result, or an error number less than zero.
    pub(crate) fn execute(&self) -> isize {
        // SAFETY: a call that the program has made, with its arguments.
        unsafe { gossamer_region_system_call(self.number, &raw const self.arguments) }
    }
}

/// Operations of `futex(2)` with a second address.
pub(crate) const WITH_SECOND: [c_int; 3] = [libc::FUTEX_REQUEUE, libc::FUTEX_CMP_REQUEUE, libc::FUTEX_WAKE_OP];
/// Bits of a futex's operation without its flags.
pub(crate) const OPERATION: c_int = 127;

/// Calls `mmap` for this machine alone.
///
/// # Safety
/// That of `mmap(2)`.
pub(crate) unsafe fn map_here(
    at: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: as the caller says.
    let found = unsafe { libc::syscall(libc::SYS_mmap, at, bytes, protection, flags, file, offset) };
    std::ptr::with_exposed_provenance_mut(found as usize)
}
