//! Search through all orders in which messages, faults and fetches of a few machines can come: the real `home` and
//! `holder`, over pages that remember which bytes they hold.
//!
//! Checked: a page that one machine may write is on no other [single-writer]; a reader sees the last bytes written;
//! every fault ends.
//!
//! Not here: more pages and accesses than all orders can cover, over a network with delays (`simulated.rs`).

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::holder::{Holder, Pages};
use crate::home::{Home, Out};
use crate::message::{Message, State};
use crate::page::{Homes, Run};

const PAGES: u32 = 2;

/// The memory of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Memory {
    access: [State; PAGES as usize],
    /// Number of writes to the page before these bytes arrived.
    bytes: [u8; PAGES as usize],
    fetches: Vec<(Run, u16, State)>,
    /// Pages cannot be installed read-only, as on kernels before 6.4.
    is_old: bool,
    /// Pages with waiters that resume.
    woken: Vec<u32>,
}

impl Pages for Memory {
    fn install(&mut self, run: Run, state: State) {
        assert!(!self.is_old || state != State::Shared, "an old machine has asked to read");
        for page in run.pages() {
            // Pages that are there stay as they are (EEXIST).
            if self.access[page as usize] == State::Invalid {
                self.access[page as usize] = state;
            }
            self.woken.push(page);
        }
    }

    fn install_zeros(&mut self, run: Run) {
        assert!(run.pages().all(|page| self.bytes[page as usize] == 0), "zeros over bytes");
        self.install(run, State::Modified);
    }

    fn install_again(&mut self, run: Run, state: State, _: u32) -> bool {
        let is_gone = run.pages().any(|page| self.access[page as usize] == State::Invalid);
        let is_refused = self.is_old && state == State::Shared && is_gone;
        if !is_refused {
            // Pages that are there stay; others are not Shared, or may be installed so.
            match is_gone {
                true => self.install(run, state),
                false => self.woken.extend(run.pages()),
            }
        }
        !is_refused
    }

    fn unprotect(&mut self, run: Run) {
        for page in run.pages() {
            assert_eq!(self.access[page as usize], State::Shared, "only what is there can be made writable");
            self.access[page as usize] = State::Modified;
            self.woken.push(page);
        }
    }

    fn protect(&mut self, run: Run) {
        run.pages().for_each(|page| self.access[page as usize] = State::Shared);
    }

    fn unmap(&mut self, run: Run) {
        run.pages().for_each(|page| self.access[page as usize] = State::Invalid);
    }

