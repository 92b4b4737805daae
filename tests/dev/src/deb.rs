//! The Debian package of daemon and launcher: built, installed on a copy of this system, used, removed.
//!
//! Here: whether this machine can. Not here: the contents of the package (`gossamer-daemon/Cargo.toml`), and the checks
//! (`deb.sh`).
//!
//! Invariant: nothing of this system changes: the copy is an overlay in memory, in a mount namespace of its own.

use crate::command::{Context, Done};
use crate::hosts;
use crate::tier::{State, Verdict};

/// Options of the build.
#[derive(clap::Args, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deb {
    /// Builds without optimisation
    #[arg(long)]
    debug: bool,
}

/// The steps on the copy.
const STEPS: &str = "tests/dev/src/deb.sh";

/// Time limit of the build, in seconds: it is optimised as a whole.
const LIMIT_S: u64 = 3600;

/// Builds the package, and installs and removes it where that can be done without a trace.
pub fn check(context: &Context, deb: Deb) -> anyhow::Result<Verdict> {
    if !context.cargo(&["deb", "--version"]).capture()?.success {
        return Ok(Verdict::skipped("no cargo-deb: `cargo dev install-tools`"));
    }
    if !context.command("dpkg-deb", &["--version"]).capture().is_ok_and(|done| done.success) {
        return Ok(Verdict::skipped("no dpkg: this is not Debian"));
    }
    let folder = context.target.join("deb");
    let package = folder.join("gossamer-daemon.deb");
    let mut build = context
        .cargo(&["deb", "--package", "gossamer-daemon", "--locked", "--output", &package.to_string_lossy()])
        .within(LIMIT_S);
    if deb.debug {
        build = build.args(&["--profile", "dev"]);
    }
    let built = build.check()?;
    if built.state != State::Passed {
        return Ok(built);
    }
    context.command("dpkg-deb", &["--info", &package.to_string_lossy()]).run()?;
    if !hosts::is_root(context)? {
        return Ok(Verdict::skipped("built, and not installed: not root"));
    }
    let done = context
        .command("unshare", &["--mount", "--propagation", "private", "sh", STEPS])
        .args(&[&package.to_string_lossy(), &folder.join("copy").to_string_lossy()])
        .run()?;
    Ok(verdict_on_steps(&done))
}

/// Results of the steps, in their own words.
fn verdict_on_steps(done: &Done) -> Verdict {
    let said = |word: &str| done.stdout.lines().find_map(|line| line.strip_prefix(word)).map(str::trim);
    if let Some(why) = said("FAILED:") {
        Verdict::failed(why)
    } else if !done.success {
        Verdict::failed(format!("the steps ended with {}", done.status))
    } else if let Some(why) = said("SKIPPED:") {
        Verdict::skipped(why)
    } else {
        Verdict::passed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_say_how_they_ended() {
        let state = |success, stdout: &str| {
            let status = "exit status: 1".to_owned();
            verdict_on_steps(&Done { success, status, stdout: stdout.to_owned(), stderr: String::new() }).state
        };
        assert_eq!(state(true, "installed\n"), State::Passed);
        assert_eq!(state(true, "a\nSKIPPED: no overlay\n"), State::Skipped("no overlay".into()));
        assert_eq!(state(false, "FAILED: a file is left\n"), State::Failed("a file is left".into()));
        assert!(matches!(state(false, "SKIPPED: b\n"), State::Failed(_)));
    }
}
