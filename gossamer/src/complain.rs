//! What this process says on stderr about itself.

use std::fmt::Arguments;
use std::io::Write;

/// One line, in one write: the process may be ended at any moment, and half a line tells nobody anything.
pub(crate) fn complain(what: Arguments<'_>) {
    let line = format!("gossamer: {what}\n");
    let _ = std::io::stderr().write_all(line.as_bytes()); // nobody reads it
}
