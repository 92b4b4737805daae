//! The programs of `losses` with copies of the heap's objects: puts that outlive a machine, and the rate at which
//! copies get a second place after a loss.

use crate::machines::{at, outcome, start};
use crate::prelude::*;
use gossamer::bootstrap::{FabricChoice, LAUNCHER};
use gossamer::{Place, Trust};
use gossamer_heap::{self as heap, Global, Mutex, Shared};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Machines of each program: one that asks and computes nothing else, and two with the objects.
const MACHINES: u16 = 3;
/// Puts that are under way at once, here and at Redis.
pub const CLIENTS: usize = 16;
/// Keys of a client, which nobody else puts.
pub const KEYS: u64 = 16;
/// Words of a value: 1 KiB.
pub const WORDS: usize = 128;
/// Bytes of an object whose copy gets a second place, and the number of objects for each millisecond of the run.
const OBJECT_BYTES: usize = 64 << 10;
const OBJECTS_A_MS: usize = 4;

/// Runs `measure` on machine 0 of a program with copies, or starts its machines; prints the number.
pub fn run(fabric: FabricChoice, measure: impl FnOnce() -> Result<f64> + Send + 'static) -> Result<()> {
    if std::env::var_os(LAUNCHER).is_none() {
        return start(MACHINES, MACHINES.into(), fabric);
    }
    let builder = heap::with_copies(gossamer::builder().survives(2));
    println!("{}", outcome(measure, |run| builder.main(run, MACHINES.into()))?);
    Ok(())
}

type Value = [u64; WORDS];
type Table = Shared<[Mutex<Value>; CLIENTS * KEYS as usize]>;

/// Thousand puts a second: each sends a value to the other machines by turns, where it is stored under the key's mutex.
pub fn puts(time: Duration) -> Result<f64> {
    let mutexes: Vec<_> =
        (0..CLIENTS * KEYS as usize).map(|key| at(place(key as u64), || Mutex::new([0; WORDS]))).collect();
    let mut mutexes = mutexes.into_iter().collect::<Result<Vec<_>>>()?.into_iter();
    let next = |_| mutexes.next().unwrap_or_else(|| unreachable!("there are as many"));
    let table: Table = Shared::new(std::array::from_fn(next));
    let began = Instant::now();
    let putter = |own: usize| {
        let table = table.clone();
        gossamer::spawn(move || {
            let mut count = 0;
            while began.elapsed() < time {
                let (table, key) = (table.clone(), own as u64 * KEYS + count % KEYS);
                let value = [count; WORDS];
                let put = move || {
                    let table = table.read();
                    let stored = table[key as usize].lock();
                    stored.unwrap_or_else(|poisoned| poisoned.guard).copy_from_slice(&value);
                };
                gossamer::spawn_on(place(key), put).join().ok()?;
                count += 1;
            }
            Some(count)
        })
    };
    let putters: Vec<_> = (0..CLIENTS).map(putter).collect();
    let mut counts = Vec::new();
    for putter in putters {
        counts.push(putter.join().ok().flatten().context("a put failed")?);
    }
    let took = began.elapsed();
    let table = table.read();
    for (own, count) in counts.iter().enumerate() {
        for last in count.saturating_sub(KEYS)..*count {
            let stored = table[own * KEYS as usize + (last % KEYS) as usize].lock().map(|stored| *stored);
            ensure!(stored.is_ok_and(|stored| stored == [last; WORDS]), "put {last} of client {own} is not there");
        }
    }
    Ok(counts.iter().sum::<u64>() as f64 / took.as_secs_f64() / 1e3)
}

fn place(key: u64) -> Place {
    Place::of(1 + (key % 2) as u16, 0)
}

