//! Values of vertices in arrays over a rack: `pagerank` and `components` (DArray 5.1, fig. 8).
//!
//! An array has a value for each vertex, its rank or its label, and says which place owns which vertices. Each place
//! keeps the edges of its own vertices to itself ([`links`]). In a round it reads its own part of the array, and
//! combines the contributions of its vertices into the elements of others with
//! [`apply`](gossamer_array::Array::apply): locally, at any place. When all have done so, each finds the sum, or the
//! minimum, at home.
//!
//! 1. [`options`]: the command line
//! 2. [`build`]: each edge to the place that owns the vertex where it begins
//! 3. [`pagerank`], [`components`]: the rounds
//! 4. [`single`]: the same on one thread, from a plain list of edges, to compare with
//! 5. [`report`]: the output; [`start`]: all of these in order

pub mod build;
pub mod components;
pub mod links;
pub mod options;
pub mod pagerank;
pub mod report;
pub mod single;
pub mod start;
