//! What a pool's core and its disk thread say to each other.

use std::time::Instant;

use trust::Promise;

use super::core;
use crate::files::format::Record;

/// What the disk thread is asked for.
pub(crate) enum Job {
    /// The first files, of this memory.
    Create {
        bytes: Vec<u8>,
        seed: u64,
    },
    Group(Record),
    /// From this group on there is a new generation, whose image has so many bytes.
    Generation {
        first: u64,
        len: u64,
    },
    Slice(Vec<u8>),
    /// The image is complete; so is the log up to this group.
    Image {
        end: u64,
    },
    /// A copy of the memory, for the folder that was left with the promise's name.
    Snapshot {
        bytes: Vec<u8>,
        seed: u64,
        promise: Promise<bool>,
    },
    /// Somebody waits: no pause before the next group.
    Hurry,
    /// Ends it.
    Close,
    /// A fault that tests plant.
    #[cfg(test)]
    Panic,
}

/// What the disk thread says.
pub(crate) enum Report {
    /// This group is on the disk.
    Durable {
        group: u64,
        bytes: u64,
        log_bytes: u64,
        /// When its writing began and ended.
        began: Instant,
        ended: Instant,
        /// The room of its record.
        buffer: Vec<u8>,
    },
    /// After a pause: the next one may come.
    Free,
    /// A slice was written.
    Copied,
    /// The new image is there.
    Image,
    Lost(String),
}

/// What the disk thread says to the core: in a fiber at the trustee, or where none can be started there, when that is
/// dropped unrun.
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
        // Where the trustee is gone, this is another thread, which has no pool of this number.
        self.tell_once();
    }
}
