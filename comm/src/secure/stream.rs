//! Secure connection over a blocking [`TcpStream`]. Not here: the messages themselves (`handshake.rs`, `frame.rs`).
//!
//! The caller may bound every wait: the handshake as a whole; for a message, the time without progress, since
//! a long message takes long on a slow link. A receive that timed out may be called again: received bytes are
//! kept.

use super::frame::{self, Broken, FRAME_BYTES_MAX, Opener, Sealer};
use super::handshake::{self, Confirming, Initiator, MESSAGE_BYTES_MAX, Refusal, Responder, Session};
use super::key::Key;
use super::keys::Keys;
use crate::deadline::Deadline;
use crate::error::Error;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// A connection on which both sides have proven that they have the key. It carries messages of any length,
/// whole and in order.
///
/// # Example
/// ```
/// use comm::secure::{Key, SecureStream};
/// use std::net::{TcpListener, TcpStream};
/// use std::time::Duration;
///
/// const TIMEOUT: Duration = Duration::from_secs(60);
/// const PURPOSE: &str = "an example, version 1";
/// let key = Key::generate()?;
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let address = listener.local_addr()?;
/// std::thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
///     let client = scope.spawn(|| -> Result<Vec<u8>, comm::Error> {
///         let tcp = TcpStream::connect(address).expect("somebody listens");
///         let mut stream = SecureStream::connect(tcp, &key, PURPOSE, TIMEOUT)?;
///         stream.send(b"marco")?;
///         Ok(stream.receive(1000)?.expect("an answer before the end"))
///     });
///     let mut stream = SecureStream::accept(listener.accept()?.0, &key, PURPOSE, TIMEOUT)?;
///     assert_eq!(stream.receive(1000)?.expect("a message"), b"marco");
///     stream.send(b"polo")?;
///     assert_eq!(client.join().unwrap()?, b"polo");
///     Ok(())
/// })
/// # .unwrap(); Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SecureStream {
    reader: SecureReader,
    writer: SecureWriter,
}

/// The receiving half, for its own thread.
pub struct SecureReader {
    tcp: Arc<TcpStream>,
    peer: String,
    opener: Opener,
    timeout: Option<Duration>,
    /// Set when the connection is of no more use: later calls return the same error.
    broken: Option<Broken>,
    scratch: Box<[u8]>,
}

/// The sending half, for its own thread.
pub struct SecureWriter {
    tcp: Arc<TcpStream>,
    peer: String,
    sealer: Sealer,
    is_broken: bool,
    sealed: Vec<u8>,
}

/// A connection whose other side has sent its claim, and waits for the answer.
pub struct Accepting {
    tcp: TcpStream,
    peer: String,
    deadline: Option<Instant>,
    responder: Responder,
    claim: Vec<u8>,
}

impl SecureStream {
    /// Makes a connection secure, as the side that connected. `purpose` (at most 64 bytes) must be equal on
    /// both sides; `timeout` bounds the whole handshake.
    ///
    /// # Errors
    /// [`Error::WrongKey`], [`Error::NotGossamer`], [`Error::OtherVersion`], [`Error::OtherPurpose`],
    /// [`Error::Unwanted`], [`Error::TimedOut`], [`Error::Closed`]; [`Error::System`].
    pub fn connect(tcp: TcpStream, key: &Key, purpose: &str, timeout: Duration) -> Result<SecureStream, Error> {
        Ok(SecureStream::connect_claiming(tcp, key, purpose, b"", timeout)?.0)
    }

    /// Like [`connect`](SecureStream::connect), with a claim for the other side (at most
    /// [`CLAIM_BYTES_MAX`](super::CLAIM_BYTES_MAX) bytes, authentic but not secret). Returns its answer too.
    ///
    /// # Errors
    /// As for [`connect`](SecureStream::connect); [`Error::TooLong`].
    pub fn connect_claiming(
        tcp: TcpStream,
        key: &Key,
        purpose: &str,
        claim: &[u8],
        timeout: Duration,
    ) -> Result<(SecureStream, Vec<u8>), Error> {
        let peer = name_of(&tcp);
        let (initiating, deadline) = (Initiating::new(key, purpose, claim)?, Deadline::after(timeout));
        initiating.send(&tcp, &peer, timeout)?;
        let (session, answer) = initiating.finish(&tcp, &peer, deadline.left())?;
        Ok((SecureStream::over(tcp, peer, session)?, answer))
    }

