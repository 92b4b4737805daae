//! Runs over a rack: how this program starts itself as the machines of one, as the examples do, and how the outcome of
//! machine 0 is had.

use crate::prelude::*;
use gossamer::bootstrap::{FabricChoice, LAUNCHER};
use gossamer::{NoRef, Place, Promise, Trust, promise};
use gossamer_examples::machines::{Machines, launch};
use gossamer_examples::program::Program;
use std::process::ExitCode;
use std::sync::mpsc;
use std::{array, env};

/// The most workers that take part where a closure captures something of each.
pub const WORKERS_MAX: usize = 64;

/// Starts so many processes with the words of this one, and returns none, unless it is one of them; else returns the
/// outcome of `measure` on machine 0.
pub fn over_rack<T: Send + 'static>(
    processes: u16,
    workers: u32,
    fabric: FabricChoice,
    measure: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<Option<T>> {
    if processes > 1 && env::var_os(LAUNCHER).is_none() {
        start(processes, workers, fabric)?;
        return Ok(None);
    }
    outcome(measure, |run| gossamer::main(run, workers as usize)).map(Some)
}

/// Starts so many processes with the words of this one, and waits for their end.
pub fn start(processes: u16, workers: u32, fabric: FabricChoice) -> Result<()> {
    let (threads, args) = (Some(workers as usize), env::args_os().skip(1).collect());
    let machines = Machines { machines: processes, threads, fabric, args, ..Machines::of(Program("gossamer-bench")) };
    ensure!(launch(&machines)? == ExitCode::SUCCESS, "the machines failed");
    Ok(())
}

/// The outcome of `measure`, which `main` runs as the program of a rack. Other machines than 0 do not return from it.
pub fn outcome<T: Send + 'static>(
    measure: impl FnOnce() -> Result<T> + Send + 'static,
    main: impl FnOnce(Box<dyn FnOnce() + Send>),
) -> Result<T> {
    let (tell, told) = mpsc::channel();
    main(Box::new(move || drop(tell.send(measure()))));
    told.recv().context("the run has no outcome")?
}

/// A property at each place, in a form that a closure can capture.
#[derive(Clone)]
pub struct Shards<T>([Option<Trust<T>>; WORKERS_MAX]);

impl<T: 'static> Shards<T> {
    /// Entrusts to the worker of each place what `make` of its number returns there.
    pub fn new<F: FnOnce() -> T + NoRef + Send + 'static>(make: impl Fn(usize) -> F) -> Result<Shards<T>> {
        let places: Vec<Place> = gossamer::rack().places().collect();
        ensure!(places.len() <= WORKERS_MAX, "the rack has {} workers, over the {WORKERS_MAX} possible", places.len());
        Ok(Shards(array::from_fn(|own| Some(gossamer::entrust_with(*places.get(own)?, make(own))))))
    }

    pub fn at(&self, own: usize) -> &Trust<T> {
        self.0[own].as_ref().unwrap_or_else(|| unreachable!("each place has one"))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Trust<T>> {
        self.0.iter().flatten()
    }
}

/// The result of a fiber of this place.
pub fn at<R: NoRef + Send + 'static>(place: Place, f: impl FnOnce() -> R + NoRef + Send + 'static) -> Result<R> {
    gossamer::spawn_on(place, f).join().map_err(|_| anyhow!("a fiber of {place} panicked"))
}

/// Requests of a worker that are not answered yet.
#[derive(Default)]
pub struct InFlight {
    count: Cell<usize>,
    wrong: Cell<u64>,
    /// A fiber waits until no more than so many are in flight.
    waits_for: Cell<usize>,
    waiting: Cell<Option<Promise<()>>>,
}

impl InFlight {
    /// One more; where there are `most`, waits until half of them are answered.
    #[inline(always)]
    pub fn begin(&self, most: usize) {
        if self.count.get() == most {
            self.wait_for(most / 2);
        }
        self.count.set(self.count.get() + 1);
    }

    /// One is answered, and as it must be or not.
    #[inline(always)]
    pub fn end(&self, is_good: bool) {
        self.note(is_good);
        self.count.set(self.count.get() - 1);
        if self.count.get() <= self.waits_for.get()
            && let Some(promise) = self.waiting.take()
        {
            promise.keep(());
        }
    }

    /// An answer that is as it must be or not.
    #[inline(always)]
    pub fn note(&self, is_good: bool) {
        self.wrong.set(self.wrong.get() + u64::from(!is_good));
    }

    pub fn wrong(&self) -> u64 {
        self.wrong.get()
    }

    /// Lets other fibers run until no more than so many are in flight.
    pub fn wait_for(&self, count: usize) {
        if self.count.get() > count {
            let (kept, pending) = promise();
            self.waits_for.set(count);
            self.waiting.set(Some(kept));
            if let Err(error) = pending.wait() {
                panic!("the worker of this very fiber did not keep its promise: {error}");
            }
        }
    }
}
