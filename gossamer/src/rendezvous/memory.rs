//! Memory that the machines of one host share, where our launcher did not make it. The lowest machine makes the files,
//! and passes their descriptors over an abstract socket to those of the same user that know the tokens which machine 0
//! has sent to both.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use comm::descriptors::cure;
use comm::{MachineId, shm};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use super::wire::MemoryTokens;
use super::{Limit, RendezvousError, complain, spawn};

/// The kernel takes 253 at once.
const DESCRIPTORS_AT_ONCE: usize = 128;
/// Time in which a peer must identify itself.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Wait before the socket is tried again.
const RETRY: Duration = Duration::from_millis(5);

/// Returns the memory of this machine: `group` are the machines of its host, in rising order.
pub(super) fn share(
    own: u16,
    group: &[u16],
    tokens: MemoryTokens,
    limit: &Limit,
) -> Result<shm::Bootstrap, RendezvousError> {
    let place = group.partition_point(|member| *member < own);
    let machine = MachineId(place as u16);
    let address = SocketAddr::from_abstract_name(format!("gossamer-memory-{}", hex::encode(tokens.name)))
        .map_err(RendezvousError::system("name the socket for shared memory"))?;
    if place > 0 {
        let fds = receive(&address, tokens, group.len() + 2, limit)?;
        return Ok(shm::Bootstrap { machine, fds });
    }
    let listener =
        UnixListener::bind_addr(&address).map_err(RendezvousError::system("listen for those of this host"))?;
    let segments = shm::create(group.len() as u16).map_err(RendezvousError::Comm)?;
    let (own, theirs) = (segments.bootstrap(machine).map_err(RendezvousError::Comm)?, segments.bootstrap(machine));
    let theirs = theirs.map_err(RendezvousError::Comm)?.fds;
    let (others, deadline) = (group.len() - 1, Limit { start: limit.start, timeout: limit.timeout });
    let serve = move || pass_on(&listener, &theirs, tokens, others, &deadline);
    spawn("gossamer-memory", serve)?;
    Ok(own)
}

/// Serves the descriptors until all others have them; a machine that does not get them reports it.
fn pass_on(listener: &UnixListener, fds: &[OwnedFd], tokens: MemoryTokens, others: usize, limit: &Limit) {
    let (mut served, mut is_told) = (0, false);
    while served < others {
        let mut ready = [PollFd::new(listener, PollFlags::IN)];
        let left = limit.left();
        if left.is_zero() {
            return;
        }
        let _ = poll(&mut ready, Timespec::try_from(left).ok().as_ref()); // accept reports errors
        match listener.accept() {
            Ok((stream, _)) => served += usize::from(pass_to(&stream, fds, tokens).is_ok()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => {
                if !std::mem::replace(&mut is_told, true) {
                    complain(format_args!(
                        "the memory of this host cannot be passed on to its other machines: {error}{}",
                        cure(&error)
                    ));
                }
                std::thread::sleep(RETRY.min(limit.left())); // descriptors may become free
            }
        }
    }
}

fn pass_to(mut stream: &UnixStream, fds: &[OwnedFd], tokens: MemoryTokens) -> std::io::Result<()> {
    check_user(stream)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    let mut asked = [0; 16];
    stream.read_exact(&mut asked)?;
    if asked != tokens.ask {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    stream.write_all(&tokens.answer)?;
    for some in fds.chunks(DESCRIPTORS_AT_ONCE) {
        let some: Vec<BorrowedFd<'_>> = some.iter().map(AsFd::as_fd).collect();
        let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_AT_ONCE))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&some)) {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        rustix::net::sendmsg(stream, &[std::io::IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// Asks until the machine that makes the memory answers.
fn receive(
    address: &SocketAddr,
    tokens: MemoryTokens,
    count: usize,
    limit: &Limit,
) -> Result<Vec<OwnedFd>, RendezvousError> {
    loop {
        let fds = UnixStream::connect_addr(address).and_then(|stream| receive_from(&stream, tokens, count));
        match fds {
            Ok(fds) => return Ok(fds),
            // A lack on this side does not pass, and the other side counts this one as served.
            Err(error) if limit.left().is_zero() || !cure(&error).is_empty() => {
                return Err(RendezvousError::system("get the memory of this host from the machine that makes it")(
                    error,
                ));
            }
            Err(_) => std::thread::sleep(RETRY), // not there yet
        }
    }
}

fn receive_from(mut stream: &UnixStream, tokens: MemoryTokens, count: usize) -> std::io::Result<Vec<OwnedFd>> {
    check_user(stream)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.write_all(&tokens.ask)?;
    let mut answer = [0; 16];
    stream.read_exact(&mut answer)?;
    if answer != tokens.answer {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    let mut fds = Vec::new();
    while fds.len() < count {
        let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_AT_ONCE))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut into = [std::io::IoSliceMut::new(&mut byte)];
        let read = rustix::net::recvmsg(stream, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        if read.bytes == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        // The space is large enough, so this process could not take all: it has too many open files.
        if read.flags.contains(ReturnFlags::CTRUNC) {
            return Err(Errno::MFILE.into());
        }
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
    }
    Ok(fds)
}

/// Checks that both ends belong to one user.
fn check_user(stream: &UnixStream) -> std::io::Result<()> {
    let other = rustix::net::sockopt::socket_peercred(stream)?;
    (other.uid == rustix::process::getuid()).then_some(()).ok_or(std::io::ErrorKind::PermissionDenied.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn limit(timeout: Duration) -> Limit {
        Limit { start: std::time::Instant::now(), timeout }
    }

    fn tokens(name: u8) -> MemoryTokens {
        let mut tokens = MemoryTokens { name: [name; 16], ask: [1; 16], answer: [2; 16] };
        tokens.name[..4].copy_from_slice(&std::process::id().to_le_bytes());
        tokens
    }

    fn inodes(memory: &shm::Bootstrap) -> Vec<u64> {
        memory.fds.iter().map(|fd| std::fs::File::from(fd.try_clone().unwrap()).metadata().unwrap().ino()).collect()
    }

    #[test]
    fn all_of_a_host_get_the_same_files() {
        let group: Vec<u16> = (0..200).map(|machine| machine * 3 + 1).collect(); // more than one message holds
        let wait = limit(Duration::from_secs(60));
        std::thread::scope(|scope| {
            let ask = |machine: u16| share(machine, &group, tokens(9), &wait).unwrap();
            let second = scope.spawn(move || ask(4));
            let last = scope.spawn(move || ask(598));
            let first = ask(1);
            let (second, last) = (second.join().unwrap(), last.join().unwrap());
            assert_eq!((first.machine.0, second.machine.0, last.machine.0), (0, 1, 199));
            assert_eq!((inodes(&first), inodes(&first)), (inodes(&second), inodes(&last)));
            assert_eq!(first.members(), 200);
        });
    }

    #[test]
    fn who_does_not_know_the_word_gets_nothing() {
        let (ours, theirs) = (tokens(7), MemoryTokens { ask: [3; 16], ..tokens(7) });
        share(0, &[0, 1], ours, &limit(Duration::from_secs(60))).unwrap();
        let refused = share(1, &[0, 1], theirs, &limit(Duration::from_millis(100)));
        assert!(refused.unwrap_err().to_string().contains("get the memory of this host"));
        let liar = MemoryTokens { answer: [3; 16], ..ours };
        assert!(share(1, &[0, 1], liar, &limit(Duration::from_millis(100))).is_err());
    }
}
