//! `Bunch`: many small objects that lie together and go together, named by ids (DRust, listing 3 and `TBox`).
//!
//! The place of elements in the block, and how an id finds one: `page.rs`; the views of readers and writers: `view.rs`.

#![allow(unsafe_code)]

mod element_id;
mod page;
mod view;

use std::fmt;
use std::marker::PhantomData;

use gossamer::Place;

use crate::error::{Error, Lost, NoRoom};
use crate::global::{Global, busy, no_room};
use crate::guard::RefMut;
use crate::partition::{self, Reach};
use crate::portable::Portable;
use crate::replicas::heads::Busy;
pub use element_id::ElementId;
use page::{Grain, Page};
pub use view::{View, ViewMut};

/// The owner of a root and any number of elements in one block: linked elements are copied or moved by one read, and
/// followed without asking for their place.
///
/// An [`ElementId`] names an element, in 8 bytes, also from inside others. Elements and root are [`Portable`] and have
/// no destructors; they are aligned to 16 bytes at most. They go when the bunch does.
///
/// ```
/// use gossamer_heap::{Bunch, ElementId};
///
/// struct Node { value: u64, next: Option<ElementId<Node>> }
///
/// gossamer::main(
///     || {
///         let mut list = Bunch::new(None::<ElementId<Node>>);
///         let mut view = list.write();
///         for value in 0..100 {
///             let next = *view; // the root
///             *view = Some(view.add(Node { value, next }));
///         }
///         let there = gossamer::rack().places().last().unwrap();
///         let sum = gossamer::spawn_on(there, move || {
///             let (view, mut sum) = (list.read(), 0); // one read, if it is another machine
///             let mut next = *view;
///             while let Some(id) = next {
///                 sum += view[id].value;
///                 next = view[id].next;
///             }
///             sum
///         });
///         assert_eq!(sum.join().unwrap(), 4950);
///     },
///     2,
/// );
/// ```
///
/// Types with a destructor are refused as elements and as roots:
///
/// ```compile_fail
/// use gossamer_heap::{Bunch, Global};
/// gossamer::main(|| drop(Bunch::new(Global::new(1u64))), 1);
/// ```
///
/// Source: DRust, section 4.1.1, `TBox`.
pub struct Bunch<R: Portable> {
    block: Global<[Grain]>,
    root: PhantomData<R>,
}

/// Bytes of a new one, without its root.
const FIRST_BYTES: usize = 256;

impl<R: Portable> Bunch<R> {
    /// Puts a bunch of nothing but its root into the heap, in the partition of the calling worker. It grows.
    ///
    /// Example: at the [type](Self).
    ///
    /// # Panics
    /// Same as [`Global::new`].
    pub fn new(root: R) -> Bunch<R> {
        Bunch::with_capacity(root, FIRST_BYTES)
    }

    /// Same as [`new`](Self::new), with room for elements of so many bytes, of which each takes 8 more, and each of
    /// their types 24: until then it does not grow.
    ///
    /// ```
    /// use gossamer_heap::Bunch;
    /// gossamer::main(
    ///     || {
    ///         let mut numbers = Bunch::with_capacity((), 1000 * 16);
    ///         let ids: Vec<_> = (0..1000u64).map(|n| numbers.write().add(n)).collect();
    ///         assert_eq!(numbers.read()[ids[7]], 7);
    ///     },
    ///     1,
    /// );
    /// ```
    ///
    /// # Panics
    /// Same as [`Global::new`].
    pub fn with_capacity(root: R, bytes: usize) -> Bunch<R> {
        Bunch::try_with_capacity(root, bytes).unwrap_or_else(|refused| no_room(&refused.error))
    }

    /// Same as [`with_capacity`](Self::with_capacity); a full heap gives the root back.
    ///
    /// ```
    /// use gossamer_heap::Bunch;
    /// gossamer::main(|| assert!(Bunch::try_with_capacity(7u64, 1000).is_ok()), 1);
    /// ```
    ///
    /// # Errors
    /// The heap of this machine is full, or the system gives no more memory.
    ///
    /// # Panics
    /// On a thread that is no worker of the program.
    pub fn try_with_capacity(root: R, bytes: usize) -> Result<Bunch<R>, NoRoom<R>> {
        const { page::check::<R>() };
        match block(page::grains_for::<R>(bytes)) {
            Ok((block, mut page, busy)) => {
                // SAFETY: the block is new, so long, and nobody else's.
                unsafe { page.begin(root) };
                drop(busy);
                Ok(Bunch { block, root: PhantomData })
            }
            Err(error) => Err(NoRoom { value: root, error }),
        }
    }

