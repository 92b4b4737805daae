//! The social network of the example `social` over gRPC, for `gossamer-bench heap`: the same twelve services and
//! requests, at two processes of one thread each.
//!
//! It starts itself for each process, tells each the ports of all, and leads them through the rounds by lines on their
//! standard streams: `round N` begins one, `done` says that all requests of a process are answered. Here: that, and the
//! users' connections. Not here: the work of the services (services.rs), how they are called (rpc.rs).

#[path = "../plain.rs"]
mod plain;
#[path = "../process.rs"]
mod process;
mod rpc;
mod services;
#[path = "../../../../examples/src/social/state.rs"]
mod state;
#[path = "../../../../examples/src/social/world.rs"]
mod world;

use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt;

pub use process::Result;
use process::{end_all, start_all, tell_all};
use rpc::Peers;
use services::{Services, front};
use world::{Answer, ROUND, World};

/// The options of the example.
#[derive(Clone, Parser)]
struct Options {
    #[arg(long, default_value_t = 1000)]
    users: u32,
    #[arg(long, default_value_t = 10)]
    followers: u32,
    #[arg(long, default_value_t = 20_000)]
    requests: u64,
    #[arg(long, default_value_t = 10)]
    posts: u32,
    #[arg(long, default_value_t = 8)]
    connections: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Processes, of one thread each.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Which of them this is; not given to the one that starts them.
    #[arg(long)]
    own: Option<usize>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    match options.own {
        None => lead(&options),
        Some(own) => tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve(own, &options)),
    }
}

fn lead(options: &Options) -> Result<()> {
    let mut processes = start_all(options.threads)?;
    let began = Instant::now();
    for round in (0..options.requests).step_by(ROUND as usize) {
        tell_all(&mut processes, &round.to_string())?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let mut answer = Answer::default();
    for line in tell_all(&mut processes, "sum")? {
        let told: Value = serde_json::from_str(&line)?;
        let number = |what: &str| told[what].as_u64().ok_or("an answer has no number");
        let of_one = Answer { posted: number("posted")?, read: number("read")?, checksum: number("checksum")? };
        answer = answer.and(of_one);
    }
    end_all(processes)?;
    let checksum = format!("{:016x}", answer.checksum);
    let a_second = options.requests as f64 / seconds;
    println!("{}", json!({"posted": answer.posted, "read": answer.read, "checksum": checksum, "a_second": a_second}));
    Ok(())
}

async fn serve(own: usize, options: &Options) -> Result<()> {
    let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    let world = World { users: options.users, followers: options.followers, posts: options.posts, seed: options.seed };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    let services = Arc::new(Services::new(world));
    rpc::serve(listener, Arc::clone(&services));
    let ports = lines.next_line().await?.ok_or("the process that leads has ended")?;
    let peers = Peers::connect(ports.split_whitespace()).await?;
    services.connect(peers.clone())?;
    println!("connected");
    let mut all = Answer::default();
    while let Some(line) = lines.next_line().await? {
        if line == "sum" {
            println!("{}", json!({"posted": all.posted, "read": all.read, "checksum": all.checksum}));
            continue;
        }
        let round: u64 = line.parse()?;
        let end = options.requests.min(round + ROUND);
        let step = options.threads as u64 * options.connections;
        // Connection n of the example is at place n % places.
        let own = (own as u64..step).step_by(options.threads);
        let connection = |number: u64| {
            let peers = peers.clone();
            tokio::spawn(async move {
                let mut answer = Answer::default();
                for request in (round + number..end).step_by(step as usize) {
                    answer = answer.and(front(world, &peers, request, round).await?);
                }
                Ok::<_, tonic::Status>(answer)
            })
        };
        let connections: Vec<_> = own.map(connection).collect();
        for connection in connections {
            all = all.and(connection.await??);
        }
        println!("done");
    }
    Ok(())
}
