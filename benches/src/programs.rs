//! Programs as contenders: how each is found or built, started and read. One that cannot be had here is skipped, with
//! the reason. Not here: a program that runs (process.rs).

use crate::basics::*;
use crate::process::Process;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::{env, fs};

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
/// Longer than a build takes, with all that it depends on.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);

/// A program with its words, ready to run.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    words: Vec<OsString>,
    variables: Vec<(&'static str, OsString)>,
    limit: Duration,
    is_quiet: bool,
}

impl Program {
    pub fn at(path: impl Into<PathBuf>) -> Program {
        let (words, variables) = (Vec::new(), Vec::new());
        Program { path: path.into(), words, variables, limit: TIME_LIMIT, is_quiet: false }
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

    /// Without its standard error.
    pub fn quiet(self) -> Program {
        Program { is_quiet: true, ..self }
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

    pub fn start(&self) -> Result<Process> {
        let mut command = Command::new(&self.path);
        command.args(&self.words).envs(self.variables.iter().cloned()).stdin(Stdio::null());
        command.stderr(if self.is_quiet { Stdio::null() } else { Stdio::inherit() });
        Process::start(&mut command, self.limit)
    }

    /// Runs it to its end; returns its output.
    pub fn run(&self) -> Result<String> {
        self.start()?.output()
    }

    /// Runs a compiler; the first line of its errors, where it fails.
    pub fn compiles(self) -> Found<()> {
        let failed = self.within(BUILD_LIMIT).with_stderr().run().err().map(|error| format!("{error:#}"));
        let why = failed.map(|text| text.lines().find(|line| line.contains("error")).unwrap_or(&text).to_owned());
        why.map_or(Ok(()), |why| Err(format!("does not build: {why}")))
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

/// Builds one of the packages that have a workspace of their own, beside this program's build, with these words for
/// rustc.
pub fn build(package: &str, binary: &str, flags: &str) -> Result<Found<PathBuf>> {
    let folder = here(package);
    let built = cargo_build(&folder, &builds()?.join(package), "", flags)?;
    Ok(built.map(|built| built.join(binary)))
}

/// The same, unless it is for a smoke run.
pub fn build_unless(is_smoke: bool, package: &str, binary: &str, flags: &str) -> Result<Found<PathBuf>> {
    if is_smoke { Ok(Err("a smoke run builds no program of others".to_owned())) } else { build(package, binary, flags) }
}

/// Builds a package of this program's workspace, with this program's own; the folder that it is in.
pub fn build_beside(package: &str) -> Result<Found<PathBuf>> {
    cargo_build(&here(".."), &builds()?, &format!("--package {package}"), "")
}

/// Builds the package of a folder into `target`; returns the folder of its programs.
fn cargo_build(folder: &Path, target: &Path, options: &str, flags: &str) -> Result<Found<PathBuf>> {
    let cargo = found!(in_path("cargo", "cargo"));
    let program = Program::at(cargo).say("build --release --locked --manifest-path").with([folder.join("Cargo.toml")]);
    let program = program.say("--target-dir").with([target]).say(options);
    let program = if flags.is_empty() { program } else { program.set("RUSTFLAGS", flags) };
    Ok(program.compiles().map(|()| target.join("release")).map_err(|why| format!("{} {why}", folder.display())))
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
    let program = Program::at(compiler).say("-O2 -std=c11 -Wall -o").with([&built, &source]).with(words);
    Ok(program.compiles().map(|()| built).map_err(|why| format!("{} {why}", source.display())))
}

/// The same by this machine's compiler.
pub fn cc(source: &str, binary: &str, words: &[&str]) -> Result<Found<PathBuf>> {
    compile(&found!(in_path("cc", "gcc")), source, binary, words)
}
