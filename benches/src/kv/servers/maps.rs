//! Tables in shared memory for the server of `kv`: whichever worker has read a command runs it itself, where the
//! server's own table sends it to the worker that has the key. Keys and values of up to 16 bytes lie in the table,
//! without allocations.
//!
//! The effect of a command on an item is in `gossamer_examples::kv::item`, the same for all tables. There is no limit
//! of memory and no order of last use, which the server's own table has.

use crate::kv::record::Hashing;
use crate::kv::tables::kinds::{Lock, SHARDS, Sharded};
use dashmap::{DashMap, Entry};
use gossamer_examples::kv::clock;
use gossamer_examples::kv::item::{self, Change, Found};
use gossamer_examples::kv::replies::Awaited;
use gossamer_examples::kv::table::{self, Answer, Command, Counts, Op};
use papaya::Operation;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cell::Cell;
use std::convert::Infallible;
use std::sync::Arc;

/// Bytes, in place if they are few.
pub type Text = SmallVec<[u8; 16]>;

/// A standard map of items.
pub type ItemMap = std::collections::HashMap<Text, Item, Hashing>;

/// Entry of a key.
#[derive(Clone)]
pub struct Item {
    flags: u32,
    expires: u32,
    unique: u64,
    value: Text,
}

impl Item {
    fn found(&self) -> Option<Found<'_>> {
        let Self { flags, expires, unique, ref value } = *self;
        (!clock::has_passed(expires)).then_some(Found { flags, expires, unique, value })
    }
}

/// The change of an item.
pub enum Update {
    /// As it was.
    Kept,
    /// This is there instead.
    Put(Item),
    /// It is gone.
    Removed,
}

/// A concurrent map of items.
pub trait Map: Send + Sync + 'static {
    fn with_capacity(keys: usize) -> Self;
    fn get(&self, key: &[u8]) -> Option<Item>;
    /// Changes an item, of which nothing else sees the state between; `change` may be called again where others come
    /// between.
    fn change<R>(&self, key: &[u8], change: impl FnMut(Option<&Item>) -> (Update, R)) -> R;
    fn clear(&self);
    fn len(&self) -> usize;
}

impl<L: Lock<ItemMap> + Send> Map for Sharded<L> {
    fn with_capacity(keys: usize) -> Self {
        Self::of(|| L::around(ItemMap::with_capacity_and_hasher(keys / SHARDS, Hashing::default())))
    }

    fn get(&self, key: &[u8]) -> Option<Item> {
        self.shard(key).read(|map| map.get(key).cloned())
    }

    fn change<R>(&self, key: &[u8], mut change: impl FnMut(Option<&Item>) -> (Update, R)) -> R {
        self.shard(key).write(|map| {
            let item = map.get_mut(key);
            let (update, answer) = change(item.as_deref());
            match (update, item) {
                (Update::Kept, _) => {}
                (Update::Put(put), Some(item)) => *item = put,
                (Update::Put(put), None) => drop(map.insert(Text::from_slice(key), put)),
                (Update::Removed, _) => drop(map.remove(key)),
            }
            answer
        })
    }

    fn clear(&self) {
        self.shards().for_each(|shard| shard.write(ItemMap::clear));
    }

    fn len(&self) -> usize {
        self.shards().map(|shard| shard.read(ItemMap::len)).sum()
    }
}

impl Map for DashMap<Text, Item, Hashing> {
    fn with_capacity(keys: usize) -> Self {
        Self::with_capacity_and_hasher(keys, Hashing::default())
    }

    fn get(&self, key: &[u8]) -> Option<Item> {
        self.get(key).map(|item| item.clone())
    }

