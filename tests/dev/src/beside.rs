//! What `ci` does beside its tiers, one thing after the other, in the processor time that they leave: tiers in which no clock
//! matters, and what later tiers will run, built ahead.
//!
//! Here: starting them and taking their verdicts. Not here: which they are (`main`).
//!
//! Invariants: each is a `cargo dev` of its own that runs when nothing else wants the processor (`SCHED_IDLE`), until its turn
//! has come, so the tiers that measure times are hardly disturbed; what it says is shown then, never between the lines of another
//! tier. Where that cannot be had nothing is done beside, and all tiers run in their turn.

use crate::What;
use crate::command::Context;
use crate::tier::{State, Verdict};
use anyhow::Context as _;
use std::fs;
use std::io::{ErrorKind, Read, Seek};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long one command of these may take at least, in seconds: it may get no processor for as long as there are tiers.
const LIMIT_S: u64 = 3600;

/// What runs beside the tiers.
pub struct Beside {
    waiting: Vec<(What, Receiver<anyhow::Result<Done>>)>,
    /// The process that runs; 0 if there is none.
    process: Arc<AtomicU32>,
}

/// One of them has ended.
#[derive(Debug)]
pub struct Done {
    /// How.
    pub verdict: Verdict,
    /// What it said.
    pub said: String,
    /// How long it took, beside the tiers.
    pub taken: Duration,
}

/// What `run` needs of those who wait.
struct Lane {
    folder: PathBuf,
    limit_s: u64,
    process: Arc<AtomicU32>,
}

impl Beside {
    /// Starts them, if they can be run so that they disturb nobody. One command may take at least `limit_s` seconds.
    pub fn start(context: &Context, all: &[What], limit_s: u64) -> Beside {
        let process = Arc::<AtomicU32>::default();
        let folder = context.target.join("ci");
        let why = if !can_be_hurried() {
            "`chrt --idle 0 chrt --other 0 true` does not work here (it needs root, CAP_SYS_NICE or a limit of niceness)".to_owned()
        } else if let Err(error) = fs::create_dir_all(&folder) {
            format!("creating {}: {error}", folder.display())
        } else {
            String::new()
        };
        if !why.is_empty() {
            println!("nothing is done beside the tiers: {why}");
            return Beside { waiting: Vec::new(), process };
        }
        let (senders, receivers): (Vec<_>, Vec<_>) = all.iter().map(|_| channel()).unzip();
        let works: Vec<What> = all.to_vec();
        let lane = Lane { folder, limit_s: limit_s.max(LIMIT_S), process: Arc::clone(&process) };
        println!("beside the tiers, each with a log in {}:", lane.folder.display());
        works.iter().for_each(|what| println!("$ chrt --idle 0 cargo dev {}", typed(what).join(" ")));
        std::thread::spawn(move || {
            for (what, sender) in works.iter().zip(senders) {
                // Nobody may wait for it any more.
                let _ = sender.send(lane.run(what, &["chrt", "--idle", "0"]));
            }
        });
        Beside { waiting: all.iter().cloned().zip(receivers).collect(), process }
    }

    /// Waits for the one that is this tier, or that builds for it, and tells whether it is the tier itself; `None` if there is
    /// neither.
    pub fn wait(&self, tier: &What) -> Option<(bool, anyhow::Result<Done>)> {
        let (what, done) = self.waiting.iter().find(|(what, _)| what.name() == tier.name())?;
        let ended = loop {
            match done.recv_timeout(Duration::from_secs(1)) {
                Ok(ended) => break ended,
                // Again and again, because its processes start new ones.
                Err(RecvTimeoutError::Timeout) => hurry(self.process.load(Ordering::Relaxed)),
                Err(RecvTimeoutError::Disconnected) => {
                    break Err(anyhow::anyhow!("what ran beside the tiers has died"));
                }
            }
        };
        Some((what == tier, ended))
    }
}

/// Whether a process can be made to run when nothing else wants the processor, and like others again.
fn can_be_hurried() -> bool {
    let done =
        Command::new("chrt").args(["--idle", "0", "chrt", "--other", "0", "true"]).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}

