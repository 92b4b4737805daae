//! Own end of a pair's direct way: the ring that the peer writes, and the stream with the peer's ring.
//!
//! Here: its state, and how many there are. The thread's `carrier` moves frames, and says when a way begins and ends.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::connections::Connection;
use super::super::stream::FrameStream;

/// Direct ways that the workers of this process have.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// Returns the number of direct ways that the workers of this machine have.
pub(crate) fn direct_ways() -> u64 {
    OPEN.load(Ordering::Relaxed)
}

/// Own ring for a peer.
pub(super) struct Direct {
    pub(super) ring: u16,
    /// Once the peer has told of its own.
    pub(super) line: Option<Line>,
    /// This end writes no more.
    pub(super) is_closing: bool,
    /// A frame that came waits for those before it, which come by the machine way.
    pub(super) is_early: bool,
}

impl Direct {
    pub(super) fn new(ring: u16) -> Direct {
        Direct { ring, line: None, is_closing: false, is_early: false }
    }
}

/// Both rings of a pair.
pub(super) struct Line {
    pub(super) stream: FrameStream,
    pub(super) connection: Rc<Connection>,
    _counted: Counted,
}

impl Line {
    pub(super) fn new(stream: FrameStream, connection: Rc<Connection>) -> Line {
        OPEN.fetch_add(1, Ordering::Relaxed);
        Line { stream, connection, _counted: Counted }
    }
}

/// One of [`OPEN`].
struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}
