//! Plan of a program: the hosts on which its machines run, their workers, and the fabric. It is the same for all
//! machines of the program and holds no secret. The launcher makes it; `bootstrap.rs` has its way to a machine.
//!
//! Invariant: a plan that passed [`Plan::check`] has at least one machine, each of them on a host of the plan; both
//! sides check.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{BootstrapError, HeapBytes, HostAddress, PortRange};

/// Most machines that a program may have.
pub const MACHINES_MAX: usize = 1024;
/// Default time in which the machines of a program must come up: 30 s.
pub const START_TIMEOUT_MS: u64 = 30_000;

/// Default time after which a silent machine of another host counts as dead: 3 s.
pub const SILENCE_MS: u64 = 3_000;

/// Choice of the transport between machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FabricChoice {
    /// The best for each pair of machines: shared memory on one host, else `verbs` if both hosts have it, else `tcp`.
    #[default]
    Auto,
    /// Shared memory: machines of one host only.
    Shm,
    /// TCP, also between machines of one host.
    Tcp,
    /// RDMA, also between machines of one host.
    Verbs,
}

impl FabricChoice {
    /// All choices, in the order of the documentation.
    pub const ALL: [FabricChoice; 4] = [FabricChoice::Auto, FabricChoice::Shm, FabricChoice::Tcp, FabricChoice::Verbs];

    /// Returns the name used in `rack.yaml` and on command lines.
    ///
    /// ```
    /// use gossamer::bootstrap::FabricChoice;
    /// assert_eq!(FabricChoice::Tcp.name(), "tcp");
    /// assert_eq!("tcp".parse(), Ok(FabricChoice::Tcp));
    /// assert!("ib".parse::<FabricChoice>().is_err());
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FabricChoice::Auto => "auto",
            FabricChoice::Shm => "shm",
            FabricChoice::Tcp => "tcp",
            FabricChoice::Verbs => "verbs",
        }
    }
}

impl fmt::Display for FabricChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for FabricChoice {
    type Err = String;
    fn from_str(text: &str) -> Result<FabricChoice, String> {
        let found = FabricChoice::ALL.into_iter().find(|choice| choice.name() == text);
        found.ok_or_else(|| format!("there is no fabric {text:?}: it is one of auto, shm, tcp, verbs"))
    }
}

/// RDMA device of a host, and its settings. The fabric chooses those that are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerbsSettings {
    /// Name of the device, such as `mlx5_0`.
    pub device: Option<String>,
    /// Its port, from 1.
    pub port: Option<u8>,
    /// Index in the port's table of addresses.
    pub gid_index: Option<u8>,
    /// Largest packet, in bytes.
    pub mtu_bytes: Option<u32>,
}

/// Host of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPlan {
    /// Name in messages.
    pub name: String,
    /// Address on which its machines listen, and where those of other hosts reach them.
    pub bind: HostAddress,
    /// The cores that its machines may use; `None`: those that they are started with.
    pub cores: Option<Vec<u16>>,
    /// RDMA settings for the fabrics `verbs` and `auto`.
    pub verbs: Option<VerbsSettings>,
    /// Whether other hosts reach this one by TCP with the fabric `auto`, though it may have an RDMA device.
    pub is_tcp_only: bool,
    /// Limit of its machines' heaps together (`gossamer-heap`); `None`: half of its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heap: Option<HeapBytes>,
    /// Ports at which its machines listen; `None`: any that are free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<PortRange>,
}

impl HostPlan {
    /// Returns a host at this address, with nothing else said about it.
    ///
    /// ```
    /// let host = gossamer::bootstrap::HostPlan::new("alpha".into(), "192.0.2.1".parse().unwrap());
    /// assert_eq!((host.name.as_str(), host.cores), ("alpha", None));
    /// ```
    #[must_use]
    pub fn new(name: String, bind: HostAddress) -> HostPlan {
        HostPlan { name, bind, cores: None, verbs: None, is_tcp_only: false, heap: None, ports: None }
    }
}

/// Machine of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachinePlan {
    /// Index of its host in [`Plan::hosts`].
    pub host: u16,
    /// Its workers; `None`: its share of the rest of the total.
    pub workers: Option<u16>,
}