    /// Makes a connection secure, as the side that accepted it.
    ///
    /// # Errors
    /// As for [`connect`](SecureStream::connect). Bytes of the other side cause nothing worse than an error
    /// of this call.
    pub fn accept(tcp: TcpStream, key: &Key, purpose: &str, timeout: Duration) -> Result<SecureStream, Error> {
        SecureStream::accept_claim(tcp, key, purpose, timeout)?.answer(b"")
    }

    /// Like [`accept`](SecureStream::accept), for another side with the key or the old one; returns whether it has the
    /// old one.
    ///
    /// # Errors
    /// As for [`accept`](SecureStream::accept).
    pub fn accept_any(
        tcp: TcpStream,
        keys: &Keys,
        purpose: &str,
        timeout: Duration,
    ) -> Result<(SecureStream, bool), Error> {
        let (accepting, place) = SecureStream::accept_claim_of(tcp, &keys.all(), purpose, timeout)?;
        Ok((accepting.answer(b"")?, place > 0))
    }

    /// First half of [`accept`](SecureStream::accept): returns the claim of the other side, to be answered or refused.
    ///
    /// # Errors
    /// As for [`accept`](SecureStream::accept).
    pub fn accept_claim(tcp: TcpStream, key: &Key, purpose: &str, timeout: Duration) -> Result<Accepting, Error> {
        SecureStream::accept_claim_of(tcp, &[key], purpose, timeout).map(|(accepting, _)| accepting)
    }

    /// The same with any of these keys; returns the place of the other side's.
    fn accept_claim_of(
        tcp: TcpStream,
        keys: &[&Key],
        purpose: &str,
        timeout: Duration,
    ) -> Result<(Accepting, usize), Error> {
        let (peer, deadline) = (name_of(&tcp), Instant::now().checked_add(timeout));
        let content = read_message(&tcp, &peer, deadline)?;
        match Responder::of_any(keys, purpose, &content) {
            Ok((responder, claim, place)) => Ok((Accepting { tcp, peer, deadline, responder, claim }, place)),
            Err(refusal) => {
                refuse(&tcp, refusal, deadline);
                Err(refusal.at(peer))
            }
        }
    }

    fn over(tcp: TcpStream, peer: String, session: Session) -> Result<SecureStream, Error> {
        SecureStream::of_halves(tcp, peer, frame::split(session))
    }

    fn of_halves(tcp: TcpStream, peer: String, halves: (Opener, Sealer)) -> Result<SecureStream, Error> {
        let doing = || format!("setting up the connection to {peer}");
        tcp.set_read_timeout(None).map_err(Error::system(doing()))?;
        tcp.set_write_timeout(None).map_err(Error::system(doing()))?;
        tcp.set_nodelay(true).map_err(Error::system(doing()))?;
        let (opener, sealer) = halves;
        let tcp = Arc::new(tcp);
        let scratch = vec![0; FRAME_BYTES_MAX].into_boxed_slice();
        let reader =
            SecureReader { tcp: Arc::clone(&tcp), peer: peer.clone(), opener, timeout: None, broken: None, scratch };
        let writer = SecureWriter { tcp, peer, sealer, is_broken: false, sealed: Vec::new() };
        Ok(SecureStream { reader, writer })
    }

