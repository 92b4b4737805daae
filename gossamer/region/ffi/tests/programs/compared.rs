//! Programs of `tests/c/compared`, which know nothing of machines: over several machines each has the output and status
//! of a plain run, or ends with a status that is not 0 and a message that names the refused call.
//!
//! A file that is added to the folder is a test of its own. [`REFUSED`] lists the refused programs, [`FAILING`] those
//! that fail today: a program that no longer does fails its test, so that the list shrinks.

use std::path::Path;
use std::process::{Command, ExitStatus, Output};
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use crate::{LAUNCH, Place, RUN, run_within, start, succeeded};

/// Standard input of each program.
const INPUT: &[u8] = b"one\ntwo\nthree\n";

/// Longest time of a program that does not hang; each takes less than two seconds where nothing else runs.
const LIMIT: Duration = Duration::from_secs(20);

/// Starters, by name: one memory of one host, connections, and kernels of two hosts.
pub const STARTERS: [(&str, &[&str]); 3] = [
    ("shm", &[LAUNCH, RUN, "--local", "2", "--no-prefix", "--region", "auto"]),
    ("tcp", &[LAUNCH, RUN, "--local", "2", "--fabric", "tcp", "--no-prefix", "--region", "auto"]),
    ("hosts", &[LAUNCH, RUN, "--local", "2", "--pretend-hosts", "2", "--no-prefix", "--region", "auto"]),
];

/// Starters with threads that may move.
const ASKED: [(&str, &[&str]); 2] = [
    ("asked", &[LAUNCH, RUN, "--local", "2", "--no-prefix", "--region", "auto", "--move", "asked"]),
    (
        "asked_tcp",
        &[LAUNCH, RUN, "--local", "2", "--fabric", "tcp", "--no-prefix", "--region", "auto", "--move", "asked"],
    ),
];

/// The program that is refused where threads do not move: there each machine has thread-local variables of its own.
const REFUSED_WITHOUT_MOVES: &str = "thread_local_pointer";

/// Arguments of programs that have some: a test for each line of them.
const ARGUMENTS: [(&str, &[&str]); 2] = [
    (
        "process_ends",
        &[
            "err",
            "err thread",
            "errx",
            "errx thread",
            "error",
            "error thread",
            "_Exit",
            "_Exit thread",
            "quick",
            "quick thread",
            "abort",
            "abort thread",
            "assert",
            "assert thread",
            "segv",
            "segv thread",
            "exit",
            "exit thread",
            "kill",
            "kill thread",
            "exec",
            "exec thread",
            "pexit",
            "pexit thread",
        ],
    ),
    ("own_attributes", &["q", "p", "g", "v"]),
];

/// Flags of the compiler for programs that need some.
const FLAGS: [(&str, &[&str]); 4] = [
    ("nopie", &["-no-pie", "-fno-pie"]),
    ("openmp", &["-fopenmp"]),
    ("openmp_rounds", &["-fopenmp"]),
    ("openmp_copyin", &["-fopenmp"]),
];

/// Programs that end with a status that is not 0, because a call is refused, and words of the message about it.
const REFUSED: [(&str, &str); 8] = [
    ("jit", "mmap with PROT_EXEC does not work"),
    ("named_semaphore", "sem_open does not work"),
    ("sbrk", "sbrk does not work"),
    ("system_v_memory", "shmat does not work"),
    ("refused_goes_on", "ended by itself with status 0, but after a refused call (pthread_cancel by thread 0x6753"),
    ("thread_local_pointer", "which is a thread-local variable"),
    ("timer_thread", "timer_create with SIGEV_THREAD does not work"),
    ("vfork", "vfork in a thread of another machine than the first does not work"),
];

/// Programs that fail on at least one starter, in one of a few runs, and why.
const FAILING: &[(&str, &str)] = &[];

/// Runs of a program that fails at times, until one does.
const ROUNDS: usize = 5;

/// Outcome of a program on one starter.
pub enum Outcome {
    /// As plainly.
    Right,
    /// Another end than plainly, with a status that is not 0 and this standard error.
    Refused(String),
    /// Another output or status, or no end.
    Wrong(String),
}

