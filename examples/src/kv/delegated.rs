//! The table as it is meant: its shards are entrusted to workers, of one machine or of all machines of a rack, and a
//! command goes to the worker that has the key. Here `trust` is used, and nowhere else in the server but for fibers and
//! sockets.
//!
//! The commands of a burst are gathered for each shard, packed (`packed.rs`), and go there in one closure, which
//! returns their answers packed: within the process in buffers that go there and back, to another machine as a
//! serialised argument. A value that is too long for that is kept for the client, as it is, under a ticket, and the
//! client fetches it when it is that answer's turn.

use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher};
use std::rc::Rc;

use foldhash::fast::FixedState;
use gossamer::Trust;
use serde_bytes::ByteBuf;

use super::meta;
use super::packed::{self, Answers};
use super::replies::Awaited;
use super::server::PROGRAM;
use super::shard::{Reply, Shard, Value};
use super::table::{Answered, Carried, Command, Counts, Large, Table};

/// Buffers for each shard that are kept for bursts to come, and memory that one of them keeps.
const BUFFERS_KEPT: usize = 8;
const BUFFER_BYTES_KEPT: usize = 16 << 10;

/// The shards of the table, as the connections of one worker see them.
pub struct Delegated {
    parts: Rc<Parts>,
}

struct Parts {
    shards: Box<[Part]>,
    hasher: FixedState,
}

/// A shard, and the commands that are gathered for it.
struct Part {
    shard: Trust<Shard>,
    /// It is in this process.
    is_here: bool,
    gathered: RefCell<Gathered>,
    spare: RefCell<Vec<Gathered>>,
}

/// Commands for a shard, in order, and the replies that await their answers.
#[derive(Default)]
struct Gathered {
    commands: Vec<u8>,
    awaited: Vec<Awaited<Kept>>,
    answers: Vec<u8>,
}

impl Delegated {
    /// A table of these shards. The seed decides which key is where, and is the same wherever the table is used.
    pub fn new(shards: Vec<Trust<Shard>>, seed: u64) -> Self {
        let machine = gossamer::rack().machine();
        let part = |shard: Trust<Shard>| {
            let is_here = shard.trustee().id().machine() == machine;
            Part { shard, is_here, gathered: RefCell::default(), spare: RefCell::default() }
        };
        let shards = shards.into_iter().map(part).collect();
        Delegated { parts: Rc::new(Parts { shards, hasher: FixedState::with_seed(seed) }) }
    }

    fn shards(&self) -> impl Iterator<Item = &Trust<Shard>> {
        // Commands that were gathered come first.
        self.send();
        self.parts.shards.iter().map(|part| &part.shard)
    }

    /// Sends the commands that are gathered for this shard.
    fn send_to(&self, place: usize) {
        let part = &self.parts.shards[place];
        if part.gathered.borrow().awaited.is_empty() {
            return;
        }
        let next = part.spare.borrow_mut().pop().unwrap_or_default();
        let Gathered { commands, awaited, mut answers } = part.gathered.replace(next);
        let parts = Rc::clone(&self.parts);
        if part.is_here {
            let run = move |shard: &mut Shard| {
                packed::run_all(shard, &commands, &mut answers);
                (commands, answers)
            };
            part.shard.call().in_process().apply(run).then(move |done| match done {
                Ok((commands, answers)) => parts.answer(place, Gathered { commands, awaited, answers }),
                Err(error) => no_answer(&error),
            });
        } else {
            let run = |shard: &mut Shard, commands: ByteBuf| {
                let mut answers = Vec::new();
                packed::run_all(shard, &commands, &mut answers);
                ByteBuf::from(answers)
            };
            part.shard.call().with(ByteBuf::from(commands)).apply(run).then(move |done| match done {
                Ok(answers) => {
                    parts.answer(place, Gathered { commands: Vec::new(), awaited, answers: answers.into_vec() });
                }
                Err(error) => no_answer(&error),
            });
        }
    }
}

/// Dropped, the replies tell the client that there is no answer.
fn no_answer(error: &trust::Error) {
    PROGRAM.complain(format_args!("commands have no answers: {error}"));
}

impl Parts {
    /// Which shard has the key, and the hash under which the shard has it.
    #[inline]
    fn place(&self, key: &[u8]) -> (usize, u32) {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        let hash = hasher.finish();
        let shard = ((hash >> 32) * self.shards.len() as u64) >> 32;
        (shard as usize, hash as u32)
    }

