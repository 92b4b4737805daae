//! Handover from a launcher to a process that it starts as one machine of a program: the machine's number, the
//! program's plan (`bootstrap/plan.rs`), the control channel, and the shared memory of its host, where the plan has
//! some.
//!
//! It travels in environment variables (named `GOSSAMER_…`, see below) and in inherited file descriptors. Both
//! directions are in this file, so that they cannot drift apart: [`LaunchDescriptor::hand_to`] for the launcher,
//! [`Bootstrap::from_env`] for the machine. Shared memory has its own handover ([`comm::shm::Segments::hand_to`]),
//! which both call. The program's key and the endpoints of the other machines come over the control channel
//! ([`crate::control`]). Starting processes is the job of the package `gossamer-daemon`.
//!
//! ```text
//! GOSSAMER_LAUNCHER   3:4711      version of this protocol, process id of the launcher
//! GOSSAMER_MACHINE    0           which machine this is
//! GOSSAMER_PLAN       {…}         the plan, as JSON
//! GOSSAMER_CONTROL    5:8:90210   the control channel: descriptor, device, inode
//! ```
//!
//! How does a process know that it is the machine? The variables cannot be removed from the environment (a program with
//! threads may read it at any time), so every process that a machine starts inherits them, and such a *grandchild* may
//! well use gossamer. The control channel decides. The variable names the device and inode of its socket, and the
//! machine sets close-on-exec on the socket as it reads the variables. Its children see the variables but not the
//! socket, and know that the variables were not meant for them. If the socket is missing although the parent *is* the
//! launcher, a process in between has closed it. That is an error: a program that silently ran as N unrelated processes
//! would be worse.
#![allow(unsafe_code)] // pre_exec

mod heap_bytes;
mod host_address;
mod inherit;
mod number_or_text;
mod plan;
mod port_range;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use comm::{MachineId, shm};
use rustix::io::FdFlags;
use rustix::process::Pid;

use crate::control::{Control, PROTOCOL_VERSION};
pub use heap_bytes::HeapBytes;
pub use host_address::HostAddress;
use inherit::{Inherited, Presence};
pub use number_or_text::number_or_text;
pub use plan::{FabricChoice, HostPlan, MACHINES_MAX, MachinePlan, Plan, SILENCE_MS, START_TIMEOUT_MS, VerbsSettings};
pub use port_range::PortRange;

/// Name of the variable that holds the protocol's version and the launcher's process id.
pub const LAUNCHER: &str = "GOSSAMER_LAUNCHER";
/// Name of the variable that holds the number of this machine.
pub const MACHINE: &str = "GOSSAMER_MACHINE";
/// Name of the variable that holds the plan.
pub const PLAN: &str = "GOSSAMER_PLAN";
/// Name of the variable that names the control channel.
pub const CONTROL: &str = "GOSSAMER_CONTROL";

/// Linux's limit for one variable (`MAX_ARG_STRLEN`), less the variable's name.
const PLAN_BYTES_MAX: usize = 128 * 1024 - 64;

/// Reason why the process cannot take its place in the program.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// A variable is missing while others are there.
    #[error("the environment variable {variable} is missing although {present} is set: {CURE}")]
    Missing {
        /// The missing variable.
        variable: &'static str,
        /// A variable that is set.
        present: &'static str,
    },
    /// A variable has a value that no launcher writes.
    #[error("the environment variable {variable} has the value {value:?}, but should be {expected}: {CURE}")]
    Invalid {
        /// The variable.
        variable: &'static str,
        /// Its value (not UTF-8 replaced).
        value: String,
        /// The expected form.
        expected: &'static str,
    },
    /// The launcher speaks another version of the protocol.
    #[error(
        "gossamer-launch speaks version {theirs} of the bootstrap protocol, this program version {PROTOCOL_VERSION} \
         ({LAUNCHER}={value:?}): build both from the same gossamer (and gossamer-daemon, where it is in use)"
    )]
    Version {
        /// The launcher's version.
        theirs: u8,
        /// Value of the variable.
        value: String,
    },
    /// The launcher started this process, but a descriptor that it passed on did not arrive.
    #[error(
        "file descriptor {fd}, named by the environment variable {variable}={value:?}, did not reach this process: \
         a wrapper between gossamer-launch and the program has closed it; run the program without the wrapper, or \
         without the variables that start with GOSSAMER_ to run it as one process"
    )]
    Closed {
        /// The descriptor.
        fd: RawFd,
        /// The variable that names it.
        variable: &'static str,
        /// Value of the variable.
        value: String,
    },
    /// [`Bootstrap::from_env`] was called before in this process.
    #[error("the bootstrap was already read in this process: gossamer can be started only once")]
    Taken,
    /// The memory of the fabric did not arrive.
    #[error("the memory that gossamer-launch made for this program cannot be used: {0}")]
    Memory(#[from] comm::Error),
    /// The memory is there, but for another machine or another number of machines.
    #[error(
        "the plan gives this machine place {place} of {members} in the memory of its host, but the memory is that for \
         place {memory_place} of {memory_members}: {CURE}"
    )]
    Mismatch {
        /// Place given by the plan.
        place: usize,
        /// Group size given by the plan.
        members: usize,
        /// Place given by the memory's handover.
        memory_place: usize,
        /// Group size given by the memory's handover.
        memory_members: usize,
    },
    /// The plan of the program is invalid.
    #[error("the plan of the program is invalid: {cause}")]
    Plan {
        /// The mistake, and the cure.
        cause: String,
    },
    /// A system call on an inherited descriptor failed.
    #[error("cannot take over file descriptor {fd} from gossamer-launch: {source}")]
    Descriptor {
        /// The descriptor.
        fd: RawFd,
        /// The system's error.
        source: io::Error,
    },
}

