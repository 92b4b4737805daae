//! The conformance suite over `tcp`: machines as threads of this process, and as real processes, which are
//! this test program started again. And cases of `tcp` alone: strangers, slow readers, silence. All on
//! loopback.

mod strangers;

use super::frame::{Event, Intake, Question};
use super::greeting::{Claim, IncomingHandshake, PURPOSE, Progress};
use super::reach::Beginning;
use super::*;
use crate::conformance::{self, Effort, REGION_BYTES};
use crate::{ReadId, ShareId, Wake};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Instant;

const TIMEOUT: Duration = limits::HANG;
const SHORT: Limits = Limits { heartbeat: Duration::from_millis(50), silence: Duration::from_millis(400) };
const VICTIM: MachineId = MachineId(1);
/// Role of a machine process; without it, this is no machine process.
const ROLE_VARIABLE: &str = "COMM_TEST_TCP_ROLE";
const UP: &str = "this machine is up";
const READY: &str = "the victim is ready";

fn effort() -> Effort {
    Effort { writes: 20_000, wakes: 500, timeout: TIMEOUT }
}

fn listen() -> Listener {
    Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap()
}

fn region(bytes: usize) -> Arc<Region> {
    Arc::new(Region::anonymous(bytes).unwrap())
}

/// Opens all machines of a program at once, in this process.
fn open_all(machines: u16, region_bytes: usize, limits: Limits) -> Vec<TcpFabric> {
    let key = Key::generate().unwrap();
    let listeners: Vec<_> = (0..machines).map(|_| listen().with_limits(limits)).collect();
    let peers: Vec<_> = listeners.iter().map(|listener| Some(listener.address())).collect();
    std::thread::scope(|scope| {
        let open = |listener, machine| {
            TcpFabric::open(listener, machine, peers.clone(), key.clone(), region(region_bytes), TIMEOUT).unwrap()
        };
        let opening: Vec<_> = (0..).map(MachineId).zip(listeners).collect();
        let opening: Vec<_> =
            opening.into_iter().map(|(machine, listener)| scope.spawn(move || open(listener, machine))).collect();
        opening.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Waits until a peer is lost, for the longest time of a test.
fn wait_for_loss(fabric: &TcpFabric, peer: MachineId) -> Loss {
    let start = Instant::now();
    loop {
        match fabric.lost(peer).unwrap() {
            Some(loss) => return loss,
            None => assert!(start.elapsed() < TIMEOUT, "{peer} is not lost"),
        }
        std::thread::yield_now();
    }
}

/// Waits until the word at `offset` is `value`.
fn wait_for_word(region: &Region, offset: usize, value: u64) {
    let start = Instant::now();
    // Acquire, pairs with the Release of the flag word: [flag-last] of the contract.
    while region.word(offset).unwrap().load(Ordering::Acquire) != value {
        assert!(start.elapsed() < TIMEOUT, "{value} did not come");
        std::thread::yield_now();
    }
}

/// A machine in its own process, killed (by its own id) and reaped when the test is over.
struct Process {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    fn start_all(machines: u16, role: &str) -> Vec<Process> {
        let (mut processes, addresses) = Process::start(machines, role);
        Process::open_all(&mut processes, &addresses);
        processes
    }

    /// Starts machines that listen, and wait for each other's addresses; returns their addresses too.
    fn start(machines: u16, role: &str) -> (Vec<Process>, Vec<String>) {
        let start = |machine: u16| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "tcp::tests::machine_process", "--ignored", "--nocapture"]);
            command.env(ROLE_VARIABLE, format!("{machine} {role}"));
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let stdout = BufReader::new(child.stdout.take().unwrap());
            Process { child, stdout }
        };
        let mut processes: Vec<Process> = (0..machines).map(start).collect();
        let addresses = processes.iter_mut().map(|process| process.wait_for_line("address ")).collect();
        (processes, addresses)
    }

    /// Lets them open their fabrics.
    fn open_all(processes: &mut [Process], addresses: &[String]) {
        let text = Key::generate().unwrap().to_text();
        for process in &mut *processes {
            let told = format!("{}\n{}\n", text.lines().last().unwrap(), addresses.join(" "));
            process.child.stdin.take().unwrap().write_all(told.as_bytes()).unwrap();
        }
        processes.iter_mut().for_each(|process| drop(process.wait_for_line(UP)));
    }

    /// Reads until the machine prints a line with `mark`; returns the rest of the line.
    fn wait_for_line(&mut self, mark: &str) -> String {
        let mut lines = (&mut self.stdout).lines().map(Result::unwrap);
        let found = lines.find_map(|line| line.split_once(mark).map(|(_, rest)| rest.to_owned()));
        found.unwrap_or_else(|| panic!("it never printed {mark:?}"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
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

/// Body of a machine process. Not a test of its own.
#[test]
#[ignore = "what the machine processes run that other tests start"]
fn machine_process() {
    let Ok(told) = std::env::var(ROLE_VARIABLE) else {
        return;
    };
    let (machine, role) = told.split_once(' ').unwrap();
    let listener = if role == "silence" { listen().with_limits(SHORT) } else { listen() };
    println!("address {}", listener.address());
    let mut lines = std::io::stdin().lines().map(Result::unwrap);
    let key = Key::parse(&lines.next().unwrap()).unwrap();
    let peers = lines.next().unwrap().split(' ').map(|address| Some(address.parse().unwrap())).collect();
    let machine = MachineId(machine.parse().unwrap());
    if role == "scarce" && machine == VICTIM {
        strangers::leave_few_descriptors();
    }
    let fabric = TcpFabric::open(listener, machine, peers, key, region(REGION_BYTES), TIMEOUT).unwrap();
    println!("{UP}");
    match role {
        "suite" => conformance::run(&fabric, &effort()),
        "shares" => conformance::shares_outlive_a_machine(&fabric, VICTIM, TIMEOUT, || {
            println!("{READY}");
            std::thread::park_timeout(TIMEOUT);
            panic!("the tester has not killed this machine");
        }),
        "descriptors" => takes_many_connections(&fabric),
        "scarce" => strangers::lives_on_few_descriptors(&fabric),
        role => {
            conformance::notices_death(&fabric, VICTIM, TIMEOUT, || println!("{READY}"));
            let cause = fabric.cause(VICTIM).expect("a reason");
            let expected = if role == "silence" { "nothing was heard" } else { "without a graceful close" };
            assert!(cause.contains(expected), "{cause}");
        }
    }
}

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
    Process::start_all(3, "suite").into_iter().for_each(Process::wait);
}

/// Machines that stand still for a moment, one after the other, are not given up.
#[test]
fn conforms_with_pauses() {
    let processes = Process::start_all(3, "suite");
    for round in 0..30 {
        let paused = &processes[round % 3];
        paused.signal(Signal::STOP);
        // The fault itself: the process stands still for that long.
        std::thread::sleep(Duration::from_millis(20));
        paused.signal(Signal::CONT);
    }
    processes.into_iter().for_each(Process::wait);
}

/// Opens more connections than the process may have at first, on both sides.
fn takes_many_connections(fabric: &TcpFabric) {
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
    Process::start_all(2, "descriptors").into_iter().for_each(Process::wait);
}

#[test]
fn timed_a_killed_machine_is_noticed() {
    let mut processes = Process::start_all(3, "death");
    let mut victim = processes.remove(usize::from(VICTIM.0));
    victim.wait_for_line(READY);
    let start = Instant::now();
    victim.signal(Signal::KILL);
    processes.into_iter().for_each(Process::wait);
    assert!(start.elapsed() < limits::bound(Duration::from_secs(20)), "noticed after {:?}", start.elapsed());
}

#[test]
fn shares_outlive_a_machine() {
    let mut processes = Process::start_all(3, "shares");
    let mut victim = processes.remove(usize::from(VICTIM.0));
    victim.wait_for_line(READY);
    victim.signal(Signal::KILL);
    processes.into_iter().for_each(Process::wait);
}

const SHARE: ShareId = ShareId(0);
const UNIT: usize = crate::SHARE_UNIT_BYTES;

/// Opens two machines, the second with a share of this many units, all committed and filled with their numbers.
fn open_with_share(units: usize) -> Vec<TcpFabric> {
    let fabrics = open_all(2, 4096, Limits::default());
    fabrics[1].open_share(SHARE, units * UNIT).unwrap();
    fabrics[1].commit(SHARE, 0..units * UNIT).unwrap();
    let own = fabrics[1].mapped(MachineId(1), SHARE).unwrap().unwrap();
    own.words().iter().enumerate().for_each(|(at, word)| word.store(at as u64, Ordering::Relaxed));
    fabrics
}

/// Takes a read once it has come.
fn take(connection: &mut dyn Connection, read_id: ReadId, bytes: usize) -> Result<Vec<u8>, Error> {
    let (start, mut into) = (Instant::now(), vec![0; bytes]);
    while !connection.take(read_id, &mut into)? {
        assert!(start.elapsed() < TIMEOUT, "a read never ended");
        std::thread::yield_now();
    }
    Ok(into)
}

#[test]
fn a_frame_outside_a_share_is_the_end_of_its_sender() {
    for wire in [
        frame::share_write_head(SHARE, UNIT, 8).to_vec(),
        frame::share_write_head(ShareId(1), 0, 8).to_vec(),
        Question::Part { share: SHARE, offset: UNIT - 8, bytes: 16 }.to_bytes().to_vec(),
        // More than the limit under way: 2 MiB at once.
        Question::Part { share: SHARE, offset: 0, bytes: UNIT }.to_bytes().repeat(32),
    ] {
        let fabrics = open_with_share(1);
        let (mut stream, _) = fabrics[0].reach(MachineId(1), Use::Data { worker: 9 }, TIMEOUT).unwrap();
        stream.write_all(&wire).unwrap();
        assert_eq!(wait_for_loss(&fabrics[1], MachineId(0)), Loss::Died);
        let cause = fabrics[1].cause(MachineId(0)).unwrap();
        assert!(cause.contains("worker 9") && cause.contains("share"), "{cause}");
    }
}

/// A peer that asks and never reads the answers does not hold up others.
#[test]
fn a_reader_that_takes_nothing_is_alone_with_it() {
    let fabrics = open_with_share(16);
    let (mut idle, _) = fabrics[0].reach(MachineId(1), Use::Data { worker: 9 }, TIMEOUT).unwrap();
    let part = |number: usize| Question::Part { share: SHARE, offset: number * UNIT, bytes: UNIT }.to_bytes();
    (0..16).for_each(|number| idle.write_all(&part(number)).unwrap());
    let mut connection = fabrics[0].connect(MachineId(1), WorkerId(0)).unwrap();
    for number in 0..100 {
        let read_id = connection.read_share(SHARE, 8 * number, UNIT).unwrap();
        assert_eq!(take(&mut *connection, read_id, UNIT).unwrap()[..8], (number as u64).to_ne_bytes());
    }
    // The owed answers are there in the end.
    let mut answers = vec![0; 16 * (8 + UNIT)];
    idle.read_exact(&mut answers).unwrap();
    assert_eq!(answers[answers.len() - 8..], (16 * UNIT as u64 / 8 - 1).to_ne_bytes());
    assert_eq!(fabrics[1].lost(MachineId(0)).unwrap(), None);
}

/// Returns the number of bytes sent into a connection of this process and not read yet, by the system's own count.
fn queued_bytes(stream: &TcpStream) -> usize {
    let ends = [stream.local_addr().unwrap(), stream.peer_addr().unwrap()].map(|end| format!(":{:04X}", end.port()));
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let queued = |from: &str, to: &str, place: usize| {
        let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        let mut found = rows.filter(|row| row.len() > 4 && row[1].ends_with(from) && row[2].ends_with(to));
        let queues = found.next().expect("the connection is in the table")[4];
        usize::from_str_radix(queues.split(':').nth(place).unwrap(), 16).unwrap()
    };
    queued(&ends[1], &ends[0], 0) + queued(&ends[0], &ends[1], 1)
}

/// Answers that the owner's socket does not take continue when it has room again.
#[test]
fn an_answer_that_does_not_fit_the_socket_goes_on() {
    const UNITS: usize = 8;
    let fabrics = open_with_share(UNITS);
    let (mut stream, _) = fabrics[0].reach(MachineId(1), Use::Data { worker: 9 }, TIMEOUT).unwrap();
    let part = |number: usize| Question::Part { share: SHARE, offset: number * UNIT, bytes: UNIT }.to_bytes();
    let mut asked = 0;
    loop {
        for number in 0..UNITS {
            stream.write_all(&part(number)).unwrap();
        }
        asked += UNITS * (8 + UNIT);
        assert!(asked < 64 << 20, "the system's buffers have no end");
        // A second word that arrives by itself is taken after the queries were answered, as far as there is room.
        for offset in [8, 16] {
            stream.write_all(&[frame::head(offset, 8), (asked as u64).to_ne_bytes()].concat()).unwrap();
            wait_for_word(fabrics[1].region(), offset, asked as u64);
        }
        if queued_bytes(&stream) < asked {
            break;
        }
    }
    let mut answer = vec![0; 8 + UNIT];
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    for number in 0..asked / answer.len() {
        stream.read_exact(&mut answer).unwrap();
        let first = (number % UNITS * UNIT / 8) as u64;
        assert_eq!(answer[8..16], first.to_ne_bytes(), "answer {number}");
    }
    assert_eq!(fabrics[1].lost(MachineId(0)).unwrap(), None);
}

/// Answers go out by the accepted end: small ones must not wait for the acknowledgement of those before.
#[test]
fn both_ends_of_a_data_connection_send_at_once() {
    let fabrics = open_with_share(1);
    let mut connection = fabrics[0].connect(MachineId(1), WorkerId(0)).unwrap();
    let read_id = connection.read_share(SHARE, 0, 8).unwrap();
    take(&mut *connection, read_id, 8).unwrap();
    assert_eq!(fabrics[1].poller.lock().accepted_nodelays(), [true]);
    let (made, _) = fabrics[0].reach(MachineId(1), Use::Data { worker: 1 }, TIMEOUT).unwrap();
    assert!(made.nodelay().unwrap());
}

#[test]
fn tickets_that_nobody_takes_are_no_death() {
    let fabrics = open_with_share(64);
    let mut connection = fabrics[0].connect(MachineId(1), WorkerId(0)).unwrap();
    for _ in 0..4 {
        connection.read_share(SHARE, 0, 64 * UNIT).unwrap();
    }
    connection.write(&[3; 8], 64).unwrap();
    drop(connection);
    wait_for_word(fabrics[1].region(), 64, u64::from_ne_bytes([3; 8]));
    let mut other = fabrics[0].connect(MachineId(1), WorkerId(1)).unwrap();
    let read_id = other.read_share(SHARE, 8, 8).unwrap();
    assert_eq!(take(&mut *other, read_id, 8).unwrap(), 1u64.to_ne_bytes());
    // A connection that had ended by a reset would be a death by now.
    assert_eq!(fabrics[1].watch(Duration::from_millis(700)).unwrap(), None);
    assert_eq!(fabrics[1].lost(MachineId(0)).unwrap(), None);
}

#[test]
fn an_owner_that_answers_nonsense_is_dead() {
    let (fake, fabric, _control) = Fake::with_peer(4096, Limits::default());
    let (mut stream, mut connection) = fake.connection(&fabric, 3);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut question = [0; frame::SHARE_HEAD_BYTES];
            stream.read_exact(&mut question).unwrap();
            // One unit, which is committed.
            let map = [16, UNIT as u64, 1].map(u64::to_le_bytes);
            stream.write_all(map.as_flattened()).unwrap();
            stream.read_exact(&mut question).unwrap();
            stream.write_all(&24u64.to_le_bytes()).unwrap();
            let _ = stream.read(&mut question);
        });
        let read_id = connection.read_share(SHARE, 0, 16).unwrap();
        let taken = take(&mut connection, read_id, 16);
        assert!(matches!(taken, Err(Error::Gone { machine: VICTIM })), "{taken:?}");
        drop(connection);
    });
    assert_eq!(wait_for_loss(&fabric, VICTIM), Loss::Died);
    assert!(fabric.cause(VICTIM).unwrap().contains("sent answers"));
}

