//! Ownership of elements. Every place computes it from the settings of the array's maker; no messages are needed.
//!
//! An array is cut into chunks of `1 << shift` elements. A place owns a run of chunks, or, if they are dealt in turn,
//! each `places`-th.

use std::ops::Range;

use gossamer::Place;

use crate::Error;

/// The most elements of a chunk, and the most bytes.
const CHUNK_ELEMENTS: usize = 512;
pub(crate) const CHUNK_BYTES_MAX: usize = 64 << 10;
/// The most chunks of an array: a chunk's number has 32 bits.
const CHUNKS_MAX: usize = u32::MAX as usize;
/// The most parts that a file may name.
const PARTS_MAX: usize = 1 << 20;

/// Split requested by the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Split {
    /// Evenly over all places.
    Even,
    /// First element of each machine's part, which is split evenly over its workers.
    Starts(Vec<usize>),
    /// Chunks dealt to the places in turn.
    Cyclic,
}

/// See the file's documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) elements: usize,
    pub(crate) element_bytes: usize,
    /// A chunk has `1 << shift` elements.
    pub(crate) shift: u32,
    /// The first chunk of each place, and the number of chunks; empty if they are dealt in turn.
    firsts: Vec<usize>,
    places: usize,
}

impl Shape {
    /// Computes the shape for the places of machines with these numbers of workers; a lost one has none.
    ///
    /// # Errors
    /// [`Error::Partition`] if a machine's start is within a chunk, out of order or beyond the end;
    /// [`Error::Elements`].
    pub(crate) fn new(elements: usize, element_bytes: usize, split: &Split, workers: &[usize]) -> Result<Shape, Error> {
        let places: usize = workers.iter().sum();
        let most = CHUNK_ELEMENTS.min(CHUNK_BYTES_MAX / element_bytes);
        // Small arrays have smaller chunks, so that each place has some.
        let each = (elements / places).max(1);
        let shift = most.min(each).ilog2();
        let chunks = elements.div_ceil(1 << shift);
        if chunks > CHUNKS_MAX || elements.checked_mul(element_bytes).is_none_or(|bytes| bytes > isize::MAX as usize) {
            return Err(Error::Elements { elements, element_bytes, most: CHUNKS_MAX << shift });
        }
        let shape = Shape { elements, element_bytes, shift, firsts: Vec::new(), places };
        let firsts = match split {
            Split::Cyclic => Vec::new(),
            Split::Even => (0..=places).map(|place| share(chunks, place, places)).collect(),
            Split::Starts(starts) => shape.by_starts(starts, workers)?,
        };
        Ok(Shape { firsts, ..shape })
    }

    fn by_starts(&self, starts: &[usize], workers: &[usize]) -> Result<Vec<usize>, Error> {
        let refuse = |what: String| Err(Error::Partition { what });
        if starts.len() != workers.len() {
            return refuse(format!("{} starts for {} machines: give one for each", starts.len(), workers.len()));
        }
        if starts[0] != 0 {
            return refuse(format!("machine 0 starts at {}: it has to start at 0", starts[0]));
        }
        let chunk = self.chunk();
        let mut firsts = Vec::new();
        for (machine, &start) in starts.iter().enumerate() {
            let end = starts.get(machine + 1).copied().unwrap_or(self.elements);
            if start > end {
                return refuse(format!("machine {machine} starts at {start}, behind {end}, where its range ends"));
            }
            if !start.is_multiple_of(chunk) && start != self.elements {
                let (before, behind) = (start / chunk * chunk, start.next_multiple_of(chunk).min(self.elements));
                return refuse(format!(
                    "machine {machine} starts at {start}, within a chunk of {chunk} elements: {before} and {behind} \
                     are legal"
                ));
            }
            let (first, last) = (start.div_ceil(chunk), end.div_ceil(chunk));
            let of = workers[machine];
            if of == 0 && first < last {
                return refuse(format!(
                    "machine {machine} is lost, and would own the elements from {start} to {end}: let it start at {end}"
                ));
            }
            firsts.extend((0..of).map(|worker| first + share(last - first, worker, of)));
        }
        firsts.push(self.chunks());
        Ok(firsts)
    }

