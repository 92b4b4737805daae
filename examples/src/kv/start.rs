//! How `kv` starts, on one machine or on all of a rack, and how it ends. No serving here.
//!
//! Machine 0 entrusts a shard to each worker that is to have one, then has every machine serve. Each machine ends its
//! server when it gets a signal; when the first has ended, machine 0 has the others end theirs.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use clap::Parser;
use gossamer::{Place, Trust, TrusteeReference};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::delegated::Delegated;
use super::durable::{self, Handle, Surviving};
use super::options::Options;
use super::server::{PROGRAM, Server};
use super::shard::Shard;
use crate::machines::{self, Machines};
use crate::program::is_machine;

/// Files that a machine has open beside its connections.
const OTHER_FILES: u64 = 512;

/// The server of this process, and whether it was told to end before there was one.
static SERVER: OnceLock<Arc<Server>> = OnceLock::new();
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Runs `kv` with the arguments of this process.
pub fn main() -> ExitCode {
    let options = Options::parse(); // exits with status 2 and the usage where they are wrong
    PROGRAM.end(start(options))
}

fn start(options: Options) -> anyhow::Result<ExitCode> {
    if let Some(machines) = options.local {
        ensure!(!is_machine(), "a launcher has started this process, as one of several: leave out --local");
        let threads = Some(options.threads).filter(|threads| *threads > 0);
        return machines::launch(&Machines {
            machines,
            threads,
            args: options.machine_args(),
            ..Machines::of(PROGRAM)
        });
    }
    stop_at_signals().context("signals cannot be caught")?;
    Ok(PROGRAM.on_rack(options.threads, move || run(options)))
}

/// Parameters of each machine.
#[derive(Clone, Serialize, Deserialize)]
struct Plan {
    options: Options,
    shards: Vec<Trust<Shard>>,
    /// Pool of all items, if they are to survive; there are no shards then.
    durable: Option<Handle>,
    /// Decides which shard has a key.
    seed: u64,
}

/// The program of the rack. Whether all machines have served.
fn run(options: Options) -> anyhow::Result<bool> {
    let rack = gossamer::rack();
    if let Some(machine) = rack.machines().iter().find(|machine| machine.workers <= options.dedicated) {
        let (dedicated, workers) = (options.dedicated, machine.workers);
        bail!(
            "--dedicated {dedicated} leaves no worker for connections, for a machine has {workers}: give less, or more \
             --threads"
        );
    }
    let seed = RandomState::new().hash_one(0);
    // Its text has its source in it.
    let durable = options.durable.as_deref().map(|folder| open(folder, &options));
    let durable = durable.transpose().map_err(anyhow::Error::msg)?;
    let mut shards = Vec::new();
    for place in rack.places().filter(|_| durable.is_none()) {
        let sharers = table_workers(place.machine, options.dedicated);
        if sharers.contains(&place.worker) {
            let (memory_bytes, sharers) = ((options.memory as usize) << 20, sharers.len());
            shards.push(gossamer::entrust_with(place, move || Shard::new(memory_bytes, sharers)));
        }
    }
    let plan = gossamer::local_trustee().entrust(Plan { options, shards, durable: durable.clone(), seed });
    let machines = 0..rack.machines().len() as u16;
    let servers: Vec<_> = machines
        .clone()
        .map(|machine| {
            let plan = plan.clone();
            let serve = move || {
                let plan = plan.apply_with(|plan, ()| plan.clone(), ());
                PROGRAM.is_well(serve(plan).map(|()| true))
            };
            let serving = gossamer::spawn_on(Place::of(machine, 0), serve);
            // When one has ended, all end.
            trust::spawn(move || {
                let served = serving.join().unwrap_or(false);
                stop_all();
                served
            })
        })
        .collect();
    let served: Vec<bool> = servers.into_iter().map(|server| server.join().unwrap_or(false)).collect();
    durable.map_or(Ok(()), Handle::close).map_err(anyhow::Error::msg)?;
    Ok(served.into_iter().all(|served| served))
}

/// The items of a folder, at the last worker of this machine: a dedicated one, if there is any.
fn open(folder: &Path, options: &Options) -> Result<Handle, trust_durable::Error> {
    let last = table_workers(0, options.dedicated).end - 1;
    let within = options.within.map(Duration::from_millis);
    durable::open(Place::of(0, last).trustee(), folder, (options.memory as usize) << 20, within)
}

