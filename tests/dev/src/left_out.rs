//! Tests that a tier leaves out, because they cannot hold under the tool that it runs them with.
//!
//! Here: their names on the command line and in the counts. Not here: which they are, and why (the tiers).
//!
//! Invariant: each is a test that exists, is named with its reason, and counts as skipped.

use crate::command::{Command, Context};
use crate::count::Counts;
use crate::house;
use crate::tier::Verdict;

/// Runs the command, a `cargo test`, without these tests of these folders.
///
/// # Errors
/// If it cannot be started, or a folder cannot be read.
pub fn tests(
    context: &Context,
    command: Command<'_>,
    folders: &[&str],
    left_out: &[(&str, &str)],
) -> anyhow::Result<Verdict> {
    for (test, why) in left_out {
        let declares = |folder: &&str| house::declares(&context.root.join(folder), &format!("fn {test}("));
        if !folders.iter().map(declares).collect::<anyhow::Result<Vec<bool>>>()?.contains(&true) {
            return Ok(Verdict::failed(format!("there is no test `{test}` to skip: drop it from the list")));
        }
        println!("SKIPPED: {test}: {why}");
    }
    let skips: Vec<&str> = left_out.iter().flat_map(|(test, _)| ["--skip", test]).collect();
    let verdict = command.args(&["--"]).args(&skips).tests()?;
    Ok(verdict.with_tests(left_out.iter().map(|_| Counts::SKIPPED).sum()))
}