    /// Rebuilds a shape from numbers that a file has: the first element of each place's part, none if chunks were dealt
    /// in turn. `None` if they fit no shape.
    pub(crate) fn of_parts(
        elements: usize,
        element_bytes: usize,
        chunk: usize,
        places: usize,
        starts: Option<&[usize]>,
    ) -> Option<Shape> {
        let most = CHUNK_ELEMENTS.min(CHUNK_BYTES_MAX.checked_div(element_bytes)?);
        if !chunk.is_power_of_two() || chunk > most || !(1..=PARTS_MAX).contains(&places) {
            return None;
        }
        let shape = Shape { elements, element_bytes, shift: chunk.ilog2(), firsts: Vec::new(), places };
        if shape.chunks() > CHUNKS_MAX || elements.checked_mul(element_bytes)? > isize::MAX as usize {
            return None;
        }
        let Some(starts) = starts else { return Some(shape) };
        let is_start = |start: &usize| start.is_multiple_of(chunk) || *start == elements;
        let ends = starts.iter().chain([&elements]);
        let is_split = starts.len() == places && starts[0] == 0 && starts.iter().all(is_start);
        if !is_split || !ends.clone().is_sorted() {
            return None;
        }
        Some(Shape { firsts: ends.map(|end| end.div_ceil(chunk)).collect(), ..shape })
    }

    /// Returns the first element of each place's part; `None` if chunks are dealt in turn.
    pub(crate) fn starts(&self) -> Option<Vec<usize>> {
        let (_, firsts) = self.firsts.split_last()?;
        Some(firsts.iter().map(|first| (first << self.shift).min(self.elements)).collect())
    }

    /// Returns the number of places.
    pub(crate) fn places(&self) -> usize {
        self.places
    }

    /// Returns the elements of a run of a place's chunks, which `indices` counts from its first: one range, or one for
    /// each chunk if chunks are dealt in turn.
    pub(crate) fn ranges(&self, place: usize, indices: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
        let chunks = self.owned_chunks(place);
        let run = if chunks.step == 1 { indices.len().max(1) } else { 1 };
        indices.step_by(run).map(move |index| {
            let start = self.elements_of(chunks.chunk(index)).start;
            start..self.elements_of(chunks.chunk(index + run - 1)).end
        })
    }

    /// Returns the elements of a chunk; the last one may have fewer.
    pub(crate) fn chunk(&self) -> usize {
        1 << self.shift
    }

    /// Returns the bytes of a whole chunk.
    pub(crate) fn chunk_bytes(&self) -> usize {
        self.element_bytes << self.shift
    }

    pub(crate) fn chunks(&self) -> usize {
        self.elements.div_ceil(self.chunk())
    }

    /// Returns the elements of a chunk.
    pub(crate) fn elements_of(&self, chunk: u32) -> Range<usize> {
        let start = (chunk as usize) << self.shift;
        start..(start + self.chunk()).min(self.elements)
    }

    /// Splits a range of elements at chunk boundaries.
    pub(crate) fn pieces(&self, range: Range<usize>) -> impl Iterator<Item = (u32, Range<usize>)> + use<> {
        let shift = self.shift;
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let chunk = at >> shift;
            let piece = at..((chunk + 1) << shift).min(range.end);
            at = piece.end;
            Some((chunk as u32, piece))
        })
    }

    /// Returns the place that owns a chunk.
    pub(crate) fn home(&self, chunk: u32) -> usize {
        let chunk = chunk as usize;
        if self.firsts.is_empty() {
            return chunk % self.places;
        }
        self.firsts.partition_point(|first| *first <= chunk) - 1
    }

    /// Returns the chunks that a place owns: the first, the count, and the step from one to the next.
    pub(crate) fn owned_chunks(&self, place: usize) -> OwnedChunks {
        if self.firsts.is_empty() {
            let count = (self.chunks() + self.places - 1 - place) / self.places;
            OwnedChunks { first: place, count, step: self.places }
        } else {
            let first = self.firsts[place];
            OwnedChunks { first, count: self.firsts[place + 1] - first, step: 1 }
        }
    }

    /// Returns the elements that a place owns.
    pub(crate) fn owned(&self, place: usize) -> Owned {
        let OwnedChunks { first, count, step } = self.owned_chunks(place);
        let start = first << self.shift;
        if count == 0 {
            return Owned::from(0..0);
        }
        if step == 1 {
            return Owned::from(start..((first + count) << self.shift).min(self.elements));
        }
        Owned { next: start, end: self.elements, len: self.chunk(), step: step << self.shift }
    }
}

