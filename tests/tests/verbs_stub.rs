//! The verbs fabric by a stub of libibverbs (`tests/verbs-stub`), on any Linux host: the conformance suite, shares
//! included, between processes as machines, which are this test program started again. Each worker has a queue pair to
//! each peer, or all workers share one.
//!
//! Not here: real queue pairs, lost packets, refusals of a device (`cargo dev rdma`).

use comm::conformance::{self, Effort, REGION_BYTES};
use comm::verbs::{Party, Settings, VerbsFabric};
use comm::{Error, Fabric, MachineId, Region, ShareId, Wake, WorkerId};
use processes::ChildProcess;
use rustix::process::Signal;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const MACHINES: u16 = 3;
const WORKERS: u16 = 3;
const VICTIM: MachineId = MachineId(1);
const TIMEOUT: Duration = limits::HANG;
const ENDPOINT: &str = "endpoint ";
const READY: &str = "the victim is ready";
const CHECKED: &str = "this machine is as it should be";
/// Whether all workers of a machine share a queue pair to each peer.
const SHARING: [bool; 2] = [false, true];

/// Starts all machines; each gets the endpoints of all.
fn start_all(role: &str, is_shared: bool, in_order: &str) -> Vec<ChildProcess> {
    start_each(role, |_| is_shared, in_order)
}

