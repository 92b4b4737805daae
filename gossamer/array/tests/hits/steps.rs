//! Instructions that a call executes: single-stepped with the processor's trap flag, and decoded as far as needed to
//! recognise the expensive ones.

#![allow(unsafe_code)]

use std::arch::asm;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// More than any call here executes.
const STEPS_MAX: usize = 1 << 16;
/// The trap flag in the flags register.
const TRAP: u32 = 0x100;

/// Addresses of the executed instructions, and their number.
static STEPS: [AtomicUsize; STEPS_MAX] = [const { AtomicUsize::new(0) }; STEPS_MAX];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Lock for `STEPS` and `COUNT`.
static STEPPING: Mutex<()> = Mutex::new(());

extern "C" fn note(_: c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system gives a handler its context.
    let address = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] };
    let count = COUNT.load(Ordering::Relaxed);
    if let Some(step) = STEPS.get(count) {
        step.store(address as usize, Ordering::Relaxed);
    }
    COUNT.store(count + 1, Ordering::Relaxed);
}

/// Kind of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An instruction with the prefix `lock`.
    Locked,
    /// `mfence`, `lfence` or `sfence`.
    Fence,
    /// `xchg` with memory, which is implicitly locked.
    Exchange,
    Call,
    Return,
    Other,
}

impl Kind {
    /// Returns the kind of the instruction at an address.
    ///
    /// # Safety
    /// There is one.
    unsafe fn at(address: usize) -> Kind {
        // SAFETY: the caller's promise; no byte is read beyond an instruction with such a beginning.
        let byte = |index: usize| unsafe { ptr::with_exposed_provenance::<u8>(address + index).read() };
        let prefixes = [0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0xf0, 0xf2, 0xf3];
        let count = (0..).take_while(|index| prefixes.contains(&byte(*index))).count();
        if (0..count).any(|index| byte(index) == 0xf0) {
            return Kind::Locked;
        }
        let opcode = count + usize::from(byte(count) & 0xf0 == 0x40);
        let is_of_memory = |operands: usize| byte(operands) < 0xc0;
        let middle = |operands: usize| byte(operands) >> 3 & 7;
        match byte(opcode) {
            0x86 | 0x87 if is_of_memory(opcode + 1) => Kind::Exchange,
            0x0f if byte(opcode + 1) == 0xae && !is_of_memory(opcode + 2) && middle(opcode + 2) >= 5 => Kind::Fence,
            0xe8 => Kind::Call,
            0xff if middle(opcode + 1) == 2 => Kind::Call,
            0xc2 | 0xc3 => Kind::Return,
            _ => Kind::Other,
        }
    }
}

/// Runs `call`; returns the instructions executed from the entry of the function at `start`, which `call` calls, to its
/// return.
pub fn of(start: *const (), call: impl FnOnce()) -> Vec<Kind> {
    let _stepping = STEPPING.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: all zeros are no flags and no signals.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    (action.sa_sigaction, action.sa_flags) = (note as *const () as usize, libc::SA_SIGINFO);
    // SAFETY: the handler only stores numbers in statics.
    assert_eq!(unsafe { libc::sigaction(libc::SIGTRAP, &raw const action, ptr::null_mut()) }, 0);
    COUNT.store(0, Ordering::Relaxed);
    // SAFETY: sets the trap flag: each following instruction raises the signal.
    unsafe { asm!("pushfq", "or dword ptr [rsp], {trap}", "popfq", "nop", trap = const TRAP) };
    call();
    // SAFETY: clears the trap flag.
    unsafe { asm!("pushfq", "and dword ptr [rsp], {rest}", "popfq", "nop", rest = const !TRAP as i32) };
    let count = COUNT.load(Ordering::Relaxed);
    assert!(count <= STEPS_MAX, "{count} instructions");
    let all = STEPS[..count].iter().map(|step| step.load(Ordering::Relaxed));
    let mut depth = 0;
    let mut kinds = Vec::new();
    for address in all.skip_while(|address| *address != start.addr()) {
        // SAFETY: an executed instruction begins there.
        let kind = unsafe { Kind::at(address) };
        kinds.push(kind);
        match kind {
            Kind::Call => depth += 1,
            Kind::Return if depth == 0 => return kinds,
            Kind::Return => depth -= 1,
            _ => {}
        }
    }
    panic!("none of {count} instructions is the return of the function at {start:?}");
}