/// Returns the start of the share number `part`, of `parts` shares.
fn share(whole: usize, part: usize, parts: usize) -> usize {
    (whole as u128 * part as u128 / parts as u128) as usize
}

/// Numbers of the chunks that a place owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnedChunks {
    pub(crate) first: usize,
    pub(crate) count: usize,
    pub(crate) step: usize,
}

impl OwnedChunks {
    /// Returns the number of its `index`-th chunk.
    pub(crate) fn chunk(self, index: usize) -> u32 {
        (self.first + index * self.step) as u32
    }
}

/// The elements that a place owns, as ranges of indices: one, or one for each chunk if chunks are dealt in turn.
///
/// Returned by [`Array::owned`](crate::Array::owned), accepted by [`Array::views`](crate::Array::views). Iterates over
/// the ranges.
///
/// ```
/// use gossamer_array::{Array, Owned};
/// gossamer::main(|| {
///     let array = Array::new(1000, 0u8).unwrap();
///     let all: usize = gossamer::rack().places().map(|place| array.owned(place).len()).sum();
///     assert_eq!(all, 1000);
///     assert_eq!(Owned::from(3..7).flatten().sum::<usize>(), 3 + 4 + 5 + 6);
/// }, 2);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owned {
    next: usize,
    end: usize,
    len: usize,
    step: usize,
}

impl Owned {
    /// Returns the number of elements.
    ///
    /// Example: at the [type](Self).
    pub fn len(&self) -> usize {
        self.map(|range| range.len()).sum()
    }

    /// Is it empty?
    ///
    /// Example: at the [type](Self).
    pub fn is_empty(&self) -> bool {
        self.next >= self.end
    }
}

impl From<Range<usize>> for Owned {
    fn from(range: Range<usize>) -> Owned {
        let len = range.len().max(1);
        Owned { next: range.start, end: range.end.max(range.start), len, step: len }
    }
}

impl Iterator for Owned {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        if self.is_empty() {
            return None;
        }
        let range = self.next..(self.next + self.len).min(self.end);
        self.next = self.next.saturating_add(self.step);
        Some(range)
    }
}

