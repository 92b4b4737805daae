//! The protocol over the simulated network (`comm::sim`): the real `home`, `holder` and message encoding, on machines
//! that are threads of one process. Messages are late, those of different pairs overtake one another, each pair has
//! room for a few, machines are cut off for a while, and one dies.
//!
//! `search.rs` tries all orders of a few accesses to two pages. Here are thousands of accesses to many blocks, with
//! streams and runs of all lengths, and with bytes that arrive by reads of the holder's share. A page is a few words:
//! address spaces, of which a process has one, are not part of it.
//!
//! Checked at each access: a writer is alone; a reader finds all words as they were last written. All accesses end.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use comm::sim::{Conditions, Network, SimFabric};
use comm::{
    Connection, Fabric, Loss, MachineId, ReadId, Region, SHARE_UNIT_BYTES, Share, ShareId, WORD_BYTES, WorkerId,
};

use crate::holder::{Holder, Pages};
use crate::home::{Home, Out};
use crate::message::{Grant, MESSAGE_BYTES, Message, State};
use crate::page::{Homes, Run};

const MACHINES: u16 = 3;
/// Four blocks, the last one in part.
const PAGES: u32 = 3 * 64 + 40;
const PAGE_WORDS: usize = 4;
/// Threads of each machine.
const THREADS: usize = 2;
const ACCESSES: u32 = 2000;
/// Messages that a pair has room for.
const ROOM: u64 = 4;
const SHARE: ShareId = ShareId(0);
const LIMIT: Duration = Duration::from_secs(60);

/// Layout of a machine's region for each peer: slots of a message and its number, and the count of this machine's
/// messages that the peer has taken.
const SLOT_BYTES: usize = MESSAGE_BYTES + WORD_BYTES;
const TAKEN: usize = ROOM as usize * SLOT_BYTES;
const OF_PEER: usize = TAKEN + WORD_BYTES;

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().expect("no other machine has found anything wrong")
}

/// Global state, as an observer of all machines knows it.
struct Truth {
    /// Number of writes to each page.
    written: [u64; PAGES as usize],
    /// Access by machine and page.
    access: [[State; PAGES as usize]; MACHINES as usize],
}

/// The pages of one machine.
struct Memory {
    own: usize,
    truth: Arc<Mutex<Truth>>,
    share: Arc<Share>,
    to_read: Vec<(Run, u16, State)>,
    woken: Vec<u32>,
}

impl Memory {
    fn words(&self, page: u32) -> &[AtomicU64] {
        &self.share.words()[page as usize * PAGE_WORDS..][..PAGE_WORDS]
    }

    fn set(&mut self, run: Run, change: impl Fn(State) -> State) {
        for access in &mut lock(&self.truth).access[self.own][run.first as usize..(run.first + run.count) as usize] {
            *access = change(*access);
        }
    }
}

impl Pages for Memory {
    fn install(&mut self, run: Run, state: State) {
        // Pages that are there stay as they are (EEXIST).
        self.set(run, |access| if access == State::Invalid { state } else { access });
        self.woken.extend(run.pages());
    }

    fn install_zeros(&mut self, run: Run) {
        assert!(run.pages().all(|page| self.words(page).iter().all(|word| word.load(SeqCst) == 0)), "zeros over bytes");
        self.install(run, State::Modified);
    }

    fn install_again(&mut self, run: Run, state: State, _: u32) -> bool {
        self.install(run, state);
        true
    }

    fn unprotect(&mut self, run: Run) {
        self.set(run, |access| {
            assert_eq!(access, State::Shared, "only what is there can be made writable");
            State::Modified
        });
        self.woken.extend(run.pages());
    }

    fn protect(&mut self, run: Run) {
        self.set(run, |_| State::Shared);
    }

    fn unmap(&mut self, run: Run) {
        self.set(run, |_| State::Invalid);
    }

    fn fetch(&mut self, run: Run, from: u16, state: State) -> bool {
        self.to_read.push((run, from, state));
        false
    }
}

/// A thread of a machine: its next access, and the number left.
struct Thread {
    random: fastrand::Rng,
    left: u32,
    page: u32,
    /// The page where sequential access continues.
    next: u32,
    write: bool,
    is_stopped: bool,
}

impl Thread {
    /// Chooses the next access: mostly the next page, to read for a while and to write for a while; now and then one of
    /// a few hot pages.
    fn choose(&mut self) {
        match self.random.u32(..64) {
            jump @ 0..=1 => (self.next, self.write) = (self.random.u32(..PAGES), jump == 1),
            2..=7 => return self.page = self.random.u32(..3),
            _ => {}
        }
        (self.page, self.next) = (self.next, (self.next + 1) % PAGES);
    }
}

