//! Plan of a program, from the joins of its machines.

use std::collections::BTreeSet;
use std::time::Duration;

use super::wire::{Join, MemoryTokens};
use super::{RendezvousError, SILENCE};
use crate::bootstrap::{FabricChoice, HostAddress, HostPlan, MachinePlan, Plan, PortRange};

/// Fabric to use; machine 0's setting counts.
const FABRIC: &str = "GOSSAMER_FABRIC";
/// Ports at which machines listen; machine 0's setting counts.
const PORTS: &str = "GOSSAMER_PORTS";

/// Machine that has come.
pub(super) struct Joined {
    pub(super) join: Join,
    /// Address at which it reached machine 0.
    pub(super) reached_at: Option<HostAddress>,
}

/// Makes the plan for these machines, by index.
pub(super) fn plan(all: &[Joined], start_timeout: Duration) -> Result<Plan, RendezvousError> {
    let mut hosts: Vec<usize> = Vec::new(); // first machine of each
    let mut machines = Vec::new();
    for (index, joined) in all.iter().enumerate() {
        let found = hosts.iter().position(|first| all[*first].join.host.is_same(&joined.join.host));
        let host = found.unwrap_or_else(|| {
            hosts.push(index);
            hosts.len() - 1
        });
        machines.push(MachinePlan { host: host as u16, workers: None });
    }
    let ports = ports()?;
    let of = |host: usize| all.iter().zip(&machines).filter(move |(_, plan)| usize::from(plan.host) == host);
    let host_plan = |host: usize| {
        let name = all[hosts[host]].join.host.name.clone();
        let bind = if host == 0 { address_of_machine_0(all, &machines) } else { all[hosts[host]].join.address.clone() };
        HostPlan { ports, ..HostPlan::new(name, bind) }
    };
    let plan = Plan {
        fabric: fabric()?,
        threads: None,
        start_timeout_ms: u64::try_from(start_timeout.as_millis()).unwrap_or(u64::MAX).max(1000),
        silence_ms: SILENCE.as_millis() as u64,
        has_own_cores: (0..hosts.len()).all(|host| are_disjoint(of(host).map(|(joined, _)| &joined.join.cores))),
        hosts: (0..hosts.len()).map(host_plan).collect(),
        machines,
    };
    plan.check().map_err(|error| RendezvousError::Wrong(error.to_string()))?;
    Ok(plan)
}

fn fabric() -> Result<FabricChoice, RendezvousError> {
    let Some(value) = std::env::var(FABRIC).ok().filter(|value| !value.is_empty()) else {
        return Ok(FabricChoice::Auto);
    };
    let wrong = |value| RendezvousError::Variable { name: FABRIC, value, expected: "one of auto, shm, tcp, verbs" };
    value.parse().map_err(|_| wrong(value))
}

/// Returns the ports at which all machines are to listen, if the user has set them.
pub(super) fn ports() -> Result<Option<PortRange>, RendezvousError> {
    let Some(value) = std::env::var(PORTS).ok().filter(|value| !value.is_empty()) else { return Ok(None) };
    let expected = "the first and the last port, as in 7200-7299";
    value.parse().map(Some).map_err(|_| RendezvousError::Variable { name: PORTS, value, expected })
}

/// Returns the address of the first host: the wanted one, or that by which another host reached it, or any of its own.
fn address_of_machine_0(all: &[Joined], machines: &[MachinePlan]) -> HostAddress {
    let own = &all[0].join;
    if own.is_address_wanted {
        return own.address.clone();
    }
    let reached = |elsewhere: bool| {
        let mut found = all.iter().zip(machines).filter(|(_, plan)| (plan.host != 0) == elsewhere);
        found.find_map(|(joined, _)| joined.reached_at.clone())
    };
    reached(true).or_else(|| reached(false)).unwrap_or_else(|| own.address.clone())
}

/// Returns whether each has cores of its own: the launcher has divided them.
fn are_disjoint<'a>(all: impl Iterator<Item = &'a Vec<u16>>) -> bool {
    let mut seen = BTreeSet::new();
    let mut all = all.peekable();
    let first = all.peek().is_some_and(|cores| !cores.is_empty());
    first && all.all(|cores| cores.iter().all(|core| seen.insert(*core)))
}

/// Makes tokens for each host with shared memory, by which its machines recognise one another; by machine.
pub(super) fn tokens(plan: &Plan) -> Result<Vec<Option<MemoryTokens>>, RendezvousError> {
    let mut all: Vec<Option<MemoryTokens>> = vec![None; plan.machines.len()];
    for machine in 0..plan.machines.len() as u16 {
        let group = plan.memory_group(machine);
        let Some(first) = group.first() else { continue };
        all[usize::from(machine)] = match all[usize::from(*first)] {
            Some(tokens) => Some(tokens),
            None => Some(MemoryTokens { name: random()?, ask: random()?, answer: random()? }),
        };
    }
    Ok(all)
}

/// Returns 128 random bits that cannot be guessed.
pub(super) fn random() -> Result<[u8; 16], RendezvousError> {
    let key = comm::secure::Key::generate().map_err(RendezvousError::Comm)?;
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&key.as_bytes()[..16]);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::host::HostIdentity;
    use super::super::process::ProcessIdentity;
    use super::*;

    fn joined(host: &str, address: [u8; 4], cores: &[u16], reached_at: Option<[u8; 4]>) -> Joined {
        let host = HostIdentity { name: host.into(), ..HostIdentity::of_this_process() };
        let join = Join {
            index: 0,
            count: 0,
            nonce: [0; 16],
            host,
            process: ProcessIdentity::of_this_process(),
            image: String::new(),
            cores: cores.to_vec(),
            address: IpAddr::from(address).into(),
            is_address_wanted: false,
        };
        Joined { join, reached_at: reached_at.map(|address| IpAddr::from(address).into()) }
    }

    #[test]
    fn machines_of_one_host_share_it_and_others_get_their_own_address() {
        let local = [127, 0, 0, 1];
        let all = [
            joined("a", local, &[0, 1], None),
            joined("b", [10, 0, 0, 2], &[0, 1], Some([10, 0, 0, 1])),
            joined("a", local, &[0, 1], Some(local)),
        ];
        let plan = plan(&all, Duration::from_secs(9)).unwrap();
        assert_eq!(plan.machines.iter().map(|machine| machine.host).collect::<Vec<_>>(), [0, 1, 0]);
        assert_eq!(plan.hosts[0].bind.ip(), IpAddr::from([10, 0, 0, 1]), "as the other host reached it");
        assert_eq!(plan.hosts[1].bind.ip(), IpAddr::from([10, 0, 0, 2]));
        assert_eq!((plan.start_timeout_ms, plan.has_own_cores), (9000, false));
        let tokens = tokens(&plan).unwrap();
        assert!(tokens[0].is_some() && tokens[0] == tokens[2] && tokens[1].is_none());
    }

    #[test]
    fn one_host_needs_no_network_and_cores_may_be_given_out() {
        let local = [127, 0, 0, 1];
        let all = [joined("a", [10, 0, 0, 1], &[0], None), joined("a", local, &[1], Some(local))];
        let plan = plan(&all, Duration::from_millis(1)).unwrap();
        assert_eq!(plan.hosts.len(), 1);
        assert_eq!(plan.hosts[0].bind.ip(), IpAddr::from(local));
        assert!(plan.has_own_cores && plan.start_timeout_ms == 1000);
    }
}
