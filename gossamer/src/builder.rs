//! Settings with which a program starts, and their defaults. The start itself is in `start`.

use crate::start::start;

/// Default stack size of a fiber. Only touched pages cost memory.
const STACK_BYTES: usize = 1 << 20;

/// Start of a program with other settings than those of [`main`](crate::main). All machines run the same program, so
/// all have the same settings.
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) stack_bytes: usize,
    /// Whether each machine has a page server's worker (`page_server.rs`).
    pub(crate) has_page_servers: bool,
}

/// Returns a start with the default settings; [`Builder::main`] starts the program.
///
/// ```
/// fn gsm_main() {
///     let deep = gossamer::spawn(|| {
///         let large = std::hint::black_box([1u8; 2 << 20]);
///         large.iter().map(|one| u64::from(*one)).sum::<u64>()
///     });
///     assert_eq!(deep.join().unwrap(), 2 << 20);
/// }
///
/// gossamer::builder().stack_bytes(8 << 20).main(gsm_main, 2);
/// ```
pub fn builder() -> Builder {
    Builder { stack_bytes: STACK_BYTES, has_page_servers: false }
}

impl Builder {
    /// Sets the bytes of each fiber's stack, `gsm_main`'s included, rounded up to pages; 1 MiB unless set. Only touched
    /// pages cost memory. A fiber that overflows its stack ends the process with a message that names it.
    ///
    /// Example: at [`builder`].
    pub fn stack_bytes(mut self, stack_bytes: usize) -> Self {
        self.stack_bytes = stack_bytes;
        self
    }

    /// Runs the program as [`main`](crate::main) does, with these settings.
    ///
    /// # Panics, exits
    /// Same as [`main`](crate::main). A setting out of range is reported, and the process ends with status 70.
    ///
    /// Example: at [`builder`].
    pub fn main<F: FnOnce() + Send + 'static>(self, gsm_main: F, threads: usize) {
        start(&self, gsm_main, threads);
    }
}
