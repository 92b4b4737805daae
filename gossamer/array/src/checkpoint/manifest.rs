//! `Manifest`: the description of a checkpoint, a JSON file beside its parts; and [`Attempt`], from which its files
//! have their names. Nothing that a file says is believed unchecked.

use serde::{Deserialize, Serialize};

use crate::element::Element;
use crate::shape::Shape;

/// Version of the manifest and of the parts.
const FORMAT: u32 = 1;

/// Identity of a checkpoint in its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Attempt {
    /// Greater than that of each attempt before it.
    pub(super) sequence: u64,
    /// Random, and part of each checksum, so that no file of another attempt passes for one of this.
    pub(super) id: u64,
}

const PART: &str = "part";
const MANIFEST: &str = "manifest";

impl Attempt {
    /// Returns the beginning of the names of its files.
    fn stem(self) -> String {
        format!("{}-{:016x}", self.sequence, self.id)
    }

    fn of_stem(stem: &str) -> Option<Attempt> {
        let (sequence, id) = stem.split_once('-')?;
        let attempt = Attempt { sequence: sequence.parse().ok()?, id: u64::from_str_radix(id, 16).ok()? };
        // Signs and other numbers of digits are not of this crate.
        (attempt.stem() == stem).then_some(attempt)
    }

    /// Returns the name of the file with a place's part.
    pub(super) fn part(self, number: usize) -> String {
        format!("{}-{number}.{PART}", self.stem())
    }

    /// Returns the name of the manifest until the checkpoint is complete.
    pub(super) fn unfinished(self) -> String {
        format!("{}.{MANIFEST}", self.stem())
    }

    /// Returns the attempt that a file belongs to; `None` for files of others.
    pub(super) fn of_name(name: &str) -> Option<Attempt> {
        let (stem, kind) = name.rsplit_once('.')?;
        match kind {
            MANIFEST => Attempt::of_stem(stem),
            PART => {
                let (stem, number) = stem.rsplit_once('-')?;
                Attempt::of_stem(stem).filter(|_| number.bytes().all(|digit| digit.is_ascii_digit()))
            }
            _ => None,
        }
    }
}

/// See the file's documentation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// [`FORMAT`] of the program that wrote it.
    format: u32,
    /// Beginning of the names of the parts.
    files: String,
    /// Name of the elements' type.
    pub(super) element: String,
    pub(super) element_bytes: usize,
    /// Number of elements.
    pub(super) length: usize,
    /// Number of parts; those without elements have no file.
    parts: usize,
    /// First element of each part, which ends where the next one begins. Without these, part `p` has each chunk of
    /// which the number divided by `parts` leaves `p`.
    starts: Option<Vec<usize>>,
    /// Elements of a chunk.
    chunk: usize,
}

/// A manifest that was read and checked.
pub(super) struct Contents {
    pub(super) manifest: Manifest,
    pub(super) attempt: Attempt,
    /// Shape of the array that was written; its places are the parts.
    pub(super) shape: Shape,
}

impl Manifest {
    pub(super) fn new<T: Element>(attempt: Attempt, shape: &Shape) -> Manifest {
        Manifest {
            format: FORMAT,
            files: attempt.stem(),
            element: std::any::type_name::<T>().to_owned(),
            element_bytes: size_of::<T>(),
            length: shape.elements,
            parts: shape.places(),
            starts: shape.starts(),
            chunk: shape.chunk(),
        }
    }

    /// Returns it as text.
    pub(super) fn text(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        text.unwrap_or_else(|error| unreachable!("numbers and strings are JSON: {error}")) + "\n"
    }

    /// Reads the text of a manifest. The error completes a sentence that begins with the name of the file.
    pub(super) fn parse(text: &str) -> Result<Contents, String> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let is_none = |why: String| format!("is not the manifest of a checkpoint ({why}): restore another checkpoint");
        let Version { format } = serde_json::from_str(text).map_err(|error| is_none(error.to_string()))?;
        if format != FORMAT {
            return Err(format!(
                "has format {format}, and this program reads format {FORMAT}: restore it with the version of \
                 gossamer-array that wrote it"
            ));
        }
        let manifest: Manifest = serde_json::from_str(text).map_err(|error| is_none(error.to_string()))?;
        let Some(attempt) = Attempt::of_stem(&manifest.files) else { return Err(is_none("its `files`".to_owned())) };
        let Manifest { length, element_bytes, chunk, parts, .. } = manifest;
        let Some(shape) = Shape::of_parts(length, element_bytes, chunk, parts, manifest.starts.as_deref()) else {
            return Err(is_none("its parts make no array".to_owned()));
        };
        Ok(Contents { manifest, attempt, shape })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Split;

    const ATTEMPT: Attempt = Attempt { sequence: 7, id: 0xabc };

    #[test]
    fn names_tell_their_attempt() {
        assert_eq!(ATTEMPT.part(12), "7-0000000000000abc-12.part");
        assert_eq!(ATTEMPT.unfinished(), "7-0000000000000abc.manifest");
        for name in [ATTEMPT.part(0), ATTEMPT.part(12), ATTEMPT.unfinished()] {
            assert_eq!(Attempt::of_name(&name), Some(ATTEMPT), "{name}");
        }
        for name in [
            "manifest.json",
            "7-0000000000000abc.part",
            "7-0000000000000abc-1.json",
            "7-0000000000000abc-x.part",
            "+7-0000000000000abc-1.part",
            "7-abc-1.part",
            "07-0000000000000abc.manifest",
            "7-+000000000000abc.manifest",
            "7-0000000000000ABC.manifest",
            ".part",
            "",
        ] {
            assert_eq!(Attempt::of_name(name), None, "{name}");
        }
    }

    #[test]
    fn manifests_are_read_as_they_were_written() {
        for split in [Split::Even, Split::Cyclic] {
            let shape = Shape::new(5000, 8, &split, &[1, 2]).unwrap();
            let manifest = Manifest::new::<f64>(ATTEMPT, &shape);
            let read = Manifest::parse(&manifest.text()).unwrap_or_else(|what| panic!("{what}"));
            assert_eq!((read.manifest, read.attempt, read.shape), (manifest, ATTEMPT, shape));
        }
    }

    #[test]
    fn wrong_manifests_say_why() {
        let shape = Shape::new(5000, 8, &Split::Even, &[1, 2]).unwrap();
        let text = Manifest::new::<f64>(ATTEMPT, &shape).text();
        let wrong = |text: &str| Manifest::parse(text).err().unwrap_or_default();
        assert_eq!(wrong(&text), "");
        for (from, to, says) in [
            ("\"format\": 1", "\"format\": 2", "has format 2, and this program reads format 1"),
            ("\"format\": 1", "\"form\": 1", "missing field `format`"),
            ("7-0000000000000abc", "../../secret", "its `files`"),
            ("\"length\": 5000", "\"length\": 50", "make no array"),
            ("\"chunk\": 512", "\"chunk\": 0", "make no array"),
            ("\"parts\": 3", "\"parts\": 4", "make no array"),
            ("\"length\": 5000", "\"length\": -1", "is not the manifest"),
        ] {
            assert!(text.contains(from), "{text}");
            let said = wrong(&text.replace(from, to));
            assert!(said.contains(says), "{to}: {said}");
        }
        for cut in [0, 1, text.len() / 2, text.len() - 3] {
            assert!(wrong(&text[..cut]).contains("is not the manifest of a checkpoint ("), "{cut}");
        }
    }
}
