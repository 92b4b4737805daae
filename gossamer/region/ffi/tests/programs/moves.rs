//! Threads that go on on other machines by their own calls (`--move asked`), and the ties that keep them.

use std::path::PathBuf;
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};

use crate::{LAUNCH, Place, RUN, THREE_TCP_ASKED, TWO, TWO_ASKED, run, same, start, succeeded};

/// Machines of two hosts, whose memories are their own.
const TWO_HOSTS_ASKED: &[&str] =
    &[LAUNCH, RUN, "--local", "2", "--pretend-hosts", "2", "--no-prefix", "--region", "auto", "--move", "asked"];
const TWO_TCP_ASKED: &[&str] =
    &[LAUNCH, RUN, "--local", "2", "--fabric", "tcp", "--no-prefix", "--region", "auto", "--move", "asked"];

/// Ways with their machines, and moves of a loop.
const WAYS: [(&str, &[&str], &str, &str); 4] = [
    ("shm", TWO_ASKED, "2", "300"),
    ("tcp", TWO_TCP_ASKED, "2", "300"),
    ("two_hosts", TWO_HOSTS_ASKED, "2", "200"),
    ("three_by_tcp", THREE_TCP_ASKED, "3", "200"),
];

/// Ways of threads that others ask, with their machines, and their moves.
const ASKED_WAYS: [(&str, &[&str], &str, &str); 3] =
    [("shm", TWO_ASKED, "2", "200"), ("tcp", TWO_TCP_ASKED, "2", "200"), ("two_hosts", TWO_HOSTS_ASKED, "2", "100")];

/// Ways of threads that others ask amid their own code.
const ANYWHERE_WAYS: [(&str, &[&str], &str, &str); 2] =
    [("shm", TWO_ASKED, "2", "60"), ("tcp", TWO_TCP_ASKED, "2", "60")];

/// A reason for which a thread stays, and what the message says of it.
const TIES: [(&str, &str); 12] = [
    ("main", "it is the main thread, in whose storage constructors may have left addresses; move threads of"),
    ("hold", "gsm_thread_hold holds it; call gsm_thread_free before"),
    ("handler", "a handler of a signal runs, or was left by siglongjmp; have the handler set a variable"),
    ("fault", "a handler of a signal runs, or was left by siglongjmp; have the handler set a variable"),
    ("end", "its function has ended, and destructors run; move before"),
    ("locale", "it has a locale of its own (uselocale), whose tables are this machine's; call uselocale"),
    ("made_locale", "it has made a locale (newlocale, duplocale), whose tables are this machine's; call freelocale"),
    ("conversion", "it has made a conversion (iconv_open), whose code is this machine's; call iconv_close before"),
    ("processors", "it is bound to processors of this machine; let it use all of them"),
    ("policy", "it has another scheduling policy than SCHED_OTHER; set that before"),
    ("callback", "a function of the C library has called it back, and may hold a lock of this machine; move when"),
    ("library", "the program has loaded a library while it runs (dlopen), which machine 0 alone knows whole; link"),
];

/// Parts of a thread that the system or the C library keeps for its host.
const PARTS: [&str; 8] = ["magazines", "signals", "timer", "flags", "rounding", "own_clock", "processors", "room"];

/// Variable with the number of times that two threads swap their machines, if not the default.
const SWAPS: &str = "GOSSAMER_REGION_SWAPS";

