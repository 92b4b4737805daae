//! Running a program: said aloud first, its output shown and kept, with a time limit where nobody watches.
//!
//! Here: `Context` (where the workspace is) and `Command`. Not here: which programs, or the meaning of their end.
//!
//! Invariant: every program runs in the workspace root, and without the variables `cargo run` gave to
//! this one (package name, manifest path), so that a tier sees the same as a command typed by hand.

use crate::count;
use crate::tier::Verdict;
use anyhow::Context as _;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

/// Time limit of one command when no terminal is attached, in seconds: nine times the time of the longest on a
/// machine of two cores with nothing beside it. Tests that hang end sooner, each by itself.
pub const LIMIT_S: u64 = 7200;

/// Places of the workspace.
pub struct Context {
    /// The workspace root.
    pub root: PathBuf,
    /// The target folder of the default build.
    pub target: PathBuf,
    limit_s: Option<u64>,
}

impl Context {
    /// Finds the workspace from the manifest that `cargo run` names. One command may take so many seconds where no
    /// terminal is attached.
    ///
    /// # Errors
    /// Without that variable: the program was not started through `cargo dev`.
    pub fn new(limit_s: u64) -> anyhow::Result<Context> {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .context("CARGO_MANIFEST_DIR is not set: start this program as `cargo dev`")?;
        let root = Path::new(&manifest)
            .ancestors()
            .nth(2)
            .context("the `dev` package is expected in tests/dev of the workspace")?
            .to_path_buf();
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(dir) => std::path::absolute(dir)?,
            None => root.join("target"),
        };
        // With a terminal Ctrl-C is at hand; `timeout` would put the command out of its reach.
        let limit_s = (!std::io::stdin().is_terminal()).then_some(limit_s);
        Ok(Context { root, target, limit_s })
    }

    /// A command of this workspace's cargo.
    pub fn cargo(&self, arguments: &[&str]) -> Command<'_> {
        self.command("cargo", arguments)
    }

    /// A command.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Command<'_> {
        Command {
            context: self,
            program: program.to_owned(),
            arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
            variables: Vec::new(),
            limit_s: self.limit_s,
        }
    }
}

/// A program to run.
pub struct Command<'a> {
    context: &'a Context,
    program: String,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    limit_s: Option<u64>,
}

/// End of a program.
#[derive(Debug)]
pub struct Done {
    /// Whether its exit status was 0.
    pub success: bool,
    /// The exit status in words.
    pub status: String,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error; empty where that was shown instead of kept.
    pub stderr: String,
}

impl Done {
    /// The line of its complaint that says most.
    pub fn first_error(&self) -> &str {
        let lines = || self.stderr.lines().map(str::trim).filter(|line| !line.is_empty());
        lines()
            .find(|line| line.contains("error") || line.contains("ERROR"))
            .or(lines().next())
            .unwrap_or("no reason given")
    }
}

