//! Mutexes and barriers of a program in C on two machines (`benches/region/locks.c`) beside those of MPI
//! (`benches/mpi/locks.c`).
//!
//! Here: how they are started, and the answers expected; how any program in C is put on two machines. The launcher is
//! this program; the library that it has programs load is built on demand, and in a smoke run taken where the build of
//! this program has it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::{Answer, Contender, line_of_json, mpi};
use crate::{
    echo::programs::{build_beside, compile, own},
    machine::program,
    rounds::Skipped,
};

/// The library that programs load, or why there are no machines that share memory here.
pub(super) type Library = std::result::Result<PathBuf, String>;

/// Package and file of the library.
const LIBRARY: (&str, &str) = ("gossamer-region-ffi", "libgossamer_region_c.so");
/// Where the launcher is told to find it.
pub(super) const VARIABLE: &str = "GOSSAMER_REGION_LIBRARY";

/// Additions of each machine, and rounds.
const TIMES: u64 = 10_000;
const SMOKE_TIMES: u64 = 50;
/// Threads that add to the word, and threads that meet.
const MACHINES: u64 = 2;
const THREADS: u64 = 4;

/// Names, ways of `--region`, and arguments of the program.
const REGION: [(&str, &str, &[&str]); 4] = [
    ("mutex: region", "auto", &["mutex"]),
    ("mutex: region with gsm_mutex_t", "explicit", &["mutex", "gsm"]),
    ("barrier: region", "auto", &["barrier"]),
    ("barrier: region with gsm_barrier_t", "explicit", &["barrier", "gsm"]),
];
const MPI: [(&str, &str); 3] =
    [(MPI_MUTEXES[0], "get-put"), (MPI_MUTEXES[1], "accumulate"), ("barrier: MPI and pthread", "barrier")];
pub(super) const MPI_MUTEXES: [&str; 2] = ["mutex: MPI_Win_lock, Get and Put", "mutex: MPI_Win_lock, Accumulate"];

/// All of them; of those that cannot be had here, why.
pub(super) fn contenders(is_smoke: bool, library: &Library, skipped: &mut Skipped) -> Result<Vec<Contender>> {
    let times = if is_smoke { SMOKE_TIMES } else { TIMES };
    let answer = |name: &str| Answer::Is(times * if name.starts_with("mutex") { MACHINES } else { THREADS });
    let mut all = vec![];
    let machines = machines("region/locks.c", "locks-region", &[], library)?;
    for (name, way, words) in REGION {
        let Some((locks, library)) = skipped.sort(name, machines.clone()) else { continue };
        let (what, more) = words.split_first().context("what the program does")?;
        let mut arguments = launch(way);
        arguments.extend([locks.display().to_string(), (*what).to_owned(), times.to_string()]);
        arguments.extend(more.iter().map(|word| (*word).to_owned()));
        let (name, answer, variable) = (name.to_owned(), answer(name), Some((VARIABLE, library.into())));
        all.push(Contender { name, program: own()?, arguments, variable, answer, told: line_of_json });
    }
    let processes = mpi("mpi/locks.c", "locks-mpi", &[])?;
    for (name, what) in MPI {
        let Some((program, mut arguments)) = skipped.sort(name, processes.clone()) else { continue };
        arguments.extend([what.to_owned(), times.to_string()]);
        let (name, answer) = (name.to_owned(), answer(name));
        all.push(Contender { name, program, arguments, variable: None, answer, told: line_of_json });
    }
    Ok(all)
}

/// Words for this program that precede a program for two machines.
pub(super) fn launch(way: &str) -> Vec<String> {
    ["run", "--local", "2", "--no-prefix", "--region", way].map(str::to_owned).into()
}

/// The library, built where this is no smoke run.
pub(super) fn library(is_smoke: bool) -> Result<Library> {
    let library = match is_smoke {
        true => built_already()?,
        false => build_beside(LIBRARY.0)?.map(|folder| folder.join(LIBRARY.1)),
    };
    match library {
        Ok(library) => Ok(match cannot_share(&library)? {
            Some(why) => Err(why),
            None => Ok(library),
        }),
        Err(why) => Ok(Err(why)),
    }
}

/// A program that includes `gossamer_region.h`, compiled with these words, and the library; or why there are none here.
pub(super) fn machines(
    source: &str,
    binary: &str,
    words: &[&str],
    library: &Library,
) -> Result<std::result::Result<(PathBuf, PathBuf), String>> {
    let library = match library {
        Ok(library) => library.clone(),
        Err(why) => return Ok(Err(why.clone())),
    };
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gossamer/region/ffi/include");
    let include = format!("-I{}", include.display());
    let built = compile_here(source, binary, &[words, &[&include, "-pthread", "-ldl"]].concat())?;
    Ok(built.map(|built| (built, library)))
}

/// A program, compiled by this machine's compiler with these words.
pub(super) fn compile_here(source: &str, binary: &str, words: &[&str]) -> Result<std::result::Result<PathBuf, String>> {
    match program("cc") {
        Some(compiler) => compile(&compiler, source, binary, words),
        None => Ok(Err("there is no `cc` (on Debian: apt-get install gcc)".to_owned())),
    }
}

/// The library as tests of its own package, or a build of it, have left it.
fn built_already() -> Result<std::result::Result<PathBuf, String>> {
    let own = own()?;
    let folder = own.parent().context("where this program is")?;
    let found = [folder.join("deps"), folder.to_owned()].map(|folder| folder.join(LIBRARY.1));
    let why = || format!("a smoke run does not build {} (cargo build --package {})", LIBRARY.1, LIBRARY.0);
    Ok(found.into_iter().find(|path| path.is_file()).ok_or_else(why))
}

/// Why machines here cannot share memory by page faults, if they cannot.
fn cannot_share(library: &Path) -> Result<Option<String>> {
    let mut command = Command::new(own()?);
    command.args(launch("auto")).arg("true").env(VARIABLE, library).stdin(Stdio::null());
    let output = command.output().context("the launcher cannot be started")?;
    let told = String::from_utf8_lossy(&output.stderr);
    match (output.status.success(), told.lines().find(|line| line.contains("userfaultfd"))) {
        (true, _) => Ok(None),
        (false, Some(why)) => Ok(Some(why.to_owned())),
        (false, None) => bail!("two machines cannot run `true`: {}: {told}", output.status),
    }
}
