//! Errors of making an array.

/// Reason why an array was not made.
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
    /// A machine has too little memory.
    #[error(
        "machine {machine} would need {bytes} bytes for its part of the array, and has {left} left: make the array or \
         its cache smaller, give that machine a smaller part (`Builder::starts`), or use more machines"
    )]
    Memory {
        /// The machine.
        machine: u16,
        /// Bytes needed there: elements, tables, caches.
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
}