    /// Writes the replies, and keeps the buffers.
    fn answer(self: &Rc<Self>, shard: usize, mut gathered: Gathered) {
        let kept = |ticket, bytes| Kept { parts: Rc::clone(self), shard, bytes, ticket: Some(ticket) };
        let mut answers = Answers::new(&gathered.answers);
        for awaited in gathered.awaited.drain(..) {
            if let Some(answer) = answers.next(kept) {
                awaited.answer(answer);
            }
        }
        for buffer in [&mut gathered.commands, &mut gathered.answers] {
            buffer.clear();
            buffer.shrink_to(BUFFER_BYTES_KEPT);
        }
        let mut spare = self.shards[shard].spare.borrow_mut();
        if spare.len() < BUFFERS_KEPT {
            spare.push(gathered);
        }
    }
}

/// A value that a shard keeps until it is fetched or nobody wants it any more.
pub struct Kept {
    parts: Rc<Parts>,
    shard: usize,
    bytes: usize,
    /// Id of the kept value, until it is fetched.
    ticket: Option<u64>,
}

impl Large for Kept {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn fetch(mut self) -> Vec<u8> {
        let shard = &self.parts.shards[self.shard].shard;
        let take = |shard: &mut Shard, ticket| ByteBuf::from(shard.take(ticket));
        self.ticket.take().map(|ticket| shard.apply_with(take, ticket).into_vec()).unwrap_or_default()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.parts.shards[self.shard].shard.apply_then(move |shard| shard.forget(ticket), |()| {});
        }
    }
}

impl Table for Delegated {
    type Large = Kept;

    #[inline]
    fn run(&self, command: &Command<'_>, awaited: Awaited<Kept>) {
        let (place, hash) = self.parts.place(command.key);
        let gathered = &mut *self.parts.shards[place].gathered.borrow_mut();
        packed::pack(&mut gathered.commands, hash, command);
        gathered.awaited.push(awaited);
    }

    fn send(&self) {
        (0..self.parts.shards.len()).for_each(|place| self.send_to(place));
    }

    fn meta<H: FnOnce(Answered<Kept>) + 'static>(&self, command: meta::Command, then: H) {
        let (place, hash) = self.parts.place(&command.key);
        self.send_to(place);
        let parts = Rc::clone(&self.parts);
        let run = move |shard: &mut Shard, command: meta::Command| shard.meta(hash, &command);
        self.parts.shards[place].shard.call().with(command).apply(run).then(move |result| {
            let reply: Reply = result.unwrap();
            let Reply { status, seen, value } = reply;
            let value = value.map(|value| match value {
                Value::Here(value) => Carried::Here(value.into_vec()),
                Value::Kept(ticket) => {
                    Carried::Large(Kept { parts, shard: place, bytes: seen.bytes as usize, ticket: Some(ticket) })
                }
            });
            then(Answered { status, seen, value });
        });
    }

    fn flush(&self, at: u32) {
        for shard in self.shards() {
            shard.apply(move |shard| shard.flush(at));
        }
    }

    fn limit_memory(&self, bytes: usize) {
        for shard in self.shards() {
            shard.apply(move |shard| shard.limit_memory(bytes));
        }
    }

    fn keys(&self, bytes_max: usize) -> Vec<(Vec<u8>, u32, u32)> {
        let each = bytes_max / self.parts.shards.len().max(1);
        let of = |shard: &Trust<Shard>| shard.apply_with(|shard, each| shard.keys(each), each);
        let keys = self.shards().flat_map(of);
        keys.map(|(key, bytes, expires)| (key.into_vec(), bytes, expires)).collect()
    }

    fn counts(&self) -> Counts {
        let mut sum: Counts = Vec::new();
        for shard in self.shards() {
            let counts = shard.apply_with(|shard, ()| shard.counts(), ());
            if sum.is_empty() {
                sum = counts;
            } else {
                sum.iter_mut().zip(counts).for_each(|(sum, count)| sum.1 += count.1);
            }
        }
        sum
    }

    fn reset_counts(&self) {
        for shard in self.shards() {
            shard.apply(Shard::reset_counts);
        }
    }
}
