//! Counters that live in shared memory and are incremented in place, by whichever thread comes:
//! the loop that all locks and the atomic share. One type of counter is one file beside this one.

use super::threads::together;
use crate::prelude::*;
use crate::watch::{Latencies, Timer, Unwatched, Watch};
use crossbeam_utils::CachePadded;
use std::hint::spin_loop;

/// A counter that several threads may increment in place.
pub trait Counter: Send + Sync + Sized + 'static {
    /// Its contender's name.
    const NAME: &'static str;
    /// Its contender's kind.
    const KIND: Kind;
    /// State that each thread keeps for itself (the queue node of an MCS lock).
    type Local: Default;

    fn zero() -> Self;

    fn fetch_add<const PAUSE: bool>(&self, local: &mut Self::Local) -> u64;

    /// The value, once no other thread increments.
    fn value(&mut self) -> u64;
}

/// The critical section of every lock, and the body of every delegated closure.
#[inline(always)]
pub fn increment<const PAUSE: bool>(counter: &mut u64) -> u64 {
    let before = *counter;
    *counter = before.wrapping_add(1);
    if PAUSE {
        spin_loop();
    }
    before
}

/// So many counters, at zero: beside each other, or each in cache lines of its own.
pub struct Counters<C> {
    all: Vec<C>,
    /// From one that is used to the next.
    step: usize,
}

impl<C: Counter> Counters<C> {
    pub fn new(workload: &Workload) -> Self {
        let step = if workload.padded { size_of::<CachePadded<u64>>().div_ceil(size_of::<C>()) } else { 1 };
        Self { all: (0..workload.objects * step).map(|_| C::zero()).collect(), step }
    }

    #[inline(always)]
    pub fn fetch_add<const PAUSE: bool>(&self, pick: u32, local: &mut C::Local) -> u64 {
        self.all[pick as usize * self.step].fetch_add::<PAUSE>(local)
    }

    pub fn tally(mut self) -> Tally {
        self.all.iter_mut().step_by(self.step).map(C::value).collect()
    }
}

/// The contender for counters of type `C`.
pub fn shared<C: Counter>() -> Contender {
    Contender::new(C::NAME, C::KIND, 1, |workload| {
        Ok(match (workload.watch.is_some(), workload.pause) {
            (true, _) => run::<C, Timer, false>(workload, Timer::apart),
            (false, false) => run::<C, Unwatched, false>(workload, || Unwatched),
            (false, true) => run::<C, Unwatched, true>(workload, || Unwatched),
        })
    })
}

fn run<C: Counter, W: Watch, const PAUSE: bool>(workload: &Workload, watch: fn() -> W) -> Run {
    let counters = Counters::<C>::new(workload);
    let budget = Budget::new(workload, workload.threads, 1, thread::sleep);
    let results = together(workload.threads, workload.pin, |thread, start| {
        let (mut local, mut fetched) = (C::Local::default(), 0u64);
        let (mut ops, mut watch) = (0, watch());
        start.wait();
        let begun = Instant::now();
        for claim in budget.claims(thread) {
            ops += claim.end - claim.start;
            for &pick in workload.picks.slice(thread, &claim) {
                let begun = watch.begin();
                fetched = fetched.wrapping_add(counters.fetch_add::<PAUSE>(pick, &mut local));
                watch.end(pick, begun);
            }
        }
        (ClientRun { start: begun, end: Instant::now(), ops, fetched }, watch.latencies())
    });
    let (clients, latencies): (Vec<_>, Vec<_>) = results.into_iter().unzip();
    Run { latencies: Latencies::sum(latencies), ..fold(&clients, counters.tally()) }
}
