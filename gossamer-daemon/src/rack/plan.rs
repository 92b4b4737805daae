//! Plan of a program: its hosts, machines and workers, and the start message for each host. No connections here.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use gossamer::bootstrap::{FabricChoice, HostPlan, MachinePlan, Plan};

use super::{RackError, RackRun, new_id};
use crate::config::{Host, RackConfig};
use crate::daemon::OWN_NAMES;
use crate::daemon::cache::{check_executable, hash_file};
use crate::error::LaunchError;
use crate::wire::{Carried, MAX_MESSAGE_BYTES, Request, Start, Wire};

/// Most bytes of the start message: the host adds some variables and the path of the program to it, and passes it on.
const RUN_BYTES_MAX: usize = MAX_MESSAGE_BYTES - (16 << 10);

/// Variables of the launcher's host or session, which are not passed on; a `*` stands for any ending.
const OWN_VARIABLES: [&str; 24] = [
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "HOSTNAME",
    "MAIL",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "TMPDIR",
    "SSH_*",
    "XDG_*",
    "DBUS_*",
    "DISPLAY",
    "WAYLAND_*",
    "SUDO_*",
    "SYSTEMD_*",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "NOTIFY_SOCKET",
    "STY",
    "TMUX*",
    "GOSSAMER_*",
];

/// Returns the hosts of these names, in that order; all of the rack's for none.
///
/// # Errors
/// [`RackError::Plan`] names the host that does not exist, or is there twice.
pub fn choose(rack: &RackConfig, names: &[String]) -> Result<Vec<Host>, RackError> {
    if names.is_empty() {
        return Ok(rack.hosts.clone());
    }
    let mut chosen: Vec<Host> = Vec::new();
    for name in names {
        let Some(host) = rack.host(name) else {
            let known: Vec<&str> = rack.hosts.iter().map(|host| host.name.as_str()).collect();
            let file = rack.path.display();
            return Err(RackError::Plan(format!("there is no host {name} in {file}: it has {}", known.join(", "))));
        };
        if chosen.iter().any(|other| other.name == *name) {
            return Err(RackError::Plan(format!("host {name} is named twice: --machines-per-host says how many each")));
        }
        chosen.push(host.clone());
    }
    Ok(chosen)
}

/// Makes the plan of the program.
///
/// # Errors
/// When the request is not possible.
pub fn make(run: &RackRun, chosen: &[Host]) -> Result<Plan, RackError> {
    let options = &run.options;
    let each = options.machines_per_host;
    let fabric = options.fabric.unwrap_or_else(|| common_fabric(&run.rack, chosen));
    if fabric == FabricChoice::Shm && chosen.len() > 1 {
        return Err(RackError::Plan(
            "the fabric shm joins machines of one host only: --fabric auto or tcp, or --hosts \
                                    with one host"
                .into(),
        ));
    }
    let mut hosts = Vec::new();
    let mut machines = Vec::new();
    for (number, host) in (0u16..).zip(chosen) {
        let address = run.rack.address_of(host).map_err(|error| {
            RackError::Plan(format!("host {}: its address {} is unknown: {error}", host.name, host.address))
        })?;
        let is_tcp_only = options.fabric.is_none() && host.fabric.unwrap_or(run.rack.fabric) == FabricChoice::Tcp;
        hosts.push(HostPlan { is_tcp_only, ..run.rack.plan_of(host, address.into()) });
        for machine in 0..each {
            // Unset values are the program's to choose, or follow from the cores that its machines find.
            let workers = host.workers.filter(|_| options.threads.is_none());
            let share = workers.map(|workers| (workers / each + u16::from(machine < workers % each)).max(1));
            machines.push(MachinePlan { host: number, workers: share });
        }
    }
    let (start_timeout_ms, silence_ms) = options.limits_ms();
    let plan =
        Plan { fabric, threads: options.threads, start_timeout_ms, silence_ms, has_own_cores: false, hosts, machines };
    plan.check().map_err(|error| RackError::Plan(error.to_string()))?;
    Ok(plan)
}

