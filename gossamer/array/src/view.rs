//! Chunks as slices: for reading ([`View`]), for changing (`modify`), for combining ([`Combiner`]). This is DArray's
//! pin (4.1): one look-up of a chunk for all of its elements.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::rc::Rc;

use crate::array::{Array, at_place};
use crate::directory::Right;
use crate::element::Element;
use crate::frame::Frame;
use crate::operator::{Op, Operator, checked_combine};
use crate::part::Part;
use crate::post;
use crate::shape::Owned;

/// Number of chunks that an iteration over views requests ahead.
const AHEAD: usize = 8;

/// Elements of an array as they were when the view was made: they do not change while it lives. A view within one chunk
/// costs no copy; a writer to that chunk makes one meanwhile.
///
/// It stays on its fiber's worker.
///
/// ```
/// use gossamer_array::Array;
/// gossamer::main(|| {
///     let array = Array::new(1000, 1u64).unwrap();
///     let view = array.view(10..20);
///     array.set(10, 7);
///     assert_eq!((view.start(), view.len(), view[0]), (10, 10, 1));
///     assert_eq!(view.indexed().last(), Some((19, 1)));
/// }, 2);
/// ```
pub struct View<'a, T> {
    start: usize,
    elements: Elements<T>,
    array: PhantomData<&'a Array<T>>,
}

enum Elements<T> {
    /// Elements in a pinned frame.
    Pinned(*const [T], #[expect(dead_code, reason = "for its end")] Pin),
    Copied(Vec<T>),
}

struct Pin {
    part: Rc<Part>,
    frame: Frame,
}

impl Pin {
    #[inline]
    fn new(part: Rc<Part>, frame: Frame) -> Pin {
        part.pin(frame);
        Pin { part, frame }
    }
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        self.part.unpin(self.frame);
    }
}

impl<T> View<'_, T> {
    /// Returns the index of its first element.
    ///
    /// Example: at the [type](Self).
    pub fn start(&self) -> usize {
        self.start
    }

    /// Iterates over its elements with their indices in the array.
    ///
    /// Example: at the [type](Self).
    pub fn indexed(&self) -> impl Iterator<Item = (usize, T)>
    where
        T: Copy,
    {
        (self.start..).zip(self.iter().copied())
    }
}

impl<T> Deref for View<'_, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.elements {
            // SAFETY: the frame is pinned, so its elements lie there and do not change [pinned-unchanged], and its part
            // is kept.
            Elements::Pinned(elements, _) => unsafe { &**elements },
            Elements::Copied(elements) => elements,
        }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for View<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("start", &self.start).field("elements", &&**self).finish()
    }
}

/// Iterator over views of one chunk after another. See [`Array::views`].
pub struct Views<'a, T> {
    array: &'a Array<T>,
    /// The part, if this thread is a place of the program.
    part: Option<Rc<Part>>,
    rest: Owned,
    range: Range<usize>,
    /// The element at which chunks ahead are requested again.
    ask_at: usize,
}

impl<'a, T: Element> Iterator for Views<'a, T> {
    type Item = View<'a, T>;

    #[inline]
    #[track_caller]
    fn next(&mut self) -> Option<View<'a, T>> {
        while self.range.is_empty() {
            self.range = self.rest.next()?;
            self.array.check_range(&self.range);
            self.ask_at = self.range.start;
        }
        let array = self.array;
        let end = (((self.range.start >> array.shift()) + 1) << array.shift()).min(self.range.end);
        let piece = self.range.start..end;
        let Some(part) = &self.part else {
            self.range.start = end;
            return Some(array.view(piece));
        };
        if part.is_time_to_look() && trust::may_wait() {
            trust::yield_now();
        }
        if self.range.start >= self.ask_at {
            self.ask_at = self.range.start.saturating_add(AHEAD / 2 * array.chunk());
            part.fetch_all(end..end.saturating_add(AHEAD * array.chunk()).min(self.range.end));
        }
        self.range.start = end;
        let chunk = (piece.start >> array.shift()) as u32;
        Some(match part.ready_to_view(chunk) {
            Some(frame) => array.pinned(Rc::clone(part), frame, piece),
            None => array.view(piece),
        })
    }
}

