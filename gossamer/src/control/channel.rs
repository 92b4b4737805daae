//! Socket between a machine and its launcher. The messages are in `control.rs`.
//!
//! Invariant: one message is one packet of a `SOCK_SEQPACKET` pair, so there are no partial messages and no buffer
//! between calls.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::{ControlError, MAX_MESSAGE_BYTES, Message};

/// One end of a control channel. All calls take `&self`: one thread may wait in [`Control::receive`] while others send.
///
/// ```
/// use gossamer::control::{Control, Message};
/// let (machine, launcher) = Control::pair().unwrap();
/// machine.send(&Message::Finished { status: 3 }).unwrap();
/// assert_eq!(launcher.receive().unwrap(), Some(Message::Finished { status: 3 }));
/// assert!(launcher.try_receive().is_err()); // nothing there now
/// launcher.try_send(&Message::End { reason: "it has finished".into() }).unwrap();
/// drop(launcher);
/// assert!(matches!(machine.receive().unwrap(), Some(Message::End { .. })));
/// assert_eq!(machine.receive().unwrap(), None); // the launcher is gone
/// ```
#[derive(Debug)]
pub struct Control {
    socket: OwnedFd,
}

impl Control {
    /// Makes a new channel: both its ends, closed on exec.
    ///
    /// # Errors
    /// If the process has no file descriptors left.
    ///
    /// Example: at the [type](Self).
    pub fn pair() -> io::Result<(Control, Control)> {
        let flags = SocketFlags::CLOEXEC;
        let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Control { socket: a }, Control { socket: b }))
    }

    /// Makes an end of a descriptor that another process passed on.
    ///
    /// ```
    /// use gossamer::control::{Control, Message};
    /// use std::os::fd::AsFd;
    /// let (machine, launcher) = Control::pair().unwrap();
    /// let machine = Control::from_socket(machine.as_fd().try_clone_to_owned().unwrap());
    /// machine.send(&Message::Failed { reason: "no memory".into() }).unwrap();
    /// assert_eq!(launcher.receive().unwrap(), Some(Message::Failed { reason: "no memory".into() }));
    /// ```
    #[must_use]
    pub fn from_socket(socket: OwnedFd) -> Control {
        Control { socket }
    }

    /// Ends the messages to this end: its receiver gets those sent so far, and then end of file. For a pair with both
    /// ends in one process.
    pub(crate) fn end_of_messages(&self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Read); // the other end may have gone
    }

    /// Sends one message; waits while the channel is full.
    ///
    /// # Errors
    /// [`ControlError::Socket`]; of kind `BrokenPipe` if the other process is gone (no signal is raised).
    ///
    /// Example: at the [type](Self).
    pub fn send(&self, message: &Message) -> Result<(), ControlError> {
        self.send_packet(message, SendFlags::NOSIGNAL)
    }

    /// Sends one message if the channel has room for it now; otherwise an error of kind `WouldBlock`. For launchers,
    /// which a machine that does not read must not block.
    ///
    /// # Errors
    /// Same as [`Control::send`], and `WouldBlock`.
    ///
    /// Example: at the [type](Self).
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

    /// Waits for the next message; `None` if the other process is gone.
    ///
    /// # Errors
    /// Same as [`Message::decode`], and [`ControlError::Socket`].
    ///
    /// Example: at the [type](Self).
    pub fn receive(&self) -> Result<Option<Message>, ControlError> {
        self.receive_packet(RecvFlags::empty())
    }

    /// Returns the next message if there is one now; otherwise an error of kind `WouldBlock`. `Ok(None)` if the other
    /// process is gone.
    ///
    /// # Errors
    /// Same as [`Control::receive`], and `WouldBlock`.
    ///
    /// Example: at the [type](Self).
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
