//! Behavioural suite for every implementation of `Fabric`. All machines of a rack run the same [`run`] at the
//! same time, each on its own fabric: threads of one process, processes of one host, or hosts.
//!
//! Here: the layout, most cases, and the barrier between them. `stream` holds the large case, streams of
//! writes, and `shares` the cases of shares. Not here: starting and killing machines, which differ by fabric.
//!
//! A failing case panics with the values it saw. [`Effort::timeout`] bounds every wait, so the other machines
//! fail too instead of hanging.

mod shares;
mod stream;

pub use shares::shares_outlive_a_machine;

use crate::{Connection, Error, Fabric, Loss, MachineId, Region, WORD_BYTES, Wake, WorkerId};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Length in bytes of the region that the suite needs.
pub const REGION_BYTES: usize = EDGE + LINE_BYTES;
/// Largest number of machines the suite's layout has room for.
pub const MACHINES_MAX: u16 = 8;

/// Environment variable that, set to `full`, makes the tests run longer, and set to `small`, shorter and in less room,
/// for emulated processors.
pub const EFFORT_VARIABLE: &str = "GOSSAMER_EFFORT";

const LINE_BYTES: usize = 64;
/// Streams of writes from each machine to the next, each on its own thread (worker).
const LANES: usize = 2;
const MAIN: WorkerId = WorkerId(0);

// Layout of every machine's region.
/// One line per machine, which writes its barrier count there.
const BARRIER: usize = 0;
const PARK_BARRIER: usize = BARRIER + LINE_BYTES * MACHINES_MAX as usize;
const PARK_WAKE: usize = PARK_BARRIER + LINE_BYTES;
const PARK_LANE: usize = PARK_WAKE + LINE_BYTES;
const PARK_ALONE: usize = PARK_LANE + LINE_BYTES * LANES;
const WAKE: usize = PARK_ALONE + LINE_BYTES;
/// The count of the waker in `wakes_alone`, and how often its sleeper was woken.
const WAKES: usize = WAKE + LINE_BYTES;
/// Two words: written before and after each bulk write.
const TRAIL: usize = WAKES + LINE_BYTES;
/// The round of the stream to shares.
const SHARE_FLAG: usize = TRAIL + LINE_BYTES;
const STREAM: usize = SHARE_FLAG + LINE_BYTES;
const BULK: usize = STREAM + stream::LANE_BYTES * LANES;
const BULK_BYTES: usize = 1 << 20;
/// The last line: only the write that just fits may touch it.
const EDGE: usize = BULK + BULK_BYTES;

/// Amount of work the suite does.
#[derive(Debug, Clone)]
pub struct Effort {
    /// Total of stamped writes.
    pub writes: u64,
    /// Rounds in which machines 0 and 1 each sleep until the other wakes it; machines 0 and the last do a tenth of it.
    pub wakes: u64,
    /// Longest wait of one machine for the next step of another before it fails; a whole case may take three
    /// times as long.
    pub timeout: Duration,
}

impl Effort {
    /// A million writes, 100,000 wake-ups.
    pub fn full() -> Effort {
        Effort { writes: 1_000_000, wakes: 100_000, timeout: Duration::from_secs(300) }
    }

    /// Effort of the tests: a tenth of `full`, or `full` itself or a hundredth of it where the environment variable
    /// [`EFFORT_VARIABLE`] says so.
    pub fn of_tests() -> Effort {
        match std::env::var(EFFORT_VARIABLE).as_deref() {
            Ok("full") => Effort::full(),
            Ok("small") => Effort { writes: 10_000, wakes: 1_000, ..Effort::full() },
            _ => Effort { writes: 100_000, wakes: 10_000, ..Effort::full() },
        }
    }
}

