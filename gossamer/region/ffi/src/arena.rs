//! Memory that the program and its libraries allocate before `main`: a range at one address, from which the heap takes
//! until the program begins. It then becomes a region, as variables do, with the bytes of machine 0.
//!
//! Before `main` one thread runs, in constructors: of libraries on all machines, of the program on machine 0 alone.

use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use crate::PAGE_BYTES;
use crate::call::map_here;

/// Variable that activates this library and says how memory is shared: `auto` or `explicit`.
pub(crate) const MODE: &CStr = c"GOSSAMER_REGION";

/// Addresses for it: neither the system nor regions choose addresses there.
const ADDRESSES: Range<usize> = 0x1800_0000_0000..0x1810_0000_0000;
/// Bytes that are mapped at a time.
const STEP: usize = 4 << 20;

/// States: the process's environment is not known yet; this library is not active; constructors run; they have run.
const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const OPEN: u8 = 2;
const CLOSED: u8 = 3;

static IS_EXPLICIT: AtomicBool = AtomicBool::new(false);
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
/// Bytes that the heap has taken, and bytes that are mapped.
static USED: AtomicUsize = AtomicUsize::new(0);
static MAPPED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether the thread is in our code, before `main`.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Guard: while it lives, the calling thread is in our code, also before `main`.
pub(crate) struct Ours(bool);

impl Ours {
    pub(crate) fn begin() -> Ours {
        Ours(IS_OURS.try_with(|ours| ours.replace(true)).unwrap_or(true))
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        let _ = IS_OURS.try_with(|ours| ours.set(self.0)); // a thread that ends has none
    }
}

/// Whether the calling code is the program's or that of its libraries, before `main`.
pub(crate) fn is_open() -> bool {
    match STATE.load(Ordering::Relaxed) {
        OFF | CLOSED => false,
        _ if is_ours() => false,
        OPEN => true,
        _ => begin(),
    }
}

/// Whether the machines share only the ranges that the program names.
pub(crate) fn is_explicit() -> bool {
    IS_EXPLICIT.load(Ordering::Relaxed)
}

fn is_ours() -> bool {
    IS_OURS.try_with(Cell::get).unwrap_or(true)
}

/// Returns how memory is shared, if the environment says so; none before the C library has it.
fn mode() -> Option<&'static CStr> {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: null, or a list of strings that ends with null, which no other thread changes before `main`.
    unsafe {
        let mut next = environ;
        if next.is_null() {
            return None;
        }
        while !(*next).is_null() {
            let variable = CStr::from_ptr(*next);
            let value = variable.to_bytes().strip_prefix(MODE.to_bytes()).and_then(|rest| rest.strip_prefix(b"="));
            if value.is_some() {
                return CStr::from_bytes_with_nul(&variable.to_bytes_with_nul()[MODE.count_bytes() + 1..]).ok();
            }
            next = next.add(1);
        }
        Some(c"")
    }
}

/// Begins, if this library is active: by the first allocation of a constructor, or by our own constructor. Returns
/// whether it is.
pub(crate) fn begin() -> bool {
    let Some(mode) = mode() else { return false };
    let state = if mode.is_empty() { OFF } else { OPEN };
    IS_EXPLICIT.store(mode == c"explicit", Ordering::Relaxed);
    // Kept, if it has begun.
    let _ = STATE.compare_exchange(UNKNOWN, state, Ordering::SeqCst, Ordering::SeqCst);
    state == OPEN
}

/// Ends the time of constructors.
pub(crate) fn close() {
    STATE.store(CLOSED, Ordering::SeqCst);
}

/// Takes unused bytes, all zero; whole pages.
pub(crate) fn take(bytes: usize) -> Option<usize> {
    let used = USED.load(Ordering::SeqCst);
    let end = used.checked_add(bytes).filter(|end| *end <= ADDRESSES.len())?;
    map_to(end).then(|| {
        USED.store(end, Ordering::SeqCst);
        ADDRESSES.start + used
    })
}

/// Maps its first bytes.
fn map_to(end: usize) -> bool {
    let mapped = MAPPED.load(Ordering::SeqCst);
    if end <= mapped {
        return true;
    }
    let (start, bytes) = (ADDRESSES.start + mapped, (end - mapped).next_multiple_of(STEP));
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE,
    );
    // SAFETY: a new mapping that replaces none.
    let found = unsafe { map_here(std::ptr::without_provenance_mut(start), bytes, protection, flags, -1, 0) };
    let is_there = found.expose_provenance() == start;
    if is_there {
        MAPPED.store(mapped + bytes, Ordering::SeqCst);
    }
    is_there
}

/// Whether an address is in it.
pub(crate) fn has(address: usize) -> bool {
    address.wrapping_sub(ADDRESSES.start) < USED.load(Ordering::Relaxed)
}

/// Returns the pages that the heap has taken.
pub(crate) fn pages() -> Range<usize> {
    ADDRESSES.start..ADDRESSES.start + USED.load(Ordering::SeqCst)
}

/// On a machine other than 0: sets the number of bytes to that of machine 0. `false`: there is no memory.
pub(crate) fn set_bytes(bytes: usize, maps: bool) -> bool {
    USED.store(bytes, Ordering::SeqCst);
    !maps || map_to(bytes)
}

const _: () = assert!(ADDRESSES.start.is_multiple_of(PAGE_BYTES));
