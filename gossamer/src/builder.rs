//! Settings with which a program starts.
//!
//! Here: what can be set, and its default. Not here: the start (`start`).

use crate::start::start;

/// Stack of a fiber unless set. Only touched pages cost memory.
const STACK_BYTES: usize = 1 << 20;

/// The start of a program with other settings than those of [`main`](crate::main). All machines run the same program,
/// so all have the same settings.
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) stack_bytes: usize,
    /// Whether each machine has a keeper (`keeper.rs`).
    pub(crate) has_keepers: bool,
}

/// A start with settings of its own; [`Builder::main`] is the start itself.
///
/// ```
/// fn gsm_main() {
///     let deep = gossamer::spawn(|| std::hint::black_box([1u8; 2 << 20]).iter().map(|one| u64::from(*one)).sum::<u64>());
///     assert_eq!(deep.join().unwrap(), 2 << 20);
/// }
///
/// gossamer::builder().stack_bytes(8 << 20).main(gsm_main, 2);
/// ```
pub fn builder() -> Builder {
    Builder { stack_bytes: STACK_BYTES, has_keepers: false }
}

impl Builder {
    /// Bytes of each fiber's stack, `gsm_main`'s included, rounded up to pages; 1 MiB unless set. Only touched pages
    /// cost memory. A fiber that needs more than it has ends the process with a message that names it.
    ///
    /// Example: at [`builder`].
    pub fn stack_bytes(mut self, stack_bytes: usize) -> Self {
        self.stack_bytes = stack_bytes;
        self
    }

    /// As [`main`](crate::main), with these settings.
    ///
    /// # Panics, exits
    /// As [`main`](crate::main). A setting that is out of range is told, and the process ends with status 70.
    ///
    /// Example: at [`builder`].
    pub fn main<F: FnOnce() + Send + 'static>(self, gsm_main: F, threads: usize) {
        start(&self, gsm_main, threads);
    }
}
