//! No descriptor that the library opens reaches a program that this process executes. One test: it looks at the
//! process.

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::process::Command;

use rustix::io::FdFlags;
use trust::Threadpool;
use trust::net::{TcpListener, TcpStream, UdpSocket};

/// The descriptors that an executed program of this process has.
fn inherited() -> Vec<String> {
    let script = "for each in /proc/self/fd/*; do echo \"${each##*/} $(readlink \"$each\")\"; done | grep -v ' /proc/'";
    let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // Without those of the shell itself: its three, and the one it makes for its pipe.
    text.lines().filter(|line| !line.contains(" pipe:")).map(str::to_owned).collect()
}

#[test]
fn no_descriptor_reaches_a_program_that_is_executed() {
    let _watch = watchdog!(120);
    let before = inherited();
    trust::dump_on_signal(libc::SIGUSR1).unwrap();
    let pool = Threadpool::new(2);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = pool.spawn(move || {
        let (mut accepted, _) = listener.accept().unwrap();
        accepted.read_exact(&mut [0]).unwrap();
        (listener, accepted, UdpSocket::bind("127.0.0.1:0").unwrap())
    });
    let mut connected = TcpStream::connect(address).unwrap();
    connected.write_all(&[1]).unwrap();
    let kept = server.join().unwrap();
    assert_eq!(pool.entrust(5).apply(|value| *value), 5);
    assert_eq!(inherited(), before);
    drop((kept, connected));
    // A descriptor that is passed on is seen.
    let file = File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&file, FdFlags::empty()).unwrap();
    assert_eq!(inherited().len(), before.len() + 1);
}
