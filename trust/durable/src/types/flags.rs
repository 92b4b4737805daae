//! Borrow flags of `PRefCell`s: kept outside of the pool, by address and type, for the duration of a transaction or a
//! read.
//!
//! So no borrow is recorded on disk, and a guard that was leaked locks nothing for ever. A cell that moves was not
//! borrowed, or its guard was leaked: the flag left behind can only refuse too much.

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Two cells may have one address, if one is the first field of the other: then their types differ.
type Key = (usize, TypeId);

/// Hasher of addresses: one multiplication spreads them; the type adds little.
#[derive(Default)]
pub(crate) struct ByAddress(u64);

impl Hasher for ByAddress {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

thread_local! {
    /// Is there any flag? Most transactions have none, and looking into the table takes longer.
    static ANY: Cell<bool> = const { Cell::new(false) };
    /// Number of shared borrows; -1 for a mutable one.
    static FLAGS: RefCell<HashMap<Key, isize, BuildHasherDefault<ByAddress>>> = RefCell::default();
}

/// Adds a shared borrow; false if there is a mutable one.
pub(crate) fn share(key: Key) -> bool {
    ANY.set(true);
    FLAGS.with_borrow_mut(|flags| {
        let flag = flags.entry(key).or_insert(0);
        let may = *flag >= 0;
        if may {
            *flag += 1;
        }
        may
    })
}

/// Adds the mutable borrow; false if there is any borrow.
pub(crate) fn take(key: Key) -> bool {
    ANY.set(true);
    FLAGS.with_borrow_mut(|flags| {
        let is_free = !flags.contains_key(&key);
        if is_free {
            flags.insert(key, -1);
        }
        is_free
    })
}

/// Ends one borrow.
pub(crate) fn release(key: Key) {
    // In a destructor of a thread-local the table may be gone.
    let _ = FLAGS.try_with(|flags| {
        let mut flags = flags.borrow_mut();
        match flags.get_mut(&key) {
            Some(flag) if *flag > 1 => *flag -= 1,
            _ => _ = flags.remove(&key),
        }
    });
}

/// Forgets all borrows, at the end of a transaction or read.
#[inline]
pub(crate) fn clear() {
    if !ANY.replace(false) {
        return;
    }
    let _ = FLAGS.try_with(|flags| flags.borrow_mut().clear());
}
