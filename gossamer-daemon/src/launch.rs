//! Runs a program with all machines on this host: starts them, passes their streams on, and continues until the last of
//! them has gone. The machines themselves are in [`crate::machines`], the handling of their events in
//! [`crate::supervisor`].

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use comm::secure::Key;
use gossamer::bootstrap::{HostPlan, Plan};
use gossamer::control::Message;
use gossamer::view::server::{self, Access};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::core_dump;
use crate::environment::Environment;
use crate::error::LaunchError;
use crate::gather::Gather;
use crate::input;
use crate::looks::{self, Looks};
use crate::machines::{Event, Group, LOOK_INTERVAL, Start, Streams};
use crate::options::{MAX_LOCAL_MACHINES, RunOptions};
use crate::orphans;
use crate::outcome::{Cause, Ended};
use crate::output::{self, Forwarding, Source};
use crate::signals::Signals;
use crate::supervisor::{Order, Policy, Supervisor};

/// Time limit for the leftover processes of machines to go once they are killed.
pub(crate) const ORPHANS_LIMIT: Duration = Duration::from_secs(10);

/// Description of the program to start.
#[derive(Debug, Clone)]
pub struct LaunchConfig {
    /// A path, or a name to be found in `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Number of machines, from 1 to [`MAX_LOCAL_MACHINES`].
    pub machines: u16,
    /// Options of the run; those for a rack have no effect.
    pub options: RunOptions,
    /// Environment of the machines.
    pub environment: Environment,
    /// Access to its view, if it has one.
    pub view: Option<Access>,
    /// Reports the address of the view to the user.
    pub on_view: fn(&str),
}

impl LaunchConfig {
    /// Returns a program with this many machines, and the defaults of `gossamer-launch run --local`.
    #[must_use]
    pub fn new(program: OsString, args: Vec<OsString>, machines: u16) -> LaunchConfig {
        LaunchConfig {
            program,
            args,
            machines,
            options: RunOptions::default(),
            environment: Environment::default(),
            view: None,
            on_view: |_| (),
        }
    }
}

/// Runs a program from its start to its end. To be called from a thread that stays alive meanwhile, best the main one:
/// the kernel ties the machines' lives to it.
///
/// # Errors
/// When the program cannot be started or watched; none of its machines is left then.
pub fn run(config: &LaunchConfig) -> Result<Ended, LaunchError> {
    if config.machines == 0 || config.machines > MAX_LOCAL_MACHINES {
        return Err(LaunchError::Machines(config.machines));
    }
    core_dump::forbid().map_err(LaunchError::system("forbid core dumps"))?;
    let signals = Signals::catch().map_err(LaunchError::system("catch signals"))?; // first: none may be missed
    let plan = plan(config);
    let key = Key::generate()?;
    let policy = Policy { silence: config.options.silence, ..config.options.policy() };
    let mut supervisor = Supervisor::new(config.machines, policy);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut groups = Vec::new();
    let environment = (!config.environment.is_inherited()).then(|| config.environment.variables(|_| true));
    for (host, _) in (0u16..).zip(&plan.hosts) {
        let LaunchConfig { program, args, options, .. } = config;
        let environment = environment.as_deref();
        let start = Start { program, args, environment, folder: None, options, plan: &plan, host };
        let mut group = Group::start(&start, |machine| streams(config, machine))?;
        for machine in plan.machines_of(host) {
            supervisor.introduce(machine, group.pid(machine), None);
            let (pipes, prefix) = (group.take_pipes(machine), prefix(config, machine));
            stdout.extend(pipes.stdout.map(|stream| Source::new(stream, &prefix)));
            stderr.extend(pipes.stderr.map(|stream| Source::new(stream, &prefix)));
            if let Some(stdin) = pipes.stdin {
                input::forward(stdin).map_err(LaunchError::system("start the thread for standard input"))?;
            }
        }
        groups.push(group);
    }
    let forwarding = Forwarding::start(stdout, stderr).map_err(LaunchError::system("start the threads for output"))?;
    let (looker, mut looks) = looks::channel(config.machines).map_err(LaunchError::system("watch the program"))?;
    if let Some(access) = &config.view {
        let server = server::serve(access, Arc::new(looker)).map_err(LaunchError::system("serve the view (--view)"))?;
        (config.on_view)(server.url());
    }
    watch(&mut groups, &mut supervisor, &mut looks, Gather::new(config.machines, key), &forwarding, &signals)?;
    orphans::end(ORPHANS_LIMIT); // they may hold the pipes
    forwarding.finish(&signals).into_iter().for_each(|stream| supervisor.on_unwritten(stream, Instant::now()));
    let mut ended = supervisor.ended();
    if has_own_streams(config, 0) && ended.outcome.is_by_closed_pipe() {
        ended.unwritten.extend(output::closed()); // the machine has the streams themselves
    }
    Ok(ended)
}

