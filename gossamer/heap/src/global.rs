//! `Global<T>`: the one owner of an object of the heap (DRust 4.1.1, algorithms 1 and 2).

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;

use gossamer::Place;

use crate::copies::{self, Pin};
use crate::error::{Error, NoRoom};
use crate::guard::{Ref, RefMut};
use crate::name::{Name, Version};
use crate::object::Object;
use crate::partition;
use crate::portable::Portable;
use crate::{bases, freeing, here, stats};

/// The owner of an object in the memory of some machine of the rack: a `Box` that may travel.
///
/// It is 16 bytes, 24 for slices and `str`, which closures, channels and results of fibers carry as they are. Whoever has it, or a `&` to it, reads the
/// object: in place where its memory is mapped (on its machine, and others of that host by `shm`), else in a copy, which is fetched once a machine. Whoever has it
/// exclusively writes: in place where mapped, else the object moves there. Dropped, it has the object destroyed at its place.
///
/// ```
/// use gossamer_heap::Global;
///
/// fn gsm_main() {
///     let mut numbers = Global::new([1u64, 2, 3]);
///     numbers.write()[0] = 5;
///     let place = gossamer::rack().places().last().unwrap();
///     let sum = gossamer::spawn_on(place, move || numbers.read().iter().sum::<u64>()); // 16 bytes travel
///     assert_eq!(sum.join().unwrap(), 10);
/// }
///
/// gossamer::main(gsm_main, 2);
/// ```
///
/// What another one owns, or reads, cannot be written:
///
/// ```compile_fail
/// let mut number = gossamer_heap::Global::new(1u64);
/// let guard = number.read();
/// gossamer::spawn(move || *number.write() += 1); // it is lent
/// println!("{}", *guard);
/// ```
///
/// Source: DRust, section 4.1.1.
pub struct Global<T: ?Sized + Object> {
    name: Name,
    meta: T::Meta,
    object: PhantomData<T>,
}

const _: () = assert!(size_of::<Option<Global<u64>>>() == 16 && size_of::<Option<Global<[u64]>>>() == 24);

impl<T: Portable> Global<T> {
    /// Puts a value into the heap, in the partition of the calling worker: nobody is asked.
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
    #[inline]
    pub fn new(value: T) -> Global<T> {
        match Global::try_new(value) {
            Ok(global) => global,
            Err(NoRoom { error, .. }) => no_room(&error),
        }
    }

    /// As [`new`](Self::new); a full heap gives the value back.
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
    /// The heap of this machine is full, or the system gives no more memory.
    ///
    /// # Panics
    /// On a thread that is no worker of the program.
    #[inline]
    pub fn try_new(value: T) -> Result<Global<T>, NoRoom<T>> {
        match partition::own().allocate(T::layout(())) {
            Ok((name, room)) => {
                // SAFETY: the room is for a `T`, and nobody else's.
                unsafe { room.cast::<T>().write(value) };
                Ok(Global { name, meta: (), object: PhantomData })
            }
            Err(error) => Err(NoRoom { value, error }),
        }
    }

    /// Takes the value out of the heap, from wherever it lies.
    ///
    /// ```
    /// use gossamer_heap::Global;
    /// gossamer::main(|| assert_eq!(Global::new(7u64).into_inner(), 7), 1);
    /// ```
    ///
    /// # Panics
    /// Where the object has to be fetched: as [`read`](Self::read).
    pub fn into_inner(self) -> T {
        let mut value = MaybeUninit::<T>::uninit();
        match self.mapped().or_else(|| self.find()) {
            // SAFETY: the object lies there; it is not used again where it was.
            Some(object) => unsafe { value.as_mut_ptr().copy_from_nonoverlapping(object, 1) },
            None => {
                let pin = self.fetched("into_inner");
                // SAFETY: the copy is of the object, whole.
                unsafe { value.as_mut_ptr().copy_from_nonoverlapping(pin.address().cast(), 1) };
            }
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: the value has been taken out; `this` is the owner, and is not dropped.
        unsafe { freeing::room::<T>(this.name, ()) };
        // SAFETY: it was copied, whole.
        unsafe { value.assume_init() }
    }
}

impl<T: ?Sized + Object> Global<T> {
    /// # Safety
    /// There is an object of this type of that name, which nobody owns.
    pub(crate) unsafe fn of(name: Name, meta: T::Meta) -> Self {
        Global { name, meta, object: PhantomData }
    }

