//! Objects that leave this machine, which is when they get a replica: not each write does. The gate finds the names of
//! this machine's objects in a frame that is to be sent; the backup gets those that it does not have in this version,
//! with all that they name, by writes to its memory. When a read of them has come back the frame goes (FaRM: the
//! backups first).
//!
//! A name is found by its bytes. Most bytes that look like one are, and the head of the object tells the rest. A stale
//! name does no harm: what it saves is the object of that version, whole [idle-is-whole]. A name that the scan misses
//! (in a packed struct inside an object) is `Lost` later, not wrong.
//!
//! Each worker has its own: it writes by its own connection, whose writes arrive in order. Others that find an object
//! at `Saving` wait for the worker that saves it.
//!
//! Invariant [one-writer]: one worker at a time writes replicas of the objects of a partition, until all that it has
//! written has arrived. So no late write of an earlier version meets a later one, nor one of an object that has ended
//! one that lies there since.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use comm::{Error, ReadId, SHARE_UNIT_BYTES as UNIT};
use gossamer::{Place, link};

use super::backups::{self, Backup};
use super::head::{EPOCHS, HEAD_BYTES, Head, Step};
use super::{heads, replica, switch, window};
use crate::name::{At, Name, Version};
use crate::{bases, places, stats};

/// Wait before the backup is looked at again whether it has made room.
pub(super) const AGAIN: Duration = Duration::from_micros(100);
/// Wait before it is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Objects that a new backup gets at once.
const AT_ONCE: usize = 64;
/// Most words that are copied and written at once.
const PIECE_WORDS: usize = 128 << 10;

/// Workers that have saved something, by the epoch of the backup that has all of it.
static COMPLETE: [AtomicU32; EPOCHS as usize + 1] = [const { AtomicU32::new(0) }; EPOCHS as usize + 1];

thread_local! {
    static LEAVING: RefCell<Leaving> = RefCell::default();
}

/// The objects that a worker saves, and those that its frames wait for.
#[derive(Default)]
struct Leaving {
    /// The backup that this is for.
    backup: Option<Backup>,
    /// It has this machine's secret.
    has_secret: bool,
    /// Claimed, and not written yet.
    saves: Vec<Name>,
    looked: Option<Instant>,
    /// Written, with the read behind it.
    landing: Vec<Batch>,
    /// Blocks that the backup was asked to make usable, and those that it is to be asked for.
    asked: HashMap<window::Block, Instant>,
    to_ask: Vec<window::Block>,
    last: u64,
    /// Objects that each frame waits for.
    waiting: Vec<(u64, Vec<Name>)>,
    /// All that this worker has saved: the next backup gets it, too. And the backup that has it, or is to get it.
    saved: HashMap<At, Version>,
    saved_at: Option<Backup>,
    saved_max: usize,
    /// The epoch of the backup that has all of it; 0: this worker has saved nothing.
    complete: u8,
}

/// Writes that are under way, and have arrived when the read behind them has come back.
struct Batch {
    read_id: ReadId,
    /// Objects that are whole then.
    names: Vec<Name>,
    /// Workers with the partitions of which it writes objects, whose only writer this worker is meanwhile.
    partitions: BTreeSet<u16>,
}

/// An object of this machine, found by a name that may be stale.
struct Found {
    head: &'static Head,
    words: &'static [AtomicU64],
    bytes: usize,
}

/// Returns the object of that name, if it may be one of this machine's.
fn found(name: Name) -> Option<Found> {
    let place = places::places().get(name.at.place() as usize)?;
    let end = heads::top(place.worker) * UNIT;
    let offset = name.at.offset();
    if place.machine != places::own_machine() || offset < HEAD_BYTES || offset >= end {
        return None;
    }
    let address = bases::mapped(name.at)?;
    // SAFETY: memory of this machine's partitions, which stays accessible [base-stays]; heads are used as atomics only,
    // and other bytes there are read as such, which no compiler sees beside the writes of their owner.
    let head = unsafe { &*address.sub(HEAD_BYTES).cast::<Head>() };
    let bytes = head.bytes_of(heads::check(heads::secret(), name.at)).filter(|bytes| *bytes <= end - offset)?;
    // SAFETY: as above; rooms are whole words.
    let words = unsafe { std::slice::from_raw_parts(address.cast::<AtomicU64>(), bytes.div_ceil(8)) };
    Some(Found { head, words, bytes })
}

