//! Values of before the loss of a machine: they are dropped with their trusts, and one whose trust the lost machine has
//! handed on uncounted is closed, not freed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gossamer::{Error, Latch, Place, Trust};
use limits::HANG;
use processes::send_signal;
use rustix::process::Signal;

use crate::rig::{command, run};

crate::tests![
    values_of_before_losses_are_dropped_with_their_trusts,
    a_trust_that_a_lost_machine_has_handed_on_uncounted_finds_its_property_closed,
];

fn values_of_before_losses_are_dropped_with_their_trusts() {
    let racks: [&[&str]; 3] = [&["--fabric", "shm"], &["--fabric", "tcp"], &["--pretend-hosts", "2"]];
    for options in racks {
        let mut victims: Vec<u16> = (1..5).collect();
        fastrand::shuffle(&mut victims);
        let victims = [0, 1, 2].map(|at| victims[at].to_string());
        let role = ["values", &*victims[0], &*victims[1], &*victims[2]];
        let ended = run(command(5, options, &role));
        assert_eq!(ended.code(), Some(0), "{role:?} {options:?}: {ended}");
        assert!(ended.stdout.contains("all values are dropped"), "{role:?} {options:?}: {ended}");
    }
}

fn a_trust_that_a_lost_machine_has_handed_on_uncounted_finds_its_property_closed() {
    for fabric in ["shm", "tcp"] {
        let victim = fastrand::u16(1..3);
        let ended = run(command(
            3,
            &["--fabric", fabric, "--survives", "1", "--threads", "6"],
            &["clones", &victim.to_string()],
        ));
        assert_eq!(ended.code(), Some(0), "{fabric}: {ended}");
        assert!(ended.stdout.contains("dropped once"), "{fabric}: {ended}");
    }
}

/// Values of this process.
static LIVE: AtomicU64 = AtomicU64::new(0);

struct Value(Box<[u64]>);

impl Value {
    /// Words of a value.
    const WORDS: usize = 1 << 12;

    fn new() -> Value {
        LIVE.fetch_add(1, Ordering::SeqCst);
        Value(vec![LIVE.load(Ordering::SeqCst); Self::WORDS].into())
    }

    fn check(&self) -> u64 {
        assert!(self.0.len() == Self::WORDS && self.0.iter().all(|word| *word == self.0[0]), "it was dropped");
        self.0[0]
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.check();
        self.0.fill(u64::MAX);
        self.0[0] = 0;
        LIVE.fetch_sub(1, Ordering::SeqCst);
    }
}

fn at<R: gossamer::NoRef + Send + 'static>(
    place: Place,
    f: impl FnOnce() -> R + gossamer::NoRef + Send + 'static,
) -> R {
    gossamer::spawn_on(place, f).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn wait(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < HANG, "{what}");
        gossamer::sleep(Duration::from_millis(1));
    }
}

fn process_of(machine: u16) -> u32 {
    gossamer::rack().machines()[usize::from(machine)].process
}

/// The program of the first test: loses these machines, one after the other.
pub fn drop_all(victims: &[&str]) {
    let victims: Vec<u16> = victims.iter().map(|victim| victim.parse().unwrap()).collect();
    gossamer::builder().survives(victims.len() as u16).main(move || lose_each(&victims), 2);
}

fn lose_each(victims: &[u16]) {
    let rack = gossamer::rack();
    for &victim in victims {
        let places: Vec<Place> = rack.living().collect();
        let values: Vec<Trust<Latch<Value>>> = (0..20)
            .flat_map(|_| places.iter().map(|&place| gossamer::entrust_with(place, || Latch::new(Value::new()))))
            .collect();
        let made = values.len() as u64;
        // All places use them, but for the one that is to be lost: trusts that it has when it is killed are dropped by
        // nobody.
        let users: Vec<_> = places
            .iter()
            .filter(|place| place.machine != victim)
            .flat_map(|&place| values.iter().map(move |value| (place, value.clone())))
            .map(|(place, value)| {
                gossamer::spawn_on(place, move || {
                    let own = value.clone();
                    drop(value);
                    loop {
                        let outcome = own.clone().call().launch(|value| value.check()).wait();
                        match outcome {
                            Ok(_) if !gossamer::rack().is_lost(victim) => gossamer::sleep(Duration::from_millis(1)),
                            Ok(_) => return,
                            Err(Error::Lost { machine }) => return assert_eq!(machine, victim),
                            Err(Error::Gone { was_closed, .. }) => {
                                return assert!(!was_closed && own.trustee().id().machine() == victim);
                            }
                            Err(other) => panic!("{other}"),
                        }
                    }
                })
            })
            .collect();
        send_signal(process_of(victim), Signal::KILL);
        users.into_iter().for_each(|user| user.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        for (place, value) in places.iter().cycle().zip(&values).filter(|(place, _)| place.machine != victim) {
            assert!(value.launch(|value| value.check()) > 0, "the values of {place} are there up to their last trust");
        }
        drop(values);
        for place in rack.living().filter(|place| place.worker == 0) {
            wait(&format!("{place} keeps values"), || at(place, || LIVE.load(Ordering::SeqCst)) == 0);
        }
        let old = gossamer::rack_stats().old_properties;
        println!("{old} values of before the loss of machine {victim} are left");
        assert!(old < made / 4, "the library's own few, not the {made} of the program");
    }
    println!("all values are dropped");
}

/// The program of the second test.
pub fn lose_a_count(victim: u16) {
    gossamer::main(move || hand_on(victim), 2);
}

fn hand_on(victim: u16) {
    let trustee = Place::of(3 - victim, 0);
    let beside = Place::of(3 - victim, 1);
    let value = gossamer::entrust_with(trustee, Value::new);
    value.apply(|value| assert!(value.check() > 0));
    // The trustee serves nobody up to the loss, so the count of the clone is lost with it.
    let busy = gossamer::entrust_with(trustee, || false);
    static IS_BUSY: AtomicU64 = AtomicU64::new(0);
    busy.apply_then(
        move |over| {
            IS_BUSY.store(1, Ordering::SeqCst);
            let start = Instant::now();
            while !gossamer::rack().is_lost(victim) && start.elapsed() < HANG {
                std::thread::yield_now();
            }
            *over = true;
        },
        |()| {},
    );
    wait("the closure does not begin", || at(beside, || IS_BUSY.load(Ordering::SeqCst)) == 1);
    let (value, handed_on) = at(Place::of(victim, 0), move || {
        let handed_on = value.clone();
        (value, handed_on)
    });
    send_signal(process_of(victim), Signal::KILL);
    wait("the loss is not told", || gossamer::rack().is_lost(victim));
    assert!(busy.apply(|over| *over));
    assert_eq!(value.call().apply(|value| value.check() > 0).wait(), Ok(true));
    drop(value);
    wait("the value is kept", || at(beside, || LIVE.load(Ordering::SeqCst)) == 0);
    for _ in 0..3 {
        let again = handed_on.clone();
        let outcome = again.call().apply(|value| value.check()).wait();
        assert!(matches!(outcome, Err(Error::Gone { was_closed: true, .. })), "{outcome:?}");
        assert!(matches!(again.close(), Err(Error::Gone { was_closed: true, .. })));
    }
    drop(handed_on);
    // The slot stays: it is no other property's.
    let others: Vec<_> = (0..20).map(|_| gossamer::entrust_with(trustee, Value::new)).collect();
    assert!(others.iter().all(|value| value.apply(|value| value.check()) > 0));
    drop(others);
    wait("later values are kept", || at(beside, || LIVE.load(Ordering::SeqCst)) == 0);
    println!("dropped once");
}
