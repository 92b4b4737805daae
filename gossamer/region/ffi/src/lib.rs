//! Threaded C programs on several machines: the library that `gossamer-launch run --region` has the program's machines
//! load first (`LD_PRELOAD`). The program's globals, heap and stacks become memory of a
//! [`Region`](gossamer_region::Region) (`auto`), or only the ranges it names do (`explicit`,
//! `include/gossamer_region.h`). Its threads start on all machines in turn.
//!
//! Inside, in the order to read it:
//!
//! 1. `start.rs`: before `main`; `end_of_program.rs`; `marks.rs`: whether all machines run the same one
//! 2. `side.rs`: whether a thread is in the program's code or in ours; `real.rs`: the C library's functions that we
//!    interpose; `bind.rs`, `theirs.rs`: that ours does not call the program's functions of such names
//! 3. `memory.rs`, `objects.rs`, `arena.rs`, `map.rs`, `mappings.rs`: the program's memory, from before `main` on;
//!    `allocate.rs`, `heap.rs`, `head.rs`, `magazine.rs`, `words.rs`, `own_heap.rs`, `size_class.rs`, `spans.rs`,
//!    `runs.rs`, `pool.rs`: its heap; `load.rs`, `places.rs`, `thread_storage.rs`, `stub.rs`: libraries that it loads
//!    later; `named.rs`, `copy.rs`: ranges that it names, and copies of the rest
//! 4. `table.rs`: our own state that all machines share; `threads.rs`, `ids.rs`, `joins.rs`, `starter.rs`,
//!    `own_stack.rs`, `stack.rs`, `cleanup.rs`, `ends.rs`: threads; `of_other.rs`: calls about another one; `keys.rs`:
//!    their own values; `block.rs`, `host.rs`, `moves.rs`, `ties.rs`, `handles.rs`, `pending.rs`, `arithmetic.rs`,
//!    `thread_calls.rs`: threads that may move; `record.rs`, `reason.rs`, `wishes.rs`, `safe_points.rs`, `callers.rs`,
//!    `sleeps.rs`, `timer.rs`, `anywhere.rs`: and that others ask to; `clocks.rs`, `alarms.rs`: their clocks;
//!    `listed.rs`: as others see them; `balance.rs`, `spread.rs`: and that go by themselves
//! 5. `line.rs`: queues of waiting threads, kept on one machine for each address; `mutex.rs`, `condvar.rs`,
//!    `rwlock.rs`, `semaphore.rs`: locks built on them, each in the bytes of the C library's own; `gather.rs`,
//!    `barrier.rs`: barriers; `sync.rs`: the mutexes and barriers of the header; `c11.rs`: C11's names; `waits.rs`,
//!    `hang.rs`: which thread waits for which object, and the report of a program that hangs
//! 6. `call.rs`, `trap.rs`, `stopped.rs`: system calls that are stopped, and answered here; `futex.rs`, `awaited.rs`:
//!    waits on words of memory; `spawn.rs`: processes that the program starts
//! 7. `mask.rs`, `signals.rs`; `process.rs`, `environment.rs`, `random.rs`, `results.rs`: state of the process that all
//!    machines have; `affinity.rs`, `openmp.rs`, `copyin.rs`: their processors, and OpenMP's threads on them
//! 8. `descriptors.rs`: our own descriptors; `files.rs`: those of the program and its open files; `direct.rs`: files
//!    without `O_DIRECT`; `exec.rs`: the program becomes another one
//! 9. `refused.rs`, `told.rs`: calls that cannot work on several machines, and messages; `report.rs`, `symbols.rs`:
//!    the report at the end
//!
//! Invariants
//! - Memory of the program (its regions) is touched by its threads and by workers, never by a page server.
//! - Our own code allocates outside of the program's memory, and has its stack outside of it (`side.rs`).
//!
//! The design is that of STRETCH, 3.2 and 4.2.

#![allow(unsafe_code)]
// `Instant + Duration` panics on large limits, so sums saturate (`deadline.rs`) in all code outside of tests.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod affinity;
mod alarms;
mod allocate;
mod anywhere;
mod arena;
mod arithmetic;
mod awaited;
mod balance;
mod barrier;
mod bind;
mod block;
mod c11;
mod call;
mod callers;
mod cleanup;
mod clocks;
mod condvar;
mod copy;
mod copyin;
mod descriptors;
mod direct;
mod end_of_program;
mod ends;
mod environment;
mod exec;
mod files;
mod futex;
mod gather;
mod handles;
mod hang;
mod head;
mod heap;
mod host;
mod ids;
mod joins;
mod keys;
mod line;
mod listed;
mod load;
mod magazine;
mod map;
mod mappings;
mod marks;
mod mask;
mod memory;
mod moves;
mod mutex;
mod named;
mod objects;
mod of_other;
mod openmp;
mod own_address;
mod own_heap;
mod own_stack;
mod pending;
mod places;
mod policy;
mod pool;
mod process;
mod random;
mod real;
mod reason;
mod record;
mod refused;
mod report;
mod results;
mod runs;
mod rwlock;
mod safe_points;
mod semaphore;
mod side;
mod signals;
mod size_class;
mod sleeps;
mod spans;
mod spawn;
mod spread;
mod stack;
mod start;
mod starter;
mod stopped;
mod stub;
mod symbols;
mod sync;
mod table;
mod theirs;
mod thread_calls;
mod thread_storage;
mod threads;
mod ties;
mod timer;
mod told;
mod trap;
mod waits;
mod wishes;
mod words;

/// Status of a machine that cannot start, or go on.
const FAILURE_STATUS: std::ffi::c_int = 70;
/// The page size of regions.
pub(crate) const PAGE_BYTES: usize = 4096;

#[global_allocator]
static OURS: allocate::Outside = allocate::Outside;
