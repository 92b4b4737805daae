//! Trial of a path between two hosts, over a plain TCP connection as those between machines: small packets first, then
//! large ones in both directions. So a firewall is distinguished from a path that loses large packets only.
//!
//! Each step has a limit of time: lost packets are an error within seconds.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use comm::deadline::deadline_after;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_linger;

/// Proof that a connection is the expected one.
pub type Token = [u8; 16];

/// Enough bytes for many packets of every size that networks have.
const LARGE_BYTES: usize = 64 << 10;
/// Limits of time for the steps.
#[derive(Debug)]
pub struct Limits {
    /// Time to connect.
    connect: Duration,
    /// Time for a connection to show its token.
    token: Duration,
    /// Time for small packets there and back.
    small: Duration,
    /// Time for the large packets of one direction.
    large: Duration,
}

/// Long enough for a packet that is lost twice, and for a busy host.
pub const LIMITS: Limits = Limits {
    connect: Duration::from_secs(4),
    token: Duration::from_secs(1),
    small: Duration::from_secs(4),
    large: Duration::from_secs(4),
};

/// The step that failed.
#[derive(Debug)]
pub enum Lost {
    /// No connection was made.
    Connect(io::Error),
    /// Small packets did not get there and back.
    Small(io::Error),
    /// Large packets did not get to the other host.
    There(io::Error),
    /// Large packets did not get back.
    Back(io::Error),
}

/// Tries the path to a host that [`answer`]s at this address.
///
/// # Errors
/// [`Lost`], within seconds.
pub fn run(address: SocketAddr, token: &Token, limits: &Limits) -> Result<(), Lost> {
    let mut stream = TcpStream::connect_timeout(&address, limits.connect).map_err(Lost::Connect)?;
    // The end forgets packets that are under way, and the other side hears of the end at once.
    set_socket_linger(&stream, Some(Duration::ZERO)).map_err(|error| Lost::Small(error.into()))?;
    let mut large = vec![0; LARGE_BYTES];
    let mut exchange = |sent: &[u8], received: &mut [u8], limit| {
        let deadline = deadline_after(limit);
        send(&mut stream, sent, deadline)?;
        receive(&mut stream, received, deadline)
    };
    exchange(token, &mut [0; size_of::<Token>()], limits.small).map_err(Lost::Small)?;
    exchange(&large, &mut [0], limits.large).map_err(Lost::There)?;
    exchange(&[0], &mut large, limits.large).map_err(Lost::Back)
}

/// Answers the first connection with the token, if one comes in time and before the listener is shut down; its other
/// side tells how it ends.
pub fn answer(listener: &TcpListener, token: &Token, limits: &Limits) {
    let deadline = deadline_after(limits.connect.saturating_add(limits.token));
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    while let Some(left) = left(deadline) {
        let timeout = Timespec::try_from(left).ok();
        let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], timeout.as_ref()); // accept tells
        match listener.accept() {
            Ok((mut stream, _)) => {
                if stream.set_nonblocking(false).is_ok() && shows(&mut stream, token, limits) {
                    let _ = exchange(&mut stream, token, limits); // the other side tells
                    return;
                }
            }
            Err(error) if error.kind() == ErrorKind::InvalidInput => return, // it listens no more
            Err(_) => {}
        }
    }
}

fn shows(stream: &mut TcpStream, token: &Token, limits: &Limits) -> bool {
    let mut shown = Token::default();
    receive(stream, &mut shown, deadline_after(limits.token)).is_ok() && shown == *token
}

/// The asking side ends first, and tells how: this side waits for longer.
fn exchange(stream: &mut TcpStream, token: &Token, limits: &Limits) -> io::Result<()> {
    let deadline = || deadline_after(limits.large.saturating_mul(3));
    let mut large = vec![0; LARGE_BYTES];
    send(stream, token, deadline())?;
    receive(stream, &mut large, deadline())?;
    send(stream, &[0], deadline())?;
    receive(stream, &mut [0], deadline())?;
    send(stream, &large, deadline())?;
    receive(stream, &mut [0], deadline()) // until the other side closes
}

fn left(deadline: Instant) -> Option<Duration> {
    Some(deadline.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
}

fn send(stream: &mut TcpStream, bytes: &[u8], deadline: Instant) -> io::Result<()> {
    stream.set_write_timeout(Some(left(deadline).ok_or(ErrorKind::TimedOut)?))?;
    stream.write_all(bytes)
}

fn receive(stream: &mut TcpStream, mut bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_read_timeout(Some(left(deadline).ok_or(ErrorKind::TimedOut)?))?;
        match stream.read(bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => bytes = &mut bytes[read..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns whether packets were lost, rather than the connection refused or ended.
pub fn is_silent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Token = [7; 16];
    /// Limits of steps that succeed.
    const LONG: Limits =
        Limits { connect: limits::HANG, token: limits::HANG, small: limits::HANG, large: limits::HANG };
    /// Limit of steps that fail.
    const SHORT: Duration = Duration::from_millis(20);

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[test]
    fn a_path_passes_bytes_both_ways_whoever_else_connects() {
        let (listener, address) = listener();
        std::thread::scope(|scope| {
            let mut stranger = TcpStream::connect(address).unwrap();
            stranger.write_all(&[1; 16]).unwrap();
            drop(stranger);
            scope.spawn(|| answer(&listener, &TOKEN, &LONG));
            run(address, &TOKEN, &LONG).unwrap();
        });
    }

    #[test]
    fn a_port_at_which_nobody_listens_is_no_path() {
        let (listener, address) = listener();
        drop(listener);
        assert!(matches!(run(address, &TOKEN, &LONG), Err(Lost::Connect(_))));
    }

    #[test]
    fn a_listener_that_is_shut_down_is_not_waited_at() {
        let (listener, _) = listener();
        std::thread::scope(|scope| {
            let answering = scope.spawn(|| answer(&listener, &TOKEN, &LONG));
            rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
            limits::wait_until("the answering side to end", || answering.is_finished());
        });
    }

    /// Another side that takes the bytes up to a step, and gives none.
    #[test]
    fn the_step_that_hears_nothing_is_named() {
        let (listener, address) = listener();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let silent = listener.accept().unwrap(); // kept until the end
                let (mut half, _) = listener.accept().unwrap();
                half.read_exact(&mut [0; 16]).unwrap();
                half.write_all(&TOKEN).unwrap();
                let (mut ending, _) = listener.accept().unwrap();
                ending.read_exact(&mut [0; 16]).unwrap();
                ending.write_all(&TOKEN).unwrap();
                ending.read_exact(&mut vec![0; LARGE_BYTES]).unwrap();
                ending.write_all(&[0]).unwrap();
                drop(ending);
                drop((silent, half));
            });
            let small = run(address, &TOKEN, &Limits { small: SHORT, ..LONG }).unwrap_err();
            assert!(matches!(&small, Lost::Small(error) if is_silent(error)), "{small:?}");
            let there = run(address, &TOKEN, &Limits { large: SHORT, ..LONG }).unwrap_err();
            assert!(matches!(&there, Lost::There(error) if is_silent(error)), "{there:?}");
            let back = run(address, &TOKEN, &LONG).unwrap_err();
            assert!(matches!(&back, Lost::Back(error) if !is_silent(error)), "{back:?}");
        });
    }
}
