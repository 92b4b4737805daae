//! The exchange over trusts: `gossamer-bench echo-rack`, as threads of one process or as the machines of a rack.
//!
//! Each worker has a property, its server, and a fiber, its client, which sends with `apply_then` (with `apply` where
//! only one request is outstanding). Nothing is batched by hand.

use crate::machines::{InFlight, Shards, WORKERS_MAX, at, over_rack};
use crate::prelude::*;
use exchange::{Meter, Peers, Plan, Point, Tally, answer, mark, marked, now_ns, number};
use gossamer::bootstrap::FabricChoice;

/// Requests between two looks at the clock.
const REQUESTS_PER_LOOK: u64 = 32;

/// Options of `echo-rack`.
#[derive(Clone, Debug, Args)]
pub struct EchoRack {
    /// Processes; 1 for threads of one process.
    #[arg(long, default_value_t = 1)]
    processes: u16,
    /// Workers in all processes together.
    #[arg(long, default_value_t = 2)]
    workers: u32,
    /// The fabric between the processes: shm, tcp or auto.
    #[arg(long, default_value = "auto")]
    fabric: FabricChoice,
    #[command(flatten)]
    plan: Plan,
}

/// State of a worker's trustee that serves the others.
#[derive(Clone)]
struct Server {
    own: usize,
    served: u64,
    received: u64,
}

impl Server {
    fn serve<const WORDS: usize>(&mut self, mut message: [u64; WORDS]) -> [u64; WORDS] {
        // A message with wrong marks gets an answer that its client finds wrong.
        let number = marked(&message).unwrap_or(u64::MAX);
        self.served += 1;
        self.received = self.received.wrapping_add(number);
        mark(&mut message, answer(number, self.own));
        message
    }
}

/// Runs the program, or starts its machines.
pub fn command(options: EchoRack) -> Result<()> {
    let EchoRack { processes, workers, fabric, plan } = options;
    plan.check().map_err(anyhow::Error::msg)?;
    ensure!((2..=WORKERS_MAX as u32).contains(&workers), "--workers {workers}: 2 to {WORKERS_MAX} are possible");
    over_rack(processes, workers, fabric, move || measure(&plan)).map(|_| ())
}

/// On machine 0: all points, one after the other.
fn measure(plan: &Plan) -> Result<()> {
    for (bytes, outstanding) in plan.points() {
        let tally = match bytes {
            8 => run_point::<1>(plan, outstanding),
            32 => run_point::<4>(plan, outstanding),
            128 => run_point::<16>(plan, outstanding),
            512 => run_point::<64>(plan, outstanding),
            1024 => run_point::<128>(plan, outstanding),
            2048 => run_point::<256>(plan, outstanding),
            4096 => run_point::<512>(plan, outstanding),
            16_384 => run_point::<2048>(plan, outstanding),
            65_536 => run_point::<8192>(plan, outstanding),
            other => bail!("--bytes {other} is not possible"),
        };
        let (tally, meter) = tally?;
        let mut point = Point::new(bytes, outstanding, &tally, &meter).map_err(anyhow::Error::msg)?;
        point.memory_bytes = memory()?;
        println!("{}", point.line());
    }
    Ok(())
}

/// Memory of all processes together, unless one does not know its own.
fn memory() -> Result<Option<u64>> {
    let processes = gossamer::rack().places().filter(|place| place.worker == 0);
    processes.map(|place| at(place, own_memory)).sum()
}

/// Memory of this process in bytes: of a page that others map as well, its part.
fn own_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

