//! What a launcher tells a process that it starts as one machine of a program: which machine it is, of how many, how
//! many workers there are in all, the control channel, and the memory of the fabric.
//!
//! It travels in environment variables (named `GOSSAMER_…`, see below) and in inherited file descriptors. Both
//! directions are here, so that they cannot drift apart: [`Seat::hand_to`] for the launcher, [`Bootstrap::from_env`]
//! for the machine. The fabric's memory has a handover of its own ([`comm::shm::Segments::hand_to`]), which both of
//! them call. Starting processes is not here (package `gossamer-daemon`), nor is what the messages on the control
//! channel mean ([`crate::control`]).
//!
//! ```text
//! GOSSAMER_LAUNCHER   1:4711      version of this protocol, process id of the launcher
//! GOSSAMER_MACHINE    0           which machine this is
//! GOSSAMER_MACHINES   2           how many there are
//! GOSSAMER_THREADS    8           workers in all machines together; absent: the program decides
//! GOSSAMER_CONTROL    5:8:90210   the control channel: descriptor, device, inode
//! ```
//!
//! Who is the machine? The variables cannot be taken out of the environment (a program with threads may read it at any
//! time), so every process that a machine starts inherits them, and such a *grandchild* may well use gossamer. The
//! control channel decides. The variable names the device and inode of its socket, and the machine sets close-on-exec
//! on it as it reads the variables: its children see the variables, but not the socket, and know that the variables
//! were not meant for them. If the socket is missing although the parent *is* the launcher, somebody in between has
//! closed it, and that is an error: a program that silently ran as N unrelated processes would be worse.
//!
//! Invariants: a descriptor is owned here only if it is open, refers to exactly what the launcher put there, and was
//! inherited (not close-on-exec); so no descriptor that the process opened itself is ever taken.
#![allow(unsafe_code)] // inherited descriptors come as numbers

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use comm::{MachineId, shm};
use rustix::io::FdFlags;
use rustix::process::Pid;

use crate::control::{Control, PROTOCOL_VERSION};

/// Name of the variable that holds the protocol's version and the launcher's process id.
pub const LAUNCHER: &str = "GOSSAMER_LAUNCHER";
/// Name of the variable that holds the number of this machine.
pub const MACHINE: &str = "GOSSAMER_MACHINE";
/// Name of the variable that holds the number of machines.
pub const MACHINES: &str = "GOSSAMER_MACHINES";
/// Name of the variable that holds the number of workers in all machines together.
pub const THREADS: &str = "GOSSAMER_THREADS";
/// Name of the variable that names the control channel.
pub const CONTROL: &str = "GOSSAMER_CONTROL";

const LOWEST_FD: RawFd = 3; // below are the standard streams

/// Why the process cannot take its place in the program.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// A variable is missing while others are there.
    #[error("the environment variable {variable} is missing although {present} is set: {CURE}")]
    Missing {
        /// The missing variable.
        variable: &'static str,
        /// One that is there.
        present: &'static str,
    },
    /// A variable has a value that no launcher writes.
    #[error("the environment variable {variable} has the value {value:?}, but should be {expected}: {CURE}")]
    Invalid {
        /// The variable.
        variable: &'static str,
        /// Its value (not UTF-8 replaced).
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// The launcher speaks another version of the protocol.
    #[error(
        "gossamer-launch speaks version {theirs} of the bootstrap protocol, this program version {PROTOCOL_VERSION} \
         ({LAUNCHER}={value:?}): build both from the same gossamer"
    )]
    Version {
        /// The launcher's version.
        theirs: u8,
        /// Value of the variable.
        value: String,
    },
    /// The launcher started this process, but what it passed on did not arrive.
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
    /// The memory of the fabric is there, but for another machine or another number of them.
    #[error(
        "{MACHINE} and {MACHINES} say machine {machine} of {machines}, but the memory is that of machine \
         {memory_machine} of {memory_machines}: {CURE}"
    )]
    Mismatch {
        /// By the variable.
        machine: u16,
        /// By the variable.
        machines: u16,
        /// By the memory's handover.
        memory_machine: u16,
        /// By the memory's handover.
        memory_machines: usize,
    },
    /// A system call on an inherited descriptor failed.
    #[error("cannot take over file descriptor {fd} from gossamer-launch: {source}")]
    Descriptor {
        /// The descriptor.
        fd: RawFd,
        /// Why.
        source: io::Error,
    },
}

const CURE: &str = "start the program with gossamer-launch, or unset all variables that start with GOSSAMER_";