/// Picks the fabric for all these hosts. Where some have `auto` and the others `tcp`, it is `auto`, and the pairs
/// with one of the others take TCP; where they differ otherwise, `tcp`, which every host has.
fn common_fabric(rack: &RackConfig, chosen: &[Host]) -> FabricChoice {
    let wanted: Vec<FabricChoice> = chosen.iter().map(|host| host.fabric.unwrap_or(rack.fabric)).collect();
    let first = wanted.first().copied().unwrap_or_default();
    if wanted.iter().all(|other| *other == first) {
        first
    } else if wanted.iter().all(|one| [FabricChoice::Auto, FabricChoice::Tcp].contains(one)) {
        FabricChoice::Auto
    } else {
        FabricChoice::Tcp
    }
}

/// Returns the prefix of each line of each machine's output.
#[must_use]
pub fn prefixes(run: &RackRun, plan: &Plan) -> Vec<String> {
    if run.options.no_prefix || plan.machines.len() == 1 {
        return vec![String::new(); plan.machines.len()];
    }
    let name = |machine: u16| format!("m{machine}@{}", plan.host_of(machine).name);
    let names: Vec<String> = (0u16..).zip(&plan.machines).map(|(machine, _)| name(machine)).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0);
    names.iter().map(|name| format!("{name:<width$} | ")).collect()
}

/// Returns the absolute path of the program: as given, or found in `PATH`.
///
/// # Errors
/// When there is none, or it cannot be executed.
pub fn find_program(program: &OsStr) -> Result<PathBuf, LaunchError> {
    let absolute = |path: &Path| std::path::absolute(path);
    let failed = |source| LaunchError::Program { program: program.to_owned(), source };
    if program.as_bytes().contains(&b'/') {
        let path = absolute(Path::new(program)).map_err(failed)?;
        return match (path.metadata(), check_executable(&path)) {
            (Err(error), _) => Err(failed(error)),
            (Ok(_), Err(_)) => Err(failed(io::ErrorKind::PermissionDenied.into())),
            (Ok(_), Ok(())) => Ok(path),
        };
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(program));
    match found.into_iter().find(|path| check_executable(path).is_ok()) {
        Some(path) => absolute(&path).map_err(failed),
        None => Err(failed(io::ErrorKind::NotFound.into())),
    }
}

/// Files that hosts may ask for.
#[derive(Clone, Debug)]
pub struct Files {
    /// The program.
    pub program: Carried,
    /// Library to load first.
    pub library: Option<Carried>,
}

impl Files {
    /// Finds the files of this host.
    ///
    /// # Errors
    /// When the program is nowhere, or one of them cannot be read.
    pub fn find(run: &RackRun) -> Result<Files, LaunchError> {
        let carried = |path: &Path| {
            let binary = (!run.options.in_place).then(|| hash_file(path)).transpose()?;
            Ok(Carried { path: path.as_os_str().as_bytes().to_vec(), binary })
        };
        let program = find_program(&run.program)?;
        let failed = |source| LaunchError::Program { program: program.clone().into(), source };
        let library = run.library.as_deref().map(carried).transpose();
        let library = library.map_err(LaunchError::system("read the library that the program loads first"))?;
        Ok(Files { program: carried(&program).map_err(failed)?, library })
    }
}

/// Returns the start message for all hosts, without their numbers.
///
/// # Errors
/// When the working folder is gone.
pub fn start(run: &RackRun, plan: &Plan, files: &Files) -> Result<Start, RackError> {
    run.options.check_threads_at(plan.machines.len()).map_err(RackError::Plan)?;
    let folder = match &run.options.folder {
        Some(folder) => std::path::absolute(folder),
        None => std::env::current_dir(),
    };
    let folder = folder.map_err(LaunchError::system("find the working folder"))?;
    if let Some(name) = run.environment.names().find(|name| OWN_NAMES.contains(&name.as_bytes())) {
        let name = name.display();
        return Err(RackError::Plan(format!("--env {name}: on a rack that is each host's to say, of its user there")));
    }
    let variables = run.environment.variables(is_passed_on);
    let start = Start {
        program: new_id()?,
        owner: owner(),
        plan: serde_json::to_string(plan).map_err(LaunchError::system("write the plan"))?,
        host: 0,
        executable: files.program.clone(),
        library: files.library.clone(),
        args: run.args.iter().map(|arg| arg.as_bytes().to_vec()).collect(),
        env: variables.into_iter().map(|(name, value)| (name.into_vec(), value.into_vec())).collect(),
        folder: folder.into_os_string().into_encoded_bytes(),
        options: run.options.to_json().map_err(LaunchError::system("write the options"))?,
    };
    check_length(start, run.rack.limits.environment_bytes)
}

