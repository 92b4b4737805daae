//! The verbs fabric by a stub of libibverbs (`tests/verbs-stub`), on any Linux host: the conformance suite, shares
//! included, between processes as machines, which are this test program started again.
//!
//! Not here: real queue pairs, lost packets, refusals of a device (`cargo dev rdma`).

use comm::conformance::{self, Effort, REGION_BYTES};
use comm::verbs::{Party, Settings, VerbsFabric};
use comm::{Fabric, MachineId, Region, ShareId, WorkerId};
use processes::ChildProcess;
use rustix::process::Signal;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MACHINES: u16 = 3;
const WORKERS: u16 = 3;
const VICTIM: MachineId = MachineId(1);
const TIMEOUT: Duration = limits::HANG;
const ENDPOINT: &str = "endpoint ";
const READY: &str = "the victim is ready";

/// Starts all machines; each gets the endpoints of all.
fn start_all(role: &str, in_order: &str) -> Vec<ChildProcess> {
    let start = |machine: u16| {
        let mut command = processes::in_role("machine_process", &format!("{machine} {role}"));
        command.env("VERBS_STUB_IN_ORDER", in_order).env("LD_LIBRARY_PATH", gossamer_tests::stub::folder().unwrap());
        command.stdin(Stdio::piped());
        ChildProcess::start_with_input(command)
    };
    let mut processes: Vec<ChildProcess> = (0..MACHINES).map(start).collect();
    let endpoints: Vec<String> = processes.iter().map(|process| process.stdout.line(ENDPOINT)).collect();
    processes.iter_mut().for_each(|process| process.write(&format!("{}\n", endpoints.join(" "))));
    processes
}

/// The body of a machine process. Not a test of its own.
#[test]
#[ignore = "what the machine processes run that other tests start"]
fn machine_process() {
    let Some(role) = processes::role() else { return };
    let (machine, role) = role.split_once(' ').unwrap();
    let machine = MachineId(machine.parse().unwrap());
    let peers = (0..MACHINES).map(MachineId).filter(|peer| *peer != machine).map(|peer| (peer, WORKERS)).collect();
    let party = Party { machine, machines: MACHINES, workers: WORKERS, peers };
    let region = Arc::new(Region::anonymous(REGION_BYTES).unwrap());
    let prepared = VerbsFabric::prepare(&Settings::default(), party, region).unwrap();
    println!("\n{ENDPOINT}{}", hex::encode(prepared.endpoint()));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let endpoints: Vec<_> =
        (0..).map(MachineId).zip(line.trim().split(' ').map(|text| hex::decode(text).unwrap())).collect();
    let fabric = prepared.open(&endpoints, TIMEOUT).unwrap();
    match role {
        "reads" => count_reads(&fabric),
        "suite" => conformance::run(&fabric, &Effort { writes: 6_000, wakes: 50, timeout: TIMEOUT }),
        _ => conformance::shares_outlive_a_machine(&fabric, VICTIM, TIMEOUT, || {
            println!("{READY}");
            std::thread::park_timeout(TIMEOUT);
            panic!("the tester has not killed this machine");
        }),
    }
}

/// Machine 0 reads machine 1's committed data: each read is one request, up to the length of a part; longer ones are
/// several.
fn count_reads(fabric: &VerbsFabric) {
    const SHARE: ShareId = ShareId(3);
    const BYTES: usize = 1 << 20;
    fabric.open_share(SHARE, BYTES).unwrap();
    fabric.commit(SHARE, 0..BYTES).unwrap();
    if fabric.machine() != MachineId(0) {
        return std::thread::park_timeout(TIMEOUT);
    }
    let mut connection = fabric.connect(VICTIM, WorkerId(0)).unwrap();
    let start = Instant::now();
    let mut read = |bytes: usize| {
        let mut into = vec![1; bytes];
        let read_id = connection.read_share(SHARE, 64, bytes)?;
        while !connection.take(read_id, &mut into)? {
            std::thread::yield_now();
        }
        assert!(into.iter().all(|byte| *byte == 0));
        Ok::<(), comm::Error>(())
    };
    // The first reads learn its place, once the other machine has opened it.
    while read(8).is_err() {
        assert!(start.elapsed() < TIMEOUT, "the share is never there");
        std::thread::yield_now();
    }
    for bytes in [8, 4096, 64 << 10] {
        let mut requests = || {
            let before = fabric.counts().requests;
            (0..10).for_each(|_| read(bytes).unwrap());
            fabric.counts().requests - before
        };
        // The fabric's own occasional requests are counted too.
        let fewest = (0..5).map(|_| requests()).min();
        assert_eq!(fewest, Some(10), "ten reads of {bytes} bytes");
    }
}

/// An object's bytes come by one READ.
#[test]
fn a_read_is_one_request() {
    let mut processes = start_all("reads", "0");
    processes.remove(0).passes();
}

#[test]
fn conforms_between_processes() {
    for in_order in ["0", "1"] {
        start_all("suite", in_order).into_iter().for_each(ChildProcess::passes);
    }
}

#[test]
fn shares_outlive_a_machine() {
    let mut processes = start_all("shares", "0");
    let victim = processes.remove(usize::from(VICTIM.0));
    victim.stdout.wait_for(READY);
    victim.signal(Signal::KILL);
    processes.into_iter().for_each(ChildProcess::passes);
}
