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

/// The number of the place that has this element.
fn owner(i: usize, len: usize, places: usize) -> usize {
    ((i + 1) * places - 1) / len
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
    len: usize,
}

impl<'a, T: Portable> Reader<'a, T> {
    /// Fetches the lists that are not mapped.
    pub fn new(parts: &'a [Shared<[T]>]) -> Reader<'a, T> {
        let parts: Vec<Ref<'a, [T]>> = parts.iter().map(Shared::read).collect();
        let len = parts.iter().map(|part| part.len()).sum();
        Reader { parts, len }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One of them.
    pub fn get(&self, i: usize) -> &T {
        let places = self.parts.len();
        let number = owner(i, self.len, places);
        &self.parts[number][i - own_range(self.len, number, places).start]
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
        for (len, places) in [(1, 1), (1, 5), (3, 7), (10, 3), (64, 8), (100, 7)] {
            for number in 0..places {
                for i in own_range(len, number, places) {
                    assert_eq!(owner(i, len, places), number, "{i} of {len} at {places}");
                }
            }
            let all: Vec<usize> = (0..places).flat_map(|number| own_range(len, number, places)).collect();
            assert_eq!(all, (0..len).collect::<Vec<_>>());
        }
    }
}
