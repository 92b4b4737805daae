//! The programs of the exchange: how each is made, started and read. A program that cannot be had is skipped, with the
//! reason.

use std::env;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use exchange::{Plan, Point};

use crate::machine::program;

/// Longer than any run takes, start and end included, beyond the measured time.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// One contender, ready to run.
#[derive(Debug)]
pub struct Program {
    pub contender: String,
    pub processes: usize,
    program: PathBuf,
    arguments: Vec<String>,
}

impl Program {
    /// Makes it ready; or says why it cannot be had here.
    ///
    /// # Errors
    /// A name that no contender has; a package that does not build though all it needs is here.
    pub fn prepare(contender: &str, processes: usize) -> Result<std::result::Result<Program, String>> {
        ensure!((2..=super::rack::WORKERS_MAX).contains(&processes), "--processes {processes}: 2 to 16 are possible");
        let count = processes.to_string();
        let (program, arguments) = match contender {
            "threads" => (own()?, vec!["echo-rack", "--processes", "1", "--workers", &count]),
            "shm" | "tcp" => {
                (own()?, vec!["echo-rack", "--fabric", contender, "--processes", &count, "--workers", &count])
            }
            "mpi" | "mpi-aggregated" | "mpi-tcp-aggregated" => {
                let Some(mpirun) = program("mpirun") else {
                    return Ok(Err(
                        "there is no `mpirun` (on Debian: apt-get install openmpi-bin libopenmpi-dev libclang-dev)"
                            .to_owned(),
                    ));
                };
                let built = match build("mpi", "echo-mpi")? {
                    Ok(built) => built,
                    Err(why) => return Ok(Err(why)),
                };
                return Ok(Ok(Program::of_mpi(contender, processes, mpirun, &built)));
            }
            "tonic" => match build("tonic", "echo-tonic")? {
                Ok(built) => (built, vec!["--processes", &count]),
                Err(why) => return Ok(Err(why)),
            },
            other => bail!(
                "there is no contender {other:?}: it is one of threads, shm, tcp, mpi, mpi-aggregated, \
                 mpi-tcp-aggregated, tonic"
            ),
        };
        let arguments = arguments.into_iter().map(str::to_owned).collect();
        Ok(Ok(Program { contender: contender.to_owned(), processes, program, arguments }))
    }

    /// OpenMPI on this host alone, over its shared-memory or its TCP transport.
    fn of_mpi(contender: &str, processes: usize, mpirun: PathBuf, built: &Path) -> Program {
        let transport = if contender.contains("tcp") { "self,tcp" } else { "self,vader" };
        let mut arguments = mpi_arguments(transport, processes, built);
        arguments.extend(contender.ends_with("aggregated").then(|| "--aggregated".to_owned()));
        Program { contender: contender.to_owned(), processes, program: mpirun, arguments }
    }

    /// Runs the plan once.
    ///
    /// # Errors
    /// The program failed, printed a line that is no point, or took far too long.
    pub fn run(&self, plan: &Plan) -> Result<Vec<Point>> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).args(plan.arguments());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let measured = plan.time() * u32::try_from(plan.points().count()).unwrap_or(u32::MAX);
        let child = command.spawn().with_context(|| format!("{} cannot be started", self.program.display()))?;
        let output = finish(child, measured * 4 + TIME_LIMIT)?;
        Ok(Point::read(&output)?)
    }
}

/// The arguments of `mpirun` for so many processes of a program on this host alone.
pub fn mpi_arguments(transport: &str, processes: usize, program: &Path) -> Vec<String> {
    let options = ["--allow-run-as-root", "--oversubscribe", "--mca", "btl", transport, "--mca", "pml", "ob1"];
    let loopback = ["--mca", "btl_tcp_if_include", "lo", "--mca", "oob_tcp_if_include", "lo"];
    let mut arguments: Vec<String> = options.into_iter().chain(loopback).map(str::to_owned).collect();
    arguments.extend(["-n".to_owned(), processes.to_string(), program.display().to_string()]);
    arguments
}

/// This program.
pub fn own() -> Result<PathBuf> {
    env::current_exe().context("where this program is")
}

/// Output of the child until it ends well; a child that takes too long is ended.
pub fn finish(mut child: Child, limit: Duration) -> Result<String> {
    let Some(mut stdout) = child.stdout.take() else { bail!("the child has no output to read") };
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut output = String::new();
        let read = stdout.read_to_string(&mut output).map(|_| output);
        // Nobody waits for it any more once the time is over.
        let _ = send.send(read);
    });
    let Ok(output) = receive.recv_timeout(limit) else {
        child.kill().and_then(|()| child.wait()).context("a run that hangs cannot be ended")?;
        bail!("it was not done after {limit:?}");
    };
    let status = child.wait().context("the end of the child")?;
    let output = output.context("the output of the child")?;
    ensure!(status.success(), "it ended with {status}: {output}");
    Ok(output)
}

/// Builds one of the packages that have a workspace of their own, beside this program's build.
pub fn build(package: &str, binary: &str) -> Result<std::result::Result<PathBuf, String>> {
    build_with(package, binary, "")
}

/// The same, with these words for rustc.
pub fn build_with(package: &str, binary: &str, flags: &str) -> Result<std::result::Result<PathBuf, String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(package);
    let built = cargo_build(&folder, &builds()?.join(package), &[], flags)?;
    Ok(built.map(|built| built.join(binary)))
}

/// Builds a package of this program's workspace, with this program's own; the folder that it is in.
pub fn build_beside(package: &str) -> Result<std::result::Result<PathBuf, String>> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("where the workspace is")?;
    cargo_build(workspace, &builds()?, &["--package", package], "")
}

/// Builds the package of a folder into `target`; returns the folder of its programs.
fn cargo_build(
    folder: &Path,
    target: &Path,
    options: &[&str],
    flags: &str,
) -> Result<std::result::Result<PathBuf, String>> {
    let Some(cargo) = program("cargo") else {
        return Ok(Err("there is no `cargo` to build it with".to_owned()));
    };
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--locked", "--manifest-path"]).arg(folder.join("Cargo.toml"));
    command.arg("--target-dir").arg(target).args(options);
    if !flags.is_empty() {
        command.env("RUSTFLAGS", flags);
    }
    let output = command.output().context("cargo cannot be started")?;
    if output.status.success() {
        return Ok(Ok(target.join("release")));
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let reason = text.lines().find(|line| line.trim_start().starts_with("error")).unwrap_or("cargo did not say why");
    Ok(Err(format!("{} does not build: {reason}", folder.display())))
}

/// The folder that has this program's builds.
fn builds() -> Result<PathBuf> {
    Ok(own()?.parent().and_then(Path::parent).context("where builds go")?.to_owned())
}

/// Compiles a program in C, named from the folder of this package on, beside this program's build.
pub fn compile(
    compiler: &Path,
    source: &str,
    binary: &str,
    libraries: &[&str],
) -> Result<std::result::Result<PathBuf, String>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let folder = builds()?.join("c");
    fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let built = folder.join(binary);
    let mut command = Command::new(compiler);
    command.args(["-O2", "-std=c11", "-Wall", "-o"]).arg(&built).arg(&source).args(libraries);
    let output = command.output().with_context(|| format!("{} cannot be started", compiler.display()))?;
    if output.status.success() {
        return Ok(Ok(built));
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let reason = text.lines().find(|line| line.contains("error")).unwrap_or("the compiler did not say why");
    Ok(Err(format!("{} does not compile: {reason}", source.display())))
}
