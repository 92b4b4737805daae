//! Mutexes and barriers of a program in C on two machines (`benches/region/locks.c`) beside those of MPI
//! (`benches/mpi/locks.c`).
//!
//! Here: how they are started, and the answers expected; how any program in C is put on two machines. The launcher is
//! this program; the library that it has programs load is built on demand, and in a smoke run taken where the build of
//! this program has it.

use super::{Answer, Contender, line_of_json};
use crate::prelude::*;
use crate::programs::{build_beside, cc, here, own};

/// The library that programs load, or why there are no machines that share memory here.
pub(super) type Library = Found<PathBuf>;

/// Package and file of the library.
const LIBRARY: (&str, &str) = ("gossamer-region-ffi", "libgossamer_region_c.so");
/// Where the launcher is told to find it.
const VARIABLE: &str = "GOSSAMER_REGION_LIBRARY";

/// Additions of each machine, and rounds.
const TIMES: u64 = 10_000;
const SMOKE_TIMES: u64 = 50;
/// Threads that add to the word, and threads that meet.
const MACHINES: u64 = 2;
const THREADS: u64 = 4;

pub(super) const MPI_MUTEXES: [&str; 2] = ["mutex: MPI_Win_lock, Get and Put", "mutex: MPI_Win_lock, Accumulate"];
const MPI: [(&str, &str); 3] =
    [(MPI_MUTEXES[0], "get-put"), (MPI_MUTEXES[1], "accumulate"), ("barrier: MPI and pthread", "barrier")];

/// All of them; of those that cannot be had here, why.
pub(super) fn contenders(is_smoke: bool, library: &Library, skipped: &mut Skipped) -> Result<Vec<Contender>> {
    let times = if is_smoke { SMOKE_TIMES } else { TIMES };
    let mut all = vec![];
    let mut add = |name: &str, program: Found<Program>, what: &str| {
        let answer = Answer::Is(times * if name.starts_with("mutex") { MACHINES } else { THREADS });
        if let Some(program) = skipped.sort(name, program) {
            let program = program.say(&format!("{what} {times}"));
            all.push(Contender { name: name.to_owned(), program, answer, told: line_of_json });
        }
    };
    let machines = machines("auto", "region/locks.c", "locks-region", &[], library)?;
    add("mutex: region", machines.clone(), "mutex");
    add("barrier: region", machines, "barrier");
    let processes = Program::mpi_of_c("mpi/locks.c", "locks-mpi", &["-pthread"])?;
    for (name, what) in MPI {
        add(name, processes.clone(), what);
    }
    Ok(all)
}

/// The library, built where this is no smoke run.
pub(super) fn library(is_smoke: bool) -> Result<Library> {
    let library = match is_smoke {
        true => built_already()?,
        false => build_beside(LIBRARY.0)?.map(|folder| folder.join(LIBRARY.1)),
    };
    let library = found!(library);
    Ok(can_share(launch("--local 2", "auto", &library)?.with(["true"]))?.map(|()| library))
}

/// A program that includes `gossamer_region.h`, compiled with these words, on two machines; or why there are none here.
pub(super) fn machines(
    way: &str,
    source: &str,
    binary: &str,
    words: &[&str],
    library: &Library,
) -> Result<Found<Program>> {
    let library = found!(library.clone());
    let built = found!(built(source, binary, words)?);
    Ok(Ok(launch("--local 2", way, &library)?.with([built])))
}

/// A program that includes `gossamer_region.h`, compiled with these words.
pub(super) fn built(source: &str, binary: &str, words: &[&str]) -> Result<Found<PathBuf>> {
    let include = format!("-I{}", here("../gossamer/region/ffi/include").display());
    cc(source, binary, &[words, &[&include, "-pthread", "-ldl"]].concat())
}

/// The launcher with these options, which waits for a program.
pub(super) fn launch(options: &str, way: &str, library: &Path) -> Result<Program> {
    Ok(Program::own(&format!("run {options} --no-prefix --region {way}"))?.set(VARIABLE, library))
}

/// The library as tests of its own package, or a build of it, have left it.
fn built_already() -> Result<Library> {
    let own = own()?;
    let folder = own.parent().context("where this program is")?;
    let found = [folder.join("deps"), folder.to_owned()].map(|folder| folder.join(LIBRARY.1));
    let why = || format!("a smoke run does not build {} (cargo build --package {})", LIBRARY.1, LIBRARY.0);
    Ok(found.into_iter().find(|path| path.is_file()).ok_or_else(why))
}

/// Whether this program, which needs page faults handled, runs here; else why not.
pub(super) fn can_share(program: Program) -> Result<Found<()>> {
    let Err(error) = program.with_stderr().run() else { return Ok(Ok(())) };
    let told = format!("{error:#}");
    match told.lines().find(|line| line.contains("userfaultfd")) {
        Some(why) => Ok(Err(why.to_owned())),
        None => Err(error).context("a trial"),
    }
}
