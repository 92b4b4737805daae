//! Frames for one thread that it has not looked at: whoever deals puts them in, their thread takes all of them.
//!
//! Their bytes lie one behind the other, so that no memory is allocated for a frame.
//!
//! Invariant: the lock is held for copies of bytes alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gossamer_ways::Peer;
use trust::link::Buffer;

use super::wire::{Head, Piece, frame_bytes};

/// Memory that a mailbox keeps.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// See the file's documentation.
#[derive(Default)]
pub(super) struct Mailbox {
    has_some: AtomicBool,
    mail: Mutex<Mail>,
}

/// Frames in a mailbox, or taken out of it.
#[derive(Default)]
pub(super) struct Mail {
    letters: Vec<Letter>,
    data: Buffer,
    /// Bytes of the frames with their heads.
    bytes: usize,
}

#[derive(Clone, Copy)]
struct Letter {
    from: Peer,
    head: Head,
    /// Its first byte in the data.
    start: usize,
}

/// Mailbox into which frames are put one after the other.
pub(super) struct Delivery<'a> {
    mailbox: &'a Mailbox,
    mail: MutexGuard<'a, Mail>,
}

impl Delivery<'_> {
    /// `false`: there would be more than so many bytes.
    pub(super) fn put(&mut self, from: Peer, piece: &Piece<'_>, bytes_max: usize) -> bool {
        let Mail { letters, data, bytes } = &mut *self.mail;
        *bytes += frame_bytes(piece.data.len());
        if *bytes > bytes_max {
            return false;
        }
        let start = data.len();
        let end = start + piece.data.len();
        data.set_len(end.next_multiple_of(8));
        data.bytes_mut()[start..end].copy_from_slice(piece.data);
        letters.push(Letter { from, head: piece.head, start });
        // Release, pairs with the Acquire in `has_some`; the frames themselves are under the lock.
        self.mailbox.has_some.store(true, Ordering::Release);
        true
    }
}

impl Mailbox {
    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens it for frames.
    pub(super) fn open(&self) -> Delivery<'_> {
        Delivery { mailbox: self, mail: self.mail() }
    }

    #[inline]
    pub(super) fn has_some(&self) -> bool {
        // Acquire, pairs with the Release in `put`.
        self.has_some.load(Ordering::Acquire)
    }

    /// Takes all frames, in place of those before.
    pub(super) fn take(&self, taken: &mut Mail) {
        taken.letters.clear();
        taken.letters.shrink_to(KEPT_BYTES_MAX / size_of::<Letter>());
        taken.data.set_len(0);
        taken.data.trim(KEPT_BYTES_MAX);
        taken.bytes = 0;
        let mut mail = self.mail();
        // Relaxed: under the lock. A frame that comes later sets it again.
        self.has_some.store(false, Ordering::Relaxed);
        std::mem::swap(&mut *mail, taken);
    }
}

impl Mail {
    /// The frames, in the order in which they came: sender, head and bytes of each.
    pub(super) fn frames(&self) -> impl Iterator<Item = (Peer, Head, &[u8])> {
        let bytes = self.data.bytes();
        self.letters.iter().map(|letter| {
            let end = letter.start + letter.head.len as usize;
            (letter.from, letter.head, &bytes[letter.start..end])
        })
    }
}