fn run_point<const WORDS: usize>(plan: &Plan, outstanding: usize) -> Result<(Tally, Meter)> {
    let places: Vec<_> = gossamer::rack().places().collect();
    let servers = Shards::new(|own| move || Server { own, served: 0, received: 0 })?;
    let (gate, meter) = (gossamer::entrust(0usize), gossamer::entrust(Meter::default()));
    let fibers: Vec<_> = places
        .iter()
        .enumerate()
        .map(|(own, &place)| {
            let (servers, gate, meter) = (servers.clone(), gate.clone(), meter.clone());
            let (workers, seed, time) = (places.len(), plan.seed, plan.time());
            gossamer::spawn_on(place, move || {
                let client = Client::new(own, workers, seed, servers);
                // Everyone has met everyone before anyone's time begins.
                client.greet::<WORDS>();
                gate.apply(|arrived| *arrived += 1);
                while gate.apply(|arrived| *arrived) < workers {
                    trust::sleep(Duration::from_micros(50));
                }
                let tally = client.run::<WORDS>(outstanding, time);
                meter.apply_with(
                    |meter, counts: Vec<(u64, u64)>| meter.add(&counts),
                    client.state.meter.borrow().counts(),
                );
                tally
            })
        })
        .collect();
    let mut all = Tally::default();
    for fiber in fibers {
        let tally = fiber.join().map_err(|_| anyhow::anyhow!("a client's fiber has panicked"))?;
        all = all.and(tally);
    }
    for server in servers.iter() {
        let (served, received) = server.apply(|server| (server.served, server.received));
        all.served += served;
        all.received = all.received.wrapping_add(received);
    }
    let counts = meter.apply_with(|meter, ()| meter.counts(), ());
    let mut meter = Meter::default();
    meter.add(&counts);
    Ok((all, meter))
}

/// A worker as client.
struct Client {
    own: usize,
    workers: usize,
    seed: u64,
    servers: Shards<Server>,
    state: Rc<State>,
}

/// State of the callbacks of a client's requests.
#[derive(Default)]
struct State {
    in_flight: InFlight,
    meter: RefCell<Meter>,
}

impl State {
    /// Measures an answer that has come; returns whether it is the expected one.
    fn note<const WORDS: usize>(&self, message: &[u64; WORDS], expected: u64, start: Option<Instant>) -> bool {
        if start.is_some() {
            self.meter.borrow_mut().stop(start);
        }
        marked(message) == Some(expected)
    }
}

impl Client {
    fn new(own: usize, workers: usize, seed: u64, servers: Shards<Server>) -> Self {
        Client { own, workers, seed, servers, state: Rc::default() }
    }

    /// A request to each, which is not counted.
    fn greet<const WORDS: usize>(&self) {
        for server in self.servers.iter() {
            server.apply(|server| {
                let (served, received) = (server.served, server.received);
                std::hint::black_box(server.serve([0; WORDS]));
                (server.served, server.received) = (served, received);
            });
        }
    }

    fn run<const WORDS: usize>(&self, outstanding: usize, time: Duration) -> Tally {
        let mut peers = Peers::new(self.own, self.workers, self.seed);
        let (start_ns, deadline) = (now_ns(), Instant::now() + time);
        let (mut made, mut sent) = (0u64, 0u64);
        while !made.is_multiple_of(REQUESTS_PER_LOOK) || made == 0 || Instant::now() < deadline {
            let peer = peers.pick();
            let number = number(self.own, made);
            sent = sent.wrapping_add(number);
            self.send::<WORDS>(peer, number, Meter::start(made), outstanding);
            made += 1;
        }
        self.state.in_flight.wait_for(0);
        let wrong = self.state.in_flight.wrong();
        Tally { requests: made, wrong, sent, start_ns, end_ns: now_ns(), ..Tally::default() }
    }

    #[inline(always)]
    fn send<const WORDS: usize>(&self, peer: usize, number: u64, start: Option<Instant>, outstanding: usize) {
        let mut message = [0; WORDS];
        mark(&mut message, number);
        let expected = answer(number, peer);
        let server = self.servers.at(peer);
        if outstanding == 1 {
            let message = server.apply(move |server| server.serve(message));
            return self.state.in_flight.note(self.state.note(&message, expected, start));
        }
        self.state.in_flight.begin(outstanding);
        let state = Rc::clone(&self.state);
        server.apply_then(
            move |server| server.serve(message),
            move |message| state.in_flight.end(state.note(&message, expected, start)),
        );
    }
}
