//! The exchange of `gossamer-bench echo` over gRPC (tonic): each process is client and server, on one thread.
//!
//! Started with `--processes N` it starts itself N times, tells each the ports of all, and leads them through the
//! points by lines on their standard streams: `go` begins a point, `done` says that a client has all its answers, `sum`
//! asks for the tally. Here: that, and the client. Not here: the gRPC service (service.rs), the requests (the package
//! `exchange`).

mod plain;
mod process;
mod service;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::PoisonError;
use std::time::Instant;

use clap::Parser;
use exchange::{Meter, Peers, Plan, Point, Tally, answer, mark, marked, now_ns, number};
use process::{Result, end_all, start_all, tell_all};
use serde::{Deserialize, Serialize};
use service::Server;
use tokio::io::{AsyncBufReadExt, Lines, Stdin};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Channel;

#[derive(Parser)]
struct Options {
    /// Processes of the exchange.
    #[arg(long, default_value_t = 2)]
    processes: usize,
    /// Which of them this is; not given to the one that starts them.
    #[arg(long)]
    own: Option<usize>,
    #[command(flatten)]
    plan: Plan,
}

/// A process's report of a point.
#[derive(Serialize, Deserialize)]
struct Told {
    tally: Tally,
    counts: Vec<(u64, u64)>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    options.plan.check()?;
    match options.own {
        None => lead(&options),
        Some(own) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            tokio::task::LocalSet::new().block_on(&runtime, take_part(own, &options))
        }
    }
}

fn lead(options: &Options) -> Result<()> {
    let mut processes = start_all(options.processes)?;
    for (bytes, outstanding) in options.plan.points() {
        tell_all(&mut processes, "go")?;
        let (mut all, mut meter) = (Tally::default(), Meter::default());
        for line in tell_all(&mut processes, "sum")? {
            let told: Told = serde_json::from_str(&line)?;
            all = all.and(told.tally);
            meter.add(&told.counts);
        }
        println!("{}", Point::new(bytes, outstanding, &all, &meter)?.line());
    }
    end_all(processes)
}

async fn hear(lines: &mut Lines<tokio::io::BufReader<Stdin>>) -> Result<String> {
    Ok(lines.next_line().await?.ok_or("the process that leads has ended")?)
}

async fn take_part(own: usize, options: &Options) -> Result<()> {
    let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    let server = Server { own, served: Default::default() };
    let (serving, served) = (server.clone(), server.served);
    tokio::task::spawn_local(async move {
        let router = tonic::transport::Server::builder().tcp_nodelay(true).add_service(serving);
        if let Err(error) = router.serve_with_incoming(TcpListenerStream::new(listener)).await {
            eprintln!("echo-tonic: the server has ended: {error}");
        }
    });
    let mut channels = Vec::new();
    for port in hear(&mut lines).await?.split_whitespace() {
        let address = format!("http://127.0.0.1:{port}");
        channels.push(Channel::from_shared(address)?.tcp_nodelay(true).connect().await?);
    }
    let channels = Rc::new(channels);
    println!("connected");
    for (bytes, outstanding) in options.plan.points() {
        hear(&mut lines).await?;
        let client = Rc::new(Client::new(own, bytes / 8, &options.plan, &channels));
        let tasks: Vec<_> = (0..outstanding).map(|_| tokio::task::spawn_local(Rc::clone(&client).run())).collect();
        for task in tasks {
            task.await??;
        }
        println!("done");
        hear(&mut lines).await?;
        // All clients are done, so nothing more is served for this point.
        let served = std::mem::take(&mut *served.lock().unwrap_or_else(PoisonError::into_inner));
        let mut tally = client.tally.get();
        (tally.served, tally.received) = (served.served, served.received);
        tally.end_ns = client.end_ns.get();
        let counts = client.meter.borrow().counts();
        println!("{}", serde_json::to_string(&Told { tally, counts })?);
    }
    // Until the leader has all it wants.
    let _ = lines.next_line().await;
    Ok(())
}

/// The client of one process in one point; as many tasks as there may be requests outstanding.
struct Client {
    own: usize,
    words: usize,
    channels: Rc<Vec<Channel>>,
    peers: RefCell<Peers>,
    deadline: Instant,
    tally: Cell<Tally>,
    end_ns: Cell<u64>,
    meter: RefCell<Meter>,
    made: Cell<u64>,
}

impl Client {
    fn new(own: usize, words: usize, plan: &Plan, channels: &Rc<Vec<Channel>>) -> Self {
        Client {
            own,
            words,
            channels: Rc::clone(channels),
            peers: RefCell::new(Peers::new(own, channels.len(), plan.seed)),
            deadline: Instant::now() + plan.time(),
            tally: Cell::new(Tally { start_ns: now_ns(), ..Tally::default() }),
            end_ns: Cell::new(0),
            meter: RefCell::default(),
            made: Cell::new(0),
        }
    }

    async fn run(self: Rc<Self>) -> std::result::Result<(), tonic::Status> {
        let mut words = vec![0; self.words];
        while Instant::now() < self.deadline || self.made.get() == 0 {
            let made = self.made.replace(self.made.get() + 1);
            let (peer, number) = (self.peers.borrow_mut().pick(), number(self.own, made));
            mark(&mut words, number);
            let start = Meter::start(made);
            let told = service::ask(&self.channels[peer], &words).await?;
            let mut tally = self.tally.get();
            tally.requests += 1;
            tally.sent = tally.sent.wrapping_add(number);
            let is_right = marked(&told) == Some(answer(number, peer)) && told.len() == self.words;
            tally.wrong += u64::from(!is_right);
            self.tally.set(tally);
            self.end_ns.set(now_ns());
            self.meter.borrow_mut().stop(start);
        }
        Ok(())
    }
}
