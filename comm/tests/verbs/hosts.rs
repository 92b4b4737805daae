//! One device in each of two virtual machines, which `cargo dev rdma` starts side by side. Each runs
//! this program with its number; endpoints are exchanged over TCP.

use super::rig::{TIMEOUT, party};
use comm::conformance::{self, Effort, REGION_BYTES};
use comm::verbs::{Settings, VerbsFabric};
use comm::{Fabric, Loss, MachineId, Region};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

/// Environment variable with the number of this host.
const HOST_VARIABLE: &str = "COMM_VERBS_HOST";
/// Addresses of the two hosts.
const ADDRESSES: [&str; 2] = ["10.80.0.1", "10.80.0.2"];

fn host() -> u16 {
    let host = std::env::var(HOST_VARIABLE).expect("`cargo dev rdma` says which host this is");
    host.parse().unwrap()
}

/// Connects to the other host, which may not be ready yet.
fn connect(port: u16) -> TcpStream {
    if host() == 1 {
        return TcpListener::bind((ADDRESSES[1], port)).unwrap().accept().unwrap().0;
    }
    let deadline = Instant::now() + 2 * TIMEOUT;
    loop {
        match TcpStream::connect((ADDRESSES[1], port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "the other host does not come: {error}"),
        }
        std::thread::yield_now();
    }
}

fn open(port: u16) -> (VerbsFabric, TcpStream) {
    let region = Arc::new(Region::anonymous(REGION_BYTES).unwrap());
    // Two emulated hosts share two busy cores: each may stand still for longer than a real one.
    let settings = Settings { timeout: 17, ..Settings::default() };
    let prepared = VerbsFabric::prepare(&settings, party(host(), &[3, 3]), region).unwrap();
    let mut stream = connect(port);
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(&(prepared.endpoint().len() as u32).to_le_bytes()).unwrap();
    stream.write_all(prepared.endpoint()).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut endpoint = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut endpoint).unwrap();
    let fabric = prepared.open(&[(MachineId(1 - host()), endpoint)], 2 * TIMEOUT).unwrap();
    (fabric, stream)
}

#[test]
#[ignore = "needs two hosts"]
fn conforms_between_hosts() {
    let (fabric, _stream) = open(7001);
    conformance::run(&fabric, &Effort { writes: 2_000, wakes: 100, timeout: 2 * TIMEOUT });
    println!("{:?}", fabric.counts());
}

#[test]
#[ignore = "needs two hosts, and switches the second off"]
fn the_death_of_a_host_is_noticed() {
    let (fabric, mut stream) = open(7002);
    if host() == 1 {
        // The other has the fabric open as well.
        stream.read_exact(&mut [0]).unwrap();
        // At once, without a message to any peer.
        std::fs::write("/proc/sysrq-trigger", "b").unwrap();
        std::thread::sleep(TIMEOUT);
        panic!("this host was to be switched off");
    }
    stream.write_all(&[1]).unwrap();
    let start = Instant::now();
    assert_eq!(fabric.watch(&[], 2 * TIMEOUT).unwrap(), Some(MachineId(1)));
    let noticed = start.elapsed();
    println!("noticed after {} ms: {}", noticed.as_millis(), fabric.cause(MachineId(1)).unwrap());
    assert_eq!(fabric.lost(MachineId(1)).unwrap(), Some(Loss::Died));
    // 7 times 0.54 s without an acknowledgement, and half a second until the next heartbeat. Only printed,
    // since the clock of an emulated machine runs on while that machine waits for its host.
}
