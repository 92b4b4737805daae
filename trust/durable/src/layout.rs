//! Layout of a root's type as data: the description in the file is compared with that of the program.
//!
//! Invariant: two types with equal descriptions have the same layout, and the same bytes have the same meaning in both.

use std::any::TypeId;
use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::hash;
use crate::persist::Persist;

/// Shape of a type. Types are referred to by number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A number, or a type of this crate with these type arguments.
    Of(Vec<usize>),
    /// A struct.
    Struct(Vec<Field>),
    /// An enum: its variants.
    Enum(Vec<Variant>),
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Offset in the struct.
    pub offset: usize,
    /// The number of its type.
    pub of: usize,
}

/// A variant of an enum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// Its tag, stored in the first byte.
    pub tag: u8,
    /// Its fields, by their offset in the enum.
    pub fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Description {
    name: String,
    bytes: usize,
    align: usize,
    kind: Kind,
}

/// Table of type descriptions, each once; the root's comes first.
#[derive(Default, Debug)]
pub struct Types {
    list: Vec<Option<Description>>,
    numbers: HashMap<TypeId, usize>,
}

impl Types {
    /// Adds a type and the types that it is made of, and returns its number.
    pub fn add<T: Persist>(&mut self) -> usize {
        let id = TypeId::of::<T::At<'static>>();
        if let Some(&number) = self.numbers.get(&id) {
            return number;
        }
        let number = self.list.len();
        self.list.push(None);
        self.numbers.insert(id, number);
        let (name, kind) = T::describe(self);
        self.list[number] = Some(Description { name, bytes: size_of::<T>(), align: align_of::<T>(), kind });
        number
    }
}

/// Layout of a root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layout {
    /// Pointer width and byte order.
    machine: String,
    /// Sample of the hash function: maps are useless where it gives other values.
    hashes: u64,
    types: Vec<Description>,
}

impl Layout {
    pub(crate) fn of<T: Persist>() -> Layout {
        let mut types = Types::default();
        types.add::<T>();
        let order = if cfg!(target_endian = "little") { "little" } else { "big" };
        let machine = format!("{} bit, {order} endian", usize::BITS);
        Layout { machine, hashes: hash::sample(), types: types.list.into_iter().flatten().collect() }
    }

    /// Returns the name of the root's type.
    pub(crate) fn name(&self) -> &str {
        self.types.first().map_or("?", |root| &root.name)
    }

    /// Describes the types by name and fields, one a line, the root's first.
    pub(crate) fn lines(&self) -> Vec<String> {
        let name = |number: usize| self.types.get(number).map_or("?", |of| &of.name);
        let fields = |fields: &[Field]| {
            fields.iter().map(|field| format!("{}: {}", field.name, name(field.of))).collect::<Vec<_>>().join(", ")
        };
        let line = |of: &Description| match &of.kind {
            Kind::Of(parts) if parts.is_empty() => None,
            Kind::Of(parts) => {
                let parts: Vec<_> = parts.iter().map(|&part| name(part)).collect();
                Some(format!("{} of {}, {} bytes", of.name, parts.join(", "), of.bytes))
            }
            Kind::Struct(of_struct) => Some(format!("{} {{ {} }}, {} bytes", of.name, fields(of_struct), of.bytes)),
            Kind::Enum(variants) => {
                let variant = |variant: &Variant| match &variant.fields[..] {
                    [] => format!("{} = {}", variant.name, variant.tag),
                    some => format!("{} {{ {} }} = {}", variant.name, fields(some), variant.tag),
                };
                let variants: Vec<_> = variants.iter().map(variant).collect();
                Some(format!("{} is {}, {} bytes", of.name, variants.join(" or "), of.bytes))
            }
        };
        self.types.iter().filter_map(line).collect()
    }

