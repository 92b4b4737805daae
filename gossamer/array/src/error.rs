//! Why there is no array.

/// Why an array was not made.
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
    /// The machines' starts are not legal.
    #[error("the array cannot be split like this: {what}")]
    Partition {
        /// What is wrong, and what would be legal.
        what: String,
    },
    /// A machine has not enough memory.
    #[error(
        "machine {machine} would need {bytes} bytes for its part of the array, and has {left} left: make the array or \
         its cache smaller, give that machine a smaller part (`Builder::starts`), or use more machines"
    )]
    Memory {
        /// The machine.
        machine: u16,
        /// Needed there: elements, tables, caches.
        bytes: u64,
        /// Left there: the least of available memory, the room in its control group, and the limit on its address
        /// space.
        left: u64,
    },
    /// More elements than an array can have.
    #[error("{elements} elements of {element_bytes} bytes are more than an array can have: {most} at most")]
    Elements {
        /// Asked for.
        elements: usize,
        /// Of one.
        element_bytes: usize,
        /// The most, of this size.
        most: usize,
    },
    /// There are as many arrays as there can be.
    #[error("there are {most} arrays already, the most that a program can have: drop one")]
    Arrays {
        /// The most.
        most: usize,
    },
    /// A part could not be made.
    #[error("the part of {place} could not be made: {what}")]
    Part {
        /// Where.
        place: gossamer::Place,
        /// What the system said.
        what: String,
    },
}
