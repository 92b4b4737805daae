//! Memory of snapshots at this machine: the copies of all elements that its workers share, and what dropped ones have
//! left for the next snapshot of their array.

#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memmap2::{Advice, MmapMut};

use crate::element::Element;
use crate::name::Name;

/// Identity of a snapshot in the whole program: the machine where it was made, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Id {
    machine: u16,
    number: u64,
}

impl Id {
    pub(crate) fn new() -> Id {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the numbers only have to differ.
        Id { machine: gossamer::rack().machine(), number: LAST.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Id {
    /// Returns the machine where it was made, if that is lost.
    pub(crate) fn lost(self) -> Option<u16> {
        gossamer::rack().is_lost(self.machine).then_some(self.machine)
    }
}

/// Memory of all elements of one array.
pub(crate) struct Memory(MmapMut);

impl Memory {
    pub(crate) fn take(bytes: usize) -> std::io::Result<Memory> {
        let memory = MmapMut::map_anon(bytes.max(1))?;
        let _ = memory.advise(Advice::HugePage);
        let _ = memory.advise(Advice::DontDump); // it may be most of the host's memory
        Ok(Memory(memory))
    }

    /// Returns its first byte, at the start of a page.
    pub(crate) fn start(&self) -> *const u8 {
        self.0.as_ptr()
    }

    /// Returns some of its elements, to be written.
    ///
    /// # Safety
    /// The memory has elements of this type at this range, and nothing else uses them meanwhile.
    #[expect(clippy::mut_from_ref, reason = "other places write other elements")]
    pub(crate) unsafe fn elements<T: Element>(&self, range: Range<usize>) -> &mut [T] {
        let first = self.0.as_ptr().cast_mut().cast::<T>();
        // SAFETY: the caller's promise; a mapping begins at a page, and any bytes are a `T`.
        unsafe { std::slice::from_raw_parts_mut(first.add(range.start), range.len()) }
    }
}

/// Copies of this machine.
struct Copies {
    of: Vec<(Id, Arc<Memory>)>,
    /// Memory of the last dropped snapshot of each array, for its next one.
    spare: Vec<(Name, Memory)>,
}

static COPIES: Mutex<Copies> = Mutex::new(Copies { of: Vec::new(), spare: Vec::new() });

fn copies() -> MutexGuard<'static, Copies> {
    COPIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the memory of a snapshot, if it has not ended.
pub(crate) fn memory_of(id: Id) -> Option<Arc<Memory>> {
    copies().of.iter().find(|(other, _)| *other == id).map(|(_, memory)| Arc::clone(memory))
}

impl Copies {
    /// Adds the memory of a new snapshot, unless its maker is lost.
    fn add(&mut self, id: Id, memory: Memory) {
        // If it is lost later, `lose` is called after this.
        if id.lost().is_none() {
            self.of.push((id, Arc::new(memory)));
        }
    }
}

/// Notes the memory of a new snapshot.
pub(crate) fn keep(id: Id, memory: Memory) {
    copies().add(id, memory);
}

/// Ends the snapshots that were made on this machine, which is lost: nobody else would end them.
pub(crate) fn lose(machine: u16) {
    copies().of.retain(|(id, _)| id.machine != machine);
}

/// Takes the memory that an earlier snapshot of the array has left, if there is some.
pub(crate) fn reuse(id: Id, name: Name) -> bool {
    let mut copies = copies();
    let Some(at) = copies.spare.iter().position(|(other, _)| *other == name) else { return false };
    let (_, memory) = copies.spare.swap_remove(at);
    copies.add(id, memory);
    true
}

/// Ends a snapshot at this machine, on its first place. Keeps its memory if the array is still there.
pub(crate) fn end(id: Id, name: Name, has_array: bool) {
    let mut copies = copies();
    let Some(at) = copies.of.iter().position(|(other, _)| *other == id) else { return };
    let (_, memory) = copies.of.swap_remove(at);
    let has_spare = copies.spare.iter().any(|(other, _)| *other == name);
    if !has_spare && has_array {
        copies.spare.extend(Arc::into_inner(memory).map(|memory| (name, memory)));
    }
}

/// Frees the memory kept for an array, which ends. Called on the machine's first place among others, after its part was
/// removed.
pub(crate) fn forget(name: Name) {
    copies().spare.retain(|(other, _)| *other != name);
}
