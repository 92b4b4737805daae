//! The contenders of `array` as programs: how each is made and started. A contender that cannot be had is skipped, with
//! the reason.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use exchange::array::{Job, Outcome, Work};

use super::graphs::EDGE_FACTOR;
use crate::echo::programs::{build, compile, finish, mpi_arguments, own};
use crate::machine::program;

/// Longer than any run takes.
const TIME_LIMIT: Duration = Duration::from_secs(300);
/// Processes, or workers, of the works that have several.
const PROCESSES: usize = 2;
/// Packages with workspaces of their own, and their programs.
const LAMELLAR: (&str, &str) = ("lamellar", "array-lamellar");
const GRAPHS: (&str, &str) = ("graphs", "array-graphs");

/// One contender, ready for its job.
#[derive(Clone, Debug)]
pub struct Program {
    program: PathBuf,
    arguments: Vec<String>,
}

/// Programs that are made only once.
#[derive(Default)]
pub struct Programs(BTreeMap<&'static str, std::result::Result<PathBuf, String>>);

impl Programs {
    /// Makes the contender ready for the job; or says why it cannot be had here.
    ///
    /// # Errors
    /// A name that no contender has; one that does not build though all it needs is here.
    pub fn prepare(
        &mut self,
        contender: &str,
        job: &Job,
        fabric: &str,
    ) -> Result<std::result::Result<Program, String>> {
        let prepared = match contender {
            "mpi" | "mpi-4k" => self.of_mpi(contender)?,
            "shmem" => self.of_shmem()?,
            "lamellar" | "graph" => {
                let (package, binary) = if contender == "graph" { GRAPHS } else { LAMELLAR };
                let built = self.made(package, || build(package, binary))?;
                built.map(|program| Program { program, arguments: Vec::new() })
            }
            _ if matches!(job.work, Work::Ranks | Work::Labels) => return Ok(Ok(of_graphs(contender, job, fabric)?)),
            _ => Ok(of_elements(contender, job, fabric)?),
        };
        Ok(prepared.map(|mut program| {
            program.arguments.extend(job.arguments());
            program
        }))
    }

    fn made(
        &mut self,
        name: &'static str,
        make: impl FnOnce() -> Result<std::result::Result<PathBuf, String>>,
    ) -> Result<std::result::Result<PathBuf, String>> {
        if !self.0.contains_key(name) {
            self.0.insert(name, make()?);
        }
        self.0.get(name).cloned().context("it has just been made")
    }

    fn of_mpi(&mut self, contender: &str) -> Result<std::result::Result<Program, String>> {
        let Some(mpirun) = program("mpirun") else {
            return Ok(Err(
                "there is no `mpirun` (on Debian: apt-get install openmpi-bin libopenmpi-dev libclang-dev)".to_owned(),
            ));
        };
        let built = self.made("mpi", || build("mpi", "array-mpi"))?;
        Ok(built.map(|built| {
            let mut arguments = mpi_arguments("self,vader", PROCESSES, &built);
            arguments.extend((contender == "mpi-4k").then(|| "--chunks".to_owned()));
            Program { program: mpirun, arguments }
        }))
    }

    fn of_shmem(&mut self) -> Result<std::result::Result<Program, String>> {
        let (Some(oshcc), Some(oshrun)) = (program("oshcc"), program("oshrun")) else {
            return Ok(Err("there is no `oshcc` or no `oshrun` (on Debian: apt-get install openmpi-bin \
                           libopenmpi-dev)"
                .to_owned()));
        };
        let built = self.made("shmem", || compile(&oshcc, "shmem/array.c", "array-shmem", &[]))?;
        Ok(built.map(|built| {
            let options = ["--allow-run-as-root", "--oversubscribe", "-x", "UCX_TLS=posix,self"];
            let mut arguments: Vec<String> = options.map(str::to_owned).to_vec();
            arguments.extend(["-n".to_owned(), PROCESSES.to_string(), built.display().to_string()]);
            Program { program: oshrun, arguments }
        }))
    }
}

/// The project's own contenders on elements.
fn of_elements(contender: &str, job: &Job, fabric: &str) -> Result<Program> {
    let contender = if contender == "apply_then" { "trusts" } else { contender };
    let both = PROCESSES.to_string();
    let (processes, workers) = match job.work {
        Work::Hits | Work::Sum => ("1", "1"),
        Work::Sets => ("1", &*both),
        _ => (&*both, &*both),
    };
    let own_arguments = ["array-run", "--contender", contender, "--processes", processes, "--workers", workers];
    let arguments = own_arguments.into_iter().chain(["--fabric", fabric]).map(str::to_owned).collect();
    Ok(Program { program: own()?, arguments })
}

/// The examples on graphs, each compared with one thread.
fn of_graphs(contender: &str, job: &Job, fabric: &str) -> Result<Program> {
    let command = if job.work == Work::Ranks { "array-ranks" } else { "array-labels" };
    let mut arguments: Vec<String> = [command, "--verify"].map(str::to_owned).to_vec();
    let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    add("--scale", job.elements.trailing_zeros().to_string());
    add("--edgefactor", EDGE_FACTOR.to_string());
    add("--seed", job.seed.to_string());
    add("--threads", if contender == "array-single" { 1 } else { PROCESSES }.to_string());
    if job.work == Work::Ranks {
        add("--rounds", job.ops.to_string());
    }
    if contender == "array" {
        add("--local", PROCESSES.to_string());
        add("--fabric", fabric.to_owned());
    }
    Ok(Program { program: own()?, arguments })
}

impl Program {
    /// Runs the job once.
    ///
    /// # Errors
    /// If it fails, tells no outcome, or takes far longer than it should.
    pub fn run(&self) -> Result<Outcome> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let child = command.spawn().with_context(|| format!("{} cannot be started", self.program.display()))?;
        let outcome = Outcome::read(&finish(child, TIME_LIMIT)?).map_err(|error| anyhow!(error))?;
        if outcome.ops == 0 {
            bail!("it did nothing");
        }
        Ok(outcome)
    }
}
