//! Errors of making regions.

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::page_server::say;

/// Reasons why a region, or a part of one, could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program has several machines and was not started with page servers.
    #[error("this program has no page servers: start it with `gossamer_region::main` in the place of `gossamer::main`")]
    NoPageServers,
    /// The kernel is built without userfaultfd, or the container hides it.
    #[error(
        "machine {machine} has no userfaultfd, which pages travel by: run on Linux 5.19 or later with \
         CONFIG_USERFAULTFD, and in a container with a seccomp profile that lets it through"
    )]
    NoUserfaultfd {
        /// The machine.
        machine: u16,
    },
    /// The process may not use userfaultfd.
    #[error(
        "machine {machine} may not use userfaultfd, which pages travel by: run it as root, or give its user \
         /dev/userfaultfd (`chown`), or set `sysctl vm.unprivileged_userfaultfd=1`"
    )]
    NotAllowed {
        /// The machine.
        machine: u16,
    },
    /// The kernel's userfaultfd lacks features that regions need.
    #[error("the userfaultfd of machine {machine} lacks what regions need: run on Linux 5.19 or later")]
    OldKernel {
        /// The machine.
        machine: u16,
    },
    /// The page size of this machine is not 4096.
    #[error("pages of machine {machine} have {bytes} bytes: regions are made of pages of 4096")]
    PageSize {
        /// The machine.
        machine: u16,
        /// Bytes of a page.
        bytes: usize,
    },
    /// No address range is free on all machines.
    #[error(
        "no address is free for {bytes} bytes on all machines: machine {machine} has something at {address:#x}, the \
         last of {tried} that were tried"
    )]
    AddressTaken {
        /// Bytes requested.
        bytes: usize,
        /// The machine where the last tried address is in use.
        machine: u16,
        /// The last address that was tried.
        address: usize,
        /// Number of addresses tried.
        tried: usize,
    },
    /// The region would be empty, or larger than the program may have.
    #[error(
        "a region has between 1 and {most} bytes, all of a program together: {bytes} were asked for, {taken} are taken"
    )]
    Bytes {
        /// Bytes requested.
        bytes: usize,
        /// Bytes of other regions.
        taken: usize,
        /// Upper limit for all regions of a program together.
        most: usize,
    },
    /// Too many machines, or a home that does not exist.
    #[error(
        "a region spans up to 64 machines, and has its homes among them: there are {machines}, and the homes are \
         {homes}"
    )]
    Machines {
        /// Machines of the program.
        machines: usize,
        /// The homes requested.
        homes: String,
    },
    /// The region has no room for a span.
    #[error("the region has {left} of {bytes} bytes left, and a span begins on a page: {wanted} bytes were asked for")]
    Room {
        /// Bytes left.
        left: usize,
        /// Bytes of the region.
        bytes: usize,
        /// Bytes requested.
        wanted: usize,
    },
    /// The process may have too few addresses.
    #[error(
        "machine {machine} may have {limit} bytes of addresses (RLIMIT_AS), and a region takes more, most of which are \
         never memory: start the program without that limit (`ulimit -v unlimited`)"
    )]
    FewAddresses {
        /// The machine.
        machine: u16,
        /// Its limit, in bytes.
        limit: u64,
    },
    /// A system call failed.
    #[error("machine {machine} gets no region from the system: {doing}: {why}")]
    System {
        /// The machine.
        machine: u16,
        /// The attempted operation.
        doing: String,
        /// The system's error message.
        why: String,
    },
}

/// Failure on one machine, in the form in which it travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    NoUserfaultfd,
    NotAllowed,
    OldKernel,
    PageSize(usize),
    Taken,
    FewAddresses(u64),
    /// With the system's error, or 0 where only a message on standard error has it.
    System(Doing, i32),
}

/// System calls that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    Open,
    Handshake,
    Thread,
    Share,
    Map,
    Advise,
    Register,
}

impl Failure {
    pub(crate) fn system(doing: Doing, errno: Errno) -> Failure {
        Failure::limited(doing, errno.raw_os_error(), getrlimit(Resource::As).current)
    }

    /// Failure of a system call in a process with this limit of addresses: a mapping that finds no memory has found no
    /// addresses.
    fn limited(doing: Doing, errno: i32, limit: Option<u64>) -> Failure {
        match limit {
            Some(limit) if doing == Doing::Map && errno == Errno::NOMEM.raw_os_error() => Failure::FewAddresses(limit),
            _ => Failure::System(doing, errno),
        }
    }

    /// Tells on standard error why the share that pages lie in cannot be opened, unless the returned failure says it.
    pub(crate) fn tell_share(error: &comm::Error) -> Failure {
        let failure = Failure::of_share(error, getrlimit(Resource::As).current);
        if matches!(failure, Failure::System(..)) {
            say(format_args!("gossamer: the share of regions cannot be opened: {error}"));
        }
        failure
    }

