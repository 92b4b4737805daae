//! Random programs against a model with one thread: every result, the order of each client's effects, the final states,
//! and that each property is dropped exactly once.
//!
//! A program has clients (this thread, plain threads, fibers) and properties (at workers and at a plain thread). A
//! client's view of a property depends on its own requests alone: others only add to the sum. So the model runs the
//! clients one after the other. `PROPTEST_CASES` sets the number of programs; a failure prints its smallest.

mod common;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::{Server, join_and_serve, serve_until};
use proptest::prelude::*;
use trust::link::ask_to_move;
use trust::{Error, JoinHandle, Latch, Shared, Threadpool, Trust, TrusteeReference};

const CLIENTS: usize = 4;
/// Properties that all use, that are launched on, and one more for each client, on which closures may panic.
const SHARED: usize = 3;
const LATCHED: usize = 2;
const PROPERTIES: usize = SHARED + LATCHED + CLIENTS;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Apply,
    Then,
    With,
    WithThen,
}

/// One step of a client. Numbers are taken modulo the number of choices.
#[derive(Clone, Debug)]
enum Step {
    /// Adds to a property.
    Call(Call, usize, u8),
    /// Adds to a property, and from there to another one.
    Relay(Call, usize, usize, u8),
    Launch(Call, usize, u8),
    /// A closure on the client's own property panics; with `true` the poison is then cleared.
    Panic(Call, bool),
    Clone(usize),
    Drop(usize),
    /// Lays a trust on the shelf, for another client.
    Give(usize),
    /// Takes one from there and drops it.
    Take,
    Yield,
    Sleep(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let call =
        || prop_oneof![4 => Just(Call::Then), 2 => Just(Call::Apply), 1 => Just(Call::With), 1 => Just(Call::WithThen)];
    let step = prop_oneof![
        30 => (call(), 0..SHARED + 1, any::<u8>()).prop_map(|(c, p, n)| Step::Call(c, p, n)),
        6 => (call(), 0..SHARED + 1, 0..SHARED, any::<u8>()).prop_map(|(c, p, q, n)| Step::Relay(c, p, q, n)),
        6 => (call(), 0..LATCHED, any::<u8>()).prop_map(|(c, p, n)| Step::Launch(c, p, n)),
        2 => (call(), any::<bool>()).prop_map(|(c, clear)| Step::Panic(c, clear)),
        4 => (0..PROPERTIES).prop_map(Step::Clone),
        4 => (0..PROPERTIES).prop_map(Step::Drop),
        2 => (0..PROPERTIES).prop_map(Step::Give),
        2 => Just(Step::Take),
        3 => Just(Step::Yield),
        1 => any::<u8>().prop_map(Step::Sleep),
    ];
    prop::collection::vec(step, 0..120)
}

/// A property: the sum of all clients' additions, and those of each client, in order.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    sum: u64,
    logs: [Vec<u8>; CLIENTS],
}

impl State {
    /// The client's view afterwards: its number of entries, and their checksum.
    fn add(&mut self, client: usize, number: u8) -> u64 {
        self.sum += u64::from(number);
        let log = &mut self.logs[client];
        log.push(number);
        (log.len() as u64) << 32 | log.iter().rev().take(8).fold(0, |sum, &n| (sum * 31 + u64::from(n)) & 0xFFFF_FFFF)
    }
}

/// Value of a property. Notes its drop.
struct Kept {
    state: State,
    place: usize,
    ends: Arc<Mutex<Vec<(usize, State)>>>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.ends.lock().unwrap().push((self.place, std::mem::take(&mut self.state)));
    }
}

#[derive(Clone)]
enum Handle {
    Plain(Trust<Kept>),
    Latched(Trust<Latch<Kept>>),
}

/// Results of one property at a client, in order: a value, or that it was poisoned or panicked.
type Seen = [Vec<Result<u64, &'static str>>; PROPERTIES];

/// The property that a client means.
fn place_of(client: usize, property: usize) -> usize {
    if property < SHARED { property } else { SHARED + LATCHED + client }
}

// The model.

#[derive(Default)]
struct Model {
    states: [State; PROPERTIES],
    poisoned: [bool; PROPERTIES],
    seen: [Seen; CLIENTS],
}

impl Model {
    fn run(programs: &[Vec<Step>]) -> Model {
        let mut model = Model::default();
        for (client, steps) in programs.iter().enumerate() {
            let mut held = [1usize; PROPERTIES];
            for step in steps {
                model.step(client, step, &mut held);
            }
        }
        model
    }

    fn step(&mut self, client: usize, step: &Step, held: &mut [usize; PROPERTIES]) {
        match *step {
            Step::Call(_, property, number) => drop(self.add(client, place_of(client, property), number, held)),
            Step::Relay(_, from, to, number) => {
                if held[to] > 0 && self.add(client, place_of(client, from), number, held) {
                    self.states[to].sum += u64::from(number);
                }
            }
            Step::Launch(_, property, number) => drop(self.add(client, SHARED + property, number, held)),
            Step::Panic(_, clear) => {
                let own = SHARED + LATCHED + client;
                if held[own] > 0 {
                    let outcome = if self.poisoned[own] { "poisoned" } else { "panicked" };
                    self.seen[client][own].push(Err(outcome));
                    self.poisoned[own] = !clear;
                }
            }
            Step::Clone(property) if held[property] > 0 => held[property] += 1,
            Step::Drop(property) => held[property] = held[property].saturating_sub(1),
            Step::Clone(_) | Step::Give(_) | Step::Take | Step::Yield | Step::Sleep(_) => {}
        }
    }

    fn add(&mut self, client: usize, place: usize, number: u8, held: &[usize; PROPERTIES]) -> bool {
        if held[place] == 0 {
            return false;
        }
        let outcome = if self.poisoned[place] { Err("poisoned") } else { Ok(self.states[place].add(client, number)) };
        self.seen[client][place].push(outcome);
        outcome.is_ok()
    }
}

// The program.

type Shelf = Shared<Mutex<Vec<Handle>>>;

struct Client {
    number: usize,
    held: Vec<Vec<Handle>>,
    shelf: Shelf,
    seen: Rc<RefCell<Seen>>,
}

fn name(error: &Error) -> &'static str {
    match error {
        Error::Poisoned { .. } => "poisoned",
        Error::Panicked { .. } => "panicked",
        _ => "other",
    }
}

