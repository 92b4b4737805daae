//! `rack.yaml`: the hosts of a rack, the key, limits and timeouts. Reading, checking, and finding this host's entry.
//!
//! The same file is meant to lie on every host: a daemon reads its own entry and the limits from it, a launcher the
//! hosts. The effect of the values is elsewhere, but for the plan of a host ([`RackConfig::plan_of`]). Invariant: a
//! [`RackConfig`] from [`RackConfig::read`] has passed `RackConfig::check`; every error names the file, where possible
//! the line, the field and a valid value.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gossamer::bootstrap::{FabricChoice, HeapBytes, HostAddress, HostPlan, PortRange, VerbsSettings};
use serde::{Deserialize, Serialize};

mod cores;
mod find;
mod memory;
#[cfg(test)]
mod tests;

pub use cores::Cores;
pub use memory::MemoryBytes;

/// Default TCP port of a daemon.
pub const DEFAULT_PORT: u16 = 7117;
/// Largest `limits.environment_bytes`: together with the rest of a host's start message it has to fit one message.
const ENVIRONMENT_BYTES_MAX: u32 = 768 << 10;
/// Fewest processes and threads for a program: a machine has some beside its workers.
const MIN_TASKS: u32 = 16;
/// The most hosts in a rack.
pub const MAX_HOSTS: usize = 1024;
const MAX_NAME_BYTES: usize = 64;

/// Reason for the lack of a usable `rack.yaml`.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No file was named, and none is in the usual places.
    #[error(
        "no rack.yaml: looked for {}; name one with --rack FILE or GOSSAMER_RACK, or run on this host alone with \
         --local N; a program that runs so is watched by the address of its page (--view)", list(.0)
    )]
    Missing(Vec<PathBuf>),
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is no valid `rack.yaml`.
    #[error("{}{place}: {what}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// `:LINE:COLUMN` where that is known.
        place: String,
        /// The problem, and a valid value.
        what: String,
    },
    /// No host of the rack matches this host, or several do.
    #[error("{}: {what}", path.display())]
    Host {
        /// The file.
        path: PathBuf,
        /// The problem, and the cure.
        what: String,
    },
}

pub(crate) fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// One host of the rack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Shown before each line of output and in messages.
    pub name: String,
    /// Address for the other hosts: an IP address or a name. Its daemon listens there and nowhere else. In the file it
    /// may have brackets and a port.
    pub address: String,
    /// TCP port of its daemon, where it differs from the rack's.
    #[serde(default)]
    pub port: Option<u16>,
    /// Workers of a program on this host; default: one for each core.
    #[serde(default)]
    pub workers: Option<u16>,
    /// The cores that programs may use; default: all.
    #[serde(default)]
    pub cores: Option<Cores>,
    /// The fabric between this host and others, where it differs from the rack's.
    #[serde(default)]
    pub fabric: Option<FabricChoice>,
    /// RDMA settings.
    #[serde(default)]
    pub rdma: Option<VerbsSettings>,
    /// Heap limit for a program's machines on this host together, where it differs from the rack's.
    #[serde(default)]
    pub heap: Option<HeapBytes>,
    /// Memory limit of each program on this host, where it differs from the rack's.
    #[serde(default)]
    pub memory: Option<MemoryBytes>,
    /// Ports of the machines of programs, where they differ from the rack's.
    #[serde(default)]
    pub ports: Option<PortRange>,
}

/// Limits on a program, and on the clients of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Programs at the same time on one host.
    pub programs: u16,
    /// Machines of one program on one host.
    pub machines_per_host: u16,
    /// Processes and threads of one program on one host.
    pub tasks: u32,
    /// Connections to a daemon at the same time, besides one for each host; unauthenticated connections have the same
    /// limit again.
    pub connections: u16,
    /// Arguments and environment of a program together, in bytes.
    pub environment_bytes: u32,
    /// Longest program that is sent to a host that lacks it, in bytes.
    pub binary_bytes: u64,
    /// Cached programs on a host, in bytes; the least recently used go first.
    pub cache_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            programs: 16,
            machines_per_host: 64,
            tasks: 8192,
            connections: 64,
            environment_bytes: 256 << 10,
            binary_bytes: 1 << 30,
            cache_bytes: 4 << 30,
        }
    }
}

/// Time limits, in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// Time to connect to a daemon and to agree on the key.
    pub connect_ms: u32,
    /// Time for the machines of a program to come up and to find each other; until they come up, the longest silence
    /// of a host.
    pub start_ms: u32,
    /// A host without a sign of life for this long counts as cut off or hung, and its programs end.
    pub silence_ms: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts { connect_ms: 5000, start_ms: 30_000, silence_ms: 3000 }
    }
}