/// A chunk, or a piece of one, that is being combined. See [`Array::combine`].
pub struct Combiner<'a, T, O> {
    first: usize,
    elements: &'a mut [T],
    operator: PhantomData<O>,
}

impl<T: Element, O: Operator<T>> Combiner<'_, T, O> {
    /// Returns the indices of its elements.
    ///
    /// Example: at [`Array::combine`].
    pub fn range(&self) -> Range<usize> {
        self.first..self.first + self.elements.len()
    }

    /// Combines element `i` of the array with `x`.
    ///
    /// # Panics
    /// If it is not in [`range`](Self::range).
    ///
    /// Example: at [`Array::combine`].
    #[inline(always)]
    #[track_caller]
    pub fn apply(&mut self, i: usize, x: T) {
        let range = self.range();
        let Some(element) = i.checked_sub(self.first).and_then(|within| self.elements.get_mut(within)) else {
            panic!("index {i} is not in {range:?}, the elements of this `Combiner`");
        };
        *element = checked_combine::<T, O>(*element, x);
    }
}

impl<T: Element> Array<T> {
    /// Returns the elements of a range, as they are now: without a copy if they lie in one chunk. See
    /// [`views`](Self::views) for long ranges.
    ///
    /// # Panics
    /// If the range is not within the array; those of [`get`](Self::get).
    ///
    /// Example: at [`View`].
    ///
    /// Source: DArray 4.1.
    #[track_caller]
    pub fn view(&self, range: Range<usize>) -> View<'_, T> {
        self.check_range(&range);
        match self.view_here(&range) {
            Some(view) => view,
            None => self.view_slowly(range),
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn view_slowly(&self, range: Range<usize>) -> View<'_, T> {
        let start = range.start;
        if !self.is_of_one(&range) || !self.is_here() {
            let elements = Elements::Copied(at_place!(self, copied(range)));
            return View { start, elements, array: PhantomData };
        }
        if self.look()
            && let Some(view) = self.view_here(&range)
        {
            return view;
        }
        // With the grant, because later the chunk may be gone again.
        let chunk = (start >> self.shift()) as u32;
        self.borrow("view", chunk, Right::Read, |part, lent| self.pinned(part.shared(), lent.frame(), range))
    }

    /// Is the range within one chunk, and not empty?
    #[inline]
    fn is_of_one(&self, range: &Range<usize>) -> bool {
        !range.is_empty() && range.start >> self.shift() == (range.end - 1) >> self.shift()
    }

