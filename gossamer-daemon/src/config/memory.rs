//! Memory limit of a program on a host, as in `run --memory` and `memory:` of `rack.yaml`.

use std::fmt;
use std::str::FromStr;

use gossamer::bootstrap::{HeapBytes, number_or_text};
use serde::{Deserialize, Deserializer, Serialize};

use crate::cli::size;

/// Smallest limit: the process between daemon and machines counts, too.
const BYTES_MIN: u64 = 16 << 20;

/// A number of bytes: `512M`, `8G`, or digits alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryBytes(u64);

impl MemoryBytes {
    /// Returns the number of bytes.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for MemoryBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&size::bytes(self.0))
    }
}

impl FromStr for MemoryBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = text.parse().map(HeapBytes::get).ok().filter(|bytes| *bytes >= BYTES_MIN);
        let wrong =
            || format!("{text:?} is no limit of memory: write bytes, as in 512M, 8G or 8589934592, at least 16M");
        bytes.map(MemoryBytes).ok_or_else(wrong)
    }
}

impl<'de> Deserialize<'de> for MemoryBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number_or_text(deserializer, "memory", "a number of bytes, or a text such as 512M or 8G")
    }
}
