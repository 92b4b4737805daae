//! Loom models of the calls of an array for single elements, traps 1, 2 and 4 of its design: `cargo dev loom`, or
//! `RUSTFLAGS="--cfg loom" cargo test -p array-model --release --lib loom_`.
//!
//! The real calls run here, hits, misses, messages and homes, in fibers that look into their inboxes wherever a model
//! says so, where a fiber of a program would wait or have made 1,024 calls. All chunks have place 0 as their home.

use std::sync::{Arc, Mutex, PoisonError};

use loom::thread;

use crate::array::Array;
use crate::element::Element;
use crate::frame::{Cache, Home, Slab};
use crate::members::Members;
use crate::name::Name;
use crate::operator::{Add, bytes_of};
use crate::part::{IN_PLACE, Part, READS, WRITES};
use crate::rack::{Fault, PlaceState, World};
use crate::settings::Settings;
use crate::shape::{Shape, Split};
use crate::{Trust, post};

const NAME: Name = Name { slot: 0, generation: 1 };
/// Elements of a chunk.
const CHUNK: usize = 2;

/// Work of a place.
type Script<T> = fn(&Site<T>);

#[derive(Clone, Copy)]
struct Model {
    /// Do places copy granted chunks?
    copies: bool,
    /// Are they workers of one machine, which use chunks in place?
    are_near: bool,
    fault: Fault,
}

const SENT: Model = Model { copies: false, are_near: false, fault: Fault::None };
const COPIED: Model = Model { copies: true, ..SENT };
const NEAR: Model = Model { are_near: true, ..COPIED };

