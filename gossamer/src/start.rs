//! The start of a program on this machine, and its end (thesis 3.2.2).
//!
//! Alone, with no launcher: a pool of workers in this process, and `gsm_main` as its first fiber. As machine m of N:
//!
//! 1. take up what the launcher left; from here on the launcher can end this process (`fate`)
//! 2. divide the workers; compute the layout; open the fabric with a region of that size
//! 3. hello: is everyone the same program?
//! 4. start the pool; attach each worker to all workers of the other machines; tell the launcher that this machine is ready
//! 5. machine 0 runs `gsm_main`, waits for the fibers of its own workers, and tells the launcher that the program is over;
//!    the others serve until the launcher ends them

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use comm::Fabric;
use comm::shm::ShmFabric;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use trust::{Builder, Threadpool, TrusteeReference};

use crate::bootstrap::Bootstrap;
use crate::control::Message;
use crate::error::StartError;
use crate::fate;
use crate::rack::{Machine, Program, Rack};
use crate::remote::{Image, Layout, Wiring, exchange};

/// How long the machines of a program may take to come up.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Stack of a fiber, that of `gsm_main` included. Only touched pages cost memory.
const STACK_BYTES: usize = 1 << 20;
/// Stands for a connection that no worker uses (`remote/hello.rs`), so no machine has as many workers.
const WORKERS_MAX: usize = u16::MAX as usize - 1;

/// Runs `gsm_main` as the first fiber of a program that spans the rack, with `threads` workers in all (0: as many as this
/// host has cores; the launcher's `--threads` counts more).
///
/// Started by `gossamer-launch`, this process is one machine of the program: `gsm_main` runs on machine 0, while the other
/// machines serve and do not return from here. Started by itself, it is the whole rack: the same program, no set-up.
/// Returns when `gsm_main` has returned and all fibers of the workers of this machine have ended; fibers of other
/// machines that nobody waits for end there and then, as threads do at the end of a process's `main`.
///
/// Call it once, first thing in `main`. What stands before it runs on every machine.
///
/// ```
/// fn gsm_main() {
///     let counter = gossamer::entrust(0);
///     let other = counter.clone();
///     gossamer::spawn(move || other.apply(|c| *c += 1)).join().unwrap();
///     assert_eq!(counter.apply(|c| *c), 1);
/// }
///
/// gossamer::main(gsm_main, 4);
/// ```
///
/// # Panics, exits
/// If `gsm_main` panics the process ends with status 101. If the machine cannot start, the process says why and ends with
/// status 70. Panics if called a second time.
///
/// Source: thesis 3.2.2, table II.
pub fn main<F: FnOnce() + Send + 'static>(gsm_main: F, threads: usize) {
    let run = match Bootstrap::from_env() {
        Ok(None) => run_alone(gsm_main, threads),
        Ok(Some(bootstrap)) => run_machine(bootstrap, gsm_main, threads),
        Err(error) => Err(error.into()),
    };
    match run {
        Ok(0) => {}
        Ok(status) => std::process::exit(i32::from(status)),
        Err(error) => fate::end(&error.to_string()),
    }
}

/// The program as one process. Returns its exit status.
fn run_alone<F: FnOnce() + Send + 'static>(gsm_main: F, threads: usize) -> Result<u8, StartError> {
    let workers = divide(threads, 1)?;
    let layout = Layout::new(workers.clone());
    let pool = builder(workers[0], 0).try_build()?;
    let machine = machine(&layout, 0, host(), std::process::id());
    begin(Rack { machine: 0, machines: vec![machine] }, &pool);
    Ok(run_first_fiber(pool, gsm_main))
}

/// The program as one machine of several. Returns its exit status, on machine 0.
fn run_machine<F: FnOnce() + Send + 'static>(
    bootstrap: Bootstrap,
    gsm_main: F,
    threads: usize,
) -> Result<u8, StartError> {
    let Bootstrap { machine: own, plan, memory, control } = bootstrap;
    let control = fate::share(control).map_err(StartError::Thread)?;
    let Some(memory) = memory else { return Err(StartError::NoFabric { fabric: plan.fabric }) };
    let told = plan.threads.map(|threads| threads as usize);
    let layout = Arc::new(Layout::new(divide(told.unwrap_or(threads), plan.machines.len() as u16)?));
    let image = Image::of_program().map_err(StartError::Image)?;
    let fabric: Arc<dyn Fabric> = Arc::new(ShmFabric::open(memory, layout.region_bytes(own), START_TIMEOUT)?);
    let hellos = exchange(&*fabric, &layout, image.id(), host(), START_TIMEOUT)?;

    trust::link::set_machine(own).map_err(StartError::TooLate)?;
    let pool = start_pool(&layout, own)?;
    let machines = hellos.into_iter().map(|hello| machine(&layout, hello.machine, hello.host, hello.process));
    begin(Rack { machine: own, machines: machines.collect() }, &pool);
    attach(&pool, &Wiring { fabric, layout, image })?;
    control.send(&Message::Ready { pid: std::process::id() })?;
    if own != 0 {
        serve_until_the_end();
    }
    let status = run_first_fiber(pool, gsm_main);
    fate::finish(&control, status);
    Ok(status)
}