#[test]
fn a_machine_that_stands_still_is_noticed() {
    let mut processes = Process::start_all(3, "silence");
    let mut victim = processes.remove(usize::from(VICTIM.0));
    victim.wait_for_line(READY);
    victim.signal(Signal::STOP);
    processes.into_iter().for_each(Process::wait);
}

#[test]
fn leaving_in_order_is_no_death() {
    let mut fabrics = open_all(3, 4096, Limits::default());
    drop(fabrics.pop());
    for fabric in &fabrics {
        assert_eq!(wait_for_loss(fabric, MachineId(2)), Loss::Left);
        assert_eq!(fabric.watch(Duration::ZERO).unwrap(), None);
        assert_eq!(fabric.cause(MachineId(2)), None);
        assert_eq!(fabric.lost(MachineId(1 - fabric.machine().0)).unwrap(), None);
        let mut connection = fabric.connect(MachineId(2), WorkerId(0)).unwrap();
        connection.write(&[1; 64 << 10 >> 4], 0).unwrap();
        connection.flush().unwrap();
    }
    // All at once.
    std::thread::scope(|scope| {
        for fabric in fabrics {
            scope.spawn(move || drop(fabric));
        }
    });
}

/// A worker writes while its peer leaves: that never counts as a death.
#[test]
fn writing_to_who_leaves_is_no_death() {
    for _ in 0..10 {
        let mut fabrics = open_all(2, 1 << 20, Limits::default());
        let leaving = fabrics.pop().unwrap();
        let mut connection = fabrics[0].connect(MachineId(1), WorkerId(0)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || drop(leaving));
            while fabrics[0].lost(MachineId(1)).unwrap().is_none() {
                connection.write(&[1; 1 << 16], 0).unwrap();
                connection.flush().unwrap();
            }
        });
        (0..10).for_each(|_| connection.write(&[1; 1 << 16], 0).unwrap());
        assert_eq!(fabrics[0].lost(MachineId(1)).unwrap(), Some(Loss::Left), "{:?}", fabrics[0].cause(MachineId(1)));
    }
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