const CURE: &str = "start the program with gossamer-launch, or unset all variables that start with GOSSAMER_";

/// Handover that this machine received from its launcher.
#[derive(Debug)]
pub struct Bootstrap {
    /// Number of this machine, from 0; one of the plan's.
    pub machine: u16,
    /// The plan of the program, already checked.
    pub plan: Plan,
    /// The memory that this machine shares with others of its host, if the plan says so ([`Plan::memory_group`]);
    /// machine numbers in it are places in that group.
    pub memory: Option<shm::Bootstrap>,
    /// The channel to the launcher.
    pub control: Control,
}

impl Bootstrap {
    /// Takes over the launcher's handover to this process; `None` without a launcher: run as one process.
    ///
    /// Sets close-on-exec on the descriptors. Call it once, before the program starts processes that might use gossamer
    /// themselves (`gossamer::main` does).
    ///
    /// # Errors
    /// If variables are there but broken, if the descriptors were closed on the way, or on a second call. The text
    /// names the variable, its value and the cure.
    ///
    /// ```
    /// // Nobody has launched this process.
    /// assert!(gossamer::bootstrap::Bootstrap::from_env().unwrap().is_none());
    /// ```
    pub fn from_env() -> Result<Option<Bootstrap>, BootstrapError> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(variables) = Variables::read(|name| std::env::var_os(name))? else {
            return Ok(None);
        };
        let Some(control) = variables.take_control(rustix::process::getppid())? else {
            return Ok(None);
        };
        let Variables { machine, plan, .. } = variables;
        let group = plan.memory_group(machine);
        let memory = if group.is_empty() { None } else { Some(take_memory(machine, &group)?) };
        Ok(Some(Bootstrap { machine, plan, memory, control }))
    }
}

fn take_memory(machine: u16, group: &[u16]) -> Result<shm::Bootstrap, BootstrapError> {
    let Some(memory) = shm::Bootstrap::from_env()? else {
        return Err(BootstrapError::Missing { variable: shm::BOOTSTRAP_VARIABLE, present: CONTROL });
    };
    let place = group.partition_point(|&member| member < machine);
    let (memory_place, memory_members) = (usize::from(memory.machine.0), memory.members());
    if (memory_place, memory_members) != (place, group.len()) {
        return Err(BootstrapError::Mismatch { place, members: group.len(), memory_place, memory_members });
    }
    Ok(memory)
}

/// Launch descriptor: a place in a program, for a process that is about to start.
#[derive(Clone, Copy, Debug)]
pub struct LaunchDescriptor<'a> {
    /// Number of the machine that the process will be.
    pub machine: u16,
    /// The plan, the same for all machines of the program.
    pub plan: &'a Plan,
    /// The memory of this machine's [`Plan::memory_group`], the same for each member: made once by
    /// [`comm::shm::create`]. `None` where that group is empty.
    pub memory: Option<&'a shm::Segments>,
}