impl Command<'_> {
    /// Sets how long it may take where nobody watches.
    pub fn within(mut self, limit_s: u64) -> Self {
        self.limit_s = self.limit_s.map(|_| limit_s);
        self
    }

    /// Sets a variable of its environment.
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// Adds arguments.
    pub fn args(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|&word| word.to_owned()));
        self
    }

    /// Adds one flag to RUSTFLAGS, keeping those the user has set.
    pub fn rustflag(self, flag: &str) -> Self {
        let flags = match std::env::var("RUSTFLAGS") {
            Ok(known) if !known.trim().is_empty() => format!("{known} {flag}"),
            _ => flag.to_owned(),
        };
        self.env("RUSTFLAGS", flags)
    }

    /// Returns the command as one would type it.
    fn spelled(&self) -> String {
        let mut words: Vec<String> =
            self.variables.iter().map(|(name, value)| format!("{name}={}", quoted(value))).collect();
        words.push(quoted(&self.program));
        words.extend(self.arguments.iter().map(|word| quoted(word)));
        words.join(" ")
    }

    fn prepared(&self, limit_s: Option<u64>) -> std::process::Command {
        let mut command = match limit_s {
            Some(limit_s) => {
                let mut timeout = std::process::Command::new("timeout");
                timeout.arg("--kill-after=10").arg(limit_s.to_string()).arg(&self.program);
                timeout
            }
            None => std::process::Command::new(&self.program),
        };
        command.args(&self.arguments).current_dir(&self.context.root);
        for (name, _) in std::env::vars_os() {
            if given_by_cargo_run(&name) {
                command.env_remove(name);
            }
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs it: says the command, shows its output as it comes and keeps standard output.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn run(&self) -> anyhow::Result<Done> {
        println!("$ {}", self.spelled());
        let limit_s = self.limit_s;
        let mut child = self
            .prepared(limit_s)
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start `{}`", self.program))?;
        let mut kept = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            let mut reader = BufReader::new(stdout);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line)? > 0 {
                let mut out = std::io::stdout().lock();
                out.write_all(&line)?;
                out.flush()?;
                kept.append(&mut line);
            }
        }
        let status = child.wait()?;
        Ok(Done {
            success: status.success(),
            status: in_words(status, limit_s),
            stdout: String::from_utf8_lossy(&kept).into_owned(),
            stderr: String::new(),
        })
    }

    /// Runs it silently and keeps both outputs.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn capture(&self) -> anyhow::Result<Done> {
        self.capture_within(None)
    }

    fn capture_within(&self, limit_s: Option<u64>) -> anyhow::Result<Done> {
        let output = self
            .prepared(limit_s)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start `{}`", self.program))?;
        Ok(Done {
            success: output.status.success(),
            status: in_words(output.status, limit_s),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Same as `capture`, but says the command first, which may take no longer than others that are shown.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn capture_aloud(&self) -> anyhow::Result<Done> {
        println!("$ {}", self.spelled());
        self.capture_within(self.limit_s)
    }

    /// Runs a command that is one check.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn check(&self) -> anyhow::Result<Verdict> {
        let done = self.run()?;
        Ok(if done.success { Verdict::passed() } else { Verdict::failed(self.failure(&done)) })
    }

    /// Runs a command that runs tests, and counts them. One that ran none at all has failed: nothing was
    /// checked.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn tests(&self) -> anyhow::Result<Verdict> {
        let done = self.run()?;
        Ok(verdict_on_tests(&done, &self.failure(&done)))
    }

    /// Same as `tests`, of those with one of these parts in their names. A part that is in the name of none that ran
    /// has failed.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn tests_named(self, parts: &[&str]) -> anyhow::Result<Verdict> {
        let command = self.args(parts);
        let done = command.run()?;
        Ok(verdict_on_selection(&done, &command.failure(&done), parts))
    }

    /// Builds the tests that a command would run. That is no pass.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn build_only(self) -> anyhow::Result<Verdict> {
        let built = self.args(&["--no-run"]).check()?;
        Ok(built.and(Verdict::skipped("built, and not run, as was asked for")))
    }

    fn failure(&self, done: &Done) -> String {
        format!("`{}` ended with {}", self.spelled(), done.status)
    }
}

/// Describes the end of a program with this time limit.
fn in_words(status: ExitStatus, limit_s: Option<u64>) -> String {
    match limit_s.filter(|_| matches!(status.code(), Some(124 | 137))) {
        Some(limit_s) => format!("stopped: not done after {limit_s} s"),
        None => status.to_string(),
    }
}

/// The verdict on a run of tests.
fn verdict_on_tests(done: &Done, failure: &str) -> Verdict {
    let tests = count::results(&done.stdout);
    let names = count::failed_names(&done.stdout);
    let verdict = if !names.is_empty() {
        Verdict::failed(names.join(", "))
    } else if !done.success || tests.failed > 0 {
        Verdict::failed(failure)
    } else if tests.passed == 0 {
        Verdict::failed(format!("no test ran; {failure}"))
    } else {
        Verdict::passed()
    };
    verdict.with_tests(tests).with_failures(count::failed_outputs(&done.stdout))
}

/// The verdict on a run of tests that were chosen by parts of their names: each has to have chosen one.
fn verdict_on_selection(done: &Done, failure: &str, parts: &[&str]) -> Verdict {
    let ran = count::ran_names(&done.stdout);
    let idle: Vec<&str> = parts.iter().copied().filter(|part| !ran.iter().any(|name| name.contains(part))).collect();
    let verdict = verdict_on_tests(done, failure);
    if idle.is_empty() || verdict.tests.passed == 0 {
        verdict
    } else {
        verdict.and(Verdict::failed(format!("no test ran that has `{}` in its name", idle.join("` or `"))))
    }
}

