//! [`Snapshot`]: all elements of an array as they were at one moment, at each machine as one slice.
//!
//! 1. each machine takes memory for all elements, that of the array's last dropped snapshot if it has it
//! 2. each place copies into it, at its machine, the elements that it owns, and a part of those of other machines
//! 3. the handle is made; from here on nothing writes that memory
//!
//! The memory is not a part's, so no right to a chunk and no message of the directory is involved in a read. Its
//! machine's list is behind a lock, which each fiber takes once, in [`Snapshot::slice`].
//!
//! Invariant:
//! - [snapshot-complete] The memory of a snapshot is written by the fibers of step 2 alone, each of them its own
//!   elements; its handle exists only after all of them have ended. It is written again, as that of a later snapshot,
//!   only after the handles and all slices are gone.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::mem;
use std::ops::Deref;
use std::sync::Arc;

use gossamer::{Place, Trust};
use trust::link;

use crate::array::{Array, at_place};
use crate::copies::{self, Id, Memory};
use crate::element::Element;
use crate::name::Name;
use crate::whole::outcomes;
use crate::{Error, held, memory, post, waits};

/// All elements of an array as they were when [`Array::snapshot`] was called; later writes do not change it.
///
/// Each machine has a copy, which its workers share. [`slice`](Self::slice) gives it as a plain slice, so a read costs
/// what one of a `Vec` costs, without a look-up, a message or a wait, also inside delegated closures and on threads
/// that are no workers.
///
/// A handle may be cloned, captured by closures that are sent, and dropped anywhere; the copies are freed after the
/// last handle and the last slice of their machine are dropped. It may outlive its array.
///
/// ```
/// use gossamer_array::{Add, Array};
/// gossamer::main(|| {
///     let n = 1000;
///     let steps = Array::new(n, 1u64).unwrap();
///     for _ in 0..3 {
///         let (before, new) = (steps.snapshot().unwrap(), steps.clone());
///         steps.on_owners(move |owned| {
///             let before = before.slice();                    // a `&[u64]`, of all places' elements
///             for range in owned {
///                 new.modify(range, |first, elements| {       // of the same array: the snapshot does not change
///                     (first..).zip(elements).for_each(|(i, new)| *new = before[i] + before[n - 1 - i]);
///                 });
///             }
///         });
///     }
///     assert_eq!(steps.reduce(0..n, Add), 8 * 1000);
/// }, 2);
/// ```
pub struct Snapshot<T> {
    /// The copies are freed with the last clone of this.
    root: Trust<Root>,
    id: Id,
    elements: usize,
    value: PhantomData<T>,
}

impl<T> Clone for Snapshot<T> {
    fn clone(&self) -> Self {
        Snapshot { root: self.root.clone(), ..*self }
    }
}

impl<T> std::fmt::Debug for Snapshot<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot<{}>({} elements)", std::any::type_name::<T>(), self.elements)
    }
}

impl<T: Element + Sync> Snapshot<T> {
    /// Returns the elements, in the memory of this machine. Takes a lock, so take it once for many reads; never waits
    /// for another machine.
    ///
    /// # Panics
    /// If the program is ending; if the machine that has made the snapshot is lost.
    ///
    /// Example: at the [type](Self).
    #[track_caller]
    pub fn slice(&self) -> SnapshotSlice<T> {
        SnapshotSlice { memory: self.memory(), elements: self.elements, value: PhantomData }
    }

    #[track_caller]
    fn memory(&self) -> Arc<Memory> {
        copies::memory_of(self.id).unwrap_or_else(|| match self.id.lost() {
            Some(machine) => panic!("the snapshot is gone: machine {machine}, which had made it, was lost"),
            None => panic!(
                "the snapshot is gone: its program ends, or a machine was lost that had handed on this handle, and all \
                 others were dropped"
            ),
        })
    }
}

/// The elements of a [`Snapshot`] at one machine, as a slice. It keeps them by itself, also after the last handle was
/// dropped, and cannot be sent to another machine: send the snapshot.
///
/// Example: at [`Snapshot`].
///
/// ```compile_fail,E0277
/// # let array = gossamer_array::Array::new(100, 0u8).unwrap();
/// let slice = array.snapshot().unwrap().slice();
/// gossamer::spawn_on(gossamer::here(), move || slice[0]);
/// ```
#[derive(Clone)]
pub struct SnapshotSlice<T> {
    memory: Arc<Memory>,
    elements: usize,
    value: PhantomData<T>,
}

impl<T> Deref for SnapshotSlice<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: [snapshot-complete] as many elements lie there, at the start of a page, and do not change; slices are
        // made of `Element` types only, for which any bytes are valid.
        unsafe { std::slice::from_raw_parts(self.memory.start().cast(), self.elements) }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for SnapshotSlice<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&**self).finish()
    }
}

/// Property shared by all handles; the copies are freed with it.
struct Root(Id, Name);

impl Drop for Root {
    fn drop(&mut self) {
        let (id, name) = (self.0, self.1);
        end(id, name);
    }
}

