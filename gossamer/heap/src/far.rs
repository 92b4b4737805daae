//! Objects that are made on another machine, because the heap of this one is nearly full (DRust, section 4.2.1): where
//! the caller may wait. Machines are asked in random order, the emptier of the first two before the other; each takes
//! objects of others up to the same mark, so that what may not wait finds room at home.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hint::black_box;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

use comm::{Error as FabricError, ReadId, SHARE_UNIT_BYTES};
use gossamer::{Place, link};

use crate::error::Lost;
use crate::global::{Global, made};
use crate::name::Name;
use crate::object::slice_layout;
use crate::partition::{self, Reach};
use crate::portable::Portable;
use crate::replicas::{Saves, switch};
use crate::{bases, here, limit, places, stats};

/// A machine's fill is as it was said for so long.
const KNOWN: Duration = Duration::from_secs(1);
/// A machine without room for an object of fewer bytes is full.
const SMALL: usize = SHARE_UNIT_BYTES;
/// Bytes of a slice that are written at once.
const PIECE_BYTES: usize = 1 << 20;
/// Between two looks whether they have arrived.
const LOOK: Duration = Duration::from_micros(20);

thread_local! {
    /// How full other machines were when they were asked last, in thousandths.
    static FILLS: RefCell<HashMap<u16, (u16, Instant)>> = RefCell::default();
}

fn note(machine: u16, fill: u16) {
    FILLS.with_borrow_mut(|fills| fills.insert(machine, (fill, Instant::now())));
}

/// Returns the places that may have room, the best first: one of each living machine.
fn candidates() -> impl Iterator<Item = Place> {
    let rack = gossamer::rack();
    let fill = |machine: u16| {
        let known = FILLS.with_borrow(|fills| fills.get(&machine).copied());
        known.filter(|(_, since)| since.elapsed() < KNOWN).map_or(0, |(fill, _)| fill)
    };
    let others = (0..).zip(rack.machines()).filter(|&(machine, _)| machine != rack.machine() && !rack.is_lost(machine));
    let mut places: Vec<(u16, Place)> = others
        .map(|(machine, it)| (fill(machine), Place::of(machine, fastrand::u16(..it.workers))))
        .filter(|(fill, _)| *fill < limit::NEARLY_FULL)
        .collect();
    fastrand::shuffle(&mut places);
    if let [(first, _), (second, _), ..] = places[..]
        && second < first
    {
        places.swap(0, 1);
    }
    places.into_iter().map(|(_, place)| place)
}

/// Runs `make` there; none if the machine was lost meanwhile.
fn at<R: gossamer::NoRef + Send + 'static>(
    place: Place,
    make: impl FnOnce() -> R + gossamer::NoRef + Send + 'static,
) -> Option<R> {
    match gossamer::spawn_on(place, move || (make(), limit::fill())).join() {
        Ok((made, fill)) => {
            note(place.machine, fill);
            Some(made)
        }
        Err(panic) if panic.is::<gossamer::Error>() => None,
        Err(panic) => resume_unwind(panic),
    }
}

/// Makes an object on another machine; gives the value back if there is no room, or nothing may wait.
#[cold]
pub(crate) fn value<T: Portable>(value: T) -> Result<Global<T>, T> {
    if !here::may_go_elsewhere() {
        return Err(value);
    }
    let value = ManuallyDrop::new(value);
    for place in candidates() {
        // SAFETY: it is the object's there, or used here again where none was made. Of a lost machine nothing runs.
        let carried = ManuallyDrop::new(unsafe { std::ptr::read(&raw const *value) });
        let make = move || Global::make(ManuallyDrop::into_inner(carried), Reach::New).map_err(std::mem::forget).ok();
        match at(place, make) {
            Some(Some(object)) => {
                stats::own().elsewhere.add(1);
                return Ok(object);
            }
            Some(None) if size_of::<T>() < SMALL => note(place.machine, limit::NEARLY_FULL),
            _ => {}
        }
    }
    Err(ManuallyDrop::into_inner(value))
}

/// Makes a slice on another machine, if one has room: element `i` is `f(i)`, made here, and sent by the piece.
///
/// # Errors
/// The machine was lost meanwhile, and with it the elements.
#[cold]
pub(crate) fn slice<T: Portable>(len: usize, f: &mut impl FnMut(usize) -> T) -> Result<Option<Global<[T]>>, Lost> {
    if !here::may_go_elsewhere() {
        return Ok(None);
    }
    for place in candidates() {
        let room = move || partition::own().allocate(slice_layout::<T>(len), Reach::New).map(|(name, _)| name).ok();
        if let Some(Some(name)) = at(place, room) {
            let mut building = Building::<T>::new(place, name, len);
            (0..len).for_each(|i| building.push(f(i)));
            return building.end().map(Some);
        }
    }
    Ok(None)
}

/// A slice on another machine that is not whole yet. Elements that are not there are bytes in the buffer.
struct Building<T: Portable> {
    name: Name,
    len: usize,
    place: Place,
    /// The object of this name begins there in its machine's share.
    start: usize,
    made: usize,
    written_bytes: usize,
    /// Bytes that are not written yet, so many, in the order of the elements.
    buffer: Vec<u64>,
    filled: usize,
    is_whole: bool,
    /// Objects of this machine that elements name.
    saves: Saves,
    elements: PhantomData<T>,
}

