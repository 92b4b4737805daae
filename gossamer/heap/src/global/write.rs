//! Writing an object: in place, or here, where it moves to; either way under a new name (DRust, algorithm 1).

#![allow(unsafe_code)]

use super::{Global, check_may_wait, made, no_room};
use crate::copies::{self, Fault};
use crate::error::Error;
use crate::guard::RefMut;
use crate::name::Name;
use crate::object::Object;
use crate::partition::{self, Reach};
use crate::portable::Portable;
use crate::replicas::heads::Busy;
use crate::replicas::switch;
use crate::{bases, freeing, places, stats};

impl<T: ?Sized + Object + Portable> Global<T> {
    /// Writes the object: in place where it is mapped, else it moves to the calling worker's partition first. Either
    /// way it has a new name from now on, so that copies of the earlier version are not found any more.
    ///
    /// # Panics
    /// Where the object has to move: as [`read`](Self::read); if the heap of this machine is full, or the object is
    /// [lost](Self::lost), which [`try_write`](Self::try_write) tells.
    ///
    /// Example: at the [type](Self). Source: DRust, algorithm 1.
    #[inline]
    pub fn write(&mut self) -> RefMut<'_, T> {
        match self.writable() {
            Some(object) => self.renamed(object),
            None => self.write_far("write").unwrap_or_else(|error| no_room(&error)),
        }
    }

    /// Gives it the next name, and the object to the caller.
    #[inline(always)]
    fn renamed(&mut self, object: *mut T) -> RefMut<'_, T> {
        self.name = self.name.renamed();
        // SAFETY: it is lent exclusively, so it stays there and nobody else reads or writes it.
        unsafe { RefMut::new(object, Busy::none()) }
    }

    /// Same as `renamed`; the object has a head, unless it is nowhere.
    fn begun(&mut self, object: *mut T) -> RefMut<'_, T> {
        self.name = self.name.renamed();
        let busy = match switch::has_heads() && T::layout(self.meta).size() != 0 {
            true => Busy::begin(object.cast(), self.name),
            false => Busy::none(),
        };
        // SAFETY: as in `renamed`.
        unsafe { RefMut::new(object, busy) }
    }

    /// Returns the address of the object, if it is written where it lies.
    #[inline(always)]
    fn writable(&self) -> Option<*mut T> {
        let address = bases::writable(self.name.at)?;
        Some(T::at(address, self.meta))
    }

    /// Same as `writable`, also of one with a head, looking again whether it is mapped.
    fn find_writable(&self) -> Option<*mut T> {
        let is_here = || places::places()[self.name.at.place() as usize].machine == places::own_machine();
        if !switch::are_on() || self.is_nowhere() || is_here() { self.find() } else { None }
    }

    #[cold]
    #[inline(never)]
    fn write_far(&mut self, call: &str) -> Result<RefMut<'_, T>, Error> {
        let object = match self.find_writable() {
            Some(object) => object,
            None => {
                self.check()?;
                if self.find().is_none() {
                    check_may_wait(call);
                }
                self.relocate()?
            }
        };
        Ok(self.begun(object))
    }

    /// Same as [`write`](Self::write). A full heap is an error, and the object is as before; so is an object that is
    /// lost.
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
    /// The heap of this machine is full, or the system gives no more memory; [`Error::Lost`].
    ///
    /// # Panics
    /// Where the object has to move: as [`read`](Self::read).
    pub fn try_write(&mut self) -> Result<RefMut<'_, T>, Error> {
        match self.writable() {
            Some(object) => Ok(self.renamed(object)),
            None => self.write_far("try_write"),
        }
    }

    /// Writes the object if that takes no waiting: where it is mapped. Nothing of an object that is [lost](Self::lost).
    /// Legal everywhere.
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
        if let Some(object) = self.writable() {
            return Some(self.renamed(object));
        }
        let object = self.find_writable()?;
        Some(self.begun(object))
    }

    /// Moves the object to the calling worker's partition, unless it is there.
    ///
    /// ```
    /// use gossamer_heap::Global;
    /// gossamer::main(
    ///     || {
    ///         let there = gossamer::rack().places().last().unwrap();
    ///         let mut number = gossamer::spawn_on(there, || Global::new(7u64)).join().unwrap();
    ///         number.move_here();
    ///         assert_eq!((number.place(), *number.read()), (gossamer::here(), 7));
    ///     },
    ///     2,
    /// );
    /// ```
    ///
    /// # Panics
    /// On a thread that is no worker of the program; where the object has to be fetched: as [`read`](Self::read); if
    /// the heap of this machine is full, or the object is [lost](Self::lost).
    pub fn move_here(&mut self) {
        if partition::own().is_at(self.name.at) {
            return;
        }
        if self.mapped().or_else(|| self.find()).is_none() {
            self.check().unwrap_or_else(|lost| panic!("{lost}"));
            check_may_wait("move_here");
        }
        match self.relocate() {
            Ok(object) => made(object.cast(), T::layout(self.meta)),
            Err(error) => no_room(&error),
        }
    }

    /// Moves the object here: room, one read, a new name; the old room is freed unawaited. If it fails or is unwound,
    /// the object is where it was. Its head, if it has one, says that it is written.
    fn relocate(&mut self) -> Result<*mut T, Error> {
        let (name, room) = self.copied()?;
        let old = std::mem::replace(&mut self.name, name);
        // SAFETY: its contents are in the new room, of which this is the owner now.
        unsafe { freeing::room::<T>(old, self.meta) };
        Ok(T::at(room, self.meta))
    }

    /// The object's bytes in a new room here, with its name. Its head, if it has one, says that it is written.
    pub(crate) fn copied(&self) -> Result<(Name, *mut u8), Error> {
        let (own, layout) = (partition::own(), T::layout(self.meta));
        let (name, room) = own.allocate(layout, Reach::All)?;
        let new = NewRoom { name, layout };
        if let Some(object) = self.find() {
            // SAFETY: the object lies there, whole; the room is for one like it.
            unsafe { room.copy_from_nonoverlapping(object.cast::<u8>(), layout.size()) };
        } else {
            let bytes = copies::in_words(layout).size();
            // SAFETY: rooms are whole grains, so the words fit; the memory is this worker's, and initialised as all
            // that comes from the system.
            let into = unsafe { std::slice::from_raw_parts_mut(room, bytes) };
            match copies::fetch(self.name, layout, into, || {}) {
                Ok(()) => {}
                Err(Fault::Lost(lost)) => return Err(lost.into()),
                Err(fault) => panic!("an object of {} cannot be moved here: {fault}", self.place()),
            }
        }
        std::mem::forget(new);
        stats::own().moves.add(1);
        Ok((name, room))
    }
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
