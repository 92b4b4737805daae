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
//! machine -> starter   Card(bytes)             once: how the other machines find this one
//! starter -> machine   Secret(key)             once, the same to all machines of the program
//! starter -> machine   Peer(machine, card)     once for each other machine, when its card has come
//! machine -> starter   Ready(pid, slots)       once, when gossamer runs in the process
//! machine -> starter   Finished(status)        once, from machine 0 only, when its gsm_main has returned
//! starter -> machine   End(reason)             at most once: stop, and exit with status 0
//! ```
//!
//! and of one that is not, at any time:
//!
//! ```text
//! machine -> starter   Failed(reason)          this machine cannot go on, and why
//! machine -> starter   Lost(machine, reason)   it has lost another machine, which may be news to the starter or not
//! ```
//!
//! The *starter* is whoever started the process: `gossamer-launch`, or a host's daemon. It passes cards and the key on and
//! looks inside neither. End of file on either side means that the other process is gone.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use comm::secure::Key;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Version of the messages and of the bootstrap variables. Both sides must have the same.
pub const PROTOCOL_VERSION: u8 = 3;

/// The longest packet, in bytes; a longer one is an error.
pub const MAX_MESSAGE_BYTES: usize = 32 * 1024;
/// The longest card, in bytes.
pub const MAX_CARD_BYTES: usize = 16 * 1024;
/// The longest text, in bytes. Longer ones are cut when they are sent.
pub const MAX_TEXT_BYTES: usize = 4000;

const READY: u8 = 1;
const FINISHED: u8 = 2;
const FAILED: u8 = 3;
const END: u8 = 4;
const CARD: u8 = 5;
const SECRET: u8 = 6;
const PEER: u8 = 7;
const LOST: u8 = 8;

/// What the two sides say to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Machine to starter: how the other machines find this one.
    Card {
        /// Opaque to the starter; at most [`MAX_CARD_BYTES`].
        bytes: Vec<u8>,
    },
    /// Starter to machine: the key of the program.
    Secret {
        /// The same for all its machines, made afresh for each program; it is not printed.
        key: Key,
    },
    /// Starter to machine: what another machine has said on its card.
    Peer {
        /// Which machine.
        machine: u16,
        /// As it came.
        card: Vec<u8>,
    },
    /// Machine to starter: gossamer runs in this process. Carries the process id, which differs from the one the
    /// starter knows where the program runs behind a wrapper (`perf stat PROGRAM`).
    Ready {
        /// Process id of the machine.
        pid: u32,
        /// Bytes of the slots in its memory, by the layout of the program (thesis 3.2.8); what of them is in use is less.
        slots_bytes: u64,
    },
    /// Machine 0 to starter: `gsm_main` has returned; the program ends with this exit status.
    Finished {
        /// Exit status of the program.
        status: u8,
    },
    /// Machine to starter: this machine cannot go on.
    Failed {
        /// The cause, in words.
        reason: String,
    },
    /// Machine to starter: this machine cannot reach another one any more. The starter may know a better cause, or hear
    /// of it soon (that machine's death); the machine waits for `End`.
    Lost {
        /// Which machine is lost.
        machine: u16,
        /// What the fabric says about it.
        reason: String,
    },
    /// Starter to machine: stop, exit with status 0.
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
         build the program, gossamer-launch and gossamer-daemon from the same gossamer"
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
    /// # Panics
    /// If a card is longer than [`MAX_CARD_BYTES`]: no machine makes such.
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
            Message::Card { bytes: card } => {
                bytes.push(CARD);
                push_card(&mut bytes, card);
            }
            Message::Secret { key } => {
                bytes.push(SECRET);
                bytes.extend_from_slice(key.as_bytes());
            }
            Message::Peer { machine, card } => {
                bytes.push(PEER);
                bytes.extend_from_slice(&machine.to_le_bytes());
                push_card(&mut bytes, card);
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
            Message::End { reason } => {
                bytes.push(END);
                push_text(&mut bytes, reason);
            }
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
        let text = |body: &[u8]| match std::str::from_utf8(body) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(malformed("its text is not UTF-8")),
        };
        let card = |body: &[u8]| match body.len() {
            0..=MAX_CARD_BYTES => Ok(body.to_vec()),
            _ => Err(malformed("its card is too long")),
        };
        let numbered = || match body.split_first_chunk() {
            Some((machine, rest)) => Ok((u16::from_le_bytes(*machine), rest)),
            None => Err(malformed("it names no machine")),
        };
        Ok(match kind {
            CARD => Message::Card { bytes: card(body)? },
            SECRET => {
                let key = body.try_into().map_err(|_| malformed("Secret carries 32 bytes"))?;
                Message::Secret { key: Key::from_bytes(key) }
            }
            PEER => {
                let (machine, rest) = numbered()?;
                Message::Peer { machine, card: card(rest)? }
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
            END => Message::End { reason: text(body)? },
            _ => return Err(malformed("its kind is unknown")),
        })
    }
}

