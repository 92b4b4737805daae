//! Costs of a durable trust beside the disk, on a file system that is memory where there is one: reads beside those of
//! a `Box`, many adds outstanding beside those on a plain trust, and inserts into the structures of Corundum's list.

use super::foreign::Foreign;
use super::puts::{Value, value};
use crate::prelude::*;
use gossamer_examples::trees::bst::Bst;
use trust::{Threadpool, Trust};
use trust_durable::{Durable, PBox, PMap, PVec, Persist};

/// Nodes of the lists that are read.
const NODES: u64 = 20_000;
/// Times that a list is read.
const READS: u32 = 50;
const COUNTERS: u64 = 1024;
const OUTSTANDING: u64 = 4096;

type Map = PMap<'static, u64, Value>;

#[derive(Persist)]
#[repr(C)]
struct Node<'p> {
    number: u64,
    next: Option<PBox<'p, Node<'p>>>,
}

struct Boxed {
    number: u64,
    next: Option<Box<Boxed>>,
}

/// Rates of one round, in millions a second, by what was done. Inserts are of random keys, all on disk at the end: a
/// search tree of 30,000, and a map of 65,536 that is then read in one closure.
pub type Rates = BTreeMap<&'static str, f64>;

/// Inserts so many scattered keys, each a transaction, and waits for the disk.
macro_rules! inserts {
    ($root:ty, $new:expr, $folder:expr, $entries:expr, |$tree:ident, $key:ident, $tx:ident| $insert:expr) => {{
        let pool = Threadpool::new(1);
        let tree = Durable::<$root>::builder().limit(1 << 30).open(pool.trustees()[0], $folder, |_| $new)?;
        let began = Instant::now();
        for number in 0..$entries {
            let $key = scattered(number);
            tree.apply_then(move |$tree, $tx| _ = $insert, |()| ());
        }
        tree.sync()?;
        let rate = $entries as f64 / began.elapsed().as_secs_f64() / 1e6;
        let len = tree.apply(|tree, _| tree.len());
        tree.close()?;
        ensure!(len as u64 == $entries, "{} entries of {}", len, $entries);
        rate
    }};
}

pub fn round(parent: &Path, time: Duration, entries: u64, pmem: Option<&Foreign>) -> Result<Rates> {
    let folder = tempfile::tempdir_in(parent)?;
    let (of_pbox, of_box) = reads(folder.path())?;
    let (durable, plain) = (adds_durable(folder.path(), time)?, adds_plain(time)?);
    let least = entries.min(30_000);
    let bst = inserts!(Bst<'static>, Bst::default(), folder.path().join("bst"), least, |tree, key, tx| tree
        .insert(key, key, tx));
    let map =
        inserts!(Map, PMap::new(), folder.path().join("map"), entries, |map, key, tx| map.insert(key, value(key), tx));
    let looks = u64::from(READS) * entries;
    let reads = map_reads(&folder.path().join("map"), entries, looks)?;
    let mut rates = Rates::from([
        ("reads by PBox", of_pbox),
        ("reads by Box", of_box),
        ("adds, 4,096 outstanding", durable),
        ("adds on a plain trust", plain),
        ("inserts, search tree", bst),
        ("inserts, map", map),
        ("reads, map", reads),
    ]);
    if let Some(pmem) = pmem {
        let (tree, map) = pmem.in_memory(folder.path(), least, entries, looks)?;
        rates.extend([
            ("inserts, search tree, libpmemobj", tree.inserts / 1e6),
            ("inserts, map, libpmemobj", map.inserts / 1e6),
            ("reads, map, libpmemobj", map.reads / 1e6),
        ]);
    }
    Ok(rates)
}

/// Looks for the keys of a map that was made above, in millions a second.
fn map_reads(folder: &Path, entries: u64, looks: u64) -> Result<f64> {
    let pool = Threadpool::new(1);
    let map = Durable::<Map>::builder().limit(1 << 30).open(pool.trustees()[0], folder, |_| PMap::new())?;
    let (found, rate) = map.peek(move |map| {
        let began = Instant::now();
        let keys = (0..looks).map(|look| scattered((scattered(look) >> 40) % entries));
        let found = keys.filter(|key| map.get(key).is_some_and(|found| found[..8] == key.to_le_bytes())).count();
        (found as u64, looks as f64 / began.elapsed().as_secs_f64() / 1e6)
    });
    map.close()?;
    ensure!(found == looks, "{found} of {looks} looks found their key");
    Ok(rate)
}

