//! The partition of a worker: its part of the machine's share, from which it alone makes objects (DRust 4.1.1). Nothing
//! here is shared between threads but the objects themselves, so there is neither a lock nor an atomic
//! read-modify-write.
//!
//! Memory is taken from the system in units. Small objects have slots of one size (`classes.rs`) in units of their own,
//! large ones whole units (`runs.rs`).
//!
//! Invariants
//! - [version-grows] An address that is used again has an unknown name: the call that frees an object gives its last
//!   version, and each later object here has a higher one.
//! - Nothing of it is borrowed while code of the program runs.

#![allow(unsafe_code)]

pub(crate) mod classes;
pub(crate) mod memory;
mod runs;

use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::ptr;

use crate::bases;
use crate::error::Error;
use crate::here;
use crate::limit;
use crate::name::{At, Name, Version};
use crate::places;
use crate::replicas::{heads, switch};
use crate::stats::{self, Counters};
use classes::{CLASSES, bytes_of, class_of};
use comm::SHARE_UNIT_BYTES as UNIT;
use runs::Runs;

/// Units that are taken from the system at once, for small objects.
const UNITS_AT_ONCE: usize = 16;
/// Objects of at least so many units give their memory back to the system at once.
const UNITS_GIVEN_BACK: usize = 64;

/// See the file's documentation.
pub(crate) struct Partition {
    place: u32,
    base: *mut u8,
    /// Start among the partitions of its machine.
    start: usize,
    /// The version of the next object.
    next: Cell<Version>,
    /// First free slot of each class; each begins with the address of the next.
    free: [Cell<*mut u8>; CLASSES],
    /// Slots of each class that never were used.
    fresh: [Cell<(*mut u8, *mut u8)>; CLASSES],
    units: RefCell<Units>,
    /// Its objects have heads (`replicas/mod.rs`).
    has_heads: bool,
    pub(crate) counters: &'static Counters,
}

/// How much of the machine's heap an object may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// New ones leave a tenth, where they can be made on another machine (`far.rs`).
    New,
    /// All of it: objects that have to be here.
    All,
}

struct Units {
    /// Committed, and free.
    free: Runs,
    /// Given back.
    holes: Runs,
    /// None from here on was ever used.
    top: usize,
    end: usize,
}

thread_local! {
    static OWN: Cell<Option<&'static Partition>> = const { Cell::new(None) };
}

/// Returns the partition of the calling worker, if it has one yet.
#[inline(always)]
pub(crate) fn existing() -> Option<&'static Partition> {
    OWN.get()
}

/// Returns the partition of the calling worker.
///
/// # Panics
/// On a thread that is no worker of the program; if there is no memory for it.
#[inline(always)]
pub(crate) fn own() -> &'static Partition {
    match OWN.get() {
        Some(own) => own,
        None => make(),
    }
}

#[cold]
fn make() -> &'static Partition {
    let own = gossamer::here();
    let place = places::number_of(own);
    here::is_worker();
    open();
    let base = bases::find(At::new(place, 0)).unwrap_or_else(|| unreachable!("an own partition is mapped"));
    let bytes = places::partition_bytes(own.machine);
    // It stays for as long as the process: guards may be forgotten.
    let own: &'static Partition = Box::leak(Box::new(Partition {
        place,
        base,
        start: usize::from(own.worker) * bytes,
        next: Cell::new(Version::MIN),
        free: [const { Cell::new(ptr::null_mut()) }; CLASSES],
        fresh: [const { Cell::new((ptr::null_mut(), ptr::null_mut())) }; CLASSES],
        units: RefCell::new(Units { free: Runs::default(), holes: Runs::default(), top: 0, end: bytes / UNIT }),
        has_heads: switch::has_heads(),
        counters: stats::own(),
    }));
    OWN.set(Some(own));
    own
}

/// Opens the memory of this machine's partitions, once.
fn open() {
    static OPENED: std::sync::OnceLock<Result<(), String>> = std::sync::OnceLock::new();
    let opened = OPENED.get_or_init(memory::open);
    opened.as_ref().unwrap_or_else(|error| panic!("the heap of this machine cannot be made: {error}"));
}

impl Partition {
    /// Is this its place?
    #[inline(always)]
    pub(crate) fn is_at(&self, at: At) -> bool {
        at.place() == self.place
    }

    /// Have its objects heads?
    #[inline(always)]
    pub(crate) fn has_heads(&self) -> bool {
        self.has_heads
    }

