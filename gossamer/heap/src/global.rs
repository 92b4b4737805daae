//! `Global<T>`: the one owner of an object of the heap (DRust 4.1.1). How objects are made: `new.rs`; reads and writes:
//! `read.rs`, `write.rs`.

#![allow(unsafe_code)]

mod new;
mod read;
mod write;

use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;

use gossamer::Place;

use crate::error::{Error, Lost};
use crate::name::{At, Name, Version};
use crate::object::Object;
use crate::partition;
use crate::portable::Portable;
use crate::replicas::heads::Busy;
use crate::replicas::promoted::{self, Replica};
use crate::replicas::switch;
use crate::{bases, freeing, here, places};

/// The owner of an object in the memory of some machine of the rack: a `Box` that may travel.
///
/// It is 16 bytes, 24 for slices and `str`, which closures, channels and results of fibers carry as they are. Through
/// it, or a `&` to it, a program reads the object: in place where its memory is mapped (on its machine, and others of
/// that host by `shm`), else in a copy, which is fetched once a machine. Through a `&mut` it writes: in place where
/// mapped, else the object moves there. Dropped, it has the object destroyed at its place.
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
/// An object that another owner holds, or that is being read, cannot be written:
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

    /// An owner of nothing: of an object that was lent and has not come back.
    pub(crate) fn nothing(meta: T::Meta) -> Self {
        Global { name: Name { at: At::NOWHERE, version: Version::MIN }, meta, object: PhantomData }
    }

    /// The owner of nothing says from now on that its object was lent for writing to a machine that was lost.
    pub(crate) fn lost_by(&mut self, machine: u16) {
        debug_assert_eq!(self.name.at, At::NOWHERE);
        self.name.version = Version::MIN.saturating_add(1).saturating_add(machine.into());
    }

    pub(crate) fn name(&self) -> Name {
        self.name
    }

    pub(crate) fn meta(&self) -> T::Meta {
        self.meta
    }

    /// The place with the object's partition now.
    ///
    /// ```
    /// use gossamer_heap::Global;
    /// gossamer::main(|| assert_eq!(Global::new(7u64).place(), gossamer::here()), 1);
    /// ```
    ///
    /// # Panics
    /// Same as [`read`](Self::read), where it was lent and has not come back.
    pub fn place(&self) -> Place {
        self.check_has_come_back();
        promoted::place(self.name.at).unwrap_or_else(|| places::places()[self.name.at.place() as usize])
    }

    /// Returns whether the object is lost with its machine, where the program outlives that
    /// ([`Builder::survives`](gossamer::Builder::survives)). To read or write it panics then, and to drop the owner
    /// does nothing. Legal everywhere. An object that is not lost may be a moment later: see
    /// [`read_or_lost`](Self::read_or_lost).
    ///
    /// ```
    /// use gossamer_heap::Global;
    /// gossamer::main(|| assert_eq!(Global::new(7u64).lost(), None), 1);
    /// ```
    pub fn lost(&self) -> Option<Lost> {
        self.check().err()
    }

    /// Checks that it is not lost.
    pub(crate) fn check(&self) -> Result<(), Lost> {
        match self.lent_to() {
            Some(machine) => Err(Lost { machine }),
            None if T::layout(self.meta).size() == 0 => Ok(()), // everywhere
            None => places::check(self.name.at).or_else(|lost| self.check_replica(lost)),
        }
    }

    /// Same for one whose machine is lost.
    #[cold]
    fn check_replica(&self, lost: Lost) -> Result<(), Lost> {
        match switch::are_on() {
            true => promoted::find(self.name, T::layout(self.meta)).map(drop),
            false => Err(lost),
        }
    }

    /// Has it no bytes, or was it lent and has not come back?
    pub(crate) fn is_nowhere(&self) -> bool {
        self.name.at == At::NOWHERE || T::layout(self.meta).size() == 0
    }

    /// Returns the lost machine from which the object, lent for writing, has not come back.
    fn lent_to(&self) -> Option<u16> {
        let is_nowhere = self.name.at == At::NOWHERE;
        // Of an owner of nothing the version is 1, or 2 more than the machine's number ([`Global::lost_by`]).
        let machine = self.name.version.get().checked_sub(2).filter(|_| is_nowhere)?;
        u16::try_from(machine).ok()
    }

    fn check_has_come_back(&self) {
        if let Some(machine) = self.lent_to() {
            panic!("{}", Lost { machine })
        }
        if self.name.at == At::NOWHERE {
            panic!(
                "this owner was lent for writing in a `scope`, and has not come back: its handle was forgotten \
                 (`std::mem::forget`) or leaked; drop it before its fiber ends"
            )
        }
    }

    /// Returns the address of the object, if this process has it mapped.
    #[inline(always)]
    pub(crate) fn mapped(&self) -> Option<*mut T> {
        let address = bases::mapped(self.name.at)?;
        Some(T::at(address, self.meta))
    }

    /// Same as `mapped`, looking again whether it can be.
    ///
    /// # Panics
    /// If it was lent and has not come back, and no machine is lost for that.
    #[cold]
    fn find(&self) -> Option<*mut T> {
        if self.lent_to().is_some() {
            return None;
        }
        self.check_has_come_back();
        if T::layout(self.meta).size() == 0 {
            return Some(T::at(nowhere(T::layout(self.meta).align()), self.meta));
        }
        let address = bases::find(self.name.at).or_else(|| self.find_replica())?;
        Some(T::at(address, self.meta))
    }

    /// Returns the address of the replica of an object of a lost machine, if it is mapped here.
    fn find_replica(&self) -> Option<*mut u8> {
        if !switch::are_on() || places::check(self.name.at).is_ok() {
            return None;
        }
        match promoted::find(self.name, T::layout(self.meta)) {
            Ok(Replica::Here(object)) => Some(object),
            _ => None,
        }
    }
}

/// A new object is whole.
#[inline(always)]
pub(crate) fn made(object: *mut u8, layout: Layout) {
    drop(busy(object, layout));
}

/// A new object, which is being written.
#[inline(always)]
pub(crate) fn busy(object: *mut u8, layout: Layout) -> Busy {
    match partition::existing() {
        Some(own) if own.has_heads() && layout.size() != 0 => Busy::made(object),
        _ => Busy::none(),
    }
}

/// Returns the address of objects of no bytes.
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
            "`Global::{call}` of an object of another machine waits for it, which only fibers of the program can: do \
             this in `gossamer::spawn`"
        )
    }
    panic!(
        "`Global::{call}` of an object of another machine waits for it, and nothing may wait here (in a delegated \
         closure, a callback or a destructor): `prefetch` it before and use `try_read`, or `launch` instead of `apply`"
    )
}

/// May the caller wait for other machines?
pub(crate) fn check_may_wait(call: &str) {
    if !trust::may_wait() || !here::is_worker() {
        must_wait(call)
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
