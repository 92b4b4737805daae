//! The table of programs: packages of Debian and built suites, unchanged, over several machines beside a plain run.
//!
//! Here: the runs, their verdicts, the tier. Not here: the programs (`list`, `suites`), their inputs (`inputs`,
//! `suite_inputs`), the compared part of an answer (`answer`), the table (`table`).
//!
//! Invariant: nothing is fetched; a program that is not installed or built, or has no answer to compare, is SKIPPED by
//! name.

mod answer;
mod inputs;
mod list;
mod suite_inputs;
mod suites;
mod table;

use crate::command::Context;
use crate::count::Counts;
use crate::tier::{State, Verdict};
use anyhow::Context as _;
use list::{PROGRAMS, Program, Source};
use serde::Serialize;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use suites::SUITES;

/// Selection from the table.
#[derive(clap::Args, Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Writes the table to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Programs with one of these words in their names; all of them without it
    #[arg(long, value_name = "WORD", value_delimiter = ',')]
    only: Vec<String>,
    /// Machines to run over: shm, tcp, hosts (two kernels, pretended)
    #[arg(long, value_name = "WAY", value_delimiter = ',', default_values = ["shm", "tcp", "hosts"])]
    over: Vec<String>,
    /// Threads that move between the machines: none, those that are asked, or also by themselves
    #[arg(long = "move", value_name = "WHICH", default_value = "never", value_parser = ["never", "asked", "self"])]
    moves: String,
    /// Folder with gossamer-launch and its library, in place of a release build
    #[arg(long, value_name = "FOLDER")]
    binaries: Option<PathBuf>,
    /// Folder with programs of public suites, built elsewhere (docs/region.md)
    #[arg(long, value_name = "FOLDER")]
    built: Option<PathBuf>,
    /// Seconds after which a run counts as hung
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    hang: u64,
}

/// Options of the launcher for each way to run over machines.
const WAYS: [(&str, &[&str]); 3] = [("shm", &[]), ("tcp", &["--fabric", "tcp"]), ("hosts", &["--pretend-hosts", "2"])];

/// Threads of the compared runs.
const THREADS: usize = 2;

/// Time that the launcher has to end a hung program.
const GRACE: Duration = Duration::from_secs(8);

/// Result of a run over machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", content = "why", rename_all = "lowercase")]
pub enum Outcome {
    /// The plain run's answer and status.
    Right,
    /// A status that is neither 0 nor a crash's, and a message that names the call and the cure.
    Refused(String),
    /// Another answer or status.
    Wrong(String),
    /// No end, and the last message.
    Hangs(String),
}

/// A row of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The program.
    pub name: &'static str,
    /// Reason why it was not run.
    pub skipped: Option<String>,
    /// Seconds of a plain run with one thread and with two.
    pub plain_s: [f64; 2],
    /// Way, outcome and seconds of each run over machines.
    pub over: Vec<(String, Outcome, f64)>,
}

/// A run that has ended, or not in time.
struct Run {
    status: Option<i32>,
    answer: Vec<u8>,
    stderr: String,
    seconds: f64,
}

/// Places of the tier.
struct Place {
    launcher: PathBuf,
    moves: String,
    inputs: PathBuf,
    work: PathBuf,
    built: Option<PathBuf>,
    hang: Duration,
}