impl Timeouts {
    /// See [`Timeouts::connect_ms`].
    #[must_use]
    pub fn connect(&self) -> Duration {
        Duration::from_millis(u64::from(self.connect_ms))
    }

    /// See [`Timeouts::start_ms`].
    #[must_use]
    pub fn start(&self) -> Duration {
        Duration::from_millis(u64::from(self.start_ms))
    }

    /// See [`Timeouts::silence_ms`].
    #[must_use]
    pub fn silence(&self) -> Duration {
        Duration::from_millis(u64::from(self.silence_ms))
    }
}

/// Shortest allowed silence: with a sign of life each 500 ms, less would mistake a busy host for a dead one.
const MIN_SILENCE_MS: u32 = 1500;

/// A rack, as `rack.yaml` describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RackConfig {
    /// Shown in messages, to tell racks apart.
    #[serde(default = "default_name")]
    pub name: String,
    /// TCP port of the daemons.
    #[serde(default = "default_port")]
    pub port: u16,
    /// The file with the rack's key; a relative path starts at the folder of `rack.yaml`.
    pub key_file: PathBuf,
    /// User of the programs when the daemon runs as root.
    #[serde(default)]
    pub user: Option<String>,
    /// Transport between machines.
    #[serde(default)]
    pub fabric: FabricChoice,
    /// Heap limit for a program's machines on one host together (`gossamer-heap`); default: half of the host's memory.
    #[serde(default)]
    pub heap: Option<HeapBytes>,
    /// Memory limit of each program on a host, its machines and all that they start together; default: none.
    #[serde(default)]
    pub memory: Option<MemoryBytes>,
    /// TCP ports at which the machines of programs listen; default: any that are free.
    #[serde(default)]
    pub ports: Option<PortRange>,
    /// The hosts.
    pub hosts: Vec<Host>,
    /// Limits on programs and clients.
    #[serde(default)]
    pub limits: Limits,
    /// Time limits.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// Path of this file.
    #[serde(skip)]
    pub path: PathBuf,
    /// Whether the user named that file.
    #[serde(skip, default = "yes")]
    was_named: bool,
}

fn yes() -> bool {
    true
}

fn default_name() -> String {
    "rack".into()
}

fn default_port() -> u16 {
    DEFAULT_PORT
}

impl RackConfig {
    /// Parses the text of a file; `path` is for messages, and the base of a relative key file.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`].
    pub fn parse(text: &str, path: &Path) -> Result<RackConfig, ConfigError> {
        let parsed: Result<RackConfig, serde_saphyr::Error> = serde_saphyr::from_str(text);
        let mut config = parsed.map_err(|error| {
            let place = error.location().map_or_else(String::new, |at| format!(":{}:{}", at.line(), at.column()));
            ConfigError::Invalid { path: path.to_owned(), place, what: plain(&error) }
        })?;
        config.path = path.to_owned();
        config.hosts.iter_mut().for_each(Host::split_address);
        config.check().map_err(|(field, what)| {
            let place = field_line(text, &field).map_or_else(String::new, |line| format!(":{line}"));
            ConfigError::Invalid { path: path.to_owned(), place, what }
        })?;
        Ok(config)
    }

