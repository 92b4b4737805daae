//! A server as a child process: found, started, looked at. A server that cannot be had is skipped, with the reason.

use super::serve::Behind;
use crate::kv::load::{DEPTH, VALUE_BYTES};
use crate::prelude::*;
use crate::process::Process;
use crate::programs::in_path;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};

/// The reference from outside.
pub const MEMCACHED: &str = "memcached";
/// A server that takes longer than this to start, or to end, does not.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);
/// Memcached's memory beside a key and its value, and some room.
const ITEM_BYTES: usize = 256;
const MEMORY_MIB_MIN: usize = 256;

/// Those with these names, all where there are none, in the order they are shown in.
pub fn names(only: &[String]) -> Result<Vec<String>> {
    let tables = Behind::value_variants().iter().map(|table| name_of(*table));
    chosen("server", tables.chain([MEMCACHED.to_owned()]).collect(), |name| name, only)
}

/// A server that runs; it is ended when this is dropped.
pub struct Child {
    pub process: Process,
    address: SocketAddr,
}

impl Child {
    /// Starts a server of so many threads, with memory for so many items; or says why it cannot be had here.
    pub fn start(name: &str, threads: usize, keys: usize) -> Result<Found<Self>> {
        let memory_mib = Self::memory_mib(keys).to_string();
        if name == "kv-dedicated" && threads == 1 {
            return Ok(Err("of one thread none can be for the table alone".to_owned()));
        }
        match name {
            MEMCACHED => {
                let program = found!(in_path("memcached", "memcached"));
                // Its default, 20, would have it go back to its event loop two times in each burst of a client.
                let burst = DEPTH.to_string();
                Self::memcached(&program, &["-t", &threads.to_string(), "-m", &memory_mib, "-R", &burst]).map(Ok)
            }
            table => {
                let words = format!("--threads {threads} --keys {keys} --memory-mib {memory_mib}");
                Self::spawn(Program::own(&format!("kv-server --table {table} {words}"))?, None).map(Ok)
            }
        }
    }

    /// Starts this memcached, with these options beside those of its socket.
    pub fn memcached(program: &Path, options: &[&str]) -> Result<Self> {
        let address = free_address()?;
        let own = format!("-l 127.0.0.1 -U 0 -u root -c 4096 -p {}", address.port());
        Self::spawn(Program::at(program).say(&own).with(options), Some(address))
    }

    /// Memory for so many items, in MiB.
    pub fn memory_mib(keys: usize) -> usize {
        ((keys * (VALUE_BYTES + ITEM_BYTES)) >> 20).max(MEMORY_MIB_MIN)
    }

    /// Starts it and waits until it takes connections, at this address or at the one that ends its first line of
    /// output.
    fn spawn(program: Program, address: Option<SocketAddr>) -> Result<Self> {
        let mut process = program.within(TIME_LIMIT).start()?;
        let address = match address {
            Some(address) => address,
            None => {
                let line = process.line()?;
                let last = line.split_whitespace().next_back().unwrap_or_default();
                last.parse().with_context(|| format!("a server said {line:?} and no address"))?
            }
        };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = process.status()? {
                bail!("a server ended at once: {status}");
            }
            ensure!(begun.elapsed() < TIME_LIMIT, "a server takes no connections at {address}");
            thread::sleep(PAUSE);
        }
        Ok(Self { process, address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Memory that it has in RAM, in bytes.
    pub fn resident_bytes(&self) -> Result<usize> {
        let path = format!("/proc/{}/status", self.process.id());
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
        Ok(kib.with_context(|| format!("{path} does not say what is resident"))? << 10)
    }

    /// For how long its threads have run so far.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let folder = format!("/proc/{}/task", self.process.id());
        let mut nanoseconds = 0;
        for thread in fs::read_dir(&folder).with_context(|| format!("{folder} cannot be read"))? {
            let path = thread.with_context(|| folder.clone())?.path().join("schedstat");
            // A thread that has ended since is no fault.
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let first = text.split_whitespace().next().and_then(|time| time.parse::<u64>().ok());
            nanoseconds += first.with_context(|| format!("{} does not say how long a thread ran", path.display()))?;
        }
        Ok(nanoseconds as f64 / 1e9)
    }
}

/// An address of this host that nobody listens at just now.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("a free port")?;
    listener.local_addr().context("its number")
}
