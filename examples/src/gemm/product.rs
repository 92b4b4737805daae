//! The matrices over the places of the rack, and their product.

use gossamer::Trust;
use gossamer_heap::Global;

use super::blas;
use super::tile::{Factor, Shape};
use crate::heaps::spread::{Reader, Spread};
use crate::progress::Count;

/// A matrix: its tiles, row by row.
pub type Matrix = Spread<Global<[f64]>>;

/// A factor. Each place makes its own tiles.
///
/// # Errors
/// There is no memory for it.
pub fn factor(shape: Shape, factor: Factor) -> anyhow::Result<Matrix> {
    let tile = move |number| gossamer_heap::slice(shape.tile_len(), |at| shape.element(factor, number, at));
    Spread::new(shape.tiles().pow(2), move |own| own.map(tile).collect())
}

/// Multiplies both. Each place computes the tiles that it is to have.
///
/// # Errors
/// There is no memory for it.
pub fn multiply(shape: Shape, left: &Matrix, right: &Matrix, told: Trust<Count>) -> anyhow::Result<Matrix> {
    let (left, right) = (left.clone(), right.clone());
    Spread::new(shape.tiles().pow(2), move |own| {
        let (left, right) = (left.parts(), right.parts());
        let (left, right) = (Reader::new(&left), Reader::new(&right));
        let tile = |number| {
            let sum = one(shape, &left, &right, number);
            told.apply_then(|count| count.add(1), |()| ());
            gossamer::yield_now(); // others want something of this worker
            sum
        };
        own.map(tile).collect()
    })
}

type Tiles<'a> = Reader<'a, Global<[f64]>>;

fn one(shape: Shape, left: &Tiles<'_>, right: &Tiles<'_>, number: usize) -> Global<[f64]> {
    let mut product = gossamer_heap::slice(shape.tile_len(), |_| 0.0);
    let mut sum = product.write();
    let mut pairs = shape.pairs(number).map(|(of_left, of_right)| (left.get(of_left), right.get(of_right))).peekable();
    while let Some((of_left, of_right)) = pairs.next() {
        if let Some((left, right)) = pairs.peek() {
            // On their way while these are multiplied.
            left.prefetch();
            right.prefetch();
        }
        let (left, right) = (of_left.read(), of_right.read());
        if !blas::multiply_add(shape.tile, &mut sum, &left, &right) {
            shape.multiply_add(&mut sum, &left, &right);
        }
    }
    product
}
