//! `gossamer-daemon`: one on each host. It starts this host's machines of programs for each holder of the rack's key,
//! and reports the programs here and the state of the other hosts.
//!
//! Threads: one accepts connections, each connection has one (a program's two), each other host one; one collects
//! orphans, one is in reserve for when no more can be started; the main one waits for signals. They share only
//! [`Daemon`]. No connection can end another one, or the daemon.

mod admission;
pub mod cache;
mod capacity;
mod cgroup;
mod child;
mod connection;
mod conversation;
pub(crate) mod drain;
mod gate;
mod handed;
mod handover;
mod kept;
mod key_file;
pub mod log;
mod looks;
mod memory;
mod neighbours;
mod paths;
mod programs;
mod resume;
mod session;
mod upgrade;
mod user;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use comm::secure::Keys;

use crate::config::{self, ConfigError, Host, RackConfig};
use crate::core_dump;
use crate::dispositions;
use crate::orphans::{self, Spare};
use crate::signals::Signals;
use crate::wire::HostStatus;
use crate::wire::link::greeting;
use admission::Admission;
use cache::Cache;
use capacity::Reserve;
use cgroup::Cgroups;
use drain::Drain;
use gate::Gate;
pub use handover::{Handover, take_over};
use handover::{Parked, SessionState, State, versions};
use kept::Kept;
pub use key_file::BOTH_KEYS;
use key_file::KeyFile;

use log::{LastLines, RateLimit};
use looks::Looks;
use neighbours::Neighbours;
use programs::Programs;
pub use session::OWN_NAMES;
pub use user::RunAs;

/// Time limit for programs to go when the daemon has to end.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Stack of a connection's thread; its messages are on the heap.
const STACK_BYTES: usize = 512 << 10;

/// Reason why a daemon cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// No valid `rack.yaml`, or no entry for this host.
    #[error(transparent)]
    Config(ConfigError),
    /// No file was named, and none is in the usual places.
    #[error("no rack.yaml: looked for {}; name one with --rack FILE or GOSSAMER_RACK", config::list(.0))]
    Missing(Vec<PathBuf>),
    /// The key file cannot be used.
    #[error(transparent)]
    Key(#[from] comm::Error),
    /// It runs as root, and no user for programs was chosen.
    #[error(
        "gossamer-daemon runs as root, and it is not said whom programs run as: add `user: NAME` to rack.yaml or say \
         --user NAME (root, if you mean it)"
    )]
    Root,
    /// The user of the programs cannot be used.
    #[error("user {name} {trouble}: see `user` in rack.yaml, or --user")]
    User {
        /// Its name as given.
        name: String,
        /// The problem.
        trouble: String,
    },
    /// It would listen where no other host reaches it.
    #[error("host {name}: {trouble}")]
    CutOff {
        /// Name of this host in the rack.
        name: String,
        /// The problem, and the cure.
        trouble: String,
    },
    /// It cannot listen at its address.
    #[error("cannot listen at {address}: {source}{}", listen_cure(source))]
    Listen {
        /// The address.
        address: String,
        /// The cause.
        source: io::Error,
    },
    /// The system refused a call that it needs.
    #[error("cannot {task}: {source}")]
    System {
        /// The task that failed.
        task: &'static str,
        /// The cause.
        source: io::Error,
    },
}

impl From<ConfigError> for DaemonError {
    fn from(error: ConfigError) -> DaemonError {
        match error {
            ConfigError::Missing(places) => DaemonError::Missing(places), // its cure is for launchers
            other => DaemonError::Config(other),
        }
    }
}

fn listen_cure(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another gossamer-daemon, or another program, has this port: stop it, or choose \
                                     another `port` in rack.yaml, on all hosts"
        }
        io::ErrorKind::AddrNotAvailable => {
            "; this host does not have that address: see `address` in rack.yaml, and --host"
        }
        io::ErrorKind::PermissionDenied => "; ports below 1024 are root's: choose another `port` in rack.yaml",
        _ => "",
    }
}