    /// Makes a connection that goes on from the [state](SecureReader::state) of a reader and that of its
    /// [writer](SecureWriter::state), by which the other side notices nothing: for a process that takes over the
    /// connections of another. Nothing else may use the connection any more.
    ///
    /// # Errors
    /// [`Error::Cipher`] where the bytes are no states; [`Error::System`].
    pub fn resume(tcp: TcpStream, reader: &[u8], writer: &[u8]) -> Result<SecureStream, Error> {
        let halves = Opener::resume(reader).zip(Sealer::resume(writer));
        let malformed = || Error::Cipher { reason: "the state of a connection is malformed".to_owned() };
        let peer = name_of(&tcp);
        SecureStream::of_halves(tcp, peer, halves.ok_or_else(malformed)?)
    }

    /// Sends a message; see [`SecureWriter::send`].
    ///
    /// # Errors
    /// As for [`SecureWriter::send`].
    pub fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.writer.send(message)
    }

    /// Receives a message; see [`SecureReader::receive`].
    ///
    /// # Errors
    /// As for [`SecureReader::receive`].
    pub fn receive(&mut self, limit_bytes: usize) -> Result<Option<Vec<u8>>, Error> {
        self.reader.receive(limit_bytes)
    }

    /// Bounds each later receive and send; `None` is no bound.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        self.reader.set_timeout(timeout)?;
        self.writer.set_timeout(timeout)
    }

    /// Returns the two halves, each of which may move to its own thread. The connection closes when both are dropped.
    pub fn split(self) -> (SecureReader, SecureWriter) {
        (self.reader, self.writer)
    }

    /// Returns the TCP connection, for its addresses, or to shut it down from another thread by way of a
    /// clone. Bytes written to it directly break it.
    pub fn tcp(&self) -> &TcpStream {
        &self.reader.tcp
    }
}

impl Accepting {
    /// Returns the claim of the other side. That side has the key; [`answer`](Accepting::answer) proves that
    /// it is live.
    pub fn claim(&self) -> &[u8] {
        &self.claim
    }

    /// Accepts, with an answer of at most [`ANSWER_BYTES_MAX`](super::ANSWER_BYTES_MAX) bytes.
    ///
    /// # Errors
    /// As for [`SecureStream::accept`]; [`Error::TooLong`].
    pub fn answer(self, answer: &[u8]) -> Result<SecureStream, Error> {
        let Accepting { tcp, peer, deadline, responder, .. } = self;
        let (confirming, message): (Confirming, _) = responder.answer(answer)?;
        write_all(&tcp, &peer, &message, deadline)?;
        let content = read_message(&tcp, &peer, deadline)?;
        let session = confirming.confirm(&content).map_err(|refusal| refusal.at(peer.clone()))?;
        SecureStream::over(tcp, peer, session)
    }

    /// Refuses: the other side gets [`Error::Unwanted`].
    pub fn refuse(self) {
        refuse(&self.tcp, Refusal::Unwanted, self.deadline);
    }
}

impl SecureReader {
    /// Returns the next message, or `None` when the other side has closed the connection between two
    /// messages. The end is not authentic: an attacker on the path can cause it.
    ///
    /// # Errors
    /// [`Error::TimedOut`] (may be called again), [`Error::TooLong`] for a message of more than
    /// `limit_bytes`, [`Error::Tampered`], [`Error::Closed`] within a message; [`Error::System`].
    pub fn receive(&mut self, limit_bytes: usize) -> Result<Option<Vec<u8>>, Error> {
        loop {
            if let Some(broken) = self.broken {
                return Err(self.error(broken));
            }
            match self.opener.next(limit_bytes) {
                Ok(Some(message)) => return Ok(Some(message)),
                Ok(None) => {}
                Err(broken) => {
                    self.broken = Some(broken);
                    continue;
                }
            }
            let deadline = self.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
            match read_some(&self.tcp, &self.peer, &mut self.scratch, deadline)? {
                0 if self.opener.is_within_message() => {
                    return Err(Error::Closed { peer: self.peer.clone(), doing: "within a message" });
                }
                0 => return Ok(None),
                bytes => self.opener.feed(&self.scratch[..bytes]),
            }
        }
    }

