//! The verbs fabric by a stub of libibverbs (`tests/verbs-stub`), on any Linux host: the conformance suite, shares
//! included, between processes as machines, which are this test program started again.
//!
//! Not here: real queue pairs, lost packets, refusals of a device (`cargo dev rdma`).

use comm::conformance::{self, Effort, REGION_BYTES};
use comm::verbs::{Party, Settings, VerbsFabric};
use comm::{Fabric, MachineId, Region, ShareId, WorkerId};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MACHINES: u16 = 3;
const WORKERS: u16 = 3;
const VICTIM: MachineId = MachineId(1);
const TIMEOUT: Duration = limits::HANG;
/// Role and number of a machine process; unset, this is no machine process.
const ROLE_VARIABLE: &str = "GOSSAMER_TEST_VERBS_ROLE";
const ENDPOINT: &str = "endpoint ";
const READY: &str = "the victim is ready";

/// A machine in a process of its own, killed (by its own id) and waited for when the test is over.
struct Process {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    fn start(machine: u16, role: &str, in_order: &str) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "machine_process", "--ignored", "--nocapture"]);
        command.env(ROLE_VARIABLE, format!("{machine} {role}")).env("VERBS_STUB_IN_ORDER", in_order);
        command.env("LD_LIBRARY_PATH", gossamer_tests::stub::folder().unwrap());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Process { child, stdout }
    }

    /// Starts all machines; each gets the endpoints of all.
    fn start_all(role: &str, in_order: &str) -> Vec<Process> {
        let mut processes: Vec<Process> =
            (0..MACHINES).map(|machine| Process::start(machine, role, in_order)).collect();
        let endpoints: Vec<String> = processes.iter_mut().map(|process| process.wait_for_line(ENDPOINT)).collect();
        for process in &mut processes {
            let mut stdin = process.child.stdin.take().unwrap();
            stdin.write_all(format!("{}\n", endpoints.join(" ")).as_bytes()).unwrap();
        }
        processes
    }

    /// Reads until the machine prints a line with `mark`; returns the text behind the mark.
    fn wait_for_line(&mut self, mark: &str) -> String {
        let mut lines = (&mut self.stdout).lines().map(Result::unwrap);
        let found = lines.find_map(|line| line.split_once(mark).map(|(_, rest)| rest.to_owned()));
        found.unwrap_or_else(|| panic!("it never printed {mark:?}"))
    }

    fn wait(mut self) {
        let mut printed = String::new();
        self.stdout.read_to_string(&mut printed).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success() && printed.contains("1 passed"), "{status}: {printed}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The body of a machine process. Not a test of its own.
#[test]
#[ignore = "what the machine processes run that other tests start"]
fn machine_process() {
    let Ok(role) = std::env::var(ROLE_VARIABLE) else { return };
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
    let mut processes = Process::start_all("reads", "0");
    processes.remove(0).wait();
}

#[test]
fn conforms_between_processes() {
    for in_order in ["0", "1"] {
        Process::start_all("suite", in_order).into_iter().for_each(Process::wait);
    }
}

#[test]
fn shares_outlive_a_machine() {
    let mut processes = Process::start_all("shares", "0");
    let mut victim = processes.remove(usize::from(VICTIM.0));
    victim.wait_for_line(READY);
    victim.child.kill().unwrap();
    processes.into_iter().for_each(Process::wait);
}
