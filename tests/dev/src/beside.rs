//! What `ci` does beside its tiers, one thing after the other, in the processor time that they leave: tiers in which no clock
//! matters, and what later tiers will run, built ahead.
//!
//! Here: starting them and taking their verdicts. Not here: which they are (`main`).
//!
//! Invariant: each is a `cargo dev` of its own that runs when nothing else wants the processor, so the tiers that measure
//! times are hardly disturbed; what it says is shown when its turn has come, never between the lines of another tier.

use crate::What;
use crate::command::Context;
use crate::tier::Verdict;
use anyhow::Context as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long one command of these may take, in seconds: it may get no processor for as long as there are tiers.
const LIMIT_S: u64 = 3600;

/// How a program runs only when nothing else wants the processor: the first of these that works here.
const IDLE: [&[&str]; 2] = [&["chrt", "--idle", "0"], &["nice", "-n", "19"]];

/// What runs beside the tiers.
pub struct Beside(Vec<(What, Receiver<anyhow::Result<Done>>)>);

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

impl Beside {
    /// Starts them.
    ///
    /// # Errors
    /// If there is no room for what they say.
    pub fn start(context: &Context, all: &[What]) -> anyhow::Result<Beside> {
        let folder = context.target.join("ci");
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let idle = IDLE
            .into_iter()
            .find(|idle| context.command(idle[0], &idle[1..]).args(&["true"]).capture().is_ok_and(|done| done.success));
        let (senders, receivers): (Vec<_>, Vec<_>) = all.iter().map(|_| channel()).unzip();
        let works: Vec<What> = all.to_vec();
        std::thread::spawn(move || {
            for (what, sender) in works.iter().zip(senders) {
                // Nobody may wait for it any more.
                let _ = sender.send(run(idle.unwrap_or_default(), what, &folder));
            }
        });
        Ok(Beside(all.iter().cloned().zip(receivers).collect()))
    }

    /// Waits for the one that is this tier, or that builds for it, and tells whether it is the tier itself; `None` if there is
    /// neither.
    pub fn wait(&self, tier: &What) -> Option<(bool, anyhow::Result<Done>)> {
        let (what, done) = self.0.iter().find(|(what, _)| what.name() == tier.name())?;
        let ended = done.recv().unwrap_or_else(|_| Err(anyhow::anyhow!("what ran beside the tiers has died")));
        Some((what == tier, ended))
    }
}

/// Runs one `cargo dev`, with this program and its environment.
fn run(idle: &[&str], what: &What, folder: &Path) -> anyhow::Result<Done> {
    let file = |end: &str| -> PathBuf { folder.join(format!("{}.{end}", what.name())) };
    let (verdict, log) = (file("json"), file("log"));
    let _ = fs::remove_file(&verdict);
    let output = fs::File::create(&log).with_context(|| format!("creating {}", log.display()))?;
    // A build may replace this program's file meanwhile; this name leads to what runs.
    let this = format!("/proc/{}/exe", std::process::id());
    let limit = LIMIT_S.to_string();
    let mut words: Vec<&str> = idle.to_vec();
    words.extend([this.as_str(), what.name()]);
    words.extend(what.arguments());
    words.extend(["--limit", &limit, "--verdict"]);
    let start = Instant::now();
    let status = Command::new(words[0])
        .args(&words[1..])
        .arg(&verdict)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .status()
        .with_context(|| format!("cannot start `{}`", words.join(" ")))?;
    let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let verdict = fs::read_to_string(&verdict)
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_else(|| Verdict::failed(format!("it left no verdict: {status}; it said:\n{said}")));
    Ok(Done { verdict, said, taken: start.elapsed() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::State;
    use crate::{Build, RUN};

    /// A folder of its own, where this test program stands in for `cargo dev`: it takes the name of a tier for that of tests.
    fn one(what: What) -> Beside {
        let folder = tempfile::tempdir().expect("a folder");
        let (sender, receiver) = channel();
        sender.send(run(&[], &what, folder.path())).expect("it is waited for");
        Beside(vec![(what, receiver)])
    }

    #[test]
    fn what_leaves_no_verdict_has_failed_and_its_words_are_told() {
        let beside = one(What::Miri);
        assert!(beside.wait(&What::Loom).is_none());
        let (is_tier, done) = beside.wait(&What::Miri).expect("it is this one");
        let State::Failed(why) = done.expect("it could be started").verdict.state else { panic!("passed") };
        // libtest does not know the options.
        assert!(is_tier && why.contains("no verdict") && why.contains("Unrecognized option"), "{why}");
    }

    #[test]
    fn a_build_ahead_is_not_the_tier() {
        let beside = one(What::Asan(Build { no_run: true }));
        let (is_tier, _) = beside.wait(&What::Asan(RUN)).expect("it builds for this one");
        assert!(!is_tier);
        let (_, gone) = beside.wait(&What::Asan(RUN)).expect("it builds for this one");
        assert!(gone.expect_err("there is no second end").to_string().contains("has died"));
    }
}
