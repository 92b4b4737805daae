//! `bare-slots`: delegation with everything taken away but the slots. No closures, no fibers, no
//! reference counts: a request is an object's number (8 bytes), a reply the counter's value (8 bytes).
//! The limit of the method, against which `trust` is measured (thesis 2.5.1).
//!
//! # Protocol
//! One client and one trustee share a request and a response slot, for one batch at a time, counted from 1.
//! - The client fills a request slot's entries and count, then stores `turn = n` with Release.
//!   The trustee loads that `turn` with Acquire, so it sees the entries.
//! - The trustee fills the response slot's entries, then stores its `turn = n` with Release.
//!   The client loads that `turn` with Acquire, so it sees the replies, and may
//!   reuse the request slot: the trustee is through with it.
//!
//! Waiting loops have no `pause` instruction: it would add up to 140 cycles to a transfer.
//! Entries are relaxed atomics: plain loads and stores to the machine, and no `unsafe` here.

use super::BATCH;
use super::counter::increment;
use super::threads::together;
use crate::prelude::*;
use crossbeam_utils::CachePadded;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// `turn`, count and the first entries share the first cache line, so a batch of one is one transfer.
#[repr(align(128))]
struct Slot {
    turn: AtomicU64,
    count: AtomicU64,
    entries: [AtomicU64; BATCH],
}

impl Default for Slot {
    fn default() -> Self {
        let entries = [const { AtomicU64::new(0) }; BATCH];
        Self { turn: AtomicU64::default(), count: AtomicU64::default(), entries }
    }
}

#[derive(Default)]
struct Pair {
    request: Slot,
    response: Slot,
}

/// The client's end of a pair.
struct Outbox<'a> {
    pair: &'a Pair,
    filled: usize,
    /// The batch that is being filled, and whether the one before is still under way.
    turn: u64,
    is_waiting: bool,
}

impl Outbox<'_> {
    #[inline(always)]
    fn has_room(&self) -> bool {
        !self.is_waiting
    }

    #[inline(always)]
    fn idle(&self) -> bool {
        self.filled == 0 && !self.is_waiting
    }

    /// Adds a request; only where there is room.
    #[inline(always)]
    fn push(&mut self, object: u64) {
        self.pair.request.entries[self.filled].store(object, Ordering::Relaxed);
        self.filled += 1;
        if self.filled == BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.filled > 0 {
            self.pair.request.count.store(self.filled as u64, Ordering::Relaxed);
            self.pair.request.turn.store(self.turn, Ordering::Release); // the trustee's Acquire
            (self.filled, self.is_waiting) = (0, true);
        }
    }

    /// Sums up the replies that have come.
    #[inline(always)]
    fn collect(&mut self) -> u64 {
        let Pair { request, response } = self.pair;
        // Pairs with the Release of the trustee's answer.
        if !self.is_waiting || response.turn.load(Ordering::Acquire) != self.turn {
            return 0;
        }
        (self.turn, self.is_waiting) = (self.turn + 1, false);
        let replies = &response.entries[..request.count.load(Ordering::Relaxed) as usize];
        replies.iter().fold(0, |sum: u64, reply| sum.wrapping_add(reply.load(Ordering::Relaxed)))
    }
}

/// The trustee's end of a pair, and the batch that it serves next.
struct Inbox<'a> {
    pair: &'a Pair,
    turn: u64,
}

impl Inbox<'_> {
    #[inline(always)]
    fn serve<const PAUSE: bool>(&mut self, counters: &mut [u64]) {
        let Pair { request, response } = self.pair;
        // Pairs with the Release of the client's batch.
        if request.turn.load(Ordering::Acquire) != self.turn {
            return;
        }
        let count = request.count.load(Ordering::Relaxed) as usize;
        for (object, reply) in request.entries[..count].iter().zip(&response.entries[..count]) {
            let counter = &mut counters[object.load(Ordering::Relaxed) as usize];
            reply.store(increment::<PAUSE>(counter), Ordering::Relaxed);
        }
        response.turn.store(self.turn, Ordering::Release); // the client's Acquire
        self.turn += 1;
    }
}

/// Every thread is client and trustee, or where they are dedicated either.
pub fn bare_slots(dedicated: bool) -> Contender {
    let (name, least_threads) = if dedicated { ("bare-slots-dedicated", 2) } else { ("bare-slots", 1) };
    Contender::new(name, Kind::Other, least_threads, move |workload| {
        Ok(if workload.pause { run::<true>(workload, dedicated) } else { run::<false>(workload, dedicated) })
    })
}

