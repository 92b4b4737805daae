//! TCP for fibers.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::socket::{Call, Socket, asked_at_once, each_address, transferred};
use crate::reactor::Direction;

/// Listening TCP socket. See the [module](super).
pub struct TcpListener {
    socket: Socket<mio::net::TcpListener>,
    closed: AtomicBool,
}

impl TcpListener {
    /// Listens at the first of these addresses that is available; port 0 lets the system choose one. As many
    /// connections wait to be accepted as the system allows (on Linux `net.core.somaxconn`, 4,096 by default).
    ///
    /// # Errors
    /// The system's, for instance [`ErrorKind::AddrInUse`](io::ErrorKind::AddrInUse).
    ///
    /// ```
    /// let listener = trust::net::TcpListener::bind("127.0.0.1:0")?;
    /// assert_ne!(listener.local_addr()?.port(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind(addresses: impl ToSocketAddrs) -> io::Result<TcpListener> {
        let io = each_address(addresses, mio::net::TcpListener::bind)?;
        // As many as the system allows: mio asks for 128, and clients beyond that wait seconds for a next try.
        rustix::net::listen(&io, i32::MAX)?;
        Ok(TcpListener { socket: Socket::new(io), closed: AtomicBool::new(false) })
    }

    /// Waits for the next connection. Hand it to a fiber of its own: here with [`spawn`](crate::spawn), or on another
    /// worker with [`Threadpool::spawn`](crate::Threadpool::spawn).
    ///
    /// # Errors
    /// The system's. "Too many open files" (`raw_os_error` 24, of the process) leaves the connection waiting: close
    /// some others or sleep before the next call, and raise `ulimit -n`.
    /// [`ErrorKind::NotConnected`](io::ErrorKind::NotConnected) after [`close`](Self::close).
    ///
    /// # Panics
    /// In delegated context and in callbacks, where nothing may wait.
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use trust::net::{TcpListener, TcpStream};
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let address = listener.local_addr()?;
    /// let server = trust::spawn(move || {
    ///     let (mut connection, _) = listener.accept()?;
    ///     connection.write_all(b"welcome")
    /// });
    /// let mut said = String::new();
    /// TcpStream::connect(address)?.read_to_string(&mut said)?;
    /// assert_eq!(said, "welcome");
    /// server.join().unwrap()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let accepted = self.socket.perform("accept", Direction::Read, |io| io.accept().map(Call::Whole));
        let (stream, address) = accepted.map_err(|error| if self.is_closed() { closed() } else { error })?;
        Ok((TcpStream { socket: Socket::new(stream.into()) }, address))
    }

    /// Returns an iterator over the connections, which ends when the listener is closed.
    ///
    /// ```
    /// use std::{io::Read, rc::Rc};
    /// use trust::net::{TcpListener, TcpStream};
    /// let listener = Rc::new(TcpListener::bind("127.0.0.1:0")?);
    /// let listens = Rc::clone(&listener);
    /// let fiber = trust::spawn(move || listens.incoming().count());
    /// let mut stream = TcpStream::connect(listener.local_addr()?)?;
    /// assert_eq!(stream.read(&mut [0])?, 0); // taken, counted, dropped
    /// listener.close()?;
    /// assert_eq!(fiber.join().unwrap(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }

    /// Stops listening: waiting calls of [`accept`](Self::accept) fail, as do all later ones. May be called from any
    /// fiber or thread.
    ///
    /// # Errors
    /// The system's.
    ///
    /// ```
    /// use std::rc::Rc;
    /// let listener = Rc::new(trust::net::TcpListener::bind("127.0.0.1:0")?);
    /// let listens = Rc::clone(&listener);
    /// let fiber = trust::spawn(move || listens.accept().is_err());
    /// trust::yield_now(); // it waits now
    /// listener.close()?;
    /// assert!(fiber.join().unwrap());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn close(&self) -> io::Result<()> {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes fibers that wait in `accept`, unlike closing the descriptor.
        rustix::net::shutdown(self.as_fd(), rustix::net::Shutdown::Both)?;
        Ok(())
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Returns the address it listens at.
    ///
    /// # Errors
    /// The system's.
    ///
    /// Example: at [`bind`](Self::bind).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.io.local_addr()
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the listener was closed")
}

/// Iterator over connections. See [`TcpListener::incoming`].
pub struct Incoming<'a>(&'a TcpListener);

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.0.accept() {
            Err(_) if self.0.is_closed() => None,
            accepted => Some(accepted.map(|(stream, _)| stream)),
        }
    }
}