/// What the launcher told this machine.
#[derive(Debug)]
pub struct Bootstrap {
    /// Which machine of the program this is, from 0; always less than `machines`.
    pub machine: u16,
    /// How many machines the program has; at least 1.
    pub machines: u16,
    /// Workers in all machines together (at least one each); `None`: the program decides.
    pub threads: Option<usize>,
    /// The shared memory of the fabric, for [`comm::shm::ShmFabric::open`].
    pub memory: shm::Bootstrap,
    /// The channel to the launcher.
    pub control: Control,
}

impl Bootstrap {
    /// Takes over what the launcher left for this process; `None` when no launcher did: run as one process.
    ///
    /// Sets close-on-exec on the descriptors. To be called once, before the program starts processes that might use
    /// gossamer themselves (`gossamer::main` does it).
    ///
    /// # Errors
    /// When variables are there but broken, or the descriptors were closed on the way, or on a second call. The text
    /// names the variable, its value and the cure.
    pub fn from_env() -> Result<Option<Bootstrap>, BootstrapError> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(variables) = Variables::read(|name| std::env::var_os(name))? else {
            return Ok(None);
        };
        let Some(control) = variables.take_control(rustix::process::getppid())? else {
            return Ok(None);
        };
        let Variables { machine, machines, threads, .. } = variables;
        let Some(memory) = shm::Bootstrap::from_env()? else {
            return Err(BootstrapError::Missing { variable: shm::BOOTSTRAP_VARIABLE, present: CONTROL });
        };
        if memory.machine.0 != machine || memory.fds.len() != usize::from(machines) + 1 {
            let (memory_machine, memory_machines) = (memory.machine.0, memory.fds.len().saturating_sub(1));
            return Err(BootstrapError::Mismatch { machine, machines, memory_machine, memory_machines });
        }
        Ok(Some(Bootstrap { machine, machines, threads, memory, control }))
    }
}

/// A place in the program, for a process that is about to start.
#[derive(Clone, Copy, Debug)]
pub struct Seat<'a> {
    /// Which machine the process will be.
    pub machine: u16,
    /// Workers in all machines together; `None`: the program decides.
    pub threads: Option<usize>,
    /// The memory of the program, the same for all its machines.
    pub memory: &'a shm::Segments,
}

impl Seat<'_> {
    /// Makes the child that `command` will spawn this machine of the program, and returns the launcher's end of its
    /// control channel. The command is to be spawned once, and dropped then: it holds the machine's end.
    ///
    /// ```
    /// use gossamer::bootstrap::Seat;
    /// let memory = comm::shm::create(2)?;
    /// let mut command = std::process::Command::new("true"); // not a gossamer program: it looks at none of this
    /// let control = Seat { machine: 1, threads: None, memory: &memory }.hand_to(&mut command)?;
    /// command.spawn()?.wait()?;
    /// drop(command);
    /// assert!(control.receive()?.is_none(), "it has gone without a word");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the process has no file descriptors left.
    pub fn hand_to(&self, command: &mut Command) -> io::Result<Control> {
        let (theirs, ours) = Control::pair()?;
        for (name, value) in self.variables(&theirs)? {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        self.memory.hand_to(command, MachineId(self.machine));
        // SAFETY: between fork and exec the closure makes one system call; it allocates nothing and takes no lock.
        unsafe { command.pre_exec(move || Ok(rustix::io::fcntl_setfd(&theirs, FdFlags::empty())?)) };
        Ok(ours)
    }

    /// The variables to set, or to remove where the value is `None`.
    fn variables(&self, control: &Control) -> io::Result<[(&'static str, Option<String>); 5]> {
        let launcher = rustix::process::getpid().as_raw_nonzero();
        Ok([
            (LAUNCHER, Some(format!("{PROTOCOL_VERSION}:{launcher}"))),
            (MACHINE, Some(self.machine.to_string())),
            (MACHINES, Some(self.memory.machines().to_string())),
            (THREADS, self.threads.map(|threads| threads.to_string())),
            (CONTROL, Some(Ticket::of(control.as_fd())?.to_string())),
        ])
    }
}

/// A descriptor and what it must refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticket {
    fd: RawFd,
    device: u64,
    inode: u64,
}

/// What a ticket's descriptor is in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum Presence {
    /// Open, the right thing, inherited.
    Inherited,
    /// Open and the right thing, but already taken over: close-on-exec.
    Taken,
    /// Closed, or something else.
    Absent,
}

