//! Every knob of the crate, in one place, with the reasons.

/// Bytes of the first part of a slot, its 16-byte head included (thesis 2.5.3.1): what a trustee touches when
/// it scans its clients, so it is small.
pub(crate) const PRIMARY_BYTES: usize = 128;
/// Bytes of the second part of a slot: room for a large batch.
pub(crate) const OVERFLOW_BYTES: usize = 1024;
/// Bytes at the start of the primary part: ready bit, then counts (requests) or extra pointer (responses).
pub(crate) const HEAD_BYTES: usize = 16;
/// Slots of one client-trustee pair. With two, a client fills one while the trustee serves the other.
pub(crate) const SLOTS: usize = 2;
/// Bits of an address. In the word of 64 bits that holds a property's address, those above are for something else.
pub(crate) const ADDRESS_BITS: u32 = 48;
/// A capture or result larger than this gets an allocation of its own and travels as a pointer.
pub(crate) const INLINE_BYTES: usize = 256;
/// A capture or result aligned more strictly than this gets an allocation of its own.
pub(crate) const INLINE_ALIGN: usize = 64;
/// Bytes of each allocation that takes the responses which do not fit the response slot.
pub(crate) const CHUNK_BYTES: usize = 4096;
/// Largest serialised argument or result of a request to another machine.
pub const REMOTE_MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Largest serialised argument or result of a request within one process.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// The most of a fault's text that travels to another machine.
pub(crate) const FAULT_TEXT_BYTES_MAX: usize = 16 << 10;
/// Full batches for one trustee of another machine that may wait for their turn before those who make more wait too.
pub(crate) const REMOTE_WAITING_MAX: usize = 2;
/// Batches of one client of another machine that are served in one turn.
pub(crate) const REMOTE_SERVED_A_TURN: usize = 4;
/// Memory that a buffer keeps which once held a large message.
pub(crate) const REMOTE_KEPT_BYTES_MAX: usize = 64 << 10;
/// Stack of a fiber unless the builder says otherwise. Only touched pages cost memory.
pub(crate) const STACK_BYTES: usize = 256 * 1024;
/// Calls on its own trustee after which a thread looks whether others wait to be served.
pub(crate) const GIVE_WAY_EVERY: u64 = 256;
/// A trustee with so many properties fetches them ahead of the requests that it runs.
pub(crate) const SPREAD_FROM: usize = 1024;
/// The longest that an idle worker polls before it sleeps, unless the builder says otherwise (`idle.rs`): a few times
/// what a wake-up takes in a virtual machine.
pub(crate) const SPIN_NS: u64 = 500_000;
/// An idle worker always polls for so many wake-ups, as measured, but at most for half of its spin.
pub(crate) const POLL_WAKE_UPS: u64 = 2;
/// Turns of its loop between two looks at the clock meanwhile, where it pauses once a turn: some 400 ns.
pub(crate) const TURNS_PER_LOOK: u32 = 32;
/// An idle worker pauses once more in each turn for so many fibers that ran before, up to [`PAUSES_MAX`] times.
pub(crate) const FIBERS_PER_PAUSE: u64 = 16;
/// The most pauses in one turn: some 80 ns on an AMD EPYC.
pub(crate) const PAUSES_MAX: u32 = 4;
/// Which part of time a worker's spin budget grows by: one in so many.
pub(crate) const BUDGET_PARTS: u64 = 8;
/// The most that the budget holds, in whole spins.
pub(crate) const BUDGET_SPINS: u64 = 8;
/// How often in a row it gives its core to another thread of this process before it sleeps.
pub(crate) const YIELDS: u32 = 16;
/// A yield that takes longer has gone to a stranger's thread: those of this process give the core back sooner.
pub(crate) const YIELD_NS_MAX: u64 = 1_000_000;
/// Who lingers takes a core for another's whose thread had it for longer than this: those who wait for one another give
/// it back sooner.
pub(crate) const CONTESTED_NS: u64 = 50_000;
/// What counts of that at most: a process that was stopped has had nobody on its core.
pub(crate) const CONTESTED_MAX: std::time::Duration = std::time::Duration::from_millis(10);
/// For so many times as long.
pub(crate) const CONTESTED_YIELDS: u32 = 16;
/// The longest spin.
pub(crate) const SPIN_NS_MAX: u64 = 1_000_000_000;
/// Launched closures whose results one thread may await before it waits for some.
pub(crate) const LAUNCHES_MAX: usize = 4096;
/// Calls of threads without slots that may be under way at one worker before the futures of others are pending unsent.
pub(crate) const CALLS_MAX: usize = if cfg!(loom) { 4 } else { 1024 };
/// How often a task looks for the outcome of its call, with a pause before, before it is left. A trustee that polls
/// answers in less.
pub(crate) const ANSWER_SPINS: u32 = 64;
/// So often in a row must that be in vain before a thread gives it up.
pub(crate) const SPIN_LUCK_MAX: u32 = 8;
/// A thread that has given it up tries it again once in so many calls.
pub(crate) const SPIN_PROBE_EVERY: u32 = 32;
/// How long an exiting thread waits for the answers to its last requests before it abandons them.
pub(crate) const EXIT_WAIT_MS: u64 = 5_000;
/// How long it then waits until others take what it has to tell them: outcomes of launched closures, trusts that are
/// gone.
pub(crate) const LAST_WORDS_MS: u64 = 5_000;
/// How often a thread with suspended fibers is watched anew, each time its own code goes on (`current.rs`); then ever
/// less often.
pub(crate) const WATCHES: u64 = 8_192;
/// How often the fibers that wait are looked at for circles, while there are new ones (`runtime/watch`). A circle is
/// told after three times.
pub(crate) const WATCH_EVERY_MS: u64 = 150;
/// And where there are no new ones, but a worker has not answered.
pub(crate) const WATCH_EVERY_MS_MAX: u64 = 10_000;
/// How long an answer is waited for.
pub(crate) const WATCH_ANSWER_MS: u64 = 100;
/// How long other machines' answers are waited for (`runtime/watch/rack.rs`).
pub(crate) const RACK_ANSWER_MS: u64 = 1_000;
/// How long the machine that looks for circles through others rests after it has. Three rounds and this are less than
/// five seconds.
pub(crate) const RACK_JUDGED_EVERY_MS: u64 = 1_000;
/// How often it is looked whether nothing goes on any more, once a fiber has panicked (`runtime/watch/still.rs`). Two
/// rounds of it, and the answers of other machines, are less than five seconds.
pub(crate) const STILL_EVERY_MS: u64 = 1_200;
/// How long the end of a pool waits before it says what for.
pub(crate) const DROP_TELL_MS: u64 = 5_000;
/// How long it waits while a panic unwinds.
pub(crate) const UNWINDING_WAIT_MS: u64 = 2_000;

const _: () = assert!(PRIMARY_BYTES.is_power_of_two() && PRIMARY_BYTES >= 128);
const _: () = assert!(OVERFLOW_BYTES.is_multiple_of(PRIMARY_BYTES));
const _: () = assert!(SLOTS >= 1 && SLOTS <= 32);
// The largest inline request (head, over-alignment, captures) fits an empty overflow part.
const _: () = assert!(16 + INLINE_ALIGN + INLINE_BYTES + 8 + INLINE_BYTES <= OVERFLOW_BYTES);
const _: () = assert!(INLINE_BYTES + INLINE_ALIGN <= CHUNK_BYTES);
