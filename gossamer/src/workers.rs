//! Number of workers of each machine, and the cores on which they run.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use trust::{Builder as PoolBuilder, Threadpool};

use crate::bootstrap::{HostPlan, Plan};
use crate::builder::Builder;
use crate::error::StartError;

/// One number stands for a connection that no worker uses (`remote/hello.rs`); two more belong to the service thread
/// and the page server's worker.
pub(crate) const WORKERS_MAX: usize = u16::MAX as usize - 3;

/// Threads that a program asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// Workers in all; 0: one for each core.
    pub(crate) threads: usize,
    /// Threads of each machine that are not workers.
    pub(crate) hidden: u16,
    /// Machine ways or rings, if the program says which.
    pub(crate) machine_ways: Option<bool>,
    /// Most direct ways of a worker, beside machine ways.
    pub(crate) direct_ways: u16,
}

/// Returns the workers of a program that runs as one process: `threads`, or (0) one for each core.
pub(crate) fn alone(threads: usize) -> Result<u16, StartError> {
    let workers = match threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        asked => asked,
    };
    in_range(workers, 1)
}

/// Returns the workers of each machine, at least one each. A machine with workers in the plan has these. If there is a
/// total, by the plan or else by the program (`threads`, 0 for none), the other machines share the rest of it as
/// equally as possible. Without a total, they share the cores of their host; `cores` are those that each machine may
/// use.
pub(crate) fn divide(plan: &Plan, cores: &[u16], threads: usize) -> Result<Vec<u16>, StartError> {
    let given = |machine: usize| plan.machines[machine].workers;
    let open: Vec<usize> = (0..plan.machines.len()).filter(|machine| given(*machine).is_none()).collect();
    let total = plan.threads.map(|threads| threads as usize).or(Some(threads).filter(|threads| *threads != 0));
    let taken: usize = plan.machines.iter().filter_map(|machine| machine.workers).map(usize::from).sum();
    let mut workers: Vec<usize> = plan.machines.iter().map(|machine| machine.workers.map_or(0, usize::from)).collect();
    for (place, &machine) in open.iter().enumerate() {
        let (amount, place, sharers) = match total {
            Some(total) => (total.saturating_sub(taken), place, open.len()),
            None => {
                let shares = |other: usize| !plan.has_own_cores || other == machine;
                let is_on_host = |other: usize| plan.machines[other].host == plan.machines[machine].host;
                let on_host = |other: &&usize| is_on_host(**other) && shares(**other);
                let place = open[..place].iter().filter(on_host).count();
                (usize::from(cores[machine]), place, open.iter().filter(on_host).count())
            }
        };
        workers[machine] = (amount / sharers + usize::from(place < amount % sharers)).max(1);
    }
    workers.into_iter().map(|count| in_range(count, plan.machines.len())).collect()
}

fn in_range(workers: usize, machines: usize) -> Result<u16, StartError> {
    match u16::try_from(workers) {
        Ok(count) if workers <= WORKERS_MAX => Ok(count),
        _ => Err(StartError::Threads { threads: workers, machines }),
    }
}

/// Returns the cores that machines of this host may use: the plan's, as far as this process may use them.
pub(crate) fn cores(host: &HostPlan) -> Result<Vec<usize>, StartError> {
    let allowed = allowed();
    let Some(named) = &host.cores else { return Ok(allowed) };
    let named: BTreeSet<usize> = named.iter().map(|core| usize::from(*core)).collect();
    let both: Vec<usize> = allowed.iter().copied().filter(|core| named.contains(core)).collect();
    if both.is_empty() {
        return Err(StartError::Cores { host: host.name.clone(), named: list(named), allowed: list(allowed) });
    }
    Ok(both)
}

fn list(cores: impl IntoIterator<Item = usize>) -> String {
    cores.into_iter().map(|core| core.to_string()).collect::<Vec<_>>().join(",")
}

/// Returns the cores that this process may use; as many from 0 on if the system does not list them.
fn allowed() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect(),
        Err(_) => (0..std::thread::available_parallelism().map_or(1, usize::from)).collect(),
    }
}

/// Returns a builder for a pool of so many workers of this machine.
pub(crate) fn builder(settings: &Builder, workers: u16, machine: u16) -> PoolBuilder {
    let mut pool = Threadpool::builder().workers(usize::from(workers)).name(&format!("m{machine}"));
    pool = pool.stack_bytes(settings.stack_bytes);
    if let Some(pin) = settings.pin {
        pool = pool.pin(pin);
    }
    if let Some(spin) = settings.spin {
        pool = pool.spin(spin);
    }
    pool
}

/// Returns how many workers of machines of this host can run at the same time: one for each core, or fewer under a CPU
/// quota.
pub(crate) fn usable(cores: &[usize]) -> usize {
    cores.len().min(trust::link::cpu_quota().unwrap_or(usize::MAX))
}

