//! Counts the instructions of a thread by stepping through it as a debugger does. Slow (about 10,000 a second on a
//! virtual machine), but exact, and it needs neither counters of the processor nor valgrind, which in Debian 12 does
//! not know `pidfd_open`; the fabric `shm` needs that.
//!
//! Here: one thread, between two executions of one breakpoint instruction of its own. Its calls into the named
//! libraries are left out, with all calls from there. Not here: which programs (`counts`).

#![allow(unsafe_code)]

use anyhow::{Context as _, bail, ensure};
use std::collections::HashMap;
use std::io;
use std::ops::Range;

/// Instructions between the marks.
pub struct Steps {
    /// Number of times each address was executed: a repeated string instruction is one.
    pub at: HashMap<u64, u64>,
    /// All of it.
    pub instructions: u64,
}

/// A thread of another process that this thread traces.
struct Traced {
    thread: libc::pid_t,
}

/// Lets `thread` run to its first mark, calls `begin`, steps to the second, calls `end`, and lets it go.
pub fn count(thread: i32, library: &str, begin: impl FnOnce(), end: impl FnOnce()) -> anyhow::Result<Steps> {
    let traced = Traced::seize(thread)?;
    let mut signal = 0;
    loop {
        signal = match traced.go(libc::PTRACE_CONT, signal)? {
            libc::SIGTRAP => break,
            signal => signal,
        };
    }
    begin();
    let mark = traced.registers()?.rip - 1;
    let outside = mapping(thread, library)?;
    let mut steps = Steps { at: HashMap::new(), instructions: 0 };
    let (mut last, mut back, mut signal) = (0, None, 0);
    loop {
        let registers = traced.registers()?;
        let at = registers.rip;
        if at == mark {
            break;
        }
        if back == Some(at) {
            back = None;
        }
        if back.is_none() && outside.contains(&at) {
            // The top of the stack is where the call returns to. It goes there at once where the processor can stop it,
            // for this thread alone; else step by step.
            let to = traced.word(registers.rsp)?;
            if traced.run_to(to) {
                continue;
            }
            back = Some(to);
        }
        if back.is_none() && at != last {
            steps.instructions += 1;
            *steps.at.entry(at).or_default() += 1;
        }
        last = at;
        signal = match traced.go(libc::PTRACE_SINGLESTEP, signal)? {
            libc::SIGTRAP => 0,
            signal => signal,
        };
    }
    end();
    // The instruction at the second mark, which nobody else would survive.
    traced.go(libc::PTRACE_CONT, 0)?;
    Ok(steps)
}

/// Returns the range of a library's code in a process; empty if it has none.
fn mapping(thread: i32, library: &str) -> anyhow::Result<Range<u64>> {
    let maps = std::fs::read_to_string(format!("/proc/{thread}/maps"))?;
    let code = maps.lines().find(|line| line.contains(library) && line.contains(" r-xp "));
    let Some((start, end)) = code.and_then(|line| line.split(' ').next()?.split_once('-')) else { return Ok(0..0) };
    Ok(u64::from_str_radix(start, 16)?..u64::from_str_radix(end, 16)?)
}

impl Traced {
    fn seize(thread: libc::pid_t) -> anyhow::Result<Traced> {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: takes numbers only; the effects on another process are those of a debugger.
        let done = unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, none, none) };
        ensure!(done == 0, "thread {thread} cannot be traced: {}", io::Error::last_os_error());
        Ok(Traced { thread })
    }

    /// Lets the thread go on, with this signal if it is not 0, until it stops again: by which signal.
    fn go(&self, how: libc::c_uint, signal: libc::c_int) -> anyhow::Result<libc::c_int> {
        let none = std::ptr::null_mut::<libc::c_void>();
        // The first time the thread runs already, which is no error.
        // SAFETY: as in `seize`.
        unsafe { libc::ptrace(how, self.thread, none, signal as usize as *mut libc::c_void) };
        let mut status = 0;
        // SAFETY: the status can be written.
        let found = unsafe { libc::waitpid(self.thread, &raw mut status, libc::__WALL) };
        ensure!(found == self.thread, "waiting for a traced thread: {}", io::Error::last_os_error());
        if !libc::WIFSTOPPED(status) {
            bail!("the traced thread has ended");
        }
        Ok(libc::WSTOPSIG(status))
    }

    /// Lets the thread run up to this address, by a breakpoint in its debug registers; false where it has none.
    fn run_to(&self, address: u64) -> bool {
        let poke = |register: usize, value: u64| {
            let offset = std::mem::offset_of!(libc::user, u_debugreg) + size_of::<u64>() * register;
            // SAFETY: as in `seize`; sets one debug register.
            unsafe { libc::ptrace(libc::PTRACE_POKEUSER, self.thread, offset, value) == 0 }
        };
        // The first of four, for this task, when the instruction there is about to be executed.
        if !(poke(0, address) && poke(7, 1)) {
            return false;
        }
        let mut signal = 0;
        let has_come = loop {
            signal = match self.go(libc::PTRACE_CONT, signal) {
                Ok(libc::SIGTRAP) => break true,
                Ok(signal) => signal,
                Err(_) => break false,
            };
        };
        poke(7, 0);
        has_come
    }

    fn registers(&self) -> anyhow::Result<libc::user_regs_struct> {
        // SAFETY: registers are numbers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the struct is the one that the request fills.
        let done = unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.thread, none, &raw mut registers) };
        ensure!(done == 0, "the registers of a traced thread: {}", io::Error::last_os_error());
        Ok(registers)
    }

    fn word(&self, address: u64) -> anyhow::Result<u64> {
        use std::os::unix::fs::FileExt;
        let mut word = [0; 8];
        let memory = std::fs::File::open(format!("/proc/{}/mem", self.thread)).context("the traced memory")?;
        memory.read_exact_at(&mut word, address)?;
        Ok(u64::from_ne_bytes(word))
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: as in `seize`. The thread goes on as if nobody had looked.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.thread, none, none) };
    }
}
