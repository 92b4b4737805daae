//! `heap-run`: objects of the heap over two processes, for `heap`. Here: how it starts itself as the machines of a
//! rack, the measurements of machine 0, and their report: a line of JSON, nanoseconds by work, all rounds.

use super::next;
use crate::machines::{at, over_rack};
use crate::prelude::*;
use gossamer::Place;
use gossamer::bootstrap::FabricChoice;
use gossamer::sync::Channel;
use gossamer_heap::{self as heap, Bunch, ElementId, Global, Shared};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Options of `heap-run`.
#[derive(Clone, Debug, Args)]
pub struct HeapRun {
    /// The fabric between the processes: shm or tcp.
    #[arg(long)]
    pub fabric: FabricChoice,
    /// Rounds.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Elements of 64 bytes that are read, a power of two; a 64th of it for cold reads, and for hand-overs, of which
    /// large ones have so many KiB.
    #[arg(long, default_value_t = 1 << 16)]
    pub elements: usize,
}

/// Nanoseconds by work.
pub type Told = BTreeMap<String, Vec<f64>>;

/// Bytes of an object that is read in turns.
type Element = [u64; 8];
/// Bytes of an object that is read cold.
type Small = [u64; 64];
/// Elements of the bunch, and objects in its place.
const NODES: usize = 1000;

struct Node {
    value: u64,
    next: Option<ElementId<Node>>,
}

/// Runs it, or starts its machines.
pub fn command(options: HeapRun) -> Result<()> {
    ensure!(options.elements.is_power_of_two() && options.elements >= 64, "--elements: a power of two from 64 on");
    if let Some(told) = over_rack(2, 2, options.fabric, move || measure(&options))? {
        println!("{}", serde_json::to_string(&told)?);
    }
    Ok(())
}

/// Bytes of an object that is handed over.
pub const HANDED_BYTES: usize = 64 << 10;

/// The machine that has the objects, how many are read, and those that each round reads.
struct Setup {
    there: Place,
    count: usize,
    own: Vec<Element>,
    other: Global<[Element]>,
}

/// A work, and its nanoseconds.
type Work = (&'static str, fn(&Setup) -> Result<f64>);

/// Over `shm` objects are read in place; over `tcp` they are copied, once each, so each round has its own.
const IN_PLACE: [Work; 3] = [
    ("64 B of an own slice", |setup| Ok(elements(setup.count, |i| setup.own[i]))),
    ("64 B of the other process", |setup| Ok(elements(setup.count, |i| setup.other.read()[i]))),
    ("64 KiB handed over", |setup| handed_over(setup.there, setup.count)),
];
const COPIED: [Work; 7] = [
    ("512 B, raw", |setup| raw(setup.count / 64, 512)),
    ("512 B, home idle", |setup| cold(setup.there, setup.count / 64)),
    ("512 B, home computing", |setup| computing(setup.there, setup.count / 64)),
    ("64 MiB, raw", |setup| raw(1, setup.count << 10)),
    ("64 MiB", |setup| large(setup.there, setup.count << 7)),
    ("a bunch of 1000", |setup| bunch(setup.there)),
    ("1000 owners", |setup| owners(setup.there)),
];

fn measure(options: &HeapRun) -> Result<Told> {
    let (there, count, element) = (Place::of(1, 0), options.elements, |i: usize| [i as u64; 8]);
    let other = at(there, move || heap::slice(count, element))?;
    let setup = Setup { there, count, own: (0..count).map(element).collect(), other };
    let works: &[Work] = if options.fabric == FabricChoice::Shm { &IN_PLACE } else { &COPIED };
    let mut told = Told::new();
    interleaved(options.rounds, works.len(), 1, |_, index| {
        let (work, run) = works[index];
        told.entry(work.to_owned()).or_default().push(run(&setup)?);
        Ok(())
    })?;
    Ok(told)
}

/// Each once, in random order; NaN for wrong values, which no target is met with.
#[inline(always)]
fn elements(count: usize, get: impl Fn(usize) -> Element) -> f64 {
    const PASSES: usize = 8;
    let (mut at, mut sum) = (0, 0u64);
    let began = Instant::now();
    for _ in 0..PASSES * count {
        at = next(at, count);
        sum = get(at).iter().fold(sum, |sum, word| sum.wrapping_add(*word));
    }
    let ns = began.elapsed().as_nanos() as f64 / (PASSES * count) as f64;
    let wanted = 8 * PASSES as u64 * (count as u64 * (count as u64 - 1) / 2);
    if sum == wanted { ns } else { f64::NAN }
}

/// Nanoseconds for each of the first reads of objects of the other process.
fn cold(there: Place, count: usize) -> Result<f64> {
    let objects = at(there, move || heap::slice(count, |i| Global::new([i as u64; 64])))?;
    let objects = objects.read();
    let began = Instant::now();
    for (i, object) in objects.iter().enumerate() {
        ensure!(object.read()[63] == i as u64, "object {i} is another one");
    }
    Ok(began.elapsed().as_nanos() as f64 / count as f64)
}

/// The same while the only worker there computes; as many as it takes that long, at most.
fn computing(there: Place, count: usize) -> Result<f64> {
    const COMPUTES: Duration = Duration::from_millis(300);
    let objects = Shared::from(at(there, move || heap::slice(count, |i| Global::new([i as u64; 64])))?);
    let objects = objects.read();
    let busy = gossamer::spawn_on(there, move || {
        let began = Instant::now();
        while began.elapsed() < COMPUTES {
            std::hint::spin_loop();
        }
    });
    gossamer::sleep(COMPUTES / 10);
    let (began, mut reads) = (Instant::now(), 0);
    for (i, object) in objects.iter().enumerate() {
        let value: &Small = &object.read();
        ensure!(value[63] == i as u64, "object {i} is another one");
        reads += 1;
        if began.elapsed() > COMPUTES / 2 {
            break;
        }
    }
    let ns = began.elapsed().as_nanos() as f64 / f64::from(reads);
    busy.join().map_err(|_| anyhow!("it did not compute"))?;
    Ok(ns)
}

/// One asks by 16 bytes and gets so many by a socket of this host, again and again.
fn raw(count: usize, bytes: usize) -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut socket = TcpStream::connect(listener.local_addr()?)?;
    let (mut peer, _) = listener.accept()?;
    socket.set_nodelay(true)?;
    peer.set_nodelay(true)?;
    let answers = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut asked, answer) = ([0; 16], vec![7; bytes]);
        for _ in 0..count {
            peer.read_exact(&mut asked)?;
            peer.write_all(&answer)?;
        }
        Ok(())
    });
    let mut into = vec![1; bytes];
    let began = Instant::now();
    for _ in 0..count {
        socket.write_all(&[1; 16])?;
        socket.read_exact(&mut into)?;
    }
    let ns = began.elapsed().as_nanos() as f64 / count as f64;
    answers.join().map_err(|_| anyhow!("who answers panicked"))??;
    ensure!(into.iter().all(|byte| *byte == 7), "what came is not what was sent");
    Ok(ns)
}

