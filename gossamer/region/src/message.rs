//! Messages between page servers about the pages of one region.
//!
//! Between each pair of page servers, messages arrive in the order in which they were sent. In the paper: GET_PAGE_DATA
//! is `Ask` for reading, GET_PAGE_DATA_INVALIDATE is `Ask` for writing a page that the requester does not hold,
//! SEND_INVALIDATE is `Ask` for writing one that it holds.

use zerocopy::FromZeros;

use crate::page::Run;

/// A machine's access to a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, FromZeros)]
#[repr(u8)]
pub(crate) enum State {
    /// No access.
    #[default]
    Invalid,
    /// Read, as others may.
    Shared,
    /// Read and write, exclusively.
    Modified,
}

/// Purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Access {
    /// Read, as others may.
    Read,
    /// Write.
    Write,
    /// Read, where pages cannot be mapped read-only: no other machine may have them.
    Alone,
    /// Write, but only if the pages are untouched.
    New,
}

impl Access {
    /// Whether the requester then holds the pages exclusively.
    pub(crate) fn is_exclusive(self) -> bool {
        self != Access::Read
    }
}

/// Grant that needs no bytes of a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Grant {
    /// The requester has the page already, or wanted it only if untouched, which it is not.
    Nothing,
    /// The pages were untouched: they are zeros, and the requester's alone.
    Zeros,
    /// All other machines have dropped the pages, which the requester holds.
    Upgrade,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    /// To the home: requests the first page of the run, and the others if possible.
    Ask { run: Run, access: Access },
    /// From the home to a holder: drop these pages, and confirm.
    Drop { run: Run },
    /// To the home: confirms a drop.
    Dropped { run: Run },
    /// From the home to a holder: give these pages to `to`; with `keep`, keep them to read.
    Yield { run: Run, to: u16, keep: bool },
    /// From a holder to the requester: these pages may be fetched from here, for this state.
    Arrive { run: Run, state: State },
    /// Home to requester: the request is granted.
    Granted { run: Run, grant: Grant },
    /// To the home: the request is complete. The pages may be requested again.
    Done { run: Run },
}

/// Bytes of an encoded message.
pub(crate) const MESSAGE_BYTES: usize = 16;

impl Message {
    fn run(self) -> Run {
        match self {
            Message::Ask { run, .. }
            | Message::Drop { run }
            | Message::Dropped { run }
            | Message::Yield { run, .. }
            | Message::Arrive { run, .. }
            | Message::Granted { run, .. }
            | Message::Done { run } => run,
        }
    }

    /// Encodes it with its region.
    pub(crate) fn encode(self, region: u32) -> [u8; MESSAGE_BYTES] {
        let (kind, small, machine) = match self {
            Message::Ask { access, .. } => (0, access as u8, 0),
            Message::Drop { .. } => (1, 0, 0),
            Message::Dropped { .. } => (2, 0, 0),
            Message::Yield { to, keep, .. } => (3, u8::from(keep), to),
            Message::Arrive { state, .. } => (4, state as u8, 0),
            Message::Granted { grant, .. } => (5, grant as u8, 0),
            Message::Done { .. } => (6, 0, 0),
        };
        let Run { first, count } = self.run();
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[..4].copy_from_slice(&region.to_ne_bytes());
        bytes[4..8].copy_from_slice(&first.to_ne_bytes());
        bytes[8..12].copy_from_slice(&count.to_ne_bytes());
        bytes[12] = kind;
        bytes[13] = small;
        bytes[14..].copy_from_slice(&machine.to_ne_bytes());
        bytes
    }

    /// Decodes; None where the bytes are no message.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(u32, Message)> {
        let bytes: &[u8; MESSAGE_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let run = Run { first: word(4), count: word(8) };
        let message = match (bytes[12], bytes[13]) {
            (0, 0) => Message::Ask { run, access: Access::Read },
            (0, 1) => Message::Ask { run, access: Access::Write },
            (0, 2) => Message::Ask { run, access: Access::Alone },
            (0, 3) => Message::Ask { run, access: Access::New },
            (1, 0) => Message::Drop { run },
            (2, 0) => Message::Dropped { run },
            (3, keep @ 0..=1) => {
                Message::Yield { run, to: u16::from_ne_bytes([bytes[14], bytes[15]]), keep: keep == 1 }
            }
            (4, 1) => Message::Arrive { run, state: State::Shared },
            (4, 2) => Message::Arrive { run, state: State::Modified },
            (5, 0) => Message::Granted { run, grant: Grant::Nothing },
            (5, 1) => Message::Granted { run, grant: Grant::Zeros },
            (5, 2) => Message::Granted { run, grant: Grant::Upgrade },
            (6, 0) => Message::Done { run },
            _ => return None,
        };
        Some((word(0), message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive() {
        let run = Run { first: 0xfeed_0001, count: 64 };
        let all = [
            Message::Ask { run, access: Access::Read },
            Message::Ask { run, access: Access::Write },
            Message::Ask { run, access: Access::Alone },
            Message::Ask { run, access: Access::New },
            Message::Drop { run },
            Message::Dropped { run },
            Message::Yield { run, to: 63, keep: true },
            Message::Yield { run, to: 1, keep: false },
            Message::Arrive { run, state: State::Shared },
            Message::Arrive { run, state: State::Modified },
            Message::Granted { run, grant: Grant::Nothing },
            Message::Granted { run, grant: Grant::Zeros },
            Message::Granted { run, grant: Grant::Upgrade },
            Message::Done { run },
        ];
        for message in all {
            assert_eq!(Message::decode(&message.encode(7)), Some((7, message)));
        }
        assert_eq!(Message::decode(&[9; 16]), None);
        assert_eq!(Message::decode(&[0; 15]), None);
    }
}
