//! The control channel between a machine and whoever started it: the messages, their bytes, and the socket.
//!
//! Both sides use this file: a machine holds the [`Control`] that its [`Bootstrap`](crate::bootstrap::Bootstrap)
//! carried, the launcher holds the other end. What either side *does* on a message is not here.
//!
//! Invariants: one message is one packet of a `SOCK_SEQPACKET` pair, so there are no partial messages and no buffer
//! between calls; a packet is at most [`MAX_MESSAGE_BYTES`] long; its first byte is the protocol's version and its
//! second the kind. The order of a healthy program is
//!
//! ```text
//! machine -> launcher   Ready                          once, when gossamer runs in the process
//! machine -> launcher   Finished(status)               once, from machine 0 only, when its gsm_main has returned
//! machine -> launcher   Failed(reason)                 instead: this machine cannot go on, and why
//! launcher -> machine   End(reason)                    at most once: stop, and exit with status 0
//! ```
//!
//! End of file on either side means that the other process is gone.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Version of the messages and of the bootstrap variables. Both sides must have the same.
pub const PROTOCOL_VERSION: u8 = 1;

/// The longest packet, in bytes. Longer texts are cut when they are sent; a longer packet is an error.
pub const MAX_MESSAGE_BYTES: usize = 4096;

const HEADER_BYTES: usize = 2;
const READY: u8 = 1;
const FINISHED: u8 = 2;
const FAILED: u8 = 3;
const END: u8 = 4;

/// What the two sides say to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Machine to launcher: gossamer runs in this process. Carries the process id, which differs from the one the
    /// launcher started where the program runs behind a wrapper (`perf stat PROGRAM`).
    Ready {
        /// Process id of the machine.
        pid: u32,
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
    /// Launcher to machine: stop, exit with status 0.
    End {
        /// The cause, in words.
        reason: String,
    },
}

/// Why a message could not be sent or understood.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The socket failed; `BrokenPipe` means that the other process is gone.
    #[error("the control channel failed: {0}")]
    Socket(#[from] io::Error),
    /// The other side speaks another version.
    #[error(
        "the other side speaks version {0} of the control protocol, this one version {PROTOCOL_VERSION}: \
         build the program and gossamer-launch from the same gossamer"
    )]
    Version(u8),
    /// The packet is not a message.
    #[error("a packet of {bytes} bytes on the control channel is not a message: {what}")]
    Malformed {
        /// Length of the packet in bytes.
        bytes: usize,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl Message {
    /// The packet of this message, at most [`MAX_MESSAGE_BYTES`] long; a longer reason is cut at a character.
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
            Message::Ready { pid } => {
                bytes.push(READY);
                bytes.extend_from_slice(&pid.to_le_bytes());
            }
            Message::Finished { status } => bytes.extend_from_slice(&[FINISHED, *status]),
            Message::Failed { reason } => push_text(&mut bytes, FAILED, reason),
            Message::End { reason } => push_text(&mut bytes, END, reason),
        }
        bytes
    }

    /// The message in a packet.
    ///
    /// # Errors
    /// [`ControlError::Version`] or [`ControlError::Malformed`]; never panics, whatever the bytes are.
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
        let text = || match std::str::from_utf8(body) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(malformed("its text is not UTF-8")),
        };
        match kind {
            READY => {
                let pid = body.try_into().map_err(|_| malformed("Ready carries 4 bytes"))?;
                Ok(Message::Ready { pid: u32::from_le_bytes(pid) })
            }
            FINISHED => match body {
                [status] => Ok(Message::Finished { status: *status }),
                _ => Err(malformed("Finished carries 1 byte")),
            },
            FAILED => Ok(Message::Failed { reason: text()? }),
            END => Ok(Message::End { reason: text()? }),
            _ => Err(malformed("its kind is unknown")),
        }
    }
}

fn push_text(bytes: &mut Vec<u8>, kind: u8, text: &str) {
    bytes.push(kind);
    let end = text.floor_char_boundary(MAX_MESSAGE_BYTES - HEADER_BYTES);
    bytes.extend_from_slice(&text.as_bytes()[..end]);
}

/// One end of a control channel. All calls take `&self`: one thread may wait in [`Control::receive`] while others send.
#[derive(Debug)]
pub struct Control {
    socket: OwnedFd,
}