pub fn trials(place: &Arc<Place>, is_ignored: bool) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (way, starter, machines, moves) in WAYS {
        for (file, compiler) in [("moves.c", "gcc"), ("moves.cpp", "g++")] {
            let place = Arc::clone(place);
            let test = move || {
                let built = build(&place, file, compiler)?;
                let done = run(start(&place, starter, &built).args([machines, moves]))?;
                let expected = if file == "moves.c" { "moves: ok\n".to_owned() } else { of_cpp(machines) };
                same(file, succeeded(&done)?, &expected)
            };
            let name = format!("moves::{way}::{}", file.replace('.', "_"));
            trials.push(Trial::test(name, test).with_ignored_flag(is_ignored));
        }
    }
    let asked_files = ASKED_WAYS.map(|way| (way, ("asked.c", "gcc")));
    let amid_code =
        ANYWHERE_WAYS.into_iter().flat_map(|way| [(way, ("anywhere.c", "gcc")), (way, ("anywhere.cpp", "g++"))]);
    for ((way, starter, machines, times), (file, compiler)) in asked_files.into_iter().chain(amid_code) {
        let place = Arc::clone(place);
        let test = move || asked(&place, (file, compiler), starter, [machines, times]);
        let name = format!("moves::{way}::{}", file.replace('.', "_"));
        trials.push(Trial::test(name, test).with_ignored_flag(is_ignored));
    }
    for (reason, message) in TIES {
        let place = Arc::clone(place);
        let test = move || ties(&place, reason, message);
        trials.push(Trial::test(format!("moves::tied_{reason}"), test).with_ignored_flag(is_ignored));
    }
    for part in PARTS {
        let place = Arc::clone(place);
        let test = move || keeps(&place, part);
        trials.push(Trial::test(format!("moves::keeps_{part}"), test).with_ignored_flag(is_ignored));
    }
    let others: [(&str, crate::Test); 6] = [
        ("moves::never", never),
        ("moves::user_is_refused", refuses_users),
        ("moves::overflow", overflows),
        ("moves::swaps", swaps),
        ("moves::clock_is_refused", refuses_clocks),
        ("moves::tied_in_constructor", ties_constructors),
    ];
    for (name, test) in others {
        let place = Arc::clone(place);
        trials.push(Trial::test(name, move || test(&place)).with_ignored_flag(is_ignored));
    }
    trials
}

/// The output of `moves.cpp`: a thread has begun on each machine.
fn of_cpp(machines: &str) -> String {
    let count: usize = machines.parse().unwrap_or_default();
    ["moves: ok\n".to_owned(), "registered elsewhere\n".repeat(count)].concat()
}

pub fn build(place: &Place, file: &str, compiler: &str) -> Result<PathBuf, Failed> {
    let built = tempfile::Builder::new().prefix("moves").tempfile_in(place.folder.path())?.into_temp_path().keep()?;
    let package = place.root.join("gossamer/region/ffi");
    let mut command = std::process::Command::new(compiler);
    if file == "loaded.c" {
        command.args(["-shared", "-fPIC"]);
    }
    let standard = if compiler == "g++" { "-std=c++20" } else { "-std=c11" };
    command.args([standard, "-O2", "-Wall", "-Wextra", "-Werror", "-gdwarf-4", "-fstack-protector-all", "-pthread"]);
    command
        .arg("-I")
        .arg(package.join("include"))
        .arg(package.join("tests/c").join(file))
        .arg("-o")
        .arg(&built)
        .arg("-lm");
    succeeded(&run(&mut command)?)?;
    Ok(built)
}

/// Threads go where others ask them to, at their calls and amid their code.
fn asked(place: &Place, (file, compiler): (&str, &str), starter: &[&str], words: [&str; 2]) -> Result<(), Failed> {
    let built = build(place, file, compiler)?;
    let done = run(start(place, starter, &built).args(words))?;
    let name = file.split('.').next().unwrap_or_default();
    same(file, succeeded(&done)?, &format!("{name}: ok\n"))?;
    let told = String::from_utf8_lossy(&done.stderr);
    // The programs in C have threads that stay.
    match compiler == "g++" || told.contains("gsm_thread_move_other: thread 0x6753") {
        true => Ok(()),
        false => Err(format!("nothing tells why a thread stays: {told}").into()),
    }
}

/// A thread that is tied stays, is told to what, and goes when it no longer is.
fn ties(place: &Place, reason: &str, message: &str) -> Result<(), Failed> {
    let built = build(place, "tied.c", "gcc")?;
    for starter in [TWO_ASKED, TWO_TCP_ASKED] {
        let done = run(start(place, starter, &built).arg(reason))?;
        let told = String::from_utf8_lossy(&done.stderr);
        let is_told = |line: &str| line.contains("gsm_thread_move: thread 0x6753") && line.contains(message);
        if !told.lines().any(is_told) {
            return Err(format!("{starter:?}: {done:?}").into());
        }
        same(reason, succeeded(&done)?, "tied: ok\n")?;
    }
    Ok(())
}

