//! The means of all contenders of `array`, and those that need no rack: a plain `Vec`, a copy of memory, and chunks
//! with counted references.

use crate::machine::pin;
use crate::prelude::*;
use exchange::array::{CHUNK, Job, Outcome, Work, sum_of, value, wrong};
use exchange::now_ns;
use gossamer_examples::heat::by_threads;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The means by which elements are accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Means {
    /// The array: `get`, `set`, `apply`.
    Array,
    /// The array, whole chunks: `views`.
    ArrayViews,
    /// The array, operations in bulk: `apply_all`.
    ArrayBulk,
    /// The array: `write_lock`, then `get` and `set`.
    ArrayLock,
    /// A `Vec` at each place, by `apply_then`.
    #[value(name = "apply_then")]
    Trusts,
    /// A plain `Vec`.
    Vec,
    /// A copy of memory.
    Memcpy,
    /// Chunks with counted references.
    Counted,
}

pub fn measure(contender: Means, job: &Job) -> Result<Outcome> {
    match (contender, job.work) {
        (Means::Vec, Work::Heat) => return heat(job),
        (Means::Counted, Work::Sets) => return sets(job),
        _ => {}
    }
    pin(0);
    match (contender, job.work) {
        (Means::Vec, Work::Hits) => passes(job, &values(job.elements), |values| {
            // Opaque addresses, or the compiler would add several elements at a time.
            (0..values.len()).fold(0u64, |sum, index| sum.wrapping_add(*black_box(&values[index])))
        }),
        (Means::Vec, Work::Sum) => {
            passes(job, &values(job.elements), |values| values.iter().fold(0, |sum, value| sum.wrapping_add(*value)))
        }
        (Means::Counted, Work::Hits) => passes(job, &Counted::new(job.elements, value), |counted| {
            (0..counted.len).fold(0u64, |sum, index| sum.wrapping_add(counted.get(index)))
        }),
        (Means::Memcpy, Work::Pass) => copy(job),
        (contender, work) => bail!("{contender:?} has no part in {work}"),
    }
}

fn values(elements: usize) -> Vec<u64> {
    (0..elements).map(value).collect()
}

/// Goes through all elements again and again; each pass must come to the same sum.
pub fn passes<E: ?Sized>(job: &Job, elements: &E, pass: impl Fn(&E) -> u64) -> Result<Outcome> {
    let wanted = sum_of(0..job.elements);
    let (start, mut good) = (now_ns(), 0);
    for _ in 0..job.passes() {
        good += usize::from(pass(black_box(elements)) == wanted);
    }
    let end = now_ns();
    ensure!(good == job.passes(), "{} of {} sums are wrong", job.passes() - good, job.passes());
    Ok(Outcome::new((job.passes() * job.elements) as u64, start, end))
}

/// Two threads, each with half of the rows.
fn heat(job: &Job) -> Result<Outcome> {
    let (rows, steps) = (job.rows(), job.ops as u64);
    let (plate, time) = by_threads(rows, steps, 0, 2);
    ensure!(plate == by_threads(rows, steps, 0, 1).0, "it is not as on one thread");
    Ok(Outcome { ops: (rows * rows) as u64 * steps, seconds: time.as_secs_f64() })
}

/// Two threads set elements of the same chunks.
fn sets(job: &Job) -> Result<Outcome> {
    let (all, picks) = (Counted::new(job.elements, |_| 0), [0, 1].map(|own| job.picks(own)));
    let start = now_ns();
    std::thread::scope(|scope| {
        for picks in &picks {
            scope.spawn(|| picks.iter().for_each(|&pick| all.set(pick as usize, value(pick as usize))));
        }
    });
    let end = now_ns();
    let found: Vec<u64> = (0..all.len).map(|index| all.get(index)).collect();
    let wrong = wrong(&job.expected(picks.len(), 0..all.len), &found);
    ensure!(wrong == 0, "{wrong} elements are wrong");
    Ok(Outcome::new(picks.iter().map(Vec::len).sum::<usize>() as u64, start, end))
}

fn copy(job: &Job) -> Result<Outcome> {
    let from: Vec<u64> = job.remote().map(value).collect();
    let mut to = vec![0; from.len()];
    // Pages of memory that was never written are none yet; an array's are there before it is used.
    to.fill(1);
    let start = now_ns();
    black_box(&mut to).copy_from_slice(black_box(&from));
    let end = now_ns();
    ensure!(to == from, "the copy differs");
    Ok(Outcome::new(to.len() as u64, start, end))
}

/// The work of DArray's figure 4 on each access: a reference to the chunk is counted, the delay flag read, the element
/// accessed, and the reference given back. Two atomic read-modify-writes, where several threads may use a machine's
/// right to a chunk.
struct Counted {
    len: usize,
    chunks: Vec<Chunk>,
}

#[derive(Default)]
struct Chunk {
    references: AtomicU32,
    /// A recall is about to take the chunk away; in this contender none does.
    delay: AtomicBool,
    elements: Vec<AtomicU64>,
}

impl Counted {
    fn new(len: usize, of: impl Fn(usize) -> u64) -> Counted {
        let chunk = |start: usize| Chunk {
            elements: (start..start + CHUNK).map(|index| AtomicU64::new(of(index))).collect(),
            ..Chunk::default()
        };
        Counted { len, chunks: (0..len).step_by(CHUNK).map(chunk).collect() }
    }

    #[inline(always)]
    fn access<R>(&self, index: usize, access: impl Fn(&AtomicU64) -> R) -> R {
        let chunk = &self.chunks[index / CHUNK];
        loop {
            // Read before the flag, in the order in which a recaller sees both.
            chunk.references.fetch_add(1, Ordering::SeqCst);
            if !chunk.delay.load(Ordering::SeqCst) {
                break;
            }
            chunk.references.fetch_sub(1, Ordering::SeqCst);
            while chunk.delay.load(Ordering::SeqCst) {
                spin_loop();
            }
        }
        let accessed = access(&chunk.elements[index % CHUNK]);
        chunk.references.fetch_sub(1, Ordering::SeqCst);
        accessed
    }

    #[inline(always)]
    fn get(&self, index: usize) -> u64 {
        self.access(index, |element| element.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn set(&self, index: usize, value: u64) {
        self.access(index, |element| element.store(value, Ordering::Relaxed));
    }
}
