//! A task's fiber: its steps, and its way to another machine between two of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use gossamer::{NoRef, Place, Promise, link};
use trust::link::panic_text;

use super::entry::{CameFrom, Entry, Past, Running, now_ns};
use super::list;
use super::look::{SLICE_NS, look};
use super::policy::Reason;
use super::registry::{self, Whereabouts};
use super::step::Step;
use crate::load;
use crate::replicas::Saves;

/// Wait of a task that comes to a worker at the start of the program, before that is connected.
const PAUSE: Duration = Duration::from_millis(1);

/// A task between two steps, as it travels.
pub(super) struct Baggage<S, F, R> {
    pub(super) state: S,
    pub(super) step: F,
    pub(super) value: Promise<R>,
    /// Promise of the text of its panic.
    pub(super) panic: Promise<String>,
    pub(super) past: Past,
}

/// Starts a task that was made here.
pub(super) fn start<S, F, R>(baggage: Baggage<S, F, R>)
where
    S: NoRef + Send + 'static,
    F: Fn(&mut S) -> Step<R> + NoRef + Copy + Send + 'static,
    R: NoRef + Send + 'static,
{
    list::show();
    let entry = registry::lock().add(baggage.past, size_of::<Baggage<S, F, R>>());
    start_at(entry.worker.load(Relaxed), baggage, entry);
}

fn start_at<S, F, R>(worker: u16, baggage: Baggage<S, F, R>, entry: Arc<Entry>)
where
    S: NoRef + Send + 'static,
    F: Fn(&mut S) -> Step<R> + NoRef + Copy + Send + 'static,
    R: NoRef + Send + 'static,
{
    let place = Place::of(gossamer::rack().machine(), worker);
    let present = Present(Some(entry));
    trust::spawn_on(&place.trustee(), move || run(baggage, present));
}

/// A task that is here; dropped, it has ended.
struct Present(Option<Arc<Entry>>);

impl Present {
    /// It went to that machine, which knows it by now, by the move of this number.
    fn went(mut self, to: u16, moves: u32) {
        self.remove(Whereabouts::WentTo(to, moves));
    }

    fn remove(&mut self, whereabouts: Whereabouts) {
        if let Some(entry) = self.0.take() {
            registry::lock().remove(&entry, whereabouts);
        }
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.remove(Whereabouts::Ended);
    }
}

fn run<S, F, R>(mut baggage: Baggage<S, F, R>, mut present: Present)
where
    S: NoRef + Send + 'static,
    F: Fn(&mut S) -> Step<R> + NoRef + Copy + Send + 'static,
    R: NoRef + Send + 'static,
{
    let Some(entry) = present.0.clone() else { return };
    while gossamer::rack().machines().len() > 1 && !link::is_connected() {
        gossamer::sleep(PAUSE);
    }
    let running = Running::begin(&entry);
    let mut turn = now_ns();
    loop {
        if let Some((to, reason)) = entry.take_wish() {
            // Here, not at the gate: it stays if the other machine is lost meanwhile.
            let mut saves = Saves::default();
            saves.look(&baggage);
            saves.wait();
            if !link::is_lost(to) {
                drop(running);
                return depart(baggage, present, to, reason);
            }
        }
        entry.begin_step();
        let outcome = catch_unwind(AssertUnwindSafe(|| (baggage.step)(&mut baggage.state)));
        let now = entry.end_step();
        match outcome {
            Ok(Step::Next) => {}
            Ok(Step::Sleep(time)) => entry.sleep(time),
            Ok(Step::Done(value)) => return end(baggage, present, Ok(value)),
            Err(panic) => return end(baggage, present, Err(panic_text(&*panic))),
        }
        if look(now) {
            let worker = registry::lock().shift(&entry);
            if let Some(worker) = worker {
                present.0 = None; // it goes along
                return start_at(worker, baggage, entry);
            }
        }
        if now.saturating_sub(turn) >= SLICE_NS {
            gossamer::yield_now();
            turn = now_ns();
        }
    }
}

/// Gives the outcome to who joins the task, after its state was dropped.
fn end<S, F, R: NoRef + Send + 'static>(baggage: Baggage<S, F, R>, present: Present, outcome: Result<R, String>) {
    let Baggage { state, value: promise, panic, .. } = baggage;
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(state)));
    drop(present);
    match outcome.and_then(|value| dropped.map(|()| value).map_err(|panic| panic_text(&*panic))) {
        Ok(value) => {
            panic.discard();
            promise.keep(value);
        }
        Err(text) => {
            promise.discard();
            panic.keep_with(text);
        }
    }
}

/// Sends the task to another machine: to the worker there that had the fewest tasks. That one takes it in, and gives it
/// to the one that has the fewest by then.
fn depart<S, F, R>(mut baggage: Baggage<S, F, R>, present: Present, to: u16, reason: Reason)
where
    S: NoRef + Send + 'static,
    F: Fn(&mut S) -> Step<R> + NoRef + Copy + Send + 'static,
    R: NoRef + Send + 'static,
{
    let own = gossamer::rack().machine();
    if let Some(entry) = &present.0 {
        let mut registry = registry::lock();
        registry.leaves(entry, to, reason);
        let is_judged = matches!(reason, Reason::Idle | Reason::Data);
        let rate = registry.rate(entry.past.id).filter(|_| is_judged);
        baggage.past = Past {
            moves: entry.past.moves + 1,
            came_from: Some(CameFrom { machine: own, reason, rate }),
            ..entry.past
        };
    }
    let moves = baggage.past.moves;
    let worker = link::loads(load::of_own_machine).iter().find(|load| load.machine == to).map_or(0, |load| load.worker);
    let arrived = trust::link::begin(Place::of(to, worker).trustee(), move || arrive(baggage, own, reason));
    if arrived().is_ok() || link::is_lost(to) {
        present.went(to, moves);
    }
    // Else there was no memory to take it in: it was dropped, and has ended.
}

/// Takes in a task from another machine. From one that is lost it is dropped: who joins it may have been told so.
fn arrive<S, F, R>(baggage: Baggage<S, F, R>, from: u16, reason: Reason)
where
    S: NoRef + Send + 'static,
    F: Fn(&mut S) -> Step<R> + NoRef + Copy + Send + 'static,
    R: NoRef + Send + 'static,
{
    list::show();
    let entry = registry::lock().take_in(baggage.past, size_of::<Baggage<S, F, R>>(), from, reason);
    if let Some(entry) = entry {
        start_at(entry.worker.load(Relaxed), baggage, entry);
    }
}
