//! Addresses at which threads may wait by `futex(2)`, as each machine knows them: a wake of another address sends
//! nothing.
//!
//! The home of an address (`line.rs`) tells all machines of it, before a thread that has come there looks at the word;
//! and takes that back when a wake has found nobody. So threads that wait there again and again are told of once, and
//! no page of a count travels between those that wait and those that wake.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use trust::link::post;

use crate::side;

/// How often this machine was told of addresses, less how often that was taken back. Addresses share them.
static TOLD: [AtomicU32; COUNTS] = [const { AtomicU32::new(0) }; COUNTS];
const COUNTS: usize = 512;

thread_local! {
    /// Addresses of this home that all machines know, and how often they were told.
    static KNOWN: RefCell<HashMap<usize, u32>> = RefCell::default();
}

fn told(address: usize) -> &'static AtomicU32 {
    /// 2^64 by the golden ratio: it scatters addresses that are close to one another.
    const SCATTER: u64 = 0x9e37_79b9_7f4a_7c15;
    const SHIFT: u32 = u64::BITS - COUNTS.ilog2();
    &TOLD[((address as u64).wrapping_mul(SCATTER) >> SHIFT) as usize]
}

/// Whether a thread may wait at an address, or be about to. The caller has changed the word before.
pub(crate) fn may_be(address: usize) -> bool {
    // With the answer of each machine in `tell`: this finds what it was told, or the waiter finds the new word.
    fence(Ordering::SeqCst);
    told(address).load(Ordering::SeqCst) != 0
}

/// In a fiber of the address's home, for a thread that stands in the line: tells all machines, unless they know.
pub(crate) fn tell(address: usize) {
    if KNOWN.with_borrow(|known| known.contains_key(&address)) {
        return;
    }
    let note = move || _ = told(address).fetch_add(1, Ordering::SeqCst);
    note();
    side::from_worker_on_others(note);
    KNOWN.with_borrow_mut(|known| *known.entry(address).or_default() += 1);
}

/// On the worker of the address's home: takes it back, if all machines were told. Nobody stands in the line.
pub(crate) fn take_back(address: usize) {
    let Some(times) = KNOWN.with_borrow_mut(|known| known.remove(&address)) else { return };
    for machine in 0..side::machines() {
        let forget = move |_: &[u8]| _ = told(address).fetch_sub(times, Ordering::SeqCst);
        post(side::place(machine).trustee(), forget, &[]);
    }
}
