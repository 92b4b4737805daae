//! Values of vertices in arrays over a rack: `pagerank` and `components` (DArray 5.1, fig. 8).
//!
//! An array has a value for each vertex, its rank or its label, and says which place owns which vertices. Each place
//! keeps the edges of its own vertices to itself ([`links`]). In a round it reads the values of any vertices from a
//! [snapshot](gossamer_array::Array::snapshot) of the array: ranks are summed up for its own vertices, labels are
//! combined into the elements of others with [`apply`](gossamer_array::Array::apply): locally, at any place.
//!
//! 1. [`options`]: the command line
//! 2. [`build`]: each edge to the place that owns one of its ends
//! 3. [`pagerank`], [`components`]: the rounds; `trees.rs`: union and find
//! 4. [`single`]: the same on one thread, from a plain list of edges, to compare with
//! 5. [`report`]: the output; [`start`]: all of these in order

pub mod build;
pub mod components;
pub mod links;
mod numbers;
pub mod options;
pub mod pagerank;
pub mod report;
pub mod single;
pub mod start;
mod trees;
