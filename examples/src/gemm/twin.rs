//! The product in one process of plain Rust.

use std::sync::Arc;
use std::time::Duration;

use super::tile::{Factor, Shape};
use crate::heaps::twin;

/// The tiles of the product, by so many threads, and how long that took.
pub fn run(shape: Shape, threads: usize) -> (Vec<Box<[f64]>>, Duration) {
    let count = shape.tiles().pow(2);
    let factor = |factor| {
        let tile = |number| (0..shape.tile_len()).map(|at| shape.element(factor, number, at)).collect::<Arc<[f64]>>();
        twin::each(threads, count, tile).0
    };
    let (left, right) = (factor(Factor::Left), factor(Factor::Right));
    twin::each(threads, count, |number| {
        let mut sum = vec![0.0; shape.tile_len()].into_boxed_slice();
        for (of_left, of_right) in shape.pairs(number) {
            shape.multiply_add(&mut sum, &left[of_left], &right[of_right]);
        }
        sum
    })
}
