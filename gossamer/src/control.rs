//! Control channel between a machine and its launcher: the messages and their bytes. The socket is in `channel`.
//!
//! Both sides use this file: a machine holds the [`Control`] that its [`Bootstrap`](crate::bootstrap::Bootstrap)
//! carried, the launcher holds the other end. The actions that follow on a message are elsewhere.
//!
//! Invariants: one message is one packet, at most [`MAX_MESSAGE_BYTES`] long: the protocol's version in one byte, and
//! the message as [`codec`] encodes it. The order in a healthy program is
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
//! and in one that outlives some of its machines (`membership`), once all are ready:
//!
//! ```text
//! machine -> launcher   Lost(machine, reason)     as above, but the machine goes on
//! launcher -> machine   Lost(machine, reason)     that machine is lost
//! launcher -> machine   Fence(epoch, dead)        these machines are lost: shut them out
//! machine -> launcher   Fenced(epoch)             they are shut out here
//! launcher -> machine   Settled(epoch)            they are everywhere: answer the calls to them
//! machine -> launcher   Beat(number)              it lives
//! launcher -> machine   Answer(beat, has_begun)   its lease counts from the sending of that beat; are all ready?
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
use serde::{Deserialize, Serialize, Serializer};

use crate::codec;

pub use channel::Control;
pub use look::Look;

/// Version of the messages and of the bootstrap variables. Both sides must have the same.
pub const PROTOCOL_VERSION: u8 = 7;

/// Longest packet, in bytes; a longer one is an error.
pub const MAX_MESSAGE_BYTES: usize = 32 * 1024;
/// Longest endpoint, in bytes.
pub const MAX_ENDPOINT_BYTES: usize = 16 * 1024;
/// Longest part of an answer to [`Message::Look`], in bytes.
pub const MAX_SEEN_BYTES: usize = 24 * 1024;
/// Longest text, in bytes. Longer ones are cut when they are sent.
pub const MAX_TEXT_BYTES: usize = 4000;

/// Message between a machine and its launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Machine to launcher: how the other machines find this one.
    Endpoint {
        /// Opaque to the launcher; at most [`MAX_ENDPOINT_BYTES`].
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Launcher to machine: the key of the program.
    Secret {
        /// The same for all machines, made anew for each program; it is never printed.
        #[serde(with = "secret")]
        key: Key,
    },
    /// Launcher to machine: the endpoint of another machine.
    Peer {
        /// Number of the other machine.
        machine: u16,
        /// The endpoint, unchanged.
        #[serde(with = "serde_bytes")]
        endpoint: Vec<u8>,
    },
    /// Machine to launcher: gossamer runs in this process. Carries the process id, which differs from the one that the
    /// launcher knows where the program runs behind a wrapper (`perf stat PROGRAM`).
    Ready {
        /// Process id of the machine.
        pid: u32,
        /// Bytes of the slots in its memory, by the layout of the program (thesis 3.2.8); fewer are in use.
        slots_bytes: u64,
        /// Number of machines that the program is to outlive, the same for all.
        survives: u16,
    },
    /// Machine 0 to launcher: `gsm_main` has returned; the program ends with this exit status.
    Finished {
        /// Exit status of the program.
        status: u8,
    },
    /// Machine to launcher: this machine cannot go on.
    Failed {
        /// The cause, in words.
        #[serde(serialize_with = "cut")]
        reason: String,
    },
    /// Machine to launcher: this machine cannot reach another one any more. The launcher may know a better cause, or
    /// hear of it soon (that machine's death); the machine waits for `End`.
    ///
    /// Launcher to machine, before `Fence`: this machine is lost, for this reason.
    Lost {
        /// Number of the lost machine.
        machine: u16,
        /// The fabric's reason, or the launcher's.
        #[serde(serialize_with = "cut")]
        reason: String,
    },
    /// Launcher to machine: these machines, in ascending order, are lost.
    Fence {
        /// Number of the verdict; each has the machines of all before it.
        epoch: u32,
        /// The machines.
        dead: Vec<u16>,
    },
    /// Machine to launcher: nothing that the machines of this epoch send can arrive any more.
    Fenced {
        /// Number of the verdict.
        epoch: u32,
    },
    /// Launcher to machine: the calls to the machines of this epoch may be answered.
    Settled {
        /// Number of the verdict.
        epoch: u32,
    },
    /// Machine to launcher: it lives.
    Beat {
        /// Counts up from 1.
        number: u64,
    },
    /// Launcher to machine: a beat has come.
    Answer {
        /// Its number.
        beat: u64,
        /// Whether all machines are ready: from then on the program outlives losses.
        has_begun: bool,
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
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Launcher to machine: stop, exit with status 0.
    End {
        /// The cause, in words.
        #[serde(serialize_with = "cut")]
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
        what: String,
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
        if let Err(what) = self.check() {
            panic!("a message that no machine sends: {what}");
        }
        [&[PROTOCOL_VERSION][..], &codec::encode(self)].concat()
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
            return Err(malformed("it is too long".to_owned()));
        }
        let (&version, rest) = packet.split_first().ok_or_else(|| malformed("it is empty".to_owned()))?;
        if version != PROTOCOL_VERSION {
            return Err(ControlError::Version(version));
        }
        let message: Message = codec::decode::<_, MAX_MESSAGE_BYTES>(rest).map_err(malformed)?;
        message.check().map_err(|what| malformed(what.to_owned()))?;
        Ok(message)
    }

    /// Checks the lengths of what the message carries.
    fn check(&self) -> Result<(), &'static str> {
        match self {
            Message::Endpoint { bytes } | Message::Peer { endpoint: bytes, .. } if bytes.len() > MAX_ENDPOINT_BYTES => {
                Err("its endpoint is too long")
            }
            Message::Seen { bytes, .. } if bytes.len() > MAX_SEEN_BYTES => Err("its part of an answer is too long"),
            _ => Ok(()),
        }
    }
}

/// Encodes a text, cut at a character boundary.
fn cut<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].serialize(to)
}

/// A key as its bytes. The channel is secret already.
mod secret {
    use comm::secure::{KEY_BYTES, Key};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(key: &Key, to: S) -> Result<S::Ok, S::Error> {
        key.as_bytes().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Key, D::Error> {
        <[u8; KEY_BYTES]>::deserialize(from).map(Key::from_bytes)
    }
}

#[cfg(test)]
mod tests;
