//! Work that `ci` does beside its tiers, in the processor time that they leave: tiers that wait for no clock of this
//! machine, and builds for later tiers. In lanes; one thing after the other in each.
//!
//! Here: starting them and taking their verdicts. Not here: which they are (`main`).
//!
//! Invariants: each is a `cargo dev` of its own of a low priority (`nice`), so the tiers that measure times are hardly
//! disturbed; its output is shown when its turn has come, never between the lines of another tier.

use crate::What;
use crate::command::Context;
use crate::tier::{State, Verdict};
use anyhow::Context as _;
use std::fs;
use std::io::{ErrorKind, Read, Seek};
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Least time limit of one of these commands, in seconds: it may get no processor for as long as there are tiers.
const LIMIT_S: u64 = 10_800;

/// The lanes beside the tiers.
pub struct Beside {
    waiting: Vec<(What, Receiver<anyhow::Result<Done>>)>,
}

/// The command in front of theirs: this priority.
pub type Behind = [&'static str; 3];

/// The lowest.
pub const LAST: Behind = ["nice", "-n", "19"];
/// Priority before those, behind all others.
pub const LATER: Behind = ["nice", "-n", "10"];

/// Priority before both, for tiers that mostly wait.
pub const SOON: Behind = ["nice", "-n", "5"];

/// One of them has ended.
#[derive(Debug)]
pub struct Done {
    /// Its verdict.
    pub verdict: Verdict,
    /// Its output.
    pub said: String,
    /// Time it took beside the tiers.
    pub taken: Duration,
}

/// The folder of their output, and the time limit of one command.
struct Lane {
    folder: PathBuf,
    limit_s: u64,
}

impl Beside {
    /// Starts a lane of them. One command may take at least `limit_s` seconds.
    ///
    /// # Errors
    /// The folder of their logs cannot be made.
    pub fn start(context: &Context, all: &[What], behind: Behind, limit_s: u64) -> anyhow::Result<Beside> {
        let folder = context.target.join("ci");
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let (senders, receivers): (Vec<_>, Vec<_>) = all.iter().map(|_| channel()).unzip();
        let works: Vec<What> = all.to_vec();
        println!("beside the tiers, each with a log in {}:", folder.display());
        let lane = Lane { folder, limit_s: limit_s.max(LIMIT_S) };
        works.iter().for_each(|what| println!("$ {} cargo dev {}", behind.join(" "), typed(what).join(" ")));
        std::thread::spawn(move || {
            for (what, sender) in works.iter().zip(senders) {
                // Nobody may wait for it any more.
                let _ = sender.send(lane.run(what, &behind));
            }
        });
        Ok(Beside { waiting: all.iter().cloned().zip(receivers).collect() })
    }

    /// Waits for the one that is this tier, or that builds for it, and tells whether it is the tier itself; `None` if
    /// there is neither.
    pub fn wait(&self, tier: &What) -> Option<(bool, anyhow::Result<Done>)> {
        let (what, done) = self.waiting.iter().find(|(what, _)| what.name() == tier.name())?;
        let ended = done.recv().unwrap_or_else(|_| Err(anyhow::anyhow!("what ran beside the tiers has died")));
        Some((what == tier, ended))
    }
}

/// The words after `cargo dev`.
fn typed(what: &What) -> Vec<&'static str> {
    [what.name()].into_iter().chain(what.arguments().iter().copied()).collect()
}

impl Lane {
    /// Runs one `cargo dev`, with this program and its environment, behind these words.
    fn run(&self, what: &What, behind: &[&str]) -> anyhow::Result<Done> {
        let (log, verdict) = (self.fresh(what, "log")?, self.fresh(what, &format!("{}.json", std::process::id()))?);
        let mut options = fs::File::options();
        let mut output = options.create_new(true).read(true).append(true).open(&log);
        let output = output.as_mut().map_err(|error| anyhow::anyhow!("creating {}: {error}", log.display()))?;
        // A build may replace this program's file meanwhile; this name leads to the running one.
        let this = format!("/proc/{}/exe", std::process::id());
        let limit = self.limit_s.to_string();
        let mut words: Vec<&str> = behind.to_vec();
        words.push(&this);
        words.extend(typed(what));
        words.extend(["--limit", &limit, "--verdict"]);
        let start = Instant::now();
        // With the terminal, if there is one: then Ctrl-C reaches all of it, as without.
        let status = Command::new(words[0])
            .args(&words[1..])
            .arg(&verdict)
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .status()
            .with_context(|| format!("cannot start `{}`", words.join(" ")))?;
        let mut said = Vec::new();
        output.rewind()?;
        output.read_to_end(&mut said)?;
        let said = String::from_utf8_lossy(&said).into_owned();
        let told = fs::read_to_string(&verdict).ok().and_then(|text| serde_json::from_str::<Verdict>(&text).ok());
        let _ = fs::remove_file(&verdict);
        let verdict = match told {
            Some(verdict) if status.success() != matches!(verdict.state, State::Failed(_)) => verdict,
            _ => Verdict::failed(format!("`cargo dev {}` left no verdict: {status}", typed(what).join(" "))),
        };
        Ok(Done { verdict, said, taken: start.elapsed() })
    }

