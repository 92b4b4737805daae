//! One part of the table, used by one thread alone: items by key, the order in which they go, and the memory they take.
//! Knows nothing of delegation.
//!
//! An item lies in a `Cell` of 64 bytes (`cells.rs`), with key and value in place if they are short. The index has 8
//! bytes for each item: its hash and the number of its cell. The cells of items are linked in the order in which they
//! were stored; where the memory does not suffice, the oldest goes. One that was used since has a second chance: it
//! becomes the newest instead, and unused (the clock algorithm). So a use costs a mark in the item's own cell, and no
//! change of links, whose cells would have to be fetched.
//!
//! Against the limit count: the items; values without an item that are still to be fetched; and free cells, but for
//! some. Free cells are given back before an item goes.

mod meta;

use std::collections::{HashMap, HashSet};
use std::hint::black_box;
use std::rc::Rc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

pub use self::meta::{Reply, Value};
use super::cells::{Body, Cells, NONE, allocated_bytes};
use super::clock;
use super::item::{Change, Found, decide};
use super::size::VALUE_BYTES_MAX;
use super::table::{Answer, Command, Counts, Op};

/// Memory for an item beside the part in its cell: the cell, and its place in the index.
const ITEM_BYTES: usize = 64 + 16;
/// Second chances that are given before an item goes all the same: so that no store waits for a walk over all items.
const CHANCES: usize = 64;
/// So many items take a megabyte.
const LARGE_ITEMS: usize = 1 << 14;
/// The least memory that a shard may take: two of the largest values.
pub const SHARD_BYTES_MIN: usize = 2 * VALUE_BYTES_MAX;
/// Memory for putting items together that is kept.
const SCRATCH_KEPT_BYTES: usize = 64 << 10;

/// Place of an item.
struct Place {
    hash: u32,
    cell: u32,
}

/// Counters, in memcached's words.
#[derive(Default)]
struct Tally {
    get_hits: u64,
    get_misses: u64,
    touch_hits: u64,
    touch_misses: u64,
    stores: u64,
    delete_hits: u64,
    delete_misses: u64,
    incr_hits: u64,
    incr_misses: u64,
    decr_hits: u64,
    decr_misses: u64,
    cas_hits: u64,
    cas_misses: u64,
    cas_badval: u64,
    total_items: u64,
    expired: u64,
    evictions: u64,
    flushes: u64,
}

/// One part of the table.
pub struct Shard {
    index: HashTable<Place>,
    cells: Cells,
    unique: u64,
    /// Bytes of the items.
    bytes: usize,
    /// Bytes of kept values whose items have gone or have other values.
    orphaned_bytes: usize,
    limit_bytes: usize,
    /// Shards of this machine, this one included.
    sharers: usize,
    /// All that there is by then is forgotten; 0 for never.
    flush_at: u32,
    /// Values that were found and wait to be fetched: bytes, and where the value begins in them.
    kept: HashMap<u64, (Rc<[u8]>, usize)>,
    next_ticket: u64,
    scratch: Vec<u8>,
    tally: Tally,
}

/// The hash under which the index has an item, of all 64 bits.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The part that one of so many shards has in the memory.
fn share_of(memory_bytes: usize, sharers: usize) -> usize {
    (memory_bytes / sharers).max(SHARD_BYTES_MIN)
}

