//! Start of a program on this machine, and its end (thesis 3.2.2).
//!
//! Alone, with no launcher: a pool of workers in this process, and `gsm_main` as its first fiber. As machine m of N,
//! with our launcher or another one (`rendezvous`):
//!
//! 1. take over the launch descriptor; from here on the launcher can end this process (`fate`)
//! 2. find the other machines, and open the fabric to them (`connect`); from here on their death ends this process too
//! 3. start the workers, the service thread and, where asked for, the page server; report to the launcher that this
//!    machine is ready; attach each of them to all those of the other machines
//! 4. machine 0 runs `gsm_main`, waits for the fibers of its own workers, and reports to the launcher that the program
//!    is over; the others serve until the launcher ends them

use std::sync::Arc;
use std::time::Duration;

use trust::link::panic_text;
use trust::{Threadpool, TrusteeReference};

use crate::bootstrap::Bootstrap;
use crate::builder::{Builder, builder};
use crate::connect::{Connected, connect};
use crate::control::Message;
use crate::controller::become_launcher;
use crate::error::StartError;
use crate::fate;
use crate::losses;
use crate::membership::Member;
use crate::rack::{Machine, Program, Rack, Transport};
use crate::remote::{Image, Layout, Slots, Wiring};
use crate::rendezvous::{self, Start};
use crate::supervise::signals::outlive_usr1;
use crate::termination::Termination;
use crate::workers::Asked;
use crate::{Place, fabric, page_server, service, stuck, view, workers};

/// Value of [`Rack::starter`] if our launcher has started the program.
const LAUNCHER: &str = "gossamer-launch";

/// Runs `gsm_main` as the first fiber of a program that spans the rack, with `threads` workers in all (0: as many as
/// this host has cores; the launcher's `--threads` takes precedence).
///
/// Started by `gossamer-launch`, this process is one machine of the program: `gsm_main` runs on machine 0, while the
/// other machines serve and do not return from here. The same holds if Slurm, `mpirun`, hydra or variables have started
/// several processes of it ([`Rack::starter`]). Started by itself, it is the whole rack: the same program, no set-up.
/// If the environment variable `GOSSAMER_RACK` names a `rack.yaml`, it becomes `gossamer-launch run` and runs on that
/// rack. Returns when `gsm_main` has returned and all fibers of this machine's workers have ended; fibers of other
/// machines that nobody joins end there and then, as threads do at the end of a process's `main`.
///
/// Call it once, first thing in `main`. Code before it runs on every machine.
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
/// `gsm_main` returns nothing, an exit status (`u8`), or a `Result` whose error is printed: [`Termination`].
///
/// ```
/// fn gsm_main() -> Result<(), std::num::ParseIntError> {
///     let step: u64 = "3".parse()?;
///     assert_eq!(gossamer::entrust(4).apply(move |n| *n + step), 7);
///     Ok(())
/// }
///
/// gossamer::main(gsm_main, 2);
/// ```
///
/// # Panics, exits
/// If `gsm_main` panics the process ends with status 101; if it returns an error, with status 1. If the machine cannot
/// start, the process prints the cause and ends with status 70. Panics if called a second time.
///
/// [`builder`](crate::builder) starts the program with other settings.
///
/// Source: thesis 3.2.2, table II.
pub fn main<R: Termination, F: FnOnce() -> R + Send + 'static>(gsm_main: F, threads: usize) {
    start(&builder(), gsm_main, threads);
}

impl Builder {
    /// Runs the program as [`main`](crate::main) does, with these settings.
    ///
    /// # Panics, exits
    /// Same as [`main`](crate::main). A setting out of range is reported, and the process ends with status 70.
    ///
    /// Example: at [`builder`](crate::builder).
    pub fn main<R: Termination, F: FnOnce() -> R + Send + 'static>(self, gsm_main: F, threads: usize) {
        start(&self, gsm_main, threads);
    }
}

/// Runs [`main`] with these settings.
pub(crate) fn start<R: Termination, F: FnOnce() -> R + Send + 'static>(
    settings: &Builder,
    gsm_main: F,
    threads: usize,
) {
    match start_with_status(settings, move || gsm_main().failure(), threads) {
        0 => {}
        status => std::process::exit(i32::from(status)),
    }
}

