//! Threads in blocks (`--move asked`) on their hosts: from their beginning to their end, and between machines.
//!
//! A thread that goes to another machine waits on its stack, which all machines have. Its host sends the address of
//! that place and of the block, and what our code keeps for the thread outside of them, and has the machine there
//! request their pages; a host there goes on with it, and the one here waits for the next thread that comes. All
//! requests about the thread still go to the machine that its id names, which knows where it is (`joins.rs`).
//!
//! Here: the hosts' side. Not here: the thread's own side, and why it may have to stay (`ties.rs`).

use std::ffi::c_int;
use std::ops::Range;

use gossamer_region::link::{prefetch, send_along};
use serde::{Deserialize, Serialize};

use crate::arithmetic::Arithmetic;
use crate::block::Block;
use crate::clocks::{self, Times};
use crate::host::{self, Left, ThreadWords};
use crate::mask::{self, Mask};
use crate::pending::Waiting;
use crate::reason::{self, Reason};
use crate::record::{self, Answer, Past, Record};
use crate::stack::{self, Place, Stack};
use crate::{PAGE_BYTES, affinity, cleanup, ends, ids, joins, keys, pending, side, starter, timer, waits};

/// The program's function of a thread, and the signals that it blocks.
#[derive(Clone, Copy)]
pub(crate) struct Begin {
    pub(crate) mask: Mask,
    pub(crate) function: usize,
    pub(crate) argument: usize,
}

impl Begin {
    /// In the program's code: a signal that has waited for a thread to take it is handled here.
    pub(crate) extern "C" fn run(at: usize) -> usize {
        // SAFETY: the caller of the thread keeps it, and waits.
        let Begin { mask, function, argument } = unsafe { &*std::ptr::with_exposed_provenance::<Begin>(at) };
        mask::set_mask(mask::of_program(*mask));
        // SAFETY: a thread's function of the program.
        let function = unsafe { std::mem::transmute::<usize, extern "C" fn(usize) -> usize>(*function) };
        function(*argument)
    }
}

/// Name of a thread, with the zero at its end.
type Name = [u8; 16];

/// A thread on its way.
#[derive(Clone, Serialize, Deserialize)]
struct Moving {
    id: u64,
    stack: Place,
    block: Block,
    name: Name,
    nice: c_int,
    /// Where it waits.
    program: usize,
    past: Past,
    /// Its cleanup handlers, its objects with their destructors, and its values of keys.
    pushed: Vec<usize>,
    objects: Vec<(usize, usize)>,
    values: Vec<(u64, usize)>,
    /// Signals that wait for it.
    signals: Vec<Waiting>,
    /// Times that it may have read.
    told: Times,
}

/// On a host, with signals blocked: runs a thread, in a block that is filled here. Returns whether the host may run
/// another one.
pub(crate) fn begin(id: u64, stack: Stack, block: Block, begin: Begin) -> bool {
    forget_the_last();
    ids::act_as(id);
    waits::begin(id);
    record::begin(id, Record::new(Past::new(begin.function), true, stack.range().len()));
    block.fill();
    let left = call(id, &stack, &block, &begin);
    go_through(id, stack, block, left)
}

/// On a host, with signals blocked: it has neither signals nor their stack of the last thread, nor a signal of a timer
/// that came later.
fn forget_the_last() {
    drop(pending::take());
    let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
    // SAFETY: the thread is on its own stack.
    unsafe { libc::sigaltstack(&raw const none, std::ptr::null_mut()) };
}

/// Whether the calling host is as a new one, and may run another thread.
fn is_as_new() -> bool {
    // SAFETY: it asks about the calling thread.
    let policy = unsafe { libc::sched_getscheduler(0) };
    nice() == nice_of_process() && policy == libc::SCHED_OTHER && !affinity::is_bound()
}

fn call(id: u64, stack: &Stack, block: &Block, begin: &Begin) -> Left {
    let (run, begin) = (Begin::run as *const () as usize, std::ptr::from_ref(begin).expose_provenance());
    // SAFETY: memory that is the thread's until it ends.
    unsafe { host::run(block.pointer, stack.range(), words_of(id), run, begin) }
}

/// On a host: what the program's side of its thread has to know.
fn words_of(id: u64) -> ThreadWords {
    fn put(words: ThreadWords) {
        ids::act_as(words.id);
        waits::take_over(words.noted);
        record::take_over(words.record);
    }
    ThreadWords { id, noted: waits::noted(), record: record::noted(), put }
}