/// A machine on a busy host answers late: it gets no second connection, whose work would be wasted too.
#[test]
fn timed_a_late_answer_is_waited_for() {
    let (fake, fabric, _control) = Fake::with_peer(4096, Limits::default());
    std::thread::scope(|scope| {
        let reaching = scope.spawn(|| fabric.reach(VICTIM, Use::Data { worker: 0 }, TIMEOUT).unwrap());
        let mut late = IncomingHandshake::new(fake.listener.accept().unwrap().0);
        // The fault itself: the machine stands still for that long.
        std::thread::sleep(Duration::from_secs(1));
        limits::wait_until("the handshake ends", || {
            matches!(late.advance(&fake.key, fake.region_bytes, |_| true), Progress::Authenticated(_))
        });
        reaching.join().unwrap();
    });
    fake.listener.set_nonblocking(true).unwrap();
    assert_eq!(fake.listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "there was another attempt");
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
    assert_eq!(fabrics[0].watch(Duration::from_millis(1)).unwrap(), None);
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

/// A machine 1 of two that the test plays by hand. It accepts the connections of machine 0.
struct Fake {
    listener: TcpListener,
    key: Key,
    region_bytes: usize,
    /// Address of machine 0.
    peer: SocketAddr,
}

impl Fake {
    /// Makes a real machine 0, with its control connection to the fake.
    fn with_peer(region_bytes: usize, limits: Limits) -> (Fake, TcpFabric, TcpStream) {
        let key = Key::generate().unwrap();
        let listener = listen().with_limits(limits);
        let (own, peer) = (TcpListener::bind("127.0.0.1:0").unwrap(), listener.address());
        let fake = Fake { listener: own, key: key.clone(), region_bytes, peer };
        let peers = vec![None, Some(fake.listener.local_addr().unwrap())];
        std::thread::scope(|scope| {
            let opening =
                scope.spawn(move || TcpFabric::open(listener, MachineId(0), peers, key, region(region_bytes), TIMEOUT));
            let (control, claim) = fake.accept();
            assert_eq!((claim.from, claim.to, claim.purpose), (MachineId(0), MachineId(1), Use::Control));
            let fabric = opening.join().unwrap().unwrap();
            (fake, fabric, control)
        })
    }

    fn accept(&self) -> (TcpStream, Claim) {
        loop {
            let mut handshake = IncomingHandshake::new(self.listener.accept().unwrap().0);
            let start = Instant::now();
            loop {
                match handshake.advance(&self.key, self.region_bytes, |_| true) {
                    Progress::Authenticated(claim) => return (handshake.stream, claim),
                    Progress::Waits => assert!(start.elapsed() < TIMEOUT, "it says nothing"),
                    // On a busy machine the other side has given up this attempt, and makes another.
                    Progress::Gone => break,
                }
                std::thread::yield_now();
            }
        }
    }

    /// Accepts the connection of a worker of machine 0.
    fn connection(&self, fabric: &TcpFabric, worker: u16) -> (TcpStream, TcpConnection) {
        std::thread::scope(|scope| {
            let accepting = scope.spawn(|| self.accept());
            let (stream, region_bytes) = fabric.reach(VICTIM, Use::Data { worker }, TIMEOUT).unwrap();
            let (accepted, claim) = accepting.join().unwrap();
            assert_eq!(claim.purpose, Use::Data { worker });
            (
                accepted,
                TcpConnection::new(VICTIM, region_bytes, Some(Arc::new(Line::new(stream))), Arc::clone(&fabric.shared)),
            )
        })
    }

    /// Connects to a machine as if it were machine `from`.
    fn connect(key: &Key, to: SocketAddr, claim: Claim) -> Result<TcpStream, Error> {
        let stream = TcpStream::connect(to).unwrap();
        let beginning = Beginning::new(key, &claim)?;
        beginning.send(&stream, "the tested machine", TIMEOUT)?;
        beginning.finish(&stream, "the tested machine", TIMEOUT)?;
        Ok(stream)
    }
}

/// The receiver takes a few bytes at a time: everything arrives, in order, and the sender holds no more than
/// its limit.
#[test]
fn a_slow_reader_holds_the_sender_up_and_loses_nothing() {
    const WRITES: u64 = 1500;
    let (fake, fabric, _control) = Fake::with_peer(1 << 20, Limits::default());
    let (mut stream, mut connection) = fake.connection(&fabric, 3);
    let expected = region(1 << 20);
    let received = region(1 << 20);
    std::thread::scope(|scope| {
        let expected = &expected;
        scope.spawn(move || {
            for number in 1..=WRITES {
                // From 8 bytes to 64 KiB: held back, sent directly, and beyond the buffer's room.
                let bytes = 8 << (number % 14);
                let offset = (number as usize * 4096) % ((1 << 20) - bytes) / 8 * 8;
                let source: Vec<u8> = (0..bytes as u64).map(|index| (index ^ number) as u8).collect();
                connection.write(&source, offset).unwrap();
                expected.publish(offset, &source).unwrap();
                connection.wake(4 * (number as usize % 100)).unwrap();
                if number % 7 == 0 {
                    connection.flush().unwrap();
                }
                assert!(connection.held_capacity() <= 128 << 10, "{} bytes are held", connection.held_capacity());
            }
            assert!(connection.is_connected());
        });
        let (mut intake, mut woken, mut buffer) = (Intake::default(), 0, vec![0; 5003]);
        loop {
            let bytes = stream.read(&mut buffer).unwrap();
            if bytes == 0 {
                break;
            }
            let taken = intake.take(&buffer[..bytes], &received, &mut |event| {
                woken += 1;
                assert_eq!(event, Event::Wake(4 * (woken % 100)), "wakes come in order");
                Ok(())
            });
            taken.unwrap();
        }
        assert_eq!(woken, WRITES as usize);
        assert!(!intake.is_within_frame());
    });
    let words = |region: &Region| -> Vec<u64> {
        region.words(0, 1 << 20).unwrap().iter().map(|word| word.load(Ordering::Relaxed)).collect()
    };
    assert!(words(&expected) == words(&received));
}

/// A firewall forgets a connection and then refuses it: the worker waits for a write to its region, and sends
/// nothing that would reveal the loss.
#[test]
fn a_connection_that_is_reset_is_missed_though_nobody_writes() {
    let (fake, fabric, control) = Fake::with_peer(4096, Limits::default());
    let connection = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| fake.accept().0);
        let connection = fabric.connect(VICTIM, WorkerId(3)).unwrap();
        let accepted = accepting.join().unwrap();
        rustix::net::sockopt::set_socket_linger(&accepted, Some(Duration::ZERO)).unwrap();
        connection
    });
    assert_eq!(wait_for_loss(&fabric, VICTIM), Loss::Died);
    let cause = fabric.cause(VICTIM).unwrap();
    assert!(cause.contains("the connection to it broke: Connection reset"), "{cause}");
    drop(connection);
    // A live peer is not notified that this machine has ended.
    control.set_nonblocking(true).unwrap();
    let mut said = [0; 256];
    loop {
        match (&control).read(&mut said) {
            Ok(bytes) => assert!(bytes > 0, "the control connection was closed"),
            Err(error) => break assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
}

/// The heartbeats of one connection are lost on the way, those of the machine are not.
#[test]
fn a_connection_that_falls_silent_is_missed() {
    let (fake, fabric, control) = Fake::with_peer(4096, SHORT);
    let claim = |worker| Claim {
        from: VICTIM,
        to: MachineId(0),
        machines: 2,
        region_bytes: 4096,
        purpose: Use::Data { worker },
    };
    let never = Fake::connect(&fake.key, fake.peer, claim(0)).unwrap();
    let mut silent = Fake::connect(&fake.key, fake.peer, claim(1)).unwrap();
    silent.write_all(&frame::HEARTBEAT).unwrap();
    let start = Instant::now();
    while fabric.lost(VICTIM).unwrap().is_none() {
        assert!(start.elapsed() < TIMEOUT, "nobody misses it");
        (&control).write_all(b"h").unwrap();
        std::thread::sleep(SHORT.heartbeat); // the interval of its heartbeats
    }
    let cause = fabric.cause(VICTIM).unwrap();
    assert!(cause.contains("the packets of one connection to"), "{cause}");
    drop((never, silent));
}

/// An unused connection has heartbeats, and frames around them stay whole.
#[test]
fn a_connection_that_nobody_uses_gives_signs_of_life() {
    let limits = Limits { silence: TIMEOUT, ..SHORT };
    let (fake, fabric, _control) = Fake::with_peer(4096, limits);
    let (mut accepted, mut connection) = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| fake.accept().0);
        let connection = fabric.connect(VICTIM, WorkerId(3)).unwrap();
        (accepting.join().unwrap(), connection)
    });
    let mut word = [0; 8];
    for number in 0..3_u64 {
        connection.write(&number.to_le_bytes(), 8).unwrap();
        connection.flush().unwrap();
        let mut beats = 0;
        loop {
            accepted.read_exact(&mut word).unwrap();
            match word == frame::HEARTBEAT {
                true => beats += 1,
                false => break assert_eq!(word, frame::head(8, 8)),
            }
        }
        accepted.read_exact(&mut word).unwrap();
        assert_eq!(word, number.to_le_bytes());
        while beats < 2 {
            accepted.read_exact(&mut word).unwrap();
            assert_eq!(word, frame::HEARTBEAT);
            beats += 1;
        }
    }
}