/// Runs the program as [`start`] does, but `gsm_main` may return the program's exit status: the program ends then and
/// there, without waiting for fibers. Returns the status.
pub(crate) fn start_with_status<F>(settings: &Builder, gsm_main: F, threads: usize) -> u8
where
    F: FnOnce() -> Option<u8> + Send + 'static,
{
    run(settings, gsm_main, threads).unwrap_or_else(|error| fate::fail_to_start(&error))
}

fn run<F>(settings: &Builder, gsm_main: F, threads: usize) -> Result<u8, StartError>
where
    F: FnOnce() -> Option<u8> + Send + 'static,
{
    let settings = &settings.with_environment(rendezvous::ENVIRONMENT)?;
    if let Some(bootstrap) = Bootstrap::from_env()? {
        return run_machine(settings, bootstrap, LAUNCHER.to_owned(), gsm_main, threads);
    }
    match rendezvous::start()? {
        Start::Machine(bootstrap, starter) => run_machine(settings, *bootstrap, starter, gsm_main, threads),
        Start::Alone => {
            become_launcher()?;
            run_alone(settings, gsm_main, threads)
        }
    }
}

/// Runs the program as one process. Returns its exit status.
fn run_alone<F>(settings: &Builder, gsm_main: F, threads: usize) -> Result<u8, StartError>
where
    F: FnOnce() -> Option<u8> + Send + 'static,
{
    let workers = workers::alone(threads)?;
    let pool = workers::builder(settings, workers, 0).try_build()?;
    let slots_bytes = Layout::with_hidden(vec![workers], service::HIDDEN_WORKERS, Slots::SHM).slots_bytes(0);
    let (address, process) = (std::net::Ipv4Addr::LOCALHOST.into(), std::process::id());
    let machine = Machine { workers, host: host(), address, process, slots_bytes, transport: Transport::Here };
    begin(Rack { machine: 0, machines: vec![machine], starter: "alone".to_owned() }, &pool);
    view::serve_if_wanted(Arc::new(view::Here));
    Ok(run_first_fiber(Threads { workers: pool, service: None, page_server: None }, gsm_main))
}

