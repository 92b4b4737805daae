//! Strangers without the key, more than are kept, that connect again as soon as they are closed: programs
//! still start and run, and where one does not, the error names strangers and not a peer.

use super::*;
use crate::secure::KEY_BYTES;
use crate::secure::handshake::Initiator;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Instant;

/// An undisturbed start takes a fraction of a second, and a few seconds on a machine that is busy a hundred
/// times over. Waiting for strangers would cost 3 s for each 64 of them: 12 s with 250, and for ever with
/// 1000 that come again.
const SOON: Duration = Duration::from_secs(10);
/// Sockets of one thread.
const SOCKETS_EACH: usize = 50;

/// Behaviour of strangers on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    /// Sends nothing.
    Silent,
    /// Sends a byte of a real first message from time to time.
    Dribbles,
    /// Sends garbage.
    Garbage,
    /// Sends the first half of a real first message.
    Half,
    /// Sends a whole first message, with another key.
    WrongKey,
    /// Closes at once, so that the other side finds a broken connection.
    Resets,
}

const HABITS: [Habit; 6] =
    [Habit::Silent, Habit::Dribbles, Habit::Garbage, Habit::Half, Habit::WrongKey, Habit::Resets];

/// Strangers at a port, until dropped.
struct Strangers {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Strangers {
    /// Opens this many sockets before it returns (some may wait in the port's full queue, for a while). The
    /// threads that hold them have these habits in turn.
    fn at(target: SocketAddr, sockets: usize, habits: &'static [Habit]) -> Strangers {
        let (is_over, opened) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let thread = |number: usize| {
            let (is_over, opened) = (Arc::clone(&is_over), Arc::clone(&opened));
            let sockets = SOCKETS_EACH.min(sockets - number * SOCKETS_EACH);
            std::thread::spawn(move || flood(target, sockets, habits[number % habits.len()], &is_over, &opened))
        };
        let threads = (0..sockets.div_ceil(SOCKETS_EACH)).map(thread).collect();
        let start = Instant::now();
        while opened.load(Ordering::Relaxed) < sockets && start.elapsed() < Duration::from_secs(3) {
            std::thread::yield_now();
        }
        Strangers { is_over, threads }
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

fn flood(target: SocketAddr, sockets: usize, habit: Habit, is_over: &AtomicBool, opened: &AtomicUsize) {
    let other_key = Key::from_bytes([7; KEY_BYTES]);
    let claim = Claim { from: MachineId(0), to: MachineId(1), machines: 2, region_bytes: 8, purpose: Use::Control };
    let message = Initiator::new(&other_key, PURPOSE, &claim.to_bytes()).unwrap().1;
    let mut all: Vec<(TcpStream, usize)> = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        while all.len() < sockets && !is_over.load(Ordering::Relaxed) {
            let connect = || TcpStream::connect_timeout(&target, Duration::from_millis(500));
            let Ok(mut stream) = crate::descriptors::with_room(connect) else { break };
            opened.fetch_add(1, Ordering::Relaxed);
            stream.set_nonblocking(true).unwrap();
            // The other side may have closed it already.
            let _ = match habit {
                Habit::Silent | Habit::Dribbles => Ok(()),
                Habit::Garbage => stream.write_all(&[0x11; 700]),
                Habit::Half => stream.write_all(&message[..message.len() / 2]),
                Habit::WrongKey => stream.write_all(&message),
                Habit::Resets => {
                    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).map_err(Into::into)
                }
            };
            if habit == Habit::Resets {
                continue;
            }
            all.push((stream, 0));
        }
        all.retain_mut(|(stream, said)| {
            if habit == Habit::Dribbles && *said < message.len() && stream.write_all(&message[*said..=*said]).is_ok() {
                *said += 1;
            }
            matches!(stream.read(&mut [0; 64]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        });
        // The pace of strangers, which leaves some of the machine to the machines under test.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Starts machines 0 and 1, with strangers at the port of 1 before either opens its fabric; returns the
/// duration of the start too.
fn start_among(strangers: usize, habits: &'static [Habit]) -> ([TcpFabric; 2], Strangers, Duration) {
    let key = Key::generate().unwrap();
    let listeners = [listen(), listen()];
    let addresses = listeners.each_ref().map(Listener::address);
    let peers = addresses.map(Some).to_vec();
    let strangers = Strangers::at(addresses[1], strangers, habits);
    let start = Instant::now();
    let fabrics = std::thread::scope(|scope| {
        let opening = (0..).map(MachineId).zip(listeners).map(|(machine, listener)| {
            let (peers, key) = (peers.clone(), key.clone());
            scope.spawn(move || TcpFabric::open(listener, machine, peers, key, region(4096), TIMEOUT).unwrap())
        });
        let opening: Vec<_> = opening.collect();
        let fabrics: Vec<TcpFabric> = opening.into_iter().map(|thread| thread.join().unwrap()).collect();
        <[TcpFabric; 2]>::try_from(fabrics).unwrap()
    });
    (fabrics, strangers, start.elapsed())
}

/// The start is quick, and so are the connections of workers while the flood continues; no machine is taken for dead.
fn starts_among(strangers: usize, habits: &'static [Habit]) {
    let (fabrics, strangers_there, taken) = start_among(strangers, habits);
    assert!(taken < limits::bound(SOON), "{strangers} strangers {habits:?}: the start took {taken:?}");
    let start = Instant::now();
    for worker in 0..8_u16 {
        let mut connection = fabrics[0].connect(MachineId(1), WorkerId(worker)).unwrap();
        let offset = 8 * usize::from(worker);
        connection.write(&9_u64.to_ne_bytes(), offset).unwrap();
        connection.flush().unwrap();
        wait_for_word(fabrics[1].region(), offset, 9);
    }
    let connected = start.elapsed();
    assert!(
        connected < limits::bound(2 * SOON),
        "{strangers} strangers {habits:?}: eight connections took {connected:?}"
    );
    let losses = [fabrics[0].lost(MachineId(1)).unwrap(), fabrics[1].lost(MachineId(0)).unwrap()];
    assert_eq!(losses, [None, None], "{:?} {:?}", fabrics[0].cause(MachineId(1)), fabrics[1].cause(MachineId(0)));
    println!("{strangers} strangers {habits:?}: started after {taken:?}, eight connections after {connected:?}");
    drop(strangers_there);
}

#[test]
fn timed_silent_strangers_keep_nobody_out() {
    for strangers in [150, 250, 1000] {
        starts_among(strangers, &[Habit::Silent]);
    }
}

#[test]
fn timed_strangers_that_begin_a_handshake_keep_nobody_out() {
    for habit in [&[Habit::Dribbles], &[Habit::Half], &[Habit::WrongKey]] {
        starts_among(400, habit);
    }
}

#[test]
fn timed_strangers_of_all_kinds_keep_nobody_out() {
    starts_among(1000, &HABITS);
}

/// Strangers have recorded a peer's first message, and replay it again and again. They do not keep the place
/// of a key holder for 15 s.
#[test]
fn timed_recordings_of_a_claim_keep_nobody_out() {
    const RECORDINGS: usize = 300;
    let key = Key::generate().unwrap();
    let listeners = [listen(), listen()];
    let addresses = listeners.each_ref().map(Listener::address);
    let claim = Claim { from: MachineId(0), to: MachineId(1), machines: 2, region_bytes: 4096, purpose: Use::Control };
    let message = Initiator::new(&key, PURPOSE, &claim.to_bytes()).unwrap().1;
    let replay = || {
        let mut stream = TcpStream::connect(addresses[1]).unwrap();
        stream.write_all(&message).unwrap();
        stream
    };
    let recordings: Vec<TcpStream> = (0..RECORDINGS).map(|_| replay()).collect();
    let start = Instant::now();
    let open = |listener, machine| {
        let peers = addresses.map(Some).to_vec();
        TcpFabric::open(listener, machine, peers, key.clone(), region(4096), TIMEOUT).unwrap()
    };
    let [first, second] = listeners;
    std::thread::scope(|scope| {
        let second = scope.spawn(|| open(second, MachineId(1)));
        // All but a few are closed, long before the time of a key holder is over.
        let is_open = |stream: &&TcpStream| {
            stream.set_nonblocking(true).unwrap();
            let _answer = (&**stream).read(&mut [0; 300]);
            matches!(stream.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        };
        while recordings.iter().filter(is_open).count() > 4 {
            assert!(start.elapsed() < limits::bound(SOON), "recordings keep their places");
            std::thread::yield_now();
        }
        let _first = open(first, MachineId(0));
        drop(second.join().unwrap());
    });
    assert!(start.elapsed() < limits::bound(SOON), "{:?}", start.elapsed());
}

/// A machine that has hardly any descriptors: those that strangers hold are freed for peers.
#[test]
fn timed_strangers_do_not_hold_the_last_descriptors() {
    let (mut processes, addresses) = start(2, "scarce");
    let target = addresses[1].parse().unwrap();
    let strangers = Strangers::at(target, 200, &[Habit::Silent]);
    let start = Instant::now();
    open_fabrics(&mut processes, &addresses);
    processes.into_iter().for_each(ChildProcess::passes);
    assert!(start.elapsed() < limits::bound(2 * SOON), "{:?}", start.elapsed());
    drop(strangers);
}

/// Body of those two processes. Machine 1 may open fewer descriptors than it keeps strangers.
pub(super) fn lives_on_few_descriptors(fabric: &TcpFabric) {
    if fabric.machine() == MachineId(0) {
        for worker in 0..4_u16 {
            let mut connection = fabric.connect(MachineId(1), WorkerId(worker)).unwrap();
            connection.write(&9_u64.to_ne_bytes(), 8 * usize::from(worker)).unwrap();
            connection.flush().unwrap();
        }
        assert_eq!(wait_for_loss(fabric, MachineId(1)), Loss::Left, "{:?}", fabric.cause(MachineId(1)));
    } else {
        (0..4).for_each(|worker| wait_for_word(fabric.region(), 8 * worker, 9));
    }
}

/// Leaves this process eight descriptors, of which the fabric itself takes some: too few for strangers.
pub(super) fn leave_few_descriptors() {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let open: Vec<u64> = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    let few = (0..).filter(|number| !open.contains(number)).nth(8);
    rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit { current: few, maximum: few },
    )
    .unwrap();
}

/// The error blames strangers, not the peer that did not get through.
#[test]
fn strangers_are_named_and_no_peer_is_blamed() {
    let key = Key::generate().unwrap();
    let listener = listen();
    let (own, elsewhere) = (listener.address(), listen().address());
    let strangers = Strangers::at(own, 500, &[Habit::Silent]);
    let peers = vec![Some(elsewhere), Some(own)];
    let timeout = Duration::from_secs(3);
    let error = TcpFabric::open(listener, MachineId(1), peers, key, region(8), timeout).unwrap_err();
    let Error::Crowded { machine: MachineId(0), strangers: evicted, address, .. } = &error else { panic!("{error}") };
    assert!(*evicted > 0 && address.is_loopback(), "{error}");
    assert!(!error.to_string().contains("what it printed"), "{error}");
    drop(strangers);
}

/// A live machine whose port strangers take again and again is not taken for dead.
#[test]
fn a_machine_that_lets_nobody_in_is_not_taken_for_dead() {
    let (fake, mut fabric, _control) = Fake::with_peer(4096, Limits::default());
    fabric.timeout = Duration::from_secs(2);
    let is_over = Arc::new(AtomicBool::new(false));
    let has_ended = Arc::clone(&is_over);
    let refusing = std::thread::spawn(move || {
        let mut closed = 0;
        fake.listener.set_nonblocking(true).unwrap();
        while !has_ended.load(Ordering::Relaxed) {
            closed += u64::from(fake.listener.accept().is_ok());
            std::thread::yield_now();
        }
        closed
    });
    let error = fabric.connect(VICTIM, WorkerId(0)).err().expect("it is not let in");
    is_over.store(true, Ordering::Relaxed);
    assert!(matches!(error, Error::NotLetIn { machine: VICTIM, attempts: 2.., .. }), "{error}");
    assert_eq!(fabric.lost(VICTIM).unwrap(), None, "{:?}", fabric.cause(VICTIM));
    assert!(refusing.join().unwrap() >= 2);
}
