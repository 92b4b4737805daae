//! Four of the jobs as plain pthread programs in C (`examples/c/region`): two threads of one process, of two machines
//! that share the objects that the program names, and of two processes with a handler of SIGSEGV that fetches pages by
//! MPI (`benches/mpi/faults`). Sources, flags and inputs are the same.
//!
//! A sample is read from the program's own clock: from before its threads are created until all were joined. The answer
//! is its checksum.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::locks::{Library, VARIABLE, compile_here, launch, machines};
use super::run::Told;
use super::{Answer, Contender, mpi};
use crate::{echo::programs::own, rounds::Skipped};

/// Names, files, and sizes of a smoke run; else they are as large as the programs make them.
pub(super) const JOBS: [(&str, &str, u32); 4] = [
    ("matrix", "matrix_multiply", 48),
    ("strings", "string_match", 8192),
    ("regression", "linear_regression", 8192),
    ("histogram", "histogram", 8192),
];

/// Of the contenders of a job.
pub(super) fn names(job: &str) -> [String; 3] {
    ["2 threads", "region", "SIGSEGV and MPI"].map(|way| format!("{job} in C: {way}"))
}

/// All of them; of those that cannot be had here, why.
pub(super) fn contenders(is_smoke: bool, library: &Library, skipped: &mut Skipped) -> Result<Vec<Contender>> {
    let faults = Path::new(env!("CARGO_MANIFEST_DIR")).join("mpi/faults");
    let (shares, faults) = ("-DGOSSAMER_REGION", format!("-I{}", faults.display()));
    let mut all = vec![];
    for (job, file, size) in JOBS {
        let source = format!("../examples/c/region/{file}.c");
        let mut work = ["--threads", "2"].map(str::to_owned).to_vec();
        if is_smoke {
            work.extend(["--size".to_owned(), size.to_string()]);
        }
        let [threads, region, pages] = names(job);
        let mut add = |name, program: PathBuf, arguments: Vec<String>, library: Option<PathBuf>| {
            let arguments = with_clock(&program, [arguments, work.clone()].concat());
            let variable = library.map(|library| (VARIABLE, library.into()));
            let answer = Answer::AsOthers(format!("{job} in C"));
            all.push(Contender { name, program: SHELL.into(), arguments, variable, answer, told });
        };
        let plain = compile_here(&source, &format!("{file}-threads"), &["-pthread"])?;
        if let Some(plain) = skipped.sort(&threads, plain) {
            add(threads, plain, vec![], None);
        }
        let shared = machines(&source, &format!("{file}-region"), &[shares], library)?;
        if let Some((shared, library)) = skipped.sort(&region, shared) {
            let arguments = [launch("explicit"), vec![shared.display().to_string()]].concat();
            add(region, own()?, arguments, Some(library));
        }
        let fetched = mpi(&source, &format!("{file}-mpi"), &[shares, &faults])?;
        if let Some((mpirun, arguments)) = skipped.sort(&pages, fetched) {
            add(pages, mpirun, arguments, None);
        }
    }
    Ok(all)
}

const SHELL: &str = "/bin/sh";

/// The words by which a shell starts a program so that its clock's report, on standard error, is beside its output.
fn with_clock(program: &Path, arguments: Vec<String>) -> Vec<String> {
    let first = ["-c", "exec \"$@\" 2>&1", "sh"].map(str::to_owned);
    first.into_iter().chain([program.display().to_string()]).chain(arguments).collect()
}

/// `NAME: MILLISECONDS ms with N threads`, and `checksum HEXADECIMAL`.
fn told(output: &str) -> Option<Told> {
    let checksum = output.lines().find_map(|line| line.strip_prefix("checksum "))?;
    let clock =
        output.lines().find_map(|line| line.split_once(" ms with ")?.0.rsplit(' ').next()?.parse::<f64>().ok())?;
    Some(Told::Sample { ns: clock * 1e6, digest: u64::from_str_radix(checksum, 16).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_and_checksum_are_found() {
        let sample = |output: &str| match told(output) {
            Some(Told::Sample { ns, digest }) => Some((ns, digest)),
            _ => None,
        };
        let clock = "histogram: 1.250 ms with 2 threads\n";
        assert_eq!(sample(&format!("{clock}pixels 5\nchecksum 00ff\n")), Some((1.25e6, 255)));
        assert_eq!(sample(&format!("pixels 5\nchecksum ffffffffffffffff\n{clock}")), Some((1.25e6, u64::MAX)));
        assert_eq!((sample(clock), sample("checksum 00ff\n"), sample("checksum words\n")), (None, None, None));
    }
}
