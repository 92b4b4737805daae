//! Writing an object: in place, or here, where it moves to; either way under a new name (DRust, algorithm 1).

#![allow(unsafe_code)]

use super::{Global, check_may_wait, no_room};
use crate::copies::{self, Fault};
use crate::error::Error;
use crate::guard::RefMut;
use crate::name::Name;
use crate::object::Object;
use crate::portable::Portable;
use crate::{freeing, partition, stats};

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
        match self.mapped() {
            Some(object) => self.renamed(object),
            None => self.write_far("write").unwrap_or_else(|error| no_room(&error)),
        }
    }

    /// Gives it the next name, and the object to the caller.
    #[inline(always)]
    fn renamed(&mut self, object: *mut T) -> RefMut<'_, T> {
        self.name = self.name.renamed();
        // SAFETY: it is lent exclusively, so it stays there and nobody else reads or writes it.
        unsafe { RefMut::new(object) }
    }

    #[cold]
    #[inline(never)]
    fn write_far(&mut self, call: &str) -> Result<RefMut<'_, T>, Error> {
        let object = match self.find() {
            Some(object) => object,
            None => {
                self.check()?;
                check_may_wait(call);
                self.relocate()?
            }
        };
        Ok(self.renamed(object))
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
        match self.mapped() {
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
        if let Err(error) = self.relocate() {
            no_room(&error)
        }
    }

    /// Moves the object here: room, one read, a new name; the old room is freed unawaited. If it fails or is unwound,
    /// the object is where it was.
    fn relocate(&mut self) -> Result<*mut T, Error> {
        let (own, layout) = (partition::own(), T::layout(self.meta));
        let (name, room) = own.allocate(layout)?;
        let new = NewRoom { name, layout };
        if let Some(object) = self.mapped() {
            // SAFETY: the object lies there, whole; the room is for one like it.
            unsafe { room.copy_from_nonoverlapping(object.cast::<u8>(), layout.size()) };
        } else {
            let bytes = copies::in_words(layout).size();
            // SAFETY: rooms are whole grains, so the words fit; the memory is this worker's, and initialised as all
            // that comes from the system.
            let into = unsafe { std::slice::from_raw_parts_mut(room, bytes) };
            match copies::fetch(self.name.at, into, || {}) {
                Ok(()) => {}
                Err(Fault::Lost(lost)) => return Err(lost.into()),
                Err(fault) => panic!("an object of {} cannot be moved here: {fault}", self.place()),
            }
        }
        std::mem::forget(new);
        stats::own().moves.add(1);
        let old = std::mem::replace(&mut self.name, name);
        // SAFETY: its contents are in the new room, of which this is the owner now.
        unsafe { freeing::room::<T>(old, self.meta) };
        Ok(T::at(room, self.meta))
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
