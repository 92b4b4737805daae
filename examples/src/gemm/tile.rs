//! [`Shape`]: a square matrix in square tiles; their contents, and how two are multiplied.
//!
//! Elements are small whole numbers, so that products are exact and can be compared bit by bit.

use graph::random::mix;

/// Rows and columns of the product that are added up in registers at once.
const ROWS: usize = 4;
const COLUMNS: usize = 8;

/// Shape of the matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows, and columns.
    pub size: usize,
    /// Those of a tile, a multiple of 8. Tiles at the edges have zeros behind it.
    pub tile: usize,
    /// Seed of their elements.
    pub seed: u64,
}

/// Which of both.
#[derive(Clone, Copy, Debug)]
pub enum Factor {
    /// The first.
    Left = 1,
    /// The second.
    Right = 2,
}

impl Shape {
    /// Tiles in a row.
    pub fn tiles(self) -> usize {
        self.size.div_ceil(self.tile)
    }

    /// Elements of a tile.
    pub fn tile_len(self) -> usize {
        self.tile * self.tile
    }

    /// Element `at` of tile `number`; tiles are numbered row by row, as are elements in them.
    pub fn element(self, factor: Factor, number: usize, at: usize) -> f64 {
        let row = number / self.tiles() * self.tile + at / self.tile;
        let column = number % self.tiles() * self.tile + at % self.tile;
        if row >= self.size || column >= self.size {
            return 0.0;
        }
        let random = mix(mix(self.seed ^ (factor as u64) << 60) ^ (row as u64) << 32 ^ column as u64);
        (random % 17) as f64 - 8.0
    }

    /// The tiles of both factors that multiply to tile `number`.
    pub fn pairs(self, number: usize) -> impl Iterator<Item = (usize, usize)> {
        let (tiles, row, column) = (self.tiles(), number / self.tiles(), number % self.tiles());
        (0..tiles).map(move |k| (row * tiles + k, k * tiles + column))
    }

    /// Multiplications and additions of the whole product.
    pub fn operations(self) -> u64 {
        2 * (self.size as u64).pow(3)
    }

    /// Adds the product of two tiles to a third one.
    pub fn multiply_add(self, sum: &mut [f64], left: &[f64], right: &[f64]) {
        let tile = self.tile;
        for row in (0..tile).step_by(ROWS) {
            for column in (0..tile).step_by(COLUMNS) {
                let mut sums = [[0.0; COLUMNS]; ROWS];
                for k in 0..tile {
                    let Some(of_right) = right[k * tile + column..].first_chunk::<COLUMNS>() else { continue };
                    for (r, sums) in sums.iter_mut().enumerate() {
                        let of_left = left[(row + r) * tile + k];
                        sums.iter_mut().zip(of_right).for_each(|(sum, of_right)| *sum += of_left * of_right);
                    }
                }
                for (r, sums) in sums.iter().enumerate() {
                    let at = (row + r) * tile + column;
                    sum[at..at + COLUMNS].iter_mut().zip(sums).for_each(|(sum, more)| *sum += more);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row by row, without tiles.
    fn whole(shape: Shape, factor: Factor) -> Vec<f64> {
        let (size, tile) = (shape.size, shape.tile);
        let one = |row: usize, column: usize| {
            let number = row / tile * shape.tiles() + column / tile;
            shape.element(factor, number, row % tile * tile + column % tile)
        };
        (0..size * size).map(|at| one(at / size, at % size)).collect()
    }

    #[test]
    fn tiles_multiply_as_matrices_do() {
        for (size, tile) in [(1, 8), (8, 8), (21, 8), (40, 16), (33, 24)] {
            let shape = Shape { size, tile, seed: 3 };
            let (left, right) = (whole(shape, Factor::Left), whole(shape, Factor::Right));
            assert!(size < 8 || left.iter().any(|element| *element < 0.0) && left != right);
            for number in 0..shape.tiles().pow(2) {
                let mut sum = vec![0.0; shape.tile_len()];
                for (of_left, of_right) in shape.pairs(number) {
                    let of = |factor, number| -> Vec<f64> {
                        (0..shape.tile_len()).map(|at| shape.element(factor, number, at)).collect()
                    };
                    shape.multiply_add(&mut sum, &of(Factor::Left, of_left), &of(Factor::Right, of_right));
                }
                for (at, sum) in sum.iter().enumerate() {
                    let row = number / shape.tiles() * tile + at / tile;
                    let column = number % shape.tiles() * tile + at % tile;
                    let is_inside = row < size && column < size;
                    let terms = (0..size).map(|k| left[row * size + k] * right[k * size + column]);
                    assert_eq!(*sum, if is_inside { terms.sum() } else { 0.0 }, "{size} {tile} {row} {column}");
                }
            }
        }
    }
}