/// A peer that lives and sends heartbeats, but not the answers it owes: they are lost on the way.
#[test]
fn answers_that_do_not_come_are_missed() {
    let (fake, fabric, control) = Fake::with_peer(4096, SHORT);
    let (stream, mut connection) = fake.connection(&fabric, 3);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) && (&control).write_all(b"h").is_ok() {
                std::thread::sleep(SHORT.heartbeat); // the interval of its heartbeats
            }
        });
        let read = connection.read_share(SHARE, 0, 16);
        is_over.store(true, Ordering::Relaxed);
        // The first query is for the share's length, and gets no answer.
        assert!(read.is_ok(), "{read:?}");
        assert_eq!(wait_for_loss(&fabric, VICTIM), Loss::Died);
        let cause = fabric.cause(VICTIM).unwrap();
        assert!(cause.contains("the packets of one connection to 127.0.0.1:") && cause.contains("MTU"), "{cause}");
    });
    drop(stream);
}

/// The receiver takes nothing and sends nothing: the sender waits, in bounded memory, until its peer is given
/// up; from then on writes vanish.
#[test]
fn a_peer_that_takes_nothing_is_given_up() {
    let (fake, fabric, _control) = Fake::with_peer(1 << 20, SHORT);
    let (_stream, mut connection) = fake.connection(&fabric, 0);
    let source = vec![1; 16 << 10];
    let start = Instant::now();
    let mut writes: u64 = 0;
    while connection.is_connected() {
        connection.write(&source, 0).unwrap();
        assert!(connection.held_capacity() <= 128 << 10);
        assert!(start.elapsed() < TIMEOUT, "the peer was not given up after {writes} writes");
        writes += 1;
    }
    assert_eq!(wait_for_loss(&fabric, VICTIM), Loss::Died);
    assert_eq!(fabric.watch(TIMEOUT).unwrap(), Some(VICTIM));
    let cause = fabric.cause(VICTIM).unwrap();
    assert!(cause.contains("nothing was heard") || cause.contains("broke"), "{cause}");
    connection.write(&source, 0).unwrap();
    connection.flush().unwrap();
}