impl LaunchDescriptor<'_> {
    /// Turns the child that `command` will spawn into this machine of the program, and returns the launcher's end of
    /// its control channel. The caller's process spawns the command once and then drops it: the command holds the
    /// machine's end.
    ///
    /// ```
    /// use gossamer::bootstrap::{FabricChoice, Plan, LaunchDescriptor};
    /// let plan = Plan::local(2, FabricChoice::Shm, None);
    /// let memory = comm::shm::create(2)?;
    /// let mut command = std::process::Command::new("true"); // not a gossamer program: it looks at none of this
    /// let control = LaunchDescriptor { machine: 1, plan: &plan, memory: Some(&memory) }.hand_to(&mut command)?;
    /// command.spawn()?.wait()?;
    /// drop(command);
    /// assert!(control.receive()?.is_none(), "it has gone without a word");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` if plan, machine and memory do not fit together, or if the plan is too long for the environment;
    /// other errors if the process has no file descriptors left.
    pub fn hand_to(&self, command: &mut Command) -> io::Result<Control> {
        let (theirs, ours) = Control::pair()?;
        for (name, value) in self.variables(&theirs)? {
            command.env(name, value);
        }
        match self.memory {
            Some(memory) => memory.hand_to(command, MachineId(self.place()? as u16)),
            None => drop(command.env_remove(shm::BOOTSTRAP_VARIABLE)),
        }
        // SAFETY: between fork and exec the closure makes one system call; it allocates nothing and takes no lock.
        unsafe { command.pre_exec(move || Ok(rustix::io::fcntl_setfd(&theirs, FdFlags::empty())?)) };
        Ok(ours)
    }

    /// Returns the variables to set.
    fn variables(&self, control: &Control) -> io::Result<[(&'static str, String); 4]> {
        self.plan.check().map_err(invalid)?;
        self.place()?;
        let plan = serde_json::to_string(self.plan)?;
        if plan.len() > PLAN_BYTES_MAX {
            let (bytes, cure) = (plan.len(), "use fewer machines, or shorter names of hosts");
            return Err(invalid(format!("a plan of {bytes} bytes does not fit a variable: {cure}")));
        }
        let launcher = rustix::process::getpid().as_raw_nonzero();
        Ok([
            (LAUNCHER, format!("{PROTOCOL_VERSION}:{launcher}")),
            (MACHINE, self.machine.to_string()),
            (PLAN, plan),
            (CONTROL, Inherited::of(control.as_fd())?.to_string()),
        ])
    }

    /// Returns the machine's place in its memory group; 0 without a group.
    fn place(&self) -> io::Result<usize> {
        if usize::from(self.machine) >= self.plan.machines.len() {
            return Err(invalid(format!("the plan has no machine {}", self.machine)));
        }
        let group = self.plan.memory_group(self.machine);
        let members = self.memory.map_or(0, |memory| usize::from(memory.machines()));
        if members != group.len() {
            return Err(invalid(format!("memory for {members} machines, but the plan wants it for {}", group.len())));
        }
        Ok(group.partition_point(|&member| member < self.machine))
    }
}

fn invalid(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, cause)
}

/// Parsed variables; the control channel is not checked yet.
#[derive(Debug)]
struct Variables {
    launcher: i32,
    machine: u16,
    plan: Plan,
    control: Inherited,
    control_text: String,
}

impl Variables {
    fn read(get: impl Fn(&str) -> Option<OsString>) -> Result<Option<Variables>, BootstrapError> {
        let names = [LAUNCHER, MACHINE, PLAN, CONTROL];
        let Some(present) = names.into_iter().find(|name| get(name).is_some()) else {
            return Ok(None);
        };
        let text = |variable| match get(variable) {
            Some(value) => Ok(value.to_string_lossy().into_owned()),
            None => Err(BootstrapError::Missing { variable, present }),
        };
        let invalid =
            |variable, value: &str, expected| BootstrapError::Invalid { variable, value: value.to_owned(), expected };

        let value = text(LAUNCHER)?;
        let expected = "VERSION:PID";
        let (version, pid) = value.split_once(':').ok_or_else(|| invalid(LAUNCHER, &value, expected))?;
        let theirs: u8 = version.parse().map_err(|_| invalid(LAUNCHER, &value, expected))?;
        if theirs != PROTOCOL_VERSION {
            return Err(BootstrapError::Version { theirs, value });
        }
        let launcher = pid.parse().ok().filter(|pid| *pid > 0).ok_or_else(|| invalid(LAUNCHER, &value, expected))?;

        let value = text(PLAN)?;
        let plan: Plan = serde_json::from_str(&value).map_err(|_| invalid(PLAN, &value, "a plan, as JSON"))?;
        plan.check()?;
        let value = text(MACHINE)?;
        let machine = value.parse().ok().filter(|machine| usize::from(*machine) < plan.machines.len());
        let machine = machine.ok_or_else(|| invalid(MACHINE, &value, "the number of a machine in GOSSAMER_PLAN"))?;
        let control_text = text(CONTROL)?;
        let control = Inherited::parse(&control_text);
        let control = control.ok_or_else(|| invalid(CONTROL, &control_text, "FD:DEVICE:INODE"))?;
        Ok(Some(Variables { launcher, machine, plan, control, control_text }))
    }

    /// Returns the control channel, if these variables were meant for this process.
    fn take_control(&self, parent: Option<Pid>) -> Result<Option<Control>, BootstrapError> {
        match self.control.presence() {
            Presence::Inherited => self.control.take().map(Control::from_socket).map(Some),
            Presence::Taken => Err(BootstrapError::Taken),
            Presence::Absent if parent.map(|pid| pid.as_raw_nonzero().get()) == Some(self.launcher) => {
                Err(BootstrapError::Closed { fd: self.control.fd, variable: CONTROL, value: self.control_text.clone() })
            }
            Presence::Absent => Ok(None), // grandchild: the variables were its parent's
        }
    }
}

#[cfg(test)]
mod tests;
