//! Single-line changes of the code that no test notices: cargo-mutants over the files that everything else relies on.
//!
//! Here: which files, by which tests, and the meaning of a survivor. Not here: explained survivors, and why
//! (`.cargo/mutants.toml`); findings (`docs/mutants.md`).
//!
//! Invariants: a change counts as noticed if any pass of its group fails or hangs; one that none notices fails the
//! tier, and so do a group without changes and an explanation of nothing.

use crate::command::{Command, Context};
use crate::count::Counts;
use crate::tier::{State, Verdict};
use anyhow::Context as _;
use clap::ValueEnum;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Time limit of the passes of one group, in seconds.
const LIMIT_S: u64 = 6 * 3600;
/// Least time after which the tests of one change count as hung, in seconds. Otherwise it is five times as
/// long as they take without a change.
const HANGS_S: &str = "20";
/// Settings for quick builds of a changed tree. Backtraces and line numbers of tests that are meant to fail only take
/// time, and so does optimising anew for one line.
const QUICK_BUILDS: [(&str, &str); 5] = [
    ("RUST_BACKTRACE", "0"),
    ("CARGO_PROFILE_DEV_DEBUG", "0"),
    ("CARGO_INCREMENTAL", "1"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
    ("CARGO_PROFILE_RELEASE_INCREMENTAL", "true"),
];
/// The survivors that are explained.
const EXPLAINED: &str = ".cargo/mutants.toml";

/// Groups that can be run alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Group {
    /// Keys, handshake, sealed frames, secure streams
    Secure,
    /// Sleeping and waking between processes
    CommPark,
    /// Sleeping and waking between threads
    Park,
    /// Batches to and from other machines
    Remote,
    /// Request and response slots
    Slot,
    /// Counting of trusts
    Reclaim,
    /// Client and trustee of one pair
    Pair,
}

/// Options of `mutants`.
#[derive(clap::Args, Clone, PartialEq, Eq, Debug)]
pub struct Mutants {
    /// One group of files alone
    #[arg(value_enum)]
    only: Option<Group>,
    /// Number of changes tried at the same time; each has a build folder of its own
    #[arg(long, default_value_t = 1)]
    jobs: usize,
}

/// Tests for a group's changes.
enum Tests {
    /// The unit tests of a package with one of these parts in their names, all if there is none.
    Unit(&'static [&'static str]),
    /// These files of integration tests.
    Integration(&'static [&'static str]),
    /// The loom models with one of these parts in their names.
    Loom(&'static [&'static str]),
}

impl Tests {
    /// The command with these tests. Targets to build go behind `--cargo-arg`: else all tests of the package would be
    /// built, for each change.
    fn added_to<'a>(&self, command: Command<'a>) -> Command<'a> {
        match self {
            Tests::Unit(parts) => command.args(&["--cargo-arg=--lib", "--", "--"]).args(parts),
            Tests::Integration(files) => {
                files.iter().fold(command, |command, file| command.args(&[&format!("--cargo-arg=--test={file}")]))
            }
            Tests::Loom(parts) => crate::loom::modelled(
                command.args(&["--cargo-arg=--lib", "--profile", "release", "--", "--"]).args(parts),
            ),
        }
    }
}

/// Files of one package, and the passes that their changes go through, the quick ones first: each tries the changes
/// that those before it did not notice.
struct Files {
    package: &'static str,
    files: &'static [&'static str],
    passes: &'static [Tests],
}