    fn error(&self, broken: Broken) -> Error {
        match broken {
            Broken::Tampered => Error::Tampered { peer: self.peer.clone() },
            Broken::TooLong { limit_bytes } => Error::MessageTooLong { peer: self.peer.clone(), limit_bytes },
        }
    }

    /// Returns the state of this half between two calls, for [`SecureStream::resume`]: its key, and the bytes received
    /// of the next message. It is as secret as the messages. Of no use after an error other than [`Error::TimedOut`].
    pub fn state(&self) -> Zeroizing<Vec<u8>> {
        self.opener.state()
    }

    /// Bounds the silence within each later [`receive`](SecureReader::receive); `None` is no bound.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        self.timeout = timeout;
        if timeout.is_none() {
            self.tcp.set_read_timeout(None).map_err(Error::system("lifting a time limit"))?;
        }
        Ok(())
    }

    /// Returns the TCP connection; see [`SecureStream::tcp`].
    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
    }
}

impl SecureWriter {
    /// Sends a message at once: it is on its way when this returns.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Closed`], [`Error::System`]: part of the message may have been
    /// sent, so the connection is of no more use for sending.
    pub fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        if self.is_broken {
            return Err(Error::Closed { peer: self.peer.clone(), doing: "when a message was sent before" });
        }
        self.is_broken = true;
        self.sealed.clear();
        self.sealer.seal(message, &mut self.sealed)?;
        let sent = (&*self.tcp).write_all(&self.sealed);
        sent.map_err(|error| explain(error, &self.peer, "take a message", "while a message was sent"))?;
        self.is_broken = false;
        // The buffer of a large message is freed.
        if self.sealed.capacity() > 4 * FRAME_BYTES_MAX {
            self.sealed = Vec::new();
        }
        Ok(())
    }

    /// Returns the state of this half between two calls, for [`SecureStream::resume`]. It is as secret as the messages.
    /// Of no use after an error.
    pub fn state(&self) -> Zeroizing<Vec<u8>> {
        self.sealer.state()
    }

    /// Bounds each wait for the other side to take more; `None` is no bound.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        // A timeout of 0 would mean none.
        let timeout = timeout.map(|timeout| timeout.max(Duration::from_millis(1)));
        self.tcp.set_write_timeout(timeout).map_err(Error::system("setting a time limit"))
    }

    /// Closes the connection both ways, also under a reader that waits.
    pub fn shut_down(&self) {
        // It may be closed already.
        let _ = self.tcp.shutdown(Shutdown::Both);
    }
}

/// Handshake of the side that connects, before there is a connection: the slow computations are done by then,
/// so the other side gets message 1 as soon as the connection exists.
pub(crate) struct Initiating {
    initiator: Initiator,
    first: Vec<u8>,
}

impl Initiating {
    /// # Errors
    /// [`Error::TooLong`] for a purpose or a claim that does not fit; [`Error::Cipher`].
    pub(crate) fn new(key: &Key, purpose: &str, claim: &[u8]) -> Result<Initiating, Error> {
        let (initiator, first) = Initiator::new(key, purpose, claim)?;
        Ok(Initiating { initiator, first })
    }

    /// Sends message 1 on a blocking connection. Leaves a timeout set on the socket.
    ///
    /// # Errors
    /// As for [`SecureStream::connect`].
    pub(crate) fn send(&self, tcp: &TcpStream, peer: &str, timeout: Duration) -> Result<(), Error> {
        write_all(tcp, peer, &self.first, Instant::now().checked_add(timeout))
    }

    /// Completes the handshake after message 1. Leaves timeouts set on the socket.
    ///
    /// # Errors
    /// As for [`SecureStream::connect`].
    pub(crate) fn finish(self, tcp: &TcpStream, peer: &str, timeout: Duration) -> Result<(Session, Vec<u8>), Error> {
        let deadline = Instant::now().checked_add(timeout);
        let content = read_message(tcp, peer, deadline)?;
        let (session, answer, third) = self.initiator.finish(&content).map_err(|refusal| refusal.at(peer))?;
        write_all(tcp, peer, &third, deadline)?;
        Ok((session, answer))
    }
}

