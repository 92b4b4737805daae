//! Messages and other plain data as bytes, and back: serde, in bincode's standard format. One pair of functions for all
//! that a program, its launcher and the daemons tell one another.
//!
//! Not here: how bytes travel, versions, and the longest message of each conversation (`control.rs`, `meet/wire.rs`,
//! and `wire/message.rs` of `gossamer-daemon`).

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Encodes a value.
///
/// # Panics
/// If the value cannot be encoded, which is true of no value of plain data.
#[must_use]
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    bincode::serde::encode_to_vec(value, bincode::config::standard()).expect("plain data")
}

/// Decodes the value in these bytes, all of them. Never panics, and allocates at most `LIMIT` bytes.
///
/// # Errors
/// The defect, in words.
///
/// ```
/// use gossamer::codec::{decode, encode};
/// let bytes = encode(&("text", 7u64));
/// assert_eq!(decode::<(String, u64), 100>(&bytes), Ok(("text".to_owned(), 7)));
/// assert!(decode::<(String, u64), 100>(&bytes[1..]).is_err());
/// assert!(decode::<(String, u64), 3>(&bytes).is_err());
/// ```
pub fn decode<T: DeserializeOwned, const LIMIT: usize>(bytes: &[u8]) -> Result<T, String> {
    let format = bincode::config::standard().with_limit::<LIMIT>();
    let (value, taken) = bincode::serde::decode_from_slice(bytes, format).map_err(|error| error.to_string())?;
    match bytes.len() - taken {
        0 => Ok(value),
        rest => Err(format!("{rest} of them are too many")),
    }
}