impl Group {
    fn files(self) -> Files {
        match self {
            Group::Secure => Files {
                package: "gossamer-comm",
                files: &[
                    "comm/src/secure/handshake.rs",
                    "comm/src/secure/frame.rs",
                    "comm/src/secure/key.rs",
                    "comm/src/secure/stream.rs",
                    "comm/src/secure/unauthenticated.rs",
                ],
                passes: &[
                    Tests::Unit(&["secure::frame", "secure::handshake", "secure::key", "secure::unauthenticated"]),
                    Tests::Unit(&["secure::", "tcp::greeting"]),
                ],
            },
            Group::CommPark => Files {
                package: "gossamer-comm",
                files: &["comm/src/park.rs"],
                passes: &[Tests::Unit(&["park::"]), Tests::Loom(&["park::"])],
            },
            Group::Park => Files {
                package: "gossamer-trust",
                files: &["trust/src/park/mod.rs"],
                passes: &[
                    Tests::Unit(&["park::", "reply::", "submit::", "worker::"]),
                    Tests::Integration(&["sleeping", "ends", "net_idle"]),
                    Tests::Loom(&["park::", "registry::", "slot::model"]),
                ],
            },
            Group::Remote => Files {
                package: "gossamer-trust",
                files: &[
                    "trust/src/remote/frame.rs",
                    "trust/src/remote/server.rs",
                    "trust/src/remote/client.rs",
                    "trust/src/remote/fault.rs",
                    "trust/src/remote/mod.rs",
                    "trust/src/remote/numbers.rs",
                ],
                passes: &[Tests::Unit(&["remote::"])],
            },
            Group::Slot => Files {
                package: "gossamer-trust",
                files: &["trust/src/slot/mod.rs", "trust/src/slot/cursor.rs", "trust/src/slot/dictionary.rs"],
                passes: &[Tests::Unit(&["slot::"]), Tests::Integration(&["memory"]), Tests::Loom(&["slot::model"])],
            },
            Group::Reclaim => Files {
                package: "gossamer-trust",
                files: &["trust/src/property/reclaim.rs"],
                passes: &[
                    Tests::Unit(&["reclaim::", "remote::tests"]),
                    Tests::Integration(&["counting", "drops", "freed"]),
                    Tests::Loom(&["reclaim::"]),
                ],
            },
            Group::Pair => Files {
                package: "gossamer-trust",
                files: &["trust/src/local/client.rs", "trust/src/local/client/gone.rs", "trust/src/local/trustee.rs"],
                passes: &[
                    Tests::Unit(&["client::"]),
                    Tests::Integration(&["panics", "ends"]),
                    Tests::Integration(&["order", "sizes", "oracle", "freed", "memory", "going_down"]),
                ],
            },
        }
    }
}

/// Tries the changes of one group, or of all.
pub fn check(context: &Context, options: &Mutants) -> anyhow::Result<Verdict> {
    let version = context.cargo(&["mutants", "--version"]).capture()?;
    if !version.success {
        return Ok(Verdict::skipped(
            "no cargo-mutants: `cargo dev install-tools`, or `cargo install --locked cargo-mutants`",
        ));
    }
    let explained = fs::read_to_string(context.root.join(EXPLAINED)).with_context(|| EXPLAINED)?;
    let mut verdict = explanations(context, &explained)?;
    if verdict.state != State::Passed {
        return Ok(verdict);
    }
    // Each copy of the tree leaves its packages there.
    let _ = fs::remove_dir_all(build_folder(context));
    for group in Group::value_variants().iter().filter(|group| options.only.is_none_or(|only| only == **group)) {
        verdict = verdict.and(try_all(context, *group, options.jobs)?);
    }
    Ok(verdict)
}

/// Whether each explanation has a reason, and explains something.
fn explanations(context: &Context, explained: &str) -> anyhow::Result<Verdict> {
    let list = |more: &[&str]| -> anyhow::Result<usize> {
        let listed = context.cargo(&["mutants", "--workspace", "--no-config", "--list"]).args(more).capture()?;
        anyhow::ensure!(listed.success, "cargo mutants --list {}: {}", more.join(" "), listed.stderr.trim());
        Ok(listed.stdout.lines().count())
    };
    let mut verdict = Verdict::passed();
    let all = list(&[])?;
    for Explanation { pattern, reason } in explanations_in(explained) {
        if reason.is_empty() {
            verdict = verdict.and(Verdict::failed(format!("{EXPLAINED}: no reason above '{pattern}'")));
        }
        // Not by `--re`, which some kinds of changes pass under any name.
        if list(&["--exclude-re", pattern])? == all {
            verdict = verdict.and(Verdict::failed(format!("{EXPLAINED}: no change is called '{pattern}' any more")));
        }
    }
    Ok(verdict)
}

