//! The exchange of `gossamer-bench echo` over MPI (rsmpi): each rank is client and server.
//!
//! Request by request, each request and each reply is a message. Aggregated, a rank gathers the messages for a peer,
//! requests and replies alike, in a buffer of the size of a slot, and sends it when it is full or when there is nothing
//! else to do, as the Graph500 reference does. In both forms a rank receives pending messages between any two requests
//! of its own.
//!
//! Here: how bytes get from rank to rank. Not here: the requests and their checks (the package `exchange`).

use std::collections::VecDeque;
use std::time::Instant;

use clap::Parser;
use echo_mpi::outbox::Outbox;
use exchange::{Meter, Peers, Plan, Point, Tally, answer, is_timed, mark, marked, now_ns, number};
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

/// Marks of a message's kind, in the low bit of its head; the rest of the head is the number of the request it belongs
/// to.
const REQUEST: u64 = 0;
const REPLY: u64 = 1;

#[derive(Parser)]
struct Options {
    /// Gather messages in buffers.
    #[arg(long)]
    aggregated: bool,
    /// Bytes of such a buffer: as many as a slot of the remote path has.
    #[arg(long, default_value_t = 8192)]
    buffer_bytes: usize,
    #[command(flatten)]
    plan: Plan,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    options.plan.check()?;
    let universe = mpi::initialize().ok_or("MPI could not be started")?;
    let world = universe.world();
    if world.size() < 2 {
        return Err("start at least two ranks: mpirun -n 2".into());
    }
    for (bytes, outstanding) in options.plan.points() {
        let mut rank = Rank::new(&world, bytes, options.aggregated.then_some(options.buffer_bytes));
        world.barrier();
        let (tally, meter) = rank.run(&options.plan, outstanding);
        if let Some((all, meter)) = gather(&world, tally, &meter) {
            println!("{}", Point::new(bytes, outstanding, &all, &meter)?.line());
        }
    }
    Ok(())
}

/// One rank in one point.
struct Rank<'a> {
    world: &'a SimpleCommunicator,
    own: usize,
    words: usize,
    outbox: Outbox,
    tally: Tally,
    meter: Meter,
    in_flight: usize,
    /// When requests that are timed were sent, and their numbers, in order.
    timed: VecDeque<(u64, Instant)>,
    buffer: Vec<u64>,
}

impl<'a> Rank<'a> {
    fn new(world: &'a SimpleCommunicator, bytes: usize, buffer_bytes: Option<usize>) -> Self {
        let (own, ranks, words) = (world.rank() as usize, world.size() as usize, bytes / 8);
        // A head and the message.
        let message = words + 1;
        let gathered = buffer_bytes.map_or(message, |bytes| message.max(bytes / 8));
        Rank {
            world,
            own,
            words,
            outbox: Outbox::new(ranks, gathered, message),
            tally: Tally::default(),
            meter: Meter::default(),
            in_flight: 0,
            timed: VecDeque::new(),
            buffer: vec![0; gathered],
        }
    }

    fn run(&mut self, plan: &Plan, outstanding: usize) -> (Tally, Meter) {
        let mut peers = Peers::new(self.own, self.world.size() as usize, plan.seed);
        self.tally.start_ns = now_ns();
        let deadline = Instant::now() + plan.time();
        let mut made = 0u64;
        while made % 32 != 0 || made == 0 || Instant::now() < deadline {
            while self.in_flight >= outstanding {
                self.serve();
            }
            let (peer, number) = (peers.pick(), number(self.own, made));
            if let Some(start) = Meter::start(made) {
                self.timed.push_back((number, start));
            }
            self.in_flight += 1;
            self.tally.sent = self.tally.sent.wrapping_add(number);
            let (words, world) = (self.words, self.world);
            self.outbox.add(world, peer, |message| {
                // Numbers stay below 2^63: the bit of the kind has room.
                message[0] = number << 1 | REQUEST;
                mark(&mut message[1..=words], number);
            });
            made += 1;
            if self.outbox.is_eager() || made % 8 == 0 {
                self.take();
            }
        }
        while self.in_flight > 0 {
            self.serve();
        }
        self.tally.requests = made;
        self.tally.end_ns = now_ns();
        self.serve_until_all_are_done();
        (self.tally, std::mem::take(&mut self.meter))
    }

    /// Takes the messages that have arrived; with none there, sends the gathered ones.
    fn serve(&mut self) {
        if !self.take() {
            self.outbox.flush(self.world);
            std::thread::yield_now();
        }
    }

    /// The others may still have requests when this rank has no more.
    fn serve_until_all_are_done(&mut self) {
        let mut barrier = Some(self.world.immediate_barrier());
        while let Some(pending) = barrier.take() {
            self.serve();
            barrier = pending.test().err();
        }
        self.outbox.finish(self.world);
        // Nobody looks for messages any more when the first one goes on, to other messages.
        self.world.barrier();
    }

    /// Takes one buffer, if one has come.
    fn take(&mut self) -> bool {
        let Some(status) = self.world.any_process().immediate_probe() else {
            self.outbox.reap();
            return false;
        };
        let from = status.source_rank();
        let count = status.count(u64::equivalent_datatype()) as usize;
        let mut buffer = std::mem::take(&mut self.buffer);
        self.world.process_at_rank(from).receive_into(&mut buffer[..count]);
        for message in buffer[..count].chunks_exact_mut(self.words + 1) {
            self.handle(from as usize, message);
        }
        self.buffer = buffer;
        true
    }

    fn handle(&mut self, from: usize, message: &mut [u64]) {
        let (number, kind) = (message[0] >> 1, message[0] & 1);
        let value = marked(&message[1..]);
        if kind == REQUEST {
            let value = value.unwrap_or(u64::MAX);
            self.tally.served += 1;
            self.tally.received = self.tally.received.wrapping_add(value);
            mark(&mut message[1..], answer(value, self.own));
            message[0] = number << 1 | REPLY;
            let world = self.world;
            return self.outbox.add_copy(world, from, message);
        }
        if value != Some(answer(number, from)) {
            self.tally.wrong += 1;
        }
        self.in_flight -= 1;
        // Replies of different peers may overtake one another; few are timed at a time.
        if is_timed(number)
            && let Some(place) = self.timed.iter().position(|(timed, _)| *timed == number)
            && let Some((_, start)) = self.timed.remove(place)
        {
            self.meter.stop(Some(start));
        }
    }
}

/// All tallies and latencies, at rank 0.
fn gather(world: &SimpleCommunicator, tally: Tally, meter: &Meter) -> Option<(Tally, Meter)> {
    const TAG: i32 = 1;
    let Tally { requests, wrong, sent, served, received, start_ns, end_ns } = tally;
    let mut words = vec![requests, wrong, sent, served, received, start_ns, end_ns];
    words.extend(meter.counts().into_iter().flat_map(|(value, count)| [value, count]));
    if world.rank() != 0 {
        world.process_at_rank(0).send_with_tag(&words[..], TAG);
        return None;
    }
    let (mut all, mut merged) = (Tally::default(), Meter::default());
    for rank in 0..world.size() {
        let told =
            if rank == 0 { words.clone() } else { world.process_at_rank(rank).receive_vec_with_tag::<u64>(TAG).0 };
        let (head, counts) = told.split_at(7);
        let [requests, wrong, sent, served, received, start_ns, end_ns] = head.try_into().unwrap_or([0; 7]);
        all = all.and(Tally { requests, wrong, sent, served, received, start_ns, end_ns });
        let counts: Vec<(u64, u64)> = counts.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        merged.add(&counts);
    }
    Some((all, merged))
}
