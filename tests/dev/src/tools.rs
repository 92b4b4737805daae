//! The toolchain components, the target and the cargo commands that the tiers need, and which toolchains there are.
//!
//! Here: the requests to rustup and `cargo install`. Not here: anything else.
//!
//! Invariant: a component that cannot be had is named, and only rustfmt and clippy are required.

use crate::command::Context;
use crate::tier::Verdict;

/// Commands of cargo that tiers call. They are built here, each with a hundred crates and more.
const COMMANDS: [&str; 2] = ["mutants", "deb"];

/// Time limit of `cargo install`, in seconds.
const INSTALL_LIMIT_S: u64 = 3600;

/// Adds rustfmt, clippy and the target of `aarch64` to the toolchain in use, miri to each nightly that is installed,
/// and the commands of cargo that are not there.
pub fn install(context: &Context) -> anyhow::Result<Verdict> {
    let mut verdict = context.command("rustup", &["component", "add", "rustfmt", "clippy"]).check()?;
    let listed = context.command("rustup", &["toolchain", "list", "--quiet"]).capture()?;
    let nightlies: Vec<String> =
        toolchains(&listed.stdout).into_iter().filter(|name| name.starts_with("nightly")).collect();
    if nightlies.is_empty() {
        println!("no nightly toolchain: `cargo dev miri` will be SKIPPED");
    }
    for nightly in nightlies {
        let add = ["component", "add", "--toolchain", &nightly, "miri", "rust-src"];
        if !context.command("rustup", &add).run()?.success {
            verdict = verdict.and(Verdict::skipped(format!("{nightly} offers no miri")));
        }
    }
    if !context.command("rustup", &["target", "add", crate::aarch64::TARGET]).run()?.success {
        verdict = verdict.and(Verdict::skipped(format!("the target {} cannot be had", crate::aarch64::TARGET)));
    }
    for command in COMMANDS {
        let package = format!("cargo-{command}");
        if !context.cargo(&[command, "--version"]).capture()?.success
            && !context.cargo(&["install", "--locked", &package]).within(INSTALL_LIMIT_S).run()?.success
        {
            verdict = verdict.and(Verdict::skipped(format!("{package} cannot be installed")));
        }
    }
    Ok(verdict)
}

/// The names in rustup's list, without its remarks (`(active, default)`).
pub fn toolchains(listed: &str) -> Vec<String> {
    listed.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_are_not_names() {
        let listed = "stable-x86_64-unknown-linux-gnu (active, default)\nnightly-x86_64\n\n";
        assert_eq!(toolchains(listed), ["stable-x86_64-unknown-linux-gnu", "nightly-x86_64"]);
    }
}
