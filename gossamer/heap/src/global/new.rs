//! How an object is made: here, or where there is room.

#![allow(unsafe_code)]

use super::{Global, made, no_room};
use crate::error::NoRoom;
use crate::far;
use crate::object::Object;
use crate::partition::{self, Reach};
use crate::portable::Portable;

impl<T: Portable> Global<T> {
    /// Puts a value into the heap, in the partition of the calling worker: nobody is asked. Where this machine's heap
    /// is 90% full, a fiber that may wait makes the object on another machine with more room, if there is one.
    ///
    /// # Panics
    /// On a thread that is no worker of the program; if the heap is full, which [`try_new`](Self::try_new) tells.
    ///
    /// A type that is aligned to more than 4096 bytes does not compile:
    ///
    /// ```compile_fail
    /// #[repr(align(8192))]
    /// struct Aligned(u8);
    /// gossamer::main(|| drop(gossamer_heap::Global::new(Aligned(1))), 1);
    /// ```
    ///
    /// Example: at the [type](Self).
    ///
    /// Source: DRust, section 4.2.1.
    #[inline]
    pub fn new(value: T) -> Global<T> {
        match Global::try_new(value) {
            Ok(global) => global,
            Err(NoRoom { error, .. }) => no_room(&error),
        }
    }

    /// Same as [`new`](Self::new); a full heap gives the value back.
    ///
    /// ```
    /// use gossamer_heap::Global;
    /// gossamer::main(
    ///     || match Global::try_new([0u8; 100]) {
    ///         Ok(object) => assert_eq!(object.read().len(), 100),
    ///         Err(refused) => println!("{} bytes are left over: {}", refused.value.len(), refused.error),
    ///     },
    ///     1,
    /// );
    /// ```
    ///
    /// # Errors
    /// The heap of this machine is full, and no other one takes the object; or the system gives no more memory.
    ///
    /// # Panics
    /// On a thread that is no worker of the program.
    #[inline]
    pub fn try_new(value: T) -> Result<Global<T>, NoRoom<T>> {
        match Global::make(value, Reach::New) {
            Ok(global) => Ok(global),
            Err(NoRoom { value, .. }) => Global::make_elsewhere(value),
        }
    }

    #[cold]
    fn make_elsewhere(value: T) -> Result<Global<T>, NoRoom<T>> {
        far::value(value).or_else(|value| Global::make(value, Reach::All))
    }

    /// Puts a value into the partition of the calling worker.
    ///
    /// # Panics
    /// As `new`.
    pub(crate) fn new_here(value: T) -> Global<T> {
        Global::make(value, Reach::All).unwrap_or_else(|refused| no_room(&refused.error))
    }

    /// Makes it here.
    #[inline(always)]
    pub(crate) fn make(value: T, reach: Reach) -> Result<Global<T>, NoRoom<T>> {
        match partition::own().allocate(T::layout(()), reach) {
            Ok((name, room)) => {
                // SAFETY: the room is for a `T`, and nobody else's.
                unsafe { room.cast::<T>().write(value) };
                made(room, T::layout(()));
                // SAFETY: this is its first owner.
                Ok(unsafe { Global::of(name, ()) })
            }
            Err(error) => Err(NoRoom { value, error }),
        }
    }
}