/// The names in some words, one behind the other.
fn names(words: impl Iterator<Item = u64>, mut found: impl FnMut(Name)) {
    let (own, mut before) = (own_words(), None);
    for word in words {
        if let Some(at) = before.take()
            && let Some(version) = Version::new(word)
        {
            found(Name { at, version });
        }
        before = own.contains(&word).then(|| At::from_word(word));
    }
}

/// The words that are places in this machine's partitions.
fn own_words() -> Range<u64> {
    static OWN: OnceLock<Range<u64>> = OnceLock::new();
    let own = OWN.get_or_init(|| {
        let is_own = |place: &Place| place.machine == places::own_machine();
        let first = places::places().iter().position(is_own).unwrap_or_default();
        let count = places::places().iter().filter(|place| is_own(place)).count();
        At::new(first as u32, 0).to_word()..At::new((first + count) as u32, 0).to_word()
    });
    own.clone()
}

/// See `gossamer::link::Gate`.
pub(super) fn look(frame: &[u8]) -> u64 {
    if !switch::has_heads() || backups::current().is_none() {
        return 0;
    }
    let mut work = Vec::new();
    // Captures begin anywhere.
    for shift in 0..8 {
        let words = frame.get(shift..).unwrap_or_default().as_chunks::<8>().0;
        names(words.iter().map(|word| u64::from_ne_bytes(*word)), |name| work.push(name));
    }
    if work.is_empty() {
        return 0;
    }
    LEAVING.with_borrow_mut(|leaving| leaving.wait_for(work))
}

/// See `gossamer::link::Gate`.
pub(super) fn is_open(number: u64) -> bool {
    LEAVING.with_borrow_mut(|leaving| leaving.is_open(number))
}

/// See `gossamer::link::Gate`.
pub(super) fn forget(number: u64) {
    LEAVING.with_borrow_mut(|leaving| leaving.waiting.retain(|(one, _)| *one != number));
}

/// See `gossamer::link::Gate`.
pub(super) fn turn() -> bool {
    LEAVING.with_borrow_mut(|leaving| {
        leaving.turn();
        !leaving.saves.is_empty() || !leaving.landing.is_empty()
    })
}

/// Returns the number of workers the saved objects of which the present backup has not all.
pub(super) fn pending() -> usize {
    let Some(backup) = backups::current() else { return 0 };
    let earlier = &COMPLETE[1..usize::from(backup.epoch)];
    earlier.iter().map(|workers| workers.load(Ordering::Relaxed) as usize).sum()
}

/// This worker's part after the loss of a machine: a new backup gets what the one before had, in the background.
pub(super) fn lose() {
    let Some(now) = backups::current() else { return };
    let saved: Option<Vec<Name>> = LEAVING.with_borrow_mut(|leaving| {
        let is_new = leaving.complete != 0 && leaving.saved_at.replace(now) != Some(now);
        is_new.then(|| leaving.saved.iter().map(|(&at, &version)| Name { at, version }).collect())
    });
    let Some(saved) = saved else { return };
    drop(trust::spawn(move || {
        for some in saved.chunks(AT_ONCE) {
            let number = LEAVING.with_borrow_mut(|leaving| leaving.wait_for(some.to_vec()));
            while !is_open(number) && !trust::link::is_ending() {
                gossamer::sleep(AGAIN);
                turn();
            }
        }
        if backups::current() == Some(now) {
            LEAVING.with_borrow_mut(|leaving| leaving.complete_at(now.epoch));
        }
    }));
}

/// Has the backup asked for the blocks that saves wait for. In a fiber: a gate sends nothing.
fn ask() {
    let Some(Backup { machine, .. }) = backups::current() else { return };
    for block in LEAVING.with_borrow_mut(|leaving| std::mem::take(&mut leaving.to_ask)) {
        window::ask(machine, block);
    }
}

/// The result of a try to write a replica.
enum Saved {
    Whole,
    /// The object is written meanwhile, by another name, or has ended.
    Moved,
    /// The backup has not made it usable yet.
    NoRoom,
    /// The backup is gone: its loss is noted soon, and there is another one then, or none.
    Gone,
    /// It lies further in its partition than replicas may.
    TooFar,
}

impl Leaving {
    /// The present backup; everything begins anew with another one.
    fn renew(&mut self) -> Option<Backup> {
        let now = backups::current();
        if now != self.backup {
            self.backup = now;
            self.has_secret = false;
            self.saves.clear();
            self.landing.clear();
            self.asked.clear();
        }
        now
    }