/// A part of a thread is there on the other machine, and its host keeps nothing of it for the next one.
fn keeps(place: &Place, part: &str) -> Result<(), Failed> {
    let built = build(place, "moved.c", "gcc")?;
    for starter in [TWO_ASKED, TWO_TCP_ASKED] {
        let done = run(start(place, starter, &built).arg(part))?;
        same(part, succeeded(&done)?, "moved: ok\n")?;
    }
    Ok(())
}

/// The clock of a thread that has gone to another machine is not here.
fn refuses_clocks(place: &Place) -> Result<(), Failed> {
    let built = build(place, "moved.c", "gcc")?;
    let done = run(start(place, TWO_ASKED, &built).arg("clock"))?;
    let told = String::from_utf8_lossy(&done.stderr);
    match told.contains("pthread_getcpuclockid of a thread of another machine does not work") {
        true if !done.status.success() && done.stdout == b"moved: ok\n" => Ok(()),
        _ => Err(format!("{done:?}").into()),
    }
}

/// A constructor of a library that is being loaded cannot move its thread; one that could not be loaded ties none.
fn ties_constructors(place: &Place) -> Result<(), Failed> {
    let (built, library) = (build(place, "tied.c", "gcc")?, build(place, "loaded.c", "gcc")?);
    for reason in ["constructor", "no_library"] {
        let done = run(start(place, TWO_ASKED, &built).arg(reason).arg(&library))?;
        same(reason, succeeded(&done)?, "tied: ok\n")?;
    }
    Ok(())
}

/// Without the option no thread moves, and a call says so.
fn never(place: &Place) -> Result<(), Failed> {
    let built = build(place, "tied.c", "gcc")?;
    let done = run(start(place, TWO, &built).arg("hold"))?;
    let told = String::from_utf8_lossy(&done.stderr);
    match told.contains("gsm_thread_move does not work in a program whose threads stay; start it with --move asked") {
        true if !done.status.success() => Ok(()),
        _ => Err(format!("{done:?}").into()),
    }
}

/// The C library would wait for threads that it does not know.
fn refuses_users(place: &Place) -> Result<(), Failed> {
    let built = build(place, "tied.c", "gcc")?;
    let done = run(start(place, TWO_ASKED, &built).arg("user"))?;
    let told = String::from_utf8_lossy(&done.stderr);
    match told.contains("setuid with --move asked does not work") && done.stdout == b"tied: ok\n" {
        true if !done.status.success() => Ok(()),
        _ => Err(format!("{done:?}").into()),
    }
}

/// A stack has a guard on the machine to which its thread has gone: a fault there, that ends the program if nothing
/// handles it.
fn overflows(place: &Place) -> Result<(), Failed> {
    let built = build(place, "tied.c", "gcc")?;
    for starter in [TWO_ASKED, TWO_TCP_ASKED] {
        let done = run(start(place, starter, &built).arg("overflow"))?;
        same("overflow", succeeded(&done)?, "tied: ok\n")?;
        let done = run(start(place, starter, &built).arg("overflow_unhandled"))?;
        // The first thread begins on machine 1.
        let told = String::from_utf8_lossy(&done.stderr);
        let is_told = |line: &str| line.contains("machine 0 ") && line.contains("was killed by signal 11 (SIGSEGV)");
        if done.status.code() != Some(128 + 11) || !told.lines().any(is_told) || !done.stdout.is_empty() {
            return Err(format!("{starter:?}: {done:?}").into());
        }
    }
    Ok(())
}

/// Two threads swap their machines again and again.
fn swaps(place: &Place) -> Result<(), Failed> {
    let built = build(place, "swaps.c", "gcc")?;
    let times = std::env::var(SWAPS).unwrap_or_else(|_| "100".to_owned());
    for starter in [TWO_ASKED, TWO_TCP_ASKED] {
        let done = run(start(place, starter, &built).arg(&times))?;
        same("swaps", succeeded(&done)?, "swaps: ok\n")?;
    }
    Ok(())
}
