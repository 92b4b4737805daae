//! Programs in C and C++ that use only the folder that `cargo dev install` fills: each is built with gcc and clang,
//! against the shared and the static library, and run, also under valgrind and AddressSanitizer.
//!
//! Tools that this machine lacks are reported, and their programs count as ignored.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};

/// Longest run of one program. Under valgrind it takes ten times as long as usual.
const LIMIT: Duration = Duration::from_secs(300);

/// A program, by its file in the repository, and arguments for a run and for one under valgrind.
struct Program {
    source: &'static str,
    arguments: &'static [&'static str],
    slow_arguments: &'static [&'static str],
}

const PROGRAMS: [Program; 6] = [
    Program { source: "examples/c/counter.c", arguments: &[], slow_arguments: &[] },
    Program { source: "examples/c/table.c", arguments: &[], slow_arguments: &[] },
    Program { source: "examples/c/server.c", arguments: &["--self-test"], slow_arguments: &["--self-test"] },
    Program { source: "examples/c/accounts.cpp", arguments: &[], slow_arguments: &[] },
    Program { source: "trust/ffi/tests/c/errors.c", arguments: &[], slow_arguments: &[] },
    Program { source: "trust/ffi/tests/c/stress.c", arguments: &["20000"], slow_arguments: &["300"] },
];

/// A program that loses memory, which valgrind has to find despite the suppressions in `valgrind.supp`.
const LEAKS: Program = Program { source: "trust/ffi/tests/c/leaks.c", arguments: &[], slow_arguments: &[] };

/// Way in which a program is built and run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Build {
    Shared,
    Static,
    Valgrind,
    Sanitizer,
}

struct Place {
    root: PathBuf,
    /// Folder of the installation and of everything built with it. Removed at the end.
    folder: tempfile::TempDir,
}

fn main() {
    let arguments = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace");
    let place = Arc::new(Place { root, folder: tempfile::tempdir().expect("a folder for the installation") });
    let trials = trials(&place, arguments.list);
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(place);
    conclusion.exit();
}

fn trials(place: &Arc<Place>, list_only: bool) -> Vec<Trial> {
    let lacking: Vec<&str> = ["gcc", "g++", "clang", "clang++", "pkg-config", "valgrind"]
        .into_iter()
        .filter(|program| !Command::new(program).arg("--version").output().is_ok_and(|done| done.status.success()))
        .collect();
    for program in &lacking {
        println!("SKIPPED: there is no {program} (on Debian, `apt-get install {program}`)");
    }
    let installs = !list_only && !lacking.contains(&"pkg-config");
    let installed = if installs { install(place) } else { Ok(()) };
    let mut trials = vec![Trial::test("install", {
        let installed = installed.clone();
        move || installed.map_err(Failed::from)
    })];
    let mut add = |name: String, needs: &[&str], test: Box<dyn FnOnce() -> Result<(), Failed> + Send>| {
        let ignored = installed.is_err() || needs.iter().any(|need| lacking.contains(need));
        trials.push(Trial::test(name, test).with_ignored_flag(ignored));
    };
    let here = Arc::clone(place);
    add("shared::offers_nothing_else".to_owned(), &["pkg-config", "gcc"], Box::new(move || offers_nothing_else(&here)));
    let here = Arc::clone(place);
    add("valgrind::finds_leaks".to_owned(), &["pkg-config", "gcc", "valgrind"], Box::new(move || finds_leaks(&here)));
    for (at, program) in PROGRAMS.iter().enumerate() {
        let name = Path::new(program.source).file_name().unwrap_or_default().to_string_lossy().replace('.', "_");
        let compilers = if program.source.ends_with(".cpp") { ["g++", "clang++"] } else { ["gcc", "clang"] };
        for compiler in compilers {
            let builds: &[(Build, &str)] = match compiler {
                "gcc" | "g++" => &[
                    (Build::Shared, "shared"),
                    (Build::Static, "static"),
                    (Build::Valgrind, "valgrind"),
                    (Build::Sanitizer, "asan"),
                ],
                _ => &[(Build::Shared, "shared")],
            };
            for &(build, told) in builds {
                let needs = if build == Build::Valgrind {
                    vec!["pkg-config", compiler, "valgrind"]
                } else {
                    vec!["pkg-config", compiler]
                };
                let (place, compiler) = (Arc::clone(place), compiler.to_owned());
                let test = move || build_and_run(&place, &PROGRAMS[at], &compiler, build);
                add(format!("{told}::{name}::{}", needs[1]), &needs, Box::new(test));
            }
        }
    }
    trials
}

fn install(place: &Place) -> Result<(), String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    // These variables describe this package, and are wrong for the package that is run.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command.current_dir(&place.root).args(["dev", "install", "--debug", "--prefix"]).arg(place.folder.path());
    let done = command.output().map_err(|error| format!("cargo does not start: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("{}\n{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr)))
}

/// Runs a command and returns its output; an error where it fails or takes too long.
fn run(command: &mut Command) -> Result<String, Failed> {
    let spelled = format!("{command:?}");
    let output = tempfile::NamedTempFile::new()?;
    let mut child = command
        .stdin(std::process::Stdio::null())
        .stdout(output.reopen()?)
        .stderr(output.reopen()?)
        .spawn()
        .map_err(|error| format!("{spelled}: {error}"))?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if begun.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let told = std::fs::read(output.path())?;
    let told = String::from_utf8_lossy(&told).into_owned();
    match status {
        Some(status) if status.success() => Ok(told),
        Some(status) => Err(format!("{spelled}: {status}\n{told}").into()),
        None => Err(format!("{spelled}: not done after {LIMIT:?}\n{told}").into()),
    }
}