    /// Checks that the types do not express. The error is the text to look for in the file, and the problem.
    fn check(&self) -> Result<(), (String, String)> {
        let fail = |field: &str, what: String| Err((field.to_owned(), what));
        if self.hosts.is_empty() || self.hosts.len() > MAX_HOSTS {
            return fail("hosts", format!("hosts: a rack has from 1 to {MAX_HOSTS} hosts, not {}", self.hosts.len()));
        }
        if self.port == 0 {
            return fail("port", "port: 0 is no port; leave it out for 7117".into());
        }
        for (index, host) in self.hosts.iter().enumerate() {
            let name = &host.name;
            if !valid_name(name) {
                let rule = format!("1 to {MAX_NAME_BYTES} letters, digits, '-', '_' or '.'");
                return fail(name, format!("hosts: {name:?} is no host name: it takes {rule}"));
            }
            if self.hosts[..index].iter().any(|other| other.name == *name) {
                return fail(name, format!("hosts: two are named {name}; each needs a name of its own"));
            }
            let same = |other: &&Host| other.address == host.address && self.port_of(other) == self.port_of(host);
            if let Some(other) = self.hosts[..index].iter().find(same) {
                let (a, b, place) = (&other.name, name, self.place_of(host));
                return fail(name, format!("hosts: {a} and {b} have the same address and port, {place}"));
            }
            if host.address.contains(['[', ']']) || host.address.matches(':').count() == 1 {
                let forms = "write ADDRESS or ADDRESS:PORT, an address of IPv6 in brackets: [fd00::1]:7117";
                return fail(name, format!("host {name}: {:?} is no address: {forms}", host.address));
            }
            if host.address.is_empty() || host.port == Some(0) || host.workers == Some(0) {
                return fail(name, format!("host {name}: address, port and workers must not be empty or 0"));
            }
            if let Some((ports, port)) = self.ports_of(host).map(|ports| (ports, self.port_of(host)))
                && ports.contains(port)
            {
                return fail("ports", format!("ports: {ports} has {port} in it, the port of the daemon of {name}"));
            }
            if let Some(mtu) = host.rdma.as_ref().and_then(|rdma| rdma.mtu_bytes)
                && ![256, 512, 1024, 2048, 4096].contains(&mtu)
            {
                return fail(
                    "mtu_bytes",
                    format!("host {name}: rdma.mtu_bytes is 256, 512, 1024, 2048 or 4096, not {mtu}"),
                );
            }
        }
        if self.timeouts.silence_ms < MIN_SILENCE_MS {
            let what = format!("timeouts.silence_ms: at least {MIN_SILENCE_MS}, not {}", self.timeouts.silence_ms);
            return fail("silence_ms", format!("{what}: hosts give a sign of life each 500 ms"));
        }
        if self.timeouts.connect_ms == 0 || self.timeouts.start_ms == 0 {
            return fail("timeouts", "timeouts: connect_ms and start_ms must not be 0".into());
        }
        let Limits { environment_bytes, binary_bytes, cache_bytes, .. } = self.limits;
        if environment_bytes > ENVIRONMENT_BYTES_MAX {
            let what = format!("limits.environment_bytes: at most {ENVIRONMENT_BYTES_MAX}, not {environment_bytes}");
            return fail("environment_bytes", what);
        }
        if binary_bytes > cache_bytes {
            let what = format!("limits.binary_bytes: {binary_bytes} is more than limits.cache_bytes, {cache_bytes}");
            return fail("binary_bytes", format!("{what}: such a program could not be kept"));
        }
        if [self.limits.programs, self.limits.machines_per_host, self.limits.connections].contains(&0) {
            return fail("limits", "limits: programs, machines_per_host and connections must not be 0".into());
        }
        if self.limits.tasks < MIN_TASKS {
            let what = format!("limits.tasks: at least {MIN_TASKS}, not {}", self.limits.tasks);
            return fail("tasks", format!("{what}: no program could start"));
        }
        Ok(())
    }

    /// Returns the port of a host's daemon.
    #[must_use]
    pub fn port_of(&self, host: &Host) -> u16 {
        host.port.unwrap_or(self.port)
    }

    /// Returns address and port of a host's daemon as one text; an address of IPv6 is in brackets.
    #[must_use]
    pub fn place_of(&self, host: &Host) -> String {
        let (address, port) = (&host.address, self.port_of(host));
        if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
    }

    /// Returns the ports of programs' machines on a host; `None`: any that are free.
    #[must_use]
    pub fn ports_of(&self, host: &Host) -> Option<PortRange> {
        host.ports.or(self.ports)
    }

    /// Returns the memory limit of each program on a host; `None`: there is none.
    #[must_use]
    pub fn memory_of(&self, host: &Host) -> Option<MemoryBytes> {
        host.memory.or(self.memory)
    }

    /// Returns what a program's plan says about a host, which listens at this address.
    #[must_use]
    pub fn plan_of(&self, host: &Host, bind: HostAddress) -> HostPlan {
        HostPlan {
            cores: host.cores.as_ref().map(|cores| cores.numbers().iter().map(|core| *core as u16).collect()),
            verbs: host.rdma.clone(),
            heap: host.heap.or(self.heap),
            ports: self.ports_of(host),
            ..HostPlan::new(host.name.clone(), bind)
        }
    }

