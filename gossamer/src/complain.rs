//! Messages of this process about itself on stderr.

use std::fmt::Arguments;

/// Writes one line in one write: the process may be ended at any moment, and half a line helps nobody. It does not take
/// the standard library's lock, which may be held by a thread suspended in the middle of printing a line.
pub(crate) fn complain(what: Arguments<'_>) {
    let line = format!("gossamer: {what}\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes()); // stderr may have no reader
}