/// Tests of all programs; `lacks` says whether a compiler or the launcher is missing.
pub fn trials(place: &Arc<Place>, lacks: &dyn Fn(&&str) -> bool) -> Vec<Trial> {
    let folder = place.root.join("gossamer/region/ffi/tests/c/compared");
    let files = std::fs::read_dir(&folder).expect("the folder of the programs").filter_map(Result::ok);
    let mut names: Vec<String> = files.filter_map(|file| file.file_name().into_string().ok()).collect();
    names.sort_unstable();
    let mut trials = Vec::new();
    for file in names {
        let Some((name, ending)) = file.split_once('.') else { continue };
        let compiler = if ending == "cpp" { "g++" } else { "gcc" };
        let lines = ARGUMENTS.iter().find(|(of, _)| *of == name).map_or(&[""][..], |(_, lines)| lines);
        for line in lines {
            for (group, starters) in [("compared", &STARTERS[..]), ("compared_asked", &ASKED[..])] {
                let (place, case) = (Arc::clone(place), format!("{name} {line}").trim_end().to_owned());
                let (source, line) = (folder.join(&file), *line);
                let title = format!("{group}::{}", case.replace(' ', "_"));
                let test = move || check(&place, compiler, &source, (&case, line), starters);
                trials.push(Trial::test(title, test).with_ignored_flag(lacks(&LAUNCH) || lacks(&compiler)));
            }
        }
    }
    trials
}

/// Runs one program plainly and on these starters.
fn check(
    place: &Place,
    compiler: &'static str,
    source: &Path,
    (case, arguments): (&str, &str),
    starters: &[(&str, &[&str])],
) -> Result<(), Failed> {
    let built = built(place, compiler, source)?;
    let words = || arguments.split_whitespace();
    let plain = run_within(Command::new(&built).args(words()), INPUT, limits::HANG)?;
    let plain = plain.ok_or_else(|| format!("{case}: the plain run does not end"))?;
    let refused = REFUSED.iter().find(|(of, _)| *of == case).map(|(_, message)| *message);
    let refused = refused.filter(|_| case != REFUSED_WITHOUT_MOVES || starters != ASKED);
    let failing = FAILING.iter().find(|(of, _)| *of == case).map(|(_, why)| *why);
    let rounds = if failing.is_some() { ROUNDS } else { 1 };
    // A hang that is known needs no certainty.
    let limit = if failing.is_some() { LIMIT } else { limits::bound(LIMIT) };
    let mut wrong = Vec::new();
    for (starter, starter_words) in starters.iter().cycle().take(starters.len() * rounds) {
        let mut command = start(place, starter_words, &built);
        let outcome = compare(&plain, run_within(command.args(words()), INPUT, limit)?);
        match (outcome, refused) {
            (Outcome::Right, None) => continue,
            (Outcome::Right, Some(_)) => wrong.push(format!("{starter}: right, and not refused as listed")),
            (Outcome::Refused(told), Some(message)) if told.contains(message) => continue,
            (Outcome::Refused(why) | Outcome::Wrong(why), _) => wrong.push(format!("{starter}: {why}")),
        }
        if failing.is_some() {
            break;
        }
    }
    match (wrong.is_empty(), failing) {
        (true, Some(why)) => Err(format!("{case}: no longer fails ({why}): take it off the list").into()),
        (false, None) => Err(format!("{case}: {}", wrong.join("\n")).into()),
        (true, None) | (false, Some(_)) => Ok(()),
    }
}

/// The status of a machine, or of a program that a shell has started.
fn status_of(ended: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    ended.code().or_else(|| ended.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

/// Compares a run over machines, if it has ended, with a plain one.
pub fn compare(plain: &Output, over: Option<Output>) -> Outcome {
    let Some(over) = over else { return Outcome::Wrong("it hangs".to_owned()) };
    let (expected, found) = (status_of(plain.status), status_of(over.status));
    if expected == found && plain.stdout == over.stdout {
        return Outcome::Right;
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let told = text(&over.stderr);
    let is_told = told.lines().any(|line| line.starts_with("gossamer"));
    match found != 0 && is_told {
        true => Outcome::Refused(format!("status {found}\n{}\n{told}", text(&over.stdout))),
        false => Outcome::Wrong(format!(
            "status {found} and not {expected}; it prints\n{}\nand not\n{}\n{told}",
            text(&over.stdout),
            text(&plain.stdout)
        )),
    }
}

/// Builds a program, without a look at its style.
fn built(place: &Place, compiler: &'static str, source: &Path) -> Result<std::path::PathBuf, Failed> {
    let name = source.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    let flags = FLAGS.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, flags)| flags);
    let standard = if compiler == "g++" { "-std=c++20" } else { "-std=gnu17" };
    place.build_once((source.to_owned(), compiler, flags, None), |program| {
        let mut command = Command::new(compiler);
        command.args([standard, "-O1", "-w", "-pthread"]).args(flags).arg(source).arg("-o").arg(program).arg("-lm");
        succeeded(&crate::run(&mut command)?)?;
        Ok(())
    })
}
