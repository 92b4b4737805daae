//! Values by their names on the command line.

use crate::basics::*;

/// The name of a value on the command line.
pub fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Serialises values by their names on the command line.
macro_rules! serde_by_name {
    ($($kind:ty),*) => {
        $(impl Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&$crate::names::name_of(*self))
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                <$kind>::from_str(&String::deserialize(from)?, false).map_err(serde::de::Error::custom)
            }
        })*
    };
}
pub(crate) use serde_by_name;