    /// Returns the key file; its path depends on the working directory only where the path of `rack.yaml` does.
    #[must_use]
    pub fn key_path(&self) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(&self.key_file)
    }

    /// Returns the entry of the host with this name.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// Address that a host's daemon listens at. Of several addresses of a name the first that other hosts may know.
    ///
    /// # Errors
    /// When its address is a name that does not resolve.
    pub fn address_of(&self, host: &Host) -> std::io::Result<SocketAddr> {
        let first = self.addresses_of(host)?.into_iter().next();
        first.ok_or_else(|| std::io::Error::other(format!("{} has no address", host.address)))
    }

    /// Returns all addresses that a host's daemon may listen at: those that other hosts may know come first, else in
    /// the order of the resolver. An IPv6 address may have a scope (`fe80::1%eth0`).
    ///
    /// # Errors
    /// As for [`address_of`](Self::address_of).
    pub fn addresses_of(&self, host: &Host) -> std::io::Result<Vec<SocketAddr>> {
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in comm::descriptors::resolve(&host.address, self.port_of(host))? {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses.sort_by_key(|address| address.ip().to_canonical().is_loopback()); // stable: equals keep their order
        Ok(addresses)
    }

    /// Returns why no other host can reach this one at the resolved address, in words with the cure; `None`: they can.
    /// A rack with all hosts on the loopback network is on one host on purpose.
    #[must_use]
    pub fn why_cut_off_at(&self, host: &Host, address: SocketAddr) -> Option<String> {
        let says_loopback = |host: &Host| match host.address.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().is_loopback(),
            Err(_) => host.address == "localhost" || host.address.ends_with(".localhost"),
        };
        let is_meant = self.hosts.iter().all(says_loopback);
        if is_meant || !address.ip().to_canonical().is_loopback() {
            return None;
        }
        let (name, ip, file) = (&host.address, address.ip(), self.path.display());
        let what = match says_loopback(host) {
            true => format!("{name} is an address that each host has for itself"),
            false => format!("{name} is {ip} here, an address that each host has for itself (see /etc/hosts)"),
        };
        Some(format!(
            "{what}, and no other host reaches it there: give {} the address in its network, in {file}",
            host.name
        ))
    }

    /// Returns the entry of this host: the named one, else the one with this host's name, else the only one with an
    /// address of this host.
    ///
    /// # Errors
    /// [`ConfigError::Host`], which lists the names.
    pub fn own_host(&self, named: Option<&str>) -> Result<&Host, ConfigError> {
        let names = || self.hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>().join(", ");
        let fail = |what| Err(ConfigError::Host { path: self.path.clone(), what });
        if let Some(name) = named {
            return match self.host(name) {
                Some(host) => Ok(host),
                None => fail(format!("there is no host {name}: --host takes one of {}", names())),
            };
        }
        let uname = rustix::system::uname();
        let own_name = uname.nodename().to_string_lossy();
        if let Some(host) = self.host(&own_name) {
            return Ok(host);
        }
        let mine = self.hosts.iter().filter(|host| self.address_of(host).is_ok_and(is_own));
        match mine.collect::<Vec<_>>()[..] {
            [host] => Ok(host),
            [] => fail(format!("this host ({own_name}) has no address of the rack's; say --host NAME ({})", names())),
            _ => fail(format!("several entries are addresses of this host; say which: --host NAME ({})", names())),
        }
    }

    /// Returns a short text that is the same on hosts with equivalent files (comments and order of keys aside).
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let mut same = self.clone();
        same.key_file = PathBuf::new(); // may differ between hosts
        let text = serde_json::to_string(&same).unwrap_or_default();
        blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
    }
}

impl Host {
    /// Takes brackets and port off the address, where it has them and the port is not set otherwise; an address that is
    /// none stays as it is.
    fn split_address(&mut self) {
        let (address, port) = match self.address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((address, rest)) => (address, rest),
            None => match self.address.split_once(':') {
                Some((address, port)) if !port.contains(':') => self.address.split_at(address.len()),
                _ => return, // of IPv6, or a name
            },
        };
        let number = port.strip_prefix(':').and_then(|port| port.parse::<u16>().ok());
        if port.is_empty() || number.is_some_and(|number| self.port.is_none_or(|port| port == number)) {
            (self.address, self.port) = (address.to_owned(), number.or(self.port));
        }
    }
}

/// Returns whether an address belongs to this host; only then can a process listen on it.
fn is_own(address: SocketAddr) -> bool {
    TcpListener::bind((address.ip(), 0)).is_ok()
}

fn valid_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.chars().all(good)
}

/// Returns the parser's message without its picture of the place; the place goes in front.
fn plain(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let text = text.split(" at line ").next().unwrap_or(&text);
    text.trim_end_matches([':', ',', ' ']).to_owned()
}

/// Returns the line, from 1, of the first value or key with this text.
fn field_line(text: &str, field: &str) -> Option<usize> {
    let has = |line: &str| {
        let line = line.split('#').next().unwrap_or(line);
        line.split([' ', ':', ',', '"', '\'', '[', ']', '{', '}']).any(|word| word == field)
    };
    text.lines().position(has).map(|index| index + 1)
}
