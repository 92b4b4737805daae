//! Programs as contenders: how each is found or built, started, ended in time, and read. One that cannot be had here is
//! skipped, with the reason.

use crate::prelude::*;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::{env, fs, thread};

/// A thing, or why it cannot be had here.
pub type Found<T> = std::result::Result<T, String>;

/// The thing that is found; else the function returns why not.
macro_rules! found {
    ($found:expr) => {
        match $found {
            Ok(found) => found,
            Err(why) => return Ok(Err(why)),
        }
    };
}
pub(crate) use found;

/// Longer than a run takes, unless it says otherwise.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// A program with its words, ready to run.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    words: Vec<OsString>,
    variables: Vec<(&'static str, OsString)>,
    limit: Duration,
}

impl Program {
    pub fn at(path: impl Into<PathBuf>) -> Program {
        Program { path: path.into(), words: Vec::new(), variables: Vec::new(), limit: TIME_LIMIT }
    }

    /// This program, with these words, which are separated by blanks.
    pub fn own(words: &str) -> Result<Program> {
        Ok(Program::at(own()?).say(words))
    }

    /// So many processes of a program, which is built where MPI is there, on this host alone.
    pub fn mpi(
        transport: &str,
        processes: usize,
        build: impl FnOnce() -> Result<Found<PathBuf>>,
    ) -> Result<Found<Program>> {
        Program::mpi_by("mpirun", transport, processes, build)
    }

    fn mpi_by(
        mpirun: &str,
        transport: &str,
        processes: usize,
        build: impl FnOnce() -> Result<Found<PathBuf>>,
    ) -> Result<Found<Program>> {
        let mpirun = found!(in_path(mpirun, "openmpi-bin libopenmpi-dev libclang-dev"));
        let options = format!(
            "--allow-run-as-root --oversubscribe --mca btl {transport} --mca pml ob1 --mca btl_tcp_if_include lo \
             --mca oob_tcp_if_include lo -n {processes}"
        );
        Ok(build()?.map(|built| Program::at(mpirun).say(&options).with([built])))
    }

    /// Two processes of a program in C, by the starter that belongs to its compiler: MPICH may be here as well.
    pub fn mpi_of_c(source: &str, binary: &str, words: &[&str]) -> Result<Found<Program>> {
        let compiler = found!(in_path("mpicc.openmpi", "openmpi-bin libopenmpi-dev"));
        Program::mpi_by("mpirun.openmpi", "self,vader", 2, || compile(&compiler, source, binary, words))
    }

    /// With these words behind the others.
    pub fn with<W: Into<OsString>>(mut self, words: impl IntoIterator<Item = W>) -> Program {
        self.words.extend(words.into_iter().map(Into::into));
        self
    }

    /// With these words, which are separated by blanks.
    pub fn say(self, words: &str) -> Program {
        self.with(words.split_whitespace())
    }

    pub fn set(mut self, name: &'static str, value: impl Into<OsString>) -> Program {
        self.variables.push((name, value.into()));
        self
    }

    pub fn within(self, limit: Duration) -> Program {
        Program { limit, ..self }
    }

    /// The command of a shell that runs it with its standard error among its output.
    pub fn with_stderr(self) -> Program {
        let Program { path, words, .. } = &self;
        let shell = ["-c", "exec \"$@\" 2>&1", "sh"].map(OsString::from);
        let words = shell.into_iter().chain([path.clone().into()]).chain(words.iter().cloned()).collect();
        Program { path: "/bin/sh".into(), words, ..self }
    }

