//! A new image, copied slice by slice between transactions, and the log that goes with it.

use super::core::Core;
use super::jobs::Job;
use crate::files::format::SLICE;

/// A log longer than this, and than the image, is replaced by a new generation.
const LOG_MIN: u64 = if cfg!(debug_assertions) { 1 << 20 } else { 64 << 20 };

/// A new image under way: where the next slice begins, and its length.
pub(super) struct Copying {
    next: usize,
    len: usize,
    end: End,
}

/// How far a new image is.
#[derive(Clone, Copy)]
enum End {
    /// Slices are still to be copied.
    Open,
    /// All are; it is complete once this group is durable.
    At(u64),
    /// The disk thread was told that it is complete.
    Told,
}

impl Core {
    /// The new image: begins one where the log is long enough, has its next slice written when one was, ends it.
    pub(super) fn go_on_copying(&mut self, was_written: bool) {
        let Some(copying) = &mut self.copying else {
            if self.stats.log_bytes > LOG_MIN.max(self.image_bytes) && self.lost.is_none() {
                let len = self.memory.high_water();
                // The open group is the first of the new log: what the disk has before it goes to the old one.
                self.copying = Some(Copying { next: 0, len, end: End::Open });
                self.stats.generations += 1;
                self.stats.log_bytes = 0;
                self.send(Job::Generation { first: self.open, len: len as u64 });
            }
            return;
        };
        if let End::Open = copying.end
            && was_written
        {
            if copying.next < copying.len {
                let len = SLICE.min(copying.len - copying.next);
                let mut bytes = Vec::new();
                self.memory.copy_out(copying.next, len, &mut bytes);
                copying.next += len;
                return self.send(Job::Slice(bytes));
            }
            copying.end = End::At(if self.memory.has_changes() { self.open } else { self.open - 1 });
        }
        if let End::At(end) = copying.end
            && end <= self.durable
        {
            copying.end = End::Told;
            self.image_bytes = copying.len as u64;
            self.send(Job::Image { end });
        }
    }
}