/// State of one pair of machines.
struct Peer {
    connection: Box<dyn Connection>,
    waiting: VecDeque<[u8; MESSAGE_BYTES]>,
    sent: u64,
    received: u64,
}

/// Counts of grants by kind.
#[derive(Debug, Default)]
struct Counts {
    zeros: u32,
    upgrades: u32,
    fetched: u32,
    longest: u32,
}

struct Machine {
    own: u16,
    fabric: SimFabric,
    home: Home,
    holder: Holder,
    memory: Memory,
    threads: Vec<Thread>,
    faults: Vec<(u32, bool)>,
    /// Peers by machine; the own place is empty.
    peers: Vec<Option<Peer>>,
    reads: Vec<(ReadId, Run, u16, State)>,
    counts: Counts,
}

impl Machine {
    fn open(own: u16, network: &Network, truth: Arc<Mutex<Truth>>, homes: Homes, seed: u64) -> Machine {
        let region = Arc::new(Region::anonymous(usize::from(MACHINES) * OF_PEER).unwrap());
        let fabric = network.open(MachineId(own), region, LIMIT).unwrap();
        let bytes = (PAGES as usize * PAGE_WORDS * WORD_BYTES).next_multiple_of(SHARE_UNIT_BYTES);
        fabric.open_share(SHARE, bytes).unwrap();
        fabric.commit(SHARE, 0..bytes).unwrap();
        let share = fabric.mapped(MachineId(own), SHARE).unwrap().unwrap();
        let peer = |peer| {
            let connection = fabric.connect(MachineId(peer), WorkerId(0)).ok()?;
            Some(Peer { connection, waiting: VecDeque::new(), sent: 0, received: 0 })
        };
        let peers = (0..MACHINES).map(peer).collect();
        let thread = |thread| {
            let mut random = fastrand::Rng::with_seed(seed * 1000 + u64::from(own) * 10 + thread);
            let page = random.u32(..PAGES);
            Thread { random, left: ACCESSES, page, next: page, write: thread == 0, is_stopped: false }
        };
        Machine {
            own,
            fabric,
            home: Home::new(homes, MACHINES, PAGES),
            holder: Holder::new(homes, MACHINES, PAGES, true),
            memory: Memory { own: usize::from(own), truth, share, to_read: vec![], woken: vec![] },
            threads: (0..THREADS as u64).map(thread).collect(),
            faults: vec![],
            peers,
            reads: vec![],
            counts: Counts::default(),
        }
    }

    /// Whether no access is left and no request is under way.
    fn is_done(&self) -> bool {
        self.threads.iter().all(|thread| thread.left == 0) && (0..PAGES).all(|page| !self.holder.is_asked(page))
    }

    /// Handles the messages of a fault or a message that are for this machine; queues the others until there is room.
    fn settle(&mut self, mut out: Out) {
        let mut own = VecDeque::new();
        loop {
            for (to, message) in out.drain(..) {
                match &mut self.peers[usize::from(to)] {
                    Some(peer) => peer.waiting.push_back(message.encode(0)),
                    None => own.push_back(message),
                }
            }
            let Some(message) = own.pop_front() else { break };
            self.receive(self.own, message, &mut out);
        }
        for (run, from, state) in std::mem::take(&mut self.memory.to_read) {
            let peer = self.peers[usize::from(from)].as_mut().expect("nobody fetches from itself");
            let (at, bytes) =
                (run.first as usize * PAGE_WORDS * WORD_BYTES, run.count as usize * PAGE_WORDS * WORD_BYTES);
            self.reads.push((peer.connection.read_share(SHARE, at, bytes).unwrap(), run, from, state));
        }
        let woken = std::mem::take(&mut self.memory.woken);
        self.threads
            .iter_mut()
            .filter(|thread| woken.contains(&thread.page))
            .for_each(|thread| thread.is_stopped = false);
        // At once: the page may be gone otherwise, since the hold time of page servers is not simulated.
        (0..THREADS).for_each(|thread| self.go_on(thread));
    }

