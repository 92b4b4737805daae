//! Tests of `tcp`, by subject. Machines are threads of this process, or real processes, which are this test program
//! started again. Here: what the tests share. All on loopback.

mod losses;
mod programs;
mod refusals;
mod shares;
mod strangers;

use super::frame::{Event, Intake, Question};
use super::greeting::{Claim, IncomingHandshake, PURPOSE, Progress};
use super::reach::Beginning;
use super::serving::UNDER_WAY_BYTES_MAX;
use super::*;
use crate::conformance::{self, Effort, REGION_BYTES};
use crate::{ReadId, ShareId, Wake};
use processes::ChildProcess;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::Instant;

const TIMEOUT: Duration = limits::HANG;
const SHORT: Limits = Limits { heartbeat: Duration::from_millis(50), silence: Duration::from_millis(400) };
const VICTIM: MachineId = MachineId(1);
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

/// Starts all machines of a program, each in a process of its own.
fn start_all(machines: u16, role: &str) -> Vec<ChildProcess> {
    let (mut processes, addresses) = start(machines, role);
    open_fabrics(&mut processes, &addresses);
    processes
}

/// Starts machines that listen, and wait for each other's addresses; returns their addresses too.
fn start(machines: u16, role: &str) -> (Vec<ChildProcess>, Vec<String>) {
    let start = |machine: u16| {
        let mut command = processes::in_role("tcp::tests::machine_process", &format!("{machine} {role}"));
        command.stdin(Stdio::piped());
        ChildProcess::start_with_input(command)
    };
    let processes: Vec<ChildProcess> = (0..machines).map(start).collect();
    let addresses = processes.iter().map(|process| process.stdout.line("address ")).collect();
    (processes, addresses)
}

/// Lets them open their fabrics.
fn open_fabrics(processes: &mut [ChildProcess], addresses: &[String]) {
    let text = Key::generate().unwrap().to_text();
    let told = format!("{}\n{}\n", text.lines().last().unwrap(), addresses.join(" "));
    processes.iter_mut().for_each(|process| process.write(&told));
    processes.iter().for_each(|process| drop(process.stdout.wait_for(UP)));
}

/// Body of a machine process. Not a test of its own.
#[test]
#[ignore = "what the machine processes run that other tests start"]
fn machine_process() {
    let Some(told) = processes::role() else { return };
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
        "descriptors" => programs::takes_many_connections(&fabric),
        "scarce" => strangers::lives_on_few_descriptors(&fabric),
        role => {
            conformance::notices_death(&fabric, VICTIM, TIMEOUT, || println!("{READY}"));
            let cause = fabric.cause(VICTIM).expect("a reason");
            let expected = if role == "silence" { "nothing was heard" } else { "without a graceful close" };
            assert!(cause.contains(expected), "{cause}");
        }
    }
}

const SHARE: ShareId = ShareId(0);
const UNIT: usize = crate::SHARE_UNIT_BYTES;

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
