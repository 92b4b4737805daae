//! Status of a host: the answer to `Request::Status`, as it travels and as `--json` shows it.

use serde::{Deserialize, Serialize};

/// Status of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// Process id of the daemon.
    pub pid: u32,
    /// User of the programs.
    pub user: String,
    /// Time since the daemon's start, in seconds.
    pub uptime_seconds: u64,
    /// Programs that run there.
    pub programs: Vec<ProgramStatus>,
    /// Number of programs that are about to run there.
    pub coming: u32,
    /// User and host that drained it; `None`: it takes programs.
    pub drained_by: Option<String>,
    /// The other hosts, as this one sees them.
    pub neighbours: Vec<Neighbour>,
    /// Each fabric, and whether it can be used there: a device's name, or why not.
    pub fabrics: Vec<(String, String)>,
    /// Received programs in the cache, in bytes.
    pub cache_bytes: u64,
    /// Problems of this host, each with its cure.
    pub troubles: Vec<String>,
}

/// A program, on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramStatus {
    /// Number of the program.
    pub id: String,
    /// Its path on the launcher's host.
    pub path: String,
    /// User and host that started it.
    pub owner: String,
    /// Time since its start, in seconds.
    pub seconds: u64,
    /// Its machines on this host.
    pub machines: Vec<MachineStatus>,
}

/// A machine of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineStatus {
    /// Number in the program.
    pub machine: u16,
    /// Process id.
    pub pid: u32,
    /// Memory of its slots, in bytes, as it computed it from the layout of the program; `None` until it is ready.
    pub slots_bytes: Option<u64>,
    /// Memory in use, in bytes.
    pub resident_bytes: u64,
    /// Resident memory that is shared with other processes of the host: over `shm`, the touched slots. Slots that `tcp`
    /// or `verbs` writes are not distinguished.
    pub shared_bytes: u64,
}

/// Another host, as a daemon sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Its name.
    pub name: String,
    /// Empty when it is up; else the cause.
    pub trouble: String,
}

/// Path from a host to another at a port of those of programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// Name of the other host.
    pub to: String,
    /// Address with the port that was tried last; empty: none was.
    pub address: String,
    /// Empty when all is well; else the problem and the cure.
    pub trouble: String,
}