impl Model {
    /// Explores the work of places, the first being the home, and its work at the end, while the others only answer.
    /// The array has as many chunks as places, and its elements are this.
    fn explore<T: Element + Sync>(self, first: T, scripts: &'static [Script<T>], end: Script<T>) {
        // Parts find each other's memory in a list of the process, which its tests share.
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(3));
        builder.max_branches = 10_000;
        builder.check(move || {
            let (places, bytes) = (scripts.len(), CHUNK * size_of::<T>());
            let world = World::new(places, places, bytes, self.copies, self.are_near, self.fault);
            let threads: Vec<_> = (0..places)
                .map(|place| {
                    let world = Arc::clone(&world);
                    let body = move || Site::run(world, place, first, scripts[place], end);
                    thread::Builder::new().stack_size(1 << 16).spawn(body).unwrap()
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}

/// The array at a place.
struct Site<T> {
    array: Array<T>,
}

impl<T: Element> Site<T> {
    fn run(world: Arc<World>, place: usize, first: T, script: Script<T>, end: Script<T>) {
        let state = PlaceState::take(world, place);
        let places = state.world.places();
        let elements = places * CHUNK;
        let starts: Vec<usize> = (0..places).map(|place| if place == 0 { 0 } else { elements }).collect();
        let shape = Shape::new(elements, size_of::<T>(), &Split::Starts(starts), &vec![1; places]).unwrap();
        assert_eq!((shape.chunk(), shape.owned_chunks(0).count), (CHUNK, places));
        let (owned, bytes) = (shape.owned_chunks(place), shape.chunk_bytes());
        let home = Home::new(owned, bytes, bytes_of(&first)).unwrap();
        let settings = Settings { cache_bytes: 0, prefetch: 0, ..Settings::default() };
        let slab = Slab::touched(Cache::frames_max(bytes, 0), bytes).unwrap();
        let shift = shape.shift;
        post::install(Part::new(NAME, shape, place, Members, settings, home, slab).unwrap()).unwrap();
        state.note_writes();
        let site = Site { array: Array::of(Trust::new(), elements, NAME, shift) };

        let others = |count: usize| state.serve_until(|| state.told.get() == count);
        if place == 0 {
            script(&site);
            others(places - 1);
            end(&site);
            (1..places).for_each(|place| state.tell(place));
        } else {
            script(&site);
            state.tell(0);
            others(1);
        }
        post::remove(NAME);
    }

    fn get(&self, i: usize) -> T {
        self.array.get(i)
    }

    fn set(&self, i: usize, value: T) {
        self.array.set(i, value);
        PlaceState::here().note_writes();
    }

    /// Handles the messages in the inbox, where other fibers run.
    fn pause(&self) {
        crate::yield_now();
    }

    /// Returns the address of an element that is a hit; a planted fault keeps it.
    fn address(&self, i: usize, wanted: u64) -> Option<*mut T> {
        // SAFETY: as where hits do so.
        #[allow(unsafe_code)]
        let elements = unsafe { post::for_hits(NAME)?.hit(i / CHUNK, wanted) }?;
        Some(elements.cast::<T>().wrapping_add(i % CHUNK))
    }
}

/// A value that says which chunk it is of, and how often it was written there.
fn value(i: usize, version: u64) -> u64 {
    (i / CHUNK) as u64 * 100 + version
}

/// The version of a value that was read.
fn version(i: usize, read: u64) -> u64 {
    assert_eq!(read / 100, value(i, 0) / 100, "a value of another chunk");
    read % 100
}

/// Home of chunks 0 and 1: writes chunk 0 while somebody reads.
fn writes_chunk_0(home: &Site<u64>) {
    home.set(0, value(0, 1));
    home.set(2, value(2, 1));
    home.pause();
    home.set(0, value(0, 2));
}

fn has_written_chunk_0(home: &Site<u64>) {
    assert_eq!((home.get(0), home.get(2)), (value(0, 2), value(2, 1)));
}

/// Reads chunk 0, and again after its frame, which a recall has taken, may be that of chunk 1.
fn reads_both(site: &Site<u64>) {
    let first = version(0, site.get(0));
    assert!(first > 0, "what was written before the array was here");
    site.pause();
    assert_eq!(version(2, site.get(2)), 1);
    if let Some(hit) = site.array.get_here(0) {
        assert!(version(0, hit) >= first, "an old value");
    }
    assert!(version(0, site.get(0)) >= first, "an old value");
}

/// Trap 1: `get` against the recall of its chunk and the frame's use for another one.
#[test]
fn loom_array_get_against_recall_and_refill() {
    SENT.explore(0, &[writes_chunk_0, reads_both], has_written_chunk_0);
    COPIED.explore(0, &[writes_chunk_0, reads_both], has_written_chunk_0);
}

/// The same with an address that is kept while messages are handled: a `get` that does not look again.
#[test]
#[should_panic(expected = "a value of another chunk")]
fn loom_array_an_address_that_is_kept_is_found() {
    fn keeps(site: &Site<u64>) {
        site.get(0);
        let kept = site.address(0, READS);
        site.pause();
        site.get(2);
        // SAFETY: it lies in the cache's memory, which this thread alone has.
        #[allow(unsafe_code)]
        kept.inspect(|kept| assert!(version(0, unsafe { kept.read() }) > 0));
    }
    SENT.explore(0, &[writes_chunk_0, keeps], has_written_chunk_0);
}

type Large = [u64; 3];

/// Reads an element of several words, which is not older than the one before.
fn read_large(site: &Site<Large>, i: usize, before: u64) -> u64 {
    let [a, b, c] = site.get(i);
    assert!(a == b && b == c, "torn: {a} {b} {c}");
    assert!(a >= before, "an old value");
    a
}

/// Trap 1: elements of several words against their writers, of which there is one for each element of a chunk.
#[test]
fn loom_array_large_elements_against_writers() {
    fn writes<const OWN: usize>(site: &Site<Large>) {
        site.set(OWN, [1; 3]);
        let read = read_large(site, 1 - OWN, 0);
        site.pause();
        site.set(OWN, [2; 3]);
        read_large(site, 1 - OWN, read);
    }
    fn ends(home: &Site<Large>) {
        assert_eq!((home.get(0), home.get(1)), ([2; 3], [2; 3]));
    }
    SENT.explore([0; 3], &[writes::<0>, writes::<1>], ends);
    COPIED.explore([0; 3], &[writes::<0>, writes::<1>], ends);
}

/// Stores to an element that nobody else writes, by hits and misses, with messages handled in between.
fn stores<const OWN: usize>(site: &Site<u64>) {
    for value in 1..=2 {
        site.set(OWN, value);
        site.pause();
        // After the answer to a recall it misses.
        if site.array.set_here(OWN, value + 2) {
            PlaceState::here().note_writes();
            assert_eq!(site.get(OWN), value + 2, "a store is lost");
        } else {
            assert_eq!(site.get(OWN), value, "a store is lost");
        }
    }
}

/// The last of these stores.
fn has_stores(home: &Site<u64>) {
    for i in 0..2 {
        assert!([2, 4].contains(&home.get(i)), "a store is lost");
    }
}

/// Traps 1 and 4: `set` against recalls of its chunk, of which another place writes another element.
#[test]
fn loom_array_set_against_recall() {
    SENT.explore(0, &[stores::<0>, stores::<1>], has_stores);
    COPIED.explore(0, &[stores::<0>, stores::<1>], has_stores);
    NEAR.explore(0, &[stores::<0>, stores::<1>], has_stores);
}

/// Access in place by one worker, while the home sets the other element in place, and combines, for which it has the
/// chunk to itself.
#[test]
fn loom_array_access_in_place_against_recall() {
    fn stores_and_applies(home: &Site<u64>) {
        home.set(0, 1);
        home.array.apply(0, Add, 5);
        PlaceState::here().note_writes();
        home.set(0, home.get(0) + 1);
    }
    fn ends(home: &Site<u64>) {
        assert_eq!(home.get(0), 7);
        assert!([2, 4].contains(&home.get(1)), "a store is lost");
    }
    NEAR.explore(0, &[stores_and_applies, stores::<1>], ends);
}

/// The same where a store by an address that was kept comes after the answer to the recall.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_array_a_store_in_place_after_the_answer_is_found() {
    fn applies(home: &Site<u64>) {
        home.pause();
        home.array.apply(0, Add, 5);
        PlaceState::here().note_writes();
    }
    fn keeps(site: &Site<u64>) {
        site.set(1, 1);
        let kept = site.address(1, IN_PLACE);
        site.pause();
        // SAFETY: it lies in the home's memory, which lasts as long as the model.
        #[allow(unsafe_code)]
        kept.inspect(|kept| unsafe { crate::word::store(*kept, 4) });
    }
    NEAR.explore(0, &[applies, keeps], |_| ());
}

/// The same with a `set` by the same worker after its answer that does not look again.
#[test]
#[should_panic(expected = "a store is lost")]
fn loom_array_a_store_after_the_answer_is_found() {
    fn keeps(site: &Site<u64>) {
        site.set(1, 1);
        let kept = site.address(1, WRITES);
        site.pause();
        if let Some(kept) = kept {
            // SAFETY: it lies in the cache's memory, which this thread alone has.
            #[allow(unsafe_code)]
            unsafe {
                kept.write(4)
            };
            assert_eq!(site.get(1), 4, "a store is lost");
        }
    }
    SENT.explore(0, &[stores::<0>, keeps], |_| ());
}

/// `apply` by all, while the home reads, which merges the combined values.
#[test]
fn loom_array_apply_against_recall() {
    fn applies(site: &Site<u64>) {
        site.array.apply(0, Add, 1);
        PlaceState::here().note_writes();
        site.pause();
        site.array.apply(0, Add, 1);
        PlaceState::here().note_writes();
    }
    fn applies_and_reads(home: &Site<u64>) {
        home.array.apply(0, Add, 1);
        PlaceState::here().note_writes();
        let read = home.get(0);
        assert!((1..=3).contains(&read), "{read}");
    }
    fn ends(home: &Site<u64>) {
        assert_eq!(home.get(0), 3);
    }
    SENT.explore(0, &[applies_and_reads, applies], ends);
    // A place that reads and then combines reads no more from when it asks.
    fn reads_and_applies(site: &Site<u64>) {
        let read = site.get(0);
        applies(site);
        assert!(site.get(0) >= read + 2, "an operand is missing");
    }
    COPIED.explore(0, &[applies_and_reads, reads_and_applies], ends);
}

fn writes_and_reads(home: &Site<u64>) {
    home.set(0, 1);
    home.pause();
    home.set(0, 2);
}

fn reads(site: &Site<u64>) {
    let read = site.get(0);
    site.pause();
    assert!((read..=2).contains(&site.get(0)), "an old value");
}

fn has_written(home: &Site<u64>) {
    assert_eq!(home.get(0), 2);
}

/// Within a host the place that is granted a chunk copies it: after earlier writes there, and before later ones.
#[test]
fn loom_array_copies_from_home() {
    COPIED.explore(0, &[writes_and_reads, reads], has_written);
}

/// The same where the chunk is copied after one more message, such as a recall, was answered.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_array_a_copy_after_the_answer_is_found() {
    Model { fault: Fault::CopiesLate, ..COPIED }.explore(0, &[writes_and_reads, reads], has_written);
}

/// The same where a recall may overtake the grant before it.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_array_a_recall_that_overtakes_is_found() {
    Model { fault: Fault::Overtakes, ..COPIED }.explore(0, &[writes_and_reads, reads], has_written);
}
