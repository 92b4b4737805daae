//! Many clients, slow ones, and clients that vanish.

use std::fs;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::servers::{Client, Server, TIME_LIMIT, memory};

#[test]
fn a_thousand_connections_are_served() {
    let server = Server::kv("--threads 2 --connections 1100", 1);
    let mut clients: Vec<Client> = (0..1000).map(|_| server.connect(0)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(format!("set k{number} 0 0 4\r\n{number:04}\r\nget k{number}\r\n").as_bytes());
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let replies = [client.line(), client.line(), client.line(), client.line()];
        assert_eq!(replies, ["STORED", &format!("VALUE k{number} 0 4"), &format!("{number:04}"), "END"]);
    }
    assert_eq!(server.stat("curr_connections"), 1001);
    drop(clients);
    server.wait_for("curr_connections", |open| open == 1);
}

#[test]
fn one_connection_too_many_is_told_so() {
    let server = Server::kv("--threads 1 --connections 2", 1);
    let mut first = server.connect(0);
    assert_eq!(first.ask("verbosity 0"), "OK");
    let mut second = server.connect(0);
    assert_eq!(second.ask("verbosity 0"), "OK");
    assert_eq!(server.connect(0).rest(), b"ERROR Too many open connections\r\n");
    drop(second);
    let begun = Instant::now();
    while server.say(b"verbosity 0\r\n") != b"OK\r\n" {
        assert!(begun.elapsed() < TIME_LIMIT, "the connection that has ended still counts");
    }
    assert_eq!(first.ask("verbosity 0"), "OK");
}

#[test]
fn a_client_that_does_not_read_costs_little_memory() {
    let server = Server::kv("--threads 2", 1);
    let mut client = server.connect(0);
    let (bytes, times) = (1_048_000, 300);
    assert_eq!(client.ask(&format!("set large 0 0 {bytes}\r\n{}", "v".repeat(bytes))), "STORED");
    let before = memory(server.pid());
    client.send(&b"get large\r\n".repeat(times));
    // By the time the first value is here the others were asked for.
    for time in 0..times {
        assert_eq!(client.line(), format!("VALUE large 0 {bytes}"), "{time}");
        assert!(client.bytes(bytes).iter().all(|byte| *byte == b'v'));
        assert_eq!([client.line(), client.line()], ["", "END"]);
        let grown = memory(server.pid()).saturating_sub(before);
        assert!(grown < 32 << 20, "{grown} bytes more, for {} values that wait", times - time);
    }
}

#[test]
fn a_line_of_very_many_keys_costs_little_memory() {
    let server = Server::kv("--threads 2", 1);
    let mut client = server.connect(0);
    let value = "v".repeat(200);
    assert_eq!(client.ask(&format!("set a 0 0 200\r\n{value}")), "STORED");
    let (before, keys) = (memory(server.pid()), 300_000);
    client.send(format!("get{}\r\n", " a".repeat(keys)).as_bytes());
    for key in 0..keys {
        assert_eq!(client.line(), "VALUE a 0 200", "{key}");
        assert_eq!(client.line(), value, "{key}");
        if key % 10_000 == 0 {
            let grown = memory(server.pid()).saturating_sub(before);
            assert!(grown < 32 << 20, "{grown} bytes more, {key} keys of the line answered");
        }
    }
    assert_eq!(client.line(), "END");
}

#[test]
fn a_long_line_is_read_in_large_pieces() {
    let server = Server::kv("--threads 2", 1);
    let mut client = server.connect(0);
    // Almost the longest line that there may be, of keys that are not there.
    let line = format!("get{}\r\n", format!(" {}", "k".repeat(249)).repeat(4000));
    let before = cpu_ticks(server.pid());
    for _ in 0..3 {
        client.send(line.as_bytes());
        assert_eq!(client.line(), "END");
    }
    let ticks = cpu_ticks(server.pid()) - before;
    assert!(ticks < 300, "{ticks} ticks of 10 ms for three lines");
}

#[test]
fn clients_vanish_in_the_middle_of_things() {
    let server = Server::kv("--threads 2", 2);
    let mut witness = server.connect(0);
    assert_eq!(witness.ask(&format!("set large 0 0 100000\r\n{}", "v".repeat(100_000))), "STORED");
    for round in 0..60 {
        let mut client = server.connect(round % 2);
        match round % 6 {
            0 => client.send(b"set k 0 0 1000\r\nhalf"),
            1 => client.send(b"get k\r\nget "),
            2 => client.send(&b"get large\r\n".repeat(100)), // and reads nothing
            3 => client.send(&b"set k 0 0 5\r\nvalue\r\n".repeat(1000)),
            4 => client.send(b"set large2 0 0 1048000\r\n"),
            _ => {}
        }
    }
    server.wait_for("curr_connections", |open| open == 2);
    assert_eq!(witness.ask("set own 0 0 1\r\n1"), "STORED");
    assert_eq!(server.connect(1).ask("get own"), "VALUE own 0 1");
    assert_eq!(server.say(b"get large2\r\n"), b"END\r\n", "half a value is none");
}