/// Megabytes a second in which the copies of a lost machine get a second place; or, of a key-value store meanwhile over
/// before, the operations a second.
pub fn refill(time: Duration, is_store: bool) -> Result<f64> {
    let (first, second) = (Place::of(1, 0), Place::of(2, 0));
    let objects = time.as_millis() as usize * OBJECTS_A_MS;
    let all = at(first, move || heap::slice(objects, |i| heap::slice(OBJECT_BYTES / 8, |_| i as u64)))?;
    let saved = at(first, heap::stats)?;
    ensure!(saved.saved_bytes as usize > objects * OBJECT_BYTES && saved.unsaved == 0, "not all has a copy: {saved:?}");

    let store = gossamer::entrust_on(second, [0; KEYS as usize]);
    let before = if is_store { operate(&store, |began| began.elapsed() >= time)? } else { 0.0 };
    kill(first.machine)?;
    let took = gossamer::spawn_on(second, move || {
        while !gossamer::rack().is_lost(first.machine) {
            gossamer::sleep(LOOK);
        }
        let began = Instant::now();
        while heap::stats().refills > 0 {
            gossamer::sleep(LOOK);
        }
        began.elapsed()
    });
    while !gossamer::rack().is_lost(first.machine) {
        gossamer::sleep(LOOK);
    }
    let meanwhile = if is_store { operate(&store, |_| took.is_finished())? } else { 0.0 };
    let took = took.join().map_err(|_| anyhow!("a fiber panicked"))?;
    let figure = if is_store { meanwhile / before } else { (objects * OBJECT_BYTES) as f64 / took.as_secs_f64() / 1e6 };

    // The second places have all of it.
    kill(second.machine)?;
    while !gossamer::rack().is_lost(second.machine) {
        gossamer::sleep(LOOK);
    }
    let is_there = |(i, object): (usize, &Global<[u64]>)| object.read().iter().all(|word| *word == i as u64);
    ensure!(all.read().iter().enumerate().all(is_there), "an object is another one");
    Ok(figure)
}

/// Operations that are not answered yet, and those between two looks at the clock.
const OUTSTANDING: u64 = 64;
const OPERATIONS: u64 = 64;

/// Operations a second of a store until it is over. A loss of any machine would end the wait for a promise.
fn operate(store: &Trust<[u64; KEYS as usize]>, is_over: impl Fn(Instant) -> bool) -> Result<f64> {
    let (answered, began, mut count) = (Rc::new(Cell::new(0)), Instant::now(), 0);
    while !is_over(began) {
        for _ in 0..OPERATIONS {
            while count - answered.get() >= OUTSTANDING {
                gossamer::yield_now();
            }
            let (told, key) = (Rc::clone(&answered), count % KEYS);
            let add = move |values: &mut [u64; KEYS as usize]| {
                values[key as usize] += 1;
                values[key as usize]
            };
            store.apply_then(add, move |value| told.set(told.get() + u64::from(value > 0)));
            count += 1;
        }
    }
    while answered.get() < count {
        gossamer::yield_now();
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// Between two looks.
const LOOK: Duration = Duration::from_micros(100);

fn kill(machine: u16) -> Result<()> {
    let process = gossamer::rack().machines()[usize::from(machine)].process;
    let process = Pid::from_raw(process.cast_signed()).context("a process")?;
    kill_process(process, Signal::KILL).context("ending a machine")
}

/// Megabytes a second from one socket of this host to another, in pieces of so many bytes as a refill has.
pub fn socket(time: Duration) -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut socket = TcpStream::connect(listener.local_addr()?)?;
    let (mut peer, _) = listener.accept()?;
    let objects = time.as_millis() as usize * OBJECTS_A_MS;
    let (piece, mut into) = (vec![7; OBJECT_BYTES], vec![0; OBJECT_BYTES]);
    let began = Instant::now();
    let sends = thread::spawn(move || (0..objects).try_for_each(|_| socket.write_all(&piece)));
    for _ in 0..objects {
        peer.read_exact(&mut into)?;
    }
    let took = began.elapsed();
    sends.join().map_err(|_| anyhow!("the sender panicked"))??;
    ensure!(into.iter().all(|byte| *byte == 7), "other bytes came");
    Ok((objects * OBJECT_BYTES) as f64 / took.as_secs_f64() / 1e6)
}