    pub(crate) fn name(&self) -> Name {
        self.name
    }

    pub(crate) fn meta(&self) -> T::Meta {
        self.meta
    }

    /// The place in whose partition the object lies now.
    ///
    /// ```
    /// use gossamer_heap::Global;
    /// gossamer::main(|| assert_eq!(Global::new(7u64).place(), gossamer::here()), 1);
    /// ```
    pub fn place(&self) -> Place {
        bases::places()[self.name.at.place() as usize]
    }

    /// Where the object lies, if this process has it mapped.
    #[inline(always)]
    pub(crate) fn mapped(&self) -> Option<*mut T> {
        let address = bases::known(self.name.at)?;
        Some(T::at(address, self.meta))
    }

    /// As `mapped`, looking again whether it can be.
    #[cold]
    fn find(&self) -> Option<*mut T> {
        if T::layout(self.meta).size() == 0 {
            return Some(T::at(nowhere(T::layout(self.meta).align()), self.meta));
        }
        bases::find(self.name.at).map(|address| T::at(address, self.meta))
    }
}

/// Where objects of no bytes are.
fn nowhere(align: usize) -> *mut u8 {
    NonNull::<u8>::dangling().as_ptr().with_addr(align)
}

#[cold]
#[inline(never)]
pub(crate) fn no_room(error: &Error) -> ! {
    panic!("{error}")
}

#[cold]
fn must_wait(call: &str) -> ! {
    if !here::is_worker() {
        panic!(
            "`Global::{call}` of an object of another machine waits for it, which only fibers of the program can: do this in `gossamer::spawn`"
        )
    }
    panic!(
        "`Global::{call}` of an object of another machine waits for it, and nothing may wait here (in a delegated closure, a callback or a destructor): \
         `prefetch` it before and use `try_read`, or `launch` instead of `apply`"
    )
}

/// May the caller wait for other machines?
pub(crate) fn check_may_wait(call: &str) {
    if !trust::may_wait() || !here::is_worker() {
        must_wait(call)
    }
}

impl<T: ?Sized + Object + Portable> Global<T> {
    /// Reads the object: in place where it is mapped, else in this machine's copy of it, which is fetched by one read if there is none. Nothing moves, and
    /// nobody is told.
    ///
    /// # Panics
    /// Where the object has to be fetched, and nothing may wait (delegated closures, callbacks, destructors), or the caller is no fiber of the program; if
    /// there is no room for a copy.
    ///
    /// Example: at the [type](Self). Source: DRust, algorithm 2.
    #[inline]
    pub fn read(&self) -> Ref<'_, T> {
        match self.mapped() {
            // SAFETY: it is lent, so it stays there and is not written.
            Some(object) => unsafe { Ref::new(object, None) },
            None => self.read_far(),
        }
    }