impl<T: Portable> Building<T> {
    fn new(place: Place, name: Name, len: usize) -> Self {
        let longest = PIECE_BYTES.min(size_of::<T>() * len) + size_of::<T>();
        let (start, buffer) = (places::offset_in_share(name.at), vec![0; longest.div_ceil(8)]);
        let (made, written_bytes, filled, is_whole) = (0, 0, 0, false);
        let (saves, elements) = (Saves::default(), PhantomData);
        Building { name, len, place, start, made, written_bytes, buffer, filled, is_whole, saves, elements }
    }

    fn push(&mut self, element: T) {
        let element = ManuallyDrop::new(element);
        self.saves.look(&element);
        let at = self.buffer.as_mut_ptr().cast::<u8>().wrapping_add(self.filled);
        // SAFETY: the buffer has room for one element behind the bytes of a piece.
        unsafe { at.copy_from_nonoverlapping((&raw const *element).cast::<u8>(), size_of::<T>()) };
        self.filled += size_of::<T>();
        self.made += 1;
        if self.filled >= PIECE_BYTES {
            self.write(self.filled / 8);
        }
    }

    /// Writes so many words of the buffer.
    fn write(&mut self, words: usize) {
        if words == 0 {
            return;
        }
        // Padding has the bytes that lie there, as in memory that others read: the compiler is not to know better.
        let bytes: *const u8 = black_box(self.buffer.as_ptr().cast());
        // SAFETY: these words were 0 at first.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, words * 8) };
        // SAFETY: the room in the share of the heap is this slice's, which nobody has yet.
        let written = unsafe { link::write(self.place.machine, link::HEAP, self.start + self.written_bytes, bytes) };
        match written {
            Ok(()) | Err(FabricError::Gone { .. }) => {} // `end` finds that out
            Err(error) => link::end_by(MAKING, &error),
        }
        self.buffer.copy_within(words.., 0);
        self.filled = self.filled.saturating_sub(words * 8);
        self.written_bytes += words * 8;
    }

    /// All elements are made: returns once they are there.
    fn end(mut self) -> Result<Global<[T]>, Lost> {
        self.write(self.filled.div_ceil(8));
        let machine = self.place.machine;
        match link::read(machine, link::HEAP, self.start, 8) {
            Ok(read_id) => self.arrive(read_id)?,
            Err(FabricError::Gone { .. }) => return Err(self.lost()),
            Err(error) => link::end_by(MAKING, &error),
        }
        let (name, len) = (self.name, self.len);
        if switch::are_on() {
            self.saves.wait();
            // With the name in the answer the slice has a copy, too.
            let whole = move || {
                let object = bases::mapped(name.at).unwrap_or_else(|| unreachable!("an own partition is mapped"));
                made(object, slice_layout::<T>(len));
                name
            };
            at(self.place, whole).ok_or(Lost { machine })?;
        }
        self.is_whole = true;
        stats::own().elsewhere.add(1);
        // SAFETY: all elements are there, and nobody else has the name.
        Ok(unsafe { Global::of(name, len) })
    }

    fn arrive(&mut self, read_id: ReadId) -> Result<(), Lost> {
        loop {
            match link::take(self.place.machine, read_id, &mut [0; 8]) {
                Ok(true) => return Ok(()),
                Ok(false) => gossamer::sleep(LOOK),
                Err(FabricError::Gone { .. }) => return Err(self.lost()),
                Err(error) => link::end_by(MAKING, &error),
            }
        }
    }

    /// Its machine is lost, once all have agreed on that; the elements are gone with it.
    fn lost(&self) -> Lost {
        while !link::is_lost(self.place.machine) && !trust::link::is_ending() {
            gossamer::sleep(Duration::from_millis(1));
        }
        Lost { machine: self.place.machine }
    }
}

const MAKING: &str = "making an object of the heap on another machine";

impl<T: Portable> Drop for Building<T> {
    /// A panic while elements are made: those that are made end there, and the room is free again.
    fn drop(&mut self) {
        if self.is_whole || places::check(self.name.at).is_err() {
            return;
        }
        self.write(self.filled.div_ceil(8));
        let (name, len, made) = (self.name, self.len, self.made);
        let end = move |_: &[u8]| {
            let _room = Room { name, layout: slice_layout::<T>(len) };
            if let Some(object) = bases::mapped(name.at) {
                // SAFETY: so many elements have come, and nobody has them.
                unsafe { std::ptr::slice_from_raw_parts_mut(object.cast::<T>(), made).drop_in_place() };
            }
        };
        trust::link::post(self.place.trustee(), end, &[]);
    }
}

/// Room of this worker, which is free again when this is dropped, also by a panic of a destructor.
struct Room {
    name: Name,
    layout: Layout,
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: it was allocated here, and nothing is in it any more.
        unsafe { partition::own().free(self.name, self.layout) };
    }
}
