//! All tuning constants of the crate, with the reasons.

/// Bytes of the first part of a slot, its 16-byte head included (thesis 2.5.3.1): the part that a trustee touches when
/// it scans its clients, so it is small.
pub(crate) const PRIMARY_BYTES: usize = 128;
/// Bytes of the second part of a slot: room for a large batch.
pub(crate) const OVERFLOW_BYTES: usize = 1024;
/// Bytes at the start of the primary part: ready bit, then counts (requests) or extra pointer (responses).
pub(crate) const HEAD_BYTES: usize = 16;
/// Slots of one client-trustee pair. With two, a client fills one while the trustee serves the other.
pub(crate) const SLOTS: usize = 2;
/// Bits of an address. In a 64-bit word that holds a property's address, the higher bits hold other data.
pub(crate) const ADDRESS_BITS: u32 = 48;
/// A capture or result larger than this gets an allocation of its own and travels as a pointer.
pub(crate) const INLINE_BYTES: usize = 256;
/// A capture or result aligned more strictly than this gets an allocation of its own.
pub(crate) const INLINE_ALIGN: usize = 64;
/// Bytes of each allocation for requests that found no slot: as many requests as a slot has marks, of about a line.
pub(crate) const QUEUE_CHUNK_BYTES: usize = 16 << 10;
/// Such allocations that a client keeps for each trustee when they are empty.
pub(crate) const QUEUE_CHUNKS_KEPT: usize = 4;
/// Bytes of each allocation for responses that do not fit the response half of a slot.
pub(crate) const CHUNK_BYTES: usize = 4096;
/// Largest serialised argument or result of a request to another machine.
pub const REMOTE_MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Largest serialised argument or result of a request within one process.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// Most bytes of a fault's text that travel to another machine.
pub(crate) const FAULT_TEXT_BYTES_MAX: usize = 16 << 10;
/// Full batches that may wait for one trustee of another machine before the fibers that make more wait too.
pub(crate) const REMOTE_WAITING_MAX: usize = 2;
/// Batches of one client of another machine that are served in one turn.
pub(crate) const REMOTE_SERVED_A_TURN: usize = 4;
/// Memory that a buffer keeps after it held a large message.
pub(crate) const REMOTE_KEPT_BYTES_MAX: usize = 64 << 10;
/// Stack of a fiber unless the builder says otherwise. Only touched pages cost memory.
pub(crate) const STACK_BYTES: usize = 256 * 1024;
/// Calls on its own trustee after which a thread checks whether others wait to be served.
pub(crate) const GIVE_WAY_EVERY: i64 = 256;
/// Number of properties from which on a trustee prefetches them ahead of the requests that it runs.
pub(crate) const SPREAD_FROM: usize = 1024;
/// Longest time that an idle worker polls before it sleeps, unless the builder says otherwise (`idle.rs`): a few times
/// the cost of a wake-up in a virtual machine.
pub(crate) const SPIN_NS: u64 = 500_000;
/// Measured wake-up times that an idle worker always polls for, but at most half of its spin.
pub(crate) const POLL_WAKE_UPS: u64 = 2;
/// Turns of its loop between two looks at the clock meanwhile, with one pause a turn: about 400 ns.
pub(crate) const TURNS_PER_LOOK: u32 = 32;
/// Fibers run before for which an idle worker pauses once more in each turn, up to [`PAUSES_MAX`] times.
pub(crate) const FIBERS_PER_PAUSE: u64 = 16;
/// Most pauses in one turn: about 80 ns on an AMD EPYC.
pub(crate) const PAUSES_MAX: u32 = 4;
/// Divisor of elapsed time: a worker's spin budget grows by one part in this many.
pub(crate) const BUDGET_PARTS: u64 = 8;
/// Most that the budget holds, in whole spins.
pub(crate) const BUDGET_SPINS: u64 = 8;
/// Times in a row that a worker yields its core to another thread of this process before it sleeps.
pub(crate) const YIELDS: u32 = 16;
/// Longest yield to a thread of this process: after a longer one a foreign thread had the core, for own threads return
/// it sooner.
pub(crate) const YIELD_NS_MAX: u64 = 1_000_000;
/// Longest yield after which a lingering worker considers its core free: threads that wait for one another return it
/// sooner.
pub(crate) const CONTESTED_NS: u64 = 50_000;
/// Most of a yield that counts as contention: while the process was stopped its core may have been unused.
pub(crate) const CONTESTED_MAX: std::time::Duration = std::time::Duration::from_millis(10);
/// Backoff multiplier after contention.
pub(crate) const CONTESTED_YIELDS: u32 = 16;
/// Longest spin.
pub(crate) const SPIN_NS_MAX: u64 = 1_000_000_000;
/// Launched closures that one thread may await before it waits for some of their results.
pub(crate) const LAUNCHES_MAX: usize = 4096;
/// Calls of threads without slots that may be under way at one worker before further ones stay pending and unsent.
pub(crate) const CALLS_MAX: usize = if cfg!(loom) { 4 } else { 1024 };
/// Times that a task spins for the outcome of its call, with a pause before each look, before it is left pending. A
/// polling trustee answers in less.
pub(crate) const ANSWER_SPINS: u32 = 64;
/// Failed spins in a row after which a thread stops spinning.
pub(crate) const SPIN_LUCK_MAX: u32 = 8;
/// Calls after which a thread that has stopped spinning tries it again.
pub(crate) const SPIN_PROBE_EVERY: u32 = 32;
/// Longest time that an exiting thread waits for the answers to its last requests before it abandons them.
pub(crate) const EXIT_WAIT_MS: u64 = 5_000;
/// Longest time that it then waits for others to take its last messages: outcomes of launched closures, dropped trusts.
pub(crate) const LAST_WORDS_MS: u64 = 5_000;
/// Times that a thread with suspended fibers is watched again whenever its own code continues (`current.rs`); then ever
/// less often.
pub(crate) const WATCHES: u64 = 8_192;
/// Interval between searches for cycles among waiting fibers, while there are new ones (`runtime/watch`). A cycle is
/// reported after three searches.
pub(crate) const WATCH_EVERY_MS: u64 = 150;
/// The same when there are no new ones, but a worker has not answered.
pub(crate) const WATCH_EVERY_MS_MAX: u64 = 10_000;
/// Longest wait for an answer.
pub(crate) const WATCH_ANSWER_MS: u64 = 100;
/// Longest wait of a [`dump`](crate::dump) for an answer: on a busy host an idle worker gets a core late.
pub(crate) const DUMP_ANSWER_MS: u64 = 1_000;
/// Longest wait for the answers of other machines (`runtime/watch/rack.rs`).
pub(crate) const RACK_ANSWER_MS: u64 = 1_000;
/// Rest of the machine that searches for cycles across machines, after each search. Three rounds and this are less than
/// five seconds.
pub(crate) const RACK_SEARCH_EVERY_MS: u64 = 1_000;
/// Interval between checks for a standstill, once a fiber has panicked (`runtime/watch/still.rs`). Two rounds of it,
/// and the answers of other machines, are less than five seconds.
pub(crate) const STILL_EVERY_MS: u64 = 1_200;
/// Time after which the end of a pool reports the fibers that it waits for.
pub(crate) const DROP_TELL_MS: u64 = 5_000;
/// Longest wait of the end of a pool while a panic unwinds.
pub(crate) const UNWINDING_WAIT_MS: u64 = 2_000;

const _: () = assert!(PRIMARY_BYTES.is_power_of_two() && PRIMARY_BYTES >= 128);
const _: () = assert!(OVERFLOW_BYTES.is_multiple_of(PRIMARY_BYTES));
const _: () = assert!(SLOTS >= 1 && SLOTS <= 32);
// The largest inline request (head, over-alignment, captures) fits an empty overflow part.
const _: () = assert!(16 + INLINE_ALIGN + INLINE_BYTES + 8 + INLINE_BYTES <= OVERFLOW_BYTES);
const _: () = assert!(INLINE_BYTES + INLINE_ALIGN <= CHUNK_BYTES);
