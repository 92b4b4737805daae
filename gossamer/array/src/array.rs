//! `Array`: the handle, and its calls for single elements. Construction: `builder.rs`. Implementation of the calls:
//! `local.rs`.

use std::marker::PhantomData;
use std::ops::Range;

use gossamer::{Place, Trust};

use crate::directory::Right;
use crate::element::Element;
use crate::make::Root;
use crate::name::Name;
use crate::operator::Operator;
use crate::shape::Owned;
use crate::waits;

/// An array distributed over all places of the rack; each place owns a part.
///
/// Elements are read and written one by one ([`get`](Self::get), [`set`](Self::set)), combined
/// ([`apply`](Self::apply)), changed by closures ([`update`](Self::update)), in chunks ([`views`](Self::views),
/// [`modify`](Self::modify), [`combine`](Self::combine)) and in bulk ([`gather`](Self::gather) and its like). A chunk
/// of 512 elements, or as many as fit 64 KiB, is cached at the place that reads, writes or combines it until another
/// place needs it. Writes of one place before a message, a join, a lock or a barrier are visible to other places after
/// it. Without these, reads and writes of different elements have no order among places.
///
/// Any call may let other fibers of the worker run, so `get` and then `set` is not atomic: [`update`](Self::update) and
/// [`apply`](Self::apply) are. A call that has to fetch a chunk waits, so inside delegated closures it panics unless
/// the chunk is already at this place.
///
/// Where the program goes on without a lost machine (`survives` of its builder), an array that had a part there is
/// poisoned: each waiting and later call panics and names the machine, and the memory is freed. New arrays are made on
/// the machines that are left.
///
/// A handle may be cloned, captured by closures that are sent, and dropped anywhere; the array's memory is freed after
/// the last handle is dropped. Threads that are not places of the program (`std::thread::spawn`) may use it too: a
/// worker of the machine makes their calls.
///
/// ```
/// use gossamer_array::{Add, Array};
///
/// fn gsm_main() {
///     let squares = Array::new(1000, 0u64).unwrap();
///     let own = squares.clone();
///     squares.on_owners(move |owned| {                        // a fiber at each place
///         for range in owned {
///             own.modify(range, |first, chunk| {
///                 chunk.iter_mut().zip(first as u64..).for_each(|(square, i)| *square = i * i);
///             });
///         }
///     });
///     assert_eq!(squares.get(12), 144);
///     squares.apply(12, Add, 6);
///     assert_eq!(squares.get(12), 150);
///     assert_eq!(squares.reduce(0..4, Add), 0 + 1 + 4 + 9);
/// }
///
/// gossamer::main(gsm_main, 2);
/// ```
///
/// Source: DArray (ICPP 2023).
pub struct Array<T> {
    /// The array is dropped with the last clone of this.
    root: Trust<Root>,
    elements: usize,
    name: Name,
    shift: u32,
    /// Mask of an index within its chunk, precomputed for hits.
    mask: u32,
    value: PhantomData<T>,
}

impl<T> Clone for Array<T> {
    fn clone(&self) -> Self {
        Array { root: self.root.clone(), ..*self }
    }
}

impl<T> std::fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Array<{}>({} elements)", std::any::type_name::<T>(), self.elements)
    }
}

/// Calls a method here if this thread has a part of the array, else on a worker of this machine. There is no closure in
/// between, so a panic here reports the caller's line.
macro_rules! at_place {
    ($array:expr, $method:ident $(::<$type:ty>)? ($($argument:expr),*)) => {{
        let array = $array;
        if array.is_here() {
            array.$method$(::<$type>)?($($argument),*)
        } else {
            let array = array.clone();
            $crate::array::on_worker(move || array.$method$(::<$type>)?($($argument),*))
        }
    }};
}
pub(crate) use at_place;