impl Shard {
    /// An empty one. The items of so many shards, of which this is one, may take so much memory together, but each of
    /// them [so much](SHARD_BYTES_MIN) at least.
    pub fn new(memory_bytes: usize, sharers: usize) -> Self {
        Shard {
            index: HashTable::new(),
            cells: Cells::default(),
            unique: 0,
            bytes: 0,
            orphaned_bytes: 0,
            limit_bytes: share_of(memory_bytes, sharers),
            sharers,
            flush_at: 0,
            kept: HashMap::new(),
            next_ticket: 0,
            scratch: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// The cell of the item on this key, for [`item`](Self::item). `touch`: it expires then.
    pub fn get(&mut self, hash: u32, key: &[u8], touch: Option<u32>) -> Option<u32> {
        self.flush_if_due();
        let cell = self.find(hash, key);
        match (cell.is_some(), touch.is_some()) {
            (true, false) => self.tally.get_hits += 1,
            (false, false) => self.tally.get_misses += 1,
            (true, true) => self.tally.touch_hits += 1,
            (false, true) => self.tally.touch_misses += 1,
        }
        let cell = cell?;
        if let Some(expires) = touch {
            self.cells[cell].expires = expires;
        }
        let body = &mut self.cells[cell].body;
        body.set_used(body.used().again());
        self.use_again(cell);
        Some(cell)
    }

    /// Are there more items than the caches of a core hold?
    pub fn is_large(&self) -> bool {
        self.index.len() >= LARGE_ITEMS
    }

    /// Fetches the items with these hashes into the cache. Nothing depends on one of them before all are on their way,
    /// so their misses overlap.
    pub fn fetch(&self, hashes: impl Iterator<Item = u32>) {
        let place = |hash| self.index.find(spread(hash), |place| place.hash == hash);
        let keys = hashes.filter_map(place).map(|place| self.cells[place.cell].expires);
        black_box(keys.fold(0, |sum, expires| sum | expires));
    }

    /// The item in a cell.
    pub fn item(&self, cell: u32) -> Found<'_> {
        self.cells[cell].item()
    }

    /// Keeps the value in this cell as it is until it is [taken](Self::take), under this ticket. `None` if kept values
    /// without an item leave no room for it. Other items may go, and the item may be in another cell then.
    pub fn keep(&mut self, cell: u32) -> Option<u64> {
        let (body, start) = self.cells[cell].body.share();
        let allocated = allocated_bytes(&body);
        if self.orphaned_bytes + ITEM_BYTES + allocated > self.limit_bytes {
            return None;
        }
        if Rc::strong_count(&body) == 1 {
            self.orphaned_bytes += allocated; // a copy of a short one
            self.make_room(cell);
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.kept.insert(ticket, (body, start));
        Some(ticket)
    }

    /// The value that was kept under this ticket.
    pub fn take(&mut self, ticket: u64) -> Vec<u8> {
        let Some((body, start)) = self.kept.remove(&ticket) else { return Vec::new() };
        let value = body[start..].to_vec();
        self.release(&body);
        value
    }

    /// Nobody fetches that value.
    pub fn forget(&mut self, ticket: u64) {
        if let Some((body, _)) = self.kept.remove(&ticket) {
            self.release(&body);
        }
    }

    /// A value is kept no more.
    fn release(&mut self, body: &Rc<[u8]>) {
        if Rc::strong_count(body) == 1 {
            self.orphaned_bytes -= allocated_bytes(body);
        }
    }

    /// Runs a command that changes an item.
    pub fn change(&mut self, hash: u32, command: &Command<'_>) -> Answer<'static> {
        self.flush_if_due();
        let cell = self.find(hash, command.key);
        let (change, mut answer) = decide(command, cell.map(|cell| self.cells[cell].item()));
        let stored = match change {
            Change::Nothing => None,
            Change::Store { flags, expires, value } => {
                Some((flags, expires, Body::new(command.key, value, &mut self.scratch)))
            }
            Change::Number(digits) => cell.map(|cell| {
                let Found { flags, expires, .. } = self.cells[cell].item();
                (flags, expires, Body::new(command.key, digits.parts(), &mut self.scratch))
            }),
            Change::Expire(expires) => {
                if let Some(cell) = cell {
                    self.cells[cell].expires = expires;
                    self.use_again(cell);
                }
                None
            }
            Change::Remove => {
                if let Some(cell) = cell {
                    self.remove(cell);
                }
                None
            }
        };
        if let Some((flags, expires, body)) = stored
            && !self.store(hash, cell, flags, expires, body)
        {
            answer = Answer::NoMemory;
        }
        self.count(command.op, cell.is_some(), &answer);
        answer
    }

    /// False if there is no room for it even alone; the old item is gone then.
    fn store(&mut self, hash: u32, cell: Option<u32>, flags: u32, expires: u32, body: Body) -> bool {
        let bytes = ITEM_BYTES + body.allocated_bytes();
        let orphaned = cell.map_or(0, |cell| self.cells[cell].body.orphaned_bytes());
        if bytes + self.orphaned_bytes + orphaned > self.limit_bytes {
            if let Some(cell) = cell {
                self.remove(cell);
            }
            return false;
        }
        self.scratch.shrink_to(SCRATCH_KEPT_BYTES);
        self.unique += 1;
        let cell = match cell {
            Some(cell) => {
                self.bytes -= ITEM_BYTES + self.cells[cell].body.allocated_bytes();
                self.orphaned_bytes += orphaned;
                self.use_again(cell);
                cell
            }
            None => {
                let cell = self.cells.insert(hash, self.unique);
                self.index.insert_unique(spread(hash), Place { hash, cell }, |place| spread(place.hash));
                self.tally.total_items += 1;
                cell
            }
        };
        let item = &mut self.cells[cell];
        (item.flags, item.expires, item.unique, item.body) = (flags, expires, self.unique, body);
        self.bytes += bytes;
        self.make_room(cell);
        true
    }

    /// All that counts against the limit.
    #[inline]
    fn taken_bytes(&self) -> usize {
        self.bytes + self.orphaned_bytes + self.cells.unused_bytes()
    }

    /// Evicts items down to the limit, but not the item in this cell.
    #[inline]
    fn make_room(&mut self, mut spare: u32) {
        while self.taken_bytes() > self.limit_bytes && (self.shrink(&mut spare) || self.evict(spare)) {}
    }

    /// Gives memory of free cells back, if there is some. The one that is to be spared may be another one then.
    fn shrink(&mut self, spare: &mut u32) -> bool {
        let Shard { index, cells, .. } = self;
        let is_smaller = cells.shrink(|hash, from, to| {
            if let Some(place) = index.find_mut(spread(hash), |place| place.cell == from) {
                place.cell = to;
            }
            if *spare == from {
                *spare = to;
            }
        });
        if is_smaller && index.capacity() / 4 > index.len() {
            index.shrink_to(2 * index.len(), |place| spread(place.hash));
        }
        is_smaller
    }

    /// Limits the memory that the items of this shard and its sharers take together.
    pub fn limit_memory(&mut self, memory_bytes: usize) {
        self.limit_bytes = share_of(memory_bytes, self.sharers);
        self.make_room(NONE);
    }

    /// Gives up an item that was not used for long, but not the one in this cell. False if there is none.
    fn evict(&mut self, spare: u32) -> bool {
        for _ in 0..CHANCES {
            let oldest = self.cells.oldest();
            if oldest == NONE || (!self.cells[oldest].is_used && oldest != spare) {
                break;
            }
            self.cells.move_to_newest(oldest);
        }
        let mut oldest = self.cells.oldest();
        if oldest == spare && oldest != NONE {
            oldest = self.cells[oldest].newer;
        }
        if oldest == NONE {
            return false;
        }
        if clock::has_passed(self.cells[oldest].expires) {
            self.tally.expired += 1;
        } else {
            self.tally.evictions += 1;
        }
        self.remove(oldest);
        true
    }

    /// The item on this key, if it has not expired.
    fn find(&mut self, hash: u32, key: &[u8]) -> Option<u32> {
        let is_it = |place: &Place| place.hash == hash && self.cells[place.cell].body.key() == key;
        let cell = self.index.find(spread(hash), is_it)?.cell;
        if clock::has_passed(self.cells[cell].expires) {
            self.tally.expired += 1;
            self.remove(cell);
            return None;
        }
        Some(cell)
    }

    #[inline]
    fn use_again(&mut self, cell: u32) {
        let cell = &mut self.cells[cell];
        // Not written without need: its line stays as it is.
        if !cell.is_used {
            cell.is_used = true;
        }
    }

    fn remove(&mut self, cell: u32) {
        let hash = self.cells[cell].hash;
        let entry = self.index.entry(spread(hash), |place| place.cell == cell, |place| spread(place.hash));
        if let Entry::Occupied(entry) = entry {
            entry.remove();
        }
        let body = &self.cells[cell].body;
        self.bytes -= ITEM_BYTES + body.allocated_bytes();
        self.orphaned_bytes += body.orphaned_bytes();
        self.cells.remove(cell);
    }

    /// Forgets all that there is, now or then.
    pub fn flush(&mut self, at: u32) {
        self.tally.flushes += 1;
        self.flush_at = if at == 0 { clock::now() } else { at };
        self.flush_if_due();
    }

    #[inline]
    fn flush_if_due(&mut self) {
        if clock::has_passed(self.flush_at) {
            self.flush_at = 0;
            self.index = HashTable::new();
            self.cells = Cells::default();
            self.bytes = 0;
            let mut counted = HashSet::new();
            let orphans = self.kept.values().filter(|(body, _)| counted.insert(body.as_ptr()));
            self.orphaned_bytes = orphans.map(|(body, _)| allocated_bytes(body)).sum();
        }
    }

    fn count(&mut self, op: Op, found: bool, answer: &Answer<'_>) {
        let tally = &mut self.tally;
        match op {
            Op::Get | Op::GetAndTouch => {}
            Op::CompareAndSet => {
                tally.stores += 1;
                match answer {
                    Answer::NotFound => tally.cas_misses += 1,
                    Answer::Exists => tally.cas_badval += 1,
                    _ => tally.cas_hits += 1,
                }
            }
            Op::Set | Op::Add | Op::Replace | Op::Append | Op::Prepend => tally.stores += 1,
            Op::Increment if found => tally.incr_hits += 1,
            Op::Increment => tally.incr_misses += 1,
            Op::Decrement if found => tally.decr_hits += 1,
            Op::Decrement => tally.decr_misses += 1,
            Op::Touch if found => tally.touch_hits += 1,
            Op::Touch => tally.touch_misses += 1,
            Op::Delete if found => tally.delete_hits += 1,
            Op::Delete => tally.delete_misses += 1,
        }
    }

    /// Counts from 0 again.
    pub fn reset_counts(&mut self) {
        self.tally = Tally::default();
    }

    /// Its counters, and its contents.
    pub fn counts(&mut self) -> Counts {
        self.flush_if_due();
        let tally = &self.tally;
        let counts = [
            ("cmd_get", tally.get_hits + tally.get_misses),
            ("cmd_set", tally.stores),
            ("cmd_flush", tally.flushes),
            ("cmd_touch", tally.touch_hits + tally.touch_misses),
            ("get_hits", tally.get_hits),
            ("get_misses", tally.get_misses),
            ("delete_misses", tally.delete_misses),
            ("delete_hits", tally.delete_hits),
            ("incr_misses", tally.incr_misses),
            ("incr_hits", tally.incr_hits),
            ("decr_misses", tally.decr_misses),
            ("decr_hits", tally.decr_hits),
            ("cas_misses", tally.cas_misses),
            ("cas_hits", tally.cas_hits),
            ("cas_badval", tally.cas_badval),
            ("touch_hits", tally.touch_hits),
            ("touch_misses", tally.touch_misses),
            ("limit_maxbytes", self.limit_bytes as u64),
            ("bytes", self.taken_bytes() as u64),
            ("curr_items", self.index.len() as u64),
            ("total_items", tally.total_items),
            ("expired", tally.expired),
            ("evictions", tally.evictions),
        ];
        counts.into_iter().map(|(name, count)| (name.into(), count)).collect()
    }
}