    /// The name of a file that is not there: one of an earlier run is removed, which may still write into it.
    fn fresh(&self, what: &What, end: &str) -> anyhow::Result<PathBuf> {
        let file = self.folder.join(format!("{}.{end}", typed(what).join(" ")));
        match fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", file.display()))
            }
            _ => Ok(file),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Build, RUN};

    fn lane(folder: &Path) -> Lane {
        Lane { folder: folder.to_owned(), limit_s: 1 }
    }

    /// Makes a run of this one alone, behind these words.
    fn only(what: &What, behind: &[&str]) -> Beside {
        let folder = tempfile::tempdir().expect("a folder");
        let (sender, receiver) = channel();
        sender.send(lane(folder.path()).run(what, behind)).expect("it is waited for");
        Beside { waiting: vec![(what.clone(), receiver)] }
    }

    /// A shell script that is told the words of `cargo dev`; the file for the verdict comes last.
    fn script(text: &str) -> Done {
        let (_, done) = only(&What::Miri, &["bash", "-c", text, "bash"]).wait(&What::Miri).expect("it is this one");
        done.expect("it could be started")
    }

    #[test]
    fn what_leaves_no_verdict_has_failed() {
        // This test program stands in for `cargo dev`: libtest does not know the options.
        let beside = only(&What::Miri, &["env"]);
        assert!(beside.wait(&What::Loom).is_none());
        let (is_tier, done) = beside.wait(&What::Miri).expect("it is this one");
        let done = done.expect("it could be started");
        let State::Failed(why) = done.verdict.state else { panic!("passed") };
        assert!(is_tier && why.contains("left no verdict") && done.said.contains("Unrecognized option"), "{why}");
    }

    #[test]
    fn a_verdict_counts_only_with_the_exit_status_that_belongs_to_it() {
        let passed = serde_json::to_string(&Verdict::passed()).expect("json");
        let failed = serde_json::to_string(&Verdict::failed("x")).expect("json");
        let ended = |verdict: &str, status| {
            script(&format!("echo said; printf '%s' '{verdict}' >\"${{@: -1}}\"; exit {status}"))
        };
        let done = ended(&passed, 0);
        assert_eq!((done.verdict.state, done.said.as_str()), (State::Passed, "said\n"));
        assert_eq!(ended(&failed, 1).verdict.state, State::Failed("x".into()));
        for done in [ended(&passed, 1), ended(&failed, 0), ended("{", 0), script("kill -9 $$")] {
            let State::Failed(why) = done.verdict.state else { panic!("passed") };
            assert!(why.contains("left no verdict"), "{why}");
        }
    }

    #[test]
    fn a_file_of_an_earlier_run_is_not_written_into() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("loom.log"), "old").expect("a file");
        let mut old = fs::OpenOptions::new().append(true).open(folder.path().join("loom.log")).expect("is there");
        let new = lane(folder.path()).fresh(&What::Loom, "log").expect("can be removed");
        fs::write(&new, "new").expect("a file");
        std::io::Write::write_all(&mut old, b"and older").expect("is open");
        assert_eq!(fs::read_to_string(new).expect("is there"), "new");
        fs::create_dir(folder.path().join("miri.log")).expect("a folder");
        assert!(lane(folder.path()).fresh(&What::Miri, "log").is_err());
    }

    #[test]
    fn a_build_ahead_is_not_the_tier() {
        let beside = only(&What::Asan(Build { no_run: true }), &["env"]);
        let (is_tier, _) = beside.wait(&What::Asan(RUN)).expect("it builds for this one");
        assert!(!is_tier);
        let (_, gone) = beside.wait(&What::Asan(RUN)).expect("it builds for this one");
        assert!(gone.expect_err("there is no second end").to_string().contains("has died"));
    }
}
