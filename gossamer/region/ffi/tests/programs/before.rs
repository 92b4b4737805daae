//! Programs whose constructors work before `main`, with variables of libraries, or with functions that have names of
//! the C library's.

use std::path::Path;
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::{LAUNCH, ONE, Place, THREADS, THREE_TCP, TWO, TWO_HOSTS, Test, compared, run, same, start, succeeded};

/// A program, and the flags that it is built with.
struct Program {
    test: &'static str,
    source: &'static str,
    flags: &'static [&'static str],
}

/// As one process, and on several machines.
const STARTERS: [&[&str]; 3] = [&[], TWO, THREE_TCP];

const WARNINGS: [&str; 5] = ["-O2", "-Wall", "-Wextra", "-Werror", "-pthread"];

const PROGRAMS: [Program; 4] = [
    Program { test: "globals_of_cpp", source: "tests/cpp/globals.cpp", flags: &["-std=c++17"] },
    Program { test: "own_names", source: "tests/c/own_names.c", flags: &["-rdynamic"] },
    Program {
        test: "addresses_without_pic",
        source: "tests/c/addresses.c",
        flags: &["-no-pie", "-fno-pie", "-Wl,-z,lazy", "-Wl,-z,norelro"],
    },
    Program { test: "constructors_without_pic", source: "tests/c/constructors.c", flags: &["-no-pie", "-fno-pie"] },
];

fn compiler_of(program: &Program) -> &'static str {
    if program.source.ends_with(".cpp") { "g++" } else { "gcc" }
}

/// Returns the tests; `lacks` says whether a tool is missing.
pub fn trials(place: &std::sync::Arc<Place>, lacks: impl Fn(&&str) -> bool) -> Vec<Trial> {
    let programs = PROGRAMS.into_iter().map(|program| {
        let here = std::sync::Arc::clone(place);
        let ignored = lacks(&compiler_of(&program)) || lacks(&LAUNCH);
        let name = format!("before::{}", program.test);
        Trial::test(name, move || runs(&here, &program)).with_ignored_flag(ignored)
    });
    let others: [(&str, Test); 6] = [
        ("before::early_thread_is_refused", early_thread_is_refused),
        ("before::libraries_are_loaded", libraries_are_loaded),
        ("before::own_names_are_not_the_verbs_librarys", own_names_are_not_the_verbs_librarys),
        ("before::teams_are_loaded", teams_are_loaded),
        ("before::variables_of_threads_are_loaded", variables_of_threads_are_loaded),
        ("before::objects_of_threads_are_loaded", objects_of_threads_are_loaded),
    ];
    let others = others.into_iter().map(|(name, test)| {
        let here = std::sync::Arc::clone(place);
        Trial::test(name, move || test(&here)).with_ignored_flag(lacks(&"gcc") || lacks(&"g++") || lacks(&LAUNCH))
    });
    programs.chain(others).collect()
}

fn build(place: &Place, program: &Program) -> Result<tempfile::TempPath, Failed> {
    let built = tempfile::Builder::new().prefix("program").tempfile_in(place.folder.path())?.into_temp_path();
    let mut command = Command::new(compiler_of(program));
    command.args(WARNINGS).args(program.flags).arg(place.root.join("gossamer/region/ffi").join(program.source));
    succeeded(&run(command.arg("-o").arg(&*built))?)?;
    Ok(built)
}

fn runs(place: &Place, program: &Program) -> Result<(), Failed> {
    let built = build(place, program)?;
    let name = Path::new(program.source).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    for starter in STARTERS {
        for threads in THREADS.iter().filter(|threads| **threads != "1") {
            let mut command = start(place, starter, &built);
            let done = run(command.arg(threads))?;
            let more = match name {
                "globals" => format!("destroyed after {threads}00\n"),
                _ => String::new(),
            };
            same(&format!("{command:?}"), succeeded(&done)?, &format!("{name}: ok\n{more}"))?;
        }
    }
    Ok(())
}

/// A library that one thread loads is there for the threads of all machines.
fn libraries_are_loaded(place: &Place) -> Result<(), Failed> {
    is_loaded(place, "plugin", &["-shared", "-fPIC"], "loads")
}

/// The library of RDMA devices, which the machines of several hosts look for, calls the C library's functions.
fn own_names_are_not_the_verbs_librarys(place: &Place) -> Result<(), Failed> {
    let built = build(place, &Program { test: "", source: "tests/c/own_names.c", flags: &["-rdynamic"] })?;
    let library = Program { test: "", source: "tests/c/verbs_library.c", flags: &["-shared", "-fPIC"] };
    let folder = tempfile::tempdir_in(place.folder.path())?;
    let (ran, named) = (folder.path().join("ran"), folder.path().join("libibverbs.so.1"));
    build(place, &library)?.persist(named)?;
    let mut command = start(place, TWO_HOSTS, &built);
    let done = run(command.env("LD_LIBRARY_PATH", folder.path()).env("VERBS_LIBRARY_RAN", &ran).arg("2"))?;
    same(&format!("{command:?}"), succeeded(&done)?, "own_names: ok\n")?;
    if !ran.exists() {
        return Err("no machine has looked for the library".into());
    }
    Ok(())
}

