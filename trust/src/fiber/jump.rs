//! The switch to another stack: that of the `context` crate, entered so that the processor predicts the return
//! addresses.
//!
//! A processor predicts returns by a stack of its own (the return stack buffer), which grows with each `call` and
//! shrinks with each `ret`. On x86-64 the crate's switch is called, and leaves by a jump to where the other side had
//! called it: one call more than returns. From then on each return is predicted to be that of the function inside, so
//! all returns of a resumed fiber are predicted wrong. Here the other side is left by a return.

#![allow(unsafe_code)]

use context::{Context, Transfer};

/// Goes on in `to`, which gets `data`; returns when the side left here is resumed.
///
/// # Safety
/// `to` is new, or was left by a switch and has not been resumed since; the code it returns to still lives.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) unsafe fn jump(to: Context, data: usize) -> Transfer {
    // SAFETY: the caller's promise.
    unsafe { to.resume(data) }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::jump;

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::{Context, Transfer};

    // SAFETY: as the `context` crate declares it, which links it.
    unsafe extern "C" {
        fn jump_fcontext(to: Context, data: usize) -> Transfer;
    }

    /// As above. The switch finds, as the place where it was called, an instruction that returns to our caller. Where a
    /// fiber of the same call site left, the processor predicts this.
    // SAFETY: arguments and results stay in the registers they are in, one free register is used, and the switch pops
    // everything that is pushed: on return the stack is that of the caller.
    #[unsafe(naked)]
    pub(in super::super) unsafe extern "C" fn jump(to: Context, data: usize) -> Transfer {
        core::arch::naked_asm!(
            "lea rax, [rip + 2f]",
            "push rax",
            "jmp {jump}@PLT",
            "2:",
            "ret",
            jump = sym jump_fcontext,
        )
    }
}