/// Another key for each number.
fn scattered(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Nodes a second, in millions, of a list in a pool and on the heap; both in closures on a trust.
fn reads(folder: &Path) -> Result<(f64, f64)> {
    let pool = Threadpool::new(1);
    let list = Durable::<Node>::open(pool.trustees()[0], folder.join("list"), |tx| {
        let first = Node { number: 0, next: None };
        (1..NODES).fold(first, |next, number| Node { number, next: Some(PBox::new(next, tx)) })
    })?;
    let boxed = pool.entrust(
        (1..NODES).fold(Boxed { number: 0, next: None }, |next, number| Boxed { number, next: Some(Box::new(next)) }),
    );
    let durable = list.peek(|list| {
        timed(|| std::iter::successors(Some(list), |node| node.next.as_deref()).map(|node| node.number).sum())
    });
    let plain = boxed.apply(|list| {
        timed(|| std::iter::successors(Some(&*list), |node| node.next.as_deref()).map(|node| node.number).sum())
    });
    list.close()?;
    let expected = NODES * (NODES - 1) / 2;
    ensure!(
        durable.0 == expected && plain.0 == expected,
        "a list adds up to {durable:?} and {plain:?}, not {expected}"
    );
    Ok((durable.1, plain.1))
}

/// Its result, and nodes a second, in millions.
fn timed(mut sum: impl FnMut() -> u64) -> (u64, f64) {
    let first = sum();
    let began = Instant::now();
    let all: u64 = (0..READS).map(|_| std::hint::black_box(sum())).fold(0, u64::wrapping_add);
    let rate = f64::from(READS) * NODES as f64 / began.elapsed().as_secs_f64() / 1e6;
    (if all == first * u64::from(READS) { first } else { 0 }, rate)
}

/// Adds by fibers until the time is over: how many, and the rate in millions a second.
fn adds(time: Duration, add: impl Fn(u64) -> Result<()> + Clone + 'static) -> Result<(u64, f64)> {
    let began = Instant::now();
    let end = began + time;
    let fibers: Vec<_> = (0..OUTSTANDING)
        .map(|fiber| {
            let add = add.clone();
            trust::spawn(move || -> Result<u64> {
                let mut made = 0;
                while Instant::now() < end {
                    add((fiber + made) % COUNTERS)?;
                    made += 1;
                }
                Ok(made)
            })
        })
        .collect();
    let made = fibers.into_iter().map(|fiber| fiber.join().map_err(|_| anyhow!("a client panicked"))?);
    let made: u64 = made.sum::<Result<u64>>()?;
    Ok((made, made as f64 / began.elapsed().as_secs_f64() / 1e6))
}

fn adds_durable(folder: &Path, time: Duration) -> Result<f64> {
    let pool = Threadpool::new(1);
    let counters = Durable::<PVec<u64>>::open(pool.trustees()[0], folder.join("counters"), |tx| {
        PVec::of((0..COUNTERS).map(|_| 0), tx)
    })?;
    let handle = counters.clone();
    let (made, rate) =
        adds(time, move |index| Ok(handle.call().apply(move |counters, _| counters[index as usize] += 1).wait()?))?;
    let sum = counters.apply(|counters, _| counters.iter().sum::<u64>());
    counters.close()?;
    ensure!(sum == made, "{made} adds come to {sum}");
    Ok(rate)
}

fn adds_plain(time: Duration) -> Result<f64> {
    let pool = Threadpool::new(1);
    let counters: Trust<Vec<u64>> = pool.entrust(vec![0; COUNTERS as usize]);
    let handle = counters.clone();
    let (made, rate) = adds(time, move |index| {
        handle.apply(move |counters| counters[index as usize] += 1);
        Ok(())
    })?;
    let sum = counters.apply(|counters| counters.iter().sum::<u64>());
    ensure!(sum == made, "{made} adds come to {sum}");
    Ok(rate)
}
