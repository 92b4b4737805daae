//! Common ground of the behaviours: places to try, ways to wait, properties that report their end.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

pub use gossamer::link::panic_text as text;
use gossamer::{Place, Promise, Trust, promise};

/// Returns the number of repetitions: a tenth of `full` with `SUITE_EFFORT=small`, for emulated processors.
pub fn effort(full: u64) -> u64 {
    let is_small = std::env::var("SUITE_EFFORT").is_ok_and(|effort| effort == "small");
    if is_small { full / 10 } else { full }
}

/// Returns the last place of the rack: on another machine if there is one.
pub fn remote() -> Place {
    gossamer::rack().places().last().expect("a rack has a worker")
}

/// Returns another worker of this machine, if it has one.
pub fn beside() -> Place {
    let here = gossamer::here();
    let mut others = gossamer::rack().places().filter(|place| place.machine == here.machine && *place != here);
    others.next().unwrap_or(here)
}

/// Returns places here, beside, and as far away as possible.
pub fn spots() -> [Place; 3] {
    [gossamer::here(), beside(), remote()]
}

pub fn places() -> Vec<Place> {
    gossamer::rack().places().collect()
}

/// Returns whether there is another machine.
pub fn is_rack() -> bool {
    gossamer::rack().machines().len() > 1
}

/// Waits until it is so, and leaves the core to others: all machines of a rack may share it. The harness bounds it.
///
/// # Panics
/// A second after the loss of a machine, which might have made it so.
#[track_caller]
pub fn until(done: impl Fn() -> bool) {
    let mut rounds_after_loss = 0;
    while !done() {
        let lost = lost_machine();
        gossamer::sleep(Duration::from_micros(if lost.is_some() { 10_000 } else { 100 }));
        if let Some(machine) = lost {
            rounds_after_loss += 1;
            assert!(rounds_after_loss < 100, "waited for what does not come: machine {machine} was lost");
        }
    }
}

/// Panics if a machine was lost: for a behaviour that sees only what is missing then.
#[track_caller]
pub fn none_is_lost() {
    if let Some(machine) = lost_machine() {
        panic!("machine {machine} was lost meanwhile");
    }
}

/// Returns a machine that was lost.
fn lost_machine() -> Option<u16> {
    let rack = gossamer::rack();
    (0..rack.machines().len() as u16).find(|machine| rack.is_lost(*machine))
}

/// Runs `f`, which must panic; returns the text of the panic.
#[track_caller]
pub fn panic_of<R>(f: impl FnOnce() -> R) -> String {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => panic!("a panic was expected"),
        Err(panic) => text(&*panic),
    }
}

/// Checks that `f` panics with a text that has these words.
#[track_caller]
pub fn panics_with<R>(words: &str, f: impl FnOnce() -> R) {
    let text = panic_of(f);
    assert!(text.contains(words), "no {words:?} in {text}");
}

/// Outcome of a fiber or thread that should end well.
pub trait JoinOutcome<T> {
    /// Returns its result. Panics as it has, with the text of its panic, or of the loss of its machine.
    fn or_its_panic(self) -> T;
}

impl<T> JoinOutcome<T> for Result<T, Box<dyn Any + Send>> {
    #[track_caller]
    fn or_its_panic(self) -> T {
        match self {
            Ok(result) => result,
            Err(panic) => panic!("{}", text(&*panic)),
        }
    }
}

/// Counts its drop in a counter, wherever that is.
pub struct Witness(pub Trust<u64>);

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.apply_then(|ended| *ended += 1, |()| {});
    }
}

/// Waits until `expected` witnesses have ended, and checks that no more have.
#[track_caller]
pub fn ended(counter: &Trust<u64>, expected: u64) {
    until(|| counter.apply(|ended| *ended) >= expected);
    assert_eq!(counter.apply(|ended| *ended), expected, "dropped too often, or too early");
}

/// Place for fibers and closures to wait until a behaviour releases them.
#[derive(Clone)]
pub struct Gate(Trust<Vec<Promise<()>>>);

impl Gate {
    pub fn at(place: Place) -> Gate {
        Gate(gossamer::entrust_with(place, Vec::new))
    }
    /// Waits to be let through.
    pub fn pass(&self) {
        let (promise, through) = promise();
        self.0.apply(move |waiting| waiting.push(promise));
        through.wait().expect("whoever holds the gate opens it");
    }
    /// Waits until this many wait.
    pub fn gather(&self, count: usize) {
        until(|| self.0.apply(|waiting| waiting.len()) == count);
    }
    /// Lets all waiters through.
    pub fn open(&self) {
        self.0.apply(|waiting| waiting.drain(..).for_each(|promise| promise.keep(())));
    }
}
