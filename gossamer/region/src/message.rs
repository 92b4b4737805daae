//! What keepers say to each other about the pages of one region.
//!
//! By pair of keepers, messages come in the order in which they were sent. In the paper: GET_PAGE_DATA is `Ask` for
//! reading, GET_PAGE_DATA_INVALIDATE is `Ask` for writing on a page that the asker has not, SEND_INVALIDATE is `Ask`
//! for writing on one that it has.

use crate::page::Run;

/// What a machine may do with a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
pub(crate) enum State {
    /// Nothing.
    #[default]
    Invalid,
    /// Read it, as others may.
    Shared,
    /// Read and write it, alone.
    Modified,
}

/// What a machine asks for pages for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Access {
    /// To read them, as others may.
    Read,
    /// To write them.
    Write,
    /// To read them, where pages cannot come to be read only: so nobody else may have them.
    Alone,
    /// To write them, but only if nobody has touched them.
    New,
}

impl Access {
    /// Whether nobody else has the pages then.
    pub(crate) fn is_exclusive(self) -> bool {
        self != Access::Read
    }
}

/// What is granted without bytes of a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Grant {
    /// The asker has it already; or wanted it only if new, which it is not.
    Nothing,
    /// Nobody had the pages before: they are zeros, and the asker's alone.
    Zeros,
    /// All others have dropped the pages that the asker has.
    Upgrade,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    /// To the home: the first page of the run is wanted, the others would be welcome.
    Ask { run: Run, access: Access },
    /// The home to a holder: drop these pages, and say so.
    Drop { run: Run },
    /// To the home: they are dropped.
    Dropped { run: Run },
    /// The home to a holder: `to` gets these pages; keep them to read, or not.
    Yield { run: Run, to: u16, keep: bool },
    /// A holder to who asked: these pages may be fetched from here, for this state.
    Arrive { run: Run, state: State },
    /// The home to who asked.
    Granted { run: Run, grant: Grant },
    /// To the home: what was asked for is there. The pages may be asked for again.
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

    /// With the region that it is about.
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

    /// The inverse of `encode`; none where the bytes are no message.
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
