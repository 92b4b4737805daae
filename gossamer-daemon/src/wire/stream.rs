//! Messages over streams: whole ones, one after the other.
//!
//! Between hosts they travel in [`comm::secure`] connections, between a daemon and its parts over a pair of local
//! sockets. Both are seen as a [`Sender`] and a [`Receiver`], which two threads may own.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use comm::secure::{SecureReader, SecureWriter};

use super::message::{MAX_MESSAGE_BYTES, MessageError, Wire};

/// Reason why no message could be sent or received.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The stream failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The secure connection failed: another key, cut off, tampered with.
    #[error(transparent)]
    Secure(#[from] comm::Error),
    /// The received bytes are no message.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The other side has closed the connection.
    #[error("the connection was closed")]
    Closed,
}

/// The sending end.
pub trait Sender: Send {
    /// Sends one message, in bytes; waits while the stream is full.
    ///
    /// # Errors
    /// When the stream is broken.
    fn send_bytes(&mut self, message: &[u8]) -> Result<(), WireError>;

    /// Sends one message.
    ///
    /// # Errors
    /// When the stream is broken.
    fn send_message<M: Wire>(&mut self, message: &M) -> Result<(), WireError>
    where
        Self: Sized,
    {
        self.send_bytes(&message.to_bytes())
    }
}

/// The receiving end.
pub trait Receiver: Send {
    /// Waits for the next message.
    ///
    /// # Errors
    /// [`WireError::Closed`] at the orderly end; anything else when the stream is broken.
    fn receive_bytes(&mut self) -> Result<Vec<u8>, WireError>;

    /// Waits for the next message, and decodes it.
    ///
    /// # Errors
    /// Same as [`Receiver::receive_bytes`], and [`WireError::Message`].
    fn receive_message<M: Wire>(&mut self) -> Result<M, WireError>
    where
        Self: Sized,
    {
        Ok(M::from_bytes(&self.receive_bytes()?)?)
    }
}

impl Sender for SecureWriter {
    fn send_bytes(&mut self, message: &[u8]) -> Result<(), WireError> {
        Ok(SecureWriter::send(self, message)?)
    }
}

impl Receiver for SecureReader {
    fn receive_bytes(&mut self) -> Result<Vec<u8>, WireError> {
        SecureReader::receive(self, MAX_MESSAGE_BYTES)?.ok_or(WireError::Closed)
    }
}

/// One direction of a pair of local sockets: a length of 4 bytes, then the message.
impl Sender for UnixStream {
    fn send_bytes(&mut self, message: &[u8]) -> Result<(), WireError> {
        debug_assert!(message.len() <= MAX_MESSAGE_BYTES);
        let length = u32::try_from(message.len()).map_err(io::Error::other)?;
        self.write_all(&[&length.to_le_bytes()[..], message].concat())?;
        Ok(())
    }
}

impl Receiver for UnixStream {
    fn receive_bytes(&mut self) -> Result<Vec<u8>, WireError> {
        let mut length = [0; 4];
        match self.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(WireError::Closed),
            other => other?,
        }
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_MESSAGE_BYTES {
            return Err(MessageError::Malformed { bytes: length, what: "too long".into() }.into());
        }
        let mut message = vec![0; length];
        self.read_exact(&mut message)?;
        Ok(message)
    }
}