    /// Returns a view if the range lies in one chunk, which may be read here.
    #[inline]
    fn view_here(&self, range: &Range<usize>) -> Option<View<'_, T>> {
        if !self.is_of_one(range) {
            return None;
        }
        // SAFETY: nothing else runs before the view has a reference of its own; callers have checked the range, so the
        // part has its chunk.
        let (part, frame) = unsafe {
            let part = post::for_hits(self.name())?;
            (part, part.hit_to_view(range.start >> self.shift())?)
        };
        Some(self.pinned(part.shared(), frame, range.clone()))
    }

    #[inline]
    fn pinned(&self, part: Rc<Part>, frame: Frame, range: Range<usize>) -> View<'_, T> {
        let elements = Elements::Pinned(self.slice(frame, &range), Pin::new(part, frame));
        View { start: range.start, elements, array: PhantomData }
    }

    /// Returns a copy of a range.
    #[track_caller]
    pub(crate) fn copied(&self, range: Range<usize>) -> Vec<T> {
        let mut all = vec![T::new_zeroed(); range.len()];
        self.copy_pieces("view", range.start, &mut all);
        all
    }

    /// Iterates over views of a range, or of the elements that a place [owns](Self::owned), chunk by chunk; the next
    /// chunks are fetched ahead.
    ///
    /// # Panics
    /// Those of [`view`](Self::view), when the view is made.
    ///
    /// ```
    /// use gossamer_array::Array;
    /// gossamer::main(|| {
    ///     let array = Array::new(5000, 2u64).unwrap();
    ///     let sum: u64 = array.views(0..5000).map(|view| view.iter().sum::<u64>()).sum();
    ///     assert_eq!(sum, 10_000);
    /// }, 2);
    /// ```
    #[track_caller]
    pub fn views(&self, owned: impl Into<Owned>) -> Views<'_, T> {
        let part = if self.is_here() { Some(self.part()) } else { None };
        Views { array: self, part, rest: owned.into(), range: 0..0, ask_at: 0 }
    }

    /// Calls `f` once for each chunk of a range, with the index of its first element and its elements, to read and
    /// change. Each chunk is atomic by itself: no reader sees it half changed, unless `f` panics, which keeps its
    /// writes so far.
    ///
    /// Nothing may wait in `f`. Accesses of `f` to other elements of this array panic if their chunk is not at this
    /// place, and always if it is the same chunk.
    ///
    /// # Panics
    /// With the panic of `f`; if the range is not within the array; on a thread that is not a place of the program;
    /// those of [`get`](Self::get).
    ///
    /// ```
    /// use gossamer_array::Array;
    /// gossamer::main(|| {
    ///     let array = Array::new(1000, 1u64).unwrap();
    ///     array.modify(10..20, |first, elements| {
    ///         for (i, element) in (first..).zip(elements) { *element += i as u64 }
    ///     });
    ///     assert_eq!((array.get(9), array.get(10)), (1, 11));
    /// }, 2);
    /// ```
    #[track_caller]
    pub fn modify(&self, range: Range<usize>, mut f: impl FnMut(usize, &mut [T])) {
        self.check_place("modify");
        self.check_range(&range);
        for piece in self.pieces(range) {
            let chunk = (piece.start >> self.shift()) as u32;
            self.access("modify", chunk, Right::Write, |_, frame| f(piece.start, self.slice_mut(frame, &piece)));
        }
    }

    /// Calls `f` once for each chunk of a range, with the index of its first element and a [`Combiner`], which combines
    /// its elements as [`apply`](Self::apply) does, with one look-up for all. Each chunk is atomic by itself.
    ///
    /// # Panics
    /// Those of [`modify`](Self::modify).
    ///
    /// ```
    /// use gossamer_array::{Add, Array};
    /// gossamer::main(|| {
    ///     let array = Array::new(5000, 1u64).unwrap();
    ///     array.combine(0..5000, Add, |_, mut chunk| {
    ///         for i in chunk.range() { chunk.apply(i, i as u64) }
    ///     });
    ///     assert_eq!(array.get(4999), 5000);
    /// }, 2);
    /// ```
    #[track_caller]
    pub fn combine<O: Operator<T>>(&self, range: Range<usize>, op: O, mut f: impl FnMut(usize, Combiner<'_, T, O>)) {
        let _ = op;
        self.check_place("combine");
        self.check_range(&range);
        let right = Right::Combine(Op::of::<T, O>());
        for piece in self.pieces(range) {
            let chunk = (piece.start >> self.shift()) as u32;
            self.access("combine", chunk, right, |_, frame| {
                let elements = self.slice_mut(frame, &piece);
                f(piece.start, Combiner { first: piece.start, elements, operator: PhantomData });
            });
        }
    }

    #[track_caller]
    fn check_place(&self, call: &str) {
        assert!(
            self.is_here(),
            "`{call}` runs its closure on the caller's worker, and this thread is none of the program's: call it in a \
             fiber (`gossamer::spawn`)"
        );
    }
}