/// The teams of a library that is loaded have threads on all machines.
fn teams_are_loaded(place: &Place) -> Result<(), Failed> {
    is_loaded(place, "openmp_plugin", &["-shared", "-fPIC", "-fopenmp"], "openmp_loads")
}

fn is_loaded(place: &Place, library: &str, flags: &'static [&'static str], program: &str) -> Result<(), Failed> {
    let build = |name: &str, flags| {
        let source = format!("tests/c/{name}.c").leak();
        build(place, &Program { test: "", source, flags })
    };
    let (library, built) = (build(library, flags)?, build(program, &[])?);
    for starter in STARTERS.into_iter().chain([ONE]) {
        // With an even number main loads `plugin`, with an odd one another thread.
        for threads in ["2", "5"] {
            let mut command = start(place, starter, &built);
            let done = run(command.env("PLUGIN", &*library).arg(threads))?;
            same(&format!("{command:?}"), succeeded(&done)?, &format!("{program}: ok\n"))?;
        }
    }
    Ok(())
}

/// As one process, over each of the fabrics and kernels, and on an odd number of machines.
fn starters() -> impl Iterator<Item = &'static [&'static str]> {
    [&[], THREE_TCP].into_iter().chain(compared::STARTERS.map(|(_, starter)| starter))
}

/// Each thread of all machines has its own thread-local variables of libraries that one of them loads, whichever way
/// their code asks for them.
fn variables_of_threads_are_loaded(place: &Place) -> Result<(), Failed> {
    const SMALL: &str = "-DSMALL";
    let plugin = |more: &[&'static str]| {
        let flags: &[&str] = [&["-shared", "-fPIC"], more].concat().leak();
        build(place, &Program { test: "", source: "tests/c/storage_plugin.c", flags })
    };
    let by_number = plugin(&[])?;
    let by_place = plugin(&[SMALL, "-ftls-model=initial-exec"])?;
    let mut pairs = vec![[&by_number, &by_place], [&by_place, &by_number]];
    // Other processors' compilers make descriptors anyway.
    let descriptors: &[&str] = if cfg!(target_arch = "x86_64") { &["-mtls-dialect=gnu2"] } else { &[] };
    let large = plugin(descriptors)?;
    let small = plugin(&[descriptors, &[SMALL, "-Wl,-z,now"]].concat())?;
    pairs.extend([[&large, &small], [&small, &by_place]]);
    let built = build(place, &Program { test: "", source: "tests/c/storage.c", flags: &[] })?;
    for starter in starters() {
        for (threads, [first, second]) in pairs.iter().flat_map(|pair| [("2", pair), ("5", pair)]) {
            let mut command = start(place, starter, &built);
            let done = run(command.env("PLUGIN", &**first).env("OTHER", &**second).arg(threads))?;
            same(&format!("{command:?}"), succeeded(&done)?, "storage: ok\n")?;
        }
    }
    Ok(())
}

/// The same for thread-local objects of C++, whose destructors run with the thread's end.
fn objects_of_threads_are_loaded(place: &Place) -> Result<(), Failed> {
    let build = |source, flags| build(place, &Program { test: "", source, flags });
    let library = build("tests/cpp/storage_plugin.cpp", &["-shared", "-fPIC"])?;
    let built = build("tests/cpp/storage.cpp", &[])?;
    for starter in starters() {
        let mut command = start(place, starter, &built);
        let done = run(command.env("PLUGIN", &*library).arg("5"))?;
        same(&format!("{command:?}"), succeeded(&done)?, "storage: ok\n")?;
    }
    Ok(())
}

/// A thread that starts before the machines share memory would be each machine's own.
fn early_thread_is_refused(place: &Place) -> Result<(), Failed> {
    let program = Program { test: "", source: "tests/c/early_thread.c", flags: &[] };
    let built = build(place, &program)?;
    same("alone", succeeded(&run(&mut start(place, &[], &built))?)?, "early_thread: ok\n")?;
    let done = run(&mut start(place, TWO, &built))?;
    let told = String::from_utf8_lossy(&done.stderr);
    let is_told = told.contains("a thread that a constructor starts before main does not work");
    if done.status.success() || !is_told || !done.stdout.is_empty() {
        return Err(format!("{done:?}").into());
    }
    Ok(())
}