    fn change<R>(&self, key: &[u8], mut change: impl FnMut(Option<&Item>) -> (Update, R)) -> R {
        match self.entry(Text::from_slice(key)) {
            Entry::Occupied(mut item) => {
                let (update, answer) = change(Some(item.get()));
                match update {
                    Update::Kept => {}
                    Update::Put(put) => drop(item.insert(put)),
                    Update::Removed => drop(item.remove()),
                }
                answer
            }
            Entry::Vacant(room) => {
                let (update, answer) = change(None);
                if let Update::Put(put) = update {
                    room.insert(put);
                }
                answer
            }
        }
    }

    fn clear(&self) {
        self.clear();
    }

    fn len(&self) -> usize {
        self.len()
    }
}

impl Map for papaya::HashMap<Text, Item, Hashing> {
    fn with_capacity(keys: usize) -> Self {
        Self::with_capacity_and_hasher(keys, Hashing::default())
    }

    fn get(&self, key: &[u8]) -> Option<Item> {
        self.pin().get(key).cloned()
    }

    fn change<R>(&self, key: &[u8], mut change: impl FnMut(Option<&Item>) -> (Update, R)) -> R {
        let mut answer = None;
        let changed = |entry: Option<(&Text, &Item)>| {
            let (update, said) = change(entry.map(|(_, item)| item));
            answer = Some(said);
            match update {
                Update::Put(put) => Operation::Insert(put),
                Update::Removed if entry.is_some() => Operation::Remove,
                Update::Kept | Update::Removed => Operation::Abort(()),
            }
        };
        self.pin().compute(Text::from_slice(key), changed);
        answer.expect("`compute` has called the closure at least once")
    }

    fn clear(&self) {
        self.pin().clear();
    }

    fn len(&self) -> usize {
        self.pin().len()
    }
}

/// A map as one worker's connections see it.
pub struct Shared<M> {
    map: Arc<M>,
    /// The unique number of the next item that this worker stores; workers have numbers of their own.
    unique: Cell<u64>,
}

impl<M> Shared<M> {
    pub fn new(map: Arc<M>, worker: usize) -> Self {
        Self { map, unique: Cell::new((worker as u64) << 48) }
    }

    fn item(&self, flags: u32, expires: u32, parts: [&[u8]; 2]) -> Update {
        self.unique.set(self.unique.get() + 1);
        let mut value = Text::from_slice(parts[0]);
        value.extend_from_slice(parts[1]);
        Update::Put(Item { flags, expires, unique: self.unique.get(), value })
    }
}

impl<M: Map> table::Table for Shared<M> {
    type Large = Infallible;

    fn run(&self, command: &Command<'_>, awaited: Awaited<Infallible>) {
        let mut answer = Answer::Touched;
        if command.op != Op::Get {
            answer = self.map.change(command.key, |item| {
                let found = item.and_then(Item::found);
                let (change, answer) = item::decide(command, found);
                let update = match (change, item) {
                    (Change::Store { flags, expires, value }, _) => self.item(flags, expires, value),
                    (Change::Number(digits), Some(item)) => self.item(item.flags, item.expires, digits.parts()),
                    (Change::Expire(expires), Some(item)) => Update::Put(Item { expires, ..item.clone() }),
                    (Change::Remove, _) => Update::Removed,
                    (Change::Nothing | Change::Number(_) | Change::Expire(_), _) => Update::Kept,
                };
                (update, answer)
            });
        }
        if !matches!(command.op, Op::Get | Op::GetAndTouch) || answer != Answer::Touched {
            return awaited.answer(answer);
        }
        match self.map.get(command.key).as_ref().and_then(Item::found) {
            Some(Found { flags, unique, value, .. }) => awaited.answer(Answer::Value { flags, unique, value }),
            None => awaited.answer(Answer::NotFound),
        }
    }

    /// Forgets all items at once, at any time.
    fn flush(&self, _at: u32) {
        self.map.clear();
    }

    /// These maps have no limit.
    fn limit_memory(&self, _bytes: usize) {}

    fn counts(&self) -> Counts {
        vec![(Cow::Borrowed("curr_items"), self.map.len() as u64)]
    }

    /// The number of items is not counted, it is there.
    fn reset_counts(&self) {}
}
