//! [`Trees`]: vertices that some edges connect, by union and find.

use graph::Vertex;

/// A tree for each set of connected vertices, with the least of them as its root.
#[derive(Debug)]
pub(super) struct Trees {
    /// Parent of each vertex, which is less than it; the root's is itself.
    parents: Vec<Vertex>,
}

impl Trees {
    /// Makes a tree of each vertex.
    pub(super) fn new(vertices: usize) -> Trees {
        Trees { parents: (0..vertices as Vertex).collect() }
    }

    fn root(&mut self, mut vertex: Vertex) -> Vertex {
        loop {
            let parent = self.parents[vertex as usize];
            if parent == vertex {
                return vertex;
            }
            // A path becomes half as long with each walk.
            let next = self.parents[parent as usize];
            self.parents[vertex as usize] = next;
            vertex = next;
        }
    }

    /// Connects a vertex with others.
    pub(super) fn connect(&mut self, vertex: Vertex, others: &[Vertex]) {
        let mut root = self.root(vertex);
        for other in others {
            // Most are connected already.
            if self.parents[*other as usize] == root {
                continue;
            }
            let other = self.root(*other);
            self.parents[root.max(other) as usize] = root.min(other);
            root = root.min(other);
        }
    }

    /// Returns the root of each vertex.
    pub(super) fn into_roots(self) -> Vec<Vertex> {
        let mut roots = self.parents;
        for vertex in 0..roots.len() {
            // A parent is less than its vertex, so it has its root already.
            roots[vertex] = roots[roots[vertex] as usize];
        }
        roots
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::random::mix;

    #[test]
    fn roots_are_the_least_of_connected_vertices() {
        let mut trees = Trees::new(9);
        for (vertex, others) in [(5, &[4, 5][..]), (2, &[6]), (4, &[2, 6, 4]), (3, &[]), (8, &[7]), (7, &[8])] {
            trees.connect(vertex, others);
        }
        assert_eq!(trees.into_roots(), [0, 1, 2, 3, 2, 2, 2, 7, 7]);
    }

    #[test]
    fn random_edges_connect_as_single_threads_do() {
        for seed in 0..200 {
            let vertices = 1 + (seed % 60) as usize;
            let vertex = |number: usize| (mix(seed << 32 | number as u64) % vertices as u64) as Vertex;
            let edges: Vec<_> = (0..vertices).map(|edge| (vertex(2 * edge), vertex(2 * edge + 1))).collect();
            let mut trees = Trees::new(vertices);
            edges.iter().for_each(|(a, b)| trees.connect(*a, &[*b]));
            assert_eq!(trees.into_roots(), crate::vertices::single::labels(vertices, &edges));
        }
    }
}
