//! Sockets for fibers: a call that would block lets other fibers of the worker run instead, so a server is
//! straight-line code with one fiber for each connection, thousands of them on a worker.
//!
//! ```
//! use std::io::{Read, Write};
//! use trust::net::{TcpListener, TcpStream};
//!
//! let listener = TcpListener::bind("127.0.0.1:0").unwrap();
//! let address = listener.local_addr().unwrap();
//! let server = trust::spawn(move || {
//!     let (mut connection, _) = listener.accept().unwrap();      // other fibers run meanwhile
//!     let mut question = [0; 4];
//!     connection.read_exact(&mut question).unwrap();
//!     connection.write_all(b"pong").unwrap();
//!     question
//! });
//! let mut connection = TcpStream::connect(address).unwrap();
//! connection.write_all(b"ping").unwrap();
//! let mut answer = [0; 4];
//! connection.read_exact(&mut answer).unwrap();
//! assert_eq!((&answer, &server.join().unwrap()), (b"pong", b"ping"));
//! ```
//!
//! They work like those of `std::net`, with these differences:
//!
//! - On a thread's own stack, outside fibers, a call blocks the thread, which serves its trustee and runs its fibers
//!   meanwhile, as [`apply`](crate::Trust::apply) does. Inside a delegated closure or a callback no call may wait: it
//!   panics.
//! - A socket may be used by fibers of any worker, even by several at a time (`Read` and `Write` are implemented for
//!   `&TcpStream` too, so one fiber may read while another writes). It costs least on one worker.
//! - A call that has waited longer than its timeout fails with [`ErrorKind::TimedOut`](std::io::ErrorKind::TimedOut).
//! - Names are looked up by the system, which blocks the thread: pass addresses where that matters.
//!
//! A worker sleeps when all its fibers wait. A fiber that waits for a socket is a live fiber: the end of its pool waits
//! for it. End it from elsewhere with [`TcpListener::close`], [`TcpStream::shutdown`] or a timeout.
//!
//! Here: the sockets, and waiting for them. Not here: readiness events and waking (`reactor/`).

mod socket;
mod tcp;
mod udp;

pub use tcp::{Incoming, TcpListener, TcpStream};
pub use udp::UdpSocket;
