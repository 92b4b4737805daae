//! Calls that go the way of those of another machine, within one process, beside the same calls made directly.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::calls::{numbers, parts};
use super::image::encode;

/// Does a call as for another machine. `is_shared`: all memory is shared, so that long buffers do not travel.
fn through(number: i64, arguments: [u64; 6], is_shared: bool) -> i64 {
    let parts = parts(number, &arguments).expect("a known call");
    match encode(number, arguments, &parts, &|_, _| is_shared) {
        Ok((request, pending)) => pending.store(&request.execute()),
        Err(errno) => -i64::from(errno),
    }
}

fn call(number: i64, arguments: &[u64]) -> i64 {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    through(number, all, false)
}

fn at<T>(place: &T) -> u64 {
    (&raw const *place).expose_provenance() as u64
}

fn into<T>(place: &mut T) -> u64 {
    (&raw mut *place).expose_provenance() as u64
}

fn number(file: &OwnedFd) -> u64 {
    file.as_raw_fd() as u64
}

fn pair(call_number: i64, arguments: &[u64]) -> [OwnedFd; 2] {
    let mut ends = [0_i32; 2];
    let mut all = arguments.to_vec();
    all.push(into(&mut ends));
    assert_eq!(call(call_number, &all), 0);
    // SAFETY: descriptors that the call has made.
    ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) })
}

fn pipe() -> [OwnedFd; 2] {
    pair(libc::SYS_pipe2, &[])
}

#[test]
fn each_call_is_known_once() {
    let all: Vec<i64> = numbers().collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
}

#[test]
fn bytes_go_both_ways_and_short_results_stay_short() {
    let [from, to] = pipe();
    let text = *b"seven..";
    assert_eq!(call(libc::SYS_write, &[number(&to), at(&text), 7]), 7);
    let mut found = [b'#'; 10];
    assert_eq!(call(libc::SYS_read, &[number(&from), into(&mut found), 10]), 7);
    assert_eq!(&found, b"seven..###");
    let (mut first, mut second) = ([b'#'; 3], [b'#'; 9]);
    let list = [into(&mut first), 3, into(&mut second), 9];
    let pieces = [at(&text), 2, 0, 0, at(&text) + 2, 5];
    assert_eq!(call(libc::SYS_writev, &[number(&to), at(&pieces), 3]), 7);
    assert_eq!(call(libc::SYS_readv, &[number(&from), at(&list), 2]), 7);
    assert_eq!((&first, &second), (b"sev", b"en..#####"));
    drop(to);
    assert_eq!(call(libc::SYS_read, &[number(&from), into(&mut found), 10]), 0);
}

#[test]
fn long_buffers_are_whole_in_either_way() {
    const LONG: usize = 5 << 20;
    let written: Vec<u8> = (0..LONG).map(|at| (at * 31 + at / 251) as u8).collect();
    for is_shared in [false, true] {
        let name = *b"long\0";
        let file = through(libc::SYS_memfd_create, [at(&name), 0, 0, 0, 0, 0], is_shared);
        let start = written.as_ptr().expose_provenance() as u64;
        assert_eq!(through(libc::SYS_write, [file as u64, start, LONG as u64, 0, 0, 0], is_shared), LONG as i64);
        let mut found = vec![0_u8; LONG + 5];
        let start = found.as_mut_ptr().expose_provenance() as u64;
        let read = through(libc::SYS_pread64, [file as u64, start, LONG as u64 + 5, 0, 0, 0], is_shared);
        assert!(read == LONG as i64 && found[..LONG] == written && found[LONG..] == [0; 5]);
        assert_eq!(call(libc::SYS_close, &[file as u64]), 0);
        assert_eq!(call(libc::SYS_close, &[file as u64]), -i64::from(libc::EBADF));
    }
}

#[test]
fn wrong_addresses_are_errors() {
    let [from, to] = pipe();
    let fault = -i64::from(libc::EFAULT);
    assert_eq!(call(libc::SYS_write, &[number(&to), 8, 4]), fault);
    assert_eq!(call(libc::SYS_write, &[number(&to), 8, 0]), 0);
    assert_eq!(call(libc::SYS_writev, &[number(&to), 8, 1]), fault);
    assert_eq!(call(libc::SYS_newfstatat, &[libc::AT_FDCWD as u64, 8, 0, 0]), fault);
    let byte = *b"x";
    assert_eq!(call(libc::SYS_write, &[number(&to), at(&byte), 1]), 1);
    assert_eq!(call(libc::SYS_read, &[number(&from), 8, 1]), fault);
    let name = [b'n'; 5000];
    assert_eq!(call(libc::SYS_chdir, &[at(&name)]), -i64::from(libc::ENAMETOOLONG));
}