/// `apply_with` has no `try_`: its panic's text tells.
fn name_of_panic(outcome: thread::Result<u64>) -> Result<u64, &'static str> {
    outcome.map_err(|payload| {
        let text = common::text(&*payload);
        if text.contains("is poisoned") {
            "poisoned"
        } else if text == "on purpose" {
            "panicked"
        } else {
            "other"
        }
    })
}

impl Client {
    fn run(mut self, steps: &[Step]) -> Seen {
        let mut expected = 0;
        for step in steps {
            expected += usize::from(self.step(step));
        }
        let seen = Rc::clone(&self.seen);
        drop(self);
        while seen.borrow().iter().map(Vec::len).sum::<usize>() < expected {
            trust::yield_now();
            thread::yield_now();
        }
        seen.take()
    }

    fn plain(&self, place: usize) -> Option<Trust<Kept>> {
        match self.held[place].last()? {
            Handle::Plain(trust) => Some(trust.clone()),
            Handle::Latched(_) => None,
        }
    }

    /// True if there will be an entry in `seen`.
    fn step(&mut self, step: &Step) -> bool {
        let client = self.number;
        match *step {
            Step::Call(call, property, number) => {
                self.call(call, place_of(client, property), move |kept, number| kept.state.add(client, number), number)
            }
            Step::Relay(call, from, to, number) => {
                let Some(Handle::Plain(next)) = self.held[to].last().cloned() else { return false };
                let f = move |kept: &mut Kept, number: u8| {
                    next.apply_then(move |kept| kept.state.sum += u64::from(number), |()| ());
                    kept.state.add(client, number)
                };
                self.call(call, place_of(client, from), f, number)
            }
            Step::Launch(call, property, number) => self.launch(call, SHARED + property, number),
            Step::Panic(call, clear) => {
                let own = SHARED + LATCHED + client;
                let asked = self.call(call, own, |_, _| panic!("on purpose"), 0);
                if clear && let Some(Handle::Plain(trust)) = self.held[own].last() {
                    trust.clear_poison();
                }
                asked
            }
            Step::Clone(place) => {
                let clone = self.held[place].last().cloned();
                self.held[place].extend(clone);
                false
            }
            Step::Drop(place) => {
                self.held[place].pop();
                false
            }
            Step::Give(place) => {
                let given = self.held[place].last().cloned();
                self.shelf.lock().unwrap().extend(given);
                false
            }
            Step::Take => {
                let taken = self.shelf.lock().unwrap().pop();
                drop(taken);
                false
            }
            Step::Yield => {
                trust::yield_now();
                false
            }
            Step::Sleep(us) => {
                trust::sleep(Duration::from_micros(u64::from(us)));
                false
            }
        }
    }

    fn call<F>(&self, call: Call, place: usize, f: F, number: u8) -> bool
    where
        F: FnOnce(&mut Kept, u8) -> u64 + trust::NoRef + Send + 'static,
    {
        let Some(trust) = self.plain(place) else { return false };
        let seen = Rc::clone(&self.seen);
        let note = move |outcome| seen.borrow_mut()[place].push(outcome);
        match call {
            Call::Apply => note(trust.call().apply(move |kept| f(kept, number)).wait().map_err(|error| name(&error))),
            Call::With => {
                let text = "x".repeat(usize::from(number));
                let with = move |kept: &mut Kept, text: String| f(kept, text.len() as u8);
                note(name_of_panic(catch_unwind(AssertUnwindSafe(|| trust.apply_with(with, text)))));
            }
            // There is no `try_apply_with_then`: its callback would not run where a closure panics.
            Call::Then | Call::WithThen => {
                trust
                    .call()
                    .apply(move |kept| f(kept, number))
                    .then(move |outcome| note(outcome.map_err(|e| name(&e))));
            }
        }
        true
    }