/// CPU time of a process, in clock ticks of 10 ms.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Connections that store, look and vanish for so long. Each key belongs to one connection, which knows its last value.
/// Returns how many requests were answered.
fn soak(server: &Server, connections: usize, time: Duration) -> u64 {
    const THREADS: usize = 4;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let run = |thread: usize| {
            move || {
                let mut random = StdRng::seed_from_u64(thread as u64);
                let mut clients: Vec<Soaker> = (0..connections / THREADS)
                    .map(|client| Soaker::new(server, thread * connections + client))
                    .collect();
                let (mut requests, mut minutes) = (0, 0);
                while begun.elapsed() < time {
                    let place = random.random_range(0..clients.len());
                    requests += clients[place].burst(server, &mut random);
                    if thread == 0 && begun.elapsed().as_secs() / 60 > minutes {
                        minutes += 1;
                        println!("minute {minutes}: {} KiB resident", memory(server.pid()) >> 10);
                    }
                }
                clients.iter_mut().for_each(Soaker::check);
                requests
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

/// A client of the soak, and the values that it knows to be stored.
struct Soaker {
    client: Client,
    number: usize,
    /// Length and bytes of the value of each of its keys.
    stored: [Option<(usize, u8)>; 4],
}

impl Soaker {
    fn new(server: &Server, number: usize) -> Self {
        let client = server.connect(number % server.addresses.len());
        Soaker { client, number, stored: [None; 4] }
    }

    fn burst(&mut self, server: &Server, random: &mut StdRng) -> u64 {
        let (mut replies, mut requests) = (Vec::new(), String::new());
        // The outcome of its last requests is unknown, so a client that will vanish has keys with unknown values.
        let vanishes = random.random_bool(0.02);
        for _ in 0..random.random_range(1..16) {
            let place = random.random_range(0..4);
            let key = if vanishes { format!("v{place}") } else { format!("k{}-{place}", self.number) };
            if random.random_bool(0.4) {
                let bytes = match random.random_range(0..100) {
                    0 => random.random_range(1..200_000),
                    1..10 => random.random_range(1..3000),
                    _ => random.random_range(1..40),
                };
                let byte = random.random_range(b'a'..=b'z');
                requests += &format!("set {key} 0 0 {bytes}\r\n{}\r\n", (byte as char).to_string().repeat(bytes));
                if !vanishes {
                    self.stored[place] = Some((bytes, byte));
                }
                replies.push(None);
            } else {
                requests += &format!("get {key}\r\n");
                replies.push(Some((key, self.stored[place])));
            }
        }
        if vanishes {
            self.client.send(&requests.as_bytes()[..random.random_range(0..requests.len())]);
            self.client = server.connect(self.number % server.addresses.len());
            return 0;
        }
        self.client.send(requests.as_bytes());
        let count = replies.len() as u64;
        for reply in replies {
            match reply {
                None => assert_eq!(self.client.line(), "STORED"),
                Some((key, stored)) => self.expect(&key, stored),
            }
        }
        count
    }

    fn expect(&mut self, key: &str, stored: Option<(usize, u8)>) {
        let head = self.client.line();
        if head == "END" {
            return assert_eq!(stored, None, "{key} is lost");
        }
        let bytes: usize =
            head.strip_prefix(&format!("VALUE {key} 0 ")).unwrap_or_else(|| panic!("{head}")).parse().unwrap();
        let value = self.client.bytes(bytes + 2);
        assert_eq!(self.client.line(), "END");
        assert!(value[..bytes].iter().all(|byte| *byte == value[0]), "{key} is mixed up");
        if stored.is_some() {
            assert_eq!(Some((bytes, value[0])), stored, "{key}");
        }
    }

    fn check(&mut self) {
        for place in 0..4 {
            let key = format!("k{}-{place}", self.number);
            self.client.send(format!("get {key}\r\n").as_bytes());
            self.expect(&key, self.stored[place]);
        }
    }
}

#[test]
fn mixed_load_with_vanishing_clients() {
    let server = Server::kv("--threads 2 --memory 1024", 2);
    assert!(soak(&server, 100, Duration::from_secs(5)) > 0);
    server.wait_for("curr_connections", |open| open == 1);
}

/// `KV_SOAK_SECONDS=600 cargo test --release -p gossamer-examples --test kv -- --ignored --nocapture soak`
#[test]
#[ignore = "takes as long as it is told to, ten minutes unless KV_SOAK_SECONDS says otherwise"]
fn soak_with_a_thousand_connections() {
    let seconds = std::env::var("KV_SOAK_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(600);
    let server = Server::kv("--threads 2 --memory 1024", 1);
    soak(&server, 1000, Duration::from_secs(seconds.min(60)));
    let (early, ticks) = (memory(server.pid()), cpu_ticks(server.pid()));
    println!("after a minute: {} KiB resident, {ticks} ticks of 10 ms", early >> 10);
    let requests = soak(&server, 1000, Duration::from_secs(seconds.saturating_sub(60)));
    let late = memory(server.pid());
    println!("after {seconds} s: {} KiB resident, {requests} requests answered since the first minute", late >> 10);
    server.wait_for("curr_connections", |open| open == 1);
    let before = cpu_ticks(server.pid());
    std::thread::sleep(Duration::from_secs(10)); // no condition to wait for: the test is that nothing happens
    let idle = cpu_ticks(server.pid()) - before;
    println!("idle: {idle} ticks of 10 ms in 10 s");
    assert!(late < early + early / 4 + (8 << 20), "memory grows");
    assert!(idle <= 10, "it is not idle");
}
