//! Addresses of libraries that the program loads while it runs: in a range that machines use for nothing else, so that
//! all have a library where machine 0 has loaded it. The dynamic linker leaves the choice to the system; its calls are
//! stopped (`trap.rs`), and get an address of the range.

use std::cell::Cell;
use std::ffi::c_int;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::call::Call;
use crate::{PAGE_BYTES, own_stack};

/// The range, behind the stacks of all machines: neither the system nor regions choose addresses there.
const ADDRESSES: Range<usize> = own_stack::ADDRESSES.end..0x2000_0000_0000;

/// Bytes of it that have been given away.
static USED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether the thread is in the C library's `dlopen`.
    static IS_LOADING: Cell<bool> = const { Cell::new(false) };
}

/// Guard: while it lives, the calling thread's libraries get addresses of the range.
pub(crate) struct Loading(bool);

impl Loading {
    pub(crate) fn begin() -> Loading {
        Loading(IS_LOADING.replace(true))
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        IS_LOADING.set(self.0);
    }
}

/// Answers a call of `mmap` of a thread of the program, made by the system's number.
pub(crate) fn map(call: &Call) -> isize {
    let [at, bytes, _, flags, ..] = call.arguments;
    // The whole of a library, or the room in which it is aligned.
    let is_library = is(flags, libc::MAP_DENYWRITE) || is(flags, libc::MAP_ANONYMOUS);
    if !IS_LOADING.get() || at != 0 || !is_library {
        return call.execute();
    }
    let bytes = bytes.saturating_add(PAGE_BYTES).next_multiple_of(PAGE_BYTES);
    let end = USED.fetch_add(bytes, Ordering::SeqCst).saturating_add(bytes);
    let mut placed = *call;
    placed.arguments[0] = ADDRESSES.start.saturating_add(end).saturating_sub(bytes);
    placed.arguments[3] |= libc::MAP_FIXED_NOREPLACE as usize;
    match end <= ADDRESSES.len() {
        true => placed.execute(),
        false => -libc::ENOMEM as isize,
    }
}

fn is(flags: usize, flag: c_int) -> bool {
    flags & flag as usize != 0
}