    fn receive(&mut self, from: u16, message: Message, out: &mut Out) {
        match message {
            Message::Granted { run, grant: Grant::Zeros } => self.counts.zeros += run.count,
            Message::Granted { run, grant: Grant::Upgrade } => self.counts.upgrades += run.count,
            Message::Arrive { run, .. } => {
                self.counts.fetched += run.count;
                self.counts.longest = self.counts.longest.max(run.count);
            }
            _ => {}
        }
        match message {
            Message::Ask { .. } | Message::Dropped { .. } | Message::Done { .. } => {
                self.home.receive(from, message, out)
            }
            _ => self.holder.receive(from, message, &mut self.memory, out),
        }
    }

    /// Performs a few accesses of a thread, until it faults.
    fn go_on(&mut self, thread: usize) {
        let Thread { left, is_stopped, .. } = self.threads[thread];
        if is_stopped {
            return;
        }
        for _ in 0..left.min(4) {
            let Thread { page, write, .. } = self.threads[thread];
            if !self.access(page, write) {
                self.threads[thread].is_stopped = true;
                return self.faults.push((page, write));
            }
            self.threads[thread].left -= 1;
            self.threads[thread].choose();
        }
    }

    /// Performs an access if the machine may; returns whether it may.
    fn access(&mut self, page: u32, write: bool) -> bool {
        let (at, mut truth) = (page as usize, lock(&self.memory.truth));
        let is_allowed = match truth.access[usize::from(self.own)][at] {
            State::Modified => true,
            State::Shared => !write,
            State::Invalid => false,
        };
        if !is_allowed {
            return false;
        }
        let found: Vec<u64> = self.memory.words(page).iter().map(|word| word.load(SeqCst)).collect();
        assert_eq!(found, [truth.written[at]; PAGE_WORDS], "machine {} finds old bytes of page {page}", self.own);
        if write {
            let others = (0..usize::from(MACHINES)).filter(|machine| *machine != usize::from(self.own));
            assert!(
                others.into_iter().all(|other| truth.access[other][at] == State::Invalid),
                "page {page} is not alone"
            );
            truth.written[at] += 1;
            self.memory.words(page).iter().for_each(|word| word.store(truth.written[at], SeqCst));
        }
        true
    }

    /// Takes one message of each peer, completed reads, and faults; sends as many messages as there is room for.
    /// Returns whether a peer has died.
    fn turn(&mut self) -> bool {
        for from in 0..MACHINES {
            if let Some(message) = self.take(from) {
                let mut out = Out::new();
                self.receive(from, message, &mut out);
                self.settle(out);
            }
        }
        let dead = |machine: &Machine| {
            let lost = |peer| machine.fabric.lost(MachineId(peer)).unwrap() == Some(Loss::Died);
            (0..MACHINES).any(|peer| peer != machine.own && lost(peer))
        };
        for (read_id, run, from, state) in std::mem::take(&mut self.reads) {
            let mut bytes = vec![0; run.count as usize * PAGE_WORDS * WORD_BYTES];
            let peer = self.peers[usize::from(from)].as_mut().expect("it was asked");
            match peer.connection.take(read_id, &mut bytes) {
                Ok(true) => {}
                Ok(false) => {
                    self.reads.push((read_id, run, from, state));
                    continue;
                }
                Err(comm::Error::Gone { .. }) if dead(self) => return true,
                Err(error) => panic!("{error}"),
            }
            let words = run.pages().flat_map(|page| self.memory.words(page));
            for (word, bytes) in words.zip(bytes.chunks_exact(WORD_BYTES)) {
                word.store(u64::from_ne_bytes(*bytes.first_chunk().expect("a word")), SeqCst);
            }
            let mut out = Out::new();
            self.holder.fetched(run, state, &mut self.memory, &mut out);
            self.settle(out);
        }
        (0..THREADS).for_each(|thread| self.go_on(thread));
        for (page, write) in std::mem::take(&mut self.faults) {
            let mut out = Out::new();
            self.holder.fault(page, write, &mut self.memory, &mut out);
            self.settle(out);
        }
        self.send();
        dead(self)
    }

    /// Takes the next message of a peer.
    fn take(&mut self, from: u16) -> Option<Message> {
        let peer = self.peers[usize::from(from)].as_mut()?;
        let slot = usize::from(from) * OF_PEER + (peer.received % ROOM) as usize * SLOT_BYTES;
        let words = self.fabric.region().words(slot, SLOT_BYTES).unwrap();
        if words[MESSAGE_BYTES / WORD_BYTES].load(SeqCst) != peer.received + 1 {
            return None;
        }
        let bytes: Vec<u8> =
            words.iter().flat_map(|word| word.load(SeqCst).to_ne_bytes()).take(MESSAGE_BYTES).collect();
        peer.received += 1;
        let taken = peer.received.to_ne_bytes();
        peer.connection.write(&taken, usize::from(self.own) * OF_PEER + TAKEN).unwrap();
        Some(Message::decode(&bytes).expect("a message").1)
    }

