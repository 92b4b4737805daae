//! Whole programs: the conformance suite between threads and processes, connections of workers, starts that fail.

use super::*;

#[test]
fn conforms_between_threads() {
    for machines in [2, 3] {
        let fabrics = open_all(machines, REGION_BYTES, Limits::default());
        std::thread::scope(|scope| {
            for fabric in &fabrics {
                scope.spawn(|| conformance::run(fabric, &effort()));
            }
        });
    }
}

#[test]
fn conforms_between_processes() {
    start_all(3, "suite").into_iter().for_each(ChildProcess::passes);
}

/// Machines that stand still for a moment, one after the other, are not given up.
#[test]
fn conforms_with_pauses() {
    let processes = start_all(3, "suite");
    for round in 0..30 {
        let paused = &processes[round % 3];
        paused.signal(Signal::STOP);
        // The fault itself: the process stands still for that long.
        std::thread::sleep(Duration::from_millis(20));
        paused.signal(Signal::CONT);
    }
    processes.into_iter().for_each(ChildProcess::passes);
}

/// Opens more connections than the process may have at first, on both sides.
pub(super) fn takes_many_connections(fabric: &TcpFabric) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let tight = rustix::process::Rlimit { current: Some(40), ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, tight).unwrap();
    let peer = MachineId(1 - fabric.machine().0);
    let connect = |worker| fabric.connect(peer, WorkerId(worker)).unwrap();
    let connections: Vec<_> = (0..60_u16).map(|worker| (usize::from(worker) * 8, connect(worker))).collect();
    for (offset, mut connection) in connections {
        connection.write(&[1; 8], offset).unwrap();
        connection.flush().unwrap();
    }
    (0..60).for_each(|worker| wait_for_word(fabric.region(), worker * 8, u64::from_ne_bytes([1; 8])));
}

#[test]
fn more_descriptors_are_asked_for() {
    start_all(2, "descriptors").into_iter().for_each(ChildProcess::passes);
}

/// The thread that starts a machine has its connections first, and leaves them to the next thread.
#[test]
fn a_dropped_connection_goes_to_the_next_worker() {
    const MACHINES: u16 = 5;
    let fabrics = open_all(MACHINES, 4096, Limits::default());
    let peers = |own: &TcpFabric| -> Vec<MachineId> {
        (0..MACHINES).map(MachineId).filter(|peer| *peer != own.machine()).collect()
    };
    for (round, worker) in [FIRST_THREAD, WorkerId(1)].into_iter().enumerate() {
        for own in &fabrics {
            let offset = 8 * usize::from(own.machine().0);
            for mut connection in own.connect_all(&peers(own), worker).unwrap() {
                connection.write(&(round as u64 + 1).to_ne_bytes(), offset).unwrap();
            }
        }
        for other in &fabrics {
            for peer in peers(other) {
                wait_for_word(other.region(), 8 * usize::from(peer.0), round as u64 + 1);
            }
        }
    }
    // One for each two machines and direction, for both threads.
    assert!(fabrics.iter().all(|fabric| fabric.poller.lock().accepted() == usize::from(MACHINES) - 1));
    assert!(matches!(fabrics[0].connect(VICTIM, WorkerId(1)), Err(Error::AlreadyConnected { .. })));
    let _both: Vec<_> = (2..4).map(|worker| fabrics[0].connect(VICTIM, WorkerId(worker)).unwrap()).collect();
    limits::wait_until("a connection in use is nobody else's", || {
        fabrics[1].poller.lock().accepted() == usize::from(MACHINES) + 1
    });
}

#[test]
fn connections_outlive_their_fabric() {
    let mut fabrics = open_all(2, 4096, Limits::default());
    let mut connection = fabrics[0].connect(MachineId(1), WorkerId(7)).unwrap();
    drop(fabrics.remove(0));
    connection.write(&[7; 8], 8).unwrap();
    // Held frames go out when the connection is dropped, at the latest.
    drop(connection);
    wait_for_word(fabrics[0].region(), 8, u64::from_ne_bytes([7; 8]));
}

#[test]
fn nothing_goes_out_before_a_flush_but_what_does_not_fit() {
    let fabrics = open_all(2, 4096, Limits::default());
    let mut held = fabrics[0].connect(MachineId(1), WorkerId(0)).unwrap();
    let mut other = fabrics[0].connect(MachineId(1), WorkerId(1)).unwrap();
    held.write(&1_u64.to_ne_bytes(), 0).unwrap();
    for round in 1..100_u64 {
        other.write(&round.to_ne_bytes(), 8).unwrap();
        other.flush().unwrap();
        wait_for_word(fabrics[1].region(), 8, round);
    }
    assert_eq!(fabrics[1].region().word(0).unwrap().load(Ordering::Acquire), 0);
    held.flush().unwrap();
    wait_for_word(fabrics[1].region(), 0, 1);
}

