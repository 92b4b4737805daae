//! The connections of one worker to the other machines: one for each, which all streams to the workers there share.
//!
//! A connection may hold writes back; it is flushed once a turn, if anything was written.

use std::cell::{Cell, RefCell};

use comm::Error;

/// The connection of one worker to one machine.
pub(super) struct Connection {
    inner: RefCell<Box<dyn comm::Connection>>,
    is_dirty: Cell<bool>,
}

impl Connection {
    pub(super) fn new(inner: Box<dyn comm::Connection>) -> Connection {
        Connection { inner: RefCell::new(inner), is_dirty: Cell::new(false) }
    }

    pub(super) fn write(&self, bytes: &[u8], offset: usize) -> Result<(), Error> {
        self.is_dirty.set(true);
        self.inner.borrow_mut().write(bytes, offset)
    }

    pub(super) fn wake(&self, park_word: usize) -> Result<(), Error> {
        self.inner.borrow_mut().wake(park_word)
    }

    /// Sends what was held back.
    #[inline]
    pub(super) fn flush(&self) -> Result<(), Error> {
        if self.is_dirty.replace(false) { self.inner.borrow_mut().flush() } else { Ok(()) }
    }
}
