//! `Shared<T>`: an object with several owners, none of which writes.

#![allow(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use gossamer::Trust;

use crate::error::Lost;
use crate::global::Global;
use crate::guard::Ref;
use crate::object::Object;
use crate::portable::Portable;

/// An object with several owners and no writers: an `Arc` with owners on any machine. It ends, at its place, after its
/// last owner.
///
/// ```
/// use gossamer_heap::Shared;
/// gossamer::main(
///     || {
///         let table = Shared::new([1u64, 2, 3]);
///         let sums: Vec<_> = gossamer::rack()
///             .places()
///             .map(|place| {
///                 let table = table.clone();
///                 gossamer::spawn_on(place, move || table.read().iter().sum::<u64>())
///             })
///             .collect();
///         for sum in sums {
///             assert_eq!(sum.join().unwrap(), 6);
///         }
///     },
///     2,
/// );
/// ```
///
/// Source: DRust, section 4.1.2.
pub struct Shared<T: ?Sized + Object> {
    /// Root of which it is one of the owners. It counts them without waiting.
    root: Trust<Root<T>>,
    /// The object's owner, which the root is; never dropped here.
    object: ManuallyDrop<Global<T>>,
}

/// The object's owner. Owners that end with the program, after their trustees, leave the object in place: others may
/// still read it, and it goes with the process. So do those of before the loss of a machine, which may have handed on
/// a trust that nobody has counted.
pub(crate) struct Root<T: ?Sized + Object>(ManuallyDrop<Global<T>>);

impl<T: ?Sized + Object> Root<T> {
    /// Makes a root at the calling worker.
    ///
    /// # Panics
    /// On a thread that is no worker of the program.
    pub(crate) fn new(object: Global<T>) -> Trust<Root<T>>
    where
        Global<T>: Send,
    {
        gossamer::here();
        trust::local_trustee().entrust(Root(ManuallyDrop::new(object)))
    }
}

impl<T: ?Sized + Object> Drop for Root<T> {
    fn drop(&mut self) {
        if !trust::link::is_ending() && !trust::link::drops_old() {
            // SAFETY: dropped once, and not used again. The trustee has not ended, and no lost machine can have had a
            // trust, so the last trust has gone, and with it all readers.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

impl<T: Portable> Shared<T> {
    /// Puts a value into the heap, in the partition of the calling worker.
    ///
    /// # Panics
    /// Same as [`Global::new`].
    ///
    /// Example: at the [type](Self).
    pub fn new(value: T) -> Shared<T> {
        Shared::from(Global::new(value))
    }
}

impl<T: ?Sized + Object + Portable> Shared<T> {
    /// Reads the object, as [`Global::read`].
    ///
    /// # Panics
    /// Same as [`Global::read`].
    ///
    /// Example: at the [type](Self).
    #[inline]
    pub fn read(&self) -> Ref<'_, T> {
        self.object.read()
    }

    /// Reads the object, as [`Global::read_or_lost`].
    ///
    /// ```
    /// use gossamer_heap::Shared;
    /// gossamer::main(|| assert_eq!(*Shared::new(7u64).read_or_lost().unwrap(), 7), 1);
    /// ```
    ///
    /// # Errors
    /// [`Lost`].
    ///
    /// # Panics
    /// Same as [`Global::read_or_lost`].
    pub fn read_or_lost(&self) -> Result<Ref<'_, T>, Lost> {
        self.object.read_or_lost()
    }

    /// Returns whether the object is lost, as [`Global::lost`]. The loss of another machine harms no object: readers of
    /// one that lies on a living machine go on, whoever made it shared.
    ///
    /// ```
    /// use gossamer_heap::Shared;
    /// gossamer::main(|| assert_eq!(Shared::new(7u64).lost(), None), 1);
    /// ```
    pub fn lost(&self) -> Option<Lost> {
        self.object.lost()
    }

    /// Reads the object if that takes no waiting, as [`Global::try_read`].
    ///
    /// ```
    /// use gossamer_heap::Shared;
    /// gossamer::main(|| assert_eq!(Shared::new(7u64).try_read().as_deref(), Some(&7)), 1);
    /// ```
    pub fn try_read(&self) -> Option<Ref<'_, T>> {
        self.object.try_read()
    }

    /// Begins to fetch a copy, as [`Global::prefetch`].
    ///
    /// ```
    /// use gossamer_heap::Shared;
    /// gossamer::main(|| Shared::new(7u64).prefetch(), 1);
    /// ```
    ///
    /// # Panics
    /// Same as [`Global::prefetch`].
    pub fn prefetch(&self) {
        self.object.prefetch();
    }
}

impl<T: ?Sized + Object + Portable> From<Global<T>> for Shared<T> {
    /// Shares it among several owners. Panics on a thread that is no worker of the program.
    fn from(object: Global<T>) -> Self {
        let same = again(&object);
        Shared { root: Root::new(object), object: same }
    }
}

/// The name of an object, without owning it.
fn again<T: ?Sized + Object>(object: &Global<T>) -> ManuallyDrop<Global<T>> {
    // SAFETY: it is not dropped, nor written.
    ManuallyDrop::new(unsafe { Global::of(object.name(), object.meta()) })
}

impl<T: ?Sized + Object> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared { root: self.root.clone(), object: again(&self.object) }
    }
}

impl<T: ?Sized + Object> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({:?})", self.object.deref())
    }
}
