//! [`Name`]: what an array is called in messages and tables.

use serde::{Deserialize, Serialize};

/// Identity of an array: its slot in each worker's list of parts, and a number that no other array of this place has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Name {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}