/// The whole table, or the chosen rows.
pub fn check(context: &Context, options: &Table) -> anyhow::Result<Verdict> {
    let ways = options.over.iter().map(|name| {
        let way = WAYS.iter().find(|(way, _)| way == name);
        way.with_context(|| format!("--over {name}: shm, tcp or hosts"))
    });
    let ways = ways.collect::<anyhow::Result<Vec<_>>>()?;
    let binaries = match &options.binaries {
        Some(folder) => std::path::absolute(folder)?,
        None => {
            let packages = ["--package", "gossamer-daemon", "--package", "gossamer-region-ffi"];
            let built = context.cargo(&["build", "--quiet", "--release"]).args(&packages).check()?;
            if built.state != State::Passed {
                return Ok(built);
            }
            context.target.join("release")
        }
    };
    let folder = context.target.join("programs");
    let _ = fs::remove_dir_all(&folder); // of an earlier run
    let place = Place {
        launcher: binaries.join("gossamer-launch"),
        moves: options.moves.clone(),
        inputs: folder.join("in"),
        work: folder.join("work"),
        built: options.built.as_ref().map(std::path::absolute).transpose()?,
        hang: Duration::from_secs(options.hang),
    };
    inputs::write(&place.inputs)?;
    suite_inputs::write(&place.inputs)?;
    let is_chosen = |program: &&Program| {
        options.only.is_empty() || options.only.iter().any(|word| program.name.contains(word.as_str()))
    };
    let mut rows = Vec::new();
    println!("{}", table::heading(&options.over));
    for program in PROGRAMS.iter().chain(SUITES).filter(is_chosen) {
        let row = row(&place, program, &ways)?;
        println!("{}", table::line(&row));
        rows.push(row);
    }
    println!("{}", table::sum(&rows));
    if let Some(file) = &options.json {
        fs::write(file, serde_json::to_string_pretty(&rows)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    Ok(verdict(&rows))
}

/// The verdict on a table: no row may be wrong or hang.
fn verdict(rows: &[Row]) -> Verdict {
    let outcomes =
        |row: &Row| row.over.iter().map(|(way, outcome, _)| (way.clone(), outcome.clone())).collect::<Vec<_>>();
    let is_well = |outcome: &Outcome| matches!(outcome, Outcome::Right | Outcome::Refused(_));
    let all: Vec<(&str, String, Outcome)> =
        rows.iter().flat_map(|row| outcomes(row).into_iter().map(|(way, outcome)| (row.name, way, outcome))).collect();
    let failed: Vec<String> = all
        .iter()
        .filter(|(.., outcome)| !is_well(outcome))
        .map(|(name, way, _)| format!("{name} over {way}"))
        .collect();
    let skipped = rows.iter().filter(|row| row.skipped.is_some()).count();
    let tests = Counts { passed: all.len() - failed.len(), failed: failed.len(), skipped };
    let verdict = match (all.is_empty(), failed.is_empty()) {
        (true, _) => Verdict::skipped("no program of the table is installed"),
        (false, true) => Verdict::passed(),
        (false, false) => Verdict::failed(failed.join(", ")),
    };
    verdict.with_tests(tests)
}

/// Runs one program in all ways.
fn row(place: &Place, program: &Program, ways: &[&(&'static str, &'static [&'static str])]) -> anyhow::Result<Row> {
    let mut row = Row { name: program.name, skipped: None, plain_s: [0.0; 2], over: Vec::new() };
    let expected = match plain(place, program, &mut row.plain_s)? {
        Ok(expected) => expected,
        Err(why) => return Ok(Row { skipped: Some(why), ..row }),
    };
    for (way, options) in ways {
        let run = place.run(place.starter(options), program, THREADS)?;
        row.over.push(((*way).to_owned(), compare(&expected, &run), run.seconds));
    }
    Ok(row)
}

/// The plain run of two threads, if the program has an answer to compare; else why not.
fn plain(place: &Place, program: &Program, seconds: &mut [f64; 2]) -> anyhow::Result<Result<Run, String>> {
    if let Some(why) = place.lacks(program) {
        return Ok(Err(why));
    }
    if !program.prepare.is_empty() {
        let shell = Command::new("sh").args(["-c", program.prepare]).current_dir(&place.inputs).output()?;
        if !shell.status.success() {
            let said = String::from_utf8_lossy(&shell.stderr);
            return Ok(Err(format!("its input cannot be made: {}", last_line(&said))));
        }
    }
    let plainly = |threads| place.run(Command::new("env"), program, threads);
    let one = plainly(1)?;
    let (two, again) = (plainly(THREADS)?, plainly(THREADS)?);
    *seconds = [one.seconds, two.seconds];
    if two.status.is_none() || two.answer.is_empty() {
        return Ok(Err(format!("no answer of a plain run ({:?}): {}", two.status, last_line(&two.stderr))));
    }
    if two.answer != again.answer || two.status != again.status {
        return Ok(Err("two plain runs have different answers".to_owned()));
    }
    Ok(Ok(two))
}

/// Words of each refusal, and of no hint.
const REFUSED: &str = "does not work in a program on several machines";

/// Statuses of a crash, which no message excuses: SIGILL, SIGBUS, SIGFPE, SIGSEGV, SIGSYS.
const CRASHES: [i32; 5] = [132, 135, 136, 139, 159];

/// Compares a run over machines with a plain one.
fn compare(plain: &Run, over: &Run) -> Outcome {
    let told = over.stderr.lines().filter(|line| line.starts_with("gossamer")).collect::<Vec<_>>();
    let refusal = told.iter().find(|line| line.contains(REFUSED));
    let last = || told.last().map_or_else(|| last_line(&over.stderr), |line| (*line).to_owned());
    match (over.status, refusal) {
        (None, _) => Outcome::Hangs(last()),
        (status, _) if status == plain.status && over.answer == plain.answer => Outcome::Right,
        (Some(0), _) => Outcome::Wrong(format!("status 0 and another answer; {}", last())),
        (Some(status), Some(refusal)) if !CRASHES.contains(&status) => Outcome::Refused((*refusal).to_owned()),
        (Some(status), _) => Outcome::Wrong(format!("status {status}; {}", last())),
    }
}

fn last_line(text: &str) -> String {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message").trim().to_owned()
}

/// Status as a shell has it.
fn status_of(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

impl Place {
    /// Why a program cannot be started.
    fn lacks(&self, program: &Program) -> Option<String> {
        let word = &program.words("", THREADS)[0];
        let is_in = |folder: &Path| folder.join(word).is_file();
        match (program.source, &self.built) {
            (Source::Package(package), _) => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let is_installed = std::env::split_paths(&path).any(|folder| is_in(&folder));
                (!is_installed).then(|| format!("not installed (apt-get install {package})"))
            }
            (Source::Built, None) => Some("not built (--built FOLDER)".to_owned()),
            (Source::Built, Some(folder)) => (!is_in(folder)).then(|| format!("not in {}", folder.display())),
        }
    }

    /// The command that starts a program over machines, with these options of the launcher.
    fn starter(&self, options: &[&str]) -> Command {
        let mut launcher = Command::new(&self.launcher);
        launcher.args(["run", "--local", "2", "--no-prefix", "--region", "auto", "--move", &self.moves]).args(options);
        launcher
    }

    /// The command of a program: its file, and its arguments.
    fn command(&self, program: &Program, threads: usize) -> (PathBuf, Vec<String>) {
        let mut words = program.words(&self.inputs.to_string_lossy(), threads);
        let file = PathBuf::from(words.remove(0));
        match (program.source, &self.built) {
            (Source::Built, Some(folder)) => (folder.join(file), words),
            (Source::Built, None) | (Source::Package(_), _) => (file, words),
        }
    }

    /// Runs a program behind a starter, in an empty folder.
    fn run(&self, mut starter: Command, program: &Program, threads: usize) -> anyhow::Result<Run> {
        let _ = fs::remove_dir_all(&self.work); // of an earlier run
        fs::create_dir_all(&self.work)?;
        for name in program.beside {
            fs::copy(self.inputs.join(name), self.work.join(name)).with_context(|| format!("cannot copy {name}"))?;
        }
        let output = |name: &str| self.inputs.with_file_name(name);
        let (stdout, stderr) = (output("stdout"), output("stderr"));
        let input = match program.stdin {
            Some(name) => {
                let name = name.replace("{n}", &threads.to_string());
                Stdio::from(fs::File::open(self.inputs.join(name))?)
            }
            None => Stdio::null(),
        };
        let (file, words) = self.command(program, threads);
        starter.arg(file).args(words).current_dir(&self.work);
        starter.env("OMP_NUM_THREADS", threads.to_string()).env("OPENBLAS_NUM_THREADS", threads.to_string());
        starter.env("MAPRED_NPROCESSORS", threads.to_string()); // Phoenix's
        starter.env("TMPDIR", &self.work).env("LC_ALL", "C").env_remove("PYTHONPATH");
        starter.stdin(input).stdout(fs::File::create(&stdout)?).stderr(fs::File::create(&stderr)?);
        let begun = Instant::now();
        let mut child = starter.spawn().with_context(|| format!("cannot start {:?}", starter.get_program()))?;
        let status = match wait(&mut child, self.hang)? {
            Some(status) => Some(status_of(status)),
            None => {
                // The launcher ends the machines.
                Command::new("kill").arg(child.id().to_string()).status().context("cannot start `kill`")?;
                if wait(&mut child, GRACE)?.is_none() {
                    child.kill()?;
                    child.wait()?;
                }
                None
            }
        };
        let seconds = begun.elapsed().as_secs_f64();
        let (stdout, stderr) = (fs::read(&stdout)?, fs::read(&stderr)?);
        let answer = answer::part(program.answer, &stdout, &stderr, &self.work);
        Ok(Run { status, answer, stderr: String::from_utf8_lossy(&stderr).into_owned(), seconds })
    }
}

/// Waits for a child; `None` after the limit.
fn wait(child: &mut std::process::Child, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() > limit {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn place(built: Option<&Path>) -> Place {
        let [launcher, inputs, work] = ["launcher", "/i", "work"].map(PathBuf::from);
        let moves = "self".to_owned();
        Place { launcher, moves, inputs, work, built: built.map(Path::to_owned), hang: Duration::ZERO }
    }

    #[test]
    fn threads_move_as_the_table_is_asked_for() {
        let starter = place(None).starter(&["--fabric", "tcp"]);
        let words: Vec<_> = starter.get_args().map(|word| word.to_string_lossy()).collect();
        assert!(words.join(" ").contains(" --move self --fabric tcp"), "{words:?}");
    }

    #[test]
    fn a_built_program_is_the_file_of_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = SUITES.iter().find(|program| program.name == "splash-fft").expect("in the list");
        let (without, with) = (place(None), place(Some(folder.path())));
        assert!(without.lacks(program).is_some_and(|why| why.contains("--built")));
        assert!(with.lacks(program).is_some_and(|why| why.starts_with("not in ")));
        fs::write(folder.path().join("splash-fft"), "").expect("a file");
        assert_eq!(with.lacks(program), None);
        let (file, words) = with.command(program, 2);
        assert_eq!((file, words.join(" ")), (folder.path().join("splash-fft"), "-m16 -p2 -t -o".to_owned()));
    }

    #[test]
    fn programs_have_different_names() {
        let names: BTreeSet<&str> = PROGRAMS.iter().chain(SUITES).map(|program| program.name).collect();
        assert_eq!(names.len(), PROGRAMS.len() + SUITES.len());
    }

    fn run(status: Option<i32>, answer: &str, stderr: &str) -> Run {
        Run { status, answer: answer.into(), stderr: stderr.into(), seconds: 1.0 }
    }

    #[test]
    fn a_run_is_right_refused_wrong_or_hangs() {
        let plain = run(Some(0), "1", "");
        let of = |status, answer, stderr| compare(&plain, &run(status, answer, stderr));
        let refusal = "gossamer: fork does not work in a program on several machines; use posix_spawn (docs/region.md)";
        let told = format!("x\n{refusal}\ny");
        let hint = "gossamer: mlock returns 0 and locks nothing; use memory without locks (docs/region.md)";
        assert_eq!(of(Some(0), "1", "a warning"), Outcome::Right);
        assert_eq!(of(Some(1), "", &told), Outcome::Refused(refusal.to_owned()));
        // A message excuses neither another answer with status 0 nor a crash, and a status needs one.
        assert!(matches!(of(Some(0), "2", refusal), Outcome::Wrong(_)));
        assert!(matches!(of(Some(1), "1", "gossamer-launch: machine 1 failed"), Outcome::Wrong(_)));
        assert!(matches!(of(Some(139), "", &told), Outcome::Wrong(_)));
        assert!(matches!(of(Some(1), "", hint), Outcome::Wrong(_)));
        assert!(matches!(of(None, "1", ""), Outcome::Hangs(_)));
    }

    #[test]
    fn a_table_fails_by_its_wrong_and_hung_rows() {
        let row = |name, outcome| Row {
            name,
            skipped: None,
            plain_s: [1.0; 2],
            over: vec![("shm".to_owned(), Outcome::Right, 1.0), ("tcp".to_owned(), outcome, 1.0)],
        };
        let none = Row { name: "none", skipped: Some("not installed".to_owned()), plain_s: [0.0; 2], over: vec![] };
        let well = verdict(&[row("a", Outcome::Right), row("b", Outcome::Refused("x".to_owned())), none.clone()]);
        assert_eq!((well.state, well.tests), (State::Passed, Counts { passed: 4, failed: 0, skipped: 1 }));
        let ill = [row("a", Outcome::Wrong("x".to_owned())), row("b", Outcome::Hangs("x".to_owned()))];
        assert_eq!(verdict(&ill).state, State::Failed("a over tcp, b over tcp".to_owned()));
        assert!(matches!(verdict(&[none]).state, State::Skipped(_)));
    }
}
