//! Programs under starters that are not ours: Slurm, `mpirun`, hydra, containers as a Kubernetes Job has them.
//!
//! Here: the list, and the results of the checks. Not here: the checks (`tests/starters/*.sh`).
//!
//! Invariant: a starter that cannot be had is SKIPPED with the reason, and the tier with it; one that checks nothing
//! has failed.

use crate::command::Context;
use crate::count::Counts;
use crate::tier::{State, Verdict};

/// Each has a script of this name.
const STARTERS: [&str; 4] = ["hydra", "mpirun", "slurm", "containers"];

/// Time limit of the checks of one: about half a minute where nothing hangs.
const LIMIT_S: &str = "1200";

/// All of them at a time: each mostly waits.
pub fn check(context: &Context) -> anyhow::Result<Verdict> {
    let built = crate::basic::programs(context)?;
    if built.state != State::Passed {
        return Ok(built);
    }
    std::thread::scope(|scope| {
        let mut verdict = Verdict::passed();
        let all = STARTERS.map(|starter| scope.spawn(move || run(context, starter)));
        for checked in all {
            let (said, assessed) =
                checked.join().map_err(|_| anyhow::anyhow!("a thread of this program has panicked"))??;
            print!("{said}");
            verdict = verdict.and(assessed);
        }
        Ok(verdict)
    })
}

/// Output and result of the checks of one.
fn run(context: &Context, starter: &str) -> anyhow::Result<(String, Verdict)> {
    let folder = context.target.join("starters").join(starter);
    let _ = std::fs::remove_dir_all(&folder); // of an earlier run
    std::fs::create_dir_all(&folder)?;
    let text = format!(". tests/starters/lib.sh; . tests/starters/{starter}.sh");
    let command = context.command("timeout", &["--kill-after", "5", LIMIT_S, "bash", "-c", &text]);
    let command = command.env("FOLDER", folder.to_string_lossy());
    let done = command.env("PROGRAMS", context.target.join("debug").to_string_lossy()).capture()?;
    let assessed = assess(starter, &done.stdout, done.success, &done.stderr);
    Ok((done.stdout, assessed))
}

/// The result of a script, by its output.
fn assess(starter: &str, said: &str, is_success: bool, complaints: &str) -> Verdict {
    let of = |word| said.lines().filter(|line| line.starts_with(word)).count();
    let tests = Counts { passed: of("ok "), failed: of("FAILED"), ..Counts::default() };
    if let Some(why) = said.lines().find_map(|line| line.strip_prefix("SKIPPED: ")) {
        return Verdict::skipped(format!("{starter}: {why}"));
    }
    if tests.failed > 0 {
        let which: Vec<&str> = said.lines().filter(|line| line.starts_with("FAILED")).collect();
        return Verdict::failed(which.join("; ")).with_tests(tests);
    }
    if tests.passed == 0 || !is_success {
        return Verdict::failed(format!("{starter} came to no end: {}", complaints.trim())).with_tests(tests);
    }
    Verdict::passed().with_tests(tests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_judged_by_what_it_says() {
        let passed = assess("x", "ok a\nx: 3 ms\nok b\n", true, "");
        assert_eq!((passed.state, passed.tests.passed), (State::Passed, 2));
        assert!(
            matches!(assess("x", "ok a\nFAILED b: c\n", true, "").state, State::Failed(why) if why == "FAILED b: c")
        );
        assert!(matches!(assess("x", "SKIPPED: no x\n", false, "").state, State::Skipped(why) if why == "x: no x"));
        assert!(matches!(assess("x", "", true, "").state, State::Failed(_)));
        assert!(matches!(assess("x", "ok a\n", false, "cut off").state, State::Failed(why) if why.contains("cut off")));
    }
}