/// Runs the suite as one of its machines. The fabric must be fresh, with 2 to [`MACHINES_MAX`]
/// machines and regions of [`REGION_BYTES`]. Uses workers 0 to 2.
///
/// # Panics
/// If the fabric breaks the contract.
pub fn run(fabric: &dyn Fabric, effort: &Effort) {
    let mut machine = Machine::new(fabric, effort);
    machine.check_introductions();
    machine.barrier();
    machine.parks_alone();
    machine.barrier();
    machine.refuses();
    machine.barrier();
    machine.keeps_its_edge();
    machine.barrier();
    machine.writes_in_bulk();
    stream::run(fabric, effort);
    machine.barrier();
    // In `mixed`, another part may serve the second pair.
    let last = MachineId(fabric.machines() - 1);
    machine.wakes_and_sleeps(MachineId(1), 0, effort.wakes);
    machine.barrier();
    machine.wakes_and_sleeps(last, effort.wakes, effort.wakes.div_ceil(10));
    machine.barrier();
    machine.wakes_alone(last);
    machine.barrier();
    machine.uses_shares();
    // No machine leaves while others still need answers.
    machine.barrier();
    machine.check_no_losses();
    machine.ends_its_watch();
    machine.barrier();
}

/// Death test, run by all machines of a rack of which the tester kills `victim`. That machine calls `ready`
/// when it may be killed, and never returns from there in time. The others check that they learn of the
/// death.
///
/// # Panics
/// If the death is not noticed, or the death of another machine is reported.
pub fn notices_death(fabric: &dyn Fabric, victim: MachineId, timeout: Duration, ready: impl FnOnce()) {
    if fabric.machine() == victim {
        ready();
        let woke = fabric.park(MAIN, PARK_WAKE, timeout, &mut || true);
        panic!("the tester has not killed {victim}: {woke:?}");
    }
    assert_eq!(fabric.watch(&[], timeout).unwrap(), Some(victim), "who died");
    assert_eq!(fabric.lost(victim).unwrap(), Some(Loss::Died));
    assert_eq!(fabric.watch(&[victim], Duration::ZERO).unwrap(), None, "nobody else has");
    assert!(fabric.cause(victim).is_none_or(|cause| !cause.is_empty()), "a cause is words");
    for other in peers(fabric).filter(|peer| *peer != victim) {
        assert_ne!(fabric.lost(other).unwrap(), Some(Loss::Died), "{other} lives, or left in order");
        assert_eq!(fabric.cause(other), None, "{other} lives, or left in order");
    }
    // A write to the dead machine succeeds or is refused, and does no harm.
    let mut connection = fabric.connect(victim, MAIN).unwrap();
    let _ = connection
        .write(&[1; WORD_BYTES], WAKE)
        .and_then(|()| connection.wake(PARK_WAKE))
        .and_then(|()| connection.flush());
}

fn peers(fabric: &dyn Fabric) -> impl Iterator<Item = MachineId> + use<> {
    let own = fabric.machine();
    (0..fabric.machines()).map(MachineId).filter(move |machine| *machine != own)
}

fn load(region: &Region, offset: usize) -> u64 {
    // Acquire, pairs with the Release of the flag word: [flag-last] of the contract.
    region.word(offset).unwrap().load(Ordering::Acquire)
}

/// The main thread of a machine.
struct Machine<'a> {
    fabric: &'a dyn Fabric,
    effort: &'a Effort,
    connections: Vec<Box<dyn Connection>>,
    barriers: u64,
}