/// The calling thread's niceness.
fn nice() -> c_int {
    // SAFETY: it touches no memory.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// That of the process's first thread, as new threads have it.
fn nice_of_process() -> c_int {
    // SAFETY: as above.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, side::process()) }
}

/// Does what the thread asks of its host by leaving it.
fn go_through(id: u64, stack: Stack, block: Block, mut left: Left) -> bool {
    loop {
        match left {
            Left::Ended(result, mask, arithmetic) => {
                arithmetic.take_over(); // destructors have it
                end(id, stack, block, result, mask);
                return false;
            }
            Left::Departs(program, to) => {
                let program = host::address_of(program);
                if send(id, stack.place(), &block, program, to) {
                    std::mem::forget(stack); // it goes along
                    return is_as_new();
                }
                // SAFETY: it has not gone.
                left = unsafe { host::go_on(block.pointer, host::context_at(program), words_of(id), libc::EAGAIN) };
            }
        }
    }
}

/// Ends a thread whose function has ended.
fn end(id: u64, stack: Stack, block: Block, result: usize, mask: Mask) {
    let begin = Begin { mask, function: ends::end_in_block as *const () as usize, argument: 0 };
    if let Left::Departs(..) = call(id, &stack, &block, &begin) {
        std::process::abort(); // `ties.rs` has refused
    }
    Arithmetic::reset();
    block.free();
    match ids::machine_of(id) {
        first if first == side::own_machine() => stack.keep(),
        first => {
            // Its guard is there.
            let place = stack.place();
            std::mem::forget(stack);
            // If the system refuses, the block is lost, and stays inaccessible here.
            if place.unguard() {
                side::at(first, move || Stack::at(place).keep());
            }
        }
    }
    joins::leave(id);
    waits::end(id);
    if let Some(ask) = record::end(id) {
        ask.answer(Answer::Ended);
    }
    joins::end(id, result);
    ids::act_as(0);
}

/// Has a thread go on on another machine. `false`: there is no host, and it is here again.
fn send(id: u64, stack: Place, block: &Block, program: usize, to: u16) -> bool {
    let (first, own) = (ids::machine_of(id), side::own_machine());
    // The system may have no room for that.
    let is_open = first == own || stack.unguard();
    let (pushed, objects, values) = (cleanup::take(), ends::take(), keys::take());
    joins::go(id, to);
    // No other thread changes what it has here any more.
    let mut name = Name::default();
    // SAFETY: the name has room.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let past = record::own().map_or(Past::new(0), |record| record.past);
    waits::end(id);
    let ask = record::end(id);
    let reason = ask.as_ref().map_or(Reason::Own, |ask| ask.reason_to(to));
    let (block, nice, signals) = (*block, nice(), pending::take());
    let moving =
        Moving { id, stack, block, name, nice, program, past, pushed, objects, values, signals, told: clocks::told() };
    if is_open {
        send_along(to, moving.touched());
    }
    let sent = Moving { past: past.moved(own, reason), ..moving.clone() };
    if is_open && side::at_with(own, depart, (to, sent)) {
        ids::act_as(0);
        reason::note_left(reason);
        if let Some(ask) = ask {
            ask.went(to);
        }
        return true;
    }
    if first != own {
        stack::or_end(!is_open || side::at(own, move || stack.guard()));
    }
    moving.take_over();
    if let Some(ask) = ask {
        ask.answer(Answer::NoRoom);
    }
    false
}

/// In a fiber of the worker: notes where a thread goes, and sends it there. `false`: there is no host, and it stays.
fn depart((to, moving): (u16, Moving)) -> bool {
    let (id, own) = (moving.id, side::own_machine());
    let first = ids::machine_of(id);
    let note = |machine| match first == own {
        true => joins::note_machine(id, machine),
        false => side::from_worker(first, move || joins::note_machine(id, machine)),
    };
    if first != to {
        note(to);
    }
    let is_there = side::from_worker_with(to, arrive, moving);
    if !is_there && first != own {
        note(own); // here it is noted as it comes back to its host
    }
    is_there
}

/// On a worker: has a host go on with a thread. `false`: there is none.
fn arrive(moving: Moving) -> bool {
    prefetch(moving.block.entries());
    let (stack, is_away) = (moving.stack, ids::machine_of(moving.id) != side::own_machine());
    if is_away && !stack.guard() {
        return false;
    }
    let started = starter::start(Box::new(move || go_on(moving))).is_some();
    if !started && is_away {
        stack::or_end(stack.unguard());
    }
    started
}

/// On a host, with signals blocked.
fn go_on(moving: Moving) -> bool {
    let Moving { id, stack, block, program, told, .. } = moving;
    forget_the_last();
    Arithmetic::reset();
    ids::act_as(id);
    moving.take_over();
    block.arrive();
    clocks::wait_for(&told);
    assert!(timer::is_blocked(), "a signal of its timer comes while the thread is between two hosts");
    // SAFETY: the machine that it left has sent it here, once.
    let left = unsafe { host::go_on(block.pointer, host::context_at(program), words_of(id), 0) };
    go_through(id, Stack::at(stack), block, left)
}

impl Moving {
    /// Addresses that it touches first: a part of its stack, and its block.
    fn touched(&self) -> [Range<usize>; 2] {
        let stack = self.stack.range();
        [self.program..stack.end.min(self.program + PAGE_BYTES), self.block.first_touched()]
    }

    /// Gives the calling host what our code keeps for the thread.
    fn take_over(self) {
        waits::begin(self.id);
        record::begin(self.id, Record::new(self.past, true, self.stack.range().len()));
        // SAFETY: a name that ends with a zero.
        unsafe { libc::prctl(libc::PR_SET_NAME, self.name.as_ptr()) };
        if nice() != self.nice {
            // SAFETY: the calling thread's. Where the system refuses, it has the host's.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, self.nice) };
        }
        joins::arrive(self.id);
        cleanup::put(self.pushed);
        ends::put(self.objects);
        keys::put(self.values);
        pending::put(&self.signals);
    }
}