/// A connection of a worker breaks while the peer seems to live: that is the peer's death, for its writes are lost.
#[test]
fn a_broken_connection_is_a_death() {
    let (fake, fabric, _control) = Fake::with_peer(1 << 20, Limits::default());
    let (stream, mut connection) = fake.connection(&fabric, 0);
    drop(stream);
    let start = Instant::now();
    while connection.is_connected() {
        connection.write(&[1; 8], 0).unwrap();
        connection.flush().unwrap();
        assert!(start.elapsed() < TIMEOUT);
    }
    assert_eq!(wait_for_loss(&fabric, VICTIM), Loss::Died);
    assert!(fabric.cause(VICTIM).unwrap().contains("broke"));
}

#[test]
fn nonsense_is_the_end_of_its_sender_alone() {
    let key = Key::generate().unwrap();
    let listeners = [listen(), listen()];
    let [own, other] = listeners.each_ref().map(Listener::address);
    // Machine 0 is the fake one, 1 and 2 are real.
    let peers = vec![Some("127.0.0.1:1".parse().unwrap()), Some(own), Some(other)];
    let claim =
        |to: u16, purpose| Claim { from: MachineId(0), to: MachineId(to), machines: 3, region_bytes: 4096, purpose };
    let fabrics: Vec<TcpFabric> = std::thread::scope(|scope| {
        let open = |listener, machine| {
            TcpFabric::open(listener, machine, peers.clone(), key.clone(), region(4096), TIMEOUT).unwrap()
        };
        let opening: Vec<_> = (1..).map(MachineId).zip(listeners).collect();
        let opening: Vec<_> =
            opening.into_iter().map(|(machine, listener)| scope.spawn(move || open(listener, machine))).collect();
        let controls = [own, other].into_iter().zip(1..);
        let controls: Vec<_> =
            controls.map(|(address, to)| Fake::connect(&key, address, claim(to, Use::Control)).unwrap()).collect();
        let fabrics = opening.into_iter().map(|thread| thread.join().unwrap()).collect();
        // Claims that no machine makes are refused, and do no harm.
        for wrong in [
            Claim { from: MachineId(1), ..claim(1, Use::Data { worker: 0 }) },
            Claim { from: MachineId(9), ..claim(1, Use::Data { worker: 0 }) },
            Claim { machines: 4, ..claim(1, Use::Data { worker: 0 }) },
            claim(2, Use::Data { worker: 0 }),
            claim(1, Use::Control),
        ] {
            let refused = Fake::connect(&key, own, wrong).unwrap_err();
            assert!(matches!(refused, Error::Unwanted { .. }), "{wrong:?}: {refused}");
        }
        let mut stream = Fake::connect(&key, own, claim(1, Use::Data { worker: 5 })).unwrap();
        // A good write, then one outside the region.
        stream.write_all(&frame::head(8, 8)).unwrap();
        stream.write_all(&7_u64.to_ne_bytes()).unwrap();
        stream.write_all(&frame::head(4096, 8)).unwrap();
        stream.write_all(&[1; 8]).unwrap();
        // Both sides close; the read returns the end, or a reset.
        let _ = stream.read(&mut [0; 8]);
        drop(controls);
        fabrics
    });
    let [real, other] = fabrics.as_slice() else { panic!("two machines") };
    assert_eq!(wait_for_loss(real, MachineId(0)), Loss::Died);
    let cause = real.cause(MachineId(0)).unwrap();
    assert!(cause.contains("worker 5") && cause.contains("4096"), "{cause}");
    wait_for_word(real.region(), 8, 7);
    assert_eq!(real.lost(MachineId(2)).unwrap(), None);
    let mut connection = other.connect(MachineId(1), WorkerId(0)).unwrap();
    connection.write(&9_u64.to_ne_bytes(), 16).unwrap();
    connection.flush().unwrap();
    wait_for_word(real.region(), 16, 9);
}