/// Runs `f` in a fiber on a worker of this machine.
#[track_caller]
pub(crate) fn on_worker<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> R {
    waits::may_wait("a call by a thread that is no place");
    let first = Place::of(gossamer::rack().machine(), 0);
    trust::spawn_on(&first.trustee(), f).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl<T: Element> Array<T> {
    pub(crate) fn of(root: Trust<Root>, elements: usize, name: Name, shift: u32) -> Self {
        Array { root, elements, name, shift, mask: (1 << shift) - 1, value: PhantomData }
    }

    /// Returns the number of elements.
    ///
    /// Example: at [`Builder`](crate::Builder).
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Is it empty?
    ///
    /// ```
    /// use gossamer_array::Array;
    /// gossamer::main(|| assert!(Array::new(0, 0u8).unwrap().is_empty()), 2);
    /// ```
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// Returns the number of elements of a chunk, the unit of caching.
    ///
    /// ```
    /// use gossamer_array::Array;
    /// gossamer::main(|| assert_eq!(Array::new(1 << 20, 0u64).unwrap().chunk(), 512), 2);
    /// ```
    pub fn chunk(&self) -> usize {
        1 << self.shift
    }

    /// Returns the place that owns element `i`. Sends no message.
    ///
    /// # Panics
    /// If `i` is out of range.
    ///
    /// ```
    /// use gossamer_array::Array;
    /// gossamer::main(|| {
    ///     let array = Array::new(1000, 0u8).unwrap();
    ///     let owner = array.owner(999);
    ///     assert!(array.owned(owner).flatten().any(|i| i == 999));
    /// }, 2);
    /// ```
    #[track_caller]
    pub fn owner(&self, i: usize) -> Place {
        assert!(i < self.elements, "index {i} is out of range of an array of {} elements", self.elements);
        at_place!(self, owner_here(i))
    }

    #[track_caller]
    fn owner_here(&self, i: usize) -> Place {
        let part = self.part();
        let owner = part.members.places().nth(part.shape.home((i >> self.shift) as u32));
        owner.unwrap_or_else(|| unreachable!("owners are places"))
    }

    /// Returns the elements that a place owns: none where its machine was lost before the array was made. Sends no
    /// message.
    ///
    /// # Panics
    /// If the rack has no such place.
    ///
    /// Example: at [`owner`](Self::owner).
    #[track_caller]
    pub fn owned(&self, place: Place) -> Owned {
        assert!(gossamer::rack().has(place), "there is no place {place}: {}", gossamer::rack());
        at_place!(self, owned_by(place))
    }

    #[track_caller]
    fn owned_by(&self, place: Place) -> Owned {
        let part = self.part();
        let number = part.members.places().position(|other| other == place);
        number.map_or(Owned::from(0..0), |number| part.shape.owned(number))
    }

    /// Returns element `i`.
    ///
    /// # Panics
    /// If `i` is out of range; if its chunk is not at this place and the caller may not wait; if the array is poisoned.
    ///
    /// Example: at the [type](Self).
    #[inline]
    #[track_caller]
    pub fn get(&self, i: usize) -> T {
        match self.get_here(i) {
            Some(value) => value,
            None => self.get_slowly(i),
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn get_slowly(&self, i: usize) -> T {
        at_place!(self, get_at_place(i))
    }

    #[track_caller]
    fn get_at_place(&self, i: usize) -> T {
        loop {
            if let Some(value) = self.get_here(i) {
                return value;
            }
            if !self.look() {
                return self.get_once_here(i);
            }
        }
    }

    /// Returns element `i` if its chunk is at this place; otherwise requests the chunk and does not wait. Allowed in
    /// delegated closures. On a thread that is not a place it waits as [`get`](Self::get) does.
    ///
    /// # Panics
    /// If `i` is out of range; if the array is poisoned.
    ///
    /// ```
    /// use gossamer_array::Array;
    /// gossamer::main(|| {
    ///     let array = Array::new(1000, 7u8).unwrap();
    ///     let value = loop {
    ///         if let Some(value) = array.try_get(999) { break value }
    ///         trust::yield_now();
    ///     };
    ///     assert_eq!(value, 7);
    /// }, 2);
    /// ```
    #[inline]
    #[track_caller]
    pub fn try_get(&self, i: usize) -> Option<T> {
        match self.get_here(i) {
            Some(value) => Some(value),
            None => self.try_get_slowly(i),
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn try_get_slowly(&self, i: usize) -> Option<T> {
        if !self.is_here() {
            return Some(self.get_slowly(i));
        }
        self.look();
        if let Some(value) = self.get_here(i) {
            return Some(value);
        }
        let (part, chunk) = (self.part(), (i >> self.shift) as u32);
        part.fetch(chunk, part.right_to_get(chunk));
        self.get_here(i)
    }

    /// Sets element `i`.
    ///
    /// # Panics
    /// Those of [`get`](Self::get).
    ///
    /// ```
    /// use gossamer_array::Array;
    /// gossamer::main(|| {
    ///     let array = Array::new(1000, 0i32).unwrap();
    ///     array.set(3, -1);
    ///     assert_eq!(array.get(3), -1);
    /// }, 2);
    /// ```
    #[inline]
    #[track_caller]
    pub fn set(&self, i: usize, value: T) {
        if !self.set_here(i, value) {
            self.set_slowly(i, value);
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn set_slowly(&self, i: usize, value: T) {
        at_place!(self, set_at_place(i, value));
    }

    #[track_caller]
    fn set_at_place(&self, i: usize, value: T) {
        while !self.set_here(i, value) {
            if !self.look() {
                return self.set_once_here(i, value);
            }
        }
    }

    /// Combines element `i` with `x` by the operator. The operand is combined locally, concurrently with other places,
    /// and merged when a place reads the element or combines it with another operator. So many places can combine the
    /// same elements at full speed.
    ///
    /// # Panics
    /// Those of [`get`](Self::get).
    ///
    /// Example: at [`Operator`](crate::Operator).
    ///
    /// Source: DArray 4.3, fig. 8 and 10.
    #[inline]
    #[track_caller]
    pub fn apply<O: Operator<T>>(&self, i: usize, op: O, x: T) {
        let _ = op;
        if !self.apply_here::<O>(i, x) {
            self.apply_missed::<O>(i, x);
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn apply_missed<O: Operator<T>>(&self, i: usize, x: T) {
        assert!(i < self.elements, "index {i} is out of range of an array of {} elements", self.elements);
        at_place!(self, apply_at_place::<O>(i, x));
    }

    #[track_caller]
    fn apply_at_place<O: Operator<T>>(&self, i: usize, x: T) {
        if !(self.look() && self.apply_here::<O>(i, x)) {
            self.apply_slowly::<O>(i, x);
        }
    }

    /// Writes a piece of one chunk.
    #[track_caller]
    pub(crate) fn write_piece(&self, call: &str, piece: Range<usize>, f: impl FnOnce(&mut [T])) {
        let chunk = (piece.start >> self.shift) as u32;
        self.access(call, chunk, Right::Write, |_, frame| f(self.slice_mut(frame, &piece)));
    }

    /// Has this thread a part of the array? So it has of one that is lost, of which each call panics.
    pub(crate) fn is_here(&self) -> bool {
        crate::post::part(self.name).is_some() || crate::lost::by(self.name).is_some()
    }

    #[track_caller]
    pub(crate) fn check_range(&self, range: &Range<usize>) {
        assert!(
            range.start <= range.end && range.end <= self.elements,
            "the range {range:?} is not within an array of {} elements",
            self.elements
        );
    }

    /// Splits a range at chunk boundaries.
    pub(crate) fn pieces(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<T> {
        let (shift, mut at) = (self.shift, range.start);
        std::iter::from_fn(move || {
            let piece = at..(((at >> shift) + 1) << shift).min(range.end);
            at = piece.end;
            (!piece.is_empty()).then_some(piece)
        })
    }

    pub(crate) fn root(&self) -> &Trust<Root> {
        &self.root
    }

    #[inline(always)]
    pub(crate) fn name(&self) -> Name {
        self.name
    }

    #[inline(always)]
    pub(crate) fn shift(&self) -> u32 {
        self.shift
    }

    /// Returns the index of an element within its chunk.
    #[inline(always)]
    pub(crate) fn within(&self, i: usize) -> usize {
        i & self.mask as usize
    }
}
