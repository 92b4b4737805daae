//! Strangers on the rack's network, without the key: they watch for every port that a machine of a program opens, fill
//! it before its peers are there, and connect again as soon as they are closed. Programs start nevertheless.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::network::Host;
use crate::rack::{PORT, ROLES, Rack};

/// An undisturbed start takes a second on a busy machine. It failed after 30 s when machines waited for strangers.
const SOON: Duration = Duration::from_secs(15);
/// Sockets at each port.
const SOCKETS: usize = 400;
/// Sockets of one thread.
const SOCKETS_EACH: usize = 100;
/// Pace of a thread, which leaves some of the machine to others: this many new connections, and then a pause.
const CONNECTIONS_AT_ONCE: usize = 10;
const PAUSE: Duration = Duration::from_millis(20);
/// First bytes of a stranger, which then stays silent: none, so that the machine waits for a length, or a begun
/// message.
const SAID: [&[u8]; 2] = [b"", b"\x60\x00gossamer"];

/// State shared by all strangers.
#[derive(Default)]
struct Flood {
    is_over: AtomicBool,
    /// Ports of the machines.
    ports: Mutex<Vec<SocketAddr>>,
    connections: AtomicUsize,
}

impl Flood {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    fn ports(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.ports.lock().unwrap()
    }

    /// Watches a host, from inside, for ports that begin to listen.
    fn watch(&self, victim: &Host) {
        while self.goes_on() {
            let table = fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
            for address in table.lines().skip(1).filter_map(listener).filter(|found| found.port() != PORT) {
                let address = SocketAddr::from((victim.address, address.port()));
                let mut ports = self.ports();
                if !ports.contains(&address) {
                    ports.push(address);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Fills the port of that number, once it is there, as one of several threads.
    fn fill_port(&self, number: usize, said: &[u8]) {
        while self.goes_on() {
            let port = self.ports().get(number).copied();
            match port {
                Some(target) => return self.fill(target, said),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn fill(&self, target: SocketAddr, said: &[u8]) {
        let mut open: Vec<TcpStream> = Vec::new();
        while self.goes_on() {
            for _ in open.len()..SOCKETS_EACH.min(open.len() + CONNECTIONS_AT_ONCE) {
                match TcpStream::connect_timeout(&target, Duration::from_secs(1)) {
                    Ok(mut stream) => {
                        self.connections.fetch_add(1, Ordering::Relaxed);
                        stream.set_nonblocking(true).unwrap();
                        let _ = stream.write_all(said); // it may be closed already
                        open.push(stream);
                    }
                    // The program has ended.
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => return,
                    Err(_) => break,
                }
            }
            open.retain_mut(
                |stream| matches!(stream.read(&mut [0; 64]), Err(error) if error.kind() == ErrorKind::WouldBlock),
            );
            std::thread::sleep(PAUSE);
        }
    }
}

/// Returns the address of a socket that listens, from its line in the kernel's table.
fn listener(line: &str) -> Option<SocketAddr> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (address, port) = words.get(1)?.split_once(':')?;
    let address = Ipv4Addr::from(u32::from_str_radix(address, 16).ok()?.to_ne_bytes());
    (*words.get(3)? == "0A").then_some(SocketAddr::from((address, u16::from_str_radix(port, 16).ok()?)))
}

/// Runs a program on the first three hosts while strangers on host `from` fill the ports of its machines. The last
/// machine comes when those of the others are full.
fn starts_among_strangers(from: usize) {
    let rack = Rack::start(4);
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let (script, go) = (rack.path("late"), rack.path("go"));
    let text = format!(
        "#!/bin/sh\n[ \"$GOSSAMER_MACHINE\" = 2 ] && until [ -e '{}' ]; do sleep 0.02; done\nexec '{ROLES}' calls\n",
        go.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();

    let (flood, hosts) = (Flood::default(), &rack.network.hosts);
    let (ended, taken) = std::thread::scope(|scope| {
        let flood = &flood;
        for victim in &hosts[..3] {
            scope.spawn(move || victim.namespace.inside(|| flood.watch(victim)));
        }
        for thread in 0..3 * SOCKETS / SOCKETS_EACH {
            let (port, said) = (thread * SOCKETS_EACH / SOCKETS, SAID[thread % SAID.len()]);
            scope.spawn(move || hosts[from].namespace.inside(|| flood.fill_port(port, said)));
        }
        // In any case, the strangers end too.
        let run = || {
            let program = rack.launcher(&["run", "--hosts", "h0,h1,h2", script.to_str().unwrap()]);
            let start = Instant::now();
            while flood.connections.load(Ordering::Relaxed) < 2 * SOCKETS && start.elapsed() < SOON {
                std::thread::yield_now();
            }
            fs::write(&go, "").unwrap();
            let start = Instant::now();
            (program.end(), start.elapsed())
        };
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        flood.is_over.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let (ports, connections) = (flood.ports().len(), flood.connections.load(Ordering::Relaxed));
    println!("strangers on h{from}: {connections} connections at {ports} ports, the program took {taken:?}");
    assert!(ports >= 2 && connections >= SOCKETS, "{connections} strangers at {ports} ports: that is no flood");
    assert!(ended.status.success() && taken < limits::bound(SOON), "{taken:?} {ended:#?}");
    rack.assert_nothing_is_left();
}

#[test]
fn timed_strangers_of_another_host_keep_no_program_from_starting() {
    starts_among_strangers(3);
}

/// They have the address of a machine of the program, so counts by address include that machine.
#[test]
fn timed_strangers_beside_a_machine_keep_no_program_from_starting() {
    starts_among_strangers(1);
}
