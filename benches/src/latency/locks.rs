//! Open-loop clients that increment in place, under a lock: each thread makes its own operations
//! when they are due.

use super::pace::Epoch;
use super::{Load, OpenLoop, Outcome, outcome};
use crate::contenders::counter::{Counter, Counters};
use crate::prelude::*;
use std::hint::spin_loop;

/// The contender for counters of type `C`.
pub fn paced<C: Counter>() -> OpenLoop {
    let run = |load: &Load| if load.workload.pause { run::<C, true>(load) } else { run::<C, false>(load) };
    (C::NAME, Box::new(run))
}

fn run<C: Counter, const PAUSE: bool>(load: &Load) -> Outcome {
    let workload = &load.workload;
    let counters = Counters::<C>::new(workload);
    let epoch = Epoch::default();
    let results = together(workload.threads, workload.pin, |thread, start| {
        let mut schedule = load.schedule(thread, workload.threads);
        let picks = workload.picks.of(thread);
        let (mut local, mut fetched, mut ops) = (C::Local::default(), 0u64, 0);
        start.wait();
        let mut recorder = epoch.join();
        for &pick in picks.iter().cycle() {
            let due_ns = schedule.next_ns();
            if load.is_over(due_ns, &recorder) {
                break;
            }
            while recorder.now_ns() < due_ns {
                spin_loop();
            }
            fetched = fetched.wrapping_add(counters.fetch_add::<PAUSE>(pick, &mut local));
            ops += 1;
            recorder.record(due_ns, recorder.now_ns());
        }
        let run = ClientRun { start: recorder.start(), end: Instant::now(), ops, fetched };
        (run, recorder.into_histogram())
    });
    outcome(results, counters.tally())
}
