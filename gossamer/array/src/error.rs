//! Errors of making an array, and of its checkpoints.

use std::path::PathBuf;

/// Reason why an array was not made, or a checkpoint not written.
///
/// ```
/// use gossamer_array::{Array, Error};
/// gossamer::main(|| {
///     let refused = Array::<u64>::builder().starts(&[100]).build(1 << 20, 0u64);
///     assert!(matches!(refused, Err(Error::Partition { .. })));
/// }, 2);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The starts of the machines' parts are invalid.
    #[error("the array cannot be split like this: {what}")]
    Partition {
        /// The fault, and the rule for valid starts.
        what: String,
    },
    /// A machine has too little memory, for its part of an array or for a snapshot.
    #[error(
        "machine {machine} would need {bytes} bytes for its part of the array, or its copy of all in a snapshot, and \
         has {left} left: make the array or its cache smaller, give that machine a smaller part (`Builder::starts`), \
         or use more machines"
    )]
    Memory {
        /// The machine.
        machine: u16,
        /// Bytes needed there: elements, tables, caches; in a snapshot all elements.
        bytes: u64,
        /// Bytes left there: the least of available memory, the margin in its control group, and the limit on its
        /// address space.
        left: u64,
    },
    /// More elements than an array can have.
    #[error("{elements} elements of {element_bytes} bytes are more than an array can have: {most} at most")]
    Elements {
        /// Elements requested.
        elements: usize,
        /// Bytes of an element.
        element_bytes: usize,
        /// The most elements of this size.
        most: usize,
    },
    /// The maximum number of arrays exists already.
    #[error("there are {most} arrays already, the most that a program can have: drop one")]
    Arrays {
        /// The maximum.
        most: usize,
    },
    /// A part could not be made.
    #[error("the part of {place} could not be made: {what}")]
    Part {
        /// The place.
        place: gossamer::Place,
        /// The system's error.
        what: String,
    },
    /// A machine was lost while the array was made or restored.
    #[error("machine {machine} was lost meanwhile: make the array again, on the machines that are left")]
    Lost {
        /// The machine.
        machine: u16,
    },
    /// The folder has no checkpoint: none was completed.
    #[error(
        "{} at {place} has no checkpoint (a file `manifest.json`): check the path, or begin without one",
        .path.display()
    )]
    NoCheckpoint {
        /// The place that looked.
        place: gossamer::Place,
        /// The folder.
        path: PathBuf,
    },
    /// The checkpoint has elements of another type.
    #[error(
        "{} describes elements of type {found} ({found_bytes} bytes), not {wanted} ({wanted_bytes} bytes): restore \
         them as the type that was written",
        .path.display()
    )]
    ElementType {
        /// The checkpoint's manifest.
        path: PathBuf,
        /// Name of the type that was written.
        found: String,
        /// Bytes of an element that was written.
        found_bytes: usize,
        /// Name of the requested type.
        wanted: String,
        /// Bytes of an element of the requested type.
        wanted_bytes: usize,
    },
    /// A file of a checkpoint is missing, torn, damaged or of another version, or another checkpoint came in between.
    #[error("{} at {place} {what}", .path.display())]
    Checkpoint {
        /// The place that reads or writes the file.
        place: gossamer::Place,
        /// The file, or the folder.
        path: PathBuf,
        /// The fault and the cure.
        what: String,
    },
    /// The operating system refused a call for a file of a checkpoint.
    #[error("{} at {place} {what}", .path.display())]
    File {
        /// The place that reads or writes the file.
        place: gossamer::Place,
        /// The file, or the folder.
        path: PathBuf,
        /// The system's error and the cure.
        what: String,
    },
}
