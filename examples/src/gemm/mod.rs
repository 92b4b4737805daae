//! Multiplies two matrices with tiles that are objects of the heap, spread over all places (DRust 7.1).
//!
//! A place has a run of tiles of each matrix, and computes the tiles of the product that it is to have. It reads its
//! own tiles where they lie; those of others, too, where they are mapped, else in copies that its machine fetches once,
//! while it multiplies the tiles before.
//!
//! 1. [`tile`]: the contents of a tile, and how two are multiplied; [`blas`]: the same by a library that the user names
//! 2. [`product`]: the matrices over the places; [`twin`]: the same with `Arc` and `Vec`
//! 3. [`options`]: the command line; [`start`]: how it runs

pub mod blas;
pub mod options;
pub mod product;
pub mod start;
pub mod tile;
pub mod twin;