    fn fetch(&mut self, run: Run, from: u16, state: State) -> bool {
        self.fetches.push((run, from, state));
        false
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Thread {
    machine: u16,
    /// Accesses left: reads, and writes (true), of any page.
    accesses: VecDeque<bool>,
    /// The page at which it waits, and whether to write.
    waits: Option<(u32, bool)>,
    /// The system has stopped it there.
    is_stopped: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    homes: Vec<Home>,
    holders: Vec<Holder>,
    memories: Vec<Memory>,
    threads: Vec<Thread>,
    /// Faults that a machine's page server has not yet seen. The page may have arrived by then.
    faults: Vec<(u16, u32, bool)>,
    /// Messages under way, by sender and receiver.
    under_way: Vec<Vec<VecDeque<Message>>>,
    /// Number of writes to each page.
    written: [u8; PAGES as usize],
    has_prefetched: bool,
    /// Machines that will request all pages if untouched.
    want_new: Vec<u16>,
    /// Machines that will request all pages, to write.
    want_to_write: Vec<u16>,
    /// Pages that threads touch.
    pages: u32,
}

impl World {
    fn new(machines: u16, pages: u32, accesses: &[(u16, &[bool])], homes: Homes) -> World {
        let each = usize::from(machines);
        let thread = |&(machine, accesses): &(u16, &[bool])| Thread {
            machine,
            accesses: accesses.iter().copied().collect(),
            waits: None,
            is_stopped: false,
        };
        World {
            homes: vec![Home::new(homes, machines, PAGES); each],
            holders: vec![Holder::new(homes, machines, PAGES, true).with_runs_of(pages); each],
            memories: vec![Memory::default(); each],
            threads: accesses.iter().map(thread).collect(),
            faults: vec![],
            under_way: vec![vec![VecDeque::new(); each]; each],
            written: [0; PAGES as usize],
            has_prefetched: pages == 1,
            want_new: vec![],
            want_to_write: vec![],
            pages,
        }
    }

    /// Sends; handles at once the messages that a machine sends itself, as page servers do.
    fn send(&mut self, from: u16, out: Out) {
        for (to, message) in out {
            if to == from {
                self.receive(from, from, message);
            } else {
                self.under_way[usize::from(from)][usize::from(to)].push_back(message);
            }
        }
    }

    fn receive(&mut self, from: u16, at: u16, message: Message) {
        let (mut out, own) = (Out::new(), usize::from(at));
        match message {
            Message::Ask { .. } | Message::Dropped { .. } | Message::Done { .. } => {
                self.homes[own].receive(from, message, &mut out);
            }
            _ => self.holders[own].receive(from, message, &mut self.memories[own], &mut out),
        }
        self.send(at, out);
        self.wake(at);
    }

    /// Lets the waiters for installed pages try again.
    fn wake(&mut self, machine: u16) {
        let woken = std::mem::take(&mut self.memories[usize::from(machine)].woken);
        for thread in self.threads.iter_mut().filter(|thread| thread.machine == machine) {
            if thread.waits.is_some_and(|(page, _)| woken.contains(&page)) {
                thread.is_stopped = false; // it may fault again
            }
        }
    }

    fn may_access(&self, machine: u16, page: u32, write: bool) -> bool {
        let access = self.memories[usize::from(machine)].access[page as usize];
        access == State::Modified || (access == State::Shared && !write)
    }

    /// Performs a thread's access, or stops the thread.
    fn try_to(&mut self, thread: usize, page: u32, write: bool) {
        let machine = self.threads[thread].machine;
        if self.may_access(machine, page, write) {
            return self.access(thread, page, write);
        }
        self.threads[thread].waits = Some((page, write));
        self.threads[thread].is_stopped = true;
        self.faults.push((machine, page, write));
        self.faults.sort_unstable(); // any may be next, so their order makes no other world
        self.faults.dedup();
    }

    fn access(&mut self, thread: usize, page: u32, write: bool) {
        let machine = self.threads[thread].machine;
        let (own, at) = (usize::from(machine), page as usize);
        if write {
            let others = || (0..self.memories.len()).filter(|other| *other != own);
            for other in others() {
                assert_eq!(
                    self.memories[other].access[at],
                    State::Invalid,
                    "page {page} is written by {machine}: {self:#?}"
                );
            }
            self.written[at] += 1;
            self.memories[own].bytes[at] = self.written[at];
        } else {
            assert_eq!(self.memories[own].bytes[at], self.written[at], "old bytes of page {page}: {self:#?}");
        }
        self.threads[thread].waits = None;
        self.threads[thread].accesses.pop_front();
    }

    /// Returns all possible next worlds.
    fn next(&self) -> Vec<World> {
        let mut all = vec![];
        let mut push = |change: &mut dyn FnMut(&mut World)| {
            let mut world = self.clone();
            change(&mut world);
            all.push(world);
        };
        for (from, row) in self.under_way.iter().enumerate() {
            for to in (0..row.len()).filter(|to| !row[*to].is_empty()) {
                push(&mut |world| {
                    let message = world.under_way[from][to].pop_front().unwrap();
                    world.receive(from as u16, to as u16, message);
                });
            }
        }
        for own in 0..self.memories.len() {
            for at in 0..self.memories[own].fetches.len() {
                push(&mut |world| {
                    let (run, from, state) = world.memories[own].fetches.remove(at);
                    for page in run.pages() {
                        assert_ne!(
                            world.memories[own].access[page as usize],
                            State::Modified,
                            "new bytes over newer ones"
                        );
                        world.memories[own].bytes[page as usize] =
                            world.memories[usize::from(from)].bytes[page as usize];
                    }
                    let mut out = Out::new();
                    world.holders[own].fetched(run, state, &mut world.memories[own], &mut out);
                    world.send(own as u16, out);
                    world.wake(own as u16);
                });
            }
        }
        if !self.has_prefetched {
            push(&mut |world| {
                world.has_prefetched = true;
                let mut out = Out::new();
                world.holders[0].prefetch(0..PAGES, &mut out);
                world.send(0, out);
            });
        }
        for at in 0..self.want_new.len() {
            push(&mut |world| {
                let (machine, mut out) = (world.want_new.remove(at), Out::new());
                world.holders[usize::from(machine)].ask_beforehand(0, WRITE, &mut out);
                world.send(machine, out);
            });
        }
        for at in 0..self.want_to_write.len() {
            push(&mut |world| {
                let (machine, mut out) = (world.want_to_write.remove(at), Out::new());
                world.holders[usize::from(machine)].prefetch_to_write(0..PAGES, &mut out);
                world.send(machine, out);
            });
        }
        for at in 0..self.faults.len() {
            push(&mut |world| {
                let (machine, page, write) = world.faults.remove(at);
                let (own, mut out) = (usize::from(machine), Out::new());
                world.holders[own].fault(page, write, &mut world.memories[own], &mut out);
                world.send(machine, out);
                world.wake(machine);
            });
        }
        for (index, thread) in self.threads.iter().enumerate() {
            match thread.waits {
                Some((page, write)) if !thread.is_stopped => push(&mut |world| world.try_to(index, page, write)),
                None if !thread.accesses.is_empty() => {
                    for (page, write) in (0..self.pages).map(|page| (page, thread.accesses[0])) {
                        push(&mut |world| world.try_to(index, page, write));
                    }
                }
                _ => {}
            }
        }
        all
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// Searches from this world; returns the number of worlds.
fn search(first: World) -> usize {
    let mut seen = HashSet::from([first.fingerprint()]);
    let mut open = vec![first];
    while let Some(world) = open.pop() {
        let next = world.next();
        if next.is_empty() {
            let stuck = world.threads.iter().any(|thread| thread.waits.is_some() || !thread.accesses.is_empty());
            assert!(!stuck, "somebody waits for ever: {world:#?}");
            let asked = (0..PAGES).any(|page| world.holders.iter().any(|holder| holder.is_asked(page)));
            assert!(!asked, "an ask has no end: {world:#?}");
        }
        open.extend(next.into_iter().filter(|next| seen.insert(next.fingerprint())));
    }
    seen.len()
}

const READ: bool = false;
const WRITE: bool = true;

/// Searches all orders of these threads' accesses, each thread on a machine.
fn search_all(machines: u16, pages: u32, homes: Homes, programs: &[&[(u16, &[bool])]]) {
    search_with_old(&[], machines, pages, homes, programs);
}

/// Same as `search_all`, where some machines have old kernels.
fn search_with_old(old: &[u16], machines: u16, pages: u32, homes: Homes, programs: &[&[(u16, &[bool])]]) {
    for program in programs {
        let mut first = World::new(machines, pages, program, homes);
        for machine in old {
            first.memories[usize::from(*machine)].is_old = true;
            first.holders[usize::from(*machine)] = Holder::new(homes, machines, PAGES, false).with_runs_of(pages);
        }
        let worlds = search(first);
        println!("{worlds} worlds of {program:?}");
        assert!(worlds > 100, "{worlds}");
    }
}

#[test]
fn every_order_of_three_machines_ends_with_the_latest_bytes() {
    search_all(3, 1, Homes::At(2), &[&[(0, &[READ]), (1, &[READ]), (2, &[WRITE])]]);
    search_all(3, 1, Homes::At(0), &[&[(1, &[WRITE]), (2, &[READ, WRITE])], &[(1, &[WRITE, READ]), (2, &[WRITE])]]);
}

#[test]
fn every_order_of_runs_ends_with_the_latest_bytes() {
    for homes in [Homes::At(0), Homes::At(1)] {
        let programs: [&[(u16, &[bool])]; 3] =
            [&[(0, &[READ]), (1, &[WRITE])], &[(0, &[WRITE]), (1, &[WRITE])], &[(0, &[WRITE]), (1, &[READ])]];
        search_all(2, 2, homes, &programs);
    }
}

#[test]
fn every_order_of_asks_for_new_pages_ends_with_the_latest_bytes() {
    let programs: [&[(u16, &[bool])]; 3] =
        [&[(0, &[READ]), (1, &[WRITE])], &[(0, &[WRITE]), (1, &[WRITE])], &[(0, &[WRITE]), (1, &[READ])]];
    for (program, homes) in programs.into_iter().zip([Homes::At(0), Homes::At(1), Homes::At(1)]) {
        for pages in 1..=2 {
            let mut first = World::new(2, pages, program, homes);
            (first.has_prefetched, first.want_new) = (true, vec![0, 1]);
            let worlds = search(first);
            println!("{worlds} worlds of {program:?}");
            assert!(worlds > 100, "{worlds}");
        }
    }
    let mut first = World::new(3, 1, &[(1, &[WRITE]), (2, &[READ])], Homes::At(0));
    first.want_new = vec![1, 2];
    let worlds = search(first);
    assert!(worlds > 100, "{worlds}");
}

#[test]
fn every_order_of_asks_to_write_ends_with_the_latest_bytes() {
    let programs: [&[(u16, &[bool])]; 3] =
        [&[(0, &[READ]), (1, &[WRITE])], &[(0, &[WRITE]), (1, &[WRITE])], &[(0, &[WRITE]), (1, &[READ])]];
    for (program, homes) in programs.into_iter().zip([Homes::At(0), Homes::At(1), Homes::At(1)]) {
        for (pages, machines) in [(1, vec![0, 1]), (2, vec![0]), (2, vec![1])] {
            let mut first = World::new(2, pages, program, homes);
            (first.has_prefetched, first.want_to_write) = (true, machines);
            let worlds = search(first);
            println!("{worlds} worlds of {program:?}");
            assert!(worlds > 100, "{worlds}");
        }
    }
}

/// All pages that another machine has written come, not the first of a run alone.
#[test]
fn pages_that_are_asked_to_write_all_come() {
    for homes in [Homes::At(0), Homes::At(1), Homes::Spread] {
        let mut world = World::new(2, PAGES, &[], homes);
        world.has_prefetched = true;
        for machine in [0, 1, 0] {
            world.want_to_write = vec![machine];
            while let Some(next) = world.next().pop() {
                world = next;
            }
            let holder = &world.holders[usize::from(machine)];
            assert!((0..PAGES).all(|page| holder.state(page) == State::Modified), "{holder:?}");
        }
    }
}

#[test]
fn two_threads_of_a_machine_fault_on_one_page() {
    let programs: [&[(u16, &[bool])]; 2] =
        [&[(0, &[READ]), (0, &[WRITE]), (1, &[WRITE])], &[(0, &[WRITE]), (0, &[WRITE]), (1, &[READ])]];
    search_all(2, 1, Homes::Spread, &programs);
}

#[test]
fn every_order_ends_with_the_latest_bytes_where_kernels_are_old() {
    let programs: [&[(u16, &[bool])]; 2] =
        [&[(0, &[READ, WRITE]), (1, &[READ])], &[(0, &[WRITE, READ]), (1, &[WRITE])]];
    for old in [&[0][..], &[1], &[0, 1]] {
        search_with_old(old, 2, 1, Homes::At(0), &programs);
    }
    search_with_old(&[0], 2, 2, Homes::At(1), &[&[(0, &[READ]), (1, &[WRITE])]]);
}
