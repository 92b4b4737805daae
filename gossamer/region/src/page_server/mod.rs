//! Page server of a machine: the thread that serves the faults of all other threads, for all regions. It drives
//! `home.rs` and `holder.rs`, and sends their messages to the page servers of other machines, in order.
//!
//! Here: messages in and out, and requests of regions. Not here: the path of faults (`faults.rs`), reports of slow ones
//! (`slow.rs`), and of the time that threads wait (`accounts.rs`).
//!
//! Invariant: nothing here touches a view, or waits for a thread that does, so every fault is served. Everything runs
//! on the page server unless stated otherwise.

pub(crate) mod accounts;
pub(crate) mod barrier;
mod faults;
mod knobs;
#[cfg(test)]
mod planted;
mod slow;

pub(crate) use slow::say;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use gossamer::link;
use trust::link::{Counter, post};

use self::accounts::{Accounts, Came};
use crate::error::Failure;
use crate::holder::Holder;
use crate::home::{Home, Out};
use crate::message::{Grant, MESSAGE_BYTES, Message, State};
use crate::page::{Homes, PAGE_BYTES, Run};
use crate::stats::COUNTERS;
use crate::uffd::Fault;
use crate::view::{Place, Reserved, Store, View, cannot_read};

/// Time for which a machine keeps pages that have just arrived before it gives them up, so that threads of several
/// machines that write one word all progress. Pages that go along with a thread, and those that came with them, may go
/// at once.
pub const HOLD: Duration = Duration::from_micros(100);
/// Most bytes of all regions of a program together.
pub(crate) const BYTES_MAX: usize = 1 << 40;
/// Time for which a reader of another host polls in each turn; afterwards it polls every `NAP`.
const EAGER: Duration = Duration::from_micros(200);
const NAP: Duration = Duration::from_micros(50);
/// Most pages that `hottest` can name.
pub(crate) const HOTTEST_MAX: usize = 32;

thread_local! {
    static SERVER: RefCell<PageServer> = RefCell::new(PageServer::default());
}

#[derive(Default)]
struct PageServer {
    /// Regions by number.
    regions: Vec<Option<Kept>>,
    reserved: HashMap<u32, Reserved>,
    /// Number of regions, and their bytes, on machine 0.
    given: (u32, usize),
    looks: bool,
    /// Whether faults are charged to threads.
    is_counting: bool,
}

/// Runs when the page server's thread ends.
impl Drop for PageServer {
    fn drop(&mut self) {
        faults::end(self.regions.iter().flatten().map(|kept| kept.view.addresses()));
    }
}

/// A region, as this machine's page server has it.
struct Kept {
    number: u32,
    view: View,
    home: Home,
    holder: Holder,
    /// Pages that threads of this machine wait for.
    waiting: BTreeMap<u32, Waiting>,
    accounts: Accounts,
    /// Number of requests for each page of this home.
    asks: HashMap<u32, u64>,
    /// Runs that arrived recently, and when.
    recent: VecDeque<(Instant, Run)>,
}

/// Threads of this machine that wait for a page.
struct Waiting {
    since: Instant,
    is_reported: bool,
    /// The threads with the beginnings of their waits, where these are counted.
    threads: Vec<(u32, Instant)>,
}

/// Work to do when the page server's state is no longer borrowed.
#[derive(Default)]
struct Errands {
    send: Vec<(u16, u32, Message)>,
    read: Vec<(u32, Run, u16, State)>,
    later: Vec<(Duration, u16, u32, Message)>,
}

impl Errands {
    fn run(self) {
        let own = gossamer::rack().machine();
        for (to, region, message) in self.send {
            let mut bytes = [0; MESSAGE_BYTES + 2];
            bytes[..MESSAGE_BYTES].copy_from_slice(&message.encode(region));
            bytes[MESSAGE_BYTES..].copy_from_slice(&own.to_ne_bytes());
            post(link::page_server(to), received, &bytes);
        }
        for (region, run, from, state) in self.read {
            let read = move || read(region, run, from, state);
            drop(trust::spawn(move || link::or_end("the page server", read)));
        }
        for (time, from, region, message) in self.later {
            drop(trust::spawn(move || {
                trust::sleep(time);
                with(|server, errands| server.take(from, region, message, errands));
            }));
        }
    }
}