impl Ticket {
    fn of(fd: BorrowedFd<'_>) -> io::Result<Ticket> {
        let stat = rustix::fs::fstat(fd)?;
        Ok(Ticket { fd: fd.as_raw_fd(), device: stat.st_dev, inode: stat.st_ino })
    }

    fn parse(text: &str) -> Option<Ticket> {
        let mut parts = text.split(':');
        let fd = parts.next()?.parse().ok().filter(|fd| *fd >= LOWEST_FD)?;
        let ticket = Ticket { fd, device: parts.next()?.parse().ok()?, inode: parts.next()?.parse().ok()? };
        parts.next().is_none().then_some(ticket)
    }

    fn presence(self) -> Presence {
        // SAFETY: F_GETFD takes any number and answers EBADF when it is no descriptor; no memory is involved.
        let flags = unsafe { libc::fcntl(self.fd, libc::F_GETFD) };
        if flags < 0 {
            return Presence::Absent;
        }
        // SAFETY: F_GETFD has just found it open. Should another thread close it at this moment, fstat answers EBADF
        // or describes something else: Absent, either way.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        match Ticket::of(fd) {
            Ok(found) if found == self && flags & libc::FD_CLOEXEC != 0 => Presence::Taken,
            Ok(found) if found == self => Presence::Inherited,
            _ => Presence::Absent,
        }
    }

    fn take(self) -> Result<OwnedFd, BootstrapError> {
        // SAFETY: only called when `presence` was Inherited: the descriptor is open, is what the launcher put there,
        // and nothing in this process owns it, for it would then be close-on-exec (Rust opens nothing otherwise) or,
        // after an earlier `take`, is. `from_env` takes one at a time.
        let owned = unsafe { OwnedFd::from_raw_fd(self.fd) };
        match rustix::io::fcntl_setfd(&owned, FdFlags::CLOEXEC) {
            Ok(()) => Ok(owned),
            Err(error) => Err(BootstrapError::Descriptor { fd: self.fd, source: error.into() }),
        }
    }
}

impl std::fmt::Display for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.fd, self.device, self.inode)
    }
}

/// The variables, understood but not yet believed.
#[derive(Debug)]
struct Variables {
    launcher: i32,
    machine: u16,
    machines: u16,
    threads: Option<usize>,
    control: Ticket,
    control_text: String,
}

impl Variables {
    fn read(get: impl Fn(&str) -> Option<OsString>) -> Result<Option<Variables>, BootstrapError> {
        let names = [LAUNCHER, MACHINE, MACHINES, CONTROL];
        let Some(present) = names.into_iter().find(|name| get(name).is_some()) else {
            return Ok(None); // THREADS alone is no launcher's work, but a wish for a program without one
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

        let value = text(MACHINES)?;
        let machines = value.parse().ok().filter(|machines| *machines > 0);
        let machines: u16 = machines.ok_or_else(|| invalid(MACHINES, &value, "a number from 1 to 65535"))?;
        let value = text(MACHINE)?;
        let machine = value.parse().ok().filter(|machine| *machine < machines);
        let machine = machine.ok_or_else(|| invalid(MACHINE, &value, "a number below GOSSAMER_MACHINES"))?;
        let threads = match get(THREADS).map(|value| value.to_string_lossy().into_owned()) {
            None => None,
            Some(value) => match value.parse().ok().filter(|threads| *threads >= usize::from(machines)) {
                Some(threads) => Some(threads),
                None => {
                    return Err(invalid(THREADS, &value, "a number of at least GOSSAMER_MACHINES"));
                }
            },
        };
        let control_text = text(CONTROL)?;
        let control = Ticket::parse(&control_text).ok_or_else(|| invalid(CONTROL, &control_text, "FD:DEVICE:INODE"))?;
        Ok(Some(Variables { launcher, machine, machines, threads, control, control_text }))
    }

    /// The control channel, if these variables were meant for this process.
    fn take_control(&self, parent: Option<Pid>) -> Result<Option<Control>, BootstrapError> {
        match self.control.presence() {
            Presence::Inherited => self.control.take().map(Control::from_socket).map(Some),
            Presence::Taken => Err(BootstrapError::Taken),
            Presence::Absent if parent.map(|pid| pid.as_raw_nonzero().get()) == Some(self.launcher) => {
                Err(BootstrapError::Closed { fd: self.control.fd, variable: CONTROL, value: self.control_text.clone() })
            }
            Presence::Absent => Ok(None), // a grandchild: the variables were its parent's
        }
    }
}

#[cfg(test)]
mod tests;