#[test]
fn a_lone_machine_needs_no_peers() {
    let fabrics = open_all(1, 8, Limits::default());
    assert_eq!((fabrics[0].machines(), fabrics[0].region().bytes()), (1, 8));
    assert_eq!(fabrics[0].watch(&[], Duration::from_millis(1)).unwrap(), None);
    fabrics[0].poll(WorkerId(0)).unwrap();
}

/// Two workers of each machine exchange messages with those of the other, and wait now polling, now asleep,
/// so that the reading thread changes all the time.
#[test]
fn polling_and_sleeping_workers_lose_nothing() {
    const ROUNDS: u64 = 3000;
    let fabrics = open_all(2, 4096, Limits::default());
    let play = |fabric: &TcpFabric, worker: u16| {
        let own = fabric.machine().0;
        let (park_word, ball) = (64 * usize::from(worker), 1024 + 64 * usize::from(worker));
        let mut connection = fabric.connect(MachineId(1 - own), WorkerId(worker)).unwrap();
        let mut random = SmallRng::seed_from_u64(u64::from(2 * own + worker));
        // Acquire, pairs with the Release of the flag word: [flag-last] of the contract.
        let has = |round| fabric.region().word(ball).unwrap().load(Ordering::Acquire) >= round;
        for round in 1..=ROUNDS {
            for turn in [0, 1] {
                if turn == own {
                    connection.write(&round.to_ne_bytes(), ball).unwrap();
                    connection.wake(park_word).unwrap();
                    connection.flush().unwrap();
                    continue;
                }
                let mut polls = if random.random_bool(0.5) { random.random_range(0..2000) } else { 0 };
                while !has(round) {
                    if polls > 0 {
                        polls -= 1;
                        fabric.poll(WorkerId(worker)).unwrap();
                        continue;
                    }
                    let woke = fabric.park(WorkerId(worker), park_word, TIMEOUT, &mut || !has(round)).unwrap();
                    assert_ne!(woke, Wake::TimedOut, "round {round} of worker {worker} on machine {own}");
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for fabric in &fabrics {
            (0..2).for_each(|worker| drop(scope.spawn(move || play(fabric, worker))));
        }
    });
}

/// Machines 0 and 2 of three; another fabric reaches machine 1.
#[test]
fn machines_may_be_left_to_other_fabrics() {
    let key = Key::generate().unwrap();
    let listeners = [listen(), listen()];
    let [first, last] = listeners.each_ref().map(|listener| Some(listener.address()));
    let peers = vec![first, None, last];
    let [first, last] = listeners;
    std::thread::scope(|scope| {
        let open = |listener, machine, bytes| {
            TcpFabric::open(listener, MachineId(machine), peers.clone(), key.clone(), region(bytes), TIMEOUT).unwrap()
        };
        let opening = scope.spawn(move || open(first, 0, 64));
        let last = open(last, 2, 128);
        let first = opening.join().unwrap();
        assert_eq!((first.machines(), first.region_bytes(MachineId(2)).unwrap()), (3, 128));
        assert_eq!(last.region_bytes(MachineId(0)).unwrap(), 64, "regions may differ in length");
        assert!(matches!(first.connect(MachineId(1), WorkerId(0)), Err(Error::NoSuchPeer { .. })));
        assert!(matches!(first.lost(MachineId(1)), Err(Error::NoSuchPeer { .. })));
    });
}

#[test]
fn a_taken_port_is_told_with_the_cure() {
    let taken = listen();
    let refused = Listener::bind(taken.address()).unwrap_err().to_string();
    assert!(refused.contains("another program has this port") && refused.contains(&taken.address().to_string()));
    let refused = Listener::bind("203.0.113.7:0".parse().unwrap()).unwrap_err().to_string();
    assert!(refused.contains("no interface of this host has this address"), "{refused}");
}

#[test]
fn machines_that_do_not_come_are_named() {
    let key = Key::generate().unwrap();
    let own = listen();
    let (silent, gone) = (listen(), listen().address());
    let open = |machine: u16, other: SocketAddr, listener: Listener| {
        let mut peers = vec![Some(other); 2];
        peers[usize::from(machine)] = Some(listener.address());
        let timeout = Duration::from_millis(100);
        TcpFabric::open(listener, MachineId(machine), peers, key.clone(), region(8), timeout).unwrap_err()
    };
    // It has not bound its port.
    let error = open(0, gone, listen());
    assert!(matches!(error, Error::Unreachable { machine: VICTIM, address, .. } if address == gone), "{error}");
    // It has bound its port and does not open.
    let error = open(0, silent.address(), listen());
    assert!(matches!(&error, Error::TimedOut { peer, .. } if peer.contains("machine 1")), "{error}");
    // It does not connect.
    let error = open(1, silent.address(), own);
    assert!(matches!(error, Error::PeerMissing { machine: MachineId(0), .. }), "{error}");
}
