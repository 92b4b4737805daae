//! Start without our launcher: processes that `srun`, `mpirun`, a Kubernetes Job or a script has started find one
//! another and become the machines of one program. It ends in the same [`Bootstrap`](crate::bootstrap::Bootstrap) that
//! `gossamer-launch` hands over; from `connect` on both starts are the same.
//!
//! 1. [`detect`]: the launcher of this process, its number and their count, by [`variables`]; [`mark`]: child processes
//!    of a machine run alone; [`interrupts`]: signals meanwhile
//! 2. [`pmi`], [`pmix`], [`plain`]: the address of machine 0, and the key
//! 3. [`port`], [`hub`]: machine 0 accepts all others ([`event`]), makes the plan ([`plan`]), and supervises the
//!    program to its end, by the rules of [`supervise`](crate::supervise), as `gossamer-launch` does
//! 4. [`member`]: each other machine joins, and carries its messages to and from machine 0 ([`wire`]); [`bridge`]: a
//!    machine that ends waits until its last messages are on their way
//! 5. [`host`], [`process`], [`memory`]: which machines are on one host, its address, and the memory that they share
//!
//! Invariant: once a rendezvous is found, this process is a machine of the program or it ends; it never goes on alone.

pub(crate) mod bridge;
mod detect;
mod error;
mod event;
mod host;
mod hub;
mod interrupts;
mod mark;
mod member;
mod memory;
mod plain;
mod plan;
mod pmi;
mod pmix;
mod port;
mod process;
mod starter;
pub(crate) mod variables;
mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use comm::secure::Key;

use crate::bootstrap::Bootstrap;
use crate::complain::complain;
use crate::fate;
use crate::remote::Image;
use bridge::ControlBridge;
use detect::Method;
pub(crate) use error::RendezvousError;
use interrupts::Interrupts;
use starter::Starter;

/// Default time in which the machines must find one another, without `GOSSAMER_START_TIMEOUT`.
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// Interval of the reports on missing machines.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of the heartbeats between machine 0 and the others.
const BEAT_INTERVAL: Duration = Duration::from_millis(500);
/// Time after which a silent peer counts as dead.
const SILENCE: Duration = Duration::from_secs(3);
/// Exit status of a process that cannot start, or that has lost machine 0 (`EX_SOFTWARE` of sysexits.h).
const FAILURE_STATUS: u8 = 70;
/// Time in which the last messages must be passed on.
const LAST_MESSAGES_TIMEOUT: Duration = Duration::from_secs(2);

/// Kind of start of this process.
pub(crate) enum Start {
    /// Alone: no launcher has started others with it.
    Alone,
    /// The process is one machine of several, with the launcher's name.
    Machine(Box<Bootstrap>, String),
}

/// Returns whether a launcher or a process manager has started this process as one of several, so that
/// [`gossamer::main`](crate::main) will make it a machine of a program. For programs that otherwise start a launcher
/// themselves.
///
/// ```
/// assert!(!gossamer::is_one_of_several()); // nobody has started this process with others
/// ```
pub fn is_one_of_several() -> bool {
    let method = detect::detect(ENVIRONMENT);
    std::env::var_os(crate::bootstrap::LAUNCHER).is_some()
        || (!matches!(method, Ok(Method::Alone)) && !mark::is_inherited(&method, ENVIRONMENT))
}

/// Name of a process manager with PMI that is not Slurm's.
pub(crate) const HYDRA: &str = "hydra";

/// Finds the other machines, if this process was started as one of several.
///
/// # Errors
/// If it was, and there is no method to find them. Later errors end the process here, for the launcher has to end the
/// others.
pub(crate) fn start() -> Result<Start, RendezvousError> {
    let method = match detect::detect(ENVIRONMENT) {
        Ok(Method::Alone) => return Ok(Start::Alone),
        // A child process of a machine inherits its variables, and is not meant by them.
        method if mark::is_inherited(&method, ENVIRONMENT) => return Ok(Start::Alone),
        found => found?,
    };
    let interrupts = Interrupts::catch()?;
    let timeout = detect::start_timeout()?;
    let limit = Limit { start: Instant::now(), timeout };
    let image =
        Image::of_program().map_err(RendezvousError::system("read the program's own headers"))?.id().to_string();
    mark::mark_as_machine(ENVIRONMENT)?;
    let (starter, place, name) = match method {
        Method::Alone => return Ok(Start::Alone),
        Method::Plain(settings) => {
            let key = settings.key()?;
            let place = Place { index: settings.index, count: settings.count, key, image };
            let (name, target) = (settings.name(), settings.target());
            let joint = Joint { starter: Arc::new(Starter::None), interrupts, exchange: Exchange::Known(target) };
            return take_part(&joint, place, name, &limit);
        }
        Method::Pmi(variables) => {
            let pmi = pmi::Pmi::connect(&variables, &limit)?;
            let name = detect::name_of_starter(HYDRA);
            (Starter::pmi(pmi)?, (variables.rank, variables.size), name)
        }
        Method::Pmix => {
            let (pmix, index, count) = pmix::Pmix::connect()?;
            (Starter::Pmix(Box::new(pmix)), (index, count), detect::name_of_starter("mpirun"))
        }
    };
    let (index, count) = place;
    if count == 1 {
        interrupts.by_default();
        starter.finalize();
        return Ok(Start::Alone);
    }
    let key = Key::generate().map_err(RendezvousError::Comm)?; // only machine 0's is used
    let joint = Joint { starter: Arc::new(starter), interrupts, exchange: Exchange::Starter };
    take_part(&joint, Place { index, count, key, image }, name, &limit)
}

pub(crate) const ENVIRONMENT: variables::Get<'static> = &|name| std::env::var_os(name);

/// Identity of this machine.
pub(crate) struct Place {
    index: u16,
    count: u16,
    key: Key,
    image: String,
}

/// Objects that the whole start shares.
pub(crate) struct Joint {
    starter: Arc<Starter>,
    interrupts: Interrupts,
    exchange: Exchange,
}

/// Source from which others learn the address of machine 0.
enum Exchange {
    /// It is in their variables.
    Known(plain::Target),
    /// The launcher, which has the key too.
    Starter,
}

/// Deadline for the start.
pub(crate) struct Limit {
    start: Instant,
    timeout: Duration,
}

impl Limit {
    fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.start.elapsed())
    }
}

fn take_part(joint: &Joint, place: Place, name: String, limit: &Limit) -> Result<Start, RendezvousError> {
    joint.interrupts.report_to(Arc::clone(&joint.starter));
    let outcome = match place.index {
        0 => hub::start(joint, place, limit),
        _ => member::start(joint, place, limit),
    };
    match outcome {
        Ok(bootstrap) => Ok(Start::Machine(Box::new(bootstrap), name)),
        Err(error) => {
            complain(format_args!("{error}"));
            joint.starter.abort(error.status(), &error.to_string());
            std::process::exit(error.status().into());
        }
    }
}

/// Starts a thread that the program needs to its end: a panic of it ends the process.
fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), RendezvousError> {
    fate::spawn(name, body).map(drop).map_err(RendezvousError::system("start a thread"))
}

/// Ends this process: the launcher has gone, and its processes go with it; machines of other hosts see this one go.
fn end_with_starter() -> ! {
    complain(format_args!("the process manager that has started this machine has gone; the program was ended"));
    std::process::exit(FAILURE_STATUS.into())
}