/// Checks the length: the hosts would refuse more than `most` bytes of arguments and environment, and could not even
/// receive more than a message.
fn check_length(start: Start, most: u32) -> Result<Start, RackError> {
    start
        .check_environment(most)
        .map_err(|cause| RackError::Plan(format!("{cause}: raise it, on all hosts, or say --clean-env")))?;
    let bytes = Request::Run(Box::new(start.clone())).to_bytes().len();
    if bytes > RUN_BYTES_MAX {
        return Err(RackError::Plan(format!(
            "the message that starts the program has {bytes} bytes, with arguments, environment and plan; at most \
             {RUN_BYTES_MAX} are possible: say --clean-env, pass fewer arguments, or start fewer machines"
        )));
    }
    Ok(start)
}

/// Returns the user and host of this launcher.
#[must_use]
pub fn owner() -> String {
    let user = uzers::get_current_username().unwrap_or_default();
    let uname = rustix::system::uname();
    format!("{}@{}", user.to_string_lossy(), uname.nodename().to_string_lossy())
}

fn is_passed_on(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let is = |own: &str| match own.strip_suffix('*') {
        Some(start) => name.starts_with(start.as_bytes()),
        None => name == own.as_bytes(),
    };
    !OWN_VARIABLES.iter().any(|own| is(own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::options::RunOptions;

    const RACK: &str = "key_file: k\nhosts:\n  - {name: a, address: 127.0.0.1}\n  - {name: b, address: 127.0.0.2, \
                        workers: 5, cores: 0-3}\n  - {name: c, address: 127.0.0.3, fabric: tcp}\n";

    fn files() -> Files {
        Files { program: Carried { path: b"/p".to_vec(), binary: None }, library: None }
    }

    fn run(hosts: &[&str]) -> RackRun {
        let hosts = hosts.iter().map(|name| (*name).to_owned()).collect();
        RackRun {
            rack: RackConfig::parse(RACK, Path::new("rack.yaml")).unwrap(),
            options: RunOptions { hosts, machines_per_host: 2, ..RunOptions::default() },
            program: "true".into(),
            args: Vec::new(),
            environment: Environment::default(),
            library: None,
            notice: |_| (),
            on_start: |_| (),
        }
    }

    #[test]
    fn machines_and_workers_follow_the_hosts() {
        let run = run(&["b", "a"]);
        let chosen = choose(&run.rack, &run.options.hosts).unwrap();
        let plan = make(&run, &chosen).unwrap();
        let workers: Vec<_> = plan.machines.iter().map(|machine| (machine.host, machine.workers)).collect();
        assert_eq!(workers, [(0, Some(3)), (0, Some(2)), (1, None), (1, None)]);
        assert_eq!(plan.hosts[0].cores, Some(vec![0, 1, 2, 3]));
        assert_eq!(plan.hosts[1].bind.to_string(), "127.0.0.1");
        assert_eq!(plan.hosts.iter().map(|host| host.heap).collect::<Vec<_>>(), [None, None]);
        assert_eq!(plan.fabric, FabricChoice::Auto);
        assert_eq!(prefixes(&run, &plan), ["m0@b | ", "m1@b | ", "m2@a | ", "m3@a | "]);
    }

    #[test]
    fn hosts_are_told_what_their_heaps_may_take_and_which_ports() {
        let mut run = run(&[]);
        run.rack.heap = "8G".parse().ok();
        run.rack.hosts[1].heap = "2G".parse().ok();
        (run.rack.ports, run.rack.hosts[1].ports) = ("7200-7299".parse().ok(), "7300-7399".parse().ok());
        let plan = make(&run, &choose(&run.rack, &run.options.hosts).unwrap()).unwrap();
        let ports: Vec<_> = plan.hosts.iter().map(|host| host.ports.map(|ports| ports.first())).collect();
        assert_eq!(ports, [Some(7200), Some(7300), Some(7200)]);
        let heaps: Vec<_> = plan.hosts.iter().map(|host| host.heap.map(|heap| heap.get() >> 30)).collect();
        assert_eq!(heaps, [Some(8), Some(2), Some(8)]);
    }

    #[test]
    fn what_is_asked_for_counts_more_than_the_file() {
        let mut run = run(&[]);
        run.options.threads = Some(9);
        let chosen = choose(&run.rack, &run.options.hosts).unwrap();
        assert_eq!(chosen.len(), 3);
        let plan = make(&run, &chosen).unwrap();
        assert!(plan.machines.iter().all(|machine| machine.workers.is_none()) && plan.threads == Some(9));
        assert_eq!(plan.fabric, FabricChoice::Auto);
        let tcp_only: Vec<bool> = plan.hosts.iter().map(|host| host.is_tcp_only).collect();
        assert_eq!(tcp_only, [false, false, true], "host c says so");
        (run.rack.fabric, run.rack.hosts[1].fabric) = (FabricChoice::Tcp, Some(FabricChoice::Auto));
        let inheriting = make(&run, &choose(&run.rack, &run.options.hosts).unwrap()).unwrap();
        let tcp_only: Vec<bool> = inheriting.hosts.iter().map(|host| host.is_tcp_only).collect();
        assert_eq!((inheriting.fabric, tcp_only), (FabricChoice::Auto, vec![true, false, true]), "the rack says so");
        run.rack.fabric = FabricChoice::Auto;
        run.rack.hosts[1].fabric = Some(FabricChoice::Verbs);
        let differing = choose(&run.rack, &run.options.hosts).unwrap();
        assert_eq!(make(&run, &differing).unwrap().fabric, FabricChoice::Tcp);
        run.options.fabric = Some(FabricChoice::Shm);
        assert!(make(&run, &chosen).unwrap_err().to_string().contains("--fabric auto or tcp"));
        (run.options.fabric, run.options.threads) = (None, Some(5));
        assert!(make(&run, &chosen).unwrap_err().to_string().contains("need 6"));
    }

    #[test]
    fn what_is_a_hosts_to_say_cannot_be_chosen() {
        let mut run = run(&[]);
        let plan = make(&run, &run.rack.hosts).unwrap();
        for (asked, is_refused) in [("HOME=/x", true), ("GOSSAMER_PROGRAM=1", true), ("XDG_MINE=1", false)] {
            run.environment = Environment::new(true, &[asked.into()]).unwrap();
            let start = start(&run, &plan, &files());
            assert_eq!(start.is_err(), is_refused, "{asked}: {start:?}");
            if let Ok(start) = start {
                assert_eq!(start.env, [(b"XDG_MINE".to_vec(), b"1".to_vec())]);
            }
        }
    }

    #[test]
    fn unknown_hosts_are_named() {
        let run = run(&["a", "d"]);
        let message = choose(&run.rack, &run.options.hosts).unwrap_err().to_string();
        assert!(message.contains("no host d in rack.yaml: it has a, b, c"), "{message}");
        let twice = choose(&run.rack, &["a".into(), "a".into()]).unwrap_err().to_string();
        assert!(twice.contains("--machines-per-host"), "{twice}");
    }

    #[test]
    fn too_much_to_say_is_refused_before_it_is_sent() {
        let run = run(&[]);
        let plan = make(&run, &run.rack.hosts).unwrap();
        let mut start = start(&run, &plan, &files()).unwrap();
        start.args = vec![vec![b'x'; 300_000]];
        let refused = check_length(start.clone(), 200_000).unwrap_err().to_string();
        assert!(refused.contains("limits.environment_bytes is 200000") && refused.contains("--clean-env"), "{refused}");
        // Short, but many: each has a length of its own on the wire.
        start.args = vec![vec![b'x']; 600_000];
        let refused = check_length(start, 700_000).unwrap_err().to_string();
        assert!(refused.contains(&format!("at most {RUN_BYTES_MAX} are possible")), "{refused}");
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert!(find_program(OsStr::new("sh")).unwrap().is_absolute());
        for (program, kind) in [
            ("/no/such/program", io::ErrorKind::NotFound),
            ("no-such-program-anywhere", io::ErrorKind::NotFound),
            ("/etc/passwd", io::ErrorKind::PermissionDenied),
        ] {
            match find_program(OsStr::new(program)) {
                Err(LaunchError::Program { source, .. }) => assert_eq!(source.kind(), kind, "{program}"),
                other => panic!("{program}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_belongs_to_this_host_stays_here() {
        for (name, passed) in [("RUST_LOG", true), ("PATH", true), ("HOME", false), ("SSH_TTY", false), ("HOMES", true)]
        {
            assert_eq!(is_passed_on(OsStr::new(name)), passed, "{name}");
        }
    }
}