/// The workers of a machine that have a part of the table.
fn table_workers(machine: u16, dedicated: u16) -> std::ops::Range<u16> {
    let workers = gossamer::rack().machines()[usize::from(machine)].workers;
    if dedicated == 0 { 0..workers } else { workers - dedicated..workers }
}

/// Serves on this machine until it is told to stop.
///
/// # Errors
/// It cannot listen.
fn serve(Plan { options, shards, durable, seed }: Plan) -> anyhow::Result<()> {
    let rack = gossamer::rack();
    let machine = &rack.machines()[usize::from(rack.machine())];
    let before = rack.machines()[..usize::from(rack.machine())].iter().filter(|other| other.host == machine.host);
    let port = if options.port == 0 { Some(0) } else { options.port.checked_add(before.count() as u16) };
    let Some(port) = port else {
        bail!("there is no port {} + {}: choose a smaller --port", options.port, rack.machine());
    };
    let address = SocketAddr::new(listen_at(&options, machine.address), port);
    allow_files(u64::from(options.connections) + OTHER_FILES)?;
    let (address, server) = Server::listen(
        address,
        options.connections as usize,
        usize::from(machine.workers),
        (options.memory as usize) << 20,
    )
    .and_then(|server| Ok((server.address()?, server)))
    .map_err(|error| anyhow!("cannot listen at {address}: {error}{}", cure(&error)))?;
    let server = SERVER.get_or_init(|| server);
    // SeqCst: the handler stores it, then looks for the server; here it is the other way round.
    if STOPPED.load(Ordering::SeqCst) {
        server.stop();
    }
    println!("kv: machine {} listens at {address}", rack.machine());
    let connections = if options.dedicated == 0 { machine.workers } else { machine.workers - options.dedicated };
    let workers: Vec<TrusteeReference> =
        (0..connections).map(|worker| Place::of(rack.machine(), worker).trustee()).collect();
    match durable {
        Some(items) => server.serve(&workers, move || Surviving::new(items.clone())),
        None => server.serve(&workers, move || Delegated::new(shards.clone(), seed)),
    }
    Ok(())
}

/// Returns the address to listen at. Default: the one by which the hosts of the rack reach this one; loopback on one
/// host.
fn listen_at(options: &Options, own: IpAddr) -> IpAddr {
    options.listen.unwrap_or(own)
}

fn cure(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            ". Another program listens there (memcached, or another kv): stop it, or choose another --port"
        }
        io::ErrorKind::AddrNotAvailable => ". This host does not have that address: choose another with --listen",
        io::ErrorKind::PermissionDenied => ". Ports below 1024 are for root: choose another --port",
        _ => "",
    }
}

/// Lets this process have so many open files.
fn allow_files(files: u64) -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= files) {
        return Ok(());
    }
    let raised = Rlimit { current: Some(files), maximum: maximum.map(|maximum| maximum.max(files)) };
    setrlimit(Resource::Nofile, raised).map_err(|error| {
        let text =
            format!("{files} open files are not allowed ({error}): raise `ulimit -n`, or give fewer --connections");
        io::Error::new(io::Error::from(error).kind(), text)
    })
}

/// Makes SIGINT and SIGTERM stop the server; a second one ends the process at once.
fn stop_at_signals() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let handle = move || {
        let mut arrivals = signals.forever();
        if arrivals.next().is_some() {
            stop();
        }
        if let Some(signal) = arrivals.next() {
            let _ = emulate_default_handler(signal); // it does not return for these
        }
    };
    std::thread::Builder::new().name("kv-signals".to_owned()).spawn(handle)?;
    Ok(())
}

/// Stops the server of this machine, or sees to it that it does not begin to serve.
fn stop() {
    STOPPED.store(true, Ordering::SeqCst);
    if let Some(server) = SERVER.get() {
        server.stop();
    }
}

/// Stops the servers of all machines.
fn stop_all() {
    for machine in 0..gossamer::rack().machines().len() as u16 {
        let stopped = gossamer::spawn_on(Place::of(machine, 0), stop).join();
        drop(stopped); // a panic in it has announced itself
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_where_the_rack_reaches_it_unless_told_otherwise() {
        for (line, on, expected) in [
            ("kv", "192.0.2.1", "192.0.2.1"),
            ("kv", "127.0.0.1", "127.0.0.1"),
            ("kv --listen 127.0.0.1", "192.0.2.1", "127.0.0.1"),
            ("kv --listen ::", "192.0.2.1", "::"),
        ] {
            let options = Options::parse_from(line.split_whitespace());
            assert_eq!(listen_at(&options, on.parse().unwrap()).to_string(), expected, "{line}");
        }
    }
}
