//! Reasons why a program cannot start on this machine. Errors of requests are [`crate::Error`].

use std::ffi::OsString;

use crate::bootstrap::{BootstrapError, HostAddress, Plan, PortRange};
use crate::rendezvous::RendezvousError;

/// Error between the start of the process and that of `gsm_main`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    #[error("the machines cannot be connected: {source}{place}")]
    Fabric {
        source: comm::Error,
        /// Host of the machine concerned, where there are several hosts.
        place: String,
    },
    #[error("the address {address} of host {host} cannot be used here: {source}")]
    Interface { host: String, address: HostAddress, source: std::io::Error },
    #[error(
        "machine {machine} on {host} cannot listen: all ports of {ports} are taken there; each machine takes one while \
         it runs, and two where it has an RDMA device: widen `ports` in rack.yaml, on all hosts, or GOSSAMER_PORTS, or \
         end other programs"
    )]
    NoPort { machine: u16, host: String, ports: PortRange },
    #[error(
        "no message came from {missing} within {waited_ms} ms: see whether it was started, what it printed, and \
         whether it calls gossamer::main"
    )]
    NoEndpoint { missing: String, waited_ms: u64 },
    #[error("the endpoint of machine {machine} is invalid: {what}; put the same file on every machine")]
    BadEndpoint { machine: u16, what: &'static str },
    #[error("the plan gives host {host} the cores {named}, but this process may use {allowed} only: correct `cores`")]
    Cores { host: String, named: String, allowed: String },
    #[error("the program's own headers cannot be read: {0}")]
    Image(std::io::Error),
    #[error(
        "machine {machine} on {host} runs another program than machine {own}: {image} there, {own_image} here (build \
         id/layout); put the same file on every machine"
    )]
    OtherProgram { own: u16, own_image: String, machine: u16, host: String, image: String },
    #[error("machine {machine} runs a program with another version of gossamer; put the same file on every machine")]
    OtherVersion { machine: u16 },
    #[error(
        "machine {machine} takes itself for {theirs}, and was taken for {expected}: every machine must call \
         `gossamer::main` with the same number of threads, and have the same GOSSAMER_MACHINE_WAYS and \
         GOSSAMER_DIRECT_WAYS"
    )]
    OtherLayout { machine: u16, theirs: String, expected: String },
    #[error("machine {machine} sent no greeting: {cause}; see what it printed")]
    NoHello { machine: u16, cause: String, is_lost: bool },
    #[error("{threads} workers on one machine, of {machines}: give each at most 65,533")]
    Threads { threads: usize, machines: usize },
    #[error("the workers cannot be started: {0}")]
    Pool(#[from] trust::BuildError),
    #[error(
        "the program is to outlive machines (`survives`), which it cannot with {what}: run it without `survives`{cure}"
    )]
    Survives { what: &'static str, cure: &'static str },
    #[error("a worker ended while it was connected to the others: {0}")]
    Worker(String),
    #[error("{0} threads used trusts before `gossamer::main`: call it first")]
    TooLate(usize),
    #[error("the launcher cannot be reached: {0}")]
    Control(#[from] crate::control::ControlError),
    #[error("the program was to run on the rack of {} (GOSSAMER_RACK), but {problem}", rack.display())]
    NoLauncher { rack: OsString, problem: String },
    #[error("a thread cannot be started: {0}")]
    Thread(std::io::Error),
}

impl StartError {
    /// Returns the machine whose loss alone is the error: the cause of that machine's end, which the launcher will
    /// hear, is the better one.
    pub(crate) fn lost(&self) -> Option<u16> {
        match self {
            StartError::NoHello { machine, is_lost: true, .. } => Some(*machine),
            // It has sent its endpoint, so it was up and listening.
            StartError::Fabric {
                source: comm::Error::PeerLost { machine } | comm::Error::Unreachable { machine, .. },
                ..
            } => Some(machine.0),
            _ => None,
        }
    }

    /// Wraps an error of the fabric, with the host of the machine concerned.
    pub(crate) fn fabric(source: comm::Error, plan: &Plan) -> StartError {
        let machine = match &source {
            comm::Error::PeerMissing { machine, .. }
            | comm::Error::PeerLost { machine }
            | comm::Error::Unreachable { machine, .. }
            | comm::Error::Crowded { machine, .. }
            | comm::Error::NotLetIn { machine, .. } => Some(machine.0),
            _ => None,
        };
        let known = machine.filter(|machine| plan.hosts.len() > 1 && usize::from(*machine) < plan.machines.len());
        let place = known.map_or(String::new(), |machine| format!(" ({})", plan.name_of(machine)));
        StartError::Fabric { source, place }
    }
}

impl From<comm::Error> for StartError {
    fn from(source: comm::Error) -> StartError {
        StartError::Fabric { source, place: String::new() }
    }
}
