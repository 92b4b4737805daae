//! How an array is made and dropped. Its maker asks place 0 for a slot and the machines that are to have parts, each
//! of these for memory, and each of their places to make its part. The handles hold a trust to a [`Root`]; its drop,
//! with the last handle, makes all places drop their parts. Place 0 reuses the slot after all have.
//!
//! Where machines may be lost and the program goes on (`Builder::survives`): each worker is told of a loss ([`lose`]),
//! and poisons its parts of arrays with a part there. Place 0 then has them dropped (`slots.rs`), since their roots may
//! never be: a property that is there when a machine is lost stays.

use std::cell::RefCell;
use std::sync::Once;

use gossamer::{Place, Trust};
use serde::{Deserialize, Serialize};
use trust::link;

use crate::element::Element;
use crate::frame::{Cache, Home, Slab};
use crate::members::Members;
use crate::name::Name;
use crate::operator::bytes_of;
use crate::part::Part;
use crate::settings::Settings;
use crate::shape::{Shape, Split, number_of};
use crate::slots::{ARRAYS_MAX, Next, Slots};
use crate::{Error, aside, copies, held, memory, post};

/// Property shared by all handles; the array ends with it.
pub(crate) struct Root {
    name: Name,
    members: Members,
}

impl Drop for Root {
    fn drop(&mut self) {
        if link::drops_old() {
            return; // a handle may be left that the lost machine has handed on; its readers ask nobody
        }
        end(self.name, self.members.places());
    }
}

/// Has these places drop their parts.
fn end(name: Name, places: impl Iterator<Item = Place>) {
    for place in places {
        let drop_part = move |_: &[u8]| {
            post::remove(name);
            copies::forget(name);
            at_slots(move |slots| (name, slots.dropped(name, place)));
        };
        link::post(place.trustee(), drop_part, &[]);
    }
}

fn place_0() -> Place {
    Place::of(0, 0)
}

thread_local! {
    /// Place 0 has the program's slots.
    static SLOTS: RefCell<Slots> = const { RefCell::new(Slots::new()) };
}

/// Has place 0 do this with its slots, and the step that follows from it.
fn at_slots(f: impl FnOnce(&mut Slots) -> (Name, Next) + gossamer::NoRef + Send + 'static) {
    let change = move |_: &[u8]| {
        let (name, next) = SLOTS.with_borrow_mut(f);
        take_step(name, next);
    };
    link::post(place_0().trustee(), change, &[]);
}

/// Takes a step, at place 0.
fn take_step(name: Name, next: Next) {
    match next {
        Next::Nothing => {}
        Next::Stop { machine, places } => {
            for place in places {
                let stop = move |_: &[u8]| {
                    post::lose(name, machine);
                    at_slots(move |slots| (name, slots.stopped(name, place)));
                };
                link::post(place.trustee(), stop, &[]);
            }
        }
        Next::End(places) => end(name, places.into_iter()),
    }
}

/// Makes [`lose`] known, before this place makes the first part or, as place 0, gives away the first slot.
fn expect_losses() {
    static ONCE: Once = Once::new();
    if gossamer::link::outlives_losses() {
        ONCE.call_once(|| gossamer::link::on_worker_loss(lose));
    }
}

/// Handles the loss of a machine, on each worker.
fn lose(machine: u16) {
    copies::lose(machine);
    for part in post::parts().into_iter().filter(|part| part.members.has(machine)) {
        post::lose(part.name, machine);
    }
    let steps = SLOTS.with_borrow_mut(|slots| slots.lose(machine));
    steps.into_iter().for_each(|(name, next)| take_step(name, next));
}

/// Takes a slot, and decides the machines that are to have parts: those that neither the caller nor place 0 know to be
/// lost.
fn take_slot() -> Result<Option<(Name, Members)>, Error> {
    let own = gossamer::here().machine;
    let take = move |lost: Vec<u16>| {
        expect_losses();
        if gossamer::rack().is_lost(own) {
            return None; // nobody would give the slot back
        }
        let members = Members::living(&lost);
        let name = SLOTS.with_borrow_mut(|slots| slots.take(members.clone(), members.places()));
        name.map(|name| (name, members))
    };
    let lost = Members::living(&[]).others().to_vec();
    held::joined(place_0(), gossamer::spawn_with(place_0(), take, lost))
}

