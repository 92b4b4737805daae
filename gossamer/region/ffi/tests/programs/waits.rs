//! Programs whose threads wait for one another by other means than POSIX's: C++'s own, OpenMP, `futex(2)`; and
//! processes that threads start. Each runs as one process and in all ways to have machines.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};

use crate::{ONE, Place, THREE_TCP, TWO, TWO_HOSTS, run, same, start, succeeded};

/// A program of `tests/c`: its file, compiler and flags.
type Program = (&'static str, &'static str, &'static [&'static str]);

const PROGRAMS: [Program; 4] = [
    ("futex.c", "gcc", &["-std=c11", "-pthread"]),
    ("waits.cpp", "g++", &["-std=c++20", "-pthread"]),
    ("openmp.c", "gcc", OPENMP),
    ("children.c", "gcc", &["-std=c11", "-pthread"]),
];

const OPENMP: &[&str] = &["-std=c11", "-fopenmp"];

const WAYS: [(&str, &[&str]); 5] =
    [("one_process", &[]), ("one", ONE), ("two", TWO), ("two_hosts", TWO_HOSTS), ("three_by_tcp", THREE_TCP)];

const THREADS: [&str; 2] = ["2", "5"];

/// Returns the reason why a program does not build here, if its compiler or a library of it is not there.
fn lack(compiler: &str, flags: &[&str]) -> Option<String> {
    let folder = tempfile::tempdir().ok()?;
    let (source, to) = (folder.path().join("empty.c"), folder.path().join("empty"));
    std::fs::write(&source, "int main(void) { return 0; }\n").ok()?;
    let language: &[&str] = if compiler == "g++" { &["-x", "c++"] } else { &[] };
    let done = Command::new(compiler).args(flags).args(language).arg(source).arg("-o").arg(to).output();
    match done {
        Ok(done) if done.status.success() => None,
        Ok(done) => Some(String::from_utf8_lossy(&done.stderr).into_owned()),
        Err(error) => Some(error.to_string()),
    }
}

pub fn trials(place: &Arc<Place>, has_machines: bool) -> Vec<Trial> {
    let sleeps = Arc::clone(place);
    let sleeps = Trial::test("waits::teams_sleep", move || lets_teams_sleep(&sleeps));
    let mut trials = vec![sleeps.with_ignored_flag(!has_machines)];
    for program in PROGRAMS {
        let (file, compiler, flags) = program;
        let lack = lack(compiler, flags);
        if let Some(cause) = &lack {
            println!("SKIPPED: {file} does not build by {compiler} {}: {}", flags.join(" "), cause.trim());
        }
        if flags == OPENMP {
            let (place, ignored) = (Arc::clone(place), lack.is_some() || !has_machines);
            let test = move || refuses_ordered(&place);
            trials.push(Trial::test("waits::ordered_is_refused", test).with_ignored_flag(ignored));
        }
        for (way, starter) in WAYS {
            let ignored = lack.is_some() || !has_machines && !starter.is_empty();
            let place = Arc::clone(place);
            let name = format!("waits::{way}::{}", file.replace('.', "_"));
            trials.push(Trial::test(name, move || is_right(&place, program, starter)).with_ignored_flag(ignored));
        }
    }
    trials
}

/// The launcher has waiting threads of OpenMP sleep where there are several machines.
fn lets_teams_sleep(place: &Place) -> Result<(), Failed> {
    for (starter, is_set) in [(ONE, false), (TWO, true), (THREE_TCP, true)] {
        let mut command = start(place, starter, Path::new("env"));
        let done = run(command.env_remove("OMP_WAIT_POLICY").env_remove("GOMP_SPINCOUNT"))?;
        if succeeded(&done)?.contains("OMP_WAIT_POLICY=passive\n") != is_set {
            return Err(format!("{starter:?}: {done:?}").into());
        }
    }
    Ok(())
}

/// Threads of several machines refuse the order of a loop.
fn refuses_ordered(place: &Place) -> Result<(), Failed> {
    let built = build(place, ("openmp_ordered.c", "gcc", OPENMP))?;
    for (starter, is_refused) in [(&[][..], false), (ONE, false), (TWO, true), (THREE_TCP, true)] {
        let done = run(start(place, starter, &built).arg("5"))?;
        let is_told = String::from_utf8_lossy(&done.stderr).contains("OpenMP's ordered does not work");
        let stdout = if is_refused { "" } else { "openmp_ordered: ok\n" };
        if (is_told, !done.status.success()) != (is_refused, is_refused) || done.stdout != stdout.as_bytes() {
            return Err(format!("{starter:?}: {done:?}").into());
        }
    }
    Ok(())
}

fn is_right(place: &Place, program: Program, starter: &[&str]) -> Result<(), Failed> {
    let built = build(place, program)?;
    let name = program.0.split('.').next().unwrap_or_default();
    for threads in THREADS {
        let mut command = start(place, starter, &built);
        // Threads of OpenMP that spin take the processors of those that they wait for.
        command.env("OMP_WAIT_POLICY", "passive");
        let done = run(command.arg(threads))?;
        same(&format!("{command:?}"), succeeded(&done)?, &format!("{name}: ok\n"))?;
    }
    Ok(())
}

fn build(place: &Place, (file, compiler, flags): Program) -> Result<PathBuf, Failed> {
    let built = tempfile::Builder::new().prefix("waits").tempfile_in(place.folder.path())?.into_temp_path().keep()?;
    let mut command = Command::new(compiler);
    command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-gdwarf-4"]).args(flags);
    command.arg(place.root.join("gossamer/region/ffi/tests/c").join(file)).arg("-o").arg(&built);
    succeeded(&run(&mut command)?)?;
    Ok(built)
}