    #[cold]
    #[inline(never)]
    fn read_far(&self) -> Ref<'_, T> {
        match self.find() {
            // SAFETY: as in `read`.
            Some(object) => unsafe { Ref::new(object, None) },
            None => self.of_copy(self.fetched("read")),
        }
    }

    fn of_copy(&self, pin: Pin) -> Ref<'_, T> {
        let object = T::at(pin.address(), self.meta);
        // SAFETY: the copy is of the object, whole, and does not change.
        unsafe { Ref::new(object, Some(pin)) }
    }

    /// This machine's copy, fetched if need be.
    fn fetched(&self, call: &str) -> Pin {
        if let Some(pin) = copies::find(self.name) {
            return pin;
        }
        check_may_wait(call);
        match copies::get(self.name, T::layout(self.meta)) {
            Ok(pin) => pin,
            Err(fault) => panic!("no copy of an object of {} ({:?}): {fault}", self.place(), self.name.at),
        }
    }

    /// Reads the object if that takes no waiting: where it is mapped, or this machine has a copy. Legal everywhere.
    ///
    /// ```
    /// use gossamer_heap::Global;
    /// gossamer::main(
    ///     || {
    ///         let number = Global::new(7u64);
    ///         assert_eq!(number.try_read().as_deref(), Some(&7)); // it lies here
    ///     },
    ///     1,
    /// );
    /// ```
    pub fn try_read(&self) -> Option<Ref<'_, T>> {
        match self.mapped().or_else(|| self.find()) {
            // SAFETY: as in `read`.
            Some(object) => Some(unsafe { Ref::new(object, None) }),
            None => copies::find(self.name).map(|pin| self.of_copy(pin)),
        }
    }

    /// Writes the object: in place where it is mapped, else it moves to the calling worker's partition first. Either way it has a new name from now on,
    /// so that copies of what it was are not found any more.
    ///
    /// # Panics
    /// Where the object has to move: as [`read`](Self::read); if the heap of this machine is full, which [`try_write`](Self::try_write) tells.
    ///
    /// Example: at the [type](Self). Source: DRust, algorithm 1.
    #[inline]
    pub fn write(&mut self) -> RefMut<'_, T> {
        match self.mapped() {
            Some(object) => self.renamed(object),
            None => self.write_far("write").unwrap_or_else(|error| no_room(&error)),
        }
    }

    /// Gives it the next name, and the object to the caller.
    #[inline(always)]
    fn renamed(&mut self, object: *mut T) -> RefMut<'_, T> {
        self.name.version = next(self.name.version);
        // SAFETY: it is lent exclusively, so it stays there and nobody else reads or writes it.
        unsafe { RefMut::new(object) }
    }

    #[cold]
    #[inline(never)]
    fn write_far(&mut self, call: &str) -> Result<RefMut<'_, T>, Error> {
        let object = match self.find() {
            Some(object) => object,
            None => {
                check_may_wait(call);
                self.move_here()?
            }
        };
        Ok(self.renamed(object))
    }

    /// As [`write`](Self::write). A full heap is an error, and the object is as before.
    ///
    /// ```
    /// use gossamer_heap::Global;
    /// gossamer::main(
    ///     || {
    ///         let mut number = Global::new(7u64);
    ///         if let Ok(mut number) = number.try_write() {
    ///             *number += 1;
    ///         }
    ///         assert_eq!(*number.read(), 8);
    ///     },
    ///     1,
    /// );
    /// ```
    ///
    /// # Errors
    /// The heap of this machine is full, or the system gives no more memory.
    ///
    /// # Panics
    /// Where the object has to move: as [`read`](Self::read).
    pub fn try_write(&mut self) -> Result<RefMut<'_, T>, Error> {
        match self.mapped() {
            Some(object) => Ok(self.renamed(object)),
            None => self.write_far("try_write"),
        }
    }

    /// Writes the object if that takes no waiting: where it is mapped. Legal everywhere.
    ///
    /// ```
    /// use gossamer_heap::Global;
    /// gossamer::main(
    ///     || {
    ///         let mut number = Global::new(7u64);
    ///         *number.try_write_now().expect("it lies here") += 1;
    ///     },
    ///     1,
    /// );
    /// ```
    pub fn try_write_now(&mut self) -> Option<RefMut<'_, T>> {
        let object = self.mapped().or_else(|| self.find())?;
        Some(self.renamed(object))
    }

    /// Moves the object to the calling worker's partition, unless it is there.
    ///
    /// ```
    /// use gossamer_heap::Global;
    /// gossamer::main(
    ///     || {
    ///         let there = gossamer::rack().places().last().unwrap();
    ///         let mut number = gossamer::spawn_on(there, || Global::new(7u64)).join().unwrap();
    ///         number.bring();
    ///         assert_eq!((number.place(), *number.read()), (gossamer::here(), 7));
    ///     },
    ///     2,
    /// );
    /// ```
    ///
    /// # Panics
    /// On a thread that is no worker of the program; where the object has to be fetched: as [`read`](Self::read); if the heap of this machine is full.
    pub fn bring(&mut self) {
        if partition::own().is_at(self.name.at) {
            return;
        }
        if self.mapped().or_else(|| self.find()).is_none() {
            check_may_wait("bring");
        }
        if let Err(error) = self.move_here() {
            no_room(&error)
        }
    }

    /// Room here, one read, a new name; the old room is freed unawaited. If it fails or is unwound, the object is where it was.
    fn move_here(&mut self) -> Result<*mut T, Error> {
        let (own, layout) = (partition::own(), T::layout(self.meta));
        let (name, room) = own.allocate(layout)?;
        let new = NewRoom { name, layout };
        if let Some(object) = self.mapped() {
            // SAFETY: the object lies there, whole; the room is for one like it.
            unsafe { room.copy_from_nonoverlapping(object.cast::<u8>(), layout.size()) };
        } else {
            let bytes = copies::in_words(layout).size();
            // SAFETY: rooms are whole grains, so the words fit; the memory is this worker's, and initialised as all that comes from the system.
            let into = unsafe { std::slice::from_raw_parts_mut(room, bytes) };
            if let Err(why) = copies::fetch(self.name.at, into, || {}) {
                panic!("an object of {} cannot be moved here: {why}", self.place());
            }
        }
        std::mem::forget(new);
        stats::own().moves.add(1);
        let old = std::mem::replace(&mut self.name, name);
        // SAFETY: what was in it is in the new room, of which this is the owner now.
        unsafe { freeing::room::<T>(old, self.meta) };
        Ok(T::at(room, self.meta))
    }

    /// The object, which a `write` has made mapped, and whose name is not to change.
    pub(crate) fn in_place(&self) -> &T {
        let object = self.mapped().or_else(|| self.find()).unwrap_or_else(|| unreachable!("it was written here"));
        // SAFETY: it is lent, so it stays there and is not written.
        unsafe { &*object }
    }

    /// As `in_place`.
    pub(crate) fn in_place_mut(&mut self) -> &mut T {
        let object = self.mapped().or_else(|| self.find()).unwrap_or_else(|| unreachable!("it was written here"));
        // SAFETY: it is lent exclusively, so nobody else reads or writes it.
        unsafe { &mut *object }
    }

    /// Begins to fetch a copy for this machine, if there is none and the object is not mapped, so that a later `read` need not wait. Does not wait; what fails
    /// is told by that read.
    ///
    /// ```
    /// use gossamer_heap::Global;
    /// gossamer::main(
    ///     || {
    ///         let number = Global::new(7u64);
    ///         number.prefetch(); // it lies here: nothing to do
    ///         assert_eq!(*number.read(), 7);
    ///     },
    ///     1,
    /// );
    /// ```
    ///
    /// # Panics
    /// On a thread that is no worker of the program.
    pub fn prefetch(&self) {
        let (name, layout) = (self.name, T::layout(self.meta));
        if self.mapped().or_else(|| self.find()).is_some() || copies::find(name).is_some() {
            return;
        }
        assert!(here::is_worker(), "`Global::prefetch` outside of fibers of the program: there is nobody to fetch for");
        let fetch = move || drop(copies::get(name, layout));
        drop(trust::spawn(fetch));
    }
}

/// The version after this one.
#[inline(always)]
fn next(version: Version) -> Version {
    version.saturating_add(1)
}

/// Room for an object that is on its way.
struct NewRoom {
    name: Name,
    layout: std::alloc::Layout,
}

impl Drop for NewRoom {
    fn drop(&mut self) {
        // SAFETY: it was allocated by this worker, and nothing is in it.
        unsafe { partition::own().free(self.name, self.layout) };
    }
}

impl<T: ?Sized + Object> Drop for Global<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this is the owner.
        unsafe { freeing::object::<T>(self.name, self.meta) };
    }
}

impl<T: ?Sized + Object> fmt::Debug for Global<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Global({:?}, version {})", self.name.at, self.name.version)
    }
}