    /// Saves these objects and all that they name, as far as they are not. Returns a number to wait for, or 0.
    fn wait_for(&mut self, mut work: Vec<Name>) -> u64 {
        let Some(Backup { epoch, .. }) = self.renew() else { return 0 };
        let (mut seen, mut waits) = (HashSet::new(), Vec::new());
        while let Some(name) = work.pop() {
            let Some(found) = found(name) else { continue };
            match found.head.step(name.version.get(), epoch) {
                None | Some(Step::Safe) => continue,
                _ if !seen.insert(name.at) => continue,
                _ => {}
            }
            waits.push(name);
            self.claim(name, found.head, epoch);
            names(found.words.iter().map(|word| word.load(Ordering::Relaxed)), |name| work.push(name));
        }
        if waits.is_empty() {
            return 0;
        }
        self.last += 1;
        self.waiting.push((self.last, waits));
        self.turn();
        if self.is_open(self.last) { 0 } else { self.last }
    }

    fn claim(&mut self, name: Name, head: &Head, epoch: u8) {
        if !head.claim(name.version.get(), epoch) {
            return;
        }
        self.saves.push(name);
        self.saved.insert(name.at, name.version);
        if self.complete == 0 {
            self.saved_at = self.backup;
            self.complete_at(epoch);
        }
        if self.saved.len() > self.saved_max.max(1 << 10) {
            self.saved.retain(|&at, &mut version| {
                let found = found(Name { at, version });
                found.is_some_and(|found| found.head.step(version.get(), epoch).is_some())
            });
            self.saved_max = 2 * self.saved.len();
        }
    }

