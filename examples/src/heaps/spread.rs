//! [`Spread`]: a list with parts at the places of the rack, and work on each part in place.

use std::ops::{Deref, Range};

use gossamer::{JoinHandle, NoRef, Place};
use gossamer_heap::{Global, Portable, Ref, Shared};

use crate::graphs::team::panicked;

/// Runs a fiber on each worker, and waits for all of them. Each gets the number of its place, and how many there are.
///
/// # Errors
/// If one of them panics.
pub fn on_each<R, F>(part: F) -> anyhow::Result<Vec<R>>
where
    F: FnOnce(usize, usize) -> R + NoRef + Clone + Send + 'static,
    R: NoRef + Send + 'static,
{
    let places = gossamer::rack().workers();
    let start = |(number, place): (usize, Place)| {
        let part = part.clone();
        gossamer::spawn_on(place, move || part(number, places))
    };
    joined(gossamer::rack().places().enumerate().map(start).collect())
}

/// Waits for all of them, also where one has panicked: nobody is left at work.
///
/// # Errors
/// If one of them panics.
pub fn joined<R: NoRef + Send + 'static>(fibers: Vec<JoinHandle<R>>) -> anyhow::Result<Vec<R>> {
    let ended: Vec<_> = fibers.into_iter().map(JoinHandle::join).collect();
    ended.into_iter().map(|ended| ended.map_err(panicked)).collect()
}

/// The elements that place `number` of so many has, of so many: as many as others, one more or less.
pub fn own_range(len: usize, number: usize, places: usize) -> Range<usize> {
    len * number / places..len * (number + 1) / places
}

/// The first element of each place, to find the place of an element without a division.
struct Starts {
    len: usize,
    /// One more than there are places.
    of: Vec<usize>,
    /// Places for each element, in parts of 2^64, rounded down.
    places_each: u64,
}

impl Starts {
    fn new(len: usize, places: usize) -> Starts {
        let of = (0..=places).map(|number| len * number / places).collect();
        let places_each = (places as u128) << 64;
        Starts { len, of, places_each: u64::try_from(places_each / len.max(1) as u128).unwrap_or(u64::MAX) }
    }

    /// The number of the place that has element `i`.
    ///
    /// # Panics
    /// If there is no such element.
    #[inline]
    fn owner(&self, i: usize) -> usize {
        let mut number = ((i as u128 * u128::from(self.places_each)) >> 64) as usize;
        // Both are rounded: it is this place, or one near it.
        while i >= self.of[number + 1] {
            number += 1;
        }
        while i < self.of[number] {
            number -= 1;
        }
        number
    }
}

/// A list over all places, for closures that travel. Nobody writes it.
pub struct Spread<T: Portable> {
    parts: Shared<[Shared<[T]>]>,
}

impl<T: Portable> Clone for Spread<T> {
    fn clone(&self) -> Self {
        Spread { parts: self.parts.clone() }
    }
}

impl<T: Portable> Spread<T> {
    /// Makes an array of `len` elements. `make` is called at each place, for its elements.
    ///
    /// # Errors
    /// If it panics, as where there is no memory.
    pub fn new(
        len: usize,
        make: impl FnOnce(Range<usize>) -> Vec<T> + NoRef + Clone + Send + 'static,
    ) -> anyhow::Result<Self> {
        let parts = on_each(move |number, places| Shared::from(Global::from(make(own_range(len, number, places)))))?;
        Ok(Spread { parts: Shared::from(Global::from(parts)) })
    }

    /// The list of lists, for as long as a fiber reads it.
    pub fn parts(&self) -> impl Deref<Target = [Shared<[T]>]> {
        self.parts.read()
    }
}

/// A list over all places, for one fiber that has the list of lists.
pub struct Reader<'a, T> {
    parts: Vec<Ref<'a, [T]>>,
    starts: Starts,
}

impl<'a, T: Portable> Reader<'a, T> {
    /// Fetches the lists that are not mapped.
    pub fn new(parts: &'a [Shared<[T]>]) -> Reader<'a, T> {
        let parts: Vec<Ref<'a, [T]>> = parts.iter().map(Shared::read).collect();
        let starts = Starts::new(parts.iter().map(|part| part.len()).sum(), parts.len());
        Reader { parts, starts }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.starts.len
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of them.
    pub fn get(&self, i: usize) -> &T {
        let number = self.starts.owner(i);
        &self.parts[number][i - self.starts.of[number]]
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().flat_map(|part| part.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_element_has_one_owner() {
        for (len, places) in [(1, 1), (7, 1), (1, 5), (3, 7), (10, 3), (64, 8), (100, 7)] {
            let starts = Starts::new(len, places);
            for number in 0..places {
                for i in own_range(len, number, places) {
                    assert_eq!(starts.owner(i), number, "{i} of {len} at {places}");
                    assert_eq!(starts.of[number], own_range(len, number, places).start);
                }
            }
            let all: Vec<usize> = (0..places).flat_map(|number| own_range(len, number, places)).collect();
            assert_eq!(all, (0..len).collect::<Vec<_>>());
        }
    }
}
