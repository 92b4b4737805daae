//! The parts of the tier: builds, machines, network and command of each.
//!
//! Here: the parts. Not here: the meaning of their output (`mod`).

use super::kit::Kit;
use super::machine::{Machine, Plan};
use super::{LIMIT, SUITE_LIMIT, show, tempfolder, verdict_on};
use crate::command::Context;
use crate::tier::Verdict;
use anyhow::Context as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The networks of the machines, and their commands, as shell scripts.
const PAIR: &str = include_str!("pair.sh");
const HOST: &str = include_str!("host.sh");
const PROGRAMS: &str = include_str!("programs.sh");
const RACK: &str = include_str!("rack.sh");

/// The folder inside a machine with the files for its command.
const INSIDE: &str = "\
export PATH=/run/kit/host/usr/sbin:/run/kit/host/usr/bin:/run/kit/host/sbin:/run/kit/host/bin
export PATH=$PATH:/usr/sbin:/usr/bin:/sbin:/bin
export LD_LIBRARY_PATH=/run/kit/host/usr/lib/x86_64-linux-gnu:/run/kit/host/lib/x86_64-linux-gnu
export IBV_DRIVERS=/run/kit/host/usr/lib/x86_64-linux-gnu/libibverbs/librxe
export HOME=/root RUST_TEST_THREADS=1
ulimit -l unlimited
set -e
";

/// The tests of `comm` in one machine, with the time that those of conformance take and the others.
const TIMED_PAIR: &str = "\
timed() {
    read -r start rest </proc/uptime
    /run/work/tests --show-output \"$@\" || failed=1
    read -r end rest </proc/uptime
    echo \"$start $end\" | awk -v what=\"$*\" '{ printf \"%.1f s: %s\\n\", $2 - $1, what }'
}
failed=0
timed pair::conforms
timed pair:: --skip pair::conforms
exit $failed
";

/// Builds all programs, and the behavioural suite, as the tier `test` does.
const ALL: [&str; 5] = ["build", "--workspace", "--bins", "--test", "suite"];

/// Place where parts run.
pub struct Bench<'a> {
    pub context: &'a Context,
    pub kit: Kit,
    pub folder: PathBuf,
}

/// Builds, and gives the executables of that kind ("bin", "test") by the names of their targets.
pub fn executables(context: &Context, arguments: &[&str], kind: &str) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let done = context.cargo(arguments).args(&["--message-format", "json"]).capture_aloud()?;
    anyhow::ensure!(done.success, "it does not build:\n{}", done.stderr);
    let messages = done.stdout.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let built = messages.filter(|message| message["target"]["kind"][0] == kind).filter_map(|message| {
        let (name, path) = (message["target"]["name"].as_str()?, message["executable"].as_str()?);
        Some((name.to_owned(), PathBuf::from(path)))
    });
    Ok(built.collect())
}

