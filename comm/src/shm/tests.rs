//! The conformance suite over `shm`: machines as threads of this process (each with its own mappings), and as
//! real processes, which are this test program started again. And cases of `shm` alone: starting, sealing,
//! death.

use super::*;
use crate::conformance::{self, Effort, REGION_BYTES};
use processes::ChildProcess;
use rustix::process::Signal;
use std::time::Instant;

const TIMEOUT: Duration = limits::HANG;
const READY: &str = "the victim is ready";
const VICTIM: MachineId = MachineId(1);

/// Opens all machines of a program at once, in this process.
fn open_all(machines: u16, region_bytes: usize) -> Vec<ShmFabric> {
    let segments = create(machines).unwrap();
    std::thread::scope(|scope| {
        let open = |machine| ShmFabric::open(segments.bootstrap(MachineId(machine)).unwrap(), region_bytes, TIMEOUT);
        let opening: Vec<_> = (0..machines).map(|machine| scope.spawn(move || open(machine).unwrap())).collect();
        opening.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Starts all machines of a program, each in a process of its own.
fn start_all(machines: u16, role: &str) -> Vec<ChildProcess> {
    let segments = create(machines).unwrap();
    let start = |machine| {
        let mut command = processes::in_role("shm::tests::machine_process", role);
        segments.hand_to(&mut command, MachineId(machine));
        ChildProcess::start(command)
    };
    (0..machines).map(start).collect()
}

/// Body of a machine process. Not a test of its own.
#[test]
#[ignore = "what the machine processes run that other tests start"]
fn machine_process() {
    let Some(role) = processes::role() else { return };
    let bootstrap = Bootstrap::from_env().unwrap().expect("the parent handed memory over");
    assert!(matches!(Bootstrap::from_env(), Err(Error::Bootstrap { .. })), "descriptors are taken once");
    if role == "quit" && bootstrap.machine == VICTIM {
        return;
    }
    let opened = ShmFabric::open(bootstrap, REGION_BYTES, TIMEOUT);
    match role.as_str() {
        "suite" => conformance::run(&opened.unwrap(), &Effort::of_tests()),
        "shares" => conformance::shares_outlive_a_machine(&opened.unwrap(), VICTIM, TIMEOUT, || {
            println!("{READY}");
            std::thread::park_timeout(TIMEOUT);
            panic!("the tester has not killed this machine");
        }),
        "death" => conformance::notices_death(&opened.unwrap(), VICTIM, TIMEOUT, || println!("{READY}")),
        role => panic!("no such role: {role}"),
    }
}

#[test]
fn conforms_between_threads() {
    let fabrics = open_all(3, REGION_BYTES);
    std::thread::scope(|scope| {
        for fabric in &fabrics {
            scope.spawn(|| conformance::run(fabric, &Effort::of_tests()));
        }
    });
}

#[test]
fn conforms_between_processes() {
    start_all(2, "suite").into_iter().for_each(ChildProcess::passes);
}

#[test]
fn timed_a_killed_machine_is_noticed() {
    let mut processes = start_all(3, "death");
    let victim = processes.remove(usize::from(VICTIM.0));
    victim.stdout.wait_for(READY);
    let start = Instant::now();
    victim.signal(Signal::KILL);
    processes.into_iter().for_each(ChildProcess::passes);
    // The survivors would time out after TIMEOUT; the goal is a second, a busy machine gets a few.
    assert!(start.elapsed() < limits::bound(Duration::from_secs(10)), "noticed after {:?}", start.elapsed());
}

#[test]
fn shares_outlive_a_machine() {
    let mut processes = start_all(3, "shares");
    let victim = processes.remove(usize::from(VICTIM.0));
    victim.stdout.wait_for(READY);
    victim.signal(Signal::KILL);
    processes.into_iter().for_each(ChildProcess::passes);
}

#[test]
fn a_peers_share_is_mapped_and_outlives_the_fabric() {
    let mut fabrics = open_all(2, 4096);
    let share = ShareId(4);
    assert!(matches!(fabrics[0].mapped(MachineId(1), share), Err(Error::NoSuchShare { .. })));
    fabrics[1].open_share(share, 1 << 30).unwrap();
    fabrics[1].commit(share, 0..crate::SHARE_UNIT_BYTES).unwrap();
    let seen = fabrics[0].mapped(MachineId(1), share).unwrap().unwrap();
    let own = fabrics[1].mapped(MachineId(1), share).unwrap().unwrap();
    assert_ne!(seen.words().as_ptr(), own.words().as_ptr(), "machines of one process have mappings of their own");
    own.words()[5].store(17, std::sync::atomic::Ordering::Relaxed);
    drop(fabrics.pop());
    drop((fabrics, own));
    assert_eq!(seen.words()[5].load(std::sync::atomic::Ordering::Relaxed), 17);
}

#[test]
fn a_machine_that_never_starts_is_named() {
    let segments = create(3).unwrap();
    let timeout = Duration::from_millis(20);
    let opened = ShmFabric::open(segments.bootstrap(MachineId(0)).unwrap(), 4096, timeout);
    assert!(matches!(opened, Err(Error::PeerMissing { machine: MachineId(1), .. })), "{opened:?}");
    // The others learn that machine 0 has given up, and do not wait for their own timeout.
    let opened = ShmFabric::open(segments.bootstrap(MachineId(1)).unwrap(), 4096, TIMEOUT);
    assert!(matches!(opened, Err(Error::PeerLost { machine: MachineId(0) })), "{opened:?}");
}

#[test]
fn a_machine_that_ends_while_starting_is_named() {
    let segments = create(2).unwrap();
    // Machine 1 sizes its memory in a process that has ended by the time of its next step.
    let mut process = std::process::Command::new("true").spawn().unwrap();
    let control = Control::open(&segments.bootstrap(VICTIM).unwrap().fds[0]).unwrap();
    control.claim(VICTIM).unwrap();
    size(&segments.bootstrap(VICTIM).unwrap().fds[2], RegionSize::from(4096)).unwrap();
    control.introduce(VICTIM, 4096, process.id()).unwrap();
    control.advance(VICTIM, Step::Sized).unwrap();
    // Not reaped until `wait` below, so that its id stays its own: the pidfd opens, and shows that it has ended.
    let opened = ShmFabric::open(segments.bootstrap(MachineId(0)).unwrap(), 4096, TIMEOUT);
    process.wait().unwrap();
    assert!(matches!(opened, Err(Error::PeerLost { machine: VICTIM })), "{opened:?}");
}

#[test]
fn leaving_in_order_is_no_death() {
    let mut fabrics = open_all(2, 4096);
    drop(fabrics.pop());
    assert_eq!(fabrics[0].lost(MachineId(1)).unwrap(), Some(Loss::Left));
    assert_eq!(fabrics[0].watch(&[], Duration::ZERO).unwrap(), None);
}

#[test]
fn connections_outlive_their_fabric() {
    let mut fabrics = open_all(2, 4096);
    let mut connection = fabrics[0].connect(MachineId(1), WorkerId(7)).unwrap();
    drop(fabrics.remove(0));
    connection.write(&[7; 8], 8).unwrap();
    let word = fabrics[0].region().word(8).unwrap();
    assert_eq!(word.load(std::sync::atomic::Ordering::Acquire), u64::from_ne_bytes([7; 8]));
}

#[test]
fn a_lone_machine_needs_no_peers() {
    let fabrics = open_all(1, 8);
    assert_eq!((fabrics[0].machines(), fabrics[0].region().bytes()), (1, 8));
    assert_eq!(fabrics[0].watch(&[], Duration::from_millis(1)).unwrap(), None);
}

#[test]
fn a_group_keeps_its_numbers_in_the_program() {
    let segments = create(2).unwrap();
    let group = [MachineId(3), MachineId(5)];
    let open = |place| {
        let bootstrap = segments.bootstrap(MachineId(place)).unwrap();
        ShmFabric::open_group(bootstrap, &group, 7, 4096.into(), TIMEOUT).unwrap()
    };
    std::thread::scope(|scope| {
        let third = scope.spawn(|| open(0));
        let fifth = open(1);
        let third = third.join().unwrap();
        assert_eq!((fifth.machine(), fifth.machines()), (MachineId(5), 7));
        let mut connection = third.connect(MachineId(5), WorkerId(0)).unwrap();
        assert_eq!(connection.peer(), MachineId(5));
        connection.write(&[9; 8], 0).unwrap();
        let region = fifth.shared_region();
        assert_eq!(region.word(0).unwrap().load(std::sync::atomic::Ordering::Acquire), u64::from_ne_bytes([9; 8]));
        for stranger in [0, 1, 3, 4, 7] {
            assert!(matches!(third.connect(MachineId(stranger), WorkerId(0)), Err(Error::NoSuchPeer { .. })));
        }
        drop(third);
        assert_eq!(fifth.lost(MachineId(3)).unwrap(), Some(Loss::Left));
    });
}

#[test]
fn a_group_that_does_not_fit_is_refused() {
    let segments = create(2).unwrap();
    for (group, machines) in [(vec![0, 1, 2], 3), (vec![1, 0], 2), (vec![1, 1], 2), (vec![4, 5], 5), (vec![], 2)] {
        let group: Vec<_> = group.into_iter().map(MachineId).collect();
        let bootstrap = segments.bootstrap(MachineId(0)).unwrap();
        let opened = ShmFabric::open_group(bootstrap, &group, machines, 4096.into(), TIMEOUT);
        assert!(matches!(opened, Err(Error::Bootstrap { .. })), "{opened:?}");
    }
}

#[test]
fn regions_may_differ_in_length() {
    let segments = create(2).unwrap();
    let open = |machine, bytes| ShmFabric::open(segments.bootstrap(MachineId(machine)).unwrap(), bytes, TIMEOUT);
    std::thread::scope(|scope| {
        let small = scope.spawn(|| open(0, 64).unwrap());
        let large = open(1, 1 << 16).unwrap();
        let small = small.join().unwrap();
        assert_eq!(small.region_bytes(MachineId(1)).unwrap(), 1 << 16);
        let mut connection = large.connect(MachineId(0), WorkerId(0)).unwrap();
        assert!(matches!(connection.write(&[1; 8], 64), Err(Error::OutOfRange { region_bytes: 64, .. })));
    });
}

#[test]
fn a_region_cannot_be_taken_away() {
    let segments = create(1).unwrap();
    let kept = segments.bootstrap(MachineId(0)).unwrap();
    let fabric = ShmFabric::open(segments.bootstrap(MachineId(0)).unwrap(), 4096, TIMEOUT).unwrap();
    // The file of the shares grows, and is still empty.
    for fd in &kept.fds[..2] {
        assert_eq!(rustix::fs::ftruncate(fd, 0), Err(rustix::io::Errno::PERM), "it would be a SIGBUS");
    }
    fabric.region().word(4088).unwrap().store(1, std::sync::atomic::Ordering::Relaxed);
}

#[test]
fn a_region_takes_memory_when_it_is_committed() {
    const BYTES: usize = 1 << 30;
    let segments = create(2).unwrap();
    let open = |machine: u16, region| {
        let group = [MachineId(0), MachineId(1)];
        let bootstrap = segments.bootstrap(MachineId(machine)).unwrap();
        ShmFabric::open_group(bootstrap, &group, 2, region, TIMEOUT).unwrap()
    };
    let taken = || {
        let file = &segments.bootstrap(MachineId(0)).unwrap().fds[1];
        fstat(file).unwrap().st_blocks as usize * 512
    };
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| open(1, 64.into()));
        let owner = open(0, RegionSize { bytes: BYTES, committed_bytes: 1 << 16 });
        let writer = writer.join().unwrap();
        assert!((1 << 16..2 << 20).contains(&taken()), "{} bytes", taken());
        owner.commit_region(BYTES - (4 << 20)..BYTES).unwrap();
        assert!((4 << 20..8 << 20).contains(&taken()), "{} bytes", taken());
        let mut connection = writer.connect(MachineId(0), WorkerId(0)).unwrap();
        connection.write(&[7; 8], BYTES - 8).unwrap();
        owner.commit_region(BYTES - 8..BYTES).unwrap();
        let word = owner.region().word(BYTES - 8).unwrap().load(std::sync::atomic::Ordering::Acquire);
        assert_eq!(word, u64::from_ne_bytes([7; 8]), "a committed range keeps its bytes");
        assert!(matches!(owner.commit_region(BYTES - 8..BYTES + 8), Err(Error::OutOfRange { .. })));
        assert!(matches!(owner.commit_region(8..8), Err(Error::Misaligned { .. })));
    });
}