/// The first read of one object of the other process, of so many words.
fn large(there: Place, words: usize) -> Result<f64> {
    let object = at(there, move || heap::slice(words, |i| i as u64))?;
    let began = Instant::now();
    let object = object.read();
    let ns = began.elapsed().as_nanos() as f64;
    ensure!(object.len() == words && object.iter().zip(0..).all(|(word, i)| *word == i), "it is another one");
    Ok(ns)
}

/// The first and the last word of the object name the process whose turn it is.
fn stamp(words: &mut [u64], turn: u64) {
    let last = words.len() - 1;
    (words[0], words[last]) = (turn, turn);
}

fn is_stamped(words: &[u64], turn: u64) -> bool {
    words.first() == Some(&turn) && words.last() == Some(&turn)
}

/// Hands an object to the other process and back, again and again; its holder reads and writes it in place. Returns
/// nanoseconds for each hand-over.
fn handed_over(there: Place, turns: usize) -> Result<f64> {
    let (send, arrives_there) = Channel::new().at(there).open_plain::<Global<[u64]>>();
    let (answer, arrives) = Channel::new().at(gossamer::here()).open_plain::<Global<[u64]>>();
    let other = gossamer::spawn_on(there, move || {
        let mut wrong = 0;
        for (mut object, turn) in arrives_there.into_iter().zip((1..).step_by(2)) {
            wrong += u64::from(!is_stamped(&object.read(), turn));
            stamp(&mut object.write(), turn + 1);
            if answer.send(object).is_err() {
                break;
            }
        }
        wrong
    });
    let mut object = heap::slice(HANDED_BYTES / 8, |_| 0);
    let began = Instant::now();
    for turn in (1..=turns as u64).step_by(2) {
        stamp(&mut object.write(), turn);
        send.send(object).map_err(|_| anyhow!("nobody takes the object"))?;
        object = arrives.recv().map_err(|_| anyhow!("the object does not come back"))?;
        ensure!(is_stamped(&object.read(), turn + 1), "another one came back in turn {turn}");
    }
    let ns = began.elapsed().as_nanos() as f64 / turns as f64;
    drop(send);
    let wrong = other.join().map_err(|_| anyhow!("the other fiber panicked"))?;
    ensure!(wrong == 0, "{wrong} turns had another object");
    Ok(ns)
}

/// A list of the other process in one bunch, read for the first time: nanoseconds for all of it.
fn bunch(there: Place) -> Result<f64> {
    let list = at(there, || {
        let mut list = Bunch::with_capacity(None::<ElementId<Node>>, NODES * 32);
        let mut view = list.write();
        for value in 0..NODES as u64 {
            let next = *view;
            *view = Some(view.add(Node { value, next }));
        }
        list
    })?;
    let (began, mut sum) = (Instant::now(), 0);
    let view = list.read();
    let mut next = *view;
    while let Some(id) = next {
        sum += view[id].value;
        next = view[id].next;
    }
    ended(began, sum)
}

/// As many objects of their own, each read for the first time.
fn owners(there: Place) -> Result<f64> {
    let list = at(there, || heap::slice(NODES, |i| Global::new([i as u64; 2])))?;
    let list = list.read();
    let began = Instant::now();
    let sum = list.iter().map(|owner| owner.read()[1]).sum();
    ended(began, sum)
}

fn ended(began: Instant, sum: u64) -> Result<f64> {
    let elapsed = began.elapsed();
    ensure!(sum == (NODES * (NODES - 1) / 2) as u64, "the values add up to {sum}");
    Ok(elapsed.as_nanos() as f64)
}