#[test]
fn a_wrong_key_is_told() {
    let listeners = [listen(), listen()];
    let peers: Vec<_> = listeners.iter().map(|listener| Some(listener.address())).collect();
    let [first, second] = listeners;
    std::thread::scope(|scope| {
        let open = |listener, machine| {
            let key = Key::generate().unwrap();
            let timeout = Duration::from_secs(2);
            TcpFabric::open(listener, MachineId(machine), peers.clone(), key, region(8), timeout).unwrap_err()
        };
        let first = scope.spawn(move || open(first, 0));
        let second = open(second, 1);
        let first = first.join().unwrap();
        assert!(matches!(&first, Error::WrongKey { peer } if peer.contains("machine 1")), "{first}");
        assert!(matches!(second, Error::PeerMissing { machine: MachineId(0), .. }), "{second}");
    });
}

/// Silent strangers, and strangers that send anything, more than are handled at once: the machines continue,
/// and new connections are made.
#[test]
fn strangers_do_no_harm() {
    let key = Key::generate().unwrap();
    let listeners = [listen(), listen()];
    let addresses = listeners.each_ref().map(Listener::address);
    let peers: Vec<_> = addresses.into_iter().map(Some).collect();
    let [first, second] = listeners;
    std::thread::scope(|scope| {
        let open = |listener, machine| {
            let region = region(4096);
            TcpFabric::open(listener, MachineId(machine), peers.clone(), key.clone(), region, TIMEOUT).unwrap()
        };
        let first = scope.spawn(move || open(first, 0));
        let second = open(second, 1);
        let first = first.join().unwrap();
        let (mut strangers, mut random) = (Vec::new(), SmallRng::seed_from_u64(1));
        for number in 0..150 {
            let mut stranger = TcpStream::connect(addresses[1]).unwrap();
            let said: Vec<u8> = (&mut random).random_iter().take(number * 2).collect();
            // The other side may close it before all is sent.
            let _ = stranger.write_all(&said);
            strangers.push(stranger);
        }
        let mut connection = first.connect(MachineId(1), WorkerId(0)).unwrap();
        connection.write(&9_u64.to_ne_bytes(), 16).unwrap();
        connection.flush().unwrap();
        wait_for_word(second.region(), 16, 9);
        assert_eq!((first.lost(MachineId(1)).unwrap(), second.lost(MachineId(0)).unwrap()), (None, None));
    });
}
