//! Bytes of the heap without an owner (DRust 4.1.1): nobody frees them, nobody keeps copies of them, and nothing is
//! ordered but by messages.
//!
//! ```
//! use gossamer_heap::raw;
//! gossamer::main(
//!     || {
//!         let room = raw::alloc(64).unwrap();
//!         // SAFETY: the room is ours, and so long.
//!         unsafe {
//!             raw::write(room, 8, b"eight by");
//!             let mut bytes = [0; 8];
//!             raw::read(room, 8, &mut bytes);
//!             assert_eq!(&bytes, b"eight by");
//!             raw::free(room);
//!         }
//!     },
//!     1,
//! );
//! ```

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;

use crate::error::Error;
use crate::global::{Global, check_may_wait};
use crate::{bases, copies, freeing, places, replicas};

/// Room in the heap, by name. It may travel as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    name: crate::name::Name,
    bytes: usize,
}

impl Room {
    /// Returns the length in bytes.
    pub fn bytes(self) -> usize {
        self.bytes
    }
}

/// Takes room, zeroed, from the partition of the calling worker.
///
/// # Errors
/// The heap of this machine is full, or the system gives no more memory.
///
/// # Panics
/// On a thread that is no worker of the program.
pub fn alloc(bytes: usize) -> Result<Room, Error> {
    let words = crate::slice::try_slice_here(bytes.div_ceil(8), |_| 0u64)?;
    let words = ManuallyDrop::new(words);
    replicas::keep_none(words.name());
    Ok(Room { name: words.name(), bytes })
}

/// Frees it.
///
/// # Safety
/// It was not freed before, and nobody uses it any more.
pub unsafe fn free(room: Room) {
    // SAFETY: the caller's promise: this is the owner now.
    unsafe { freeing::object::<[u64]>(room.name, room.bytes.div_ceil(8)) };
}

/// Reads from it, beginning at `offset`: where it is mapped from memory, else by one read of its machine. Waits for
/// that.
///
/// # Safety
/// It was not freed, and nobody writes there meanwhile.
///
/// # Panics
/// If the range is not inside of it; where it has to wait and nothing may; if its machine is lost.
pub unsafe fn read(room: Room, offset: usize, into: &mut [u8]) {
    room.check(offset, into.len());
    if into.is_empty() {
        return;
    }
    if let Some(address) = bases::find(room.name.at) {
        // SAFETY: the range is inside of the room; the caller's promise.
        unsafe { address.add(offset).copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        return;
    }
    check_may_wait("raw::read");
    // Whole words around it.
    let (first, end) = (offset / 16 * 16, (offset + into.len()).next_multiple_of(8));
    let at = crate::name::At::new(room.name.at.place(), room.name.at.offset() + first);
    let mut words = vec![0; end - first];
    copies::fetch_bytes(at, &mut words, || {}).unwrap_or_else(|why| panic!("{:?} cannot be read: {why}", room.name.at));
    into.copy_from_slice(&words[offset - first..offset - first + into.len()]);
}

/// Writes to it, beginning at `offset`: where it is mapped to memory, else at its place. Waits for that.
///
/// # Safety
/// It was not freed, and nobody else reads or writes there meanwhile.
///
/// # Panics
/// If the range is not inside of it; where it has to wait and nothing may; if its machine is lost.
pub unsafe fn write(room: Room, offset: usize, from: &[u8]) {
    room.check(offset, from.len());
    let put = move |address: *mut u8, from: &[u8]| {
        // SAFETY: the range is inside of the room; the caller's promise.
        unsafe { address.add(offset).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    };
    if let Some(address) = bases::find(room.name.at) {
        return put(address, from);
    }
    check_may_wait("raw::write");
    let home = places::places()[room.name.at.place() as usize];
    let there = move |from: Vec<u8>| {
        if let Some(address) = bases::find(room.name.at) {
            put(address, &from);
        }
    };
    let written = gossamer::spawn_with(home, there, from.to_vec()).join();
    written.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

impl Room {
    fn check(self, offset: usize, bytes: usize) {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(inside, "{bytes} bytes from {offset} on are not inside of a room of {} bytes", self.bytes);
    }
}

const _: fn() = || {
    fn travels<T: gossamer::NoRef + Send>() {}
    travels::<Room>();
    travels::<Global<u8>>();
};