#[test]
fn a_machine_starts_once() {
    let segments = create(1).unwrap();
    let open = || ShmFabric::open(segments.bootstrap(MachineId(0)).unwrap(), 4096, TIMEOUT);
    drop(open().unwrap());
    assert!(matches!(open(), Err(Error::Bootstrap { .. })));
}

#[test]
fn nonsense_is_refused() {
    let segments = create(2).unwrap();
    let bootstrap = |machine| segments.bootstrap(MachineId(machine)).unwrap();
    let refused = |bootstrap: Bootstrap| {
        let opened = ShmFabric::open(bootstrap, 4096, TIMEOUT);
        assert!(matches!(opened, Err(Error::Bootstrap { .. })), "{opened:?}");
    };
    refused(bootstrap(2));
    refused(Bootstrap { machine: MachineId(0), fds: vec![] });
    let mut too_few = bootstrap(0);
    too_few.fds.pop();
    refused(too_few);
    let mut no_control = bootstrap(0);
    no_control.fds.remove(0);
    refused(no_control);
    assert!(matches!(create(0), Err(Error::Bootstrap { .. })));
    assert!(matches!(create(u16::MAX), Err(Error::Bootstrap { .. })));
    for bytes in [0, 12] {
        assert!(matches!(ShmFabric::open(bootstrap(0), bytes, TIMEOUT), Err(Error::Misaligned { .. })));
    }
}

#[test]
fn a_peer_that_lies_about_its_length_is_refused() {
    let segments = create(2).unwrap();
    let control = Control::open(&segments.bootstrap(VICTIM).unwrap().fds[0]).unwrap();
    size(&segments.bootstrap(VICTIM).unwrap().fds[2], RegionSize::from(4096)).unwrap();
    control.introduce(VICTIM, 8192, std::process::id()).unwrap();
    control.advance(VICTIM, Step::Sized).unwrap();
    let opened = ShmFabric::open(segments.bootstrap(MachineId(0)).unwrap(), 4096, TIMEOUT);
    assert!(matches!(opened, Err(Error::Bootstrap { .. })), "{opened:?}");
}
