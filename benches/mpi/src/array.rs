//! The contender of `gossamer-bench array` over the windows of MPI: each of two ranks has half of the elements in its
//! window.
//!
//! Read one by one with `MPI_Get` and a flush, as `get` has its value when it returns; in chunks of 4 KiB, each into
//! the same buffer; incremented with `MPI_Accumulate`, flushed now and then. Windows are those of `MPI_Win_allocate`:
//! on one host, shared memory.
//!
//! Here: how an element is reached. Not here: which elements, and what they must hold (the package `exchange`).

use std::ffi::c_void;
use std::ptr::null_mut;
use std::slice;

use clap::Parser;
use exchange::array::{CHUNK, Job, Outcome, Work, sum_of, value, wrong};
use exchange::now_ns;
use mpi::collective::SystemOperation;
use mpi::ffi;
use mpi::raw::AsRaw;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

/// Increments between two flushes.
const FLUSH_EVERY: usize = 1024;
const RANKS: i32 = 2;

#[derive(Parser)]
struct Options {
    /// Read chunks of 4 KiB.
    #[arg(long)]
    chunks: bool,
    /// Elements that are read at once, without `--chunks`.
    #[arg(long, default_value_t = 1)]
    words: usize,
    #[command(flatten)]
    job: Job,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Options { chunks, words, job } = Options::parse();
    job.check()?;
    if words == 0 {
        return Err("--words: at least 1".into());
    }
    let universe = mpi::initialize().ok_or("MPI could not be started")?;
    let world = universe.world();
    if world.size() != RANKS {
        return Err("start two ranks: mpirun -n 2".into());
    }
    let mut window = Window::new(&world, job.elements / RANKS as usize);
    let own = world.rank() as usize;
    let outcome = match job.work {
        Work::Pass => pass(&world, &mut window, &job, if chunks { CHUNK } else { words })?,
        Work::Zipf | Work::Uniform => increment(&world, &window, &job)?,
        work => return Err(format!("MPI has no part in {work}").into()),
    };
    if own == 0 {
        println!("{}", outcome.line()?);
    }
    Ok(())
}

/// The elements of this rank, which the other one reaches too.
struct Window {
    window: ffi::MPI_Win,
    base: *mut u64,
    elements: usize,
    own: usize,
}

impl Window {
    /// Opens it in both ranks, with all elements 0.
    fn new(world: &SimpleCommunicator, elements: usize) -> Window {
        let bytes = (elements * size_of::<u64>()) as ffi::MPI_Aint;
        let (mut window, mut base) = (std::mem::MaybeUninit::uninit(), null_mut::<u64>());
        let own = world.rank() as usize;
        // SAFETY: MPI is initialised; both ranks call this; `base` is where MPI tells the address of `bytes` bytes,
        // aligned for any element. The lock is of all ranks, shared, and held until the window goes.
        unsafe {
            let info = ffi::RSMPI_INFO_NULL;
            let told = (&raw mut base).cast::<c_void>();
            ffi::MPI_Win_allocate(bytes, size_of::<u64>() as i32, info, world.as_raw(), told, window.as_mut_ptr());
            base.write_bytes(0, elements);
        }
        // SAFETY: the call above has written it.
        let window = unsafe { window.assume_init() };
        // SAFETY: a window of both ranks that nobody has locked.
        unsafe { ffi::MPI_Win_lock_all(0, window) };
        let opened = Window { window, base, elements, own };
        opened.sync(world);
        opened
    }

    /// The rank's own elements.
    fn elements(&self) -> &[u64] {
        // SAFETY: so many elements, all written in `new`; the other rank changes them only between two calls of `sync`,
        // and this slice is used outside of these.
        unsafe { slice::from_raw_parts(self.base, self.elements) }
    }

    fn fill(&mut self, of: impl Fn(usize) -> u64) {
        for at in 0..self.elements {
            // SAFETY: within the window, and the other rank accesses it after the next `sync`.
            unsafe { self.base.add(at).write(of(at)) };
        }
    }

