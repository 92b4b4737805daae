//! Views of a bunch: its root, and by an id its elements; a writer's view also adds elements.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Index, IndexMut};

use super::page::{self, Grain, Page, Room};
use super::{Bunch, ElementId, block};
use crate::error::{Error, NoRoom};
use crate::global::no_room;
use crate::guard::Ref;
use crate::portable::Portable;
use crate::replicas::heads::Busy;

/// A bunch that is being read: its root, and by an [`ElementId`] its elements. It stays on its thread. Made by
/// [`Bunch::read`].
pub struct View<'a, R: Portable> {
    block: Ref<'a, [Grain]>,
    root: PhantomData<R>,
}

impl<'a, R: Portable> View<'a, R> {
    pub(super) fn of(block: Ref<'a, [Grain]>) -> Self {
        View { block, root: PhantomData }
    }

    fn page(&self) -> Page {
        Page::of_ref(&self.block)
    }

    /// Returns the number of elements.
    ///
    /// ```
    /// use gossamer_heap::Bunch;
    /// gossamer::main(
    ///     || {
    ///         let mut bunch = Bunch::new(());
    ///         bunch.write().add(7u64);
    ///         assert_eq!(bunch.read().elements(), 1);
    ///     },
    ///     1,
    /// );
    /// ```
    pub fn elements(&self) -> usize {
        // SAFETY: a bunch's block has been begun.
        unsafe { self.page().elements() }
    }
}

impl<R: Portable> Deref for View<'_, R> {
    type Target = R;

    fn deref(&self) -> &R {
        // SAFETY: the block begins with an `R`, and is lent.
        unsafe { &*self.page().root::<R>() }
    }
}

impl<R: Portable, E: Portable> Index<ElementId<E>> for View<'_, R> {
    type Output = E;

    /// # Panics
    /// If the id is of another bunch, and there is no such element here, or it is of another type.
    fn index(&self, id: ElementId<E>) -> &E {
        // SAFETY: the block has been begun, and is lent.
        unsafe { &*self.page().element(id) }
    }
}

/// A bunch that is being written: its root, its elements, and further ones. It stays on its thread. Made by
/// [`Bunch::write`].
pub struct ViewMut<'a, R: Portable> {
    bunch: &'a mut Bunch<R>,
    /// Page of its block, which is mapped here. It holds an address, so a view stays on its thread.
    page: Page,
    busy: Busy,
}

impl<'a, R: Portable> ViewMut<'a, R> {
    pub(super) fn of(bunch: &'a mut Bunch<R>, page: Page, busy: Busy) -> Self {
        ViewMut { bunch, page, busy }
    }

    /// Puts an element into the bunch. Where it is full it moves to a larger block first, in the partition of the
    /// calling worker.
    ///
    /// Example: at [`Bunch`].
    ///
    /// # Panics
    /// If there is no room for a larger block, which [`try_add`](Self::try_add) tells; on a plain thread.
    pub fn add<E: Portable>(&mut self, element: E) -> ElementId<E> {
        self.try_add(element).unwrap_or_else(|refused| no_room(&refused.error))
    }

    /// Same as [`add`](Self::add); a full heap gives the element back.
    ///
    /// ```
    /// use gossamer_heap::Bunch;
    /// gossamer::main(
    ///     || {
    ///         let mut bunch = Bunch::new(());
    ///         let id = bunch.write().try_add(7u64).unwrap();
    ///         assert_eq!(bunch.read()[id], 7);
    ///     },
    ///     1,
    /// );
    /// ```
    ///
    /// # Errors
    /// The heap of this machine is full, or the system gives no more memory.
    ///
    /// # Panics
    /// On a plain thread, if it has to move.
    pub fn try_add<E: Portable>(&mut self, element: E) -> Result<ElementId<E>, NoRoom<E>> {
        const { page::check::<E>() };
        loop {
            // SAFETY: the block has been begun, and is lent exclusively.
            match unsafe { self.page.room_for::<E>() } {
                // SAFETY: as above; `room_for` has just said so.
                Room::Here(room) => return Ok(unsafe { self.page.put(room, element) }),
                Room::Needs(grains) => {
                    if let Err(error) = self.grow(grains) {
                        return Err(NoRoom { value: element, error });
                    }
                }
            }
        }
    }

    fn grow(&mut self, grains: usize) -> Result<(), Error> {
        let (block, mut page, busy) = block(grains)?;
        // SAFETY: the old block has been begun and is lent exclusively; the new one is longer, and nobody else's.
        unsafe { page.take_from(&self.page) };
        self.page = page;
        self.busy = busy;
        // The contents of the old block have moved; they have no destructor.
        self.bunch.block = block;
        Ok(())
    }

    /// Same as [`View::elements`].
    ///
    /// Example: there.
    pub fn elements(&self) -> usize {
        // SAFETY: a bunch's block has been begun.
        unsafe { self.page.elements() }
    }
}

impl<R: Portable> Deref for ViewMut<'_, R> {
    type Target = R;

    fn deref(&self) -> &R {
        // SAFETY: the block begins with an `R`, and is lent.
        unsafe { &*self.page.root::<R>() }
    }
}

impl<R: Portable> DerefMut for ViewMut<'_, R> {
    fn deref_mut(&mut self) -> &mut R {
        // SAFETY: as above, exclusively.
        unsafe { &mut *self.page.root::<R>() }
    }
}

impl<R: Portable, E: Portable> Index<ElementId<E>> for ViewMut<'_, R> {
    type Output = E;

    /// # Panics
    /// As for [`View`].
    fn index(&self, id: ElementId<E>) -> &E {
        // SAFETY: the block has been begun, and is lent.
        unsafe { &*self.page.element(id) }
    }
}

impl<R: Portable, E: Portable> IndexMut<ElementId<E>> for ViewMut<'_, R> {
    /// # Panics
    /// As for [`View`].
    fn index_mut(&mut self, id: ElementId<E>) -> &mut E {
        // SAFETY: as above, exclusively.
        unsafe { &mut *self.page.element(id) }
    }
}
