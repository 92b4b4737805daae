//! The tests named `timed_…`: of times that are required, such as how soon a program ends after one of its machines.
//! Load stretches them, so they run one at a time, and `ci` runs them when nothing runs beside the tiers any more.
//!
//! Here: their commands. Not here: the tests; their limits where others run beside them (`limits`).
//!
//! Invariant: a test that fails is run once more, and has failed if it fails again.

use crate::command::Context;
use crate::hosts;
use crate::tier::Verdict;

/// All of them; those on a rack of hosts where this machine can make hosts.
pub fn check(context: &Context) -> anyhow::Result<Verdict> {
    let tests = alone(context, &["--tests"])?;
    Ok(tests.and(match hosts::lacks(context)? {
        Some(why) => Verdict::skipped(format!("those on a rack of hosts: {why}")),
        None => alone(context, &["--test", "hosts"])?,
    }))
}

/// Those of these targets.
fn alone(context: &Context, targets: &[&str]) -> anyhow::Result<Verdict> {
    // Of the workspace, as the tier `test` builds it.
    let command = || {
        let command = context.cargo(&["test", "--workspace", "--no-fail-fast"]).args(targets).env(limits::ALONE, "1");
        command.args(&["--", "--test-threads", "1", "--show-output"])
    };
    let first = command().tests_named(&[limits::TIMED])?;
    first.each_again(|names| command().args(&["--exact"]).args(names).tests())
}