    /// Room for an object, with its name. One with a head is being written, by that.
    ///
    /// # Errors
    /// There is none.
    #[inline(always)]
    pub(crate) fn allocate(&self, layout: Layout, reach: Reach) -> Result<(Name, *mut u8), Error> {
        if self.has_heads && layout.size() != 0 {
            self.allocate_with_head(layout, reach)
        } else {
            self.allocate_room(layout, reach)
        }
    }

    /// The object is being written, by its head.
    #[cold]
    fn allocate_with_head(&self, layout: Layout, reach: Reach) -> Result<(Name, *mut u8), Error> {
        let (mut name, room) = self.allocate_room(heads::with_head(layout), reach)?;
        let gap = heads::gap(layout);
        name.at = At::new(self.place, name.at.offset() + gap);
        let object = room.wrapping_add(gap);
        heads::make(object, name, layout.size());
        Ok((name, object))
    }

    #[inline(always)]
    fn allocate_room(&self, layout: Layout, reach: Reach) -> Result<(Name, *mut u8), Error> {
        let address = match class_of(layout) {
            _ if layout.size() == 0 => self.base,
            Some(class) => {
                let first = self.free[class].get();
                if first.is_null() {
                    self.fresh_slot(class, reach)?
                } else {
                    // SAFETY: a free slot begins with the address of the next, or null.
                    self.free[class].set(unsafe { first.cast::<*mut u8>().read() });
                    first
                }
            }
            None => self.units(layout.size().div_ceil(UNIT), layout.size(), reach)?,
        };
        self.counters.objects.add(1);
        let at = At::new(self.place, address.addr() - self.base.addr());
        Ok((Name { at, version: self.next.get() }, address))
    }

    #[cold]
    #[inline(never)]
    fn fresh_slot(&self, class: usize, reach: Reach) -> Result<*mut u8, Error> {
        let bytes = bytes_of(class);
        let (mut next, mut end) = self.fresh[class].get();
        if end.addr() - next.addr() < bytes {
            let unit = self.units(1, bytes, reach)?;
            // That may have waited, and another fiber may have been here meanwhile.
            (next, end) = self.fresh[class].get();
            if end.addr() - next.addr() < bytes {
                (next, end) = (unit, unit.wrapping_add(UNIT));
            } else {
                self.free_units((unit.addr() - self.base.addr()) / UNIT, 1);
            }
        }
        self.fresh[class].set((next.wrapping_add(bytes), end));
        Ok(next)
    }

    /// Returns `count` adjacent units, for an object of `bytes` bytes. Where memory is short, copies have to go first,
    /// for which it waits where it may.
    fn units(&self, count: usize, bytes: usize, reach: Reach) -> Result<*mut u8, Error> {
        let wanted = (count * UNIT) as u64;
        let goes = reach == Reach::New && here::may_go_elsewhere();
        let most = if goes { limit::high() } else { limit::limit() };
        let start = match self.try_units(count, bytes, most) {
            Err(Error::Full { .. }) if crate::copies::make_room(wanted, most, !goes) => {
                self.try_units(count, bytes, most)
            }
            found => found,
        };
        Ok(self.base.wrapping_add(start? * UNIT))
    }

    fn try_units(&self, count: usize, bytes: usize, most: u64) -> Result<usize, Error> {
        if (count * UNIT) as u64 > most {
            return Err(limit::full(bytes));
        }
        let units = &mut *self.units.borrow_mut();
        if let Some(start) = units.free.take(count) {
            return Ok(start);
        }
        if let Some(start) = units.holes.take(count) {
            return self
                .commit(start, count, (bytes, most), units.top)
                .map(|()| start)
                .inspect_err(|_| units.holes.put(start..start + count));
        }
        let (start, left) = (units.top, units.end - units.top);
        if left < count {
            let why = "the addresses of this worker's part are used up: make objects on others too".to_owned();
            return Err(Error::System { machine: gossamer::rack().machine(), bytes, why });
        }
        // For small objects some more than this one, if there is room for them.
        let many = count.max(UNITS_AT_ONCE.min(left));
        let taken = match self.commit(start, many, (bytes, most), start) {
            Ok(()) => many,
            Err(_) => self.commit(start, count, (bytes, most), start).map(|()| count)?,
        };
        units.top += taken;
        if taken > count {
            units.free.put(start + count..start + taken);
        }
        Ok(start)
    }