/// Settings of a daemon.
#[derive(Debug)]
pub struct Settings {
    /// The rack.
    pub rack: RackConfig,
    /// Name of this host in the rack; `None`: found by address or name.
    pub host: Option<String>,
    /// User of the programs; `None`: as in `rack.yaml`.
    pub user: Option<String>,
    /// Folder of received programs; `None`: the usual place.
    pub cache: Option<PathBuf>,
}

/// State shared by all threads of a daemon.
pub struct Daemon {
    rack: RackConfig,
    host: Host,
    /// Address at which it listens.
    address: SocketAddr,
    key_file: KeyFile,
    run_as: RunAs,
    cache: Cache,
    cgroups: Cgroups,
    programs: Programs,
    drain: Drain,
    kept: Kept,
    looks: Looks,
    neighbours: Neighbours,
    last_lines: LastLines,
    strangers: RateLimit,
    admission: Arc<Admission>,
    /// Stop of the threads that accept connections and serve requests.
    requests: Arc<Gate>,
    /// Stop of the threads of programs' sessions.
    sessions: Arc<Gate>,
    /// Path that it executes in an upgrade.
    executable: PathBuf,
    /// Held during an upgrade.
    upgrading: Mutex<()>,
    reserve: Reserve,
    since: Instant,
}

/// Settings of a daemon with all that its files say.
struct Prepared {
    rack: RackConfig,
    host: Host,
    run_as: RunAs,
    /// Users who may own the key.
    owners: [u32; 3],
    cache: Cache,
    /// Address to listen at.
    address: io::Result<SocketAddr>,
}

impl Prepared {
    fn of(settings: Settings) -> Result<Prepared, DaemonError> {
        let Settings { rack, host, user, cache } = settings;
        let host = rack.own_host(host.as_deref())?.clone();
        let run_as = RunAs::choose(user.as_deref().or(rack.user.as_deref()))?;
        let own = rustix::process::geteuid().as_raw();
        // The owner of the key can run programs as that user: so it has to be that user, or root.
        let owners = [0, own, run_as.ids.map_or(own, |(user, _)| user)];
        // Programs are started from there in other folders than this process's.
        let folder =
            std::path::absolute(cache.unwrap_or_else(cache_folder)).map_err(system("find the folder for programs"))?;
        let cache = Cache::new(folder, rack.limits.cache_bytes);
        let address = rack.address_of(&host);
        if let Some(trouble) = address.as_ref().ok().and_then(|address| rack.why_cut_off_at(&host, *address)) {
            return Err(DaemonError::CutOff { name: host.name, trouble });
        }
        Ok(Prepared { rack, host, run_as, owners, cache, address })
    }
}

