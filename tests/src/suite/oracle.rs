//! Random programs, and a model of their results: one thread, plain values. `SUITE_SEED` chooses the program; every
//! failure names it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::env;
use std::rc::Rc;

use fastrand::Rng;
use gossamer::{Error, Place, Trust};

use super::ground::{JoinOutcome, Witness, effort, ended, none_is_lost, panics_with, places, until};

const STEPS: u64 = 1500;
const PROPERTIES_MAX: usize = 12;

/// A property.
struct Ledger {
    entries: BTreeMap<u64, String>,
    sum: u64,
    _witness: Witness,
}

/// The model of a property.
struct Account {
    id: u64,
    trusts: Vec<Trust<Ledger>>,
    entries: BTreeMap<u64, String>,
    sum: u64,
    poisoned: Option<String>,
}

type Outcomes = Vec<(u64, Result<u64, String>)>;

struct Program {
    random: Rng,
    accounts: Vec<Account>,
    counter: Trust<u64>,
    made: u64,
    ended: u64,
    /// Results that callbacks have seen of each property, and those that they must have seen, in order.
    seen: BTreeMap<u64, (Rc<RefCell<Outcomes>>, Outcomes)>,
    places: Vec<Place>,
}

pub fn random_programs_do_what_the_model_does() {
    let seed = env::var("SUITE_SEED").map_or(1, |seed| seed.parse().expect("SUITE_SEED is a number"));
    for seed in seed..seed + 3 {
        // Every failure comes with the seed.
        let run = trust::spawn(move || Program::new(seed).run());
        if let Err(panic) = run.join() {
            panic!("SUITE_SEED={seed}: {}", super::ground::text(&*panic));
        }
    }
}

fn outcome(result: Result<u64, Error>) -> Result<u64, String> {
    result.map_err(|error| match error {
        Error::Panicked { panic, .. } => format!("panicked: {panic}"),
        Error::Poisoned { panic, .. } => format!("poisoned: {panic}"),
        other => other.to_string(),
    })
}

impl Program {
    fn new(seed: u64) -> Program {
        Program {
            random: Rng::with_seed(seed),
            accounts: Vec::new(),
            counter: gossamer::entrust(0u64),
            made: 0,
            ended: 0,
            seen: BTreeMap::new(),
            places: places(),
        }
    }

    fn run(mut self) {
        for step in 0..effort(STEPS) {
            if self.accounts.is_empty() {
                self.make();
            }
            let chosen = self.random.usize(..self.accounts.len());
            match self.random.usize(..100) {
                0..4 => self.make(),
                4..30 => self.apply(chosen),
                30..55 => self.apply_then(chosen, step),
                55..70 => self.apply_with(chosen),
                70..80 => self.clone_trust(chosen),
                80..90 => self.drop_trust(chosen),
                90..94 => self.panic(chosen, step),
                94..97 => self.clear(chosen),
                _ => self.read(chosen),
            }
        }
        while !self.accounts.is_empty() {
            self.read(0);
            let before = self.accounts.len();
            while self.accounts.len() == before {
                self.drop_trust(0);
            }
        }
        assert_eq!(self.ended, self.made);
        ended(&self.counter, self.made);
        for (id, (seen, expected)) in &self.seen {
            until(|| seen.borrow().len() >= expected.len());
            assert_eq!(&*seen.borrow(), expected, "callbacks of property {id}");
        }
    }

    fn make(&mut self) {
        if self.accounts.len() >= PROPERTIES_MAX {
            return;
        }
        let place = self.places[self.random.usize(..self.places.len())];
        let counter = self.counter.clone();
        let make = move || Ledger { entries: BTreeMap::new(), sum: 0, _witness: Witness(counter) };
        let trust = gossamer::entrust_with(place, make);
        let id = self.made;
        self.accounts.push(Account { id, trusts: vec![trust], entries: BTreeMap::new(), sum: 0, poisoned: None });
        self.seen.insert(self.made, Default::default());
        self.made += 1;
    }

    fn trust(&mut self, chosen: usize) -> Trust<Ledger> {
        let count = self.accounts[chosen].trusts.len();
        self.accounts[chosen].trusts[self.random.usize(..count)].clone()
    }

    /// Adds in the model; returns the expected result.
    fn add(&mut self, chosen: usize, number: u64) -> Result<u64, String> {
        let account = &mut self.accounts[chosen];
        match &account.poisoned {
            Some(panic) => Err(format!("poisoned: {panic}")),
            None => {
                account.sum = account.sum.wrapping_mul(31).wrapping_add(number);
                Ok(account.sum)
            }
        }
    }

