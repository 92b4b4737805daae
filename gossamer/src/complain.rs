//! What this process says on stderr about itself.

use std::fmt::Arguments;

/// One line, in one write: the process may be ended at any moment, and half a line tells nobody anything. Without the
/// lock of the standard library, which a thread may have that stands still in the middle of a line that it prints.
pub(crate) fn complain(what: Arguments<'_>) {
    let line = format!("gossamer: {what}\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes()); // nobody reads it
}
