//! A server as a child process: found, started, waited for, ended. A server that cannot be had is skipped, with the
//! reason.

use super::MEMCACHED;
use crate::kv::Kv;
use crate::prelude::*;
use crate::programs::in_path;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child as Process, Command, ExitStatus, Stdio};
use std::{env, fs, thread};

/// A server that takes longer than this to start does not start.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);
/// Memcached's memory beside a key and its value, and some room.
const ITEM_BYTES: usize = 256;
const MEMORY_MIB_MIN: usize = 256;

/// All servers that can be started, in the order they are shown in.
const ALL: &[&str] = &["kv", "kv-dedicated", "dashmap", "papaya", "mutex", "rwlock", MEMCACHED];

/// Those with these names, all where there are none.
pub fn names(only: &[String]) -> Result<Vec<&'static str>> {
    chosen("server", ALL.to_vec(), |name| name, only)
}

/// A server that runs; it is ended when this is dropped.
pub struct Child {
    process: Process,
    address: SocketAddr,
}

impl Child {
    /// Starts a server of so many threads, with memory for so many items; or says why it cannot be had here.
    pub fn start(name: &str, options: &Kv, keys: usize) -> Result<Found<Self>> {
        let memory_mib = Self::memory_mib(keys, options.load.value_bytes).to_string();
        let threads = options.threads.to_string();
        if name == "kv-dedicated" && threads == "1" {
            return Ok(Err("of one thread none can be for the table alone".to_owned()));
        }
        match name {
            MEMCACHED => {
                let program = found!(in_path("memcached", "memcached"));
                // Its default, 20, would have it go back to its event loop two times in each burst of a client.
                let burst = options.load.depth.max(20).to_string();
                Self::memcached(&program, &["-t", &threads, "-m", &memory_mib, "-R", &burst]).map(Ok)
            }
            table => {
                let mut command = Command::new(env::current_exe().context("where this program is")?);
                command.args(["kv-server", "--table", table, "--threads", &threads]);
                command.args(["--keys", &keys.to_string(), "--memory-mib", &memory_mib]);
                Self::spawn(command, None).map(Ok)
            }
        }
    }

    /// Starts this memcached, with these options beside those of its socket.
    pub fn memcached(program: &Path, options: &[&str]) -> Result<Self> {
        let address = free_address()?;
        let mut command = Command::new(program);
        command.args(["-l", "127.0.0.1", "-U", "0", "-u", "root", "-c", "4096", "-p", &address.port().to_string()]);
        command.args(options);
        Self::spawn(command, Some(address))
    }

    /// Memory for so many items of this size, in MiB.
    pub fn memory_mib(keys: usize, value_bytes: usize) -> usize {
        ((keys * (value_bytes + ITEM_BYTES)) >> 20).max(MEMORY_MIB_MIN)
    }

    /// Starts it and waits until it takes connections, at this address or at the one that ends its first line of
    /// output.
    fn spawn(mut command: Command, address: Option<SocketAddr>) -> Result<Self> {
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        command.stdout(if address.is_some() { Stdio::null() } else { Stdio::piped() });
        let process = command.spawn().with_context(|| format!("{command:?} cannot be started"))?;
        let unspecified = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut child = Self { process, address: address.unwrap_or(unspecified) };
        if address.is_none() {
            let stdout = child.process.stdout.take().context("the output of a server")?;
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).context("the first line of a server")?;
            let last = line.split_whitespace().next_back().unwrap_or_default();
            child.address = last.parse().with_context(|| format!("{command:?} said {line:?} and no address"))?;
        }
        let begun = Instant::now();
        while TcpStream::connect(child.address).is_err() {
            if let Some(status) = child.process.try_wait().context("the server")? {
                bail!("{command:?} ended at once: {status}");
            }
            ensure!(begun.elapsed() < TIME_LIMIT, "{command:?} takes no connections");
            thread::sleep(PAUSE);
        }
        Ok(child)
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

    /// Waits for the end that it was asked for, and says how it went.
    pub fn ended(mut self) -> Result<ExitStatus> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().context("the server")? {
                return Ok(status);
            }
            ensure!(begun.elapsed() < TIME_LIMIT, "the server does not end");
            thread::sleep(PAUSE);
        }
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

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended by itself; nothing it holds is to be kept.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An address of this host that nobody listens at just now.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("a free port")?;
    listener.local_addr().context("its number")
}