/// Runs `f` on the page server's state. A panic ends the program: threads would wait for the pages for ever.
fn with<R>(f: impl FnOnce(&mut PageServer, &mut Errands) -> R) -> R {
    link::or_end("the page server", || {
        let mut errands = Errands::default();
        let result = SERVER.with(|server| f(&mut server.borrow_mut(), &mut errands));
        errands.run();
        result
    })
}

/// Handles a message of another page server.
fn received(bytes: &[u8]) {
    let decoded = bytes.split_last_chunk::<2>().and_then(|(message, from)| {
        Message::decode(message).map(|(region, message)| (u16::from_ne_bytes(*from), region, message))
    });
    let Some((from, region, message)) = decoded else {
        link::end(&format!("a page server has sent {} bytes that are no message", bytes.len()))
    };
    with(|server, errands| server.receive(from, region, message, errands));
}

impl PageServer {
    fn kept(&mut self, region: u32) -> &mut Kept {
        match self.regions.get_mut(region as usize) {
            Some(Some(kept)) => kept,
            _ => link::end(&format!("a page server has sent a message about region {region}, which there is not")),
        }
    }

    /// Handles a message; requests to give up pages that have just arrived are delayed.
    fn receive(&mut self, from: u16, region: u32, message: Message, errands: &mut Errands) {
        if let Message::Drop { run } | Message::Yield { run, .. } = message
            && let Some(left) = self.kept(region).hold_left(run)
        {
            COUNTERS.held.add(1);
            errands.later.push((left, from, region, message));
            return;
        }
        self.take(from, region, message, errands);
    }

    fn take(&mut self, from: u16, region: u32, message: Message, errands: &mut Errands) {
        self.settle(region, VecDeque::from([(from, message)]), errands);
    }

    /// Handles messages, and those that this machine sends itself because of them.
    fn settle(&mut self, region: u32, mut messages: VecDeque<(u16, Message)>, errands: &mut Errands) {
        let own = gossamer::rack().machine();
        let mut out = Out::new();
        while let Some((from, message)) = messages.pop_front() {
            self.kept(region).receive(from, message, &mut out);
            self.sort(region, own, &mut out, &mut messages, errands);
        }
    }

    /// Sorts outgoing messages. Messages to this machine are handled in the order in which they were sent, as those of
    /// other machines are, except that pages that have just arrived stay.
    fn sort(
        &mut self,
        region: u32,
        own: u16,
        out: &mut Out,
        messages: &mut VecDeque<(u16, Message)>,
        errands: &mut Errands,
    ) {
        for (to, message) in out.drain(..) {
            if to != own {
                errands.send.push((to, region, message));
                continue;
            }
            let held = match message {
                Message::Drop { run } | Message::Yield { run, .. } => self.kept(region).hold_left(run),
                _ => None,
            };
            match held {
                Some(left) => {
                    COUNTERS.held.add(1);
                    errands.later.push((left, own, region, message));
                }
                None => messages.push_back((own, message)),
            }
        }
        let read = std::mem::take(&mut self.kept(region).view.to_read);
        errands.read.extend(read.into_iter().map(|(run, from, state)| (region, run, from, state)));
    }

    /// Sends the requests that `begin` makes a region's holder issue.
    fn begin(&mut self, region: u32, errands: &mut Errands, begin: impl FnOnce(&mut Kept, &mut Out)) {
        let (mut out, mut messages) = (Out::new(), VecDeque::new());
        begin(self.kept(region), &mut out);
        self.sort(region, gossamer::rack().machine(), &mut out, &mut messages, errands);
        self.settle(region, messages, errands);
    }

    /// Same as [`begin`](Self::begin), for the pages of each region at these addresses.
    fn begin_at(
        &mut self,
        addresses: &Range<usize>,
        errands: &mut Errands,
        begin: impl Fn(&mut Kept, Range<u32>, &mut Out),
    ) {
        for region in 0..self.regions.len() {
            let pages = self.regions[region].as_ref().map_or(0..0, |kept| kept.view.pages_at(addresses));
            if !pages.is_empty() {
                self.begin(region as u32, errands, |kept, out| begin(kept, pages, out));
            }
        }
    }

