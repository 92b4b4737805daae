//! Errors: there is no room, or an object is lost.

/// Why an object could not be made, moved or copied here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The heap of a machine is full.
    #[error(
        "the heap of machine {machine} has no room for {bytes} bytes: {used} of {limit} are in use; drop objects or \
         guards, or give it more: `GOSSAMER_HEAP` (such as 8G, for each machine), or `heap:` in rack.yaml (for each \
         host), which is half of the host's memory, or of its container's, unless set"
    )]
    Full {
        /// The machine.
        machine: u16,
        /// Bytes that are wanted.
        bytes: usize,
        /// Bytes that objects, and copies of others' that are being read, take.
        used: u64,
        /// Bytes that there may be.
        limit: u64,
    },
    /// The system gives no memory.
    #[error("the heap of machine {machine} gets no {bytes} bytes from the system: {why}")]
    System {
        /// The machine.
        machine: u16,
        /// Bytes that are wanted.
        bytes: usize,
        /// The system's error.
        why: String,
    },
    /// The object that is wanted is lost.
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// An object is gone with a machine that was lost, where the program outlives that
/// ([`Builder::survives`](gossamer::Builder::survives)). It stays so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "machine {machine} was lost, and with it this object of the heap, which lay there, or was locked or lent for \
     writing there: keep what must stay on two machines"
)]
#[non_exhaustive]
pub struct Lost {
    /// Number of the machine.
    pub machine: u16,
}

/// An object was not made: here is its value again.
#[derive(Debug)]
pub struct NoRoom<T> {
    /// The value that was to be put into the heap.
    pub value: T,
    /// Why it was not.
    pub error: Error,
}
