//! The programs of `losses`: a key-value store over two machines, and four machines of which one is killed; with copies
//! in copies.rs.

use super::copies;
use crate::machines::{InFlight, Shards, over_rack};
use crate::prelude::*;
use exchange::now_ns;
use gossamer::bootstrap::FabricChoice;
use gossamer::{Error, Place};
use std::collections::HashMap;

/// The task.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Role {
    /// Gets and puts by the workers of two machines for so long; prints million operations a second.
    Kv,
    /// Prints the process of the last of four machines; when that is killed, the times of the errors at the others.
    Killed,
    /// Puts of 1 KiB that outlive a machine, for so long; prints thousands a second.
    Puts,
    /// Copies get a second place; prints megabytes a second.
    Refill,
    /// The same; prints the rate of a store meanwhile over that before.
    Meanwhile,
    /// As many bytes by a socket; prints megabytes a second.
    Socket,
}

/// Options of `losses-run`.
#[derive(Clone, Debug, Args)]
pub struct LossesRun {
    role: Role,
    fabric: FabricChoice,
    /// Milliseconds of `kv` and `puts`, by which the amount of `refill` goes, too.
    #[arg(default_value_t = 1000)]
    millis: u64,
}

/// Keys of a shard.
const KEYS: u64 = 10_000;
/// Operations of a worker that are not answered yet.
const OUTSTANDING: usize = 64;
/// Operations between two looks at the clock.
const LOOK: u64 = 64;
/// One operation of so many is a put.
const PUT_EVERY: u64 = 10;

pub fn command(options: LossesRun) -> Result<()> {
    let time = Duration::from_millis(options.millis);
    match options.role {
        Role::Kv => {
            if let Some(mops) = over_rack(2, 2, options.fabric, move || kv(time))? {
                println!("{mops}");
            }
        }
        Role::Killed => drop(over_rack(4, 4, options.fabric, killed)?),
        Role::Puts => copies::run(options.fabric, move || copies::puts(time))?,
        Role::Refill => copies::run(options.fabric, move || copies::refill(time, false))?,
        Role::Meanwhile => copies::run(options.fabric, move || copies::refill(time, true))?,
        Role::Socket => println!("{}", copies::socket(time)?),
    }
    Ok(())
}

/// Values by key: each is the number of its puts.
type Shard = HashMap<u64, u64>;

fn kv(time: Duration) -> Result<f64> {
    let shards = Shards::<Shard>::new(|_| || (0..KEYS).map(|key| (key, 0)).collect())?;
    let began = Instant::now();
    let places = gossamer::rack().places();
    let clients: Vec<_> = places
        .enumerate()
        .map(|(own, place)| {
            let shards = shards.clone();
            gossamer::spawn_on(place, move || client(own as u64, &shards, time))
        })
        .collect();
    let (mut operations, mut puts) = (0, 0);
    for client in clients {
        let (done, put, wrong) = client.join().map_err(|_| anyhow!("a client has panicked"))?;
        ensure!(wrong == 0, "{wrong} answers are wrong");
        (operations, puts) = (operations + done, puts + put);
    }
    let took = began.elapsed();
    let stored: u64 = shards.iter().map(|shard| shard.apply(|shard| shard.values().sum::<u64>())).sum();
    ensure!(stored == puts, "{puts} puts, {stored} are stored");
    Ok(operations as f64 / took.as_secs_f64() / 1e6)
}

/// Returns the operations done, the puts among them, and the wrong answers.
fn client(own: u64, shards: &Shards<Shard>, time: Duration) -> (u64, u64, u64) {
    // Two, so one bit chooses.
    let count = shards.iter().count() as u64;
    let in_flight = Rc::new(InFlight::default());
    let mut state = own;
    let (began, mut done, mut puts) = (Instant::now(), 0, 0);
    while began.elapsed() < time {
        for _ in 0..LOOK {
            // A linear congruence: its high bits are good.
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let (shard, key) = (shards.at((state >> 60 & (count - 1)) as usize), (state >> 20) % KEYS);
            let put = u64::from(done % PUT_EVERY == 0);
            in_flight.begin(OUTSTANDING);
            let told = Rc::clone(&in_flight);
            let operate = move |shard: &mut Shard| {
                shard.get_mut(&key).map(|value| {
                    *value += put;
                    *value
                })
            };
            shard.apply_then(operate, move |value| told.end(value.is_some_and(|value| value >= put)));
            (done, puts) = (done + 1, puts + put);
        }
    }
    in_flight.wait_for(0);
    (done, puts, in_flight.wrong())
}

fn killed() -> Result<()> {
    let rack = gossamer::rack();
    let victim = rack.machines().len() as u16 - 1;
    let watchers: Vec<_> =
        (0..victim).map(|machine| gossamer::spawn_on(Place::of(machine, 0), move || error_of(victim))).collect();
    // Each of the others has its fiber there by now, mostly; the parent waits for longer.
    println!("{}", rack.machines()[usize::from(victim)].process);
    for watcher in watchers {
        println!("{}", watcher.join().map_err(|_| anyhow!("a machine saw another error"))?);
    }
    ensure!(rack.is_lost(victim) && rack.living().count() == usize::from(victim), "another machine is lost");
    Ok(())
}

/// Waits for a fiber of this machine that never ends; returns the time of the error.
fn error_of(machine: u16) -> u64 {
    let endless = gossamer::spawn_on(Place::of(machine, 0), || gossamer::sleep(Duration::MAX));
    let error = endless.join().expect_err("it never ends");
    let at = now_ns();
    assert!(matches!(error.downcast_ref(), Some(Error::Lost { machine: lost }) if *lost == machine), "another error");
    at
}
