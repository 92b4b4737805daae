//! Open-loop clients that increment in place, under a lock: each thread makes its own operations
//! when they are due.

use super::pace::Epoch;
use super::{Load, OpenLoop, Outcome, outcome};
use crate::contenders::counter::{Compact, Counter};
use crate::prelude::*;
use crossbeam_utils::CachePadded;
use std::hint::spin_loop;
use std::ops::DerefMut;

/// The contender for counters of type `C`.
pub fn paced<C: Counter>() -> OpenLoop {
    let run = |load: &Load| match (load.workload.padded, load.workload.pause) {
        (true, false) => run::<C, CachePadded<C>, false>(load),
        (true, true) => run::<C, CachePadded<C>, true>(load),
        (false, false) => run::<C, Compact<C>, false>(load),
        (false, true) => run::<C, Compact<C>, true>(load),
    };
    (C::NAME, Box::new(run))
}

fn run<C, L, const PAUSE: bool>(load: &Load) -> Outcome
where
    C: Counter,
    L: From<C> + DerefMut<Target = C> + Send + Sync,
{
    let workload = &load.workload;
    let mut counters: Vec<L> = (0..workload.objects).map(|_| L::from(C::zero())).collect();
    let epoch = Epoch::default();
    let results = together(workload.threads, workload.pin, |thread, start| {
        let mut schedule = load.schedule(thread, workload.threads);
        let (counters, picks) = (counters.as_slice(), workload.picks.of(thread));
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
            fetched = fetched.wrapping_add(counters[pick as usize].fetch_add::<PAUSE>(&mut local));
            ops += 1;
            recorder.record(due_ns, recorder.now_ns());
        }
        let run = ClientRun { start: recorder.start(), end: Instant::now(), ops, fetched };
        (run, recorder.into_histogram())
    });
    let tally: Tally = counters.iter_mut().map(|counter| counter.value()).collect();
    outcome(results, tally)
}