#[test]
fn structures_are_those_of_the_system() {
    let path = *b"/proc/self/exe\0";
    // SAFETY: zeros are one.
    let (mut found, mut expected): (libc::stat, libc::stat) = unsafe { std::mem::zeroed() };
    assert_eq!(call(libc::SYS_newfstatat, &[libc::AT_FDCWD as u64, at(&path), into(&mut found), 0]), 0);
    // SAFETY: a string that ends with a zero, and a structure to fill.
    assert_eq!(unsafe { libc::stat(path.as_ptr().cast(), &raw mut expected) }, 0);
    assert_eq!((found.st_ino, found.st_size, found.st_mode), (expected.st_ino, expected.st_size, expected.st_mode));
    let mut link = [0_u8; 4096];
    let bytes = call(libc::SYS_readlinkat, &[libc::AT_FDCWD as u64, at(&path), into(&mut link), 4096]);
    let expected = std::fs::read_link("/proc/self/exe").unwrap();
    assert_eq!(&link[..bytes as usize], expected.as_os_str().as_encoded_bytes());
    let mut folder = [0_u8; 4096];
    let bytes = call(libc::SYS_getcwd, &[into(&mut folder), 4096]) as usize;
    let expected = std::env::current_dir().unwrap();
    assert_eq!(&folder[..bytes - 1], expected.as_os_str().as_encoded_bytes());
    assert_eq!(call(libc::SYS_getcwd, &[into(&mut folder), 1]), -i64::from(libc::ERANGE));
}

#[test]
fn lists_of_descriptors_come_back() {
    let ([from, to], [silent, _other]) = (pipe(), pipe());
    let byte = *b"x";
    assert_eq!(call(libc::SYS_write, &[number(&to), at(&byte), 1]), 1);
    let of = |file: &OwnedFd| libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut files = [of(&silent), of(&from)];
    let time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(call(libc::SYS_ppoll, &[into(&mut files), 2, at(&time), 0, 8]), 1);
    assert_eq!(files.map(|file| file.revents), [0, libc::POLLIN]);
    let epoll = call(libc::SYS_epoll_create1, &[0]) as u64;
    let interest = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 77 };
    assert_eq!(call(libc::SYS_epoll_ctl, &[epoll, libc::EPOLL_CTL_ADD as u64, number(&from), at(&interest)]), 0);
    let mut events = [libc::epoll_event { events: 0, u64: 5 }; 3];
    assert_eq!(call(libc::SYS_epoll_pwait, &[epoll, into(&mut events), 3, 0, 0, 8]), 1);
    assert_eq!(events.map(|event| event.u64), [77, 5, 5]);
    assert_eq!(call(libc::SYS_close, &[epoll]), 0);
}

#[test]
fn messages_keep_their_pointers() {
    let [one, other] = pair(libc::SYS_socketpair, &[libc::AF_UNIX as u64, libc::SOCK_SEQPACKET as u64, 0]);
    let text = *b"abcdefgh";
    let pieces = [at(&text), 3, at(&text) + 3, 5];
    let sent = [0, 0, at(&pieces), 2, 0, 0, 0];
    assert_eq!(call(libc::SYS_sendmsg, &[number(&one), at(&sent), 0]), 8);
    let (mut first, mut second, mut control) = ([b'#'; 2], [b'#'; 4], [7_u64; 4]);
    let list = [into(&mut first), 2, into(&mut second), 4];
    let mut message = [0, 0, at(&list), 2, into(&mut control), 32, 0];
    assert_eq!(call(libc::SYS_recvmsg, &[number(&other), into(&mut message), 0]), 6);
    assert_eq!((&first, &second), (b"ab", b"cdef"));
    let flags = libc::MSG_TRUNC as u64;
    assert_eq!(message, [0, 0, at(&list), 2, at(&control), 0, flags]);
    assert_eq!(control, [7; 4]);
    // Two at a time.
    let several = [sent, [0; 7], sent, [0; 7]].concat();
    let several: Vec<u64> = [&several[..7], &[0], &several[14..21], &[0]].concat();
    let mut several: [u64; 16] = several.try_into().unwrap();
    assert_eq!(call(libc::SYS_sendmmsg, &[number(&one), into(&mut several), 2, 0]), 2);
    assert_eq!([several[7], several[15]], [8, 8]);
    let mut message = [0, 0, at(&list), 2, 0, 0, 0, 0];
    assert_eq!(call(libc::SYS_recvmmsg, &[number(&other), into(&mut message), 1, 0, 0]), 1);
    assert_eq!((message[2], message[7]), (at(&list), 6));
    let (mut name, mut room) = ([9_u16; 8], 16_u32);
    assert_eq!(call(libc::SYS_getsockname, &[number(&one), into(&mut name), into(&mut room)]), 0);
    assert_eq!((room, name[0], name[1]), (2, libc::AF_UNIX as u16, 9));
}