impl Bench<'_> {
    fn build(&self, arguments: &[&str], kind: &str) -> anyhow::Result<Vec<(String, PathBuf)>> {
        executables(self.context, arguments, kind)
    }

    /// A new folder for a machine, with these executables in it.
    fn work(&self, name: &str, executables: &[(String, PathBuf)]) -> anyhow::Result<PathBuf> {
        let work = self.folder.join(name);
        let _ = fs::remove_dir_all(&work);
        fs::create_dir_all(&work).with_context(|| format!("creating {}", work.display()))?;
        for (name, path) in executables {
            fs::copy(path, work.join(name)).with_context(|| format!("copying {}", path.display()))?;
        }
        Ok(work)
    }

    /// One machine with two devices, which runs `command`.
    fn one(&self, name: &str, work: PathBuf, command: &str, limit: Duration) -> anyhow::Result<Verdict> {
        let command = format!("{INSIDE}{PAIR}set +e\n{command}\n");
        let plan = Plan { name, work, command, processors: 2, network: None, limit };
        let start = Instant::now();
        let ended = Machine::start(&self.kit, &plan)?.wait()?;
        show(&plan, &ended, start);
        Ok(verdict_on(&plan, &ended))
    }

    /// Two machines with a device each and a network between, which run `command` with their numbers. The second is
    /// switched off in the end, after it has said `last_words`.
    fn two(&self, name: &str, works: [PathBuf; 2], command: &str, last_words: &str) -> anyhow::Result<Verdict> {
        let sockets = tempfolder()?;
        let socket = |number: u8| sockets.join(format!("{number}"));
        let names = [1, 2].map(|number| format!("{name} {number}"));
        let start = Instant::now();
        let plans: Vec<Plan<'_>> = (1u8..)
            .zip(works)
            .map(|(number, work)| Plan {
                name: &names[usize::from(number) - 1],
                work,
                command: format!("{INSIDE}NUMBER={number}\n{HOST}set +e\n{command}\n"),
                processors: 1,
                network: Some((socket(number), socket(3 - number), number)),
                limit: LIMIT,
            })
            .collect();
        let machines = plans.iter().map(|plan| Machine::start(&self.kit, plan)).collect::<anyhow::Result<Vec<_>>>();
        let ended =
            machines.and_then(|machines| machines.into_iter().map(Machine::wait).collect::<anyhow::Result<Vec<_>>>());
        let _ = fs::remove_dir_all(&sockets);
        let ended = ended?;
        for (plan, ended) in plans.iter().zip(&ended) {
            show(plan, ended, start);
        }
        let verdict = verdict_on(&plans[0], &ended[0]);
        if !has_said(&ended[1].output, last_words) || ended[1].status.is_some() {
            let why = format!("{} did not say {last_words:?}, or was not switched off", names[1]);
            return Ok(verdict.and(Verdict::failed(why)));
        }
        Ok(verdict)
    }

    /// The test program of `comm`, as `tests`.
    fn comm_tests(&self) -> anyhow::Result<Vec<(String, PathBuf)>> {
        let build = ["test", "--workspace", "--features", "gossamer-comm/devices", "--test", "verbs", "--no-run"];
        let tests = self.build(&build, "test")?;
        Ok(tests.into_iter().map(|(_, path)| ("tests".to_owned(), path)).collect())
    }

    pub fn pair(&self) -> anyhow::Result<Verdict> {
        self.one("pair", self.work("pair", &self.comm_tests()?)?, TIMED_PAIR, LIMIT)
    }

    pub fn hosts(&self) -> anyhow::Result<Verdict> {
        let tests = self.comm_tests()?;
        let works = [self.work("host1", &tests)?, self.work("host2", &tests)?];
        let command = "COMM_VERBS_HOST=$((NUMBER - 1)) exec /run/work/tests --ignored --show-output hosts::";
        self.two("host", works, command, "test hosts::conforms_between_hosts ... ok")
    }

    pub fn suite(&self) -> anyhow::Result<Verdict> {
        let mut built = self.build(&ALL, "bin")?;
        built.retain(|(name, _)| ["test-suite", "test-launch"].contains(&name.as_str()));
        built.extend(self.build(&ALL, "test")?);
        let work = self.work("suite", &built)?;
        let chosen = ["SUITE_SAMPLE", "SUITE_SEED"].iter().filter_map(|name| Some((name, std::env::var(name).ok()?)));
        let chosen: String = chosen.map(|(name, value)| format!("{name}='{value}' ")).collect();
        let settings = format!("{chosen}SUITE_PROGRAMS=/run/work SUITE_WAYS=verbs2 SUITE_EFFORT=small");
        self.one("suite", work, &format!("{settings} exec /run/work/suite"), SUITE_LIMIT)
    }

    pub fn programs(&self) -> anyhow::Result<Verdict> {
        let work = self.work("programs", &self.programs_built()?)?;
        text(self.context, &work)?;
        self.one("programs", work, PROGRAMS, LIMIT)
    }

    pub fn rack(&self) -> anyhow::Result<Verdict> {
        let programs = self.programs_built()?;
        let works = [self.work("rack1", &programs)?, self.work("rack2", &programs)?];
        let launcher = works[0].join("gossamer-launch");
        let (launcher, key) = (launcher.to_string_lossy(), works[0].join("rack.key"));
        let done = self.context.command(&launcher, &["keygen", &key.to_string_lossy()]).capture()?;
        anyhow::ensure!(done.success, "no key for the rack: {}", done.stderr);
        fs::copy(&key, works[1].join("rack.key"))?;
        works.iter().try_for_each(|work| text(self.context, work))?;
        self.two("rack", works, RACK, "the daemon listens")
    }

    /// Launcher, daemon, and two programs for them.
    fn programs_built(&self) -> anyhow::Result<Vec<(String, PathBuf)>> {
        let mut built = self.build(&ALL, "bin")?;
        let wanted = ["gossamer-launch", "gossamer-daemon", "wordcount", "test-roles"];
        built.retain(|(name, _)| wanted.contains(&name.as_str()));
        anyhow::ensure!(built.len() == wanted.len(), "cargo has not built all of {}", wanted.join(", "));
        Ok(built)
    }
}

/// Whether the output has these words, or the last of them in a line of its own behind the others: libtest writes a
/// test's name before it runs, its end behind it, and libraries write warnings between.
fn has_said(output: &str, words: &str) -> bool {
    let Some((test, end)) = words.rsplit_once(' ') else { return output.contains(words) };
    output.contains(words)
        || output.split_once(&format!("{test} ")).is_some_and(|(_, rest)| {
            let is_end = |line: &&str| [end, "FAILED"].contains(line) || line.starts_with("test ");
            rest.lines().skip(1).find(is_end) == Some(end)
        })
}

/// Something to count the words of.
fn text(context: &Context, work: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(work.join("text"))?;
    for file in ["README.md", "docs/ARCHITECTURE.md"] {
        fs::copy(context.root.join(file), work.join("text").join(file.rsplit('/').next().unwrap_or(file)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_between_a_test_and_its_end_does_no_harm() {
        let words = "test a::b ... ok";
        for said in ["x\ntest a::b ... ok\n", "test a::b ... lib: Warning: no x\nmore\nok\ntest a::c ... "] {
            assert!(has_said(said, words), "{said}");
        }
        let others = "test a::b ... lib: x\ntest a::c ... ok\nok\n";
        for not in ["", "test a::b ... ", others, "test a::b ... FAILED\n", "test a::b ... lib: x\nFAILED\nok\n"] {
            assert!(!has_said(not, words), "{not}");
        }
        assert!(has_said("the daemon listens: beta\n", "the daemon listens"));
    }
}
