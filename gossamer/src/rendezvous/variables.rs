//! Variables of the environment, as text and numbers. Not here: their meaning (`detect.rs`, `plain.rs`, and the
//! program's `builder.rs`).

use std::ffi::OsString;

use super::RendezvousError;

pub(crate) type Get<'a> = &'a dyn Fn(&'static str) -> Option<OsString>;

/// Returns a variable as text, if it is there and not empty.
pub(crate) fn text(get: Get<'_>, name: &'static str) -> Option<String> {
    get(name).map(|value| value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
}

/// Returns a variable as a number, if it is there.
pub(crate) fn number<T: std::str::FromStr>(
    get: Get<'_>,
    name: &'static str,
    expected: &'static str,
) -> Result<Option<T>, RendezvousError> {
    let Some(value) = text(get, name) else { return Ok(None) };
    value.parse().map(Some).map_err(|_| RendezvousError::Variable { name, value, expected })
}