/// A pattern of `exclude_re`, and the comment above it.
struct Explanation<'a> {
    pattern: &'a str,
    reason: String,
}

fn explanations_in(text: &str) -> Vec<Explanation<'_>> {
    let mut reason = String::new();
    let mut found = Vec::new();
    for line in text.lines().skip_while(|line| !line.starts_with("exclude_re")) {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix('#') {
            reason = format!("{reason} {}", comment.trim()).trim().to_owned();
        } else if let Some(pattern) =
            line.strip_prefix('\'').and_then(|rest| rest.trim_end_matches(',').strip_suffix('\''))
        {
            found.push(Explanation { pattern, reason: reason.clone() });
        } else {
            reason.clear();
        }
    }
    found
}

/// One group, pass after pass.
fn try_all(context: &Context, group: Group, jobs: usize) -> anyhow::Result<Verdict> {
    let Files { package, files, passes } = group.files();
    let folder = context.target.join("mutants").join(format!("{group:?}").to_lowercase());
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let mut tried = Tried::default();
    for (number, pass) in passes.iter().enumerate() {
        let jobs_text = jobs.to_string();
        let mut run = context
            .cargo(&["mutants", "--no-shuffle", "--cap-lints", "true", "--package", package, "--jobs", &jobs_text])
            .args(&["--minimum-test-timeout", HANGS_S, "--output", &folder.to_string_lossy()])
            .within(LIMIT_S);
        for (variable, value) in QUICK_BUILDS {
            run = run.env(variable, value);
        }
        if jobs == 1 {
            // The packages of others are built once, not for each pass. Several jobs would wait for one another here.
            run = run.env("CARGO_TARGET_DIR", build_folder(context).to_string_lossy());
        }
        for file in files {
            run = run.args(&["--file", file]);
        }
        if number > 0 {
            run = run.args(&["--iterate"]);
        }
        let done = pass.added_to(run).run()?;
        // 2: some were not noticed. 3: some hung.
        let ran = done.success || ["exit status: 2", "exit status: 3"].contains(&done.status.as_str());
        if !ran {
            return Ok(Verdict::failed(format!("{group:?}: cargo-mutants ended with {}", done.status)));
        }
        tried.take_in(&folder.join("mutants.out"))?;
        if tried.missed.is_empty() {
            break;
        }
    }
    Ok(verdict_on(group, &tried))
}

/// Returns the folder where changed trees are built if they are tried one at a time.
fn build_folder(context: &Context) -> PathBuf {
    context.target.join("mutants/build")
}

/// Findings of cargo-mutants about a group's changes, by their names.
#[derive(Default)]
struct Tried {
    caught: BTreeSet<String>,
    hung: BTreeSet<String>,
    unviable: BTreeSet<String>,
    /// Changes missed by the last pass, and by all before it.
    missed: BTreeSet<String>,
}

impl Tried {
    /// Adds the results of one pass from this folder. It has tried again the changes that hung before.
    fn take_in(&mut self, folder: &Path) -> anyhow::Result<()> {
        let lines = |name: &str| -> anyhow::Result<BTreeSet<String>> {
            let file = folder.join(name);
            let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
            Ok(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect())
        };
        self.caught.extend(lines("caught.txt")?);
        self.hung.extend(lines("timeout.txt")?);
        self.hung.retain(|change| !self.caught.contains(change));
        self.unviable.extend(lines("unviable.txt")?);
        self.missed = lines("missed.txt")?;
        self.missed.retain(|change| !self.hung.contains(change));
        Ok(())
    }
}

