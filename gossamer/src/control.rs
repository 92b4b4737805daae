//! Control channel between a machine and its launcher: the messages and their bytes. The socket is in `channel`.
//!
//! Both sides use this file: a machine holds the [`Control`] that its [`Bootstrap`](crate::bootstrap::Bootstrap)
//! carried, the launcher holds the other end. The actions that follow on a message are elsewhere.
//!
//! Invariants: one message is one packet, at most [`MAX_MESSAGE_BYTES`] long; its first byte is the protocol's
//! version and its second the kind. The order in a healthy program is
//!
//! ```text
//! machine -> launcher   Endpoint(bytes)           once: how the other machines find this one
//! launcher -> machine   Secret(key)               once, the same to all machines of the program
//! launcher -> machine   Peer(machine, endpoint)   once for each other machine, when its endpoint has come
//! machine -> launcher   Ready(pid, slots)         once, when gossamer runs in the process
//! machine -> launcher   Finished(status)          once, from machine 0 only, when its gsm_main has returned
//! launcher -> machine   End(reason)               at most once: stop, and exit with status 0
//! ```
//!
//! and in one that fails, at any time:
//!
//! ```text
//! machine -> launcher   Failed(reason)            this machine cannot go on, and why
//! machine -> launcher   Lost(machine, reason)     it has lost another machine, which the launcher may know already
//! ```
//!
//! and while the program is watched (`view`), once it runs:
//!
//! ```text
//! launcher -> machine   Look(ask, what)           what do you do? The number tells one question from another
//! machine -> launcher   Seen(ask, is_last, bytes) the answer, in as many parts as it takes
//! ```
//!
//! The *launcher* is the process that started the machine: `gossamer-launch`, or a part of a host's daemon. It passes
//! endpoints and the key on without looking inside. End of file on either side means that the other process is gone.

mod channel;
mod look;

use std::io;

use comm::secure::Key;

pub use channel::Control;
pub use look::Look;

/// Version of the messages and of the bootstrap variables. Both sides must have the same.
pub const PROTOCOL_VERSION: u8 = 4;

/// Longest packet, in bytes; a longer one is an error.
pub const MAX_MESSAGE_BYTES: usize = 32 * 1024;
/// Longest endpoint, in bytes.
pub const MAX_ENDPOINT_BYTES: usize = 16 * 1024;
/// Longest part of an answer to [`Message::Look`], in bytes.
pub const MAX_SEEN_BYTES: usize = 24 * 1024;
/// Longest text, in bytes. Longer ones are cut when they are sent.
pub const MAX_TEXT_BYTES: usize = 4000;

const READY: u8 = 1;
const FINISHED: u8 = 2;
const FAILED: u8 = 3;
const END: u8 = 4;
const ENDPOINT: u8 = 5;
const SECRET: u8 = 6;
const PEER: u8 = 7;
const LOST: u8 = 8;
const LOOK: u8 = 9;
const SEEN: u8 = 10;

/// Message between a machine and its launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Machine to launcher: how the other machines find this one.
    Endpoint {
        /// Opaque to the launcher; at most [`MAX_ENDPOINT_BYTES`].
        bytes: Vec<u8>,
    },
    /// Launcher to machine: the key of the program.
    Secret {
        /// The same for all machines, made anew for each program; it is never printed.
        key: Key,
    },
    /// Launcher to machine: the endpoint of another machine.
    Peer {
        /// Number of the other machine.
        machine: u16,
        /// The endpoint, unchanged.
        endpoint: Vec<u8>,
    },
    /// Machine to launcher: gossamer runs in this process. Carries the process id, which differs from the one that the
    /// launcher knows where the program runs behind a wrapper (`perf stat PROGRAM`).
    Ready {
        /// Process id of the machine.
        pid: u32,
        /// Bytes of the slots in its memory, by the layout of the program (thesis 3.2.8); fewer are in use.
        slots_bytes: u64,
    },
    /// Machine 0 to launcher: `gsm_main` has returned; the program ends with this exit status.
    Finished {
        /// Exit status of the program.
        status: u8,
    },
    /// Machine to launcher: this machine cannot go on.
    Failed {
        /// The cause, in words.
        reason: String,
    },
    /// Machine to launcher: this machine cannot reach another one any more. The launcher may know a better cause, or
    /// hear of it soon (that machine's death); the machine waits for `End`.
    Lost {
        /// Number of the lost machine.
        machine: u16,
        /// The fabric's reason.
        reason: String,
    },
    /// Launcher to machine: a viewer asks about the program.
    Look {
        /// Number of the question; the answer carries it too.
        ask: u32,
        /// The question.
        look: Look,
    },
    /// Machine to launcher: a part of the answer.
    Seen {
        /// Number of the question.
        ask: u32,
        /// Nothing more follows.
        is_last: bool,
        /// Answer of at most [`MAX_SEEN_BYTES`]; opaque to the launcher.
        bytes: Vec<u8>,
    },
    /// Launcher to machine: stop, exit with status 0.
    End {
        /// The cause, in words.
        reason: String,
    },
}