/// TCP connection. See the [module](super).
///
/// `Read` and `Write` are implemented for `&TcpStream` as well: one fiber may read while another writes. Keep it in an
/// `Rc` for fibers of one worker, in an `Arc` for those of several.
pub struct TcpStream {
    socket: Socket<std::net::TcpStream>,
}

impl TcpStream {
    /// Connects to the first of these addresses that answers.
    ///
    /// # Errors
    /// The system's, for instance [`ErrorKind::ConnectionRefused`](io::ErrorKind::ConnectionRefused).
    ///
    /// # Panics
    /// In delegated context and in callbacks, where nothing may wait.
    ///
    /// ```
    /// use trust::net::{TcpListener, TcpStream};
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// assert_eq!(stream.peer_addr()?, listener.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect(addresses: impl ToSocketAddrs) -> io::Result<TcpStream> {
        each_address(addresses, |address| Self::connect_within(address, None))
    }

    /// Same as [`connect`](Self::connect), waiting at most for `timeout`.
    ///
    /// # Errors
    /// As for `connect`; [`ErrorKind::TimedOut`](io::ErrorKind::TimedOut).
    ///
    /// # Panics
    /// Same as `connect`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trust::net::{TcpListener, TcpStream};
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// TcpStream::connect_timeout(&listener.local_addr()?, Duration::from_secs(60))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect_timeout(address: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        Self::connect_within(*address, Some(timeout))
    }

    fn connect_within(address: SocketAddr, timeout: Option<Duration>) -> io::Result<TcpStream> {
        let begun = mio::net::TcpStream::connect(address)?;
        let stream = TcpStream { socket: Socket::new(begun.into()) };
        let connected = |io: &std::net::TcpStream| match io.take_error()? {
            Some(error) => Err(error),
            None => match io.peer_addr() {
                Ok(_) => Ok(Call::Whole(())),
                Err(error) if error.kind() == io::ErrorKind::NotConnected => Err(io::ErrorKind::WouldBlock.into()),
                Err(error) => Err(error),
            },
        };
        stream.socket.perform_for("connect", Direction::Write, timeout, connected)?;
        Ok(stream)
    }

    /// Takes over a connection of the standard library, which becomes non-blocking.
    ///
    /// # Errors
    /// The system's.
    ///
    /// ```
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let stream = std::net::TcpStream::connect(listener.local_addr()?)?;
    /// let stream = trust::net::TcpStream::from_std(stream)?;
    /// assert_eq!(stream.peer_addr()?, listener.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<TcpStream> {
        stream.set_nonblocking(true)?;
        Ok(TcpStream { socket: Socket::new(stream) })
    }

    /// Same as `read`, but the bytes stay for the next call.
    ///
    /// # Errors
    /// As for `read`.
    ///
    /// # Panics
    /// In delegated context and in callbacks, where nothing may wait.
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use trust::net::{TcpListener, TcpStream};
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let mut stream = TcpStream::connect(listener.local_addr()?)?;
    /// listener.accept()?.0.write_all(b"GET")?;
    /// let (mut first, mut all) = ([0; 1], [0; 3]);
    /// stream.peek(&mut first)?;
    /// stream.read_exact(&mut all)?;
    /// assert_eq!((&first, &all), (b"G", b"GET"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.perform("peek", Direction::Read, |io| io.peek(buffer).map(Call::Whole))
    }

    /// Ends one direction of the connection, or both. Fibers that wait for it continue: readers find the end of the
    /// stream.
    ///
    /// # Errors
    /// The system's.
    ///
    /// ```
    /// use std::io::Read;
    /// use trust::net::{TcpListener, TcpStream};
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let mut stream = TcpStream::connect(listener.local_addr()?)?;
    /// let (other, _) = listener.accept()?;
    /// other.shutdown(std::net::Shutdown::Write)?;
    /// assert_eq!(stream.read(&mut [0; 8])?, 0); // the end
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.io.shutdown(how)
    }

    /// Sends small writes at once instead of gathering them (`TCP_NODELAY`).
    ///
    /// # Errors
    /// The system's.
    ///
    /// ```
    /// use trust::net::{TcpListener, TcpStream};
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// stream.set_nodelay(true)?;
    /// assert!(stream.nodelay()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.socket.io.set_nodelay(nodelay)
    }

    /// Returns the setting of [`set_nodelay`](Self::set_nodelay).
    ///
    /// # Errors
    /// The system's.
    ///
    /// Example: at [`set_nodelay`](Self::set_nodelay).
    pub fn nodelay(&self) -> io::Result<bool> {
        self.socket.io.nodelay()
    }

    /// Sets the longest time that a read may wait; `None`, the initial value, is no limit.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](io::ErrorKind::InvalidInput) for a timeout of 0.
    ///
    /// ```
    /// use std::io::{ErrorKind, Read};
    /// use std::time::Duration;
    /// use trust::net::{TcpListener, TcpStream};
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let mut stream = TcpStream::connect(listener.local_addr()?)?;
    /// stream.set_read_timeout(Some(Duration::from_millis(5)))?;
    /// assert_eq!(stream.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::TimedOut);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_timeout(Direction::Read, timeout)
    }

    /// Same as [`set_read_timeout`](Self::set_read_timeout), for writes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](io::ErrorKind::InvalidInput) for a timeout of 0.
    ///
    /// ```
    /// use std::io::{ErrorKind, Write};
    /// use std::time::Duration;
    /// use trust::net::{TcpListener, TcpStream};
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let mut stream = TcpStream::connect(listener.local_addr()?)?;
    /// let time = Some(Duration::from_millis(5));
    /// stream.set_write_timeout(time)?;
    /// assert_eq!((stream.read_timeout(), stream.write_timeout()), (None, time));
    /// // Nobody reads, so the buffers of both sides are full at some time.
    /// let error = std::iter::repeat_with(|| stream.write(&[0; 65_536])).find_map(Result::err).unwrap();
    /// assert_eq!(error.kind(), ErrorKind::TimedOut);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_timeout(Direction::Write, timeout)
    }

    /// Returns the longest time that a read may wait.
    ///
    /// Example: at [`set_write_timeout`](Self::set_write_timeout).
    pub fn read_timeout(&self) -> Option<Duration> {
        self.socket.timeout(Direction::Read)
    }

    /// Returns the longest time that a write may wait.
    ///
    /// Example: at [`set_write_timeout`](Self::set_write_timeout).
    pub fn write_timeout(&self) -> Option<Duration> {
        self.socket.timeout(Direction::Write)
    }

    /// Takes the error that is pending on the socket, if any.
    ///
    /// # Errors
    /// The system's.
    ///
    /// ```
    /// use trust::net::{TcpListener, TcpStream};
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// assert!(stream.take_error()?.is_none()); // all is well
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.io.take_error()
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// The system's.
    ///
    /// ```
    /// use trust::net::{TcpListener, TcpStream};
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// let (other, address) = listener.accept()?;
    /// assert_eq!((stream.local_addr()?, stream.peer_addr()?), (address, other.local_addr()?));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.io.local_addr()
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    /// The system's, if the connection has ended.
    ///
    /// Example: at [`local_addr`](Self::local_addr).
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.io.peer_addr()
    }
}