/// The verdict on a group.
fn verdict_on(group: Group, tried: &Tried) -> Verdict {
    let Tried { caught, hung, unviable, missed } = tried;
    println!(
        "{group:?}: {} changes tried: {} noticed by a failure, {} by a hang, {} not noticed, {} do not compile",
        caught.len() + hung.len() + missed.len() + unviable.len(),
        caught.len(),
        hung.len(),
        missed.len(),
        unviable.len()
    );
    hung.iter().for_each(|change| println!("hung: {change}"));
    missed.iter().for_each(|change| println!("not noticed: {change}"));
    let noticed = caught.len() + hung.len();
    let tests = Counts { passed: noticed, failed: missed.len(), skipped: 0 };
    let state = if !missed.is_empty() {
        let why = format!(
            "{group:?}: {} changes that no test notices; test them, or explain them in {EXPLAINED}",
            missed.len()
        );
        State::Failed(why)
    } else if noticed == 0 {
        State::Failed(format!("{group:?}: no change was tried"))
    } else {
        State::Passed
    };
    Verdict { state, ..Verdict::passed() }.with_tests(tests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_no_test_notices_fails_and_so_do_no_changes() {
        let some = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
        let mut tried = Tried::default();
        assert!(matches!(verdict_on(Group::Remote, &tried).state, State::Failed(_)));
        tried = Tried { caught: some(&["a", "b"]), hung: some(&["c"]), ..tried };
        assert_eq!(verdict_on(Group::Remote, &tried).state, State::Passed);
        tried.missed = some(&["x.rs:1:2: replace + with -"]);
        let verdict = verdict_on(Group::Remote, &tried);
        assert!(matches!(&verdict.state, State::Failed(why) if why.contains("Remote: 1 changes")), "{verdict:?}");
        assert_eq!((verdict.tests.passed, verdict.tests.failed), (3, 1));
    }

    #[test]
    fn an_explanation_is_a_pattern_and_the_comment_above_it() {
        let text =
            "# Of the file.\nexclude_re = [\n    # Only\n    # logs.\n    'in a$',\n    'in b',\n\n    'in c',\n]\n";
        let found = explanations_in(text);
        let found: Vec<_> = found.iter().map(|one| (one.pattern, one.reason.as_str())).collect();
        assert_eq!(found, [("in a$", "Only logs."), ("in b", "Only logs."), ("in c", "")]);
    }

    #[test]
    fn each_group_has_files_that_are_there_and_passes() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for group in Group::value_variants() {
            let Files { files, passes, .. } = group.files();
            assert!(!passes.is_empty());
            for file in files {
                assert!(root.join(file).is_file(), "{file}");
            }
        }
    }

    #[test]
    fn what_passes_left_is_added_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let left = |texts: [&str; 4]| {
            for (name, text) in ["caught.txt", "timeout.txt", "unviable.txt", "missed.txt"].iter().zip(texts) {
                fs::write(folder.path().join(name), text).expect("is written");
            }
        };
        let mut tried = Tried::default();
        assert!(tried.take_in(folder.path()).is_err());
        left(["a\nb\n", "c\nd\n", "u\n", "e\nf\n\n"]);
        tried.take_in(folder.path()).expect("is there");
        assert_eq!((tried.caught.len(), tried.hung.len(), tried.unviable.len(), tried.missed.len()), (2, 2, 1, 2));
        // A change that hung is tried again, by tests that need not be those that hung.
        left(["c\ne\n", "", "", "d\nf\n"]);
        tried.take_in(folder.path()).expect("is there");
        assert_eq!((tried.caught.len(), tried.hung.len(), tried.unviable.len(), tried.missed.len()), (4, 1, 1, 1));
        assert!(tried.hung.contains("d") && tried.missed.contains("f"));
    }
}
