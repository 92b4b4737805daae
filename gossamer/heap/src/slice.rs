//! Slices and strings in the heap.

#![allow(unsafe_code)]

use std::alloc::Layout;

use crate::error::Error;
use crate::far;
use crate::global::{Global, made, no_room};
use crate::name::Name;
use crate::object::slice_layout;
use crate::partition::{self, Reach};
use crate::portable::Portable;

/// Puts a slice of `len` elements into the heap, in the partition of the calling worker, or on another machine as
/// [`Global::new`] does. Element `i` is `f(i)`.
///
/// ```
/// gossamer::main(
///     || {
///         let squares = gossamer_heap::slice(5, |i| i * i);
///         assert_eq!(*squares.read(), [0, 1, 4, 9, 16]);
///     },
///     1,
/// );
/// ```
///
/// # Panics
/// Same as [`Global::new`]. If `f` panics, the elements that it has made are dropped, and their room is free again.
pub fn slice<T: Portable>(len: usize, f: impl FnMut(usize) -> T) -> Global<[T]> {
    try_slice(len, f).unwrap_or_else(|error| no_room(&error))
}

/// Same as [`slice()`]. Where there is no room, `f` is not called.
///
/// ```
/// gossamer::main(
///     || {
///         let squares = gossamer_heap::try_slice(5, |i| i * i).unwrap();
///         assert_eq!(squares.read().len(), 5);
///     },
///     1,
/// );
/// ```
///
/// # Errors
/// The heap of this machine is full, and no other one takes the slice; or the system gives no more memory.
/// [`Error::Lost`]: the machine that took it was lost meanwhile.
///
/// # Panics
/// On a thread that is no worker of the program.
pub fn try_slice<T: Portable>(len: usize, mut f: impl FnMut(usize) -> T) -> Result<Global<[T]>, Error> {
    let layout = slice_layout::<T>(len);
    match partition::own().allocate(layout, Reach::New) {
        Ok(room) => Ok(fill(len, layout, room, f)),
        Err(_) => match far::slice(len, &mut f)? {
            Some(slice) => Ok(slice),
            None => try_slice_here(len, f),
        },
    }
}

/// Same as `try_slice`, in the partition of the calling worker.
pub(crate) fn try_slice_here<T: Portable>(len: usize, f: impl FnMut(usize) -> T) -> Result<Global<[T]>, Error> {
    let layout = slice_layout::<T>(len);
    Ok(fill(len, layout, partition::own().allocate(layout, Reach::All)?, f))
}

/// Makes the elements in a room of this worker for so many.
fn fill<T: Portable>(
    len: usize,
    layout: Layout,
    (name, room): (Name, *mut u8),
    mut f: impl FnMut(usize) -> T,
) -> Global<[T]> {
    let mut building = Building { name, layout, elements: room.cast::<T>(), made: 0 };
    for i in 0..len {
        let element = f(i);
        // SAFETY: the room is for `len` elements, and nobody else's.
        unsafe { building.elements.add(i).write(element) };
        building.made += 1;
    }
    std::mem::forget(building);
    made(room, layout);
    // SAFETY: all elements are there.
    unsafe { Global::of(name, len) }
}

/// A slice that is not whole yet.
struct Building<T> {
    name: Name,
    layout: Layout,
    elements: *mut T,
    made: usize,
}

impl<T> Drop for Building<T> {
    fn drop(&mut self) {
        // SAFETY: so many have been made, and nobody has them.
        unsafe { std::ptr::slice_from_raw_parts_mut(self.elements, self.made).drop_in_place() };
        // SAFETY: it was allocated by this worker, and nothing is in it any more.
        unsafe { partition::own().free(self.name, self.layout) };
    }
}

impl<T: Portable> From<Vec<T>> for Global<[T]> {
    fn from(values: Vec<T>) -> Self {
        let mut values = values.into_iter();
        slice(values.len(), |_| values.next().unwrap_or_else(|| unreachable!("there are as many")))
    }
}

impl From<&str> for Global<str> {
    fn from(text: &str) -> Self {
        let bytes = text.as_bytes();
        let made = std::mem::ManuallyDrop::new(slice(bytes.len(), |i| bytes[i]));
        // SAFETY: the bytes are those of a `str`; `made`, which owned them, is not dropped.
        unsafe { Global::of(made.name(), bytes.len()) }
    }
}