/// Output of pkg-config, as words.
fn flags(place: &Place, ask: &[&str]) -> Result<Vec<String>, Failed> {
    let said = run(Command::new("pkg-config")
        .env("PKG_CONFIG_PATH", place.folder.path().join("lib/pkgconfig"))
        .args(ask)
        .arg("trust"))?;
    Ok(said.split_whitespace().map(str::to_owned).collect())
}

fn build(place: &Place, program: &Program, compiler: &str, build: Build) -> Result<tempfile::TempPath, Failed> {
    let built = tempfile::Builder::new().prefix("program").tempfile_in(place.folder.path())?.into_temp_path();
    let mut command = Command::new(compiler);
    command.arg(if program.source.ends_with(".cpp") { "-std=c++17" } else { "-std=gnu11" });
    // The oldest form of debug information: valgrind reads it from any compiler.
    command.args(["-Wall", "-Wextra", "-Werror", "-O1", "-gdwarf-4", "-pthread"]);
    if build == Build::Sanitizer {
        command.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
    }
    command.arg(place.root.join(program.source)).arg("-o").arg(&*built).args(flags(place, &["--cflags"])?);
    if build == Build::Static {
        command.args(["-Wl,-Bstatic"]).args(flags(place, &["--libs"])?).arg("-Wl,-Bdynamic");
        let all = flags(place, &["--libs", "--static"])?;
        command.args(all.iter().filter(|flag| *flag != "-ltrust"));
    } else {
        command.args(flags(place, &["--libs"])?);
        command.arg(format!("-Wl,-rpath,{}", place.folder.path().join("lib").display()));
    }
    run(&mut command)?;
    // A file that is open for writing cannot be executed: the compiler's handle is gone, and this process had none.
    Ok(built)
}

/// Runs the program under valgrind as docs/c-api.md has it; any output of valgrind is an error, and memory that is
/// still in use at the end is, too.
fn valgrind(place: &Place, built: &Path) -> Command {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--error-exitcode=9", "--max-stackframe=60000", "--leak-check=full"]);
    valgrind.args(["--show-leak-kinds=all", "--errors-for-leak-kinds=all"]);
    valgrind.arg(format!("--suppressions={}", place.folder.path().join("share/trust/valgrind.supp").display()));
    valgrind.arg(built);
    valgrind
}

fn build_and_run(place: &Place, program: &Program, compiler: &str, how: Build) -> Result<(), Failed> {
    let built = build(place, program, compiler, how)?;
    let mut command = if how == Build::Valgrind { valgrind(place, &built) } else { Command::new(&*built) };
    command.args(if how == Build::Valgrind { program.slow_arguments } else { program.arguments });
    print!("{}", run(&mut command)?);
    Ok(())
}

/// The suppressions hide no memory that a program itself has lost, even in a function that the library has called.
fn finds_leaks(place: &Place) -> Result<(), Failed> {
    let built = build(place, &LEAKS, "gcc", Build::Valgrind)?;
    run(&mut Command::new(&*built))?;
    let told = match run(&mut valgrind(place, &built)) {
        Ok(told) => told,
        Err(told) => told.message().unwrap_or_default().to_owned(),
    };
    if told.contains("definitely lost") && told.contains("lose (leaks.c:") {
        Ok(())
    } else {
        Err(format!("a program that loses memory in `lose` is not told of:\n{told}").into())
    }
}

/// The shared library exports the functions of the header and nothing else, each with the version it came with.
fn offers_nothing_else(place: &Place) -> Result<(), Failed> {
    let header = std::fs::read_to_string(place.folder.path().join("include/trust.h"))?;
    let library = place.folder.path().join("lib/libtrust.so");
    let offered = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library))?;
    let mut offered: Vec<&str> = offered
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .filter(|name| !name.starts_with("TRUST_"))
        .collect();
    offered.sort_unstable();
    let declared = |name: &str| header.contains(&format!("{name}("));
    let strange: Vec<&&str> = offered
        .iter()
        .filter(|name| {
            !name.split_once("@@TRUST_0.").is_some_and(|(name, _)| name.starts_with("trust_") && declared(name))
        })
        .collect();
    if !strange.is_empty() {
        return Err(format!("offered, and not in trust.h or without a version: {strange:?}").into());
    }
    let declarations = header.lines().filter(|line| line.contains(" trust_") || line.contains("*trust_"));
    let names = declarations
        .filter(|line| {
            !line.starts_with(' ') && !line.starts_with("typedef") && !line.starts_with('}') && line.contains('(')
        })
        .filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next());
    let missing: Vec<&str> =
        names.filter(|name| !offered.iter().any(|offered| offered.split('@').next() == Some(name))).collect();
    if !missing.is_empty() {
        return Err(format!("declared, and not offered: add to trust/ffi/trust.map: {missing:?}").into());
    }
    let soname = run(Command::new("readelf").arg("-d").arg(&library))?;
    if !soname.contains("soname: [libtrust.so.0.1]") {
        return Err(format!("the name that programs look for is not libtrust.so.0.1:\n{soname}").into());
    }
    Ok(())
}
