//! C programs for regions, built and run unchanged, as one process and on several machines: the seven workloads of
//! `examples/c/region` and the pthread programs of `gossamer/region/ffi/tests/c`. [`oracle`] computes the expected
//! output; that of [`compared`] and [`generated`] programs is the output of a plain run.
//!
//! Tests whose tools or kernel features this machine lacks are reported and count as ignored.

mod asks;
mod before;
mod compared;
mod files;
mod generated;
mod hangs;
mod killed;
mod moves;
mod oracle;
mod rack;
mod symbols;
mod told;
mod waits;
mod wrong;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use oracle::{Input, WORKLOADS};

/// Longest time of one run; under valgrind some take seconds.
const LIMIT: Duration = limits::HANG;
/// Threads of programs on two machines.
const THREADS: [&str; 3] = ["1", "2", "5"];
/// Threads of all other programs: each machine has a thread, and some have two.
const FEW_THREADS: [&str; 1] = ["5"];
/// Programs of `gossamer/region/ffi/tests/c`.
const PTHREADS: [&str; 24] = [
    "atomics",
    "barriers",
    "c11",
    "cleanup",
    "constructors",
    "descriptors",
    "destroyed",
    "ends",
    "environ",
    "files",
    "futex",
    "heap",
    "list",
    "locks",
    "mappings",
    "once",
    "print",
    "process",
    "queue",
    "random",
    "returned",
    "rwlock",
    "semaphore",
    "streams",
];

/// A way to build and run programs.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    compiler: &'static str,
    flags: &'static [&'static str],
    /// Folder of the header with `gsm_region_share`, for programs that use it.
    shares: Option<&'static str>,
    /// Words before the program.
    starter: &'static [&'static str],
    runs: Runs,
}

/// A single test.
type Test = fn(&Place) -> Result<(), Failed>;

impl Way {
    fn threads(&self) -> &'static [&'static str] {
        if self.starter == TWO { &THREADS } else { &FEW_THREADS }
    }
}

/// Placeholder for the launcher among the words of a starter: this test, which acts as the launcher where its first
/// argument is [`RUN`].
const LAUNCH: &str = "gossamer-launch";
const RUN: &str = "run";

/// Time for which a machine of this host may be silent.
const SILENCE_SECONDS: &str = "30";

/// Programs to run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runs {
    All,
    /// All but those of `PTHREADS`.
    Workloads,
    /// All but `locks`, which contains intended errors, and `c11`, whose calls ThreadSanitizer does not know.
    Correct,
}

/// A detached thread that is still ending as the program ends has a block that valgrind calls possibly lost.
const VALGRIND: &[&str] =
    &["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect"];

/// The header that programs use, and its stand-in.
const HEADER: Option<&str> = Some("include");
const FORKED: Option<&str> = Some("tests/programs/forked");

const TWO: &[&str] = &[LAUNCH, RUN, "--local", "2", "--no-prefix", "--region", "auto"];
/// Machines of one host that act as those of two.
const TWO_HOSTS: &[&str] = &[LAUNCH, RUN, "--local", "2", "--pretend-hosts", "2", "--no-prefix", "--region", "auto"];
const THREE_TCP: &[&str] = &[LAUNCH, RUN, "--local", "3", "--fabric", "tcp", "--no-prefix", "--region", "auto"];

/// Threads have their storage in the region.
const TWO_ASKED: &[&str] = &[LAUNCH, RUN, "--local", "2", "--no-prefix", "--region", "auto", "--move", "asked"];
const THREE_TCP_ASKED: &[&str] =
    &[LAUNCH, RUN, "--local", "3", "--fabric", "tcp", "--no-prefix", "--region", "auto", "--move", "asked"];

/// Nothing travels, and there are no page servers.
const ONE: &[&str] = &[LAUNCH, RUN, "--local", "1", "--no-prefix", "--region", "auto"];

const TWO_EXPLICIT: &[&str] = &[LAUNCH, RUN, "--local", "2", "--no-prefix", "--region", "explicit"];
const THREE_TCP_EXPLICIT: &[&str] =
    &[LAUNCH, RUN, "--local", "3", "--fabric", "tcp", "--no-prefix", "--region", "explicit"];