fn run<const PAUSE: bool>(workload: &Workload, dedicated: bool) -> Run {
    let threads = workload.threads;
    // Thread t is a client where t < clients, and trustee t - first_trustee where that exists.
    let (clients, first_trustee) = if dedicated { (workload.clients(), workload.clients()) } else { (threads, 0) };
    let trustees = threads - first_trustee;
    let pairs: Vec<Pair> = (0..clients * trustees).map(|_| Pair::default()).collect();
    let budget = Budget::new(workload, clients, 1, thread::sleep);
    let done = CachePadded::new(AtomicUsize::new(0));
    // Split each pick into trustee and place there beforehand: a request is ready to be copied.
    let routes: Vec<Vec<Route>> = (0..clients)
        .map(|client| workload.picks.of(client).iter().map(|&pick| Route::new(pick, trustees)).collect())
        .collect();

    let nodes = together(threads, workload.pin, |thread, start| {
        let is_client = thread < clients;
        let trustee = thread.checked_sub(first_trustee);
        let mut node = Node {
            trustee,
            counters: touched(trustee.map_or(0, |_| workload.objects.div_ceil(trustees))),
            outboxes: (0..if is_client { trustees } else { 0 })
                .map(|to| Outbox { pair: &pairs[thread * trustees + to], filled: 0, turn: 1, is_waiting: false })
                .collect(),
            inboxes: trustee.map_or_else(Vec::new, |trustee| {
                (0..clients)
                    .filter(|&from| from != thread)
                    .map(|from| Inbox { pair: &pairs[from * trustees + trustee], turn: 1 })
                    .collect()
            }),
            fetched: 0,
        };
        start.wait();
        let begun = Instant::now();
        let mut ops = 0;
        if is_client {
            ops = node.issue::<PAUSE>(thread, &routes[thread], &budget);
            // Pairs with the Acquire in `serve_until_done`.
            done.fetch_add(1, Ordering::Release);
        }
        let end = Instant::now();
        node.serve_until_done::<PAUSE>(&done, clients);
        let run = is_client.then_some(ClientRun { start: begun, end, ops, fetched: node.fetched });
        (run, node.counters)
    });
    let (runs, counters): (Vec<_>, Vec<_>) = nodes.into_iter().unzip();
    let runs: Vec<ClientRun> = runs.into_iter().flatten().collect();
    fold(&runs, counters.into_iter().flatten().collect::<Tally>())
}

/// Zeros on pages that are already mapped: `vec![0; n]` would fault them in while the clock runs.
fn touched(counters: usize) -> Vec<u64> {
    (0..counters).map(|_| black_box(0)).collect()
}

#[derive(Clone, Copy)]
struct Route {
    trustee: u32,
    place: u32,
}

impl Route {
    fn new(pick: u32, trustees: usize) -> Self {
        Self { trustee: pick % trustees as u32, place: pick / trustees as u32 }
    }
}

/// State of one thread: its counters as a trustee, its ends of the pairs, its sum as a client.
struct Node<'a> {
    trustee: Option<usize>,
    counters: Vec<u64>,
    outboxes: Vec<Outbox<'a>>,
    inboxes: Vec<Inbox<'a>>,
    fetched: u64,
}

impl Node<'_> {
    #[inline(always)]
    fn serve<const PAUSE: bool>(&mut self) {
        for inbox in &mut self.inboxes {
            inbox.serve::<PAUSE>(&mut self.counters);
        }
    }

    #[inline(always)]
    fn collect(&mut self) {
        for outbox in &mut self.outboxes {
            self.fetched = self.fetched.wrapping_add(outbox.collect());
        }
    }

    /// The client's loop: serves in between, at least once a batch, so that nobody starves.
    fn issue<const PAUSE: bool>(&mut self, client: usize, routes: &[Route], budget: &Budget) -> u64 {
        let mut ops = 0;
        for claim in budget.claims(client) {
            ops += claim.end - claim.start;
            let first = claim.start as usize & (routes.len() - 1);
            for some in routes[first..first + (claim.end - claim.start) as usize].chunks(BATCH) {
                self.serve::<PAUSE>();
                for route in some {
                    if self.trustee == Some(route.trustee as usize) {
                        let counter = &mut self.counters[route.place as usize];
                        self.fetched = self.fetched.wrapping_add(increment::<PAUSE>(counter));
                        continue;
                    }
                    while !self.outboxes[route.trustee as usize].has_room() {
                        self.collect();
                        self.serve::<PAUSE>();
                    }
                    self.outboxes[route.trustee as usize].push(u64::from(route.place));
                }
            }
        }
        self.outboxes.iter_mut().for_each(Outbox::flush);
        while !self.outboxes.iter().all(Outbox::idle) {
            self.collect();
            self.serve::<PAUSE>();
        }
        ops
    }

    /// The trustee's loop, until all clients have all their replies.
    fn serve_until_done<const PAUSE: bool>(&mut self, done: &AtomicUsize, clients: usize) {
        // Pairs with the Release of each client's end.
        while done.load(Ordering::Acquire) < clients {
            self.serve::<PAUSE>();
        }
    }
}
