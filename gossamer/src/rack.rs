//! Rack of a program: machines, their workers, and places to name them.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use trust::{TrusteeId, TrusteeReference};

use crate::losses::record;
use crate::{page_server, service};

/// Worker of the rack. A place may travel in arguments and results ([`spawn_with`](crate::spawn_with)).
///
/// ```
/// use gossamer::Place;
/// let place = Place::of(1, 3);
/// assert_eq!((place.machine, place.worker), (1, 3));
/// assert_eq!(place.to_string(), "m1w3");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The machine, from 0.
    pub machine: u16,
    /// Its worker, from 0.
    pub worker: u16,
}

impl Place {
    /// Returns the place of this worker on this machine. It is checked when it is used: [`Rack::has`].
    ///
    /// Example: at the [type](Self).
    pub const fn of(machine: u16, worker: u16) -> Place {
        Place { machine, worker }
    }

    pub(crate) fn trustee_id(self) -> TrusteeId {
        trust::link::worker_id(self.machine, self.worker)
    }

    /// Returns the trustee at this place.
    ///
    /// # Panics
    /// If the rack has no such place, or before [`gossamer::main`](crate::main).
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let place = gossamer::rack().places().last().unwrap();
    ///         let there = gossamer::entrust_on(place, 0);
    ///         assert_eq!(there.trustee(), place.trustee());
    ///     },
    ///     2,
    /// );
    /// ```
    #[track_caller]
    pub fn trustee(self) -> TrusteeReference {
        let program = program();
        let rack = &program.rack;
        assert!(rack.has(self), "there is no place {self}: {rack}");
        if self.machine == rack.machine {
            program.trustees[usize::from(self.worker)]
        } else {
            TrusteeReference::from_id(self.trustee_id())
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}w{}", self.machine, self.worker)
    }
}

/// Transport of bytes from this machine to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// The machine is this one.
    Here,
    /// Shared memory: both are on one host.
    Shm,
    /// TCP.
    Tcp,
    /// RDMA.
    Verbs,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Transport::Here => "here",
            Transport::Shm => "shm",
            Transport::Tcp => "tcp",
            Transport::Verbs => "verbs",
        })
    }
}

/// Machine of the rack: a process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Machine {
    /// Number of its workers.
    pub workers: u16,
    /// Name of the host it runs on, as in `rack.yaml`; without one, the host's own name.
    pub host: String,
    /// Address by which the others reach that host, as in `rack.yaml`; the loopback address if the program runs on one
    /// host.
    pub address: std::net::IpAddr,
    /// Its process id on that host.
    pub process: u32,
    /// Bytes of the slots in its memory: requests to its workers and its service thread, and answers to them.
    pub slots_bytes: usize,
    /// Transport from this machine to it.
    pub transport: Transport,
}

/// Machines on which the program runs. See [`rack`].
///
/// Its `Display` is a summary and one line for each machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rack {
    pub(crate) machine: u16,
    pub(crate) machines: Vec<Machine>,
    pub(crate) starter: String,
}

impl Rack {
    /// Returns the launcher of the program: `gossamer-launch` (also with a rack of hosts), `slurm step 71.0`, `mpirun`,
    /// `hydra`, `kubernetes`, `a rendezvous at HOST:PORT`, or, for one process by itself, `alone`.
    ///
    /// ```
    /// gossamer::main(|| assert_eq!(gossamer::rack().starter(), "alone"), 1);
    /// ```
    pub fn starter(&self) -> &str {
        &self.starter
    }

    /// Returns the number of this machine, from 0.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let rack = gossamer::rack();
    ///         let own = &rack.machines()[usize::from(rack.machine())];
    ///         assert_eq!((own.process, own.transport), (std::process::id(), gossamer::Transport::Here));
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn machine(&self) -> u16 {
        self.machine
    }

    /// Returns all machines, in order.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         for machine in gossamer::rack().machines() {
    ///             println!("{} workers on {}, by {}", machine.workers, machine.host, machine.transport);
    ///         }
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }

    /// Returns the number of workers of all machines together.
    ///
    /// Example: at [`rack`].
    pub fn workers(&self) -> usize {
        self.machines.iter().map(|machine| usize::from(machine.workers)).sum()
    }

    /// Iterates over all places: the workers of machine 0, those of machine 1, and so on.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let names: Vec<String> = gossamer::rack().places().map(|place| place.to_string()).collect();
    ///         assert_eq!(names, ["m0w0", "m0w1"]);
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let workers: Vec<u16> = self.machines.iter().map(|machine| machine.workers).collect();
        (0u16..).zip(workers).flat_map(|(machine, workers)| (0..workers).map(move |worker| Place { machine, worker }))
    }

    /// Iterates over the places of the machines that are not lost, in the same order. Requests to the others fail
    /// ([`Builder::survives`](crate::Builder::survives)).
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let rack = gossamer::rack();
    ///         let fibers: Vec<_> = rack
    ///             .living()
    ///             .cycle()
    ///             .zip(0..10)
    ///             .map(|(place, number)| gossamer::spawn_on(place, move || number * number))
    ///             .collect();
    ///         assert_eq!(fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum::<u32>(), 285);
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn living(&self) -> impl Iterator<Item = Place> + Clone + use<> {
        let places: Vec<Place> = self.places().filter(|place| !self.is_lost(place.machine)).collect();
        places.into_iter()
    }

    /// Returns whether this machine is lost. It never comes back.
    ///
    /// ```
    /// gossamer::main(|| assert!(!gossamer::rack().is_lost(0)), 1);
    /// ```
    pub fn is_lost(&self, machine: u16) -> bool {
        record::is_lost(machine)
    }

    /// Returns the service thread of another machine (`service.rs`).
    pub(crate) fn service(&self, machine: u16) -> TrusteeReference {
        let place = Place::of(machine, service::number(self.machines[usize::from(machine)].workers));
        TrusteeReference::from_id(place.trustee_id())
    }

    /// Returns the page server's worker of a machine (`page_server.rs`).
    pub(crate) fn page_server(&self, machine: u16) -> TrusteeReference {
        let place = Place::of(machine, page_server::number(self.machines[usize::from(machine)].workers));
        TrusteeReference::from_id(place.trustee_id())
    }

    /// Returns whether the rack has this place.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         use gossamer::Place;
    ///         assert!(gossamer::rack().has(Place::of(0, 1)));
    ///         assert!(!gossamer::rack().has(Place::of(9, 0)));
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn has(&self, place: Place) -> bool {
        self.machines.get(usize::from(place.machine)).is_some_and(|machine| place.worker < machine.workers)
    }
}

