//! Trusts inside serialised arguments and results: a number in the bytes, which indexes the list that travels beside
//! them (`serial/parcel.rs`).

use std::mem::ManuallyDrop;

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::api::trust::Trust;
use crate::serial::parcel;

/// Works inside arguments and results of [`apply_with`](Trust::apply_with) and its variants, on any machine; nowhere
/// else.
impl<T: 'static> Serialize for Trust<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number = parcel::put::<T>(|| ManuallyDrop::new(self.clone()).parts()).ok_or_else(|| {
            S::Error::custom("a trust can be serialised inside an argument or result of a request only")
        })?;
        serializer.serialize_u32(number)
    }
}

impl<'de, T: 'static> Deserialize<'de> for Trust<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u32::deserialize(deserializer)?;
        let (property, trustee) = parcel::take::<T>(number).ok_or_else(|| {
            D::Error::custom("a trust can be read once, as what it is, from an argument or result of a request only")
        })?;
        Ok(Trust::of(property, trustee))
    }
}
