//! The contender of `gossamer-bench array` over Lamellar's `AtomicArray`: elements read one by one with `load`,
//! incremented in bulk with `batch_add`, in blocks over two processes of this host and its shared memory.
//!
//! Started without Lamellar's variables it starts itself as these processes. Here: how an element is accessed. Not
//! here: which elements, and their values (the package `exchange`).

use std::env;
use std::process::{Child, Command, Stdio, exit, id};
use std::thread::sleep;
use std::time::Duration;

use clap::Parser;
use exchange::array::{Job, Outcome, Work, sum_of, value, wrong};
use exchange::now_ns;
use lamellar::LamellarWorldBuilder;
use lamellar::active_messaging::prelude::*;
use lamellar::array::prelude::*;
use rustix::process::{Signal, set_parent_process_death_signal};

const PROCESSES: usize = 2;
const OWN: &str = "LAMELLAR_PE_ID";
/// Between two looks at the processes.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Far more than the elements and the buffers of any job.
const HEAP_BYTES: usize = 1 << 30;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Parser)]
struct Options {
    #[command(flatten)]
    job: Job,
}

fn main() {
    let Options { job } = Options::parse();
    let done = if env::var_os(OWN).is_some() { take_part(&job) } else { lead(&job) };
    if let Err(error) = done {
        eprintln!("array-lamellar: {error}");
        exit(1);
    }
}

/// Starts the processes and waits for them.
fn lead(job: &Job) -> Result<()> {
    job.check()?;
    let start = |own: usize| -> Result<Child> {
        let mut command = Command::new(env::current_exe()?);
        command.args(job.arguments()).stdin(Stdio::null());
        command.env(OWN, own.to_string()).env("LAMELLAR_NUM_PES", PROCESSES.to_string());
        // Names the files in shared memory: of these processes alone.
        command.env("LAMELLAR_JOB_ID", id().to_string()).env("LAMELLAR_BACKEND", "shmem");
        command.env("LAMELLAR_THREADS", "1").env("LAMELLAR_HEAP_SIZE", HEAP_BYTES.to_string());
        Ok(command.spawn()?)
    };
    let mut children = (0..PROCESSES).map(start).collect::<Result<Vec<_>>>()?;
    // One that has failed never reaches the barrier at which the others wait.
    while !children.is_empty() {
        for index in (0..children.len()).rev() {
            match children[index].try_wait()? {
                Some(status) if status.success() => drop(children.swap_remove(index)),
                Some(status) => {
                    children.swap_remove(index);
                    children.iter_mut().try_for_each(Child::kill)?;
                    return Err(format!("a process ended with {status}").into());
                }
                None => {}
            }
        }
        sleep(LOOK_EVERY);
    }
    Ok(())
}

fn take_part(job: &Job) -> Result<()> {
    // A run that hangs is ended by killing the leading process.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let world = LamellarWorldBuilder::new().build();
    let own = world.my_pe();
    let array = AtomicArray::<u64>::new(&world, job.elements, Distribution::Block).block();
    let each = job.elements / PROCESSES;
    let outcome = match job.work {
        Work::Pass => {
            let local = array.local_data();
            (0..each).for_each(|at| local.at(at).store(value(own * each + at)));
            world.barrier();
            let (start, mut sum) = (now_ns(), 0u64);
            if own == 0 {
                sum = job.remote().fold(0, |sum, index| sum.wrapping_add(array.load(index).block()));
            }
            let end = now_ns();
            world.barrier();
            if own == 0 && sum != sum_of(job.remote()) {
                return Err("the elements come to a wrong sum".into());
            }
            Outcome::new(job.remote().len() as u64, start, end)
        }
        Work::Zipf | Work::Uniform => {
            let picks: Vec<usize> = job.picks(own).into_iter().map(|pick| pick as usize).collect();
            let ops = (PROCESSES * picks.len()) as u64;
            // Times of both are put together in an array of their own: starts, then ends.
            let spans = AtomicArray::<u64>::new(&world, 3 * PROCESSES, Distribution::Block).block();
            world.barrier();
            let start = now_ns();
            array.batch_add(picks, 1).block();
            let end = now_ns();
            world.wait_all();
            world.barrier();
            let local = array.local_data();
            let elements: Vec<u64> = (0..each).map(|at| local.at(at).load()).collect();
            let wrong = wrong(&job.expected(PROCESSES, own * each..(own + 1) * each), &elements);
            for (row, value) in [start, end, wrong].into_iter().enumerate() {
                spans.store(row * PROCESSES + own, value).block();
            }
            world.barrier();
            let all =
                |row: usize| (0..PROCESSES).map(|of| spans.load(row * PROCESSES + of).block()).collect::<Vec<_>>();
            let wrong: u64 = all(2).iter().sum();
            if wrong != 0 {
                return Err(format!("{wrong} elements are wrong").into());
            }
            let (starts, ends) = (all(0), all(1));
            let start = starts.into_iter().min().unwrap_or_default();
            Outcome::new(ops, start, ends.into_iter().max().unwrap_or_default())
        }
        work => return Err(format!("Lamellar has no part in {work}").into()),
    };
    world.barrier();
    if own == 0 {
        println!("{}", outcome.line()?);
    }
    Ok(())
}