    fn launch(&self, call: Call, place: usize, number: u8) -> bool {
        let Some(Handle::Latched(trust)) = self.held[place].last().cloned() else { return false };
        let (client, seen) = (self.number, Rc::clone(&self.seen));
        let note = move |value| seen.borrow_mut()[place].push(Ok(value));
        let f = move |kept: &mut Kept, number: u8| {
            if number.is_multiple_of(4) {
                trust::yield_now();
            }
            kept.state.add(client, number)
        };
        match call {
            Call::Apply => note(trust.launch(move |kept| f(kept, number))),
            Call::With | Call::WithThen => note(trust.call().with(number).launch(f).wait().unwrap()),
            Call::Then => trust.launch_then(move |kept| f(kept, number), note),
        }
        true
    }
}

enum Running {
    Fiber(JoinHandle<Seen>),
    Thread(thread::JoinHandle<Seen>),
}

/// Moves the trustees of a pool, one after the other, until dropped.
struct Mover(Arc<AtomicBool>);

impl Mover {
    fn start<'a>(scope: &'a thread::Scope<'a, '_>, pool: &'a Threadpool) -> Mover {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        scope.spawn(move || {
            for turn in 0.. {
                let asked = ask_to_move(pool, turn % TRUSTEES, (turn / TRUSTEES) % 2);
                while asked.outcome().is_none() && !over.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                if over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        Mover(is_over)
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Trustees of the pool.
const TRUSTEES: usize = 2;

/// Runs the programs with two trustees of a pool, which stay or move meanwhile, and one of a plain thread.
fn run(programs: &[Vec<Step>], spread: usize, moves: bool) -> ([State; PROPERTIES], [Seen; CLIENTS]) {
    let pool = Threadpool::builder().workers(2).trustees(if moves { TRUSTEES } else { 0 }).pin(false).build();
    let result = thread::scope(|scope| {
        let _mover = moves.then(|| Mover::start(scope, &pool));
        run_on(&pool, programs, spread)
    });
    drop(pool);
    result
}

fn run_on(pool: &Threadpool, programs: &[Vec<Step>], spread: usize) -> ([State; PROPERTIES], [Seen; CLIENTS]) {
    let server = Server::start();
    let trustees: Vec<TrusteeReference> = pool.trustees().iter().copied().chain([server.trustee]).collect();
    let ends = Arc::new(Mutex::new(Vec::new()));
    let entrust = |place: usize| {
        let kept = Kept { state: State::default(), place, ends: Arc::clone(&ends) };
        let trustee = trustees[(place + spread) % trustees.len()];
        if (SHARED..SHARED + LATCHED).contains(&place) {
            Handle::Latched(trustee.entrust(Latch::new(kept)))
        } else {
            Handle::Plain(trustee.entrust(kept))
        }
    };
    let handles: Vec<Handle> = (0..PROPERTIES).map(entrust).collect();
    let shelf: Shelf = Shared::new(Mutex::default());
    let start = |number: usize| {
        let (handles, shelf, steps) = (handles.clone(), shelf.clone(), programs[number].clone());
        move || {
            let held = handles.into_iter().map(|handle| vec![handle]).collect();
            Client { number, held, shelf, seen: Rc::default() }.run(&steps)
        }
    };
    // Two fibers of one worker, a plain thread, and this thread.
    let running = [
        Running::Fiber(pool.spawn_on(spread % 2, start(1))),
        Running::Fiber(pool.spawn_on(spread % 2, start(2))),
        Running::Thread(thread::spawn(start(3))),
    ];
    let mine = start(0);
    drop(handles);
    let mut seen = vec![mine()];
    for client in running {
        seen.push(match client {
            Running::Fiber(fiber) => fiber.join().unwrap(),
            Running::Thread(thread) => join_and_serve(thread),
        });
    }
    let left = std::mem::take(&mut *shelf.lock().unwrap());
    drop(left);
    serve_until(|| ends.lock().unwrap().len() >= PROPERTIES);
    server.end();
    let ends = std::mem::take(&mut *ends.lock().unwrap());
    assert_eq!(ends.len(), PROPERTIES, "a property was dropped twice");
    let mut states: [State; PROPERTIES] = Default::default();
    for (place, state) in ends {
        states[place] = state;
    }
    (states, seen.try_into().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(60),
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_programs_do_what_the_model_does(
        programs in prop::collection::vec(steps(), CLIENTS),
        spread in 0..3usize,
        moves in any::<bool>(),
    ) {
        let watch = watchdog!();
        watch.note(format!("spread {spread}, moves {moves}, programs {programs:?}"));
        let model = Model::run(&programs);
        let (states, seen) = run(&programs, spread, moves);
        for place in 0..PROPERTIES {
            prop_assert_eq!(&states[place], &model.states[place], "the final state of property {}", place);
            for (client, (seen, expected)) in seen.iter().zip(&model.seen).enumerate() {
                prop_assert_eq!(&seen[place], &expected[place], "client {}, property {}", client, place);
            }
        }
    }
}