/// Workloads that name their shared ranges, started by `starter`.
const fn explicit(name: &'static str, shares: Option<&'static str>, starter: &'static [&'static str]) -> Way {
    Way { name, compiler: "gcc", flags: &["-O2"], shares, starter, runs: Runs::Workloads }
}

/// All programs, where threads may move.
const fn asked(name: &'static str, starter: &'static [&'static str]) -> Way {
    Way { name, compiler: "gcc", flags: &["-O2"], shares: None, starter, runs: Runs::All }
}

const WAYS: [Way; 13] = [
    Way { name: "two_machines", compiler: "gcc", flags: &["-O2"], shares: None, starter: TWO, runs: Runs::All },
    Way { name: "three_by_tcp", compiler: "gcc", flags: &["-O2"], shares: None, starter: THREE_TCP, runs: Runs::All },
    asked("asked_two_machines", TWO_ASKED),
    asked("asked_three_by_tcp", THREE_TCP_ASKED),
    Way { name: "gcc", compiler: "gcc", flags: &["-O2"], shares: None, starter: &[], runs: Runs::All },
    Way { name: "clang", compiler: "clang", flags: &["-O2"], shares: None, starter: &[], runs: Runs::All },
    explicit("explicit_two_machines", HEADER, TWO_EXPLICIT),
    explicit("explicit_three_by_tcp", HEADER, THREE_TCP_EXPLICIT),
    explicit("explicit_one_process", HEADER, &[]),
    explicit("explicit_forked", FORKED, &[]),
    Way {
        name: "asan",
        compiler: "gcc",
        flags: &["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
        shares: None,
        starter: &[],
        runs: Runs::All,
    },
    Way {
        name: "tsan",
        compiler: "gcc",
        flags: &["-O1", "-fsanitize=thread"],
        shares: None,
        starter: &[],
        runs: Runs::Correct,
    },
    Way { name: "valgrind", compiler: "gcc", flags: &["-O1"], shares: None, starter: VALGRIND, runs: Runs::All },
];

/// A program with its compiler, flags and folder of the header: programs that agree in these are the same.
type Recipe = (PathBuf, &'static str, &'static [&'static str], Option<&'static str>);

/// A program, or the reason why it does not build. Empty until somebody wants it.
type Built = Arc<OnceLock<Result<PathBuf, String>>>;

/// The repository, and a folder for built programs.
struct Place {
    root: PathBuf,
    folder: tempfile::TempDir,
    built: Mutex<HashMap<Recipe, Built>>,
    launcher: PathBuf,
    /// The library that the launcher preloads.
    library: PathBuf,
}

fn main() -> ExitCode {
    match std::env::args().nth(1) {
        Some(word) if [RUN, "keygen", "threads", "move", "top"].contains(&word.as_str()) => {
            return gossamer_daemon::cli::main();
        }
        Some(word) if rack::is_of_daemon(&word) => return gossamer_daemon::cli::daemon::main(),
        _ => {}
    }
    let arguments = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().expect("the workspace");
    let folder = tempfile::tempdir().expect("a folder for the programs");
    // The tested library lies beside it.
    let launcher = std::env::current_exe().expect("this test's file");
    let library = launcher.with_file_name("libgossamer_region_c.so");
    let place = Arc::new(Place { root, folder, built: Mutex::default(), launcher, library });
    let cannot = match arguments.list {
        true => None,
        false => cannot_share(&place).expect("the launcher"),
    };
    let conclusion = libtest_mimic::run(&arguments, trials(&place, cannot.as_deref()));
    drop(place);
    conclusion.exit_code()
}

/// Returns the reason why machines here cannot share memory by page faults, if they cannot.
fn cannot_share(place: &Place) -> Result<Option<String>, Failed> {
    let done = run(&mut start(place, TWO, Path::new("true")))?;
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    Ok((!done.status.success() && told.contains("userfaultfd")).then_some(told))
}

fn trials(place: &Arc<Place>, cannot_share: Option<&str>) -> Vec<Trial> {
    let lacking: Vec<&str> = ["gcc", "g++", "clang", "valgrind"]
        .into_iter()
        .filter(|program| !Command::new(program).arg("--version").output().is_ok_and(|done| done.status.success()))
        .collect();
    for program in &lacking {
        println!("SKIPPED: there is no {program} (on Debian, `apt-get install {program}`)");
    }
    if let Some(cause) = cannot_share {
        println!("SKIPPED: no memory over several machines: {cause}");
    }
    let lacks = |name: &&str| lacking.contains(name) || *name == LAUNCH && cannot_share.is_some();
    let mut trials = Vec::new();
    for way in WAYS {
        let ignored = lacks(&way.compiler) || way.starter.first().is_some_and(lacks);
        for name in WORKLOADS {
            let place = Arc::clone(place);
            let test = move || workload(&place, way, name);
            trials.push(Trial::test(format!("{}::{name}", way.name), test).with_ignored_flag(ignored));
        }
        for name in PTHREADS {
            if way.runs == Runs::All || way.runs == Runs::Correct && !["c11", "locks"].contains(&name) {
                let place = Arc::clone(place);
                let test = move || pthreads(&place, way, name);
                trials.push(Trial::test(format!("{}::{name}", way.name), test).with_ignored_flag(ignored));
            }
        }
    }
    for way in WAYS.into_iter().filter(|way| way.shares == HEADER) {
        let here = Arc::clone(place);
        let ignored = lacks(&"gcc") || way.starter.first().is_some_and(lacks);
        let test = move || pthreads(&here, way, "named");
        trials.push(Trial::test(format!("{}::named", way.name), test).with_ignored_flag(ignored));
    }
    trials.extend(compared::trials(place, &lacks));
    trials.extend(generated::trials(place, lacks(&LAUNCH) || lacks(&"gcc")));
    let here = Arc::clone(place);
    let test = move || pthreads(&here, explicit("named", HEADER, TWO), "named");
    trials.push(Trial::test("two_machines::named", test).with_ignored_flag(lacks(&LAUNCH) || lacks(&"gcc")));
    let others: [(&str, Test); 22] = [
        ("two_machines::ended", ended),
        ("two_machines::handed_on", handed_on),
        ("files::order_of_threads", files::order_of_threads),
        ("files::iostream", files::iostream),
        ("files::exec", files::exec),
        ("files::refused", files::refused),
        ("files::sort", files::sort),
        ("two_machines::functions_of_threads_are_known", symbols::are_known),
        ("two_machines::fails", fails),
        ("two_machines::memory", memory),
        ("two_machines::sizes_share_memory", sizes_share_memory),
        ("two_machines::own_condition_variables_are_told", told::own_condition_variables_are_told),
        ("two_machines::refused", refused),
        ("two_machines::threads_start_where_they_are_told", threads_at),
        ("two_machines::many_threads", many_threads),
        ("two_machines::overflow", overflow),
        ("two_machines::few_addresses_are_told", told::few_addresses_are_told),
        ("two_machines::hottest_page_is_named", told::hottest_page_is_named),
        ("two_machines::barriers_send_one_message_a_machine", told::barriers_send_one_message_a_machine),
        ("two_machines::timed_a_machine_killed_amid_faults", killed::amid_faults),
        ("rack::programs", rack::programs),
        ("rack::files_are_sent", rack::files_are_sent),
    ];
    for name in ["barriers", "locks", "named"] {
        let here = Arc::clone(place);
        let test = move || pthreads(&here, explicit("one_machine", HEADER, ONE), name);
        trials
            .push(Trial::test(format!("one_machine::{name}"), test).with_ignored_flag(lacks(&LAUNCH) || lacks(&"gcc")));
    }
    for (name, test) in others {
        let here = Arc::clone(place);
        let ignored = lacks(&LAUNCH) || lacks(&"gcc");
        trials.push(Trial::test(name, move || test(&here)).with_ignored_flag(ignored));
    }
    let cannot_change_clocks = rack::cannot_change_clocks();
    if let Some(cause) = &cannot_change_clocks {
        println!("SKIPPED: no host with clocks of its own: {cause}");
    }
    let here = Arc::clone(place);
    let ignored = lacks(&LAUNCH) || lacks(&"gcc") || cannot_change_clocks.is_some();
    trials.push(Trial::test("rack::clocks", move || rack::clocks(&here)).with_ignored_flag(ignored));
    trials.extend(before::trials(place, lacks));
    trials.extend(waits::trials(place, cannot_share.is_none()));
    trials.extend(moves::trials(place, lacks(&LAUNCH) || lacks(&"gcc") || lacks(&"g++")));
    trials.extend(asks::trials(place, lacks(&LAUNCH) || lacks(&"gcc")));
    trials.extend(hangs::trials(place, cannot_share.is_none() && !lacks(&"gcc")));
    for (compiler, flags) in HEADER_FLAGS {
        let here = Arc::clone(place);
        let ignored = !Command::new(compiler).arg("--version").output().is_ok_and(|done| done.status.success());
        let test = move || header(&here, compiler, flags);
        trials.push(Trial::test(format!("header::{compiler}"), test).with_ignored_flag(ignored));
    }
    for name in WORKLOADS {
        let place = Arc::clone(place);
        let test = move || {
            let built = build(&place, WAYS[2], &place.root.join("examples/c/region").join(format!("{name}.c")))?;
            wrong::arguments(&built, name)
        };
        trials.push(Trial::test(format!("arguments::{name}"), test).with_ignored_flag(lacks(&"gcc")));
    }
    trials
}

/// Builds a program, once for all ways that build it alike.
fn build(place: &Place, way: Way, source: &Path) -> Result<PathBuf, Failed> {
    place.build_once((source.to_owned(), way.compiler, way.flags, way.shares), |built| {
        compile(place, way, source, built)
    })
}

impl Place {
    /// Builds the program of a recipe, if it has not been built.
    fn build_once(&self, recipe: Recipe, compile: impl FnOnce(&Path) -> Result<(), Failed>) -> Result<PathBuf, Failed> {
        let built = Arc::clone(self.built.lock().unwrap_or_else(PoisonError::into_inner).entry(recipe).or_default());
        let compiled = || {
            let file = tempfile::Builder::new().prefix("program").tempfile_in(self.folder.path())?;
            let built = file.into_temp_path().keep()?;
            compile(&built).map(|()| built)
        };
        let compiled = || compiled().map_err(|why: Failed| why.message().unwrap_or_default().to_owned());
        built.get_or_init(compiled).clone().map_err(Failed::from)
    }
}

fn compile(place: &Place, way: Way, source: &Path, built: &Path) -> Result<(), Failed> {
    let mut command = Command::new(way.compiler);
    // The oldest form of debug information, which valgrind reads from any compiler.
    command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-gdwarf-4", "-pthread"]).args(way.flags);
    if let Some(folder) = way.shares {
        command.arg("-DGOSSAMER_REGION").arg("-I");
        command.arg(place.root.join("gossamer/region/ffi").join(folder));
    }
    succeeded(&run(command.arg(source).arg("-o").arg(built).arg("-lm"))?)?;
    Ok(())
}

fn start(place: &Place, starter: &[&str], program: &Path) -> Command {
    let mut command = match starter.split_first() {
        Some((&LAUNCH, words)) => {
            let mut launcher = Command::new(&place.launcher);
            launcher.env("GOSSAMER_REGION_LIBRARY", &place.library);
            match words.split_first() {
                // Beside other tests a machine may have no core for seconds, and would count as dead.
                Some((action, options)) if options.contains(&"--local") => {
                    launcher.args([action, "--silence", SILENCE_SECONDS]).args(options)
                }
                _ => launcher.args(words),
            };
            launcher.arg(program);
            launcher
        }
        Some((other, words)) => {
            let mut other = Command::new(other);
            other.args(words).arg(program);
            other
        }
        None => Command::new(program),
    };
    // Over connections a page takes many times as long, and its order is decided by the same code.
    let is_far = starter.contains(&"tcp") || starter.contains(&"--rack");
    command.env("LITMUS_ROUNDS", if is_far { "250" } else { "1000" });
    command.env("TMPDIR", place.folder.path());
    command
}

/// Flags for compiling the header; all warnings are errors.
const HEADER_FLAGS: [(&str, &[&str]); 4] = [
    ("gcc", &["-std=c11", "-D_POSIX_C_SOURCE=200809L"]),
    ("clang", &["-std=c11", "-D_GNU_SOURCE"]),
    ("g++", &["-x", "c++", "-std=c++11"]),
    ("clang++", &["-x", "c++", "-std=c++17"]),
];

/// The header compiles with nothing but its own includes, and works without the launcher.
fn header(place: &Place, compiler: &str, flags: &[&str]) -> Result<(), Failed> {
    let built = tempfile::Builder::new().prefix("header").tempfile_in(place.folder.path())?.into_temp_path();
    let package = place.root.join("gossamer/region/ffi");
    let mut command = Command::new(compiler);
    command.args(flags).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread", "-I"]);
    command.arg(package.join("include")).arg(package.join("tests/c/header.c")).arg("-o").arg(&*built);
    succeeded(&run(&mut command)?)?;
    same("header", succeeded(&run(&mut Command::new(&*built))?)?, "header: ok\n")
}

/// Threads that end free their stacks: many more run in sequence than there is room for at a time.
fn many_threads(place: &Place) -> Result<(), Failed> {
    let built = build(place, WAYS[0], &place.root.join("gossamer/region/ffi/tests/c/many_threads.c"))?;
    for way in ["auto", "explicit"] {
        let starter = [&TWO[..TWO.len() - 1], &[way, "--env", "GOSSAMER_REGION_BYTES=268435456"]].concat();
        let done = run(start(place, &starter, &built).arg("2"))?;
        same(way, succeeded(&done)?, "many_threads: ok\n")?;
    }
    Ok(())
}

/// Memory that another machine frees than the one that allocates is reused: there is room for a third of it.
fn handed_on(place: &Place) -> Result<(), Failed> {
    let built = build(place, WAYS[0], &place.root.join("gossamer/region/ffi/tests/c/handed_on.c"))?;
    let starter = [TWO, &["--env", "GOSSAMER_REGION_BYTES=268435456"]].concat();
    same("handed_on", succeeded(&run(start(place, &starter, &built).arg("2"))?)?, "handed_on: ok\n")
}

/// Memory is taken where it is touched, and goes back when it is freed, also of a heap of 256 GiB.
fn memory(place: &Place) -> Result<(), Failed> {
    let built = build(place, WAYS[0], &place.root.join("gossamer/region/ffi/tests/c/memory.c"))?;
    for words in [TWO, ONE] {
        let starter = [words, &["--env", "GOSSAMER_REGION_BYTES=274877906944"]].concat();
        same(&format!("{words:?}"), succeeded(&run(start(place, &starter, &built).arg("2"))?)?, "memory: ok\n")?;
    }
    Ok(())
}

/// Blocks of one size serve others after they are freed: there is no room for all sizes at once.
fn sizes_share_memory(place: &Place) -> Result<(), Failed> {
    let built = build(place, WAYS[0], &place.root.join("gossamer/region/ffi/tests/c/heap.c"))?;
    let starter = [TWO, &["--env", "GOSSAMER_REGION_BYTES=268435456"]].concat();
    same("heap", succeeded(&run(start(place, &starter, &built).arg("5"))?)?, "heap: ok\n")
}

/// A thread that overflows its stack, on any machine, ends the program by a fault; guards of stacks do not disturb
/// other accesses.
fn overflow(place: &Place) -> Result<(), Failed> {
    let built = build(place, WAYS[0], &place.root.join("gossamer/region/ffi/tests/c/overflow.c"))?;
    for starter in [TWO, TWO_EXPLICIT, THREE_TCP] {
        let done = run(start(place, starter, &built).arg("0"))?;
        same(&format!("{starter:?}"), succeeded(&done)?, "overflow: ok\n")?;
        for (thread, machine) in [("1", 1), ("2", if starter == THREE_TCP { 2 } else { 0 })] {
            let done = run(start(place, starter, &built).arg(thread))?;
            let told = String::from_utf8_lossy(&done.stderr);
            let by = "was killed by signal 11 (SIGSEGV)";
            let is_named = told.lines().any(|line| line.contains(&format!("machine {machine} ")) && line.contains(by));
            if done.status.code() != Some(128 + 11) || !is_named || !done.stdout.is_empty() {
                return Err(format!("{starter:?}: {done:?}").into());
            }
        }
    }
    Ok(())
}

/// Threads start in turn, or as `--threads-at` says; invalid counts are refused before anything starts.
fn threads_at(place: &Place) -> Result<(), Failed> {
    let built = build(place, WAYS[0], &place.root.join("gossamer/region/ffi/tests/c/places.c"))?;
    let start_with = |more: &[&'static str]| start(place, &[TWO, more].concat(), &built);
    for (more, expected) in
        [(&[][..], "10101010"), (&["--threads-at", "3,1"], "00010001"), (&["--threads-at", "0,2"], "11111111")]
    {
        let done = run(&mut start_with(more))?;
        same(&format!("{more:?}"), succeeded(&done)?, &format!("{expected}\nplaces: ok\n"))?;
    }
    for (counts, cause) in
        [("1,2,3", "numbers for 3 machines, and the program has 2"), ("0,0", "one number at least"), ("1,x", "'x'")]
    {
        let done = run(&mut start_with(&["--threads-at", counts]))?;
        let told = String::from_utf8_lossy(&done.stderr);
        if done.status.code() != Some(2) || !told.contains(cause) {
            return Err(format!("{counts}: {done:?}").into());
        }
    }
    Ok(())
}

/// Refused calls fail as documented, and the exit of a thread on another machine ends the program with its status.
fn refused(place: &Place) -> Result<(), Failed> {
    let built = build(place, WAYS[0], &place.root.join("gossamer/region/ffi/tests/c/refused.c"))?;
    let done = run(&mut start(place, TWO, &built))?;
    let told = String::from_utf8_lossy(&done.stderr);
    let cures = [
        "fork does not work",
        "use posix_spawn",
        "pthread_cancel does not",
        "mmap of a file with MAP_SHARED",
        "mprotect with PROT_EXEC",
        "mmap with PROT_EXEC",
        "sbrk does not",
        "sem_open does not",
        "mlock returns 0 and locks nothing",
        "pthread_setschedparam with a real-time policy returns 0",
        "sched_setscheduler with a real-time policy",
        "called by thread ",
        "shmat does not",
        "timer_create with SIGEV_THREAD",
    ];
    if done.status.code() != Some(7) || cures.iter().any(|cure| !told.contains(cure)) {
        return Err(format!("{done:?}").into());
    }
    // From two machines, in any order.
    let stdout = String::from_utf8_lossy(&done.stdout).into_owned();
    let mut lines: Vec<&str> = stdout.lines().collect();
    lines.sort_unstable();
    same("refused", &lines.join("\n"), "at exit\nrefused: ok")
}

/// The C library's own ends of a program, by main and by a thread of another machine, are those of the whole program.
fn fails(place: &Place) -> Result<(), Failed> {
    let built = build(place, WAYS[0], &place.root.join("gossamer/region/ffi/tests/c/fails.c"))?;
    let ends: [(&[&str], i32, &str); 2] =
        [(&[], 5, "main has failed after 1200"), (&["a thread"], 3, "a thread has failed")];
    for (arguments, status, message) in ends {
        let done = run(start(place, TWO, &built).args(arguments))?;
        let told = String::from_utf8_lossy(&done.stderr);
        if done.status.code() != Some(status) || !told.contains(message) {
            return Err(format!("{done:?}").into());
        }
        same(message, &String::from_utf8_lossy(&done.stdout), "begins\nat exit\n")?;
    }
    Ok(())
}

/// The handler of a signal that ends machines is machine 0's, whichever thread has installed it.
fn ended(place: &Place) -> Result<(), Failed> {
    let built = build(place, WAYS[0], &place.root.join("gossamer/region/ffi/tests/c/ended.c"))?;
    let done = run(start(place, TWO, &built).arg("2"))?;
    same("ended", succeeded(&done)?, "told to end\nended: ok\n")
}

/// A workload prints what the oracle computes, for any number of threads and any input.
fn workload(place: &Place, way: Way, name: &str) -> Result<(), Failed> {
    let built = build(place, way, &place.root.join("examples/c/region").join(format!("{name}.c")))?;
    for (input, expected) in oracle::cases(name) {
        let file = tempfile::NamedTempFile::new_in(place.folder.path())?;
        let arguments = match input {
            Input::Generated { size, seed } => {
                vec!["--size".to_owned(), size.to_string(), format!("--seed={seed}")]
            }
            Input::File(bytes) => {
                std::fs::write(file.path(), bytes)?;
                vec![file.path().display().to_string()]
            }
        };
        for threads in way.threads() {
            let mut command = start(place, way.starter, &built);
            let done = run(command.args(["--threads", threads]).args(&arguments))?;
            same(&format!("{command:?}"), succeeded(&done)?, expected)?;
            if !String::from_utf8_lossy(&done.stderr).contains(" ms with ") {
                return Err(format!("{command:?} does not tell its time:\n{done:?}").into());
            }
        }
    }
    Ok(())
}

/// A pthread program finds that all is as POSIX says. The order of lines depends on the threads, so they are sorted.
fn pthreads(place: &Place, way: Way, name: &str) -> Result<(), Failed> {
    let built = build(place, way, &place.root.join("gossamer/region/ffi/tests/c").join(format!("{name}.c")))?;
    for threads in
        way.threads().iter().filter_map(|threads| threads.parse::<usize>().ok()).filter(|threads| *threads > 1)
    {
        let mut command = start(place, way.starter, &built);
        // Number of machines with memory of their own: only named ranges are shared.
        let local = way.starter.iter().skip_while(|word| **word != "--local").nth(1);
        let machines = match way.starter.contains(&"explicit") {
            true => *local.unwrap_or(&rack::MACHINES),
            false => "1",
        };
        command.env("MACHINES", machines);
        let done = run(command.arg(threads.to_string()))?;
        let mut expected = format!("{name}: ok\n");
        for line in (0..threads * 50).filter(|_| name == "print") {
            expected += &format!("thread {:02} line {:02}\n", line / 50, line % 50);
        }
        let mut lines: Vec<&str> = succeeded(&done)?.lines().collect();
        lines.sort_unstable();
        same(&format!("{command:?}"), &(lines.join("\n") + "\n"), &expected)?;
    }
    Ok(())
}

/// Runs a command; an error if it takes too long.
fn run(command: &mut Command) -> Result<Output, Failed> {
    run_with_input(command, Stdio::null())
}

/// Same as [`run`], with this standard input.
fn run_with_input(command: &mut Command, input: Stdio) -> Result<Output, Failed> {
    let done = ended_within(command, input, LIMIT)?;
    Ok(done.ok_or_else(|| format!("{command:?}: not done after {LIMIT:?}"))?)
}

/// Runs a command with these bytes as standard input. `None`: it takes longer than `limit`, and is killed.
fn run_within(command: &mut Command, input: &[u8], limit: Duration) -> Result<Option<Output>, Failed> {
    let stdin = tempfile::NamedTempFile::new()?;
    std::fs::write(stdin.path(), input)?;
    ended_within(command, stdin.reopen()?.into(), limit)
}

fn ended_within(command: &mut Command, input: Stdio, limit: Duration) -> Result<Option<Output>, Failed> {
    let (stdout, stderr) = (tempfile::NamedTempFile::new()?, tempfile::NamedTempFile::new()?);
    let streams = command.stdin(input).stdout(stdout.reopen()?).stderr(stderr.reopen()?);
    let mut child = streams.spawn().map_err(|error| format!("{:?}: {error}", streams.get_program()))?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    Ok(Some(Output { status, stdout: std::fs::read(stdout.path())?, stderr: std::fs::read(stderr.path())? }))
}

fn succeeded(done: &Output) -> Result<&str, Failed> {
    let stdout = std::str::from_utf8(&done.stdout)?;
    if done.status.success() {
        return Ok(stdout);
    }
    Err(format!("{}\n{stdout}\n{}", done.status, String::from_utf8_lossy(&done.stderr)).into())
}

fn same(what: &str, found: &str, expected: &str) -> Result<(), Failed> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what} prints\n{found}\nand not\n{expected}").into())
}
