//! [`Links`]: the edges from the vertices of one place, sorted by where they lead.
//!
//! The contributions of several vertices of a place to the same other one are added up before they are sent, and the
//! others are gone through in order: so a round touches each element of an array once, each chunk in one go.

use std::ops::Range;

use gossamer::Latch;
use gossamer_array::Owned;
use graph::Vertex;

use crate::graphs::deal::Take;

/// See the file's documentation.
#[derive(Debug)]
pub struct Links {
    /// The range that the place owns, in terms of the array.
    pub owned: Owned,
    own: Range<usize>,
    /// As they come, each from where to where.
    raw: Vec<(Vertex, Vertex)>,
    /// Number of links from each own vertex.
    degrees: Vec<u32>,
    /// Heads of links, in order, each with the start of its links in `tails`.
    heads: Vec<(Vertex, usize)>,
    /// Own vertices, less the first of them.
    tails: Vec<u32>,
    /// Last value sent to each head.
    pub(super) told: Vec<Vertex>,
}

impl Links {
    /// Makes an empty set of links, for vertices that lie together.
    pub fn new(owned: Owned) -> Links {
        let start = { owned }.next().map_or(0, |range| range.start);
        let own = start..owned.last().map_or(start, |range| range.end);
        let degrees = vec![0; own.len()];
        Links { owned, own, raw: Vec::new(), degrees, heads: Vec::new(), tails: Vec::new(), told: Vec::new() }
    }

    /// The vertices where they begin.
    pub fn own(&self) -> Range<usize> {
        self.own.clone()
    }

    /// Returns the number of links from a vertex of this place.
    pub fn degree(&self, vertex: usize) -> u32 {
        self.degrees[vertex - self.own.start]
    }

    /// Returns the number of links.
    pub fn len(&self) -> usize {
        self.tails.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.tails.is_empty()
    }

    /// Adds one that begins here.
    pub fn add(&mut self, from: Vertex, to: Vertex) {
        self.degrees[from as usize - self.own.start] += 1;
        self.raw.push((to, from));
    }

    /// Sorts the added edges.
    pub fn sort(&mut self) {
        let mut links = std::mem::take(&mut self.raw);
        links.sort_unstable();
        self.tails = Vec::with_capacity(links.len());
        for (to, from) in links {
            if self.heads.last().is_none_or(|(last, _)| *last != to) {
                self.heads.push((to, self.tails.len()));
            }
            self.tails.push((from as usize - self.own.start) as u32);
        }
        self.told = self.heads.iter().map(|(head, _)| *head).collect();
    }

    /// Returns the number of different vertices they lead to.
    pub fn heads(&self) -> usize {
        self.heads.len()
    }

    /// A vertex that they lead to, by number, and from which own ones: those less the first of them.
    pub fn list(&self, number: usize) -> (usize, &[u32]) {
        let (head, start) = self.heads[number];
        let end = self.heads.get(number + 1).map_or(self.tails.len(), |(_, start)| *start);
        (head as usize, &self.tails[start..end])
    }

    /// All of these, in order.
    pub fn lists(&self) -> impl Iterator<Item = (usize, &[u32])> {
        (0..self.heads()).map(|number| self.list(number))
    }
}

impl Take for Latch<Links> {
    type Edge = (Vertex, Vertex);

    fn take(&mut self, edges: Vec<(Vertex, Vertex)>) {
        // Free: nobody works on the links before all have come.
        let mut links = self.lock();
        edges.into_iter().for_each(|(from, to)| links.add(from, to));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_listed_by_where_they_lead() {
        let mut links = Links::new(Owned::from(10..13));
        for (from, to) in [(12, 3), (10, 40), (10, 3), (12, 12), (10, 3)] {
            links.add(from, to);
        }
        links.sort();
        assert_eq!([10, 11, 12].map(|vertex| links.degree(vertex)), [3, 0, 2]);
        let lists: Vec<_> = links.lists().collect();
        assert_eq!(lists, [(3, &[0, 0, 2][..]), (12, &[2]), (40, &[0])]);
        assert_eq!((links.len(), links.is_empty(), links.own()), (5, false, 10..13));
    }

    #[test]
    fn a_place_may_own_nothing() {
        let mut links = Links::new(Owned::from(7..7));
        links.sort();
        assert_eq!((links.lists().count(), links.is_empty()), (0, true));
    }
}