    fn send(&mut self) {
        for (to, peer) in self.peers.iter_mut().enumerate() {
            let Some(peer) = peer else { continue };
            let taken = self.fabric.region().word(to * OF_PEER + TAKEN).unwrap().load(SeqCst);
            while peer.sent < taken + ROOM
                && let Some(message) = peer.waiting.pop_front()
            {
                let slot = usize::from(self.own) * OF_PEER + (peer.sent % ROOM) as usize * SLOT_BYTES;
                peer.sent += 1;
                peer.connection.write(&[&message[..], &peer.sent.to_ne_bytes()].concat(), slot).unwrap();
            }
            peer.connection.flush().unwrap();
        }
    }
}

/// Runs all machines, and calls `beside` after each turn, until all are done, `beside` says that its machine is, or
/// another has died.
fn run(seed: u64, homes: Homes, beside: impl Fn(&Network, &Machine, u64) -> bool + Sync) -> Vec<(Counts, bool)> {
    let network = Network::new(MACHINES, Conditions { seed, silence: LIMIT, ..Conditions::default() }).unwrap();
    let pages = [State::Invalid; PAGES as usize];
    let truth = Truth { written: [0; PAGES as usize], access: [pages; MACHINES as usize] };
    let (truth, done) = (Arc::new(Mutex::new(truth)), AtomicU32::new(0));
    let machine = |own| {
        let mut machine = Machine::open(own, &network, Arc::clone(&truth), homes, seed);
        let (begun, mut turns, mut is_done) = (Instant::now(), 0, false);
        loop {
            let has_lost = machine.turn();
            turns += 1;
            if has_lost || beside(&network, &machine, turns) {
                return (machine.counts, has_lost);
            }
            if !is_done && machine.is_done() {
                is_done = true;
                done.fetch_add(1, SeqCst);
            }
            if done.load(SeqCst) == u32::from(MACHINES) {
                return (machine.counts, false);
            }
            if begun.elapsed() > LIMIT {
                let waits = machine.threads.iter().find(|thread| thread.is_stopped).map(|thread| thread.page);
                panic!("machine {own} waits for page {waits:?}: {}", machine.home.describe(waits.unwrap_or(0)));
            }
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let machine = &machine;
        let running: Vec<_> = (0..MACHINES).map(|own| scope.spawn(move || machine(own))).collect();
        running.into_iter().map(|machine| machine.join().unwrap()).collect()
    })
}

/// Each machine cuts the next one off for a while, again and again.
fn cut(network: &Network, machine: &Machine, turns: u64) -> bool {
    const EVERY: u64 = 2000;
    let next = MachineId((machine.own + 1) % MACHINES);
    match turns % EVERY {
        0 => network.cut(next),
        200 => network.restore(next),
        _ => {}
    }
    false
}

#[test]
fn every_access_over_a_bad_network_finds_the_latest_bytes() {
    for (seed, homes) in [(1, Homes::Spread), (2, Homes::Spread), (3, Homes::At(1))] {
        let ended = run(seed, homes, cut);
        println!("seed {seed}: {ended:?}");
        assert!(ended.iter().all(|(_, has_lost)| !has_lost));
        let sum = |of: fn(&Counts) -> u32| ended.iter().map(|(counts, _)| of(counts)).sum::<u32>();
        assert!(sum(|counts| counts.zeros) >= PAGES && sum(|counts| counts.upgrades) > 0, "every page was new once");
        assert!(
            sum(|counts| counts.fetched) > 3 * PAGES && sum(|counts| counts.longest) > 3 * 8,
            "pages went about, in runs"
        );
    }
}

#[test]
fn when_a_machine_dies_nobody_sees_bytes_that_were_not_granted() {
    for seed in 1..=3 {
        let kill = |network: &Network, machine: &Machine, _| {
            let is_over = machine.own == 2 && machine.threads.iter().any(|thread| thread.left < ACCESSES / 2);
            if is_over {
                network.kill(MachineId(2));
            }
            is_over
        };
        let ended = run(seed, Homes::Spread, kill);
        let have_lost: Vec<bool> = ended.into_iter().map(|(_, has_lost)| has_lost).collect();
        assert_eq!(have_lost, [true, true, false], "the others are told, and end");
    }
}
