//! How an array is made and dropped. Its maker asks place 0 for a slot, each machine for memory, and each place to make
//! its part. The handles hold a trust to a [`Root`]; its drop, with the last handle, makes all places drop their parts.
//! Place 0 reuses the slot after all have.

use std::cell::RefCell;

use gossamer::{Place, Trust};
use trust::link;

use crate::element::Element;
use crate::frame::{Cache, Home, Slab};
use crate::name::Name;
use crate::operator::bytes_of;
use crate::part::Part;
use crate::post::{self, ARRAYS_MAX};
use crate::settings::Settings;
use crate::shape::{Shape, Split, number_of};
use crate::{Error, aside, copies, held, memory};

/// Property shared by all handles; the array ends with it.
pub(crate) struct Root(Name);

impl Drop for Root {
    fn drop(&mut self) {
        let name = self.0;
        for place in gossamer::rack().places() {
            link::post(
                place.trustee(),
                move |_| {
                    post::remove(name);
                    copies::forget(name);
                    let places = gossamer::rack().workers() as u32;
                    link::post(
                        place_0().trustee(),
                        move |_| SLOTS.with_borrow_mut(|slots| slots.give_back(name, places)),
                        &[],
                    );
                },
                &[],
            );
        }
    }
}

fn place_0() -> Place {
    Place::of(0, 0)
}

thread_local! {
    /// Place 0 has the program's slots.
    static SLOTS: RefCell<Slots> = const { RefCell::new(Slots { of: Vec::new() }) };
}

/// Slots, taken or free.
struct Slots {
    of: Vec<Slot>,
}

struct Slot {
    generation: u32,
    is_taken: bool,
    /// Number of places that have dropped their part.
    dropped: u32,
}

impl Slots {
    fn take(&mut self) -> Option<Name> {
        let free = self.of.iter().position(|slot| !slot.is_taken && slot.generation < u32::MAX);
        let index = free.unwrap_or(self.of.len());
        if index == self.of.len() {
            if index == ARRAYS_MAX {
                return None;
            }
            self.of.push(Slot { generation: 0, is_taken: false, dropped: 0 });
        }
        let slot = &mut self.of[index];
        *slot = Slot { generation: slot.generation + 1, is_taken: true, dropped: 0 };
        Some(Name { slot: index as u32, generation: slot.generation })
    }

    fn give_back(&mut self, name: Name, places: u32) {
        let slot = &mut self.of[name.slot as usize];
        debug_assert_eq!(slot.generation, name.generation, "given back once by each place");
        slot.dropped += 1;
        slot.is_taken = slot.dropped < places;
    }
}

/// Returns the number of workers of each machine.
fn workers() -> Vec<usize> {
    gossamer::rack().machines().iter().map(|machine| usize::from(machine.workers)).collect()
}

/// Makes an array; returns the property that all handles share, its name, and how many bits of an index lie within a
/// chunk. Called at a place; waits for all.
pub(crate) fn array<T: Element>(
    n: usize,
    value: T,
    split: &Split,
    settings: Settings,
) -> Result<(Trust<Root>, Name, u32), Error> {
    gossamer::link::refuse_losses("arrays");
    let workers = workers();
    let shape = Shape::new(n, size_of::<T>(), split, &workers)?;
    memory::check(&shape, &settings, &workers)?;
    let take = || SLOTS.with_borrow_mut(Slots::take);
    let name =
        held::retry(|| held::joined(gossamer::spawn_on(place_0(), take))).ok_or(Error::Arrays { most: ARRAYS_MAX })?;
    // From here on its drop reverts the work.
    let root = trust::local_trustee().entrust(Root(name));
    let starts = match split {
        Split::Even => (0, Vec::new()),
        Split::Starts(starts) => (1, starts.clone()),
        Split::Cyclic => (2, Vec::new()),
    };
    let fibers: Vec<_> = gossamer::rack()
        .places()
        .map(|place| {
            // Kept until its part is made, so that no part is dropped before it exists.
            let kept = root.clone();
            let make = move |(kind, starts): (u8, Vec<usize>)| {
                let _kept = kept;
                let split = match kind {
                    0 => Split::Even,
                    1 => Split::Starts(starts),
                    _ => Split::Cyclic,
                };
                part(name, n, value, &split, settings).map_err(|error| error.to_string())
            };
            (place, gossamer::spawn_with(place, make, starts.clone()))
        })
        .collect();
    let mut made = Ok((root, name, shape.shift));
    for (place, fiber) in fibers {
        if let Err(what) = held::joined(fiber)
            && made.is_ok()
        {
            made = Err(Error::Part { place, what });
        }
    }
    made
}

/// Makes the part of this place. Its memory is prepared on a thread of its own, because that is slow for large arrays.
fn part<T: Element>(name: Name, n: usize, value: T, split: &Split, settings: Settings) -> std::io::Result<()> {
    let workers = workers();
    let own = number_of(gossamer::here(), &workers).unwrap_or_else(|| unreachable!("this is a place"));
    let shape = Shape::new(n, size_of::<T>(), split, &workers).map_err(std::io::Error::other)?;
    let (chunks, chunk_bytes) = (shape.owned_chunks(own), shape.chunk_bytes());
    // A place never caches more chunks than the others own.
    let cached = Cache::frames_max(chunk_bytes, settings.cache_bytes).min(shape.chunks() - chunks.count);
    let (home, slab) = aside::run(move || {
        let home = Home::new(chunks, chunk_bytes, bytes_of(&value))?;
        Ok::<_, std::io::Error>((home, Slab::touched(cached, chunk_bytes)?))
    })??;
    let places = gossamer::rack().places().map(Place::trustee).collect();
    post::install(Part::new(name, shape, own, places, settings, home, slab)?);
    Ok(())
}
