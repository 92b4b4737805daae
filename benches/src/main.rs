//! `gossamer-bench`: delegation beside locks, atomics and channels.
//!
//! Every command runs its contenders interleaved (`echo` as processes, the others in this one), verifies the answer of
//! every run, says on which machine, commit and toolchain it ran, and can write its results as JSON. This file only
//! reads the command line; each command has a file of its own.

// Opening LMDB and handling faults are `unsafe`, in files of their own.
#![deny(unsafe_code)]

mod array;
mod basics;
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
mod losses;
mod machine;
mod machines;
mod memcached;
mod names;
mod operations;
mod options;
mod pick;
mod plot;
mod prelude;
mod process;
mod programs;
mod racks;
mod region;
mod report;
mod rounds;
mod sssp;
mod targets;
mod transfers;
mod tune;
mod verdict;
mod watch;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(version, about = "Benchmarks of Gossamer: contenders interleaved, every answer verified")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The commands with their options, and the function that runs each.
macro_rules! commands {
    ($($(#[$meta:meta])* $name:ident($options:ty) => $run:path,)*) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            $($(#[$meta])* $name($options),)*
        }

        impl Command {
            fn run(self) -> Result<()> {
                match self {
                    $(Command::$name(options) => $run(options),)*
                }
            }
        }
    };
}

commands! {
    /// The array over the rack beside a `Vec`, counted references, delegation by hand, locks, MPI, OpenSHMEM and
    /// Lamellar (DArray 6)
    Array(array::ArrayBench) => array::command,
    /// One run of one of `array`'s contenders, for itself
    #[command(hide = true)]
    ArrayRun(array::ArrayRun) => array::run_command,
    /// The example `pagerank`, for `array`
    #[command(hide = true)]
    ArrayRanks(gossamer_examples::vertices::options::PageRank) => array::ranks_command,
    /// The example `components`, for `array`
    #[command(hide = true)]
    ArrayLabels(gossamer_examples::vertices::options::Components) => array::labels_command,
    /// The example `heat`, for `array`
    #[command(hide = true)]
    ArrayHeat(gossamer_examples::heat::Options) => array::heat_command,
    /// One counter for the tasks of an async runtime: `apply_async` beside an actor and tokio's Mutex
    Async(futures::Futures) => futures::command,
    /// Throughput of shared counters over the number of objects (thesis 2.6.1)
    FetchAdd(fetch_add::FetchAdd) => fetch_add::command,
    /// Latency against offered load, open loop (thesis 2.6.2)
    Latency(latency::Latency) => latency::command,
    /// Delegation where workers have no core to themselves: hogs, noise, quotas, more workers than cores, plain threads
    ///
    /// Each workload under each condition, by time: the default way of waiting beside fixed spins, locks and channels.
    /// Every run is a process of its own, and its answers are verified. A condition that cannot be had is SKIPPED, with
    /// the reason. Prints medians, latencies of `apply`, the workers' counters, and the targets with their figures.
    Busy(busy::Busy) => busy::command,
    /// One run of `busy`, told on standard input
    #[command(hide = true)]
    BusyRun(busy::child::BusyRun) => busy::child::command,
    /// Puts that are acknowledged when they are on disk: durable trusts beside LMDB, redb, fjall, SQLite and a bare
    /// loop of writes and syncs
    ///
    /// The other stores need the feature `stores`. Every run is verified by opening it again.
    Durable(durable::DurableBench) => durable::command,
    /// Requests between random peers, over threads, shm and tcp, beside MPI and gRPC (thesis 3.3.1)
    Echo(echo::Echo) => echo::command,
    /// The program of `echo` over trusts, for itself: as threads, or as processes of this host
    EchoRack(echo::EchoRack) => echo::rack_command,
    /// Hash tables: delegated shards beside DashMap and shards under locks (thesis 2.6.3)
    Kv(kv::Kv) => kv::command,
    /// Objects of the heap over a rack beside `Box`
    Heap(heap::HeapBench) => heap::command,
    /// One run of `heap`'s work over two processes, for itself
    #[command(hide = true)]
    HeapRun(heap::HeapRun) => heap::run_command,
    /// Objects with copies, for `heap`
    #[command(hide = true)]
    HeapCopied(heap::HeapCopied) => heap::copied_command,
    /// Jobs placed by load, for `heap`
    #[command(hide = true)]
    HeapPlaced(heap::HeapPlaced) => heap::placed_command,
    /// Tasks that move, for `heap`
    #[command(hide = true)]
    HeapTasks(heap::HeapTasks) => heap::tasks_command,
    /// One of the examples on the heap, for `heap`
    #[command(hide = true, subcommand)]
    HeapApp(heap::HeapApp) => heap::app_command,
    /// Programs that outlive machines: rates while none is lost, and the time from a kill to the errors, beside Erlang
    Losses(losses::Losses) => losses::command,
    /// One of the programs that `losses` starts
    #[command(hide = true)]
    LossesRun(losses::LossesRun) => losses::run_command,
    /// Programs under starters, and a view into them, beside MPI, console-subscriber, prometheus-client and
    /// tracing-chrome
    Operations(operations::Operations) => operations::command,
    /// One of the programs that `operations` starts
    #[command(hide = true)]
    OperationsRun(operations::OperationsRun) => operations::run_command,
    /// Simulated racks of up to a thousand machines: rings for all pairs of workers beside machine ways
    Racks(racks::Racks) => racks::command,
    /// Memory shared by pages beside a bare handler of faults, MPI, copies and threads of one process (STRETCH 5)
    Region(region::RegionBench) => region::command,
    /// Threads of C programs that move between machines, beside those that stay, and beside pages that come by faults
    RegionMoves(region::RegionMoves) => region::moves_command,
    /// One sample of one of `region`'s contenders, for itself
    #[command(hide = true)]
    RegionRun(region::RegionRun) => region::run_command,
    /// Shortest paths in a large graph, over threads, shm and tcp, beside MPI and Dijkstra's algorithm (thesis 3.3.3)
    Sssp(sssp::Sssp) => sssp::command,
    /// The example `sssp`, for itself
    SsspRun(gossamer_examples::sssp::options::Options) => sssp::run_command,
    /// The server of `kv` with one of the tables behind it, for itself
    KvServer(kv::KvServer) => kv::serve,
    /// Stock memcached beside memcached with a delegated cache (examples/memcached)
    Memcached(memcached::Memcached) => memcached::command,
    /// A JSON file of results as SVG, one file a series
    Plot(plot::Plot) => plot::command,
    /// All that the crate's speed is measured against, with the verdicts
    Targets(targets::Targets) => targets::command,
    /// Amounts moved between accounts, two at a time: `together` beside nested launches, plain applies and locks
    Transfers(transfers::Transfers) => transfers::command,
    /// A tuned pool beside each static setting of one, and the pauses by moves
    Tune(tune::Tune) => tune::command,
}

fn main() -> Result<ExitCode> {
    // `gossamer-launch run`, of this build, for `region`.
    if std::env::args().nth(1).as_deref() == Some("run") {
        return Ok(gossamer_daemon::cli::main());
    }
    Cli::parse().command.run().map(|()| ExitCode::SUCCESS)
}