    /// Makes the writes of either rank visible to both.
    fn sync(&self, world: &SimpleCommunicator) {
        // SAFETY: the window is open and locked.
        unsafe {
            ffi::MPI_Win_flush_all(self.window);
            ffi::MPI_Win_sync(self.window);
        }
        world.barrier();
        // SAFETY: as above.
        unsafe { ffi::MPI_Win_sync(self.window) };
    }

    /// Reads elements of a rank; they are there on return.
    #[inline(always)]
    fn get(&self, rank: usize, at: usize, to: &mut [u64]) {
        let (words, rank, at) = (to.len() as i32, rank as i32, at as ffi::MPI_Aint);
        // SAFETY: MPI checks the range in the other's window; `to` has room for so many words, and is left alone until
        // the flush.
        unsafe {
            let word = ffi::RSMPI_UINT64_T;
            ffi::MPI_Get(to.as_mut_ptr().cast(), words, word, rank, at, words, word, self.window);
            ffi::MPI_Win_flush(rank, self.window);
        }
    }

    /// Increments an element of a rank; `one` must stay until the next flush.
    #[inline(always)]
    fn increment(&self, rank: usize, at: usize, one: &'static u64) {
        let (rank, at) = (rank as i32, at as ffi::MPI_Aint);
        // SAFETY: MPI checks the place in the other's window; `one` stays.
        unsafe {
            let word = ffi::RSMPI_UINT64_T;
            let from = (&raw const *one).cast();
            ffi::MPI_Accumulate(from, 1, word, rank, at, 1, word, ffi::RSMPI_SUM, self.window);
        }
    }

    fn flush(&self) {
        // SAFETY: the window is open and locked.
        unsafe { ffi::MPI_Win_flush_all(self.window) };
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: both ranks come here, with all that they started flushed, before MPI is ended.
        unsafe {
            ffi::MPI_Win_unlock_all(self.window);
            ffi::MPI_Win_free(&mut self.window);
        }
    }
}

/// Rank 0 reads the elements of rank 1, so many at a time.
fn pass(world: &SimpleCommunicator, window: &mut Window, job: &Job, chunk: usize) -> Result<Outcome, String> {
    let first = window.own * window.elements;
    window.fill(|at| value(first + at));
    window.sync(world);
    let (range, mut buffer, mut sum) = (job.remote(), vec![0; chunk], 0u64);
    let start = now_ns();
    if window.own == 0 {
        for at in (0..range.len()).step_by(chunk) {
            let count = chunk.min(range.len() - at);
            window.get(1, at, &mut buffer[..count]);
            sum = buffer[..count].iter().fold(sum, |sum, element| sum.wrapping_add(*element));
        }
    }
    let end = now_ns();
    window.sync(world);
    if window.own == 0 && sum != sum_of(range.clone()) {
        return Err("the elements come to a wrong sum".to_owned());
    }
    Ok(Outcome::new(range.len() as u64, start, end))
}

/// Both ranks increment elements of either.
fn increment(world: &SimpleCommunicator, window: &Window, job: &Job) -> Result<Outcome, String> {
    let picks = job.picks(window.own);
    window.sync(world);
    let start = now_ns();
    for (made, pick) in picks.iter().map(|pick| *pick as usize).enumerate() {
        window.increment(pick / window.elements, pick % window.elements, &1);
        if made % FLUSH_EVERY == FLUSH_EVERY - 1 {
            window.flush();
        }
    }
    window.flush();
    let end = now_ns();
    window.sync(world);
    let first = window.own * window.elements;
    let wrong = wrong(&job.expected(RANKS as usize, first..first + window.elements), window.elements());
    let (mut all_wrong, mut first_start, mut last_end) = (0, 0, 0);
    world.all_reduce_into(&wrong, &mut all_wrong, SystemOperation::sum());
    world.all_reduce_into(&start, &mut first_start, SystemOperation::min());
    world.all_reduce_into(&end, &mut last_end, SystemOperation::max());
    if all_wrong != 0 {
        return Err(format!("{all_wrong} elements are wrong"));
    }
    Ok(Outcome::new((RANKS as usize * picks.len()) as u64, first_start, last_end))
}
