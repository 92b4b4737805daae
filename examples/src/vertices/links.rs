//! [`Links`]: the edges at the vertices of one place, as a list of other vertices for each of them.
//!
//! Each edge is at one place, that of one of its ends. The other end may be any vertex of the graph, so a round reads
//! its value from a snapshot of an array.

use std::cmp::Reverse;
use std::ops::Range;

use gossamer::Latch;
use gossamer_array::Owned;
use graph::Vertex;

use crate::graphs::deal::Take;
use crate::graphs::team::Team;

/// The links of each place.
pub type Places = Team<Latch<Links>>;

/// See the file's documentation.
#[derive(Debug)]
pub struct Links {
    /// The range that the place owns, in terms of the array.
    pub owned: Owned,
    own: Range<usize>,
    /// As they come, each with its own vertex and the other one.
    raw: Vec<(Vertex, Vertex)>,
    /// Start of the list of each own vertex in `others`, and the end of the last.
    starts: Vec<usize>,
    others: Vec<Vertex>,
    /// Number of links from each own vertex, as ranks need it.
    pub(super) degrees: Vec<u32>,
    /// Least of the vertices that these edges connect with each vertex of the graph, as components need it.
    pub(super) roots: Vec<Vertex>,
}

impl Links {
    /// Makes an empty set of links, for vertices that lie together.
    pub fn new(owned: Owned) -> Links {
        let start = { owned }.next().map_or(0, |range| range.start);
        let own = start..owned.last().map_or(start, |range| range.end);
        let starts = vec![0; own.len() + 1];
        Links { owned, own, raw: Vec::new(), starts, others: Vec::new(), degrees: Vec::new(), roots: Vec::new() }
    }

    /// The vertices whose links are here.
    pub fn own(&self) -> Range<usize> {
        self.own.clone()
    }

    /// Adds one of an own vertex.
    pub fn add(&mut self, own: Vertex, other: Vertex) {
        self.raw.push((own, other));
    }

    /// The other vertices of all links, before these are sorted.
    pub(super) fn unsorted(&self) -> impl Iterator<Item = Vertex> {
        self.raw.iter().map(|(_, other)| *other)
    }

    /// Gives all vertices other numbers, before the links are sorted.
    pub(super) fn renumber(&mut self, numbers: &[Vertex]) {
        let new = |old: Vertex| numbers[old as usize];
        self.raw.iter_mut().for_each(|(own, other)| (*own, *other) = (new(*own), new(*other)));
    }

    /// Sorts the added edges.
    pub fn sort(&mut self) {
        let mut links = std::mem::take(&mut self.raw);
        links.sort_unstable();
        for (own, _) in &links {
            self.starts[*own as usize - self.own.start + 1] += 1;
        }
        let mut end = 0;
        for start in &mut self.starts {
            end += *start;
            *start = end;
        }
        self.others = links.into_iter().map(|(_, other)| other).collect();
    }

    /// The other ends of the links of an own vertex.
    #[inline]
    pub fn of(&self, own: usize) -> &[Vertex] {
        let at = own - self.own.start;
        &self.others[self.starts[at]..self.starts[at + 1]]
    }
}

impl Take for Latch<Links> {
    type Edge = (Vertex, Vertex);

    fn take(&mut self, edges: Vec<(Vertex, Vertex)>) {
        // Free: nobody works on the links before all have come.
        let mut links = self.lock();
        edges.into_iter().for_each(|(own, other)| links.add(own, other));
    }
}

/// Returns the positions of these degrees, highest degree first.
pub(super) fn by_degree(degrees: &[u32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..degrees.len()).collect();
    order.sort_by_key(|at| Reverse(degrees[*at]));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_listed_by_own_vertices() {
        let mut links = Links::new(Owned::from(10..13));
        for (own, other) in [(12, 3), (10, 40), (10, 3), (12, 12), (10, 3)] {
            links.add(own, other);
        }
        assert_eq!(links.unsorted().collect::<Vec<_>>(), [3, 40, 3, 12, 3]);
        links.sort();
        assert_eq!([10, 11, 12].map(|own| links.of(own)), [&[3, 3, 40][..], &[], &[3, 12]]);
        assert_eq!(links.own(), 10..13);
    }

    #[test]
    fn links_get_other_numbers() {
        let mut links = Links::new(Owned::from(1..3));
        [(1, 0), (2, 1)].into_iter().for_each(|(own, other)| links.add(own, other));
        links.renumber(&[3, 2, 1, 0]);
        links.sort();
        assert_eq!([links.of(1), links.of(2)], [[2], [3]]);
        assert_eq!(by_degree(&[4, 7, 0, 7]), [1, 3, 0, 2]);
    }

    #[test]
    fn a_place_may_own_nothing() {
        let mut links = Links::new(Owned::from(7..7));
        links.sort();
        assert_eq!((links.unsorted().count(), links.own().len()), (0, 0));
    }
}