impl<'a> Machine<'a> {
    fn new(fabric: &'a dyn Fabric, effort: &'a Effort) -> Machine<'a> {
        assert!((2..=MACHINES_MAX).contains(&fabric.machines()), "2 to {MACHINES_MAX} machines");
        assert_eq!(fabric.region().bytes(), REGION_BYTES);
        let connections = peers(fabric).map(|peer| fabric.connect(peer, MAIN).unwrap()).collect();
        Machine { fabric, effort, connections, barriers: 0 }
    }

    fn to(&mut self, peer: MachineId) -> &mut dyn Connection {
        let found = self.connections.iter_mut().find(|connection| connection.peer() == peer);
        found.expect("connected to every peer").as_mut()
    }

    /// Connection to the next machine in a ring.
    fn next(&mut self) -> &mut dyn Connection {
        self.to(MachineId((self.fabric.machine().0 + 1) % self.fabric.machines()))
    }

    fn previous(&self) -> MachineId {
        MachineId((self.fabric.machine().0 + self.fabric.machines() - 1) % self.fabric.machines())
    }

    /// Waits until every machine has reached the barrier.
    fn barrier(&mut self) {
        self.barrier_without(None);
    }

    /// Waits until every machine but `without`, which has died, has reached the barrier.
    fn barrier_without(&mut self, without: Option<MachineId>) {
        self.barriers += 1;
        let (fabric, barriers) = (self.fabric, self.barriers);
        let line_of = |machine: MachineId| BARRIER + LINE_BYTES * usize::from(machine.0);
        for connection in self.connections.iter_mut().filter(|connection| Some(connection.peer()) != without) {
            connection.write(&barriers.to_ne_bytes(), line_of(fabric.machine())).unwrap();
            connection.wake(PARK_BARRIER).unwrap();
            connection.flush().unwrap();
        }
        let is_late = |peer: &MachineId| Some(*peer) != without && load(fabric.region(), line_of(*peer)) < barriers;
        let late = || peers(fabric).find(is_late);
        // The others may be busy with a case of several steps that this machine takes no part in.
        let timeout = 3 * self.effort.timeout;
        while late().is_some() {
            fabric.poll(MAIN).unwrap();
            let woke = fabric.park(MAIN, PARK_BARRIER, timeout, &mut || late().is_some()).unwrap();
            assert_ne!(woke, Wake::TimedOut, "{:?} did not come to barrier {barriers}", late());
        }
    }

    fn check_introductions(&self) {
        let fabric = self.fabric;
        assert_eq!(fabric.region().base().addr() % LINE_BYTES, 0, "the region starts on a cache line");
        let words = fabric.region().words(BULK, REGION_BYTES - BULK).unwrap();
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0), "a region is all 0 at first");
        for peer in peers(fabric) {
            assert_eq!(fabric.region_bytes(peer).unwrap(), REGION_BYTES);
            assert!(matches!(fabric.connect(peer, MAIN), Err(Error::AlreadyConnected { .. })), "one for each pair");
        }
        for stranger in [fabric.machine(), MachineId(fabric.machines()), MachineId(u16::MAX)] {
            assert!(matches!(fabric.connect(stranger, MAIN), Err(Error::NoSuchPeer { .. })), "{stranger}");
            assert!(matches!(fabric.region_bytes(stranger), Err(Error::NoSuchPeer { .. })), "{stranger}");
            assert!(matches!(fabric.lost(stranger), Err(Error::NoSuchPeer { .. })), "{stranger}");
        }
        self.check_no_losses();
    }

    fn check_no_losses(&self) {
        for peer in peers(self.fabric) {
            assert_eq!(self.fabric.lost(peer).unwrap(), None, "{peer} is there");
        }
        assert_eq!(self.fabric.watch(&[], Duration::ZERO).unwrap(), None);
    }

    /// `end_watch` ends the watch of a thread, and every later watch.
    fn ends_its_watch(&self) {
        let (fabric, timeout) = (self.fabric, self.effort.timeout);
        let start = Instant::now();
        std::thread::scope(|scope| {
            let watcher = scope.spawn(move || fabric.watch(&[], timeout).unwrap());
            fabric.end_watch();
            assert_eq!(watcher.join().unwrap(), None);
        });
        assert_eq!(fabric.watch(&[], timeout).unwrap(), None);
        assert!(start.elapsed() < timeout, "the end of watching was not noticed");
    }

    /// Parks with no peer involved.
    fn parks_alone(&self) {
        let fabric = self.fabric;
        let timeout = Duration::from_millis(5);
        let start = Instant::now();
        assert_eq!(fabric.park(MAIN, PARK_WAKE, timeout, &mut || true).unwrap(), Wake::TimedOut);
        assert!(start.elapsed() >= timeout, "the whole time-out is slept");
        assert_eq!(fabric.park(MAIN, PARK_WAKE, self.effort.timeout, &mut || false).unwrap(), Wake::Work);

        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Pairs with the Acquire in `is_idle` below.
                is_done.store(true, Ordering::Release);
                fabric.wake(PARK_WAKE).unwrap();
            });
            // Pairs with the Release above.
            let mut is_idle = || !is_done.load(Ordering::Acquire);
            let woke = fabric.park(MAIN, PARK_WAKE, self.effort.timeout, &mut is_idle).unwrap();
            assert_ne!(woke, Wake::TimedOut, "a thread of the own machine wakes it");
        });
        for offset in [REGION_BYTES, usize::MAX - 3] {
            assert!(matches!(fabric.park(MAIN, offset, timeout, &mut || true), Err(Error::OutOfRange { .. })));
            assert!(matches!(fabric.wake(offset), Err(Error::OutOfRange { .. })));
        }
        assert!(matches!(fabric.wake(PARK_WAKE + 2), Err(Error::Misaligned { .. })));
    }

    /// Refused writes leave no trace (`keeps_its_edge` checks that).
    fn refuses(&mut self) {
        let next = self.next();
        let source = vec![0xff; REGION_BYTES + WORD_BYTES];
        for (offset, bytes) in [
            (REGION_BYTES, 8),
            (REGION_BYTES - 8, 16),
            (REGION_BYTES - 64, 72),
            (0, REGION_BYTES + 8),
            (usize::MAX - 7, 8),
            (usize::MAX - 7, 16),
        ] {
            let refused = next.write(&source[..bytes], offset);
            assert!(matches!(refused, Err(Error::OutOfRange { .. })), "{bytes} at {offset}: {refused:?}");
        }
        for (offset, bytes) in [(EDGE + 4, 8), (EDGE, 12), (EDGE, 4), (EDGE, 0)] {
            let refused = next.write(&source[..bytes], offset);
            assert!(matches!(refused, Err(Error::Misaligned { .. })), "{bytes} at {offset}: {refused:?}");
        }
        assert!(matches!(next.wake(REGION_BYTES), Err(Error::OutOfRange { .. })));
        assert!(matches!(next.wake(PARK_WAKE + 2), Err(Error::Misaligned { .. })));
    }

    /// The refused writes have left the region as it was; the write that just fits goes in.
    fn keeps_its_edge(&mut self) {
        let region = self.fabric.region();
        let words = region.words(BULK, REGION_BYTES - BULK).unwrap();
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0), "a refused write was written");
        self.barrier();
        let stamp = 1 + u64::from(self.fabric.machine().0);
        self.next().write(&stamp.to_ne_bytes(), REGION_BYTES - WORD_BYTES).unwrap();
        // The barrier flushes the write, and comes after it.
        self.barrier();
        assert_eq!(load(region, REGION_BYTES - WORD_BYTES), 1 + u64::from(self.previous().0));
        let before = region.words(EDGE, LINE_BYTES - WORD_BYTES).unwrap();
        assert!(before.iter().all(|word| word.load(Ordering::Relaxed) == 0), "a write wrote before its offset");
    }

    /// Long writes between short ones, flushed at once: the reader polls only the last flag.
    fn writes_in_bulk(&mut self) {
        let region = self.fabric.region();
        let (own, previous) = (self.fabric.machine(), self.previous());
        let (before, flag) = (TRAIL, TRAIL + WORD_BYTES);
        let mut copy = vec![0; BULK_BYTES];
        for round in 1..=8 {
            let mut source = stream::stamped(own, LANES, round, BULK_BYTES);
            let next = self.next();
            next.write(&round.to_ne_bytes(), before).unwrap();
            next.write(&source, BULK).unwrap();
            source.fill(0xee);
            next.write(&round.to_ne_bytes(), flag).unwrap();
            next.wake(PARK_WAKE).unwrap();
            next.flush().unwrap();
            next.flush().unwrap(); // flushes nothing
            while load(region, flag) != round {
                self.fabric.poll(MAIN).unwrap();
                let woke = self.fabric.park(MAIN, PARK_WAKE, self.effort.timeout, &mut || load(region, flag) != round);
                assert_ne!(woke.unwrap(), Wake::TimedOut, "bulk write {round} of {previous} did not come");
            }
            assert_eq!(load(region, before), round, "the write before bulk write {round}");
            region.read(BULK, &mut copy).unwrap();
            assert!(copy == stream::stamped(previous, LANES, round, BULK_BYTES), "bulk write {round} is not whole");
            self.barrier();
        }
    }

    /// Machine 0 and `second` wake each other in turn, and each sleeps until then. A lost wake-up times out.
    fn wakes_and_sleeps(&mut self, second: MachineId, rounds_before: u64, rounds: u64) {
        let (fabric, effort, first) = (self.fabric, self.effort, MachineId(0));
        let own = fabric.machine();
        if own != first && own != second {
            return;
        }
        let connection = self.to(if own == first { second } else { first });
        let word = fabric.region().word(WAKE).unwrap();
        for round in rounds_before + 1..=rounds_before + rounds {
            if own == first {
                connection.write(&round.to_ne_bytes(), WAKE).unwrap();
                connection.wake(PARK_WAKE).unwrap();
                connection.flush().unwrap();
            }
            // Some turns of spinning first, so that the wake meets every moment of going to sleep.
            (0..stream::mix(round) % 256).for_each(|_| std::hint::spin_loop());
            // The wake of the round before, whose write was seen without it, may come late and end one sleep
            // too early.
            // Acquire, pairs with the Release of the flag word: [flag-last] of the contract.
            while word.load(Ordering::Acquire) != round {
                fabric.poll(MAIN).unwrap();
                // Acquire, pairs with the same Release.
                let mut is_idle = || word.load(Ordering::Acquire) != round;
                let woke = fabric.park(MAIN, PARK_WAKE, effort.timeout, &mut is_idle).unwrap();
                // On a busy machine the other may always be faster: `wakes_alone` checks that a machine sleeps at all.
                assert_ne!(woke, Wake::TimedOut, "the wake-up of round {round} was lost");
            }
            if own == second {
                connection.write(&round.to_ne_bytes(), WAKE).unwrap();
                connection.wake(PARK_WAKE).unwrap();
                connection.flush().unwrap();
            }
        }
    }

    /// Machine 0 sleeps without a look for work, so only wakes end its sleep; each wake makes the write before it
    /// visible.
    fn wakes_alone(&mut self, waker: MachineId) {
        const SLEEPS: u64 = 20;
        let (fabric, timeout) = (self.fabric, self.effort.timeout);
        if fabric.machine() == MachineId(0) {
            for sleep in 1..=SLEEPS {
                let woke = fabric.park(MAIN, PARK_ALONE, timeout, &mut || true).unwrap();
                assert_eq!(woke, Wake::Woken, "sleep {sleep}");
                // Each write comes with two wakes, and each wake ends at most one sleep.
                assert!(load(fabric.region(), WAKES) >= sleep.div_ceil(2), "a wake overtook the write before it");
            }
            let connection = self.to(waker);
            connection.write(&SLEEPS.to_ne_bytes(), WAKES).unwrap();
            connection.flush().unwrap();
        } else if fabric.machine() == waker {
            let start = Instant::now();
            let mut wakes: u64 = 0;
            // A wake that finds no sleeper is lost, so there are more of them.
            while load(fabric.region(), WAKES) != SLEEPS {
                wakes += 1;
                let connection = self.to(MachineId(0));
                connection.write(&wakes.to_ne_bytes(), WAKES).unwrap();
                connection.wake(PARK_ALONE).unwrap();
                connection.flush().unwrap();
                connection.wake(PARK_ALONE).unwrap(); // without a write, until the next flush
                fabric.poll(MAIN).unwrap();
                assert!(start.elapsed() < timeout, "{wakes} wakes did not end {SLEEPS} sleeps");
                std::thread::yield_now();
            }
            self.to(MachineId(0)).flush().unwrap();
        }
    }
}