impl Read for &TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let asked = buffer.len();
        let read = |mut io: &std::net::TcpStream| io.read(buffer).map(|n| transferred(n, asked));
        self.socket.perform("read", Direction::Read, read)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let asked = asked_at_once(buffers.iter().map(|buffer| buffer.len()));
        let read = |mut io: &std::net::TcpStream| io.read_vectored(buffers).map(|n| transferred(n, asked));
        self.socket.perform("read", Direction::Read, read)
    }
}

impl Write for &TcpStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let write = |mut io: &std::net::TcpStream| io.write(buffer).map(|n| transferred(n, buffer.len()));
        self.socket.perform("write", Direction::Write, write)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let asked = asked_at_once(buffers.iter().map(|buffer| buffer.len()));
        let write = |mut io: &std::net::TcpStream| io.write_vectored(buffers).map(|n| transferred(n, asked));
        self.socket.perform("write", Direction::Write, write)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(buffers)
    }
}

impl Write for TcpStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        (&*self).write(buffer)
    }
    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(buffers)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

macro_rules! descriptor {
    ($socket:ty) => {
        impl AsFd for $socket {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.socket.io.as_fd()
            }
        }
        impl AsRawFd for $socket {
            fn as_raw_fd(&self) -> RawFd {
                self.socket.io.as_raw_fd()
            }
        }
        impl fmt::Debug for $socket {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.socket.io.fmt(f)
            }
        }
    };
}
pub(super) use descriptor;

descriptor!(TcpListener);
descriptor!(TcpStream);
