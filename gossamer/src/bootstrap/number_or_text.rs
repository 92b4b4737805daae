//! Reads a value of `rack.yaml` that may be written as a number or as a text.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
#[serde(untagged)]
enum Form {
    Number(u64),
    Text(String),
}

/// Reads the value of the key `name`; `expected` describes its forms to people.
///
/// # Errors
/// Those of the deserializer; the expectation, or what is wrong with the value, behind the name.
pub fn number_or_text<'de, D, T>(deserializer: D, name: &str, expected: &str) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let text = match Form::deserialize(deserializer) {
        Ok(Form::Number(number)) => number.to_string(),
        Ok(Form::Text(text)) => text,
        Err(_) => return Err(D::Error::custom(format_args!("{name}: {expected}"))),
    };
    text.parse().map_err(|wrong| D::Error::custom(format_args!("{name}: {wrong}")))
}