/// Error of sending or decoding a message.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The socket failed; `BrokenPipe` means that the other process is gone.
    #[error("the control channel failed: {0}")]
    Socket(#[from] io::Error),
    /// The other side speaks another version.
    #[error(
        "the other side speaks version {0} of the control protocol, this one version {PROTOCOL_VERSION}: \
         build the program, gossamer-launch and gossamer-daemon from the same gossamer"
    )]
    Version(u8),
    /// The packet is not a message.
    #[error("a packet of {bytes} bytes on the control channel is not a message: {what}")]
    Malformed {
        /// Length of the packet in bytes.
        bytes: usize,
        /// The defect.
        what: &'static str,
    },
}

impl Message {
    /// Returns the packet of this message, at most [`MAX_MESSAGE_BYTES`] long; a longer reason is cut at a character
    /// boundary.
    ///
    /// # Panics
    /// If an endpoint is longer than [`MAX_ENDPOINT_BYTES`], or an answer longer than [`MAX_SEEN_BYTES`]: no machine
    /// makes such.
    ///
    /// ```
    /// use gossamer::control::Message;
    /// let message = Message::Finished { status: 3 };
    /// assert_eq!(Message::decode(&message.encode()).unwrap(), message);
    /// ```
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![PROTOCOL_VERSION];
        match self {
            Message::Endpoint { bytes: endpoint } => {
                bytes.push(ENDPOINT);
                push_endpoint(&mut bytes, endpoint);
            }
            Message::Secret { key } => {
                bytes.push(SECRET);
                bytes.extend_from_slice(key.as_bytes());
            }
            Message::Peer { machine, endpoint } => {
                bytes.push(PEER);
                bytes.extend_from_slice(&machine.to_le_bytes());
                push_endpoint(&mut bytes, endpoint);
            }
            Message::Ready { pid, slots_bytes } => {
                bytes.push(READY);
                bytes.extend_from_slice(&pid.to_le_bytes());
                bytes.extend_from_slice(&slots_bytes.to_le_bytes());
            }
            Message::Finished { status } => bytes.extend_from_slice(&[FINISHED, *status]),
            Message::Failed { reason } => {
                bytes.push(FAILED);
                push_text(&mut bytes, reason);
            }
            Message::Lost { machine, reason } => {
                bytes.push(LOST);
                bytes.extend_from_slice(&machine.to_le_bytes());
                push_text(&mut bytes, reason);
            }
            Message::Look { ask, look } => {
                bytes.push(LOOK);
                bytes.extend_from_slice(&ask.to_le_bytes());
                bytes.extend_from_slice(&look.to_bytes());
            }
            Message::Seen { ask, is_last, bytes: seen } => {
                assert!(seen.len() <= MAX_SEEN_BYTES, "an answer in parts of {} bytes", seen.len());
                bytes.push(SEEN);
                bytes.extend_from_slice(&ask.to_le_bytes());
                bytes.push(u8::from(*is_last));
                bytes.extend_from_slice(seen);
            }
            Message::End { reason } => {
                bytes.push(END);
                push_text(&mut bytes, reason);
            }
        }
        bytes
    }

    /// Decodes the message in a packet.
    ///
    /// # Errors
    /// [`ControlError::Version`] or [`ControlError::Malformed`]. Never panics, for any bytes.
    ///
    /// ```
    /// use gossamer::control::{ControlError, Message, PROTOCOL_VERSION};
    /// assert!(matches!(Message::decode(&[]), Err(ControlError::Malformed { bytes: 0, .. })));
    /// let version = PROTOCOL_VERSION + 1;
    /// assert!(matches!(Message::decode(&[version]), Err(ControlError::Version(other)) if other == version));
    /// ```
    pub fn decode(packet: &[u8]) -> Result<Message, ControlError> {
        let malformed = |what| ControlError::Malformed { bytes: packet.len(), what };
        if packet.len() > MAX_MESSAGE_BYTES {
            return Err(malformed("it is too long"));
        }
        let (&version, rest) = packet.split_first().ok_or_else(|| malformed("it is empty"))?;
        if version != PROTOCOL_VERSION {
            return Err(ControlError::Version(version));
        }
        let (&kind, body) = rest.split_first().ok_or_else(|| malformed("it has no kind"))?;
        let text = |body: &[u8]| match std::str::from_utf8(body) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(malformed("its text is not UTF-8")),
        };
        let endpoint = |body: &[u8]| match body.len() {
            0..=MAX_ENDPOINT_BYTES => Ok(body.to_vec()),
            _ => Err(malformed("its endpoint is too long")),
        };
        let numbered = || match body.split_first_chunk() {
            Some((machine, rest)) => Ok((u16::from_le_bytes(*machine), rest)),
            None => Err(malformed("it names no machine")),
        };
        Ok(match kind {
            ENDPOINT => Message::Endpoint { bytes: endpoint(body)? },
            SECRET => {
                let key = body.try_into().map_err(|_| malformed("Secret carries 32 bytes"))?;
                Message::Secret { key: Key::from_bytes(key) }
            }
            PEER => {
                let (machine, rest) = numbered()?;
                Message::Peer { machine, endpoint: endpoint(rest)? }
            }
            READY => {
                let wrong = || malformed("Ready carries 12 bytes");
                let (pid, slots) = body.split_first_chunk().ok_or_else(wrong)?;
                let slots = slots.try_into().map_err(|_| wrong())?;
                Message::Ready { pid: u32::from_le_bytes(*pid), slots_bytes: u64::from_le_bytes(slots) }
            }
            FINISHED => match body {
                [status] => Message::Finished { status: *status },
                _ => return Err(malformed("Finished carries 1 byte")),
            },
            FAILED => Message::Failed { reason: text(body)? },
            LOST => {
                let (machine, rest) = numbered()?;
                Message::Lost { machine, reason: text(rest)? }
            }
            LOOK => {
                let (ask, look) = body.split_first_chunk().ok_or_else(|| malformed("Look has no number"))?;
                let look = Look::from_bytes(look).ok_or_else(|| malformed("it asks for what there is not"))?;
                Message::Look { ask: u32::from_le_bytes(*ask), look }
            }
            SEEN => {
                let (ask, rest) = body.split_first_chunk().ok_or_else(|| malformed("Seen has no number"))?;
                match rest.split_first() {
                    Some((is_last @ (0 | 1), bytes)) if bytes.len() <= MAX_SEEN_BYTES => {
                        Message::Seen { ask: u32::from_le_bytes(*ask), is_last: *is_last == 1, bytes: bytes.to_vec() }
                    }
                    _ => return Err(malformed("Seen is too long, or not known to be the last")),
                }
            }
            END => Message::End { reason: text(body)? },
            _ => return Err(malformed("its kind is unknown")),
        })
    }
}

fn push_endpoint(bytes: &mut Vec<u8>, endpoint: &[u8]) {
    assert!(
        endpoint.len() <= MAX_ENDPOINT_BYTES,
        "an endpoint of {} bytes, {MAX_ENDPOINT_BYTES} are allowed",
        endpoint.len()
    );
    bytes.extend_from_slice(endpoint);
}

fn push_text(bytes: &mut Vec<u8>, text: &str) {
    let end = text.floor_char_boundary(MAX_TEXT_BYTES);
    bytes.extend_from_slice(&text.as_bytes()[..end]);
}

#[cfg(test)]
mod tests;