/// Sends the initiator the reason, if that takes no long wait.
fn refuse(tcp: &TcpStream, refusal: Refusal, deadline: Option<Instant>) {
    // The refused initiator may have gone; the refusal stands.
    let _ = write_all(tcp, "", &refusal.message(), deadline);
    let _ = tcp.shutdown(Shutdown::Write);
}

/// Reads one message of the handshake, and no byte more.
pub(super) fn read_message(tcp: &TcpStream, peer: &str, deadline: Option<Instant>) -> Result<Vec<u8>, Error> {
    let mut received = Vec::with_capacity(MESSAGE_BYTES_MAX + 2);
    let mut wanted: usize = 2;
    loop {
        // The length comes first, then the rest; `first_message` has checked that the rest is no longer than
        // the buffer.
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        let bytes = read_some(tcp, peer, &mut buffer[..wanted - received.len()], deadline)?;
        if bytes == 0 {
            return Err(Error::Closed { peer: peer.to_owned(), doing: "before both sides knew each other" });
        }
        received.extend_from_slice(&buffer[..bytes]);
        if let Some((content, _)) = handshake::first_message(&received).map_err(|refusal| refusal.at(peer))? {
            return Ok(content.to_vec());
        }
        if let Some(length) = received.first_chunk() {
            wanted = 2 + usize::from(u16::from_le_bytes(*length));
        }
    }
}

fn read_some(mut tcp: &TcpStream, peer: &str, into: &mut [u8], deadline: Option<Instant>) -> Result<usize, Error> {
    const DOING: &str = "say anything";
    loop {
        if deadline.is_some() {
            // Bytes that are there need no timeout.
            match recv(tcp, &mut *into, RecvFlags::DONTWAIT) {
                Ok((_, bytes)) => return Ok(bytes),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(explain(error.into(), peer, DOING, "while it was waited for")),
            }
            let left = left(deadline, peer, DOING)?;
            tcp.set_read_timeout(left).map_err(Error::system("setting a time limit"))?;
        }
        match tcp.read(into) {
            Ok(bytes) => return Ok(bytes),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(explain(error, peer, DOING, "while it was waited for")),
        }
    }
}

pub(super) fn write_all(mut tcp: &TcpStream, peer: &str, bytes: &[u8], deadline: Option<Instant>) -> Result<(), Error> {
    let left = left(deadline, peer, "take a message")?;
    // A socket with room for all needs no timeout.
    let sent = send(tcp, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).unwrap_or(0);
    let bytes = bytes.get(sent..).unwrap_or_default();
    if bytes.is_empty() {
        return Ok(());
    }
    tcp.set_write_timeout(left).map_err(Error::system("setting a time limit"))?;
    tcp.write_all(bytes).map_err(|error| explain(error, peer, "take a message", "while a message was sent"))
}

/// Returns the time left, for a socket: never 0, which would be no limit.
fn left(deadline: Option<Instant>, peer: &str, doing: &'static str) -> Result<Option<Duration>, Error> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    match left {
        Some(Duration::ZERO) => Err(Error::TimedOut { peer: peer.to_owned(), doing }),
        left => Ok(left),
    }
}

fn explain(error: std::io::Error, peer: &str, waited_for: &'static str, closed: &'static str) -> Error {
    let peer = peer.to_owned();
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::TimedOut { peer, doing: waited_for },
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => {
            Error::Closed { peer, doing: closed }
        }
        _ => Error::System { doing: format!("on the connection to {peer}"), source: error },
    }
}

/// Returns the name of the other side, for messages.
fn name_of(tcp: &TcpStream) -> String {
    tcp.peer_addr().map_or_else(|_| "a peer that has gone".to_owned(), |address| address.to_string())
}

#[cfg(test)]
mod tests;
