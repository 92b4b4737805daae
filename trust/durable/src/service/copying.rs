//! A new image, copied slice by slice between transactions, and the log that belongs to it.

use super::core::Core;
use super::jobs::Job;
use crate::files::format::SLICE;

/// A log longer than this, and than the image, is replaced by a new generation.
const LOG_MIN: u64 = if cfg!(debug_assertions) { 1 << 20 } else { 64 << 20 };

/// A new image in progress: start of the next slice, and total length.
pub(super) struct Copying {
    next: usize,
    len: usize,
    end: End,
}

/// Progress of a new image.
#[derive(Clone, Copy)]
enum End {
    /// Slices are still to be copied.
    Open,
    /// All slices are copied; the image is complete once this group is durable.
    At(u64),
    /// The disk thread was notified of the completion.
    Reported,
}

impl Core {
    /// Advances the new image: begins one when the log is long enough, sends its next slice when one was written, ends
    /// it.
    pub(super) fn go_on_copying(&mut self, was_written: bool) {
        let Some(copying) = &mut self.copying else {
            if self.stats.log_bytes > LOG_MIN.max(self.image_bytes) && self.lost.is_none() {
                let len = self.memory.high_water();
                // The open group is the first of the new log: records queued before it go to the old one.
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
            copying.end = End::Reported;
            self.image_bytes = copying.len as u64;
            self.send(Job::Image { end });
        }
    }
}