/// Says whether this executable can take over from a daemon of these versions, which listens at this address, with
/// these settings; returns its consent.
///
/// # Errors
/// The reason why it cannot.
pub fn check_take_over(settings: Settings, theirs: &str, listening: SocketAddr) -> Result<String, String> {
    if theirs != versions() {
        let own = versions();
        return Err(format!(
            "it takes over from daemons of version {own} (handover.protocol), this one is of {theirs}"
        ));
    }
    let prepared = Prepared::of(settings).map_err(|error| error.to_string())?;
    match prepared.address {
        Ok(address) if address == listening => Ok(upgrade::consent()),
        Ok(address) => Err(format!("rack.yaml has {address} for this host by now: restart the daemon to listen there")),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs a daemon until a signal ends it, or goes on for a former one.
///
/// # Errors
/// [`DaemonError`], with the cure.
pub fn run(settings: Settings, last_lines: LastLines, handover: Option<Handover>) -> Result<(), DaemonError> {
    core_dump::forbid().map_err(system("forbid core dumps"))?;
    let signals = Signals::catch().map_err(system("catch signals"))?;
    let upgrades = upgrade::catch().map_err(system("catch signals"))?;
    dispositions::unblock().map_err(system("unblock signals"))?;
    let mut state = handover.map(|handover| handover.0);
    // First of all: its thread is then there, whatever happens to the host later.
    orphans::adopt_after(Spare::Session, state.as_ref().map(|state| &state.children))
        .map_err(system("become a subreaper"))?;
    let Prepared { rack, host, run_as, owners, cache, address } = Prepared::of(settings)?;
    let (key_file, listener) = match &mut state {
        Some(state) => {
            let keys = Keys::parse(&state.keys).ok_or_else(|| io::Error::other("it has no keys"));
            let keys = keys.map_err(system("take over"))?;
            (KeyFile::resume(&rack.key_path(), owners, keys), state.take_listener().map_err(system("take over"))?)
        }
        None => {
            let key_file = KeyFile::open(&rack.key_path(), owners)?;
            let listener = address.and_then(TcpListener::bind);
            (key_file, listener.map_err(|source| DaemonError::Listen { address: rack.place_of(&host), source })?)
        }
    };
    listener.set_nonblocking(true).map_err(system("listen"))?;
    let address = listener.local_addr().map_err(system("listen"))?;
    let executable = match &state {
        Some(state) => state.executable.clone(),
        None => upgrade::own_executable().map_err(system("find this executable"))?,
    };
    let (made, for_reserve) = mpsc::channel();
    let reserve = Reserve::start(for_reserve, connection::serve_in_need).map_err(system("start a thread"))?;
    let daemon = Arc::new(Daemon {
        rack,
        host,
        address,
        key_file,
        run_as,
        cache,
        cgroups: state.as_ref().map_or_else(Cgroups::set_up, |state| state.cgroups.clone()),
        programs: Programs::default(),
        drain: Drain::default(),
        kept: Kept::default(),
        looks: Looks::default(),
        neighbours: Neighbours::default(),
        last_lines,
        strangers: RateLimit::start(),
        admission: Arc::default(),
        requests: Gate::new().map_err(system("make a descriptor"))?,
        sessions: Gate::new().map_err(system("make a descriptor"))?,
        executable,
        upgrading: Mutex::default(),
        reserve,
        since: Instant::now(),
    });
    let _ = made.send(Arc::clone(&daemon)); // the thread waits for it
    let handed_over = state.map(|state| daemon.resume(state)).transpose().map_err(system("take over"))?;
    announce(&daemon);
    if let Some((sessions, others)) = handed_over {
        resume::resume(&daemon, sessions, others);
    }
    // The next upgrade finds the threads of this one.
    start_threads(&daemon, listener, upgrades).map_err(system("start a thread"))?;
    let signal = signals.wait().map_err(system("wait for signals"))?.as_raw();
    let programs = daemon.programs.end_all("gossamer-daemon was told to end");
    tracing::info!(signal, programs, "told to end");
    let start = Instant::now();
    while daemon.programs.count() > 0 && start.elapsed() < END_LIMIT {
        std::thread::sleep(Duration::from_millis(5));
    }
    daemon.cgroups.leave();
    Ok(())
}

fn announce(daemon: &Daemon) {
    let (rack, host, user) = (&daemon.rack.name, &daemon.host.name, &daemon.run_as.name);
    let (file, hosts) = (daemon.rack.path.display().to_string(), daemon.rack.hosts.len());
    let cgroups = daemon.cgroups.to_string();
    let (address, pid) = (&daemon.address, std::process::id());
    tracing::info!(%address, rack, host, user, hosts, file, cgroups, pid, "listening");
    if let Err(trouble) = daemon.cache.try_out(daemon.run_as.ids) {
        tracing::warn!(trouble, "programs that this host lacks cannot be taken");
    }
    if let Some(trouble) = memory::trouble(daemon) {
        tracing::warn!(trouble, "programs have no memory limit");
    }
}

fn start_threads(daemon: &Arc<Daemon>, listener: TcpListener, upgrades: UnixStream) -> io::Result<()> {
    let thread = |name: String| std::thread::Builder::new().name(name).stack_size(STACK_BYTES);
    for host in daemon.rack.hosts.iter().filter(|host| host.name != daemon.host.name) {
        let (daemon, host) = (Arc::clone(daemon), host.clone());
        thread(format!("to {}", host.name)).spawn(move || neighbours::keep(&daemon, &host))?;
    }
    let upgraded = Arc::clone(daemon);
    thread("upgrade".into()).spawn(move || upgrade::at_signals(&upgraded, upgrades))?;
    let accept = Arc::clone(daemon);
    thread("accept".into()).spawn(move || connection::accept_all(&accept, &listener)).map(drop)
}

fn system<E: Into<io::Error>>(task: &'static str) -> impl Fn(E) -> DaemonError {
    move |error| DaemonError::System { task, source: error.into() }
}

/// Returns each fabric, and why it cannot be used here; for RDMA each port.
fn fabrics() -> Vec<(String, String)> {
    let mut all = vec![("shm".to_owned(), String::new()), ("tcp".to_owned(), String::new())];
    match comm::verbs::survey() {
        Ok(ports) if ports.is_empty() => all.push(("verbs".into(), "no RDMA device".into())),
        Ok(ports) => all.extend(
            ports
                .into_iter()
                .map(|port| (format!("verbs on {} port {}", port.device, port.port), port.problem.unwrap_or_default())),
        ),
        Err(error) => all.push(("verbs".into(), error.to_string())),
    }
    all
}

/// `/var/cache/gossamer` for root, else `$XDG_CACHE_HOME/gossamer` or `~/.cache/gossamer`.
fn cache_folder() -> PathBuf {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if rustix::process::geteuid().is_root() {
        return named("CACHE_DIRECTORY").unwrap_or_else(|| "/var/cache/gossamer".into()); // systemd's name
    }
    let home = || Some(named("HOME")?.join(".cache"));
    let base = named("CACHE_DIRECTORY").or_else(|| Some(named("XDG_CACHE_HOME").or_else(home)?.join("gossamer")));
    base.unwrap_or_else(|| std::env::temp_dir().join(format!("gossamer-{}", rustix::process::geteuid().as_raw())))
}

impl Daemon {
    /// Takes over the state of a former daemon; returns its sessions and connections.
    fn resume(&self, state: State) -> io::Result<(Vec<SessionState>, Vec<Parked>)> {
        self.last_lines.resume(state.log);
        self.kept.resume(state.kept);
        self.looks.resume(state.last_look);
        self.drain.resume(state.drained_by);
        self.programs.resume(state.programs, state.queue)?;
        Ok((state.sessions, state.others))
    }

    fn status(&self) -> HostStatus {
        HostStatus {
            pid: std::process::id(),
            user: self.run_as.name.clone(),
            uptime_seconds: self.since.elapsed().as_secs(),
            programs: self.programs.status(),
            coming: self.programs.coming_count(),
            drained_by: self.drain.by(),
            neighbours: self.neighbours.status(),
            fabrics: fabrics(),
            cache_bytes: self.cache.used_bytes(),
            troubles: self.troubles(),
        }
    }

    /// Problems of this host, each with its cure.
    fn troubles(&self) -> Vec<String> {
        let cache = self.cache.try_out(self.run_as.ids).err();
        let cache = cache.map(|trouble| format!("programs that it lacks cannot be sent to it: {trouble}"));
        let others = [capacity::trouble(), cache, self.key_file.trouble(), memory::trouble(self)];
        others.into_iter().flatten().collect()
    }

    /// Returns the number of cores for programs: bounded by the daemon's affinity and CPU quota, which they inherit.
    fn cores(&self) -> u16 {
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        let chosen = self.host.cores.as_ref().map_or(all, |cores| cores.numbers().len().min(all));
        u16::try_from(chosen).unwrap_or(u16::MAX)
    }

    fn greeting(&self) -> crate::wire::Hello {
        let own = greeting(&self.rack, &self.host.name, self.cores());
        crate::wire::Hello { is_drained: self.drain.by().is_some(), ..own }
    }

    /// Returns the limits on unauthenticated and on authenticated connections.
    fn connections(&self) -> (usize, usize) {
        let most = usize::from(self.rack.limits.connections);
        (most, most + self.rack.hosts.len())
    }
}