/// Plan of a program.
///
/// ```
/// use gossamer::bootstrap::{FabricChoice, Plan};
/// let plan = Plan::local(4, FabricChoice::Shm, None);
/// assert_eq!(plan.machines.len(), 4);
/// assert_eq!(plan.memory_group(2), [0, 1, 2, 3], "machines of one host share memory");
/// plan.check().unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Transport between machines.
    pub fabric: FabricChoice,
    /// Workers of all machines together; `None`: the program decides, or else the cores of the hosts do. The given
    /// workers of a machine count in it; the other machines share the rest, at least one each.
    pub threads: Option<u32>,
    /// Time in which the machines must find one another, in milliseconds.
    pub start_timeout_ms: u64,
    /// Time after which a silent machine that is reached over a network counts as dead, in milliseconds.
    pub silence_ms: u64,
    /// Each machine may use the cores that it is started with, and shares none of them with another machine of its
    /// host.
    #[serde(default)]
    pub has_own_cores: bool,
    /// The hosts that machines run on.
    pub hosts: Vec<HostPlan>,
    /// The machines, by number.
    pub machines: Vec<MachinePlan>,
}

impl Plan {
    /// Returns a plan of so many machines on this host, over the loopback address.
    ///
    /// Example: at [`Plan`].
    #[must_use]
    pub fn local(machines: u16, fabric: FabricChoice, threads: Option<u32>) -> Plan {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host = HostPlan::new(name, IpAddr::from(Ipv4Addr::LOCALHOST).into());
        Plan {
            fabric,
            threads,
            start_timeout_ms: START_TIMEOUT_MS,
            silence_ms: SILENCE_MS,
            has_own_cores: false,
            hosts: vec![host],
            machines: vec![MachinePlan { host: 0, workers: None }; usize::from(machines)],
        }
    }

    /// Returns the host of a machine.
    ///
    /// # Panics
    /// If the plan has no such machine.
    ///
    /// ```
    /// use gossamer::bootstrap::{FabricChoice, MachinePlan, Plan};
    /// let mut plan = Plan::local(2, FabricChoice::Auto, None);
    /// // One more host, with one more machine.
    /// plan.hosts.push(gossamer::bootstrap::HostPlan { name: "other".into(), ..plan.hosts[0].clone() });
    /// plan.machines.push(MachinePlan { host: 1, workers: Some(4) });
    /// assert_eq!(plan.host_of(2).name, "other");
    /// assert_eq!(plan.machines_of(0).collect::<Vec<_>>(), [0, 1]);
    /// assert!(plan.memory_group(2).is_empty()); // alone on its host
    /// ```
    #[must_use]
    pub fn host_of(&self, machine: u16) -> &HostPlan {
        &self.hosts[usize::from(self.machines[usize::from(machine)].host)]
    }

    /// Returns a machine's name in messages: "machine 3 on beta".
    pub(crate) fn name_of(&self, machine: u16) -> String {
        match self.machines.get(usize::from(machine)) {
            Some(_) => format!("machine {machine} on {}", self.host_of(machine).name),
            None => format!("machine {machine}"),
        }
    }

    /// Iterates over the machines of a host, in rising order.
    ///
    /// Example: at [`host_of`](Self::host_of).
    pub fn machines_of(&self, host: u16) -> impl Iterator<Item = u16> {
        (0u16..).zip(&self.machines).filter(move |(_, plan)| plan.host == host).map(|(machine, _)| machine)
    }

    /// Returns the machines that share memory with this one, itself included, in rising order: the members of one
    /// [`comm::shm::create`], which the host's launcher makes once and hands to each of them. Empty if `machine` uses
    /// no shared memory. A program of one machine needs no network, with any fabric.
    ///
    /// # Panics
    /// If the plan has no such machine.
    ///
    /// Examples: at [`Plan`] and at [`host_of`](Self::host_of).
    #[must_use]
    pub fn memory_group(&self, machine: u16) -> Vec<u16> {
        let host: Vec<u16> = self.machines_of(self.machines[usize::from(machine)].host).collect();
        let everyone = host.len() == self.machines.len();
        match self.fabric {
            _ if self.machines.len() == 1 => host,
            FabricChoice::Shm => host,
            FabricChoice::Auto if everyone || host.len() > 1 => host,
            FabricChoice::Auto | FabricChoice::Tcp | FabricChoice::Verbs => Vec::new(),
        }
    }

