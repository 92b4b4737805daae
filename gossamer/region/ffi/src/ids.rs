//! Ids of the program's threads. Each machine gives ids to the threads that it creates; an id holds that machine, the
//! machine on which the thread runs, and a place. A place that is free again gets another turn.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::pthread_t;

use crate::real::real;
use crate::side;
use crate::table::{THREADS_MAX, table};

/// An id is this mark, with turn, creator, machine and place.
const MARK: u64 = 0x6753 << 48;
const TURN_BITS: u32 = 20;
const MACHINE_BITS: u32 = 6;
const PLACE_BITS: u32 = 16;

const _: () = assert!(TURN_BITS + 2 * MACHINE_BITS + PLACE_BITS == 48);
const _: () = assert!(THREADS_MAX < 0xffff);

/// Id of the thread that runs the end of the program.
pub(crate) const LAST: u64 = MARK | 0xffff;

thread_local! {
    static ID: Cell<u64> = const { Cell::new(0) };
}

/// Returns the calling thread's id, as the program knows it; 0 if it is not the program's.
pub(crate) fn own() -> u64 {
    ID.get()
}

/// Names a thread, and the machine where it is, in words for messages.
pub(crate) fn in_words(id: u64, machine: u16) -> String {
    format!("thread {id:#x} on machine {machine}")
}

/// Names the calling thread, in words for messages.
pub(crate) fn caller() -> String {
    match own() {
        0 => "a constructor before main".to_owned(),
        own => in_words(own, side::own_machine()),
    }
}

/// Gives the calling thread the id of one that waits until it has ended.
pub(crate) fn act_as(id: u64) {
    ID.set(id);
}

/// Gives the calling thread, which is not in the table, an id to run the end of the program.
pub(crate) fn be_the_last() {
    ID.set(LAST);
}

/// Whether the calling thread runs the end of the program.
pub(crate) fn is_the_last() -> bool {
    ID.get() == LAST
}

/// Returns the C library's id for the calling thread.
pub(crate) fn real_self() -> pthread_t {
    real!(pthread_self: fn() -> pthread_t)
}

static FIRST: AtomicU64 = AtomicU64::new(0);

/// Records that the calling thread is the process's first.
pub(crate) fn note_first() {
    FIRST.store(real_self(), Ordering::Relaxed);
}

/// Returns the C library's id of the process's first thread.
pub(crate) fn real_of_first() -> pthread_t {
    FIRST.load(Ordering::Relaxed)
}

/// Returns the C library's id for an id, for calls that know no others: of our threads only the calling one.
pub(crate) fn real_of(id: pthread_t) -> Option<pthread_t> {
    match is_ours(id) {
        true => (id == own()).then(real_self),
        false => Some(id),
    }
}

/// Whether it is an id of this library, and not of the C library.
pub(crate) fn is_ours(id: u64) -> bool {
    id >> 48 == MARK >> 48
}

/// Returns the machine on which a thread has begun, and runs unless it has moved.
pub(crate) fn machine_of(id: u64) -> u16 {
    (id >> PLACE_BITS) as u16 & ((1 << MACHINE_BITS) - 1)
}

fn creator_of(id: u64) -> u16 {
    (id >> (PLACE_BITS + MACHINE_BITS)) as u16 & ((1 << MACHINE_BITS) - 1)
}

struct Places {
    /// Number of threads that had each place.
    turns: Vec<u32>,
    free: Vec<u16>,
}

static PLACES: Mutex<Places> = Mutex::new(Places { turns: vec![], free: vec![] });

fn places() -> MutexGuard<'static, Places> {
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Places {
    fn claim(&mut self, creator: u16, machine: u16) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.turns.push(0);
            (self.turns.len() - 1) as u16
        });
        let turn = u64::from(self.turns[usize::from(place)]) & ((1 << TURN_BITS) - 1);
        let machines = u64::from(creator) << MACHINE_BITS | u64::from(machine);
        MARK | (turn << (2 * MACHINE_BITS) | machines) << PLACE_BITS | u64::from(place)
    }

    fn release(&mut self, id: u64) {
        let place = id as u16;
        if let Some(turn) = self.turns.get_mut(usize::from(place)) {
            *turn = turn.wrapping_add(1);
            self.free.push(place);
        }
    }
}

/// Returns an id for a thread that this machine creates on `machine`. `None`: there are as many as there may be.
pub(crate) fn claim(machine: u16) -> Option<u64> {
    let alive = &table().created.alive;
    if alive.fetch_add(1, Ordering::SeqCst) >= THREADS_MAX {
        alive.fetch_sub(1, Ordering::SeqCst);
        return None;
    }
    let creator = side::own_machine();
    Some(side::outside(move || places().claim(creator, machine)))
}

/// Frees the id of a thread that was joined, or has ended and is not joined. From a thread of the program, or a fiber.
pub(crate) fn release(id: u64) {
    table().created.alive.fetch_sub(1, Ordering::SeqCst);
    match creator_of(id) {
        own if own == side::own_machine() => side::outside(move || places().release(id)),
        other => side::at(other, move || places().release(id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_comes_once_and_names_its_machines() {
        let mut places = Places { turns: vec![], free: vec![] };
        let first = places.claim(63, 0);
        let second = places.claim(63, 63);
        assert!(is_ours(first) && is_ours(second) && !is_ours(0x7fff_ffff_f000));
        assert_eq!((machine_of(first), machine_of(second)), (0, 63));
        assert_eq!((creator_of(first), creator_of(second)), (63, 63));
        places.release(first);
        let third = places.claim(63, 0);
        assert!(third != first && third as u16 == first as u16);
        assert_ne!(places.claim(63, 0) as u16, second as u16);
    }
}
