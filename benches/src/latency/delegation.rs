//! Open-loop clients that delegate: `apply_then` from one fiber a worker, `apply` from a fiber for
//! each operation (a server that gives each request a thread of its own).

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
    time::Instant,
};

use hdrhistogram::Histogram;
use trust::Trust;

use super::{Load, OpenLoop, Outcome, pace::Recorder};
use crate::{
    contender::ClientRun,
    contenders::{
        Mode,
        counter::increment,
        pool::{Returned, Stage, client_run},
    },
};

/// Operations a client that is behind issues before it lets the rest of its worker go on.
const BURST: u32 = 32;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Apply,
    ApplyThen,
}

/// The contender.
struct Paced {
    call: Call,
    mode: Mode,
}

/// Both calls, each with shared and with dedicated trustees.
pub fn all() -> Vec<Box<dyn OpenLoop>> {
    let mut all: Vec<Box<dyn OpenLoop>> = Vec::new();
    for call in [Call::Apply, Call::ApplyThen] {
        for mode in [Mode::Shared, Mode::Dedicated] {
            all.push(Box::new(Paced { call, mode }));
        }
    }
    all
}

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
    static TRUSTS: RefCell<Option<Arc<[Trust<u64>]>>> = const { RefCell::new(None) };
    static LIVE_FIBERS: Cell<usize> = const { Cell::new(0) };
}

impl OpenLoop for Paced {
    fn name(&self) -> &'static str {
        match (self.call, self.mode) {
            (Call::Apply, Mode::Dedicated) => "apply-dedicated",
            (Call::Apply, _) => "apply",
            (Call::ApplyThen, Mode::Dedicated) => "apply_then-dedicated",
            (Call::ApplyThen, _) => "apply_then",
        }
    }

    fn run(&self, load: &Load) -> Outcome {
        if load.workload.pause { self.run_as::<true>(load) } else { self.run_as::<false>(load) }
    }
}

impl Paced {
    fn run_as<const PAUSE: bool>(&self, load: &Load) -> Outcome {
        let stage = Stage::new(&load.workload, self.mode);
        let clients = Stage::clients(&load.workload, self.mode);
        let (call, load, trusts) = (self.call, load.clone(), stage.trusts());
        let results = stage.run(move |client| match call {
            Call::Apply => pace(&load, client, clients, &trusts, |pick, due_ns| {
                apply_in_fiber::<PAUSE>(pick, due_ns, load.outstanding);
            }),
            Call::ApplyThen => pace(&load, client, clients, &trusts, |pick, due_ns| {
                trusts[pick as usize].apply_then(
                    |counter| increment::<PAUSE>(counter),
                    move |before| complete(before, due_ns),
                );
            }),
        });
        Outcome::of(results, stage.tally())
    }
}

/// Issues operations when they are due, until the load ends, and waits for their results.
fn pace(
    load: &Load,
    client: usize,
    clients: usize,
    trusts: &Arc<[Trust<u64>]>,
    issue: impl Fn(u32, u64),
) -> (ClientRun, Histogram<u64>) {
    let mut schedule = load.schedule(client, clients);
    let returned = Returned::watch();
    TRUSTS.set(Some(trusts.clone()));
    LIVE_FIBERS.set(0);
    let begun = Instant::now();
    RECORDER.set(Some(Recorder::start()));
    let (mut ops, mut burst) = (0, 0);
    for &pick in load.workload.picks.of(client).iter().cycle() {
        let due_ns = schedule.next_ns();
        if RECORDER.with_borrow(|recorder| recorder.as_ref().is_none_or(|recorder| load.is_over(due_ns, recorder))) {
            break;
        }
        while now_ns() < due_ns || burst == BURST {
            burst = 0;
            trust::yield_now();
        }
        issue(pick, due_ns);
        burst += 1;
        ops += 1;
    }
    let fetched = returned.wait(ops);
    let run = client_run(begun, ops, fetched);
    TRUSTS.set(None);
    let recorder = RECORDER.take().expect("the recorder was set above, on this thread");
    (run, recorder.into_histogram())
}

/// Starts a fiber that applies, once there are fewer than `outstanding`.
fn apply_in_fiber<const PAUSE: bool>(pick: u32, due_ns: u64, outstanding: usize) {
    while LIVE_FIBERS.get() >= outstanding {
        trust::yield_now();
    }
    LIVE_FIBERS.set(LIVE_FIBERS.get() + 1);
    // Shared borrows of the thread-local may last over a suspension: a fiber stays on its thread, and
    // the trusts are taken away only after all results have come.
    trust::spawn(move || {
        let before = TRUSTS.with_borrow(|trusts| {
            let trusts = trusts.as_ref().expect("trusts stay until all results have come");
            trusts[pick as usize].apply(|counter| increment::<PAUSE>(counter))
        });
        LIVE_FIBERS.set(LIVE_FIBERS.get() - 1);
        complete(before, due_ns);
    });
}

fn now_ns() -> u64 {
    RECORDER.with_borrow(|recorder| recorder.as_ref().map_or(0, Recorder::now_ns))
}

/// A result came, on the client's thread.
fn complete(before: u64, due_ns: u64) {
    RECORDER.with_borrow_mut(|recorder| {
        if let Some(recorder) = recorder {
            recorder.record(due_ns, recorder.now_ns());
        }
    });
    Returned::add(before);
}
