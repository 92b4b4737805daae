//! Counters that live in shared memory and are incremented in place, by whichever thread comes:
//! the loop that all locks and the atomic share. One type of counter is one file beside this one.

use super::threads::together;
use crate::prelude::*;
use crate::watch::{Latencies, Timer, Unwatched, Watch};
use crossbeam_utils::CachePadded;
use std::hint::spin_loop;
use std::ops::{Deref, DerefMut};
use std::thread;

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

/// A counter beside its neighbours, as in a `Vec` of counters.
#[derive(Debug)]
pub struct Compact<C>(C);

impl<C> From<C> for Compact<C> {
    fn from(counter: C) -> Self {
        Self(counter)
    }
}

impl<C> Deref for Compact<C> {
    type Target = C;
    fn deref(&self) -> &C {
        &self.0
    }
}

impl<C> DerefMut for Compact<C> {
    fn deref_mut(&mut self) -> &mut C {
        &mut self.0
    }
}

/// The contender for counters of type `C`.
pub fn shared<C: Counter>() -> Contender {
    Contender::new(C::NAME, C::KIND, 1, |workload| {
        Ok(match (workload.padded, workload.pause) {
            _ if workload.watch.is_some() => run::<C, CachePadded<C>, Timer, false>(workload, Timer::apart),
            (true, false) => run::<C, CachePadded<C>, Unwatched, false>(workload, || Unwatched),
            (true, true) => run::<C, CachePadded<C>, Unwatched, true>(workload, || Unwatched),
            (false, false) => run::<C, Compact<C>, Unwatched, false>(workload, || Unwatched),
            (false, true) => run::<C, Compact<C>, Unwatched, true>(workload, || Unwatched),
        })
    })
}

fn run<C, L, W, const PAUSE: bool>(workload: &Workload, watch: fn() -> W) -> Run
where
    C: Counter,
    L: From<C> + DerefMut<Target = C> + Send + Sync,
    W: Watch,
{
    let mut counters: Vec<L> = (0..workload.objects).map(|_| L::from(C::zero())).collect();
    let budget = Budget::new(workload, workload.threads, 1, thread::sleep);
    let results = together(workload.threads, workload.pin, |thread, start| {
        let (counters, mut local, mut fetched) = (counters.as_slice(), C::Local::default(), 0u64);
        let (mut ops, mut watch) = (0, watch());
        start.wait();
        let begun = Instant::now();
        for claim in budget.claims(thread) {
            ops += claim.end - claim.start;
            for &pick in workload.picks.slice(thread, &claim) {
                let begun = watch.begin();
                fetched = fetched.wrapping_add(counters[pick as usize].fetch_add::<PAUSE>(&mut local));
                watch.end(pick, begun);
            }
        }
        (ClientRun { start: begun, end: Instant::now(), ops, fetched }, watch.latencies())
    });
    let (clients, latencies): (Vec<_>, Vec<_>) = results.into_iter().unzip();
    let counters = counters.iter_mut().map(|counter| counter.value()).collect::<Tally>();
    Run { latencies: Latencies::sum(latencies), ..fold(&clients, counters) }
}
