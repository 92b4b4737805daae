//! The responses to a batch as bytes, and back.
//!
//! ```text
//! [length u32 and faults, only if there are any] [responses, one behind the other]
//! ```
//!
//! The number of faults stands in the trailer, so a batch whose responses have no bytes has an answer of no data. Where one
//! response ends and the next begins is known to the client by their types. Here are pure functions on bytes.
//!
//! Invariant: [`decode`] returns faults in rising order, each of a request of the batch.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::slot::Violation;

/// The texts of a batch's faults together are no longer; what comes is checked against it before memory is taken.
const FAULT_BYTES_MAX: usize = 1 << 26;

/// Which requests of a batch have no response, and why.
pub(super) type Faults<F> = Vec<(u32, F)>;

/// The data of an answer, and the number for its trailer.
pub(super) fn encode<F: Serialize>(bytes: Vec<u8>, faults: &[(u32, F)]) -> Result<(Vec<u8>, u16), Violation> {
    if faults.is_empty() {
        return Ok((bytes, 0));
    }
    let format = bincode::config::standard();
    let told = bincode::serde::encode_to_vec(faults, format).map_err(|error| Violation::new(error.to_string()))?;
    let count = u16::try_from(faults.len()).map_err(|_| Violation::new(format!("{} faults", faults.len())))?;
    if told.len() > FAULT_BYTES_MAX {
        return Err(Violation::new(format!("{} bytes of panic messages in one batch", told.len())));
    }
    let mut data = Vec::with_capacity(4 + told.len() + bytes.len());
    data.extend_from_slice(&(told.len() as u32).to_ne_bytes());
    data.extend_from_slice(&told);
    data.extend_from_slice(&bytes);
    Ok((data, count))
}

/// The responses and faults of an answer to `requests` requests.
pub(super) fn decode<F: DeserializeOwned>(
    mut data: Vec<u8>,
    count: u16,
    requests: u16,
) -> Result<(Vec<u8>, Faults<F>), Violation> {
    if count == 0 {
        return Ok((data, Vec::new()));
    }
    let bytes = data.len();
    let short = || Violation::new(format!("{count} faults in {bytes} bytes"));
    let len = u32::from_ne_bytes(*data.first_chunk::<4>().ok_or_else(short)?) as usize;
    let told = data.get(4..).and_then(|rest| rest.get(..len)).ok_or_else(short)?;
    let format = bincode::config::standard().with_limit::<FAULT_BYTES_MAX>();
    let (faults, used) = bincode::serde::decode_from_slice::<Vec<(u32, F)>, _>(told, format)
        .map_err(|error| Violation::new(format!("faults that cannot be read: {error}")))?;
    let in_order = faults.windows(2).all(|two| two[0].0 < two[1].0);
    let in_range = faults.last().is_none_or(|(index, _)| *index < u32::from(requests));
    if used != len || faults.len() != usize::from(count) || !in_order || !in_range {
        return Err(Violation::new(format!("{count} faults for {requests} requests that do not fit them")));
    }
    data.drain(..4 + len);
    Ok((data, faults))
}
