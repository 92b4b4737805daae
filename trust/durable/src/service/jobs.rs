//! Messages between a pool's core and its disk thread.

use std::time::Instant;

use trust::Promise;

use super::core;
use crate::files::format::Record;

/// Job for the disk thread.
pub(crate) enum Job {
    /// The first files, of this memory.
    Create {
        bytes: Vec<u8>,
        seed: u64,
    },
    /// Files of another type, with this memory; `last` is the last group of the old ones.
    ChangeType {
        bytes: Vec<u8>,
        last: u64,
    },
    Group(Record),
    /// A new generation begins with this group, with an image of `len` bytes.
    Generation {
        first: u64,
        len: u64,
    },
    Slice(Vec<u8>),
    /// The image is complete; so is the log up to this group.
    Image {
        end: u64,
    },
    /// A copy of the memory, for the folder that is registered under the promise's id.
    Snapshot {
        bytes: Vec<u8>,
        seed: u64,
        promise: Promise<bool>,
    },
    /// A caller waits: no pause before the next group.
    Hurry,
    /// Ends the thread.
    Close,
    /// A fault that tests plant.
    #[cfg(test)]
    Panic,
}

/// Report of the disk thread.
pub(crate) enum Report {
    /// This group is on the disk.
    Durable {
        group: u64,
        bytes: u64,
        log_bytes: u64,
        /// Start and end of its writing.
        began: Instant,
        ended: Instant,
        /// The buffer of its record.
        buffer: Vec<u8>,
    },
    /// The pause is over: the next group may come.
    Free,
    /// A slice was written.
    Copied,
    /// The new image is complete.
    Image,
    Lost(String),
}

/// A report on its way to the core. It is delivered by a fiber at the trustee, or by the drop of that fiber's closure
/// if no fiber can be started.
pub(super) struct Said {
    number: u64,
    report: Option<Report>,
}

impl Said {
    pub(super) fn new(number: u64, report: Report) -> Said {
        Said { number, report: Some(report) }
    }

    pub(super) fn tell(mut self) {
        self.tell_once();
    }

    fn tell_once(&mut self) {
        if let Some(report) = self.report.take() {
            core::report(self.number, report);
        }
    }
}

impl Drop for Said {
    fn drop(&mut self) {
        // If the trustee is gone, this runs on another thread, which has no pool of this number.
        self.tell_once();
    }
}