    fn of_share(error: &comm::Error, limit: Option<u64>) -> Failure {
        let errno = match error {
            comm::Error::System { source, .. } => source.raw_os_error().unwrap_or(0),
            _ => 0,
        };
        match Failure::limited(Doing::Map, errno, limit) {
            Failure::System(..) => Failure::System(Doing::Share, 0),
            few => few,
        }
    }

    /// Converts to an [`Error`] of this machine; only the caller knows the numbers of a `Taken`.
    pub(crate) fn of(self, machine: u16, bytes: usize, address: usize, tried: usize) -> Error {
        match self {
            Failure::NoUserfaultfd => Error::NoUserfaultfd { machine },
            Failure::NotAllowed => Error::NotAllowed { machine },
            Failure::OldKernel => Error::OldKernel { machine },
            Failure::PageSize(bytes) => Error::PageSize { machine, bytes },
            Failure::Taken => Error::AddressTaken { bytes, machine, address, tried },
            Failure::FewAddresses(limit) => Error::FewAddresses { machine, limit },
            Failure::System(doing, errno) => {
                let doing = match doing {
                    Doing::Open => "opening userfaultfd",
                    Doing::Handshake => "UFFDIO_API",
                    Doing::Thread => "starting the thread that reads faults",
                    Doing::Share => "opening the share that pages lie in",
                    Doing::Map => "mapping the region",
                    Doing::Advise => "keeping the region from forked processes",
                    Doing::Register => "UFFDIO_REGISTER",
                };
                let why = match errno {
                    0 => "its standard error has more".to_owned(),
                    errno => Errno::from_raw_os_error(errno).to_string(),
                };
                Error::System { machine, doing: doing.to_owned(), why }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Reserved;

    fn text(failure: Failure) -> String {
        failure.of(3, 8192, 0x7000_0000_0000, 24).to_string()
    }

    #[test]
    fn not_allowed_names_machine_and_cures() {
        let text = text(Failure::NotAllowed);
        for part in ["machine 3 ", "root", "/dev/userfaultfd", "vm.unprivileged_userfaultfd=1"] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }

    #[test]
    fn old_kernel_names_machine_and_version() {
        let text = text(Failure::OldKernel);
        for part in ["machine 3 ", "Linux 5.19 or later"] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }

    #[test]
    fn few_addresses_name_machine_limit_and_cure() {
        let text = text(Failure::FewAddresses(1 << 33));
        for part in ["machine 3 ", "8589934592 bytes", "RLIMIT_AS", "ulimit -v unlimited"] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }

    #[test]
    fn few_addresses_are_those_that_a_mapping_in_a_limited_process_lacks() {
        let (limit, few) = (Some(1 << 33), Failure::FewAddresses(1 << 33));
        let system = |errno: Errno| comm::Error::System { doing: "mapping".to_owned(), source: errno.into() };
        let other = comm::Error::NoSuchShare { machine: comm::MachineId(1), share: gossamer::link::REGION };
        assert_eq!(Failure::of_share(&system(Errno::NOMEM), limit), few);
        for (error, limit) in [(&system(Errno::NOMEM), None), (&system(Errno::MFILE), limit), (&other, limit)] {
            assert_eq!(Failure::of_share(error, limit), Failure::System(Doing::Share, 0), "{error}");
        }
        let no_memory = Errno::NOMEM.raw_os_error();
        assert_eq!(Failure::limited(Doing::Map, no_memory, limit), few);
        for (doing, limit) in [(Doing::Map, None), (Doing::Register, limit), (Doing::Advise, limit)] {
            assert_eq!(Failure::limited(doing, no_memory, limit), Failure::System(doing, no_memory));
        }
    }

    #[test]
    fn a_share_that_is_not_there_has_a_message() {
        let text = text(Failure::System(Doing::Share, 0));
        assert!(text.contains("opening the share that pages lie in: its standard error has more"), "{text:?}");
    }

    #[test]
    fn taken_address_names_machine_bytes_and_place() {
        // Two pages in use: those of a value on the heap.
        let value = vec![1_u8; 4 * 4096];
        let start = (value.as_ptr() as usize).next_multiple_of(4096);
        let failure = Reserved::at(start..start + 8192).expect_err("the heap lies there");
        assert_eq!(failure, Failure::Taken);
        let text = failure.of(3, 8192, start, 24).to_string();
        for part in ["machine 3 ", "8192 bytes", &format!("{start:#x}"), "24 that were tried"] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        assert!(value.iter().all(|&byte| byte == 1));
    }
}