/// The workers of each machine: as equal as can be, at least one each.
fn divide(threads: usize, machines: u16) -> Result<Vec<u16>, StartError> {
    let count = usize::from(machines);
    let threads = match threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from).max(count),
        // A program that asks for few still runs on many machines.
        asked => asked.max(count),
    };
    let share = |machine| threads / count + usize::from(machine < threads % count);
    if share(0) > WORKERS_MAX {
        return Err(StartError::Threads { threads, machines });
    }
    Ok((0..count).map(|machine| share(machine) as u16).collect())
}

fn builder(workers: u16, machine: u16) -> Builder {
    Threadpool::builder().workers(usize::from(workers)).stack_bytes(STACK_BYTES).name(&format!("m{machine}"))
}

/// Starts the workers of a machine. If the host has a core for each worker of the program they are pinned, each machine's to
/// cores of its own; if not, nobody is pinned or spins.
fn start_pool(layout: &Layout, own: u16) -> Result<Threadpool, StartError> {
    let workers = usize::from(layout.workers()[usize::from(own)]);
    let before: usize = layout.workers()[..usize::from(own)].iter().map(|&workers| usize::from(workers)).sum();
    let total: usize = layout.workers().iter().map(|&workers| usize::from(workers)).sum();
    let builder = builder(workers as u16, own);
    let cores: Vec<usize> = match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect(),
        Err(_) => Vec::new(),
    };
    if total > cores.len() {
        return Ok(builder.pin(false).spin(Duration::ZERO).try_build()?);
    }
    let mut own_cores = CpuSet::new();
    cores[before..before + workers].iter().for_each(|&core| own_cores.set(core));
    // On a thread of its own: workers inherit its cores, while this thread keeps all.
    let build = || {
        // Where that fails the workers are pinned among all cores.
        let _ = sched_setaffinity(None, &own_cores);
        builder.pin(true).try_build()
    };
    let pool = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, build).map_err(StartError::Thread)?;
        Ok::<_, StartError>(thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })?;
    Ok(pool?)
}

fn begin(rack: Rack, pool: &Threadpool) {
    let trustees: Vec<TrusteeReference> = pool.trustees().to_vec();
    assert!(Program::begin(rack, trustees), "`gossamer::main` was called before: a process runs one program");
}

fn attach(pool: &Threadpool, wiring: &Wiring) -> Result<(), StartError> {
    for (worker, trustee) in (0u16..).zip(pool.trustees()) {
        let wiring = wiring.clone();
        let attached = trust::spawn_on(trustee, move || wiring.attach(worker)).join();
        attached.map_err(|panic| StartError::Worker(panic_text(&*panic)))??;
    }
    Ok(())
}

/// Runs `gsm_main`, waits for all fibers of this machine, and says with which status the program ends.
fn run_first_fiber<F: FnOnce() + Send + 'static>(pool: Threadpool, gsm_main: F) -> u8 {
    let outcome = pool.spawn_on(0, gsm_main).join();
    if outcome.is_err() {
        // The panic has told of itself. Other fibers may wait for what `gsm_main` will not do any more: nobody waits for them.
        std::mem::forget(pool);
        return fate::PANIC_STATUS;
    }
    drop(pool);
    0
}

/// Until the launcher ends this process.
fn serve_until_the_end() -> ! {
    loop {
        std::thread::park();
    }
}

fn machine(layout: &Layout, machine: u16, host: String, process: u32) -> Machine {
    let workers = layout.workers()[usize::from(machine)];
    Machine { workers, host, process, slots_bytes: layout.slots_bytes(machine) }
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a text").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_divided_evenly_and_everyone_has_one() {
        assert_eq!(divide(7, 3).unwrap(), [3, 2, 2]);
        assert_eq!(divide(1, 4).unwrap(), [1, 1, 1, 1]);
        assert_eq!(divide(5, 1).unwrap(), [5]);
        assert!(divide(0, 200).unwrap().iter().all(|&workers| workers >= 1));
        assert!(matches!(divide(70_000, 1), Err(StartError::Threads { threads: 70_000, machines: 1 })));
    }
}
