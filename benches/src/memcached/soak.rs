//! `--soak`: the delegated build under clients that check every reply and vanish at will, with too little memory for
//! all they store. It has to keep answering rightly, to stay at its size once its cache is full, and to end well when
//! it is told to.

use super::Memcached;
use super::points::{DELEGATED, program};
use super::talk::{Counts, Talker};
use crate::kv::servers::child::Child;
use crate::prelude::*;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const OBJECTS: u32 = 40_000;
const MEMORY_MIB: &str = "24";
/// How often the statistics are asked for, which every shard adds to, and memory is looked at.
const LOOKS: u64 = 40;
const PAUSE: Duration = Duration::from_millis(20);
/// Growth over the second half that is no leak, of memory beside slabs: buffers of values mostly.
const GROWTH: f64 = 1.5;
/// Below so many operations the cache has not been full for long enough to say.
const LEAST_FOR_GROWTH: u64 = 1_000_000;

/// Result of a soak.
#[derive(Debug, Serialize)]
pub struct Soaked {
    #[serde(flatten)]
    counts: Counts,
    seconds: f64,
    evictions: u64,
    /// Memory of the server over the run, in MiB,
    resident_mib: Vec<f64>,
    /// and the part of it in slabs. Each shard has at least one page of each class of sizes that it ever used, so slabs
    /// grow until the rarest has come.
    slabs_mib: Vec<f64>,
    /// All but the slabs: the most of the last quarter over the most of the second.
    growth: Option<f64>,
}

pub fn soak(options: &Memcached, operations: u64) -> Result<Soaked> {
    let (threads, talkers) = (options.threads.to_string(), options.load.connections as u32);
    let mut server = Child::memcached(&program(options, DELEGATED), &["-t", &threads, "-m", MEMORY_MIB, "-A"])?;
    let mut watch = Watch::over(&server)?;
    let connections = watch.stat("curr_connections")?;
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let begun = Instant::now();
    let (mut resident_mib, mut slabs_mib) = (Vec::new(), Vec::new());
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let counts = thread::scope(|scope| -> Result<Vec<Counts>> {
        let clients: Vec<_> = (0..talkers)
            .map(|me| {
                let mut talker = Talker::new(me, talkers, OBJECTS, server.address(), options.common.seed);
                let (done, is_over) = (&done, &is_over);
                scope.spawn(move || {
                    let mut counted = 0;
                    while !is_over.load(Ordering::Relaxed) && done.load(Ordering::Relaxed) < operations {
                        if let Err(error) = talker.batch() {
                            is_over.store(true, Ordering::Relaxed);
                            return Err(error);
                        }
                        done.fetch_add(talker.counts.operations - counted, Ordering::Relaxed);
                        counted = talker.counts.operations;
                    }
                    Ok(talker.counts)
                })
            })
            .collect();
        let mut looks = 0;
        while clients.iter().any(|client| !client.is_finished()) {
            thread::sleep(PAUSE);
            let now = done.load(Ordering::Relaxed);
            if now * LOOKS / operations > looks && !is_over.load(Ordering::Relaxed) {
                looks = now * LOOKS / operations;
                // An error here is the server's end, of which the clients know more.
                let Ok(slabs) = watch.look() else { continue };
                let Ok(resident) = server.resident_bytes() else { continue };
                slabs_mib.push(mib(slabs));
                resident_mib.push(mib(resident as u64));
                eprintln!("{now} operations, {:.0} MiB, of which slabs {:.0}", mib(resident as u64), mib(slabs));
            }
        }
        clients
            .into_iter()
            .map(|client| client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })?;
    let soaked = Soaked {
        counts: counts.into_iter().fold(Counts::default(), Counts::and),
        seconds: begun.elapsed().as_secs_f64(),
        evictions: watch.stat("evictions")?,
        growth: (operations >= LEAST_FOR_GROWTH).then(|| growth(&resident_mib, &slabs_mib)),
        slabs_mib,
        resident_mib,
    };
    println!("{soaked:#?}");
    watch.until_stat("curr_connections", connections)?;
    ensure!(operations < LEAST_FOR_GROWTH || soaked.evictions > 0, "nothing was evicted");
    let growth = soaked.growth.unwrap_or(1.0);
    ensure!(growth <= GROWTH, "the server's memory grew by a factor of {growth:.3} after its cache was full");
    watch.say("shutdown")?;
    let status = server.process.end()?;
    ensure!(status.success(), "the server ended with {status}");
    Ok(soaked)
}

fn growth(resident_mib: &[f64], slabs_mib: &[f64]) -> f64 {
    let others: Vec<f64> = resident_mib.iter().zip(slabs_mib).map(|(resident, slabs)| resident - slabs).collect();
    let quarter = others.len() / 4;
    let most = |samples: &[f64]| samples.iter().copied().fold(0.0, f64::max);
    most(&others[3 * quarter..]) / most(&others[quarter..2 * quarter])
}

fn value_of(name: &str, lines: &[String]) -> Result<u64> {
    let mut found = lines.iter().filter_map(|line| line.strip_prefix("STAT ")?.strip_prefix(name)?.strip_prefix(' '));
    Ok(found.next().with_context(|| format!("no {name} in the statistics"))?.parse()?)
}

/// A connection that asks for statistics.
struct Watch(BufReader<TcpStream>);

impl Watch {
    fn over(server: &Child) -> Result<Self> {
        let socket = TcpStream::connect(server.address()).context("connecting")?;
        socket.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self(BufReader::new(socket)))
    }

    fn say(&mut self, line: &str) -> Result<()> {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).context(line.to_owned())
    }

    fn lines(&mut self, command: &str) -> Result<Vec<String>> {
        self.say(command)?;
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            ensure!(self.0.read_line(&mut line)? > 0, "no reply to {command}");
            if line.starts_with("END") || line.starts_with("RESET") {
                return Ok(lines);
            }
            lines.push(line.trim_end().to_owned());
        }
    }

    /// All that every shard adds to; the bytes of all slabs.
    fn look(&mut self) -> Result<u64> {
        for command in ["stats", "stats items", "stats sizes", "stats cachedump 5 100"] {
            self.lines(command)?;
        }
        value_of("total_malloced", &self.lines("stats slabs")?)
    }

    fn stat(&mut self, name: &str) -> Result<u64> {
        value_of(name, &self.lines("stats")?)
    }

    /// The server takes a moment to see that connections are gone.
    fn until_stat(&mut self, name: &str, wanted: u64) -> Result<()> {
        let begun = Instant::now();
        loop {
            let is = self.stat(name)?;
            if is == wanted {
                return Ok(());
            }
            ensure!(begun.elapsed() < Duration::from_secs(10), "{name} stays at {is} instead of {wanted}");
            thread::sleep(PAUSE);
        }
    }
}
