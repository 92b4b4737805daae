//! Descriptors and streams, which are machine 0's: order of output and input, `exec`, refusals, and Debian's `sort`.

use std::fmt::Write;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use libtest_mimic::Failed;

use crate::{Place, THREE_TCP, TWO, WAYS, build, run, run_with_input, same, start, succeeded};

const STARTERS: [&[&str]; 3] = [&[], TWO, THREE_TCP];

fn source(place: &Place, name: &str) -> std::path::PathBuf {
    place.root.join("gossamer/region/ffi/tests/c").join(name)
}

/// Writes a file of standard input.
fn input(place: &Place, text: &str) -> Result<tempfile::NamedTempFile, Failed> {
    let file = tempfile::NamedTempFile::new_in(place.folder.path())?;
    std::fs::write(file.path(), text)?;
    Ok(file)
}

/// Threads of all machines share the buffers of the standard streams: reads and writes have the threads' order.
pub fn order_of_threads(place: &Place) -> Result<(), Failed> {
    const ROUNDS: usize = 50;
    let built = build(place, WAYS[0], &source(place, "ordered.c"))?;
    for starter in STARTERS {
        for threads in [2, 3, 5] {
            let (mut text, mut expected) = (String::new(), "begins ".to_owned());
            for turn in 0..threads * ROUNDS {
                writeln!(text, "{}", turn * 7)?;
                writeln!(expected, "turn {turn}: {}", turn * 7)?;
            }
            expected += "last ordered: ok\n";
            let input = input(place, &text)?;
            let mut command = start(place, starter, &built);
            let done = run_with_input(command.arg(threads.to_string()), Stdio::from(input.reopen()?))?;
            same(&format!("{command:?}"), succeeded(&done)?, &expected)?;
            let told = String::from_utf8_lossy(&done.stderr);
            let turns: Vec<usize> = told.lines().filter_map(|line| line.strip_prefix("turn ")?.parse().ok()).collect();
            if turns.len() != threads * ROUNDS / 10 || !turns.is_sorted() {
                return Err(format!("{command:?} tells {told}").into());
            }
        }
    }
    Ok(())
}

/// The same of C++'s streams, with the C library's buffers.
pub fn iostream(place: &Place) -> Result<(), Failed> {
    let built = tempfile::Builder::new().prefix("iostream").tempfile_in(place.folder.path())?.into_temp_path();
    let mut compiler = Command::new("g++");
    compiler.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O2", "-pthread"]).arg(source(place, "iostream.cpp"));
    if Command::new("g++").arg("--version").output().is_err() {
        println!("SKIPPED: there is no g++ (on Debian, `apt-get install g++`)");
        return Ok(());
    }
    succeeded(&run(compiler.arg("-o").arg(&*built))?)?;
    let mut expected = "begins ".to_owned();
    for thread in 0..6 {
        write!(expected, "thread {thread} has {}{}", 10 * thread, if thread % 2 == 1 { "\n" } else { ", " })?;
    }
    expected += "2000 lines\n";
    for starter in STARTERS {
        let (input, file) = (input(place, "0 10 20 30 40 50\n")?, input(place, "")?);
        let mut command = start(place, starter, &built);
        let done = run_with_input(command.arg(file.path()), Stdio::from(input.reopen()?))?;
        same(&format!("{command:?}"), succeeded(&done)?, &expected)?;
    }
    Ok(())
}

/// The process becomes another program, whose status is that of the whole.
pub fn exec(place: &Place) -> Result<(), Failed> {
    let built = build(place, WAYS[0], &source(place, "execs.c"))?;
    for starter in STARTERS {
        for (by, status) in [("main", 5), ("thread", 6)] {
            let mut command = start(place, starter, &built);
            let done = run(command.arg(by))?;
            if done.status.code() != Some(status) {
                return Err(format!("{command:?}: {done:?}").into());
            }
            same(&format!("{command:?}"), &String::from_utf8_lossy(&done.stdout), "before\nafter a pipe\n")?;
        }
    }
    Ok(())
}

/// A call that does not work in threads of other machines is told once, with the thread and the cure.
pub fn refused(place: &Place) -> Result<(), Failed> {
    let built = build(place, WAYS[0], &source(place, "ring.c"))?;
    let done = run(start(place, TWO, &built).arg("2"))?;
    same("ring", succeeded(&done)?, "ring: ok\n")?;
    let told = String::from_utf8_lossy(&done.stderr);
    let times = told.matches("io_uring_setup does not work in threads of other machines").count();
    if times == 1 && told.contains(" on machine 1 ") && told.contains("--local 1") { Ok(()) } else { Err(told.into()) }
}

/// Lines of a file that is not sorted.
fn lines(count: u64) -> String {
    let mut state = 1_u64;
    let mut text = String::new();
    for _ in 0..count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let _ = writeln!(text, "{:016x} line", state >> 3); // a string takes all
    }
    text
}

/// Debian's `sort` with two threads sorts as in one process, to standard output and to a file.
pub fn sort(place: &Place) -> Result<(), Failed> {
    let sort = Path::new("/usr/bin/sort");
    if !sort.exists() {
        println!("SKIPPED: there is no {}", sort.display());
        return Ok(());
    }
    for (starter, count) in [(TWO, 200_000), (THREE_TCP, 20_000)] {
        let text = lines(count);
        let mut expected: Vec<&str> = text.lines().collect();
        expected.sort_unstable();
        let expected = expected.join("\n") + "\n";
        let unsorted = input(place, &text)?;
        let to = input(place, "")?;
        for by_file in [false, true] {
            let mut command = start(place, starter, sort);
            command.env("LC_ALL", "C").args(["--parallel=2", "-S", "64M"]);
            if by_file {
                command.arg("-o").arg(to.path());
            }
            let done = run_with_input(&mut command, Stdio::from(File::open(unsorted.path())?))?;
            let stdout = succeeded(&done)?;
            let found = if by_file { std::fs::read_to_string(to.path())? } else { stdout.to_owned() };
            if found != expected {
                return Err(format!(
                    "{command:?} writes {} lines, not sorted as they should be",
                    found.lines().count()
                )
                .into());
            }
        }
    }
    Ok(())
}