/// Lets a process and all below it have their share of the processor from now on: somebody waits for them.
fn hurry(process: u32) {
    if process == 0 {
        return;
    }
    let id = process.to_string();
    // One that has just ended needs it no more.
    let _ = Command::new("chrt").args(["--all-tasks", "--other", "--pid", "0", &id]).stderr(Stdio::null()).status();
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    for thread in threads {
        let below = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        below.split_whitespace().filter_map(|id| id.parse().ok()).for_each(hurry);
    }
}

/// What one would type after `cargo dev`.
fn typed(what: &What) -> Vec<&'static str> {
    [what.name()].into_iter().chain(what.arguments().iter().copied()).collect()
}

impl Lane {
    /// Runs one `cargo dev`, with this program and its environment, behind these words.
    fn run(&self, what: &What, idle: &[&str]) -> anyhow::Result<Done> {
        let (log, verdict) = (self.fresh(what, "log")?, self.fresh(what, &format!("{}.json", std::process::id()))?);
        let mut options = fs::File::options();
        let mut output = options.create_new(true).read(true).append(true).open(&log);
        let output = output.as_mut().map_err(|error| anyhow::anyhow!("creating {}: {error}", log.display()))?;
        // A build may replace this program's file meanwhile; this name leads to what runs.
        let this = format!("/proc/{}/exe", std::process::id());
        let limit = self.limit_s.to_string();
        let mut words: Vec<&str> = idle.to_vec();
        words.push(&this);
        words.extend(typed(what));
        words.extend(["--limit", &limit, "--verdict"]);
        let start = Instant::now();
        // With the terminal, if there is one: then Ctrl-C reaches all of it, as without.
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .arg(&verdict)
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .spawn()
            .with_context(|| format!("cannot start `{}`", words.join(" ")))?;
        self.process.store(child.id(), Ordering::Relaxed);
        let status = child.wait();
        self.process.store(0, Ordering::Relaxed);
        let status = status?;
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
        Lane { folder: folder.to_owned(), limit_s: 1, process: Arc::default() }
    }

    /// Only this one, which runs behind these words.
    fn only(what: &What, behind: &[&str]) -> Beside {
        let folder = tempfile::tempdir().expect("a folder");
        let (sender, receiver) = channel();
        sender.send(lane(folder.path()).run(what, behind)).expect("it is waited for");
        Beside { waiting: vec![(what.clone(), receiver)], process: Arc::default() }
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

    /// A process that ends with the test.
    struct Killed(std::process::Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn who_is_waited_for_gets_a_share_with_all_below() {
        if !can_be_hurried() {
            println!("SKIPPED: `chrt --idle 0 chrt --other 0 true` does not work here");
            return;
        }
        // What is below ends when it has nobody to read from.
        let mut above = Killed(
            Command::new("chrt")
                .args(["--idle", "0", "bash", "-c", "exec 3<&0; cat <&3 >/dev/null & echo; wait"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("chrt"),
        );
        let id = above.0.id();
        // Once it has said something its own child is there.
        above.0.stdout.take().expect("piped").read_exact(&mut [0]).expect("a line");
        let Ok(below) = fs::read_to_string(format!("/proc/{id}/task/{id}/children")) else {
            println!("SKIPPED: this kernel does not tell a process's children");
            return;
        };
        let below: u32 = below.trim().parse().expect("one child");
        let policy = |id: u32| {
            let stat = fs::read_to_string(format!("/proc/{id}/stat")).expect("it is there");
            // proc(5): the policy is field 41, the 39th behind the name in parentheses.
            stat.rsplit_once(") ").expect("a name").1.split(' ').nth(38).map(str::to_owned)
        };
        let policies = || [policy(id), policy(below)].map(Option::unwrap_or_default);
        assert_eq!(policies(), ["5", "5"], "SCHED_IDLE");
        hurry(id);
        assert_eq!(policies(), ["0", "0"], "SCHED_OTHER");
    }
}