impl fmt::Display for Rack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (machines, workers) = (self.machines.len(), self.workers());
        write!(f, "{machines} machine{}, {workers} worker{}", plural(machines), plural(workers))?;
        for (index, machine) in self.machines.iter().enumerate() {
            let count = usize::from(machine.workers);
            let (host, process, kib) = (&machine.host, machine.process, machine.slots_bytes.div_ceil(1024));
            let workers = plural(count);
            write!(f, "\nm{index}: {count} worker{workers} on {host}, process {process}, {kib} KiB of slots")?;
            match machine.transport {
                Transport::Here => {}
                transport => write!(f, ", by {transport}")?,
            }
        }
        Ok(())
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// The running program on this machine.
pub(crate) struct Program {
    pub(crate) rack: Rack,
    /// Trustees of the workers of this machine.
    pub(crate) trustees: Vec<TrusteeReference>,
    pub(crate) since: Instant,
    next_entrust: AtomicUsize,
    next_spawn: AtomicUsize,
}

static PROGRAM: OnceLock<Program> = OnceLock::new();

impl Program {
    /// Registers the program with this process. False if there is one already.
    pub(crate) fn begin(rack: Rack, trustees: Vec<TrusteeReference>) -> bool {
        let (next_entrust, next_spawn) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let since = Instant::now();
        PROGRAM.set(Program { rack, trustees, since, next_entrust, next_spawn }).is_ok()
    }

    /// Returns the worker of this machine that gets the next property, in turn.
    pub(crate) fn next_entrust(&self) -> TrusteeReference {
        self.trustees[self.next_entrust.fetch_add(1, Ordering::Relaxed) % self.trustees.len()]
    }

    /// Returns the worker of this machine that gets the next fiber, in turn.
    pub(crate) fn next_spawn(&self) -> TrusteeReference {
        self.trustees[self.next_spawn.fetch_add(1, Ordering::Relaxed) % self.trustees.len()]
    }
}

/// Returns the program, once it runs.
pub(crate) fn try_program() -> Option<&'static Program> {
    PROGRAM.get()
}

/// Returns the running program.
///
/// # Panics
/// If there is none.
#[track_caller]
pub(crate) fn program() -> &'static Program {
    PROGRAM.get().expect("no program runs: this works inside `gossamer::main` only")
}

/// Returns the rack that the program runs on: machines, workers, names, and the memory for slots.
///
/// ```
/// gossamer::main(
///     || {
///         let rack = gossamer::rack();
///         println!("{rack}");
///         assert_eq!((rack.machines().len(), rack.workers()), (1, 2)); // no launcher: one process
///     },
///     2,
/// );
/// ```
///
/// # Panics
/// Before [`gossamer::main`](crate::main).
///
/// Source: thesis 3.2.1.
#[track_caller]
pub fn rack() -> &'static Rack {
    &program().rack
}

/// Returns the place of the worker that runs the caller.
///
/// # Panics
/// On a thread that is no worker of the program.
///
/// ```
/// gossamer::main(
///     || {
///         let place = gossamer::rack().places().last().unwrap();
///         let fiber = gossamer::spawn_on(place, gossamer::here);
///         assert_eq!(fiber.join().unwrap(), place);
///     },
///     2,
/// );
/// ```
#[track_caller]
pub fn here() -> Place {
    let program = program();
    let id = trust::local_trustee().id();
    let worker = program.trustees.iter().position(|trustee| trustee.id() == id);
    let worker = worker.expect("this thread is no worker of the program: ask in a fiber (`gossamer::spawn`)");
    Place { machine: program.rack.machine, worker: worker as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rack_lists_its_places_and_says_what_it_is() {
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        let machine = |workers, process, transport| Machine {
            workers,
            host: "h".into(),
            address,
            process,
            slots_bytes: 2000,
            transport,
        };
        let rack = Rack {
            machine: 1,
            machines: vec![machine(1, 7, Transport::Tcp), machine(2, 8, Transport::Here)],
            starter: "alone".into(),
        };
        let places: Vec<_> = rack.places().map(|place| place.to_string()).collect();
        assert_eq!(places, ["m0w0", "m1w0", "m1w1"]);
        assert!(rack.has(Place::of(1, 1)) && !rack.has(Place::of(0, 1)) && !rack.has(Place::of(2, 0)));
        let text = "2 machines, 3 workers\nm0: 1 worker on h, process 7, 2 KiB of slots, by tcp\n\
                    m1: 2 workers on h, process 8, 2 KiB of slots";
        assert_eq!(rack.to_string(), text);
    }
}