    fn apply(&mut self, chosen: usize) {
        let (trust, number) = (self.trust(chosen), self.random.u64(..));
        let expected = self.add(chosen, number);
        // Half of them from somewhere else, where the trust is dropped as well.
        let add = move |ledger: &mut Ledger| {
            ledger.sum = ledger.sum.wrapping_mul(31).wrapping_add(number);
            ledger.sum
        };
        if self.random.bool() {
            assert_eq!(outcome(trust.call().apply(add).wait()), expected);
        } else {
            // Earlier requests of this thread come first.
            let _ = trust.call().apply(|_| ()).wait();
            let place = self.places[self.random.usize(..self.places.len())];
            let found = gossamer::spawn_on(place, move || trust.call().apply(add).wait().ok()).join();
            let (found, expected) = (found.or_its_panic(), expected.ok());
            if found.is_none() && expected.is_some() {
                none_is_lost(); // its error stays there
            }
            assert_eq!(found, expected);
        }
    }

    fn apply_then(&mut self, chosen: usize, number: u64) {
        let trust = self.trust(chosen);
        let expected = self.add(chosen, number);
        let Some((seen, all)) = self.seen.get_mut(&self.accounts[chosen].id) else { unreachable!("made with it") };
        all.push((number, expected));
        let seen = Rc::clone(seen);
        trust
            .call()
            .apply(move |ledger| {
                ledger.sum = ledger.sum.wrapping_mul(31).wrapping_add(number);
                ledger.sum
            })
            .then(move |sum| seen.borrow_mut().push((number, outcome(sum))));
    }

    fn apply_with(&mut self, chosen: usize) {
        let trust = self.trust(chosen);
        let (key, text) = (self.random.u64(..8), "word ".repeat(self.random.usize(..2000)));
        let account = &mut self.accounts[chosen];
        if account.poisoned.is_some() {
            panics_with("is poisoned", || trust.apply_with(|_, ()| (), ()));
            return;
        }
        let before = account.entries.insert(key, text.clone());
        let found = trust.apply_with(|ledger, (key, text)| ledger.entries.insert(key, text), (key, text));
        assert_eq!(found, before);
    }

    fn clone_trust(&mut self, chosen: usize) {
        let trust = self.trust(chosen);
        if self.accounts[chosen].trusts.len() < 8 {
            self.accounts[chosen].trusts.push(trust);
        }
    }

    /// Here, or at a place that it is sent to.
    fn drop_trust(&mut self, chosen: usize) {
        let account = &mut self.accounts[chosen];
        let trust = account.trusts.swap_remove(self.random.usize(..account.trusts.len()));
        if account.trusts.is_empty() {
            self.accounts.swap_remove(chosen);
            self.ended += 1;
        }
        let place = self.places[self.random.usize(..self.places.len())];
        match self.random.usize(..3) {
            0 => drop(trust),
            1 => drop(gossamer::spawn_on(place, move || drop(trust))),
            _ => self.counter.apply_then(move |_| drop(trust), |()| {}),
        }
        assert!(self.counter.apply(|ended| *ended) <= self.ended, "a property has ended while there are trusts of it");
    }

    fn panic(&mut self, chosen: usize, step: u64) {
        let trust = self.trust(chosen);
        let panic = format!("at step {step}");
        let expected = match &self.accounts[chosen].poisoned {
            Some(first) => format!("poisoned: {first}"),
            None => format!("panicked: {panic}"),
        };
        self.accounts[chosen].poisoned.get_or_insert(panic);
        assert_eq!(outcome(trust.call().apply(move |_| -> u64 { panic!("at step {step}") }).wait()), Err(expected));
    }

    fn clear(&mut self, chosen: usize) {
        self.trust(chosen).clear_poison();
        self.accounts[chosen].poisoned = None;
    }

    fn read(&mut self, chosen: usize) {
        let trust = self.trust(chosen);
        if self.accounts[chosen].poisoned.is_some() {
            self.clear(chosen);
        }
        let account = &self.accounts[chosen];
        let (sum, entries) = trust.apply_with(|ledger, ()| (ledger.sum, ledger.entries.clone()), ());
        assert_eq!((sum, &entries), (account.sum, &account.entries));
        if let Some((seen, expected)) = self.seen.get(&account.id) {
            assert_eq!(&*seen.borrow(), expected, "in order, and all that were sent before");
        }
    }
}
