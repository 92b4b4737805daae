//! Open-loop clients that delegate: `apply_then` from one fiber a worker, `apply` from as many
//! fibers as the load needs, up to `--fibers`.
//!
//! A client that waits for the next operation to be due polls the clock, as those of locks do: a sleep ends too late by
//! more than the latencies measured. Everything else waits by suspending.

use super::pace::{Epoch, Recorder, Schedule};
use super::{Load, OpenLoop, Outcome, outcome};
use crate::contenders::Mode;
use crate::contenders::counter::increment;
use crate::contenders::pool::{Returned, Stage, client_run};
use crate::prelude::*;
use hdrhistogram::Histogram;
use trust::{Promise, Trust};

/// Operations in a row after which a client that is behind lets the rest of its worker go on.
const BURST: u32 = 32;

/// Fibers of a worker that wait for the next operation; more than these end.
const SPARE_FIBERS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Apply,
    ApplyThen,
}

/// Both calls, each with shared and with dedicated trustees.
pub fn all() -> Vec<OpenLoop> {
    let all = [
        ("apply", Call::Apply, Mode::Shared),
        ("apply-dedicated", Call::Apply, Mode::Dedicated),
        ("apply_then", Call::ApplyThen, Mode::Shared),
        ("apply_then-dedicated", Call::ApplyThen, Mode::Dedicated),
    ];
    let open_loop = |(name, call, mode)| {
        let run = move |load: &Load| {
            if load.workload.pause { run::<true>(load, call, mode) } else { run::<false>(load, call, mode) }
        };
        (name, Box::new(run) as Box<dyn Fn(&Load) -> Outcome>)
    };
    all.map(open_loop).into()
}

fn run<const PAUSE: bool>(load: &Load, call: Call, mode: Mode) -> Outcome {
    let (stage, clients) = (Stage::new(&load.workload, mode), mode.clients(&load.workload));
    let (load, trusts) = (load.clone(), stage.trusts());
    let epoch = Arc::new(Epoch::default());
    let results = stage.run(move |client| {
        let returned = Returned::watch();
        CLIENT.set(Some(Client::open(&load, client, clients, &epoch)));
        match call {
            Call::Apply => {
                TRUSTS.set(Some(trusts.clone()));
                WAITING_FIBERS.set(0);
                let (all_ended, ends) = trust::promise();
                ALL_ENDED.set(Some(all_ended));
                start_fiber::<PAUSE>(load.workload.fibers);
                ends.wait().expect("the last fiber keeps its promise");
                TRUSTS.set(None);
            }
            Call::ApplyThen => issue_all::<PAUSE>(&trusts),
        }
        close(returned)
    });
    outcome(results, stage.tally())
}

/// The operations that are still to come for a client, and the latencies of those that are complete.
struct Client {
    load: Load,
    schedule: Schedule,
    next_due_ns: u64,
    recorder: Recorder,
    client: usize,
    picks: Picks,
    ops: u64,
    burst: u32,
}

enum Next {
    /// An operation is due since this time, on this object.
    Due(u64, u32),
    /// Others should go on first.
    NotYet,
    /// Nothing more will be due.
    Over,
}

impl Client {
    fn open(load: &Load, client: usize, clients: usize, epoch: &Epoch) -> Self {
        let mut schedule = load.schedule(client, clients);
        Self {
            next_due_ns: schedule.next_ns(),
            schedule,
            recorder: epoch.join(),
            client,
            picks: load.workload.picks.clone(),
            load: load.clone(),
            ops: 0,
            burst: 0,
        }
    }

    fn next(&mut self) -> Next {
        let due_ns = self.next_due_ns;
        if self.load.is_over(due_ns, &self.recorder) {
            return Next::Over;
        }
        if self.recorder.now_ns() < due_ns || self.burst == BURST {
            self.burst = 0;
            return Next::NotYet;
        }
        let picks = self.picks.of(self.client);
        let pick = picks[self.ops as usize & (picks.len() - 1)];
        self.next_due_ns = self.schedule.next_ns();
        self.ops += 1;
        self.burst += 1;
        Next::Due(due_ns, pick)
    }
}