/// Variables that `cargo run` sets for the program it starts, and that a command typed by hand lacks.
fn given_by_cargo_run(name: &OsString) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// A word as a shell wants it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::State;

    fn context(limit_s: Option<u64>) -> Context {
        Context { root: std::env::temp_dir(), target: std::env::temp_dir(), limit_s }
    }

    fn done(success: bool, stdout: &str) -> Done {
        Done { success, status: "exit status: 101".into(), stdout: stdout.into(), stderr: String::new() }
    }

    #[test]
    fn a_command_is_spelled_as_one_would_type_it() {
        let context = context(None);
        let command = context.cargo(&["test", "it's"]).env("RUSTFLAGS", "--cfg loom");
        assert_eq!(command.spelled(), r"RUSTFLAGS='--cfg loom' cargo test 'it'\''s'");
    }

    #[test]
    fn the_line_that_says_most() {
        let complains = |stderr: &str| Done { stderr: stderr.into(), ..done(false, "") }.first_error().to_owned();
        assert_eq!(complains("warning: x\n  error: no runtime \nmore"), "error: no runtime");
        assert_eq!(complains("\nSegmentation fault\n"), "Segmentation fault");
        assert_eq!(complains(""), "no reason given");
    }

    #[test]
    fn output_and_status_are_kept() {
        let context = context(None);
        let ran = context.command("sh", &["-c", "echo out; printf '\\377' >&2; exit 3"]).capture().expect("sh");
        assert_eq!((ran.success, ran.stdout.as_str(), ran.stderr.as_str()), (false, "out\n", "\u{fffd}"));
        let ran = context.command("sh", &["-c", "printf 'shown\\nand kept'"]).run().expect("sh");
        assert!(ran.success && ran.stdout.ends_with("and kept"));
    }

    #[test]
    fn a_command_over_its_limit_is_stopped_and_said_so() {
        let ran = context(Some(1)).command("sleep", &["600"]).run().expect("sleep");
        assert!(!ran.success);
        assert!(ran.status.contains("not done after 1 s"), "{}", ran.status);
    }

    #[test]
    fn a_command_may_have_a_limit_of_its_own() {
        assert_eq!(context(Some(600)).command("sleep", &[]).within(1).limit_s, Some(1));
        assert_eq!(context(None).command("sleep", &[]).within(1).limit_s, None);
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let error = context(None).command("no-such-program-here", &[]).run().expect_err("is missing");
        assert!(format!("{error:#}").contains("cannot start `no-such-program-here`"));
    }

    #[test]
    fn a_run_that_ran_no_test_has_failed() {
        assert!(matches!(verdict_on_tests(&done(true, ""), "it").state, State::Failed(_)));
        let none = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out";
        assert!(matches!(verdict_on_tests(&done(true, none), "it").state, State::Failed(_)));
    }

    #[test]
    fn a_run_of_ignored_tests_alone_has_failed() {
        let ignored = "test a ... ignored\ntest result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 9 filtered out";
        let verdict = verdict_on_tests(&done(true, ignored), "it");
        assert!(matches!(verdict.state, State::Failed(_)));
        assert_eq!(verdict.tests.skipped, 1);
    }

    #[test]
    fn each_part_of_a_selection_has_to_select_something() {
        let out = "test slot::one ... ok\ntest count::two - should panic ... ok\ntest request::three ... ignored, why\n\
                   test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 9 filtered out";
        let verdict_of = |parts: &[&str]| verdict_on_selection(&done(true, out), "it", parts);
        assert_eq!(verdict_of(&["slot", "count"]).state, State::Passed);
        for (parts, idle) in [(&["slot", "gone"][..], "gone"), (&["request", "slot"], "request"), (&["Slot"], "Slot")] {
            let State::Failed(why) = verdict_of(parts).state else { panic!("{parts:?} passed") };
            assert!(why.contains(&format!("`{idle}`")), "{why}");
        }
        assert!(matches!(verdict_on_selection(&done(true, ""), "it", &["slot"]).state, State::Failed(_)));
        let State::Failed(why) = verdict_on_selection(&done(false, out), "it", &["gone"]).state else {
            panic!("passed")
        };
        assert!(why.contains("it") && why.contains("`gone`"), "{why}");
    }

    #[test]
    fn a_test_process_that_died_fails_the_tier() {
        let some = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(verdict_on_tests(&done(true, some), "it").state, State::Passed);
        assert_eq!(verdict_on_tests(&done(false, some), "it").state, State::Failed("it".into()));
    }

    #[test]
    fn failed_tests_are_named() {
        let out = "test a ... FAILED\ntest result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured";
        let verdict = verdict_on_tests(&done(false, out), "it");
        assert_eq!(verdict.state, State::Failed("a".into()));
        assert_eq!(verdict.tests.failed, 1);
    }
}
