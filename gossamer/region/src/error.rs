//! Why there is no region.

use rustix::io::Errno;

/// Why a region, or a part of one, could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program has several machines and was not started for regions.
    #[error("this program has no keepers: start it with `gossamer_region::main` in the place of `gossamer::main`")]
    NoKeepers,
    /// The kernel is built without userfaultfd, or the container hides it.
    #[error(
        "machine {machine} has no userfaultfd, which pages travel by: run on Linux 5.19 or later with \
         CONFIG_USERFAULTFD, and in a container with a seccomp profile that lets it through"
    )]
    NoUserfaultfd {
        /// The machine.
        machine: u16,
    },
    /// The process may not use it.
    #[error(
        "machine {machine} may not use userfaultfd, which pages travel by: run it as root, or give its user \
         /dev/userfaultfd (`chown`), or set `sysctl vm.unprivileged_userfaultfd=1`"
    )]
    NotAllowed {
        /// The machine.
        machine: u16,
    },
    /// The kernel has an older one.
    #[error("the userfaultfd of machine {machine} lacks what regions need: run on Linux 5.19 or later")]
    OldKernel {
        /// The machine.
        machine: u16,
    },
    /// The pages of this processor have another size.
    #[error("pages of machine {machine} have {bytes} bytes: regions are made of pages of 4096")]
    PageSize {
        /// The machine.
        machine: u16,
        /// Bytes of a page.
        bytes: usize,
    },
    /// A machine cannot have the region where the others have it.
    #[error(
        "no address is free for {bytes} bytes on all machines: machine {machine} has something at {address:#x}, the \
         last of {tried} that were tried"
    )]
    AddressTaken {
        /// Bytes that were asked for.
        bytes: usize,
        /// The machine that has something there.
        machine: u16,
        /// The last address that was tried.
        address: usize,
        /// How many were tried.
        tried: usize,
    },
    /// So long a region there cannot be.
    #[error(
        "a region has between 1 and {most} bytes, all of a program together: {bytes} were asked for, {taken} are taken"
    )]
    Bytes {
        /// Bytes that were asked for.
        bytes: usize,
        /// Bytes that other regions have.
        taken: usize,
        /// Bytes that there can be.
        most: usize,
    },
    /// Too many machines, or a home that there is not.
    #[error(
        "a region spans up to 64 machines, and has its homes among them: there are {machines}, and the homes are \
         {homes}"
    )]
    Machines {
        /// Machines of the program.
        machines: usize,
        /// Where the homes were to be.
        homes: String,
    },
    /// There is no room for a span.
    #[error("the region has {left} of {bytes} bytes left, and a span begins on a page: {wanted} bytes were asked for")]
    Room {
        /// Bytes that are left.
        left: usize,
        /// Bytes of the region.
        bytes: usize,
        /// Bytes that were asked for.
        wanted: usize,
    },
    /// The system says no.
    #[error("machine {machine} gets no region from the system: {doing}: {why}")]
    System {
        /// The machine.
        machine: u16,
        /// What was tried.
        doing: String,
        /// What the system said.
        why: String,
    },
}

/// What a machine could not do, as it travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    NoUserfaultfd,
    NotAllowed,
    OldKernel,
    PageSize(usize),
    Taken,
    System(Doing, i32),
}

/// Calls of the system.
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
        Failure::System(doing, errno.raw_os_error())
    }

    /// With the machine; `Taken` is for the caller, who knows what was tried.
    pub(crate) fn of(self, machine: u16, bytes: usize, address: usize, tried: usize) -> Error {
        match self {
            Failure::NoUserfaultfd => Error::NoUserfaultfd { machine },
            Failure::NotAllowed => Error::NotAllowed { machine },
            Failure::OldKernel => Error::OldKernel { machine },
            Failure::PageSize(bytes) => Error::PageSize { machine, bytes },
            Failure::Taken => Error::AddressTaken { bytes, machine, address, tried },
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
                Error::System { machine, doing: doing.to_owned(), why: Errno::from_raw_os_error(errno).to_string() }
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
    fn taken_address_names_machine_bytes_and_place() {
        // Two pages whose addresses the process uses: those of a value on the heap.
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
