//! The words of each thread that `malloc` and `free` look at. They lie at a fixed distance from the thread's pointer
//! (the initial-exec model, which a library that is loaded at the start may use), so that no call finds them.

use std::arch::{asm, global_asm};
use std::cell::Cell;
use std::sync::atomic::AtomicPtr;

/// Words of one thread, all zero at first.
#[repr(C)]
pub(crate) struct Words {
    /// Whether the thread is in the program's code (`side.rs`).
    pub(crate) is_in_program: Cell<bool>,
    /// Whether the thread has made its magazines.
    pub(crate) has_magazines: Cell<bool>,
    /// The thread's magazines (`magazine.rs`). Null while they are in use: a signal handler that allocates amid an
    /// allocation finds none.
    pub(crate) magazines: AtomicPtr<()>,
}

const _: () = assert!(size_of::<Words>() == 16);

global_asm!(
    ".pushsection .tbss.gossamer_region_words,\"awT\",@nobits",
    ".balign 16",
    ".globl gossamer_region_words",
    ".hidden gossamer_region_words",
    ".type gossamer_region_words,@object",
    ".size gossamer_region_words,16",
    "gossamer_region_words:",
    ".zero 16",
    ".popsection",
);

/// Returns those of the calling thread.
#[inline(always)]
pub(crate) fn words() -> &'static Words {
    let at: *const Words;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it reads where the words are, and writes nothing.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + gossamer_region_words@GOTTPOFF]",
            "add {at}, qword ptr fs:[0]",
            at = out(reg) at,
            options(pure, readonly, nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!(
            "adrp {at}, :gottprel:gossamer_region_words",
            "ldr {at}, [{at}, :gottprel_lo12:gossamer_region_words]",
            "mrs {thread}, tpidr_el0",
            "add {at}, {at}, {thread}",
            at = out(reg) at,
            thread = out(reg) _,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    // SAFETY: the calling thread's, zeros are such words, and no reference leaves the thread: the type is not `Sync`.
    unsafe { &*at }
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn each_thread_has_its_own_and_they_are_zero() {
        // Not the flag of the program's side, which `malloc` obeys.
        words().has_magazines.set(true);
        let other = std::thread::spawn(|| (words().has_magazines.get(), std::ptr::from_ref(words()).addr()));
        let (was_set, address) = other.join().unwrap();
        assert!(!was_set && address != std::ptr::from_ref(words()).addr());
        assert!(words().has_magazines.replace(false) && !words().is_in_program.get());
    }
}