impl Control {
    /// A new channel: both its ends, closed on exec.
    ///
    /// # Errors
    /// When the process has no file descriptors left.
    pub fn pair() -> io::Result<(Control, Control)> {
        let flags = SocketFlags::CLOEXEC;
        let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Control { socket: a }, Control { socket: b }))
    }

    /// The end behind a descriptor that another process passed on.
    #[must_use]
    pub fn from_socket(socket: OwnedFd) -> Control {
        Control { socket }
    }

    /// Sends one message.
    ///
    /// # Errors
    /// [`ControlError::Socket`]; of kind `BrokenPipe` when the other process is gone (no signal is raised).
    pub fn send(&self, message: &Message) -> Result<(), ControlError> {
        let packet = message.encode();
        loop {
            match rustix::net::send(&self.socket, &packet, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()), // a packet goes whole or not at all
                Err(Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
    }

    /// Waits for the next message; `None` when the other process is gone.
    ///
    /// # Errors
    /// As [`Message::decode`], and [`ControlError::Socket`].
    pub fn receive(&self) -> Result<Option<Message>, ControlError> {
        self.receive_packet(RecvFlags::empty())
    }

    /// The next message if there is one now: an error of kind `WouldBlock` when there is none, `Ok(None)` when the
    /// other process is gone.
    ///
    /// # Errors
    /// As [`Control::receive`], and `WouldBlock`.
    pub fn try_receive(&self) -> Result<Option<Message>, ControlError> {
        self.receive_packet(RecvFlags::DONTWAIT)
    }

    fn receive_packet(&self, flags: RecvFlags) -> Result<Option<Message>, ControlError> {
        let mut packet = [0u8; MAX_MESSAGE_BYTES + 1];
        loop {
            match rustix::net::recv(&self.socket, &mut packet[..], flags) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(None),
                Ok((bytes, _)) => return Message::decode(&packet[..bytes]).map(Some),
                Err(Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [Message; 4] {
        [
            Message::Ready { pid: 0x1234_5678 },
            Message::Finished { status: 255 },
            Message::Failed { reason: "the fabric broke: größer".into() },
            Message::End { reason: String::new() },
        ]
    }

    #[test]
    fn messages_survive_the_wire() {
        let (machine, launcher) = Control::pair().unwrap();
        for message in all() {
            machine.send(&message).unwrap();
        }
        drop(machine);
        for message in all() {
            assert_eq!(launcher.receive().unwrap(), Some(message));
        }
        assert_eq!(launcher.receive().unwrap(), None);
        match launcher.send(&Message::End { reason: "late".into() }) {
            Err(ControlError::Socket(error)) => assert_eq!(error.kind(), io::ErrorKind::BrokenPipe),
            other => panic!("a send to nobody gave {other:?}"),
        }
    }

    #[test]
    fn nothing_there_is_would_block() {
        let (_machine, launcher) = Control::pair().unwrap();
        match launcher.try_receive() {
            Err(ControlError::Socket(error)) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            other => panic!("an empty channel gave {other:?}"),
        }
    }

    #[test]
    fn long_reasons_are_cut_at_a_character() {
        let reason = "ü".repeat(MAX_MESSAGE_BYTES);
        let packet = Message::Failed { reason: reason.clone() }.encode();
        assert!(packet.len() <= MAX_MESSAGE_BYTES);
        match Message::decode(&packet).unwrap() {
            Message::Failed { reason: cut } => assert!(!cut.is_empty() && reason.starts_with(&cut)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn damaged_packets_are_errors() {
        for message in all() {
            let packet = message.encode();
            for len in 0..HEADER_BYTES {
                assert!(Message::decode(&packet[..len]).is_err());
            }
            let mut other = packet.clone();
            other[0] = PROTOCOL_VERSION + 1;
            assert!(matches!(Message::decode(&other), Err(ControlError::Version(_))));
        }
        let v = PROTOCOL_VERSION;
        let too_long = vec![v; MAX_MESSAGE_BYTES + 1];
        for bad in [&[v, 0][..], &[v, 99], &[v, READY, 1], &[v, READY, 1, 2, 3, 4, 5], &[v, FINISHED], &too_long] {
            assert!(matches!(Message::decode(bad), Err(ControlError::Malformed { .. })), "{bad:?}");
        }
        assert!(Message::decode(&[v, FAILED, 0xff, 0xfe]).is_err());
    }
}