thread_local! {
    static CLIENT: RefCell<Option<Client>> = const { RefCell::new(None) };
    static TRUSTS: RefCell<Option<Arc<[Trust<u64>]>>> = const { RefCell::new(None) };
    /// Fibers that will ask for an operation before they do anything else.
    static WAITING_FIBERS: Cell<usize> = const { Cell::new(0) };
    static LIVE_FIBERS: Cell<usize> = const { Cell::new(0) };
    /// Kept by the last fiber.
    static ALL_ENDED: Cell<Option<Promise<()>>> = const { Cell::new(None) };
}

fn next() -> Next {
    CLIENT.with_borrow_mut(|client| client.as_mut().map_or(Next::Over, Client::next))
}

/// A result came, on the client's thread.
fn complete(before: u64, due_ns: u64) {
    CLIENT.with_borrow_mut(|client| {
        if let Some(client) = client {
            client.recorder.record(due_ns, client.recorder.now_ns());
        }
    });
    Returned::add(before);
}

/// Waits until all results have come, and takes the recorded latencies.
fn close(returned: Returned) -> (ClientRun, Histogram<u64>) {
    let ops = CLIENT.with_borrow(|client| client.as_ref().map_or(0, |client| client.ops));
    let fetched = returned.wait(ops);
    let client = CLIENT.take().expect("the client was opened on this thread");
    let run = client_run(client.recorder.start(), ops, fetched);
    (run, client.recorder.into_histogram())
}

fn issue_all<const PAUSE: bool>(trusts: &[Trust<u64>]) {
    loop {
        match next() {
            Next::Due(due_ns, pick) => {
                trusts[pick as usize].apply_then(increment::<PAUSE>, move |before| complete(before, due_ns))
            }
            Next::NotYet => trust::yield_now(),
            Next::Over => return,
        }
    }
}

/// Counts a fiber for as long as it lives, also where it panics.
struct Live;

impl Live {
    fn new() -> Self {
        LIVE_FIBERS.set(LIVE_FIBERS.get() + 1);
        Self
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        LIVE_FIBERS.set(LIVE_FIBERS.get() - 1);
        if LIVE_FIBERS.get() == 0
            && let Some(all_ended) = ALL_ENDED.take()
        {
            all_ended.keep(());
        }
    }
}

/// Starts a fiber that makes operations when they are due.
///
/// A fiber that is about to wait for its trustee leaves another one behind to take the next
/// operation, until there are `most`; one that comes back and finds enough others waiting ends.
fn start_fiber<const PAUSE: bool>(most: usize) {
    let live = Live::new();
    WAITING_FIBERS.set(WAITING_FIBERS.get() + 1);
    trust::spawn(move || {
        let _live = live;
        loop {
            let (due_ns, pick) = loop {
                match next() {
                    Next::Due(due_ns, pick) => break (due_ns, pick),
                    Next::NotYet => trust::yield_now(),
                    Next::Over => return,
                }
            };
            WAITING_FIBERS.set(WAITING_FIBERS.get() - 1);
            if WAITING_FIBERS.get() == 0 && LIVE_FIBERS.get() < most {
                start_fiber::<PAUSE>(most);
            }
            // A shared borrow of the thread-local may last over a suspension: a fiber stays on its
            // thread, and the trusts are taken away only after the last fiber has ended.
            let before = TRUSTS.with_borrow(|trusts| {
                let trusts = trusts.as_ref().expect("trusts stay until the last fiber has ended");
                trusts[pick as usize].apply(increment::<PAUSE>)
            });
            complete(before, due_ns);
            if WAITING_FIBERS.get() >= SPARE_FIBERS {
                return;
            }
            WAITING_FIBERS.set(WAITING_FIBERS.get() + 1);
        }
    });
}