/// Makes an array; returns the property that all handles share, its name, and how many bits of an index lie within a
/// chunk. Called at a place; waits for all.
pub(crate) fn array<T: Element>(
    n: usize,
    value: T,
    split: &Split,
    settings: Settings,
) -> Result<(Trust<Root>, Name, u32), Error> {
    // Refused before anything is taken, if that is possible.
    let known = Members::living(&[]);
    let mut shape = Shape::new(n, size_of::<T>(), split, &known.workers())?;
    memory::check(&shape, &settings, &known.workers())?;
    let taken = held::retry(|| take_slot().transpose()).ok_or(Error::Arrays { most: ARRAYS_MAX })?;
    let (name, members) = taken?;
    members.wait_for_losses();
    // From here on its drop reverts the work.
    let root = trust::local_trustee().entrust(Root { name, members: members.clone() });
    if let Some(machine) = members.others().iter().find(|machine| known.has(**machine)) {
        let workers = members.workers();
        // The split may name the lost machine.
        shape = Shape::new(n, size_of::<T>(), split, &workers).map_err(|_| held::lost(*machine))?;
        memory::check(&shape, &settings, &workers)?;
    }
    let starts = match split {
        Split::Even => (0, Vec::new()),
        Split::Starts(starts) => (1, starts.clone()),
        Split::Cyclic => (2, Vec::new()),
    };
    let fibers: Vec<_> = members
        .places()
        .map(|place| {
            // Kept until its part is made, so that no part is dropped before it exists.
            let kept = root.clone();
            let make = move |((kind, starts), members): ((u8, Vec<usize>), Members)| {
                let _kept = kept;
                let split = match kind {
                    0 => Split::Even,
                    1 => Split::Starts(starts),
                    _ => Split::Cyclic,
                };
                part(name, n, value, &split, members, settings)
            };
            (place, gossamer::spawn_with(place, make, (starts.clone(), members.clone())))
        })
        .collect();
    let mut made = Ok((root, name, shape.shift));
    for (place, fiber) in fibers {
        let error = match held::joined(place, fiber) {
            Ok(Ok(())) => continue,
            Ok(Err(Unmade::System(what))) => Error::Part { place, what },
            Ok(Err(Unmade::Lost(machine))) => held::lost(machine),
            Err(lost) => lost,
        };
        if made.is_ok() {
            made = Err(error);
        }
    }
    made
}

/// Reason why a place has not made its part.
#[derive(Debug, Serialize, Deserialize)]
enum Unmade {
    System(String),
    /// This machine, which was to have a part, was lost meanwhile.
    Lost(u16),
}

impl From<std::io::Error> for Unmade {
    fn from(error: std::io::Error) -> Unmade {
        Unmade::System(error.to_string())
    }
}

/// Makes the part of this place. Its memory is prepared on a thread of its own, because that is slow for large arrays.
fn part<T: Element>(
    name: Name,
    n: usize,
    value: T,
    split: &Split,
    members: Members,
    settings: Settings,
) -> Result<(), Unmade> {
    expect_losses();
    let workers = members.workers();
    let own = number_of(gossamer::here(), &workers).unwrap_or_else(|| unreachable!("this is a place"));
    let shape = Shape::new(n, size_of::<T>(), split, &workers).map_err(std::io::Error::other)?;
    let (chunks, chunk_bytes) = (shape.owned_chunks(own), shape.chunk_bytes());
    // A place never caches more chunks than the others own.
    let cached = Cache::frames_max(chunk_bytes, settings.cache_bytes).min(shape.chunks() - chunks.count);
    let (home, slab) = aside::run(move || {
        let home = Home::new(chunks, chunk_bytes, bytes_of(&value))?;
        Ok::<_, std::io::Error>((home, Slab::touched(cached, chunk_bytes)?))
    })??;
    post::install(Part::new(name, shape, own, members, settings, home, slab)?).map_err(Unmade::Lost)
}
