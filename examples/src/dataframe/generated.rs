//! [`Generated`]: the rows of a table that is generated. The file needs nothing of the heap, so that other programs can
//! generate the same table with it.

use graph::random::mix;

/// The label of a key that has none.
pub const NO_LABEL: u32 = u32::MAX;

/// A table to generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generated {
    /// Number of rows.
    pub rows: u64,
    /// Number of keys; about one of sixteen has no label.
    pub keys: u32,
    /// Number of labels.
    pub labels: u32,
    /// Seed of the values.
    pub seed: u64,
}

impl Generated {
    /// The key and the value of a row; values are from 0 to 999.99.
    pub fn row(self, row: u64) -> (u32, f64) {
        let random = mix(self.seed ^ mix(row));
        ((random % u64::from(self.keys)) as u32, (mix(random) % 100_000) as f64 / 100.0)
    }

    /// The label of each key.
    pub fn labels(self) -> Vec<u32> {
        let label = |key: u32| {
            let random = mix(u64::from(key) ^ self.seed << 32);
            if random.is_multiple_of(16) { NO_LABEL } else { (random / 16 % u64::from(self.labels)) as u32 }
        };
        (0..self.keys).map(label).collect()
    }
}
