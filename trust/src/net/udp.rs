//! UDP for fibers.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use super::socket::{Call, Socket, each_address};
use super::tcp::descriptor;
use crate::reactor::Direction;

/// UDP socket. See the [module](super).
///
/// ```
/// use trust::net::UdpSocket;
///
/// let (one, other) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
/// one.send_to(b"hello", other.local_addr().unwrap()).unwrap();
/// let mut datagram = [0; 16];
/// let (bytes, from) = other.recv_from(&mut datagram).unwrap();
/// assert_eq!((&datagram[..bytes], from), (&b"hello"[..], one.local_addr().unwrap()));
/// ```
pub struct UdpSocket {
    socket: Socket<std::net::UdpSocket>,
}

impl UdpSocket {
    /// Makes a socket at the first of these addresses that is available; port 0 lets the system choose one.
    ///
    /// # Errors
    /// The system's.
    ///
    /// ```
    /// let socket = trust::net::UdpSocket::bind("127.0.0.1:0")?;
    /// assert_ne!(socket.local_addr()?.port(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind(addresses: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        Self::from_std(each_address(addresses, std::net::UdpSocket::bind)?)
    }

    /// Takes over a socket of the standard library, which becomes non-blocking.
    ///
    /// # Errors
    /// The system's.
    ///
    /// ```
    /// let socket = trust::net::UdpSocket::from_std(std::net::UdpSocket::bind("127.0.0.1:0")?)?;
    /// assert!(socket.local_addr()?.ip().is_loopback());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<UdpSocket> {
        socket.set_nonblocking(true)?;
        Ok(UdpSocket { socket: Socket::new(socket) })
    }

    /// Sets the peer of [`send`](Self::send); datagrams of others are no longer received.
    ///
    /// # Errors
    /// The system's.
    ///
    /// ```
    /// use trust::net::UdpSocket;
    /// let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// one.connect(other.local_addr()?)?;
    /// one.send(b"hello")?;
    /// assert_eq!(other.recv(&mut [0; 16])?, 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect(&self, addresses: impl ToSocketAddrs) -> io::Result<()> {
        each_address(addresses, |address| self.socket.io.connect(address))
    }

    /// Sends a datagram; waits while the socket has no room for it. Returns the number of bytes.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Panics
    /// In delegated context and in callbacks, where nothing may wait.
    ///
    /// Example: at the [type](Self).
    pub fn send_to(&self, datagram: &[u8], addresses: impl ToSocketAddrs) -> io::Result<usize> {
        each_address(addresses, |address| {
            self.socket.perform("send_to", Direction::Write, |io| io.send_to(datagram, address).map(Call::Whole))
        })
    }

    /// Same as [`send_to`](Self::send_to), to the connected peer.
    ///
    /// # Errors
    /// The system's, including one caused by an earlier datagram.
    ///
    /// # Panics
    /// Same as `send_to`.
    ///
    /// Example: at [`connect`](Self::connect).
    pub fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        self.socket.perform("send", Direction::Write, |io| io.send(datagram).map(Call::Whole))
    }

    /// Waits for a datagram; bytes that do not fit the buffer are lost. Returns the number of bytes and the sender's
    /// address.
    ///
    /// # Errors
    /// The system's; [`ErrorKind::TimedOut`](io::ErrorKind::TimedOut).
    ///
    /// # Panics
    /// In delegated context and in callbacks, where nothing may wait.
    ///
    /// Example: at the [type](Self).
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.socket.perform("recv_from", Direction::Read, |io| io.recv_from(buffer).map(Call::Whole))
    }

    /// Same as [`recv_from`](Self::recv_from), from the connected peer.
    ///
    /// # Errors
    /// As for `recv_from`, including one caused by an earlier datagram.
    ///
    /// # Panics
    /// Same as `recv_from`.
    ///
    /// Example: at [`connect`](Self::connect).
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.perform("recv", Direction::Read, |io| io.recv(buffer).map(Call::Whole))
    }

    /// Same as [`recv_from`](Self::recv_from), but the datagram stays for the next call.
    ///
    /// # Errors
    /// As for `recv_from`.
    ///
    /// # Panics
    /// Same as `recv_from`.
    ///
    /// ```
    /// use trust::net::UdpSocket;
    /// let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// one.send_to(b"hello", other.local_addr()?)?;
    /// assert_eq!(other.peek_from(&mut [0; 16])?.0, 5);
    /// assert_eq!(other.recv_from(&mut [0; 16])?.0, 5); // still there
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.socket.perform("peek_from", Direction::Read, |io| io.peek_from(buffer).map(Call::Whole))
    }

    /// Sets the longest time that a call may wait for a datagram; `None`, the initial value, is no limit.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](io::ErrorKind::InvalidInput) for a timeout of 0.
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// use std::time::Duration;
    /// let socket = trust::net::UdpSocket::bind("127.0.0.1:0")?;
    /// socket.set_read_timeout(Some(Duration::from_millis(5)))?;
    /// assert_eq!(socket.recv_from(&mut [0; 16]).unwrap_err().kind(), ErrorKind::TimedOut);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_timeout(Direction::Read, timeout)
    }

    /// Returns the longest time that a call may wait for a datagram.
    ///
    /// Example: at [`set_write_timeout`](Self::set_write_timeout).
    pub fn read_timeout(&self) -> Option<Duration> {
        self.socket.timeout(Direction::Read)
    }

    /// Same as [`set_read_timeout`](Self::set_read_timeout), for sending.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](io::ErrorKind::InvalidInput) for a timeout of 0.
    ///
    /// ```
    /// use std::time::Duration;
    /// let socket = trust::net::UdpSocket::bind("127.0.0.1:0")?;
    /// let time = Some(Duration::from_millis(5));
    /// socket.set_write_timeout(time)?;
    /// assert_eq!((socket.read_timeout(), socket.write_timeout()), (None, time));
    /// assert!(socket.set_write_timeout(Some(Duration::ZERO)).is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_timeout(Direction::Write, timeout)
    }

    /// Returns the longest time that a call may wait for room.
    ///
    /// Example: at [`set_write_timeout`](Self::set_write_timeout).
    pub fn write_timeout(&self) -> Option<Duration> {
        self.socket.timeout(Direction::Write)
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// The system's.
    ///
    /// Example: at [`bind`](Self::bind).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.io.local_addr()
    }

    /// Returns the address of the connected peer.
    ///
    /// # Errors
    /// The system's, if it is not connected.
    ///
    /// ```
    /// use trust::net::UdpSocket;
    /// let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// assert!(one.peer_addr().is_err());
    /// one.connect(other.local_addr()?)?;
    /// assert_eq!(one.peer_addr()?, other.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.io.peer_addr()
    }
}

descriptor!(UdpSocket);
