//! Messages and other plain data as bytes, and back: serde, in bincode's standard format. One pair of functions for all
//! that a program, its launcher and the daemons tell one another.
//!
//! Not here: how bytes travel, versions, and the longest message of each conversation (`control.rs`,
//! `rendezvous/wire.rs`, and `wire/message.rs` of `gossamer-daemon`).

use bincode::error::DecodeError;
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

/// Appends the encoded value. After an error or a panic of the type's own code the bytes are as before.
///
/// # Errors
/// The reason why the type does not serialise, in words.
pub(crate) fn encode_onto<T: Serialize>(bytes: &mut Vec<u8>, value: &T) -> Result<(), String> {
    let mut appended = Appended { whole: bytes.len(), bytes };
    bincode::serde::encode_into_std_write(value, appended.bytes, bincode::config::standard())
        .map_err(|error| error.to_string())?;
    appended.whole = appended.bytes.len();
    Ok(())
}

/// Bytes of which those behind the first `whole` go at the end.
struct Appended<'a> {
    bytes: &'a mut Vec<u8>,
    whole: usize,
}

impl Drop for Appended<'_> {
    fn drop(&mut self) {
        self.bytes.truncate(self.whole);
    }
}

/// Decodes the first value in these bytes, and returns their number with it.
///
/// # Errors
/// The defect, in words.
pub(crate) fn decode_first<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, usize), String> {
    bincode::serde::decode_from_slice(bytes, bincode::config::standard()).map_err(in_words)
}

/// Decodes the value in these bytes, all of them. Never panics. `LIMIT` bounds the decoded bytes; vectors and texts
/// take a few times as much memory at most.
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
    let (value, taken) = bincode::serde::decode_from_slice(bytes, format).map_err(in_words)?;
    match bytes.len() - taken {
        0 => Ok(value),
        rest => Err(format!("{rest} of them are too many")),
    }
}

/// Returns the error in words: bincode's own text is Rust code.
fn in_words(error: DecodeError) -> String {
    match error {
        DecodeError::UnexpectedEnd { .. } => "cut short".to_owned(),
        DecodeError::LimitExceeded => "too long".to_owned(),
        DecodeError::Utf8 { .. } => "a text in it is not UTF-8".to_owned(),
        DecodeError::OtherString(text) => text,
        other => other.to_string(),
    }
}