    /// Checks whether the plan makes sense.
    ///
    /// # Errors
    /// [`BootstrapError::Plan`] with the mistake and the cure.
    ///
    /// ```
    /// use gossamer::bootstrap::{FabricChoice, Plan};
    /// let plan = Plan::local(4, FabricChoice::Shm, Some(3));
    /// let error = plan.check().unwrap_err();
    /// assert!(error.to_string().ends_with("3 workers in all are not enough: the machines need 4"));
    /// ```
    pub fn check(&self) -> Result<(), BootstrapError> {
        let wrong = |cause: String| Err(BootstrapError::Plan { cause });
        if self.machines.is_empty() || self.machines.len() > MACHINES_MAX {
            return wrong(format!("a program has 1 to {MACHINES_MAX} machines, not {}", self.machines.len()));
        }
        for (index, machine) in self.machines.iter().enumerate() {
            if usize::from(machine.host) >= self.hosts.len() {
                let hosts = self.hosts.len();
                return wrong(format!("machine {index} is on host {}, but there are {hosts} hosts", machine.host));
            }
            if machine.workers == Some(0) || machine.workers == Some(u16::MAX) {
                return wrong(format!("machine {index} has 0 or 65535 workers; give it 1 to 65534"));
            }
        }
        if self.start_timeout_ms == 0 || self.silence_ms == 0 {
            return wrong("a time of 0 ms for the start or for silence ends every program".to_owned());
        }
        let needed: usize = self.machines.iter().map(|machine| usize::from(machine.workers.unwrap_or(1))).sum();
        if let Some(threads) = self.threads.filter(|threads| (*threads as usize) < needed) {
            return wrong(format!("{threads} workers in all are not enough: the machines need {needed}"));
        }
        if self.fabric == FabricChoice::Shm && self.machines.iter().any(|machine| machine.host != self.machines[0].host)
        {
            return wrong("the fabric shm joins machines of one host only: use auto or tcp for several".to_owned());
        }
        if let Some(host) = self.hosts.iter().find(|host| host.cores.as_ref().is_some_and(Vec::is_empty)) {
            return wrong(format!("host {} has an empty list of cores", host.name));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Machines on hosts of these numbers.
    fn plan(fabric: FabricChoice, hosts: &[u16]) -> Plan {
        let mut plan = Plan::local(1, fabric, None);
        plan.hosts = vec![plan.hosts[0].clone(); usize::from(hosts.iter().max().unwrap() + 1)];
        plan.machines = hosts.iter().map(|&host| MachinePlan { host, workers: None }).collect();
        plan
    }

    #[test]
    fn memory_is_shared_where_the_fabric_says_so() {
        use FabricChoice::*;
        assert_eq!(plan(Shm, &[0, 0]).memory_group(1), [0, 1]);
        assert_eq!(plan(Auto, &[0, 1, 0, 2]).memory_group(0), [0, 2]);
        assert_eq!(plan(Auto, &[0, 1, 0, 2]).memory_group(2), [0, 2]);
        assert_eq!(plan(Auto, &[0, 1, 0, 2]).memory_group(3), [0; 0]);
        assert_eq!(plan(Tcp, &[0, 0]).memory_group(0), [0; 0]);
        for fabric in FabricChoice::ALL {
            assert_eq!(plan(fabric, &[0]).memory_group(0), [0], "alone");
            assert_eq!(fabric.name().parse(), Ok(fabric));
        }
        assert!("ib".parse::<FabricChoice>().unwrap_err().contains("one of auto, shm, tcp, verbs"));
    }

    #[test]
    fn impossible_plans_are_refused_with_the_cause() {
        let good = plan(FabricChoice::Auto, &[0, 1]);
        good.check().unwrap();
        type Damage = fn(&mut Plan);
        let bad: [(Damage, &str); 8] = [
            (|plan| plan.silence_ms = 0, "a time of 0 ms"),
            (|plan| plan.machines.clear(), "not 0"),
            (|plan| plan.machines[1].host = 2, "machine 1 is on host 2, but there are 2 hosts"),
            (|plan| plan.machines[1].workers = Some(0), "machine 1 has 0"),
            (|plan| plan.threads = Some(1), "the machines need 2"),
            (|plan| plan.fabric = FabricChoice::Shm, "use auto or tcp"),
            (|plan| plan.hosts[0].cores = Some(vec![]), "an empty list of cores"),
            (|plan| plan.machines = vec![plan.machines[0]; MACHINES_MAX + 1], "not 1025"),
        ];
        for (damage, words) in bad {
            let mut plan = good.clone();
            damage(&mut plan);
            let text = plan.check().unwrap_err().to_string();
            assert!(text.contains(words), "{text}");
        }
    }
}