    /// All its words, its path first.
    pub fn words(&self) -> Vec<String> {
        let words = [self.path.as_os_str()].into_iter().chain(self.words.iter().map(OsString::as_os_str));
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// Runs it to its end; returns its output.
    pub fn run(&self) -> Result<String> {
        let mut command = Command::new(&self.path);
        command.args(&self.words).envs(self.variables.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let child = command.spawn().with_context(|| format!("{} cannot be started", self.path.display()))?;
        finish(child, self.limit)
    }

    /// Runs it to its end; returns its output, or the last line of that, which is such JSON.
    pub fn told<T: DeserializeOwned>(&self) -> Result<T> {
        let output = self.run()?;
        let told = [&*output].into_iter().chain(output.lines().rev()).find_map(|text| serde_json::from_str(text).ok());
        told.with_context(|| format!("it tells nothing: {output:?}"))
    }
}

/// Where a program lies among the folders that `PATH` names; else which packages of Debian have it.
pub fn in_path(name: &str, packages: &str) -> Found<PathBuf> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| format!("there is no `{name}` (on Debian: apt-get install {packages})"))
}

pub fn own() -> Result<PathBuf> {
    env::current_exe().context("where this program is")
}

/// Output of the child until it ends well; a child that takes too long is ended.
fn finish(mut child: Child, limit: Duration) -> Result<String> {
    let mut stdout = child.stdout.take().context("the child has no output to read")?;
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

/// Builds one of the packages that have a workspace of their own, beside this program's build, with these words for
/// rustc.
pub fn build(package: &str, binary: &str, flags: &str) -> Result<Found<PathBuf>> {
    let folder = here(package);
    let built = cargo_build(&folder, &builds()?.join(package), &[], flags)?;
    Ok(built.map(|built| built.join(binary)))
}

/// The same, unless it is for a smoke run.
pub fn build_unless(is_smoke: bool, package: &str, binary: &str, flags: &str) -> Result<Found<PathBuf>> {
    if is_smoke { Ok(Err("a smoke run builds no program of others".to_owned())) } else { build(package, binary, flags) }
}

/// Builds a package of this program's workspace, with this program's own; the folder that it is in.
pub fn build_beside(package: &str) -> Result<Found<PathBuf>> {
    cargo_build(&here(".."), &builds()?, &["--package", package], "")
}

/// Builds the package of a folder into `target`; returns the folder of its programs.
fn cargo_build(folder: &Path, target: &Path, options: &[&str], flags: &str) -> Result<Found<PathBuf>> {
    let cargo = found!(in_path("cargo", "cargo"));
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--locked", "--manifest-path"]).arg(folder.join("Cargo.toml"));
    command.arg("--target-dir").arg(target).args(options);
    if !flags.is_empty() {
        command.env("RUSTFLAGS", flags);
    }
    let output = command.output().context("cargo cannot be started")?;
    Ok(succeeded(&output).map(|()| target.join("release")).map_err(|why| format!("{} {why}", folder.display())))
}

/// The first line of the error, where a compiler failed.
pub fn succeeded(output: &Output) -> Found<()> {
    let text = String::from_utf8_lossy(&output.stderr);
    let reason = || text.lines().find(|line| line.contains("error")).unwrap_or("the compiler did not say why");
    if output.status.success() { Ok(()) } else { Err(format!("does not build: {}", reason())) }
}

/// A path from the folder of this package on.
pub fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The folder that has this program's builds.
pub fn builds() -> Result<PathBuf> {
    Ok(own()?.parent().and_then(Path::parent).context("where builds go")?.to_owned())
}

/// Compiles a program in C, named from the folder of this package on, beside this program's build, with these words for
/// the compiler.
pub fn compile(compiler: &Path, source: &str, binary: &str, words: &[&str]) -> Result<Found<PathBuf>> {
    let (source, folder) = (here(source), builds()?.join("c"));
    fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let built = folder.join(binary);
    let mut command = Command::new(compiler);
    command.args(["-O2", "-std=c11", "-Wall", "-o"]).arg(&built).arg(&source).args(words);
    let output = command.output().with_context(|| format!("{} cannot be started", compiler.display()))?;
    Ok(succeeded(&output).map(|()| built).map_err(|why| format!("{} {why}", source.display())))
}

/// The same by this machine's compiler.
pub fn cc(source: &str, binary: &str, words: &[&str]) -> Result<Found<PathBuf>> {
    compile(&found!(in_path("cc", "gcc")), source, binary, words)
}
