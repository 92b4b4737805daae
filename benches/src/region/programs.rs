//! Four of the jobs as plain pthread programs in C (`examples/c/region`): two threads of one process, of two machines
//! that share the objects that the program names, and of two processes with a handler of SIGSEGV that fetches pages by
//! MPI (`benches/mpi/faults`). Sources, flags and inputs are the same.
//!
//! A sample is read from the program's own clock: from before its threads are created until all were joined. The answer
//! is its checksum.

use super::locks::{Library, machines};
use super::run::Told;
use super::{Answer, Contender};
use crate::prelude::*;
use crate::programs::{cc, here};

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
    let (shares, faults) = ("-DGOSSAMER_REGION", format!("-I{}", here("mpi/faults").display()));
    let mut all = vec![];
    for (job, file, size) in JOBS {
        let source = format!("../examples/c/region/{file}.c");
        let binary = |way: &str| format!("{file}-{way}");
        let ways = [
            cc(&source, &binary("threads"), &["-pthread"])?.map(Program::at),
            machines("explicit", &source, &binary("region"), &[shares], library)?,
            Program::mpi_of_c(&source, &binary("mpi"), &[shares, &faults, "-pthread"])?,
        ];
        for (name, program) in names(job).into_iter().zip(ways) {
            let Some(program) = skipped.sort(&name, program) else { continue };
            let program = program.say("--threads 2");
            let program = if is_smoke { program.say(&format!("--size {size}")) } else { program };
            // Its clock reports on standard error.
            let (program, answer) = (program.with_stderr(), Answer::AsOthers(format!("{job} in C")));
            all.push(Contender { name, program, answer, told });
        }
    }
    Ok(all)
}

/// `NAME: MILLISECONDS ms with N threads`, and `checksum HEXADECIMAL`.
pub(super) fn told(output: &str) -> Option<Told> {
    let checksum = output.lines().find_map(|line| line.strip_prefix("checksum "))?;
    let clock =
        output.lines().find_map(|line| line.split_once(" ms with ")?.0.rsplit(' ').next()?.parse::<f64>().ok())?;
    Some(Told { ns: clock * 1e6, digest: u64::from_str_radix(checksum, 16).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_and_checksum_are_found() {
        let sample = |output: &str| told(output).map(|Told { ns, digest }| (ns, digest));
        let clock = "histogram: 1.250 ms with 2 threads\n";
        assert_eq!(sample(&format!("{clock}pixels 5\nchecksum 00ff\n")), Some((1.25e6, 255)));
        assert_eq!(sample(&format!("pixels 5\nchecksum ffffffffffffffff\n{clock}")), Some((1.25e6, u64::MAX)));
        assert_eq!((sample(clock), sample("checksum 00ff\n"), sample("checksum words\n")), (None, None, None));
    }
}
