//! Breaks of connections: their kinds, and their reasons in words. Not here: the consequences (`shared.rs`,
//! `poller.rs`).

use rustix::io::Errno;

/// Kind of break of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Break {
    /// Break with this reason. The peer is dead unless it turns out soon that it left.
    Explained(String),
    /// Nothing came back on it for the limit of silence. The peer is dead: a graceful close closes connections.
    Silent,
}

impl Break {
    /// Returns the kind of break for this error.
    pub(super) fn by(error: Errno) -> Break {
        if is_silence(error) { Break::Silent } else { Break::Explained(explain(error)) }
    }
}

/// Returns the reason of a break, in words for the user.
pub(super) fn explain(error: Errno) -> String {
    format!("the connection to it broke: {}", std::io::Error::from(error))
}

/// Returns whether a connection broke because nothing came back on it.
pub(super) fn is_silence(error: Errno) -> bool {
    matches!(error, Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN | Errno::NETDOWN)
}
