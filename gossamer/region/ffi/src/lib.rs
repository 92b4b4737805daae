//! Threaded C programs on several machines: the library that `gossamer-launch run --region` has the program's machines
//! load first (`LD_PRELOAD`). Its globals, heap and stacks become memory of a [`Region`](gossamer_region::Region)
//! (`auto`), or what it names does (`explicit`, `include/gossamer_region.h`); its threads start on all machines in
//! turn.
//!
//! How it works inside, in the order to read it:
//!
//! 1. `start.rs`: before `main`, and the end of the program
//! 2. `side.rs`: whether a thread is in the program's code or in ours; `real.rs`: what the functions are called that we
//!    stand before
//! 3. `memory.rs`, `globals.rs`, `heap.rs`, `allocate.rs`, `map.rs`: the program's memory; `named.rs`, `copy.rs`: where
//!    it names what is shared
//! 4. `table.rs`: what our own code keeps in that memory; `threads.rs`, `stack.rs`, `cleanup.rs`: threads; `keys.rs`:
//!    their own values
//! 5. `line.rs`: who waits for what, kept on one machine for each address; `mutex.rs`, `condvar.rs`, `rwlock.rs`,
//!    `semaphore.rs`: what is built on that, each in the bytes that the C library's own has; `gather.rs`, `barrier.rs`:
//!    barriers; `sync.rs`: those of the header
//! 6. `refused.rs`: what threads of several machines cannot do; `report.rs`, `symbols.rs`: what is told at the end
//!
//! Invariants
//! - F1 Memory of the program (its regions) is touched by its threads and by workers, never by a keeper.
//! - F2 What runs on behalf of us allocates outside of its memory, and has its stack outside of it (`side.rs`).
//!
//! The design is that of STRETCH, 3.2 and 4.2.

#![allow(unsafe_code)]
// `Instant + Duration` panics where limits are large: sums saturate (`deadline.rs`), in all code that is no test.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod allocate;
mod barrier;
mod cleanup;
mod condvar;
mod copy;
mod gather;
mod globals;
mod heap;
mod keys;
mod line;
mod map;
mod memory;
mod mutex;
mod named;
mod real;
mod refused;
mod report;
mod rwlock;
mod semaphore;
mod side;
mod stack;
mod start;
mod symbols;
mod sync;
mod table;
mod threads;

/// As regions have them.
pub(crate) const PAGE_BYTES: usize = 4096;

#[global_allocator]
static OURS: allocate::Outside = allocate::Outside;