    /// Returns the first difference that keeps a file with this layout from being read as `wanted`, `None` if there is
    /// none.
    pub(crate) fn differs_from(&self, wanted: &Layout) -> Option<String> {
        if self.machine != wanted.machine {
            return Some(format!("it was written on a machine of {}, this one is of {}", self.machine, wanted.machine));
        }
        let mut seen = HashSet::new();
        let difference = self.compare(0, wanted, 0, self.name(), &mut seen);
        if difference.is_some() || self.hashes == wanted.hashes || !self.types.iter().any(|a| a.name == "PMap") {
            return difference;
        }
        Some("it has maps, and was written by a program whose standard library hashes otherwise".into())
    }

    fn compare(
        &self,
        here: usize,
        wanted: &Layout,
        there: usize,
        path: &str,
        seen: &mut HashSet<(usize, usize)>,
    ) -> Option<String> {
        if !seen.insert((here, there)) {
            return None;
        }
        let (Some(a), Some(b)) = (self.types.get(here), wanted.types.get(there)) else {
            return Some(format!("`{path}` is of a type that the file does not describe"));
        };
        if a.name != b.name {
            return Some(format!("`{path}` is `{}` in the file and `{}` in the program", a.name, b.name));
        }
        let parts = match (&a.kind, &b.kind) {
            (Kind::Of(a), Kind::Of(b)) if a.len() == b.len() => {
                let pairs = a.iter().zip(b);
                pairs.map(|(&a, &b)| (format!("{path}[..]"), a, b)).collect()
            }
            (Kind::Struct(a), Kind::Struct(b)) => match fields(path, a, b) {
                Ok(parts) => parts,
                Err(why) => return Some(why),
            },
            (Kind::Enum(a), Kind::Enum(b)) => match variants(path, a, b) {
                Ok(parts) => parts,
                Err(why) => return Some(why),
            },
            _ => return Some(format!("`{path}` is another kind of type in the file than in the program")),
        };
        for (path, a, b) in parts {
            if let Some(difference) = self.compare(a, wanted, b, &path, seen) {
                return Some(difference);
            }
        }
        let sizes = |of: &Description| (of.bytes, of.align);
        (sizes(a) != sizes(b)).then(|| {
            format!(
                "`{path}` takes {} bytes in the file and {} in the program, or is aligned otherwise",
                a.bytes, b.bytes
            )
        })
    }
}

type Parts = Vec<(String, usize, usize)>;

fn fields(path: &str, a: &[Field], b: &[Field]) -> Result<Parts, String> {
    for (index, field) in a.iter().enumerate() {
        let path = format!("{path}.{}", field.name);
        match b.get(index) {
            None => return Err(format!("`{path}` is in the file and not in the program")),
            Some(other) if other.name != field.name => {
                return Err(format!("`{path}` of the file is `{}` in the program", other.name));
            }
            Some(_) => {}
        }
    }
    if let Some(more) = b.get(a.len()) {
        return Err(format!("`{path}.{}` is in the program and not in the file", more.name));
    }
    let moved = a.iter().zip(b).find(|(a, b)| a.offset != b.offset);
    let parts: Parts = a.iter().zip(b).map(|(a, b)| (format!("{path}.{}", a.name), a.of, b.of)).collect();
    match moved {
        // If an earlier field has changed its size, that is the difference to report.
        Some((a, _)) if parts.len() == 1 => Err(format!("`{path}.{}` is at another place", a.name)),
        _ => Ok(parts),
    }
}

fn variants(path: &str, a: &[Variant], b: &[Variant]) -> Result<Parts, String> {
    let mut parts = Vec::new();
    for (index, variant) in a.iter().enumerate() {
        let path = format!("{path}::{}", variant.name);
        match b.get(index) {
            Some(other) if (&other.name, other.tag) == (&variant.name, variant.tag) => {
                parts.extend(fields(&path, &variant.fields, &other.fields)?);
            }
            _ => {
                return Err(format!("`{path}` = {} is in the file and not, or otherwise, in the program", variant.tag));
            }
        }
    }
    match b.get(a.len()) {
        Some(more) => Err(format!("`{path}::{}` is in the program and not in the file", more.name)),
        None => Ok(parts),
    }
}
