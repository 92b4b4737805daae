//! Connections of one worker to the other machines: one for each, shared by all streams to the workers there.
//!
//! A connection may buffer writes; it is flushed once a turn, if anything was written.
//!
//! The worker's carrier writes and flushes them; reads of shares (`link.rs`) use the same ones, from its fibers. Where
//! machines have ways, those are shared by all workers ([`SharePath`]).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use comm::{Error, MachineId, ReadId, ShareId};

thread_local! {
    /// This worker's connections, or what it has in their place, by machine.
    static OWN: RefCell<Vec<Option<Rc<dyn SharePath>>>> = const { RefCell::new(Vec::new()) };
}

/// Registers a path: from now on this worker's reads from that machine use it.
pub(super) fn keep(machine: MachineId, path: Rc<dyn SharePath>) {
    OWN.with_borrow_mut(|own| {
        let place = usize::from(machine.0);
        let places = own.len().max(place + 1);
        own.resize_with(places, || None);
        own[place] = Some(path);
    });
}

/// Returns this worker's path to the shares of a machine; none on threads that have none.
pub(crate) fn to(machine: MachineId) -> Option<Rc<dyn SharePath>> {
    OWN.with_borrow(|own| own.get(usize::from(machine.0))?.clone())
}

/// Path of one worker to the shares of one machine. Messages of the worker to that machine come behind its writes.
pub(crate) trait SharePath {
    fn write_share(&self, share: ShareId, offset: usize, bytes: &[u8]) -> Result<(), Error>;
    fn read_share(&self, share: ShareId, offset: usize, bytes: usize) -> Result<ReadId, Error>;
    fn take(&self, read_id: ReadId, into: &mut [u8]) -> Result<bool, Error>;
}

/// Connection of one worker to one machine.
pub(crate) struct Connection {
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

    /// Sends the buffered writes.
    #[inline]
    pub(super) fn flush(&self) -> Result<(), Error> {
        if self.is_dirty.replace(false) { self.inner.borrow_mut().flush() } else { Ok(()) }
    }
}

impl SharePath for Connection {
    fn write_share(&self, share: ShareId, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.is_dirty.set(true);
        self.inner.borrow_mut().write_share(share, offset, bytes)
    }

    fn read_share(&self, share: ShareId, offset: usize, bytes: usize) -> Result<ReadId, Error> {
        self.is_dirty.set(true);
        self.inner.borrow_mut().read_share(share, offset, bytes)
    }

    fn take(&self, read_id: ReadId, into: &mut [u8]) -> Result<bool, Error> {
        self.inner.borrow_mut().take(read_id, into)
    }
}
