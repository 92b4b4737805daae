//! Locks that have ended where nothing may wait, and of which their keepers do not know yet.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

static UNSETTLED: AtomicUsize = AtomicUsize::new(0);

pub(super) fn begin() {
    UNSETTLED.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn end() {
    UNSETTLED.fetch_sub(1, Ordering::Relaxed);
}

/// Waits until the changes of all locks that have ended on this machine outlive it, where the program has copies
/// ([`with_copies`](crate::with_copies)); else it does nothing. The end of a lock waits for that by itself, but for one
/// in a panic, and one where nothing may wait: call this after such, before the outside gets an answer.
///
/// ```
/// use gossamer_heap::{self as heap, Mutex};
/// gossamer::main(
///     || {
///         *Mutex::new(7u64).lock().unwrap() += 1;
///         heap::settle();
///     },
///     1,
/// );
/// ```
///
/// # Panics
/// Where nothing may wait.
pub fn settle() {
    // Relaxed: a count; the messages themselves are ordered.
    while UNSETTLED.load(Ordering::Relaxed) > 0 {
        gossamer::sleep(Duration::from_micros(50));
    }
}
