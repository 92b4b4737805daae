//! Memory limit of a program on this host: the lower one of the user's (`run --memory`) and the host's (`memory:` of
//! `rack.yaml`). The program's cgroup keeps it (`cgroup.rs`).
//!
//! A user's limit that cannot be kept is a reason to refuse the program; the host's has no effect then, and `check`
//! and the log say so.

use super::Daemon;
use crate::config::MemoryBytes;
use crate::options::RunOptions;

/// Returns the limit in bytes; `None`: there is none.
///
/// # Errors
/// A text with the cure: the user wants a limit, and this host cannot keep any.
pub(super) fn limit(daemon: &Daemon, options: &RunOptions) -> Result<Option<u64>, String> {
    let own = daemon.rack.memory_of(&daemon.host);
    match (options.memory, daemon.cgroups.why_no_memory_limit()) {
        (Some(_), Some(why)) => Err(format!("--memory: {why}, or leave it out")),
        (asked, _) => Ok(asked.into_iter().chain(own).map(MemoryBytes::get).min()),
    }
}

/// Returns why the host's limit has no effect, with the cure; `None`: it has, or there is none.
pub(super) fn trouble(daemon: &Daemon) -> Option<String> {
    let own = daemon.rack.memory_of(&daemon.host)?;
    let why = daemon.cgroups.why_no_memory_limit()?;
    Some(format!("`memory` of rack.yaml, {own}, has no effect: {why}"))
}