/// Starts the workers of machine `own`. If its host has a core for each worker of its machines they are pinned, each
/// machine's to cores of its own, unless the settings say otherwise; otherwise no worker is pinned or spins. Under a
/// CPU quota none is or does unless the settings say so.
pub(crate) fn start_pool(settings: &Builder, plan: &Plan, workers: &[u16], own: u16) -> Result<Threadpool, StartError> {
    let count = |machine: u16| usize::from(workers[usize::from(machine)]);
    let host = plan.machines[usize::from(own)].host;
    let sharers = || plan.machines_of(host).filter(|machine| !plan.has_own_cores || *machine == own);
    let total: usize = sharers().map(count).sum();
    let before: usize = sharers().filter(|machine| *machine < own).map(count).sum();
    let builder = builder(settings, workers[usize::from(own)], own);
    let cores = cores(plan.host_of(own))?;
    if total > usable(&cores) {
        return build_on(&cores, builder.pin(false).spin(Duration::ZERO));
    }
    let has_quota = trust::link::cpu_quota().is_some_and(|quota| quota < cores.len());
    let builder = if has_quota && settings.spin.is_none() { builder.spin(Duration::ZERO) } else { builder };
    if settings.pin.unwrap_or(!has_quota) {
        build_on(&cores[before..before + count(own)], builder.pin(true))
    } else {
        build_on(&cores, builder.pin(false))
    }
}

/// Builds a pool with its threads on these cores; on all cores, if the system refuses.
pub(crate) fn build_on(cores: &[usize], builder: PoolBuilder) -> Result<Threadpool, StartError> {
    let mut set = CpuSet::new();
    cores.iter().for_each(|&core| set.set(core));
    // On its own thread: workers inherit its cores, while the caller keeps all.
    let build = || {
        let _ = sched_setaffinity(None, &set);
        builder.try_build()
    };
    let pool = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, build).map_err(StartError::Thread)?;
        Ok::<_, StartError>(thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })?;
    Ok(pool?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::{FabricChoice, MachinePlan};

    fn plan(threads: Option<u32>, machines: &[(u16, Option<u16>)]) -> Plan {
        let mut plan = Plan::local(1, FabricChoice::Tcp, threads);
        plan.hosts = vec![plan.hosts[0].clone(); 3];
        plan.machines = machines.iter().map(|&(host, workers)| MachinePlan { host, workers }).collect();
        plan
    }

    #[test]
    fn a_total_is_divided_evenly_and_everyone_has_one() {
        let three = [(0, None), (1, None), (1, None)];
        assert_eq!(divide(&plan(None, &three), &[8, 8, 8], 7).unwrap(), [3, 2, 2]);
        assert_eq!(divide(&plan(Some(5), &three), &[8, 8, 8], 7).unwrap(), [2, 2, 1], "the plan counts more");
        assert_eq!(divide(&plan(None, &three), &[8, 8, 8], 1).unwrap(), [1, 1, 1]);
        assert_eq!(alone(5).unwrap(), 5);
        assert!(alone(0).unwrap() >= 1);
        assert!(matches!(alone(70_000), Err(StartError::Threads { threads: 70_000, machines: 1 })));
    }

    #[test]
    fn without_a_total_the_cores_of_each_host_are_shared() {
        let four = [(0, None), (1, None), (0, None), (2, None)];
        assert_eq!(divide(&plan(None, &four), &[5, 16, 5, 1], 0).unwrap(), [3, 16, 2, 1]);
        assert_eq!(divide(&plan(None, &four), &[1, 0, 1, 1], 0).unwrap(), [1, 1, 1, 1]);
    }

    #[test]
    fn what_is_given_is_given() {
        let four = [(0, Some(4)), (1, None), (0, None), (2, Some(1))];
        assert_eq!(divide(&plan(Some(10), &four), &[2, 2, 2, 2], 0).unwrap(), [4, 3, 2, 1]);
        assert_eq!(divide(&plan(None, &four), &[2, 2, 2, 2], 3).unwrap(), [4, 1, 1, 1]);
        assert_eq!(divide(&plan(None, &four), &[8, 6, 8, 8], 0).unwrap(), [4, 6, 8, 1]);
    }

    #[test]
    fn cores_that_are_not_there_are_named() {
        let mut host = Plan::local(1, FabricChoice::Auto, None).hosts.remove(0);
        let all = cores(&host).unwrap();
        host.cores = Some(vec![all[0] as u16, 9999]);
        assert_eq!(cores(&host).unwrap(), [all[0]]);
        host.cores = Some(vec![9999]);
        let text = cores(&host).unwrap_err().to_string();
        assert!(text.contains("9999") && text.contains(&host.name), "{text}");
    }
}
