//! A group as a record: the one step from memory to files.

use crate::files::format::Record;
use crate::memory::Memory;
use crate::memory::copy::LINE;

/// Closes the group: its lines as a record, `None` if nothing changed.
pub(crate) fn close(memory: &Memory, group: u64) -> Option<Record> {
    let runs = memory.take_changes();
    if runs.is_empty() {
        return None;
    }
    let mut record = Record::begin(group, &runs);
    for (start, count) in runs {
        memory.copy_out(start as usize * LINE, count as usize * LINE, &mut record.bytes);
    }
    Some(record)
}
