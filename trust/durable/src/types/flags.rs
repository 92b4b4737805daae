//! The borrow flags of `PRefCell`s: beside the pool, by address and type, for as long as a transaction or a look goes
//! on.
//!
//! So nothing on disk says that something is borrowed, and a guard that was forgotten is forgotten for good. A cell
//! that moves was not borrowed, or its guard forgotten: the flag that stays behind can only refuse too much.

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Two cells may be at one address, one within the other: then they are of different types.
type Key = (usize, TypeId);

/// Addresses are spread by one multiplication; the type adds little.
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
    /// Is there any? Most transactions have none, and looking into the table takes longer.
    static ANY: Cell<bool> = const { Cell::new(false) };
    /// How often borrowed; -1 for mutably.
    static FLAGS: RefCell<HashMap<Key, isize, BuildHasherDefault<ByAddress>>> = RefCell::default();
}

/// Another shared borrow; false if there is a mutable one.
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

/// The mutable borrow; false if there is any.
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

/// One borrow ends.
pub(crate) fn release(key: Key) {
    // In a destructor of a thread-local there are none any more.
    let _ = FLAGS.try_with(|flags| {
        let mut flags = flags.borrow_mut();
        match flags.get_mut(&key) {
            Some(flag) if *flag > 1 => *flag -= 1,
            _ => _ = flags.remove(&key),
        }
    });
}

/// The transaction or look is over.
#[inline]
pub(crate) fn clear() {
    if !ANY.replace(false) {
        return;
    }
    let _ = FLAGS.try_with(|flags| flags.borrow_mut().clear());
}