/// Returns the number of a place among all of the rack, counted over all machines.
pub(crate) fn number_of(place: Place, workers: &[usize]) -> Option<usize> {
    let machine = usize::from(place.machine);
    let worker = usize::from(place.worker);
    (workers.get(machine).is_some_and(|count| worker < *count))
        .then(|| workers[..machine].iter().sum::<usize>() + worker)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(shape: &Shape) -> Vec<usize> {
        (0..shape.elements).map(|element| shape.home((element >> shape.shift) as u32)).collect()
    }

    #[test]
    fn each_element_has_one_owner_and_owned_says_the_same() {
        for elements in [0, 1, 2, 3, 7, 100, 511, 512, 513, 5000, 100_000] {
            for workers in [vec![1], vec![2], vec![1, 3], vec![4, 1, 2]] {
                for split in [Split::Even, Split::Cyclic] {
                    let shape = Shape::new(elements, 8, &split, &workers).unwrap();
                    let owners = owners(&shape);
                    let places: usize = workers.iter().sum();
                    let mut seen = 0;
                    for place in 0..places {
                        let owned = shape.owned(place);
                        assert!(owned.flatten().all(|element| owners[element] == place), "{elements} {workers:?}");
                        seen += owned.len();
                        let chunks = shape.owned_chunks(place);
                        assert!((0..chunks.count).all(|index| shape.home(chunks.chunk(index)) == place));
                    }
                    assert_eq!(seen, elements);
                }
            }
        }
    }

    #[test]
    fn a_small_array_is_cut_so_that_each_place_has_some() {
        for elements in [8, 9, 100, 1000, 4095, 4096] {
            let shape = Shape::new(elements, 8, &Split::Even, &[4, 4]).unwrap();
            assert!((0..8).all(|place| !shape.owned(place).is_empty()), "{elements}");
        }
        assert_eq!(Shape::new(1 << 20, 8, &Split::Even, &[4, 4]).unwrap().chunk(), 512);
        assert_eq!(Shape::new(1 << 20, 1 << 10, &Split::Even, &[1]).unwrap().chunk(), 64);
        assert_eq!(Shape::new(1 << 20, 64 << 10, &Split::Even, &[1]).unwrap().chunk(), 1);
    }

    #[test]
    fn starts_are_those_of_machines_and_lie_between_chunks() {
        let shape = |starts: &[usize]| Shape::new(10_000, 8, &Split::Starts(starts.to_vec()), &[1, 2]);
        let by_machine = shape(&[0, 1024]).unwrap();
        assert_eq!((by_machine.owned(0).next(), by_machine.owned(0).count()), (Some(0..1024), 1));
        assert_eq!(by_machine.owned(1).chain(by_machine.owned(2)).flatten().count(), 10_000 - 1024);
        assert_eq!(shape(&[0, 10_000]).unwrap().owned(2).len(), 0);
        let without_1 = |start| Shape::new(10_000, 8, &Split::Starts(vec![0, start, 4096]), &[1, 0, 2]);
        let shape_of_2 = without_1(4096).unwrap();
        assert_eq!((shape_of_2.owned(0).next(), shape_of_2.owned(1).next()), (Some(0..4096), Some(4096..7168)));
        let refused = without_1(512).unwrap_err().to_string();
        assert!(refused.contains("machine 1 is lost, and would own the elements from 512 to 4096"), "{refused}");
        for (starts, says) in [
            (&[0, 1000][..], "512 and 1024 are legal"),
            (&[0, 9999], "9728 and 10000 are legal"),
            (&[512, 1024], "has to start at 0"),
            (&[0], "1 starts for 2 machines"),
            (&[0, 20_480], "behind 10000"),
        ] {
            let text = shape(starts).unwrap_err().to_string();
            assert!(text.contains(says), "{text}");
        }
    }

    #[test]
    fn shapes_are_rebuilt_from_their_numbers() {
        let splits = [Split::Even, Split::Cyclic, Split::Starts(vec![0, 1024]), Split::Starts(vec![0, 5000])];
        for (elements, split) in [0, 1, 511, 5000].into_iter().flat_map(|n| splits.each_ref().map(|split| (n, split))) {
            let Ok(shape) = Shape::new(elements, 8, split, &[2, 3]) else { continue };
            let starts = shape.starts();
            assert_eq!(starts.is_none(), *split == Split::Cyclic);
            let rebuilt = Shape::of_parts(elements, 8, shape.chunk(), 5, starts.as_deref());
            assert_eq!(rebuilt.as_ref(), Some(&shape));
            for place in 0..5 {
                let all: Vec<usize> = shape.ranges(place, 0..shape.owned_chunks(place).count).flatten().collect();
                assert_eq!(all, shape.owned(place).flatten().collect::<Vec<_>>(), "{elements} {split:?} {place}");
            }
        }
        let last = Shape::new(5000, 8, &Split::Even, &[2]).unwrap();
        let mut run = last.ranges(1, 3..5);
        assert_eq!((run.next(), run.next()), (Some(4096..5000), None));
    }

    #[test]
    fn numbers_of_no_shape_are_refused() {
        let starts = [0, 512];
        assert!(Shape::of_parts(1000, 8, 512, 2, Some(&starts)).is_some());
        for (elements, element_bytes, chunk, places) in [
            (1000, 0, 512, 2),
            (1000, 8, 500, 2),
            (1000, 8, 0, 2),
            (1000, 8, 1024, 2),
            (1000, 1024, 512, 2),
            (1000, 8, 512, 0),
            (1000, 8, 512, 3),
            (500, 8, 512, 2),
            (usize::MAX, 8, 512, 2),
            (usize::MAX, 1, 1, 2),
        ] {
            let shape = Shape::of_parts(elements, element_bytes, chunk, places, Some(&starts));
            assert_eq!(shape, None, "{elements} {element_bytes} {chunk} {places}");
        }
        for starts in [&[512, 512][..], &[0, 500], &[0, 1024], &[]] {
            assert_eq!(Shape::of_parts(1000, 8, 512, 2, Some(starts)), None, "{starts:?}");
        }
        assert_eq!(Shape::of_parts(1000, 8, 512, usize::MAX, None), None);
    }

    #[test]
    fn too_many_chunks_are_refused() {
        let error = Shape::new(usize::MAX, 8, &Split::Even, &[1]).unwrap_err();
        assert!(error.to_string().contains("elements"), "{error}");
        assert!(Shape::new(1 << 40, 1, &Split::Even, &[1]).is_ok());
        assert!(Shape::new(1 << 42, 1, &Split::Even, &[1]).is_err());
    }
}
