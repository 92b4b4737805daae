//! Owner and wait of a fiber, noted where it suspends for long: for messages, and for the detection of deadlocks
//! (`runtime/watch`).
//!
//! Not noted: waits for the answer to a request, or for room to send one. They end by themselves while the trustee's
//! thread runs, and nothing may be added to their path.

use std::fmt;

use crate::ids::TrusteeId;

/// The waiter for the end of a fiber.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Whom {
    /// No waiter for its end.
    Nobody,
    /// The handle with this number.
    Handle(u64),
    /// The client that awaits this token.
    Client(TrusteeId, u64),
}

/// Thing that a fiber waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaited {
    /// The result of a closure that was launched; its token.
    Result(u64),
    /// The result of a `together`; its token.
    Together(u64),
    /// The value of this latched property of the fiber's own trustee.
    Value { property: usize, on: &'static str },
    /// The end of the fiber that runs for this handle.
    End(u64),
    /// A `Latch` that another fiber or thread has locked.
    Latch(&'static str),
    /// A promise.
    Promise(&'static str),
    /// One of several promises.
    Promises,
    /// The answer of a property of this type, for no longer than some time.
    Answer(&'static str),
    /// A time.
    Time,
    /// A socket.
    #[cfg(feature = "net")]
    Socket,
}

impl Awaited {
    /// Can this wait be part of a cycle?
    pub(crate) fn is_of_circles(self) -> bool {
        matches!(self, Awaited::Result(_) | Awaited::Together(_) | Awaited::Value { .. } | Awaited::End(_))
    }
}

/// One wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wait {
    pub(crate) awaited: Awaited,
    /// Number, unique among the waits of the thread.
    pub(crate) number: u64,
    /// Time of the start, on the clock of [`now_ms`].
    pub(crate) since_ms: u64,
}

/// Takes the pointer of a waiting fiber back from its waker. False if the waker has made it ready, or will.
pub(crate) type Revoke = unsafe fn(*const (), super::FiberRef) -> bool;

/// State of a fiber.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Doing {
    Waits,
    Runs,
    /// It may go on as soon as it is its turn.
    Ready,
    /// It has not begun.
    New,
}

/// A fiber, as others may see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// Number, unique on its thread for ever.
    pub(crate) id: u64,
    pub(crate) whom: Whom,
    pub(crate) doing: Doing,
    /// `None` while its wait is of a kind that is not noted.
    pub(crate) wait: Option<Wait>,
    /// Address of the property whose latched value it has; 0 for none.
    pub(crate) holds: usize,
    /// Its name and origin, where names were asked for.
    pub(crate) name: String,
}

/// Milliseconds of a clock that is cheap to read and some milliseconds behind.
#[expect(unsafe_code, reason = "a system call; rustix finds its own way into the kernel's page, which valgrind hides")]
pub(crate) fn now_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    u64::try_from(now.tv_sec).unwrap_or(0) * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Awaited::Result(_) => f.write_str("the result of a closure that it launched"),
            Awaited::Together(_) => f.write_str("the result of a `together`"),
            Awaited::Value { on, .. } => write!(f, "the value of a `Latch<{on}>`"),
            Awaited::End(_) => f.write_str("the end of a fiber (`join`)"),
            Awaited::Latch(of) => write!(f, "a locked `Latch<{of}>`"),
            Awaited::Promise(of) => write!(f, "a promised `{of}`"),
            Awaited::Promises => f.write_str("one of several promised values"),
            Awaited::Answer(of) => write!(f, "the answer of a `{of}`, for some time"),
            Awaited::Time => f.write_str("a time (`sleep`)"),
            #[cfg(feature = "net")]
            Awaited::Socket => f.write_str("a socket"),
        }
    }
}
