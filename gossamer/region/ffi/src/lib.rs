//! Threaded C programs on several machines: the library that `gossamer-launch run --region` has the program's machines
//! load first (`LD_PRELOAD`). The program's globals, heap and stacks become memory of a
//! [`Region`](gossamer_region::Region) (`auto`), or only the ranges it names do (`explicit`,
//! `include/gossamer_region.h`). Its threads start on all machines in turn.
//!
//! Inside, in the order to read it:
//!
//! 1. `start.rs`: before `main`, and the end of the program; `marks.rs`: whether all machines run the same one
//! 2. `side.rs`: whether a thread is in the program's code or in ours; `real.rs`: the C library's functions that we
//!    interpose
//! 3. `memory.rs`, `globals.rs`, `heap.rs`, `pool.rs`, `allocate.rs`, `map.rs`, `mappings.rs`: the program's memory;
//!    `named.rs`, `copy.rs`: ranges that it names, and copies of the rest
//! 4. `table.rs`: our own state that all machines share; `threads.rs`, `stack.rs`, `cleanup.rs`, `ends.rs`: threads;
//!    `keys.rs`: their own values
//! 5. `line.rs`: queues of waiting threads, kept on one machine for each address; `mutex.rs`, `condvar.rs`,
//!    `rwlock.rs`, `semaphore.rs`: locks built on them, each in the bytes of the C library's own; `gather.rs`,
//!    `barrier.rs`: barriers; `sync.rs`: the mutexes and barriers of the header; `c11.rs`: C11's names
//! 6. `mask.rs`, `signals.rs`; `process.rs`: attributes of the process that all machines have
//! 7. `refused.rs`: calls that cannot work on several machines; `report.rs`, `symbols.rs`: the report at the end
//!
//! Invariants
//! - Memory of the program (its regions) is touched by its threads and by workers, never by a page server.
//! - Our own code allocates outside of the program's memory, and has its stack outside of it (`side.rs`).
//!
//! The design is that of STRETCH, 3.2 and 4.2.

#![allow(unsafe_code)]
// `Instant + Duration` panics on large limits, so sums saturate (`deadline.rs`) in all code outside of tests.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod allocate;
mod barrier;
mod c11;
mod cleanup;
mod condvar;
mod copy;
mod ends;
mod gather;
mod globals;
mod heap;
mod keys;
mod line;
mod map;
mod mappings;
mod marks;
mod mask;
mod memory;
mod mutex;
mod named;
mod pool;
mod process;
mod real;
mod refused;
mod report;
mod rwlock;
mod semaphore;
mod side;
mod signals;
mod stack;
mod start;
mod symbols;
mod sync;
mod table;
mod threads;

/// The page size of regions.
pub(crate) const PAGE_BYTES: usize = 4096;

#[global_allocator]
static OURS: allocate::Outside = allocate::Outside;
