//! Memory limit of a host's heap, as written in `rack.yaml` and `GOSSAMER_HEAP`: `512M`, `8G`, or a number of bytes.

use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use super::number_or_text::number_or_text;

/// A smaller heap is of no use.
const BYTES_MIN: u64 = 1 << 20;

/// Number of bytes, at least a mebibyte.
///
/// ```
/// use gossamer::bootstrap::HeapBytes;
/// assert_eq!("8G".parse::<HeapBytes>().unwrap().get(), 8 << 30);
/// assert!("8X".parse::<HeapBytes>().unwrap_err().contains("write bytes, as in 512M"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HeapBytes(u64);

impl HeapBytes {
    /// Returns the number of bytes. Example: at the [type](Self).
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl FromStr for HeapBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = parse(text).filter(|bytes| *bytes >= BYTES_MIN);
        let wrong = || format!("{text:?} is no size of a heap: write bytes, as in 512M, 8G or 8589934592, at least 1M");
        bytes.map(HeapBytes).ok_or_else(wrong)
    }
}

fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let shift = match text.chars().last()?.to_ascii_uppercase() {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        _ => 0,
    };
    let number = if shift == 0 { text } else { &text[..text.len() - 1] };
    number.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

impl<'de> Deserialize<'de> for HeapBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number_or_text(deserializer, "heap", "a number of bytes, or a text such as 512M or 8G")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let bytes = |text: &str| text.parse::<HeapBytes>().ok().map(HeapBytes::get);
        for (text, is) in [("8G", 8 << 30), (" 512m ", 512 << 20), ("1048576", 1 << 20), ("2 T", 2 << 40)] {
            assert_eq!(bytes(text), Some(is), "{text:?}");
        }
        for text in ["", "G", "8X", "-1G", "1", "1023K", "99999999999T", "8Gi", "8ß"] {
            let told = text.parse::<HeapBytes>().unwrap_err();
            assert!(told.contains(&format!("{text:?} is no size")) && told.contains("8G"), "{told}");
        }
    }
}
