//! Detection of the launcher, and of a process that was started as one of several without a method to find the others.

use std::time::Duration;

use super::plain::{self, Settings};
use super::variables::{Get, number, text};
use super::{RendezvousError, START_TIMEOUT};

/// `alone`: the process runs by itself, under any launcher.
pub(super) const START: &str = "GOSSAMER_START";
/// Seconds in which the machines must find one another.
const TIMEOUT: &str = "GOSSAMER_START_TIMEOUT";
const PMI_FD: &str = "PMI_FD";
const PMI_RANK: &str = "PMI_RANK";
const PMI_SIZE: &str = "PMI_SIZE";
const PMIX_RANK: &str = "PMIX_RANK";

/// Method by which this process meets the others.
#[derive(Debug)]
pub(super) enum Method {
    Alone,
    Plain(Settings),
    Pmi(PmiVariables),
    Pmix,
}

/// Variables of a process manager with PMI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PmiVariables {
    pub(super) fd: i32,
    pub(super) rank: u16,
    pub(super) size: u16,
}

/// Returns the method of this process, by its environment.
pub(super) fn detect(get: Get<'_>) -> Result<Method, RendezvousError> {
    match text(get, START) {
        None => {}
        Some(value) if value == "alone" => return Ok(Method::Alone),
        Some(value) => return Err(RendezvousError::Variable { name: START, value, expected: "alone, or not set" }),
    }
    if let Some(settings) = plain::settings(get)? {
        return Ok(Method::Plain(settings));
    }
    if let Some(fd) = number(get, PMI_FD, "the number of a descriptor")? {
        let expected = "a number up to 1024, as the process manager sets it";
        let missing =
            |missing| RendezvousError::Missing { missing, present: PMI_FD, cure: "start it with srun or mpiexec" };
        let rank = number(get, PMI_RANK, expected)?.ok_or(missing(PMI_RANK))?;
        let size = number(get, PMI_SIZE, expected)?.ok_or(missing(PMI_SIZE))?;
        return Ok(Method::Pmi(PmiVariables { fd, rank, size }));
    }
    if text(get, PMIX_RANK).is_some() {
        return Ok(Method::Pmix);
    }
    no_others(get)?;
    Ok(Method::Alone)
}

/// Fails if there are other processes though no variable says how to find them.
fn no_others(get: Get<'_>) -> Result<(), RendezvousError> {
    let several = |name| text(get, name).filter(|tasks| tasks.parse().is_ok_and(|tasks: u32| tasks > 1));
    // A batch script has no step.
    if text(get, "SLURM_STEP_ID").is_some()
        && let Some(tasks) = several("SLURM_STEP_NUM_TASKS")
    {
        let cure = "add --mpi=pmi2 to srun's options";
        return Err(RendezvousError::NoRendezvous { starter: "srun", tasks, cure });
    }
    if let Some(tasks) = several("OMPI_COMM_WORLD_SIZE") {
        let cure = "use a mpirun whose PMIx sets PMIX_RANK (Open MPI 4 or later)";
        return Err(RendezvousError::NoRendezvous { starter: "mpirun", tasks, cure });
    }
    if let Some(tasks) = several(PMI_SIZE) {
        let cure = "use a process manager that sets PMI_FD, such as mpiexec.hydra without -pmi-port";
        return Err(RendezvousError::NoRendezvous { starter: "a process manager", tasks, cure });
    }
    Ok(())
}

/// Returns the launcher's name, unless it is a step of Slurm.
pub(super) fn name_of_starter(otherwise: &str) -> String {
    let get: Get<'_> = &|name| std::env::var_os(name);
    match (text(get, "SLURM_JOB_ID"), text(get, "SLURM_STEP_ID")) {
        (Some(job), Some(step)) if text(get, "OMPI_COMM_WORLD_SIZE").is_none() => format!("slurm step {job}.{step}"),
        _ => otherwise.to_owned(),
    }
}

/// Returns the time in which the machines must find one another.
pub(super) fn start_timeout() -> Result<Duration, RendezvousError> {
    let expected = "a number of seconds, 1 or more";
    let seconds: Option<f64> = number(&|name| std::env::var_os(name), TIMEOUT, expected)?;
    let Some(seconds) = seconds else { return Ok(START_TIMEOUT) };
    let value = || seconds.to_string();
    let found = Duration::try_from_secs_f64(seconds).ok().filter(|found| *found >= Duration::from_secs(1));
    found.ok_or_else(|| RendezvousError::Variable { name: TIMEOUT, value: value(), expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(variables: &[(&'static str, &str)]) -> Result<Method, RendezvousError> {
        detect(&|name| variables.iter().find(|(found, _)| *found == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_first_way_there_is_is_taken() {
        let pmix = (PMIX_RANK, "1");
        let pmi = [(PMI_FD, "7"), (PMI_RANK, "1"), (PMI_SIZE, "3"), pmix];
        let plain = [
            ("GOSSAMER_MEET", "127.0.0.1:9"),
            ("GOSSAMER_COUNT", "2"),
            ("JOB_COMPLETION_INDEX", "1"),
            ("GOSSAMER_KEY_FILE", "k"),
        ];
        assert!(matches!(by(&[]), Ok(Method::Alone)));
        assert!(matches!(by(&[pmix]), Ok(Method::Pmix)));
        assert!(matches!(by(&pmi), Ok(Method::Pmi(PmiVariables { fd: 7, rank: 1, size: 3 }))));
        let all: Vec<_> = plain.into_iter().chain(pmi).collect();
        assert!(matches!(by(&all), Ok(Method::Plain(Settings { index: 1, count: 2, .. }))));
        let alone: Vec<_> = all.into_iter().chain([(START, "alone")]).collect();
        assert!(matches!(by(&alone), Ok(Method::Alone)));
    }

    #[test]
    fn several_without_a_way_are_refused_with_the_cure() {
        let step = [("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "3")];
        let text = by(&step).unwrap_err().to_string();
        assert!(text.contains("srun has started 3 processes") && text.contains("--mpi=pmi2"), "{text}");
        assert!(by(&[("OMPI_COMM_WORLD_SIZE", "2")]).unwrap_err().to_string().contains("PMIX_RANK"));
        assert!(by(&[(PMI_SIZE, "2")]).unwrap_err().to_string().contains("PMI_FD"));
        // One task, or a batch script, is alone.
        assert!(matches!(by(&[("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "1")]), Ok(Method::Alone)));
        assert!(matches!(by(&[("SLURM_JOB_ID", "7"), ("SLURM_STEP_NUM_TASKS", "3")]), Ok(Method::Alone)));
    }

    #[test]
    fn variables_that_make_no_sense_are_named() {
        for (variables, words) in [
            (&[(START, "together")][..], "GOSSAMER_START has the value \"together\""),
            (&[(PMI_FD, "x")], "PMI_FD has the value \"x\""),
            (&[(PMI_FD, "5"), (PMI_RANK, "0")], "PMI_SIZE is missing although PMI_FD"),
            (&[("GOSSAMER_MEET", "h:1")], "GOSSAMER_COUNT is missing although GOSSAMER_MEET"),
            (&[("GOSSAMER_COUNT", "4")], "GOSSAMER_MEET is missing although GOSSAMER_COUNT"),
        ] {
            let text = by(variables).unwrap_err().to_string();
            assert!(text.contains(words), "{text}");
        }
    }
}