/// Runs the program as one machine of several. Returns its exit status, on machine 0.
fn run_machine<F>(
    settings: &Builder,
    bootstrap: Bootstrap,
    starter: String,
    gsm_main: F,
    threads: usize,
) -> Result<u8, StartError>
where
    F: FnOnce() -> Option<u8> + Send + 'static,
{
    let Bootstrap { machine: own, plan, memory, control } = bootstrap;
    let (control, messages) = fate::share(control).map_err(StartError::Thread)?;
    let image = Image::of_program().map_err(StartError::Image)?;
    let hidden = if settings.has_page_servers { page_server::HIDDEN_WORKERS } else { service::HIDDEN_WORKERS };
    let Builder { machine_ways, direct_ways, .. } = *settings;
    let asked = Asked { threads, hidden, machine_ways, direct_ways };
    let connected = connect(own, &plan, memory, &control, &messages, asked, image)?;
    drop(messages);
    let Connected { fabric, layout, hellos, transports } = connected;
    if settings.survives > 0 {
        may_survive(settings, &transports)?;
        if starter == rendezvous::HYDRA {
            outlive_usr1();
        }
    }
    let slots_bytes = layout.slots_bytes(own) as u64;
    fabric::note(&fabric, plan.host_of(own).heap);
    let watch = fate::watch(&fabric).map_err(StartError::Thread)?;

    trust::link::set_machine(own).map_err(StartError::TooLate)?;
    let threads = Threads {
        workers: workers::start_pool(settings, &plan, layout.workers(), own)?,
        service: if layout.machines() > 1 { Some(service::start(settings, &plan, own)?) } else { None },
        page_server: if layout.has_page_servers() { Some(page_server::start(settings, &plan, own)?) } else { None },
    };
    let machines = hellos.into_iter().zip(transports).map(|(hello, transport)| Machine {
        workers: hello.workers,
        host: plan.host_of(hello.machine).name.clone(),
        address: plan.host_of(hello.machine).bind.ip(),
        process: hello.process,
        slots_bytes: layout.slots_bytes(hello.machine),
        transport,
    });
    begin(Rack { machine: own, machines: machines.collect(), starter }, &threads.workers);
    let wiring = Wiring::new(fabric.clone(), layout, image)?;
    let losses = (settings.survives > 0).then(|| {
        let mut trustees = threads.workers.trustees().to_vec();
        trustees.extend(threads.service.iter().map(|service| service.trustees()[0]));
        let member = Member::new(own, plan.machines.len() as u16);
        losses::part::begin(member, &control, &fabric, trustees, Duration::from_millis(plan.silence_ms))
    });
    // First: from the next step on other machines may call this one, and a closure of theirs may end it.
    control.send(&Message::Ready { pid: std::process::id(), slots_bytes, survives: settings.survives })?;
    let losses = losses.map(losses::part::Part::beat).transpose().map_err(StartError::Thread)?;
    // By a thread that ends: the main thread of a serving machine never waits in the library again, so it could not
    // report.
    let attach = || threads.attach(own, &wiring);
    std::thread::scope(|scope| scope.spawn(attach).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    drop(wiring);
    stuck::watch().map_err(StartError::Thread)?;
    if own != 0 {
        serve_until_the_end();
    }
    // A loss before that ends the program, which must not depend on how far the others are when it has begun.
    if let Some(losses) = losses {
        losses.wait();
    }
    let status = run_first_fiber(threads, gsm_main);
    fate::finish(fabric, watch, &control, status);
    Ok(status)
}

/// Refuses to outlive machines where that is not built.
fn may_survive(settings: &Builder, transports: &[Transport]) -> Result<(), StartError> {
    if settings.has_page_servers {
        return Err(StartError::Survives { what: "regions", cure: "" });
    }
    if transports.contains(&Transport::Verbs) {
        return Err(StartError::Survives { what: "the transport `verbs`", cure: ", or over shm or tcp" });
    }
    Ok(())
}

fn begin(rack: Rack, pool: &Threadpool) {
    let trustees: Vec<TrusteeReference> = pool.trustees().to_vec();
    assert!(Program::begin(rack, trustees), "`gossamer::main` was called before: a process runs one program");
}

/// Delegating threads of this machine, in the order in which they end: workers may be blocked until the page server's
/// worker has served them, and the service thread sends the last counts of all others.
struct Threads {
    workers: Threadpool,
    page_server: Option<Threadpool>,
    service: Option<Threadpool>,
}

impl Threads {
    /// Attaches them to those of the other machines.
    fn attach(&self, own: u16, wiring: &Wiring) -> Result<(), StartError> {
        let workers = self.workers.trustees();
        let count = workers.len() as u16;
        let service =
            self.service.iter().map(|service| (Place::of(own, service::number(count)), service.trustees()[0]));
        let page_server =
            self.page_server.iter().map(|threads| (Place::of(own, page_server::number(count)), threads.trustees()[0]));
        let workers = (0..).map(|worker| Place::of(own, worker)).zip(workers.iter().copied());
        // The service thread first: a worker that is attached may at once have a trust that a thread without links
        // counts.
        for (place, trustee) in service.chain(page_server).chain(workers) {
            if trustee.id() != place.trustee_id() {
                return Err(StartError::TooLate(1));
            }
            let wiring = wiring.clone();
            let attached = trust::spawn_on(&trustee, move || wiring.attach(place.worker)).join();
            attached.map_err(|panic| StartError::Worker(panic_text(&*panic)))??;
        }
        if self.service.is_some() {
            let service = |machine| TrusteeReference::from_id(wiring.layout.service(machine).trustee_id());
            trust::link::watch_rack(&(0..wiring.layout.machines()).map(service).collect::<Vec<_>>(), own);
        }
        Ok(())
    }
}

/// Runs `gsm_main`, waits for all fibers of this machine unless it returned a status, and returns the program's exit
/// status.
fn run_first_fiber<F: FnOnce() -> Option<u8> + Send + 'static>(threads: Threads, gsm_main: F) -> u8 {
    let outcome = threads.workers.spawn_on(0, gsm_main).join();
    if let Ok(None) = outcome {
        drop(threads);
        return 0;
    }
    // After a panic, which has been reported, other fibers may wait for things that `gsm_main` will no longer do: they
    // are not waited for.
    std::mem::forget(threads);
    outcome.ok().flatten().unwrap_or(fate::PANIC_STATUS)
}

/// Waits until the launcher ends this process.
fn serve_until_the_end() -> ! {
    loop {
        std::thread::park();
    }
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
