//! Handover from the launcher to the machines: memory files, made before the machines start and inherited by
//! them as descriptors.
//!
//! Here: creating the files, passing their descriptors to a child, taking ownership there. Not here: mapping
//! them (`mod.rs`), and the content of the control file (`control.rs`).
//!
//! No file has a name in a file system (memfd), so nothing is left behind after any kind of death: the kernel
//! frees the memory with the last process that holds it.
//!
//! Descriptors are close-on-exec everywhere: in the launcher (so that no other child gets them), and in the
//! machine once it owns them (so that its own children do not). The one exception is [`Segments::hand_to`],
//! which clears the flag in the forked child, between `fork` and `exec`, where no other thread can fork.

#![allow(unsafe_code)]

use super::control;
use crate::error::Error;
use crate::ids::MachineId;
use crate::share;
use rustix::fs::{MemfdFlags, fcntl_get_seals, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Environment variable that tells a machine its number and its descriptors, as in `1:3,4,5`.
pub const BOOTSTRAP_VARIABLE: &str = "COMM_SHM";

/// Memory files of one rack program: the control file, one for each machine, then the one for all their shares.
#[derive(Debug, Clone)]
pub struct Segments {
    fds: Arc<[OwnedFd]>,
}

/// Handover that a machine needs to open its fabric.
#[derive(Debug)]
pub struct Bootstrap {
    /// This machine, of those that the files were made for.
    pub machine: MachineId,
    /// The control file, then the memory file of each machine in order, then that for all their shares:
    /// `machines + 2` descriptors.
    pub fds: Vec<OwnedFd>,
}

/// Makes the memory files for a program of `machines` machines. They are empty until their machines size them.
///
/// # Errors
/// [`Error::Bootstrap`] for no machines, or more than fit the control file; [`Error::System`].
pub fn create(machines: u16) -> Result<Segments, Error> {
    let mut fds = vec![control::create(machines)?];
    for machine in 0..machines {
        fds.push(
            memfd_create(format!("gossamer-{machine}"), MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .map_err(Error::system(format!("creating the memory file of machine {machine}")))?,
        );
    }
    fds.push(share::create_file()?);
    Ok(Segments { fds: fds.into() })
}

impl Segments {
    /// Returns the number of machines they are for.
    pub fn machines(&self) -> u16 {
        u16::try_from(self.fds.len() - 2).expect("made for a number of machines that is a u16")
    }

    /// Makes the child that `command` will spawn take part as `machine`: the child reads the handover with
    /// [`Bootstrap::from_env`]. Each machine is started once.
    pub fn hand_to(&self, command: &mut Command, machine: MachineId) {
        let numbers: Vec<String> = self.fds.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
        command.env(BOOTSTRAP_VARIABLE, format!("{}:{}", machine.0, numbers.join(",")));
        let fds = Arc::clone(&self.fds);
        // SAFETY: between fork and exec the closure only makes system calls; it allocates nothing and takes
        // no lock. The `Arc` keeps the descriptors open for as long as the command may spawn.
        unsafe {
            command.pre_exec(move || {
                for fd in fds.iter() {
                    fcntl_setfd(fd, FdFlags::empty())?;
                }
                Ok(())
            });
        }
    }

    /// Returns the handover that `machine` would find as a child: for several machines in one process, as in tests.
    ///
    /// # Errors
    /// [`Error::System`] when there are no more descriptors.
    pub fn bootstrap(&self, machine: MachineId) -> Result<Bootstrap, Error> {
        let fds = self.fds.iter().map(OwnedFd::try_clone).collect::<Result<_, _>>();
        Ok(Bootstrap { machine, fds: fds.map_err(Error::system("duplicating memory files"))? })
    }
}

impl Bootstrap {
    /// Returns the number of machines that have memory files.
    pub fn members(&self) -> usize {
        self.fds.len().saturating_sub(2)
    }

    /// Returns the control file, which must be there.
    pub(super) fn control(&self) -> Result<&OwnedFd, Error> {
        self.fds.first().ok_or_else(|| Error::bootstrap("no memory files were handed over"))
    }

    /// Returns the launcher's handover, or `None` when this process was not started as a machine. Takes
    /// ownership of the inherited descriptors: call it once, early in `main`, before this process opens or
    /// closes any of its own.
    ///
    /// # Errors
    /// [`Error::Bootstrap`] when the variable is malformed, or its descriptors are not memory files, or it
    /// was taken before.
    pub fn from_env() -> Result<Option<Bootstrap>, Error> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let Some(text) = std::env::var_os(BOOTSTRAP_VARIABLE) else {
            return Ok(None);
        };
        let text = text.to_str().ok_or_else(|| Error::bootstrap(format!("{BOOTSTRAP_VARIABLE} is not text")))?;
        let (machine, numbers) = parse(text)?;
        numbers.iter().try_for_each(|number| check_is_memory_file(*number))?;
        // Relaxed: the flag orders nothing, it only admits one caller.
        if TAKEN.swap(true, Ordering::Relaxed) {
            return Err(Error::bootstrap("the memory files were taken before"));
        }
        let fds = numbers.into_iter().map(take).collect::<Result<_, _>>()?;
        Ok(Some(Bootstrap { machine, fds }))
    }
}

/// Reads `machine:fd,fd,…`.
fn parse(text: &str) -> Result<(MachineId, Vec<RawFd>), Error> {
    let nonsense = || Error::bootstrap(format!("{BOOTSTRAP_VARIABLE} says {text:?}, not machine:fd,fd,…"));
    let (machine, list) = text.split_once(':').ok_or_else(nonsense)?;
    let machine = MachineId(machine.parse().map_err(|_| nonsense())?);
    let numbers: Vec<RawFd> = list.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|_| nonsense())?;
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    sorted.dedup();
    // 0, 1 and 2 belong to the standard streams.
    if sorted.len() != numbers.len() || sorted.first().is_some_and(|first| *first < 3) {
        return Err(nonsense());
    }
    Ok((machine, numbers))
}