    fn fault(&mut self, Fault { address, write, thread }: Fault, errands: &mut Errands) {
        let has = |kept: &Option<Kept>| kept.as_ref().is_some_and(|kept| kept.view.page_at(address).is_some());
        let found = self.regions.iter().position(has);
        let Some(region) = found else {
            link::end(&format!("a fault at {address:#x}, where there is no region"));
        };
        let region = region as u32;
        (if write { &COUNTERS.writes } else { &COUNTERS.reads }).add(1);
        let counted = self.is_counting.then_some(thread);
        self.begin(region, errands, |kept, out| {
            let Some(page) = kept.view.page_at(address) else { return };
            kept.holder.fault(page, write, &mut kept.view, out);
            if out.is_empty() {
                COUNTERS.late.add(1);
            }
            // This request or an earlier one.
            if kept.holder.is_asked(page) {
                let now = Instant::now();
                let new = || Waiting { since: now, is_reported: false, threads: vec![] };
                let waiting = kept.waiting.entry(page).or_insert_with(new);
                // A thread that a signal has interrupted asks again.
                let is_known = |thread: &u32| waiting.threads.iter().any(|(known, _)| known == thread);
                if let Some(thread) = counted.filter(|thread| !is_known(thread)) {
                    waiting.threads.push((thread, now));
                }
            }
        });
        if !self.looks {
            self.looks = true;
            slow::look_later();
        }
    }
}

impl Kept {
    fn forget_what_came_long_ago(&mut self) {
        while self.recent.front().is_some_and(|(came, _)| came.elapsed() >= knobs::hold()) {
            self.recent.pop_front();
        }
    }

    /// Returns how long a run that has just arrived is still kept.
    fn hold_left(&mut self, run: Run) -> Option<Duration> {
        self.forget_what_came_long_ago();
        let overlaps = |other: &Run| other.first < run.first + run.count && run.first < other.first + other.count;
        let (came, _) = self.recent.iter().rev().find(|(_, other)| overlaps(other))?;
        Some(knobs::hold().saturating_sub(came.elapsed()))
    }

    fn receive(&mut self, from: u16, message: Message, out: &mut Out) {
        let count = |counter: &Counter, run: Run| _ = counter.add(u64::from(run.count));
        match message {
            Message::Ask { run, .. } => *self.asks.entry(run.first).or_default() += 1,
            Message::Drop { run } => count(&COUNTERS.dropped, run),
            Message::Yield { run, .. } => count(&COUNTERS.yielded, run),
            Message::Granted { run, grant: Grant::Zeros } => count(&COUNTERS.zeros, run),
            Message::Granted { run, grant: Grant::Upgrade } => count(&COUNTERS.upgrades, run),
            _ => {}
        }
        match message {
            Message::Ask { .. } | Message::Dropped { .. } | Message::Done { .. } => {
                self.home.receive(from, message, out)
            }
            _ => {
                let before = out.len();
                let giver = matches!(message, Message::Arrive { .. }).then_some(from);
                self.holder.receive(from, message, &mut self.view, out);
                self.note_what_came(&out[before..], giver);
            }
        }
    }

    /// Records runs that are complete; `giver` is the machine whose bytes they are, if they brought any.
    fn note_what_came(&mut self, out: &[(u16, Message)], giver: Option<u16>) {
        for (_, message) in out {
            let Message::Done { run } = message else { continue };
            COUNTERS.runs.add(1);
            let now = Instant::now();
            self.forget_what_came_long_ago();
            self.recent.push_back((now, *run));
            if let Some(Waiting { since, threads, .. }) = self.waiting.remove(&run.first) {
                COUNTERS.waited_ns.add(now.duration_since(since).as_nanos() as u64);
                let (bytes, region) = (run.bytes().len() as u64, self.number);
                let came = giver.map(|from| Came { from, bytes, region, page: run.first });
                self.accounts.charge(&threads, now, came);
            }
        }
    }
}

/// In a fiber: reads pages of another host, and resumes when they are here.
fn read(region: u32, run: Run, from: u16, state: State) {
    let range = with(|server, _| server.kept(region).view.offsets_of(run));
    let mut bytes = vec![0; range.len()];
    let read_id = link::read(from, link::REGION, range.start, range.len());
    let read_id = read_id.unwrap_or_else(|error| cannot_read(from, &error));
    let asked = Instant::now();
    while !link::take(from, read_id, &mut bytes).unwrap_or_else(|error| cannot_read(from, &error)) {
        if asked.elapsed() < EAGER {
            trust::yield_now();
        } else {
            trust::sleep(NAP);
        }
    }
    with(|server, errands| {
        server.begin(region, errands, |kept, out| {
            kept.view.put(run, &bytes);
            kept.holder.fetched(run, state, &mut kept.view, out);
            kept.note_what_came(out, Some(from));
        });
    });
}