/// Returns the plan of a program on this host, or on several pretended ones: each with an address and, as far as they
/// go, cores of its own.
fn plan(config: &LaunchConfig) -> Plan {
    let options = &config.options;
    let mut plan = Plan::local(config.machines, options.fabric.unwrap_or_default(), options.threads);
    (plan.start_timeout_ms, plan.silence_ms) = options.limits_ms();
    let count = options.pretend_hosts.clamp(1, config.machines);
    if count > 1 {
        let host = plan.hosts.remove(0);
        let cores = allowed_cores();
        for index in 0..count {
            let (place, every) = (usize::from(index) % cores.len(), usize::from(count).min(cores.len()));
            let own = cores.iter().copied().skip(place).step_by(every).collect();
            let bind = Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + u32::from(index));
            plan.hosts.push(HostPlan {
                name: format!("{}-{index}", host.name),
                bind: IpAddr::from(bind).into(),
                cores: Some(own),
                ..host.clone()
            });
        }
        for (index, machine) in plan.machines.iter_mut().enumerate() {
            machine.host = (index * usize::from(count) / usize::from(config.machines)) as u16;
        }
    }
    plan
}

fn streams(config: &LaunchConfig, machine: u16) -> Streams {
    let output = || if has_own_streams(config, machine) { Stdio::inherit() } else { Stdio::piped() };
    let stdin = if machine == 0 { input::for_machine_0(config.options.stdin) } else { Stdio::null() };
    Streams { stdin, stdout: output(), stderr: output() }
}

/// Whether a machine writes to the launcher's streams itself, byte by byte: it is the only one, or all write there
/// through it (`--region`).
fn has_own_streams(config: &LaunchConfig, machine: u16) -> bool {
    let LaunchConfig { machines, options, .. } = config;
    *machines == 1 || machine == 0 && options.no_prefix && options.region.is_some()
}

fn prefix(config: &LaunchConfig, index: u16) -> String {
    if config.options.no_prefix || config.machines == 1 {
        return String::new();
    }
    let width = format!("m{}", config.machines - 1).len();
    format!("{:<width$} | ", format!("m{index}"))
}

