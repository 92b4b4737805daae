//! Machines of a verbs fabric for the tests: threads of this process, or processes that are this test program
//! started again; and the network between the two devices of the virtual machine.

use comm::conformance::REGION_BYTES;
use comm::verbs::{Party, Prepared, Settings, VerbsFabric};
use comm::{Error, MachineId, Region};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

pub const TIMEOUT: Duration = limits::HANG;
/// The devices of `cargo dev rdma`'s machine, at the two ends of a pair of network interfaces.
pub const DEVICES: [&str; 2] = ["rxeA", "rxeB"];

/// Returns settings for an emulated machine on a busy host, which may stand still for longer than a real one:
/// a packet counts as lost after 0.27 s, a peer as dead after seven such times.
pub fn lenient() -> Settings {
    Settings { timeout: 16, ..Settings::default() }
}

/// Returns the settings of each machine: only the device differs.
pub fn on_device(machine: u16, settings: &Settings) -> Settings {
    Settings { device: Some(DEVICES[usize::from(machine) % 2].to_owned()), ..settings.clone() }
}

/// Returns a party in which all machines are peers, each with this many workers.
pub fn party(machine: u16, workers: &[u16]) -> Party {
    let peers = (0u16..).zip(workers).filter(|(peer, _)| *peer != machine);
    Party {
        machine: MachineId(machine),
        machines: workers.len() as u16,
        workers: workers[usize::from(machine)],
        peers: peers.map(|(peer, workers)| (MachineId(peer), *workers)).collect(),
        is_shared: false,
    }
}

pub fn prepare(machine: u16, workers: &[u16], settings: &Settings) -> Result<Prepared, Error> {
    prepare_party(party(machine, workers), settings)
}

fn prepare_party(party: Party, settings: &Settings) -> Result<Prepared, Error> {
    let region = Arc::new(Region::anonymous(REGION_BYTES).unwrap());
    VerbsFabric::prepare(&on_device(party.machine.0, settings), party, region)
}

/// Opens all machines of a program with their endpoints exchanged, each changed by `spoil` on its way.
pub fn open_spoiled(workers: &[u16], settings: &Settings, spoil: impl Fn(u16, &mut Vec<u8>)) -> Vec<VerbsFabric> {
    let machines = 0..workers.len() as u16;
    open_parties(machines.map(|machine| party(machine, workers)), settings, spoil)
}

/// Opens machines whose workers share a queue pair to each peer.
pub fn open_shared(workers: &[u16], settings: &Settings) -> Vec<VerbsFabric> {
    let machines = 0..workers.len() as u16;
    let shared = |machine| Party { is_shared: true, ..party(machine, workers) };
    open_parties(machines.map(shared), settings, |_, _| {})
}

fn open_parties(
    parties: impl Iterator<Item = Party>,
    settings: &Settings,
    spoil: impl Fn(u16, &mut Vec<u8>),
) -> Vec<VerbsFabric> {
    let prepared: Vec<_> = parties.map(|party| prepare_party(party, settings).unwrap()).collect();
    let endpoints: Vec<_> = (0u16..)
        .zip(&prepared)
        .map(|(machine, prepared)| {
            let mut endpoint = prepared.endpoint().to_vec();
            spoil(machine, &mut endpoint);
            (MachineId(machine), endpoint)
        })
        .collect();
    std::thread::scope(|scope| {
        let opening: Vec<_> =
            prepared.into_iter().map(|one| scope.spawn(|| one.open(&endpoints, TIMEOUT).unwrap())).collect();
        opening.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

pub fn open(workers: &[u16], settings: &Settings) -> Vec<VerbsFabric> {
    open_spoiled(workers, settings, |_, _| {})
}

/// Runs `body` as each machine, each on its own thread.
pub fn each(fabrics: &[VerbsFabric], body: impl Fn(&VerbsFabric) + Sync) {
    std::thread::scope(|scope| {
        for fabric in fabrics {
            scope.spawn(|| body(fabric));
        }
    });
}

/// Runs a command of the virtual machine that must succeed.
pub fn command(words: &str) {
    let mut words = words.split_whitespace();
    let program = words.next().unwrap();
    let output = Command::new(program).args(words).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Loses packets between the two devices while it lives.
pub struct Lossy;

impl Lossy {
    pub fn new(percent: u32) -> Lossy {
        for interface in ["va", "vb"] {
            command(&format!("tc qdisc add dev {interface} root netem loss {percent}%"));
        }
        Lossy
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        for interface in ["va", "vb"] {
            command(&format!("tc qdisc del dev {interface} root"));
        }
    }
}

/// The interface of the first device is down while this lives. Its route to the other goes with it, and is made anew.
pub struct Down;

impl Down {
    pub fn new() -> Down {
        command("ip link set va down");
        Down
    }
}

impl Drop for Down {
    fn drop(&mut self) {
        command("ip link set va up");
        command("ip route replace 10.79.0.2/32 dev va src 10.79.0.1 table 102");
        command("ip route replace 10.79.0.1/32 dev vb src 10.79.0.2 table 101");
    }
}

/// Returns the memory this process has pinned, in KiB.
pub fn pinned_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