fn push_card(bytes: &mut Vec<u8>, card: &[u8]) {
    assert!(card.len() <= MAX_CARD_BYTES, "a card of {} bytes, {MAX_CARD_BYTES} are allowed", card.len());
    bytes.extend_from_slice(card);
}

fn push_text(bytes: &mut Vec<u8>, text: &str) {
    let end = text.floor_char_boundary(MAX_TEXT_BYTES);
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

    /// Sends one message; waits while the channel is full.
    ///
    /// # Errors
    /// [`ControlError::Socket`]; of kind `BrokenPipe` when the other process is gone (no signal is raised).
    pub fn send(&self, message: &Message) -> Result<(), ControlError> {
        self.send_packet(message, SendFlags::NOSIGNAL)
    }

    /// Sends one message if the channel has room for it now: an error of kind `WouldBlock` when it has not. For starters,
    /// which must not be held up by a machine that does not read.
    ///
    /// # Errors
    /// As [`Control::send`], and `WouldBlock`.
    pub fn try_send(&self, message: &Message) -> Result<(), ControlError> {
        self.send_packet(message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    fn send_packet(&self, message: &Message, flags: SendFlags) -> Result<(), ControlError> {
        let packet = message.encode();
        loop {
            match rustix::net::send(&self.socket, &packet, flags) {
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
    use comm::secure::KEY_BYTES;

    fn all() -> [Message; 8] {
        [
            Message::Card { bytes: (0..=255).cycle().take(MAX_CARD_BYTES).collect() },
            Message::Secret { key: Key::from_bytes([7; KEY_BYTES]) },
            Message::Peer { machine: 0x1234, card: vec![] },
            Message::Ready { pid: 0x1234_5678, slots_bytes: 1 << 40 },
            Message::Finished { status: 255 },
            Message::Failed { reason: "the fabric broke: größer".into() },
            Message::Lost { machine: 3, reason: "reset".into() },
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
    fn a_key_is_not_printed() {
        let text = format!("{:?}", Message::Secret { key: Key::from_bytes([77; KEY_BYTES]) });
        assert!(!text.contains("77"), "{text}");
    }

    #[test]
    fn who_does_not_read_holds_nobody_up() {
        let (_machine, starter) = Control::pair().unwrap();
        let message = Message::Peer { machine: 1, card: vec![0; MAX_CARD_BYTES] };
        let full = (0..1_000_000).find_map(|_| starter.try_send(&message).err());
        match full {
            Some(ControlError::Socket(error)) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            other => panic!("a channel without end: {other:?}"),
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
        assert!(packet.len() <= MAX_TEXT_BYTES + 2);
        match Message::decode(&packet).unwrap() {
            Message::Failed { reason: cut } => assert!(!cut.is_empty() && reason.starts_with(&cut)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn damaged_packets_are_errors() {
        for message in all() {
            let packet = message.encode();
            for len in 0..2 {
                assert!(Message::decode(&packet[..len]).is_err());
            }
            let mut other = packet.clone();
            other[0] = PROTOCOL_VERSION + 1;
            assert!(matches!(Message::decode(&other), Err(ControlError::Version(_))));
        }
        let v = PROTOCOL_VERSION;
        let too_long = vec![v; MAX_MESSAGE_BYTES + 1];
        let long_card = [&[v, CARD][..], &[0; MAX_CARD_BYTES + 1]].concat();
        let bad: [&[u8]; 11] = [
            &[v, 0],
            &[v, 99],
            &[v, READY, 1],
            &[v, READY, 1, 2, 3, 4, 5],
            &[v, READY, 1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8, 9],
            &[v, FINISHED],
            &[v, SECRET, 1],
            &[v, PEER, 1],
            &[v, LOST],
            &long_card,
            &too_long,
        ];
        for bad in bad {
            assert!(matches!(Message::decode(bad), Err(ControlError::Malformed { .. })), "{bad:?}");
        }
        assert!(Message::decode(&[v, FAILED, 0xff, 0xfe]).is_err());
    }
}