/// Begins a region on machine 0: its number, and its offset in the shares. The error is the number of bytes other
/// regions have.
pub(crate) fn give(bytes: usize) -> Result<(u32, usize), usize> {
    with(|server, _| {
        let (number, taken) = server.given;
        if bytes > BYTES_MAX - taken {
            return Err(taken);
        }
        server.given = (number + 1, taken + bytes);
        Ok((number, taken))
    })
}

/// Reserves these addresses for a region, if they are free and this machine can have regions.
pub(crate) fn reserve(region: u32, place: &Place) -> Result<(), Failure> {
    faults::start()?;
    let reserved = place.reserve()?;
    with(|server, _| drop(server.reserved.insert(region, reserved)));
    Ok(())
}

/// Releases them, because another machine could not reserve them.
pub(crate) fn unreserve(region: u32) {
    with(|server, _| drop(server.reserved.remove(&region)));
}

/// Maps a region at the reserved addresses.
pub(crate) fn map(region: u32, bytes: usize, offset: usize, homes: Homes) -> Result<(), Failure> {
    let uffd = faults::uffd().ok_or(Failure::NotAllowed)?;
    let store = Store::find(knobs::copies())?;
    with(|server, _| {
        let reserved = server.reserved.remove(&region).ok_or(Failure::Taken)?;
        let machines = gossamer::rack().machines().len() as u16;
        let pages = (bytes / PAGE_BYTES) as u32;
        let kept = Kept {
            number: region,
            view: View::map(reserved, store, offset, uffd)?,
            home: Home::new(homes, machines, pages),
            holder: Holder::new(homes, machines, pages, uffd.can_share()).with_runs_of(knobs::run_pages()),
            waiting: BTreeMap::new(),
            accounts: Accounts::default(),
            asks: HashMap::new(),
            recent: VecDeque::new(),
        };
        let number = region as usize;
        if server.regions.len() <= number {
            server.regions.resize_with(number + 1, || None);
        }
        server.regions[number] = Some(kept);
        Ok(())
    })
}

/// Requests these pages of this machine, to read.
pub(crate) fn prefetch(region: u32, first: u32, end: u32) {
    with(|server, errands| server.begin(region, errands, |kept, out| kept.holder.prefetch(first..end, out)));
}

/// Requests the pages at these addresses of this machine, to read, as far as they belong to regions.
pub(crate) fn prefetch_at(addresses: &Range<usize>) {
    with(|server, errands| {
        server.begin_at(addresses, errands, |kept, pages, out| kept.holder.prefetch(pages, out));
    });
}

/// Same as [`prefetch_at`], to write.
fn prefetch_to_write_at(addresses: &[Range<usize>]) {
    with(|server, errands| {
        for addresses in addresses {
            server.begin_at(addresses, errands, |kept, pages, out| kept.holder.prefetch_to_write(pages, out));
        }
    });
}

/// Has another machine request the pages at these addresses, to write, and lets them go even if they have just come.
pub(crate) fn send_along(to: u16, addresses: [Range<usize>; 2]) {
    with(|server, _| {
        for kept in server.regions.iter_mut().flatten() {
            for pages in addresses.iter().map(|addresses| kept.view.pages_at(addresses)) {
                kept.recent.retain(|(_, run)| run.first + run.count <= pages.start || pages.end <= run.first);
            }
        }
    });
    post(link::page_server(to), move |_| prefetch_to_write_at(&addresses), &[]);
}

/// Gives the memory of the pages at these addresses back, where that is possible.
pub(crate) fn discard_at(addresses: &Range<usize>) -> bool {
    with(|server, _| server.regions.iter().flatten().any(|kept| kept.view.discard(addresses)))
}

/// Returns the most requested pages of this home with their counts, and how many there are.
pub(crate) fn hottest(region: u32) -> ([(u32, u64); HOTTEST_MAX], usize) {
    let mut asks: Vec<(u32, u64)> =
        with(|server, _| server.kept(region).asks.iter().map(|(page, asks)| (*page, *asks)).collect());
    asks.sort_unstable_by_key(|(page, asks)| (std::cmp::Reverse(*asks), *page));
    let mut hottest = [(0, 0); HOTTEST_MAX];
    let count = asks.len().min(HOTTEST_MAX);
    hottest[..count].copy_from_slice(&asks[..count]);
    (hottest, count)
}