fn start_each(role: &str, is_shared: impl Fn(u16) -> bool, in_order: &str) -> Vec<ChildProcess> {
    let start = |machine: u16| {
        let is_shared = is_shared(machine);
        let mut command = processes::in_role("machine_process", &format!("{machine} {is_shared} {role}"));
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
    let [machine, is_shared, role] = role.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
    let (machine, is_shared) = (MachineId(machine.parse().unwrap()), is_shared.parse().unwrap());
    let peers = (0..MACHINES).map(MachineId).filter(|peer| *peer != machine).map(|peer| (peer, WORKERS)).collect();
    let party = Party { machine, machines: MACHINES, workers: WORKERS, peers, is_shared };
    let region = Arc::new(Region::anonymous(REGION_BYTES).unwrap());
    let prepared = VerbsFabric::prepare(&Settings::default(), party, region).unwrap();
    println!("\n{ENDPOINT}{}", hex::encode(prepared.endpoint()));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let endpoints: Vec<_> =
        (0..).map(MachineId).zip(line.trim().split(' ').map(|text| hex::decode(text).unwrap())).collect();
    if role == "refused" {
        let said = prepared.open(&endpoints, TIMEOUT).unwrap_err().to_string();
        return assert!(said.contains("one has machine ways, the other has not"), "{said}");
    }
    let fabric = prepared.open(&endpoints, TIMEOUT).unwrap();
    match role {
        "reads" => count_reads(&fabric),
        "suite" => conformance::run(&fabric, &Effort { writes: 6_000, wakes: 50, timeout: TIMEOUT }),
        "queue pairs" => stay_after(|| count_queue_pairs(&fabric, is_shared)),
        "looks" => stay_after(|| look_for_others(&fabric)),
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

/// Stays for the others, which may not have met this machine yet.
fn stay_after(check: impl FnOnce()) {
    check();
    println!("{CHECKED}");
    std::thread::park_timeout(TIMEOUT);
}

/// Every worker and the thread that starts the machine connect to each peer, and no other thread does.
fn count_queue_pairs(fabric: &VerbsFabric, is_shared: bool) {
    let lanes = if is_shared { 1 } else { WORKERS + 1 };
    assert_eq!(fabric.counts().queue_pairs, u64::from(lanes * (MACHINES - 1)));
    for peer in (0..MACHINES).map(MachineId).filter(|peer| *peer != fabric.machine()) {
        for worker in (0..WORKERS).chain([u16::MAX]).map(WorkerId) {
            fabric.connect(peer, worker).unwrap();
        }
        let refused = fabric.connect(peer, WorkerId(WORKERS)).map(drop);
        assert!(matches!(refused, Err(Error::NoSuchWorker { worker: WORKERS, workers: WORKERS })), "{refused:?}");
    }
    assert!(matches!(fabric.poll(WorkerId(WORKERS)), Err(Error::NoSuchWorker { .. })));
    let refused = fabric.park(WorkerId(WORKERS), 0, Duration::ZERO, &mut || true);
    assert!(matches!(refused, Err(Error::NoSuchWorker { .. })), "{refused:?}");
}

/// A worker of machine 0 writes and wakes, and polls never again, as one that computes. The one of machine 1 that it
/// wakes was awake then, and sleeps as if it had not seen the write. Another worker of machine 0 looks for it: when it
/// polls, or before it sleeps itself. Now and then the look twice a second comes first, also before the sleep.
fn look_for_others(fabric: &VerbsFabric) {
    const ROUNDS: u64 = 20;
    const PARK: [usize; 2] = [0, 64];
    const WRITTEN: usize = 128;
    const ASLEEP: usize = 192;
    const WOKEN: usize = 256;
    const COMPUTES: WorkerId = WorkerId(WORKERS - 1);
    const LOOKS: WorkerId = WorkerId(0);
    let wait_for = |offset: usize, value: u64| {
        let start = Instant::now();
        // Acquire, pairs with the Release of the flag word: [flag-last] of the contract.
        while fabric.region().word(offset).unwrap().load(Ordering::Acquire) != value {
            assert!(start.elapsed() < TIMEOUT, "{value} does not come at {offset}");
            std::thread::yield_now();
        }
    };
    match fabric.machine().0 {
        0 => {
            let mut connection = fabric.connect(VICTIM, COMPUTES).unwrap();
            for round in 1..=ROUNDS {
                connection.write(&round.to_ne_bytes(), WRITTEN).unwrap();
                connection.wake(PARK[1]).unwrap();
                connection.flush().unwrap();
                wait_for(ASLEEP, round);
                if round.is_multiple_of(2) {
                    fabric.poll(LOOKS).unwrap();
                } else {
                    fabric.park(LOOKS, PARK[0], Duration::ZERO, &mut || true).unwrap();
                }
                wait_for(WOKEN, round);
            }
            let late = fabric.counts().late_wake_messages;
            assert!(late < ROUNDS / 2, "{late} of {ROUNDS} sleepers waited for it");
        }
        1 => {
            let mut connection = fabric.connect(MachineId(0), COMPUTES).unwrap();
            let mut woken = 0;
            for round in 1..=ROUNDS {
                wait_for(WRITTEN, round);
                let mut looks = 0;
                let mut is_idle = || {
                    looks += 1;
                    if looks == 2 {
                        // The peers know of the sleep.
                        connection.write(&round.to_ne_bytes(), ASLEEP).unwrap();
                        connection.flush().unwrap();
                    }
                    true
                };
                let woke = fabric.park(LOOKS, PARK[1], Duration::from_secs(2), &mut is_idle).unwrap();
                woken += u64::from(woke == Wake::Woken);
                connection.write(&round.to_ne_bytes(), WOKEN).unwrap();
                connection.flush().unwrap();
            }
            assert!(woken > ROUNDS / 2, "woken {woken} times of {ROUNDS}");
        }
        _ => {}
    }
}

/// An object's bytes come by one READ.
#[test]
fn a_read_is_one_request() {
    for is_shared in SHARING {
        let mut processes = start_all("reads", is_shared, "0");
        processes.remove(0).passes();
    }
}

#[test]
fn conforms_between_processes() {
    for (is_shared, in_order) in [(false, "0"), (false, "1"), (true, "0"), (true, "1")] {
        start_all("suite", is_shared, in_order).into_iter().for_each(ChildProcess::passes);
    }
}

#[test]
fn shares_outlive_a_machine() {
    for is_shared in SHARING {
        let mut processes = start_all("shares", is_shared, "0");
        let victim = processes.remove(usize::from(VICTIM.0));
        victim.stdout.wait_for(READY);
        victim.signal(Signal::KILL);
        processes.into_iter().for_each(ChildProcess::passes);
    }
}

#[test]
fn each_worker_has_a_queue_pair_to_each_peer_or_all_share_one() {
    for is_shared in SHARING {
        let processes = start_all("queue pairs", is_shared, "0");
        processes.iter().for_each(|process| drop(process.stdout.wait_for(CHECKED)));
    }
}

#[test]
fn machines_of_which_one_shares_queue_pairs_and_another_does_not_refuse_one_another() {
    start_each("refused", |machine| machine == 1, "0").into_iter().for_each(ChildProcess::passes);
}

#[test]
fn who_shares_a_queue_pair_looks_for_those_that_others_wake() {
    let processes = start_all("looks", true, "0");
    processes.iter().for_each(|process| drop(process.stdout.wait_for(CHECKED)));
}

/// A peer that names no thread, no place, or no queue pair that there is, does no harm.
#[test]
fn wake_messages_for_nobody_do_no_harm() {
    let processes = start_all("suite", true, "0");
    let socket = UnixDatagram::unbound().unwrap();
    let places = [0, 1, 16, u32::MAX / 4, u32::MAX];
    for (queue_pair, place) in [1, 2, 1000, u32::MAX].into_iter().flat_map(|pair| places.map(|place| (pair, place))) {
        let message = [u32::to_ne_bytes(queue_pair), u32::to_ne_bytes(place)].concat();
        for process in &processes {
            let address = SocketAddr::from_abstract_name(format!("verbs-stub-{}", process.id())).unwrap();
            socket.send_to_addr(&message, &address).unwrap();
        }
    }
    processes.into_iter().for_each(ChildProcess::passes);
}