    /// The backup of this epoch has all that this worker has saved.
    fn complete_at(&mut self, epoch: u8) {
        let before = std::mem::replace(&mut self.complete, epoch);
        COMPLETE[usize::from(epoch)].fetch_add(1, Ordering::Relaxed);
        if before != 0 {
            COMPLETE[usize::from(before)].fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn is_open(&mut self, number: u64) -> bool {
        let Some(index) = self.waiting.iter().position(|(one, _)| *one == number) else { return true };
        let Some(Backup { epoch, .. }) = self.renew() else {
            self.waiting.clear();
            return true;
        };
        let (_, names) = self.waiting.swap_remove(index);
        let mut is_open = true;
        for name in &names {
            let Some(found) = found(*name) else { continue };
            match found.head.step(name.version.get(), epoch) {
                Some(Step::Unsaved) => {
                    self.claim(*name, found.head, epoch);
                    is_open = false;
                }
                Some(Step::Saving) => is_open = false,
                None | Some(Step::Landed | Step::Safe) => {}
            }
        }
        if is_open {
            for name in names {
                if let Some(found) = found(name) {
                    found.head.advance(name.version.get(), epoch, Step::Landed, Step::Safe); // [safe-is-deep]
                }
            }
        } else {
            self.waiting.push((number, names));
        }
        is_open
    }

    fn turn(&mut self) {
        let Some(backup) = self.renew() else { return };
        self.write(backup);
        self.take(backup);
    }

    /// Writes what is claimed, and a read behind it.
    fn write(&mut self, backup: Backup) {
        if self.saves.is_empty() || self.looked.is_some_and(|looked| looked.elapsed() < AGAIN) {
            return;
        }
        self.looked = None;
        let (mut names, mut partitions, mut last) = (Vec::new(), BTreeSet::new(), None);
        for name in std::mem::take(&mut self.saves) {
            let partition = places::places()[name.at.place() as usize].worker;
            if !heads::begin_to_write(partition, backup.epoch) {
                self.saves.push(name); // [one-writer]
                continue;
            }
            partitions.insert(partition);
            match self.save(backup, name, &mut last) {
                Saved::Whole => names.push(name),
                Saved::Moved => {}
                Saved::TooFar => self.give_up(name, backup),
                Saved::NoRoom => self.want(backup, name),
                Saved::Gone => self.saves.push(name),
            }
        }
        stats::own().saves.add(names.len() as u64);
        let read = last.map(|last| link::read(backup.machine, link::REPLICAS, last, 8));
        match read {
            Some(Ok(read_id)) => self.landing.push(Batch { read_id, names, partitions }),
            Some(Err(Error::Gone { .. })) => {}
            Some(Err(error)) => link::end_by(COPYING, &error),
            None => self.end(&partitions, backup), // nothing was written
        }
    }

    /// This worker writes no objects of these partitions any more, unless it does by what is under way.
    fn end(&self, partitions: &BTreeSet<u16>, backup: Backup) {
        let is_idle = |partition: &&u16| !self.landing.iter().any(|batch| batch.partitions.contains(partition));
        partitions.iter().filter(is_idle).for_each(|partition| heads::end_to_write(*partition, backup.epoch));
    }

    /// A save waits until the backup has made room; if it has none, the object has no replica.
    fn want(&mut self, backup: Backup, name: Name) {
        let Some(found) = found(name) else { return };
        let blocks = window::blocks(name.at, found.bytes);
        if blocks.clone().any(|block| window::is_refused(backup.machine, block)) {
            return self.give_up(name, backup);
        }
        self.looked = Some(Instant::now());
        self.saves.push(name);
        for block in blocks {
            if self.asked.get(&block).is_none_or(|asked| asked.elapsed() > ASK_AGAIN) {
                self.asked.insert(block, Instant::now());
                if self.to_ask.is_empty() {
                    drop(trust::spawn(ask));
                }
                self.to_ask.push(block);
            }
        }
    }

    /// No replica of it: the backup has no room.
    fn give_up(&mut self, name: Name, Backup { machine, epoch }: Backup) {
        stats::own().unsaved.add(1);
        window::report(machine, places::own_machine());
        if let Some(found) = found(name) {
            found.head.advance(name.version.get(), epoch, Step::Saving, Step::Unsaved);
        }
        for (_, names) in &mut self.waiting {
            names.retain(|one| *one != name);
        }
    }

    /// Writes the replica of an object; `last` is then a place that was written.
    fn save(&mut self, backup: Backup, name: Name, last: &mut Option<usize>) -> Saved {
        let Some(Found { head, words: object, bytes }) = found(name) else { return Saved::Moved };
        if head.step(name.version.get(), backup.epoch) != Some(Step::Saving) {
            return Saved::Moved;
        }
        let Some(start) = window::offset(name.at, bytes) else { return Saved::TooFar };
        let start = start - HEAD_BYTES;
        let mut write = |offset: usize, words: &[u64]| {
            // SAFETY: the share of the replicas, of which this machine alone writes its window, and this worker alone
            // the replicas of this partition [one-writer].
            unsafe { link::write(backup.machine, link::REPLICAS, offset, window::as_bytes(words)) }?;
            *last = Some(offset);
            Ok(())
        };
        let has_secret = std::mem::replace(&mut self.has_secret, true);
        let secret = heads::secret();
        let pieces = object.chunks(PIECE_WORDS).map(|piece| piece.iter().map(|word| word.load(Ordering::Relaxed)));
        let written = (|| {
            if !has_secret {
                write(window::start(places::own_machine()), &[secret])?;
            }
            let is_still = || head.is_still(name.version.get());
            replica::write((name, bytes, secret), start, pieces.map(Iterator::collect), is_still, write)
        })();
        match written {
            Ok(is_whole) => {
                stats::own().saved_bytes.add(bytes as u64);
                if is_whole { Saved::Whole } else { Saved::Moved }
            }
            Err(Error::NotCommitted { .. } | Error::NoSuchShare { .. }) => {
                self.has_secret = has_secret;
                Saved::NoRoom
            }
            Err(Error::Gone { .. }) => Saved::Gone,
            Err(error) => link::end_by(COPYING, &error),
        }
    }

    /// Takes the reads that have come back: what was written before them has landed.
    fn take(&mut self, backup: Backup) {
        for mut batch in std::mem::take(&mut self.landing) {
            match link::take(backup.machine, batch.read_id, &mut [0; 8]) {
                Ok(false) => self.landing.push(batch),
                Ok(true) => {
                    for name in std::mem::take(&mut batch.names) {
                        if let Some(found) = found(name) {
                            found.head.advance(name.version.get(), backup.epoch, Step::Saving, Step::Landed);
                        }
                    }
                    self.end(&batch.partitions, backup);
                }
                // As `Saved::Gone`.
                Err(Error::Gone { .. }) => {}
                Err(error) => link::end_by(COPYING, &error),
            }
        }
    }
}

const COPYING: &str = "copying an object of the heap to its backup";