/// Frees the copies of a snapshot.
fn end(id: Id, name: Name) {
    for place in first_places() {
        link::post(place.trustee(), move |_| copies::end(id, name, post::part(name).is_some()), &[]);
    }
}

/// Frees the copies of a snapshot that was not completed. Its root does so, too, but may stay where a machine was lost.
struct Incomplete(Id, Name);

impl Drop for Incomplete {
    fn drop(&mut self) {
        end(self.0, self.1);
    }
}

/// Returns the first place of each machine that is not lost.
fn first_places() -> impl Iterator<Item = Place> {
    gossamer::rack().living().filter(|place| place.worker == 0)
}

impl<T: Element + Sync> Array<T> {
    /// Copies all elements to each machine, to be read as a slice by all its workers. Each place copies those it owns;
    /// those of other machines are fetched once for each machine, in packets.
    ///
    /// Take it where a step reads most elements, at random or again and again, and writes the results when it has read,
    /// such as a round of PageRank: reads of a [`SnapshotSlice`] cost what those of a `Vec` cost, and writers of the
    /// array do not wait for them. A machine needs memory for all elements of the array; that of a dropped snapshot is
    /// kept for the array's next one.
    ///
    /// Elements are read at some moment during the call, each chunk atomically. So let no fiber change the array
    /// meanwhile: with all of them joined the snapshot is exact, `apply` included.
    ///
    /// # Errors
    /// [`Error::Memory`] if a machine has too little memory, [`Error::Part`] if the system gives it none.
    ///
    /// # Panics
    /// Inside delegated closures and callbacks, where nothing may wait; if the array is poisoned.
    ///
    /// Example: at [`Snapshot`].
    #[track_caller]
    pub fn snapshot(&self) -> Result<Snapshot<T>, Error> {
        at_place!(self, snapshot_at_place())
    }

    #[track_caller]
    fn snapshot_at_place(&self) -> Result<Snapshot<T>, Error> {
        waits::may_wait("snapshot");
        let (id, name, bytes) = (Id::new(), self.name(), self.len().saturating_mul(size_of::<T>()));
        let members = self.part().members.clone();
        members.wait_for_losses();
        // From here on its drop frees the memory; each fiber has a handle, so no copy is made after that.
        let root = trust::local_trustee().entrust(Root(id, name));
        let snapshot = Snapshot { root, id, elements: self.len(), value: PhantomData };
        let incomplete = Incomplete(id, name);
        let first_places = || members.places().filter(|place| place.worker == 0);
        let ask = |place| {
            let kept = snapshot.root.clone();
            gossamer::spawn_on(place, move || {
                let _kept = kept;
                copies::reuse(id, name)
            })
        };
        let have = self.values(outcomes(first_places().map(ask).collect()));
        for (place, has) in first_places().zip(have) {
            match if has { Ok(()) } else { take(place, &snapshot.root, id, bytes) } {
                Err(Error::Lost { .. }) => self.gone(),
                taken => taken?,
            }
        }
        let (array, copy) = (self.clone(), snapshot.clone());
        self.at_owners("snapshot", move |_| array.copy_part(&copy));
        mem::forget(incomplete);
        Ok(snapshot)
    }

    /// Copies the elements of this place to its machine's copy, and its part of the elements of other machines.
    fn copy_part(&self, snapshot: &Snapshot<T>) {
        let memory = snapshot.memory();
        let part = self.part();
        let (shape, here) = (&part.shape, gossamer::here());
        let workers = usize::from(gossamer::rack().machines()[usize::from(here.machine)].workers);
        for (number, place) in part.members.places().enumerate() {
            let count = shape.owned_chunks(number).count;
            let share = |worker: usize| (count as u128 * worker as u128 / workers as u128) as usize;
            let worker = usize::from(here.worker);
            let indices = match place.machine == here.machine {
                true if number == part.own => 0..count,
                true => continue,
                false => share(worker)..share(worker + 1),
            };
            if indices.is_empty() {
                continue;
            }
            for range in shape.ranges(number, indices) {
                // SAFETY: the memory is that of an array of this type and length; of the machine's places this one
                // alone writes these elements, and nothing reads them before it has ended [snapshot-complete].
                let elements = unsafe { memory.elements::<T>(range.clone()) };
                self.copy_pieces("snapshot", range.start, elements);
            }
        }
    }
}

/// Takes memory for a snapshot at a machine.
fn take(place: Place, root: &Trust<Root>, id: Id, bytes: usize) -> Result<(), Error> {
    let left = held::left_for(bytes as u64, place.machine, memory::left)?;
    if left < bytes as u64 {
        return Err(Error::Memory { machine: place.machine, bytes: bytes as u64, left });
    }
    let kept = root.clone();
    let take = move |()| {
        let _kept = kept;
        Memory::take(bytes).map(|memory| copies::keep(id, memory)).map_err(|error| error.to_string())
    };
    let taken = gossamer::spawn_with(place, take, ());
    held::joined(place, taken)?.map_err(|what| Error::Part { place, what })
}