/// Returns the cores that this process may use, or as many from 0 on where the system does not list them; at least one.
fn allowed_cores() -> Vec<u16> {
    let allowed = sched_getaffinity(None).map_or_else(
        |_| (0..std::thread::available_parallelism().map_or(1, usize::from)).collect::<Vec<_>>(),
        |set| (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect(),
    );
    allowed.into_iter().filter_map(|core| u16::try_from(core).ok()).collect()
}

/// Handles events until no machine is left (or one cannot even be killed).
fn watch(
    groups: &mut [Group],
    supervisor: &mut Supervisor,
    looks: &mut Looks,
    mut gather: Gather,
    forwarding: &Forwarding,
    signals: &Signals,
) -> Result<(), LaunchError> {
    while !supervisor.is_over() {
        wait(groups, supervisor.deadline(), forwarding, looks, signals)
            .map_err(LaunchError::system("wait for the machines"))?;
        for (ask, look) in looks.questions() {
            for group in groups.iter_mut() {
                group.tell_all(&Message::Look { ask, look });
            }
        }
        while let Some(signal) = signals.take() {
            supervisor.on_signal(signal, Instant::now());
        }
        for index in 0..groups.len() {
            let events = groups[index].events()?;
            // A machine may have ended because its output was closed: the cause comes first.
            forwarding.unwritten().into_iter().for_each(|stream| supervisor.on_unwritten(stream, Instant::now()));
            for event in events {
                match event {
                    Event::Said { machine, message: Message::Endpoint { bytes } } => match gather.add(machine, bytes) {
                        Ok(_) => {
                            supervisor.on_join(machine, Instant::now());
                            groups.iter_mut().for_each(|group| pass_on(group, &gather, machine));
                        }
                        Err(cause) => supervisor.on_death(machine, Cause::Protocol(cause), Instant::now()),
                    },
                    Event::Said { machine, message: Message::Seen { ask, is_last, bytes } } => {
                        looks.on_seen(machine, ask, is_last, bytes);
                    }
                    event => supervisor.on_event(event, Instant::now()),
                }
            }
        }
        supervisor.on_time(Instant::now());
        for order in supervisor.orders() {
            groups.iter_mut().for_each(|group| match &order {
                Order::Signal(signal) => group.signal(*signal),
                Order::End(reason) => group.tell_to_end(reason),
                Order::Kill => group.signal(Signal::KILL),
                Order::Tell { machine, message } => group.send(*machine, message.clone()),
                Order::KillOne(machine) => group.kill(*machine),
                Order::Report { .. } => {}
            });
            if let Order::Report { machine, text } = order {
                looks.lose(machine);
                eprintln!("gossamer-launch: {text}");
            }
        }
    }
    Ok(())
}

/// Gives the endpoint of a machine to all others of a group, and the key to that machine.
fn pass_on(group: &mut Group, gather: &Gather, machine: u16) {
    let numbers: Vec<u16> = group.numbers().collect();
    for other in numbers {
        let message = if other == machine { Some(gather.secret()) } else { gather.peer(machine) };
        message.into_iter().for_each(|message| group.send(other, message));
    }
}

/// Waits for an event, at most until `deadline`, and no longer than the check interval of machines.
fn wait(
    groups: &[Group],
    deadline: Option<Instant>,
    forwarding: &Forwarding,
    looks: &Looks,
    signals: &Signals,
) -> Result<(), Errno> {
    let mut fds: Vec<PollFd<'_>> = groups.iter().map(|group| PollFd::new(group, PollFlags::IN)).collect();
    fds.extend(signals.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    fds.push(PollFd::from_borrowed_fd(forwarding.failed(), PollFlags::IN));
    fds.push(PollFd::from_borrowed_fd(looks.asked(), PollFlags::IN));
    let left = deadline.map_or(LOOK_INTERVAL, |at| at.saturating_duration_since(Instant::now()).min(LOOK_INTERVAL));
    let timeout = Timespec::try_from(left).ok();
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(machines: u16, prefix: bool) -> LaunchConfig {
        let options = RunOptions { no_prefix: !prefix, ..RunOptions::default() };
        LaunchConfig { options, ..LaunchConfig::new("true".into(), Vec::new(), machines) }
    }

    #[test]
    fn names_are_aligned_and_left_out_when_asked() {
        assert_eq!(prefix(&config(2, true), 1), "m1 | ");
        assert_eq!(prefix(&config(11, true), 9), "m9  | ");
        assert_eq!(prefix(&config(11, true), 10), "m10 | ");
        assert_eq!(prefix(&config(2, false), 1), "");
        assert_eq!(prefix(&config(1, true), 0), "");
    }

    #[test]
    fn the_number_of_machines_is_checked_by_the_library_too() {
        for machines in [0, MAX_LOCAL_MACHINES + 1, u16::MAX] {
            assert!(matches!(run(&config(machines, true)), Err(LaunchError::Machines(_))));
        }
    }

    #[test]
    fn pretended_hosts_have_machines_and_names_of_their_own() {
        let mut config = config(5, true);
        assert_eq!(plan(&config).hosts.len(), 1);
        for (hosts, places) in [(2, [0, 0, 0, 1, 1]), (5, [0, 1, 2, 3, 4]), (9, [0, 1, 2, 3, 4])] {
            config.options.pretend_hosts = hosts;
            let plan = plan(&config);
            plan.check().unwrap();
            assert_eq!(plan.machines.iter().map(|machine| machine.host).collect::<Vec<_>>(), places);
            assert_ne!((&plan.hosts[0].name, &plan.hosts[0].bind), (&plan.hosts[1].name, &plan.hosts[1].bind));
        }
    }
}