    /// Takes units from the system, for an object of so many bytes, where units up to `top` were used before; the heap
    /// of this machine may have `most` bytes then.
    fn commit(&self, start: usize, count: usize, (bytes, most): (usize, u64), top: usize) -> Result<(), Error> {
        let wanted = (count * UNIT) as u64;
        if !limit::reserve(wanted, most) {
            return Err(limit::full(bytes));
        }
        let range = self.start + start * UNIT..self.start + (start + count) * UNIT;
        memory::commit(range).map_err(|why| {
            limit::give_back(wanted);
            Error::System { machine: gossamer::rack().machine(), bytes: count * UNIT, why }
        })?;
        self.counters.committed.add(wanted);
        if self.has_heads {
            heads::set_top(self.worker(), top.max(start + count));
        }
        Ok(())
    }

    /// The number of its worker.
    fn worker(&self) -> u16 {
        places::places()[self.place as usize].worker
    }

    /// Gives the room of an object back, which had this version last.
    ///
    /// # Safety
    /// It was allocated here with this layout, is not used any more, and is given back once.
    #[inline(always)]
    pub(crate) unsafe fn free(&self, name: Name, layout: Layout) {
        debug_assert!(self.is_at(name.at));
        // [version-grows].
        let above = name.version.saturating_add(1);
        if above > self.next.get() {
            self.next.set(above);
        }
        self.counters.objects.subtract(1);
        if layout.size() == 0 {
            return;
        }
        let (offset, layout) = match self.has_heads {
            true => self.without_head(name, layout),
            false => (name.at.offset(), layout),
        };
        let slot = self.base.wrapping_add(offset);
        match class_of(layout) {
            Some(class) => {
                // SAFETY: nobody uses the slot, which is long enough and aligned for an address.
                unsafe { slot.cast::<*mut u8>().write(self.free[class].get()) };
                self.free[class].set(slot);
            }
            None => self.free_units(offset / UNIT, layout.size().div_ceil(UNIT)),
        }
    }

    /// Ends the head of an object. Returns the offset and the layout of the room.
    #[cold]
    fn without_head(&self, name: Name, layout: Layout) -> (usize, Layout) {
        heads::clear(self.base.wrapping_add(name.at.offset()));
        (name.at.offset() - heads::gap(layout), heads::with_head(layout))
    }

    fn free_units(&self, start: usize, count: usize) {
        let mut units = self.units.borrow_mut();
        if count >= UNITS_GIVEN_BACK {
            self.release(&mut units, start..start + count);
        } else {
            units.free.put(start..start + count);
        }
    }

    fn release(&self, units: &mut Units, run: Range<usize>) {
        let bytes = (run.len() * UNIT) as u64;
        let range = self.start + run.start * UNIT..self.start + run.end * UNIT;
        // SAFETY: the units are free, so nothing is in them.
        if unsafe { memory::release(range.clone()) }.is_ok() {
            limit::give_back(bytes);
            self.counters.committed.subtract(bytes);
            units.holes.put(run);
        } else if memory::commit(range).is_ok() {
            units.free.put(run);
        }
        // Else they are of no use, and stay counted.
    }

    /// Gives all units that nothing is in back to the system.
    pub(crate) fn trim(&self) {
        let Ok(mut units) = self.units.try_borrow_mut() else { return };
        for class in 0..CLASSES {
            self.empty_units(class).into_iter().for_each(|unit| units.free.put(unit..unit + 1));
        }
        for run in units.free.take_all() {
            self.release(&mut units, run);
        }
    }

    /// Takes units of which all slots are free out of a class.
    fn empty_units(&self, class: usize) -> Vec<usize> {
        let unit_of = |slot: *mut u8| (slot.addr() - self.base.addr()) / UNIT;
        let slots = || {
            std::iter::successors(Some(self.free[class].get()).filter(|slot| !slot.is_null()), |slot| {
                // SAFETY: a free slot begins with the address of the next, or null.
                Some(unsafe { slot.cast::<*mut u8>().read() }).filter(|slot| !slot.is_null())
            })
        };
        let mut free: HashMap<usize, usize> = HashMap::new();
        slots().for_each(|slot| *free.entry(unit_of(slot)).or_default() += 1);
        // One that has slots which never were used is not among them: its count is too small.
        free.retain(|_, count| *count == UNIT / bytes_of(class));
        if !free.is_empty() {
            let kept: Vec<*mut u8> = slots().filter(|slot| !free.contains_key(&unit_of(*slot))).collect();
            self.free[class].set(ptr::null_mut());
            for slot in kept.into_iter().rev() {
                // SAFETY: the slot is free, long enough and aligned for an address.
                unsafe { slot.cast::<*mut u8>().write(self.free[class].get()) };
                self.free[class].set(slot);
            }
        }
        free.into_keys().collect()
    }
}