/// Checks that a descriptor is a memory file. Only memory files have seals, so this finds numbers that are
/// closed, or that refer to another kind of file by now.
fn check_is_memory_file(number: RawFd) -> Result<(), Error> {
    // SAFETY: `number` is not -1 (`parse`); if it is not open, the call on it fails, which is the check.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_get_seals(fd).map(drop).map_err(|error| {
        Error::bootstrap(format!("descriptor {number} of {BOOTSTRAP_VARIABLE} is not a memory file here ({error})"))
    })
}

/// Takes ownership of an inherited descriptor.
fn take(number: RawFd) -> Result<OwnedFd, Error> {
    // SAFETY: the launcher left this descriptor open for this process alone (`hand_to`), it is open
    // (`check_is_memory_file`), its number is not twice in the list (`parse`) and the list is taken once
    // (`TAKEN`): it has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl_setfd(&fd, FdFlags::CLOEXEC).map_err(Error::system("marking a memory file close-on-exec"))?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_launcher_says_is_checked() {
        assert_eq!(parse("1:3,4,5").unwrap(), (MachineId(1), vec![3, 4, 5]));
        for text in ["", "1", "1:", ":3", "1:3,,4", "1:3,3", "70000:3", "1:2,3", "1:-1,4", "x:3", "1:3;4"] {
            assert!(matches!(parse(text), Err(Error::Bootstrap { .. })), "{text:?}");
        }
    }

    #[test]
    fn a_descriptor_that_is_something_else_is_refused() {
        let other = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(check_is_memory_file(other.as_raw_fd()), Err(Error::Bootstrap { .. })));
        let segments = create(1).unwrap();
        assert!(segments.fds.iter().all(|fd| check_is_memory_file(fd.as_raw_fd()).is_ok()));
    }
}
