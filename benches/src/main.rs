//! `gossamer-bench`: delegation beside locks, atomics and channels.
//!
//! Every command runs its contenders interleaved (`echo` as processes, the others in this one), verifies the answer of
//! every run, says on which machine, commit and toolchain it ran, and can write its results as JSON. This file only
//! reads the command line; each command has a file of its own.

// Opening LMDB and handling faults are `unsafe`, in files of their own.
#![deny(unsafe_code)]

mod array;
mod budget;
mod busy;
mod contender;
mod contenders;
mod durable;
mod echo;
mod fetch_add;
mod futures;
mod harness;
mod heap;
mod kv;
mod latency;
mod machine;
mod memcached;
mod operations;
mod options;
mod parts;
mod pick;
mod plot;
mod region;
mod report;
mod rounds;
mod sssp;
mod targets;
mod transfers;
mod verdict;
mod watch;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(version, about = "Benchmarks of Gossamer: contenders interleaved, every answer verified")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The array over the rack beside a `Vec`, counted references, delegation by hand, locks, MPI, OpenSHMEM and
    /// Lamellar (DArray 6)
    Array(array::ArrayBench),
    /// One run of one of `array`'s contenders, for itself
    #[command(hide = true)]
    ArrayRun(array::ArrayRun),
    /// The example `pagerank`, for `array`
    #[command(hide = true)]
    ArrayRanks(gossamer_examples::vertices::options::PageRank),
    /// The example `components`, for `array`
    #[command(hide = true)]
    ArrayLabels(gossamer_examples::vertices::options::Components),
    /// One counter for the tasks of an async runtime: `apply_async` beside an actor, tokio's Mutex and std's
    Async(futures::Futures),
    /// Throughput of shared counters over the number of objects (thesis 2.6.1)
    FetchAdd(fetch_add::FetchAdd),
    /// Latency against offered load, open loop (thesis 2.6.2)
    Latency(latency::Latency),
    /// Delegation where workers have no core to themselves: hogs, noise, quotas, more workers than cores, plain threads
    ///
    /// Each workload under each condition, by time: the default way of waiting beside fixed spins, locks and channels.
    /// Every run is a process of its own, and its answers are verified. A condition that cannot be had is SKIPPED, with
    /// the reason. Prints medians, latencies of `apply`, the workers' counters, and the targets with their figures.
    Busy(busy::Busy),
    /// One run of `busy`, told on standard input
    #[command(hide = true)]
    BusyRun,
    /// Puts that are acknowledged when they are on disk: durable trusts beside LMDB, redb, fjall, SQLite and a bare
    /// loop of writes and syncs
    ///
    /// The other stores need the feature `stores`. Every run is verified by opening it again.
    Durable(durable::DurableBench),
    /// Requests between random peers, over threads, shm and tcp, beside MPI and gRPC (thesis 3.3.1)
    Echo(echo::Echo),
    /// The program of `echo` over trusts, for itself: as threads, or as processes of this host
    EchoRack(echo::EchoRack),
    /// Hash tables: delegated shards beside DashMap, papaya and shards under locks (thesis 2.6.3)
    Kv(kv::Kv),
    /// Objects of the heap over a rack beside `Box`
    Heap(heap::HeapBench),
    /// One run of `heap`'s work over two processes, for itself
    #[command(hide = true)]
    HeapRun(heap::HeapRun),
    /// One of the examples on the heap, for `heap`
    #[command(hide = true, subcommand)]
    HeapApp(heap::HeapApp),
    /// Programs under starters, and a view into them, beside MPI, console-subscriber, prometheus-client and
    /// tracing-chrome
    Operations(operations::Operations),
    /// One of the programs that `operations` starts
    #[command(hide = true)]
    OperationsRun(operations::OperationsRun),
    /// Memory shared by pages beside a bare handler of faults, MPI, copies and threads of one process (STRETCH 5)
    Region(region::RegionBench),
    /// One sample of one of `region`'s contenders, for itself
    #[command(hide = true)]
    RegionRun(region::RegionRun),
    /// `gossamer-launch run`, of this build, for `region`
    #[command(hide = true, disable_help_flag = true)]
    Run {
        /// As `gossamer-launch` reads them, from the command line.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<std::ffi::OsString>,
    },
    /// Shortest paths in a large graph, over threads, shm and tcp, beside MPI and Dijkstra's algorithm (thesis 3.3.3)
    Sssp(sssp::Sssp),
    /// The example `sssp`, for itself
    SsspRun(gossamer_examples::sssp::options::Options),
    /// The server of `kv` with one of the tables behind it, for itself
    KvServer(kv::KvServer),
    /// Stock memcached beside memcached with a delegated cache (examples/memcached)
    Memcached(memcached::Memcached),
    /// One request beside the least it could cost: transfers, an uncontended lock, bare slots
    Parts(parts::Parts),
    /// A JSON file of results as SVG, one file a series
    Plot(plot::Plot),
    /// All that the crate's speed is measured against, with the verdicts
    Targets(targets::Targets),
    /// Amounts moved between accounts, two at a time: `together` beside nested launches, plain applies and locks
    Transfers(transfers::Transfers),
}

fn main() -> Result<ExitCode> {
    let done = match Cli::parse().command {
        Command::Array(options) => array::command(options),
        Command::ArrayRun(options) => array::run_command(options),
        Command::ArrayRanks(options) => array::ranks_command(options),
        Command::ArrayLabels(options) => array::labels_command(options),
        Command::Async(options) => futures::command(options),
        Command::FetchAdd(options) => fetch_add::command(options),
        Command::Latency(options) => latency::command(options),
        Command::Busy(options) => busy::command(options),
        Command::BusyRun => busy::child::command(),
        Command::Durable(options) => durable::command(options),
        Command::Echo(options) => echo::command(options),
        Command::EchoRack(options) => echo::rack_command(options),
        Command::Heap(options) => heap::command(options),
        Command::HeapRun(options) => heap::run_command(options),
        Command::HeapApp(app) => heap::app_command(app),
        Command::Operations(options) => operations::command(options),
        Command::OperationsRun(options) => operations::run_command(&options),
        Command::Kv(options) => kv::command(options),
        Command::Region(options) => region::command(options),
        Command::RegionRun(options) => region::run_command(options),
        Command::Run { .. } => return Ok(gossamer_daemon::cli::main()),
        Command::Sssp(options) => sssp::command(options),
        Command::SsspRun(options) => sssp::run_command(&options),
        Command::KvServer(options) => kv::serve(options),
        Command::Memcached(options) => memcached::command(options),
        Command::Parts(options) => parts::command(options),
        Command::Plot(options) => plot::command(options),
        Command::Targets(options) => targets::command(options),
        Command::Transfers(options) => transfers::command(options),
    };
    done.map(|()| ExitCode::SUCCESS)
}