    /// Reads it, as [`Global::read`].
    ///
    /// # Panics
    /// Same as [`Global::read`].
    ///
    /// Example: at the [type](Self).
    pub fn read(&self) -> View<'_, R> {
        View::of(self.block.read())
    }

    /// Same as [`Global::read_or_lost`].
    ///
    /// ```
    /// use gossamer_heap::Bunch;
    /// gossamer::main(|| assert_eq!(*Bunch::new(7u64).read_or_lost().unwrap(), 7), 1);
    /// ```
    ///
    /// # Errors
    /// [`Lost`].
    ///
    /// # Panics
    /// As there.
    pub fn read_or_lost(&self) -> Result<View<'_, R>, Lost> {
        Ok(View::of(self.block.read_or_lost()?))
    }

    /// Same as [`Global::lost`].
    ///
    /// ```
    /// use gossamer_heap::Bunch;
    /// gossamer::main(|| assert_eq!(Bunch::new(7u64).lost(), None), 1);
    /// ```
    pub fn lost(&self) -> Option<Lost> {
        self.block.lost()
    }

    /// Same as [`Global::try_read`].
    ///
    /// ```
    /// use gossamer_heap::Bunch;
    /// gossamer::main(|| assert_eq!(*Bunch::new(7u64).try_read().unwrap(), 7), 1);
    /// ```
    pub fn try_read(&self) -> Option<View<'_, R>> {
        Some(View::of(self.block.try_read()?))
    }

    /// Writes it, as [`Global::write`].
    ///
    /// # Panics
    /// Same as [`Global::write`].
    ///
    /// Example: at the [type](Self).
    pub fn write(&mut self) -> ViewMut<'_, R> {
        let (page, busy) = opened(self.block.write());
        ViewMut::of(self, page, busy)
    }

    /// Same as [`Global::try_write`].
    ///
    /// ```
    /// use gossamer_heap::Bunch;
    /// gossamer::main(|| *Bunch::new(7u64).try_write().unwrap() = 8, 1);
    /// ```
    ///
    /// # Errors
    /// As there; it is as before.
    ///
    /// # Panics
    /// As there.
    pub fn try_write(&mut self) -> Result<ViewMut<'_, R>, Error> {
        let (page, busy) = opened(self.block.try_write()?);
        Ok(ViewMut::of(self, page, busy))
    }

    /// Same as [`Global::try_write_now`].
    ///
    /// ```
    /// use gossamer_heap::Bunch;
    /// gossamer::main(|| *Bunch::new(7u64).try_write_now().unwrap() = 8, 1);
    /// ```
    pub fn try_write_now(&mut self) -> Option<ViewMut<'_, R>> {
        let (page, busy) = opened(self.block.try_write_now()?);
        Some(ViewMut::of(self, page, busy))
    }

    /// Moves it here, as [`Global::move_here`].
    ///
    /// ```
    /// use gossamer_heap::Bunch;
    /// gossamer::main(
    ///     || {
    ///         let mut bunch = Bunch::new(7u64);
    ///         bunch.move_here();
    ///         assert_eq!(bunch.place(), gossamer::here());
    ///     },
    ///     1,
    /// );
    /// ```
    ///
    /// # Panics
    /// As there.
    pub fn move_here(&mut self) {
        self.block.move_here();
    }

    /// Begins to fetch a copy, as [`Global::prefetch`].
    ///
    /// ```
    /// use gossamer_heap::Bunch;
    /// gossamer::main(|| Bunch::new(7u64).prefetch(), 1);
    /// ```
    ///
    /// # Panics
    /// As there.
    pub fn prefetch(&self) {
        self.block.prefetch();
    }

    /// The place where it lies, for [`gossamer::spawn_on`].
    ///
    /// Example: at [`move_here`](Self::move_here).
    pub fn place(&self) -> Place {
        self.block.place()
    }
}

/// The page of a block that is being written.
fn opened(mut block: RefMut<'_, [Grain]>) -> (Page, Busy) {
    let page = Page::of(&mut block);
    (page, RefMut::into_parts(block).1)
}

/// A block in the partition of the calling worker, with nothing in it, which is being written.
fn block(grains: usize) -> Result<(Global<[Grain]>, Page, Busy), Error> {
    let layout = crate::object::slice_layout::<Grain>(grains);
    let (name, room) = partition::own().allocate(layout, Reach::All)?;
    // SAFETY: the room is for so many grains, which may be uninitialised, and nobody else's.
    let block = unsafe { Global::of(name, grains) };
    Ok((block, Page::at(room, grains), busy(room, layout)))
}

impl<R: Portable> fmt::Debug for Bunch<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bunch({:?})", self.block)
    }
}
