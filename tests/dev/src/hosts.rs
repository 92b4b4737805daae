//! The tier on a rack of hosts, which are network namespaces.
//!
//! Here: whether this machine can make such hosts. Not here: the scenarios (`tests/tests/hosts`).
//!
//! Invariant: without root, iproute2 or nftables the tier is SKIPPED with the reason, before anything is built.

use crate::command::Context;
use crate::tier::Verdict;

/// Which scenarios.
#[derive(clap::Args, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rack {
    /// Without those that judge times, as `ci` does, which runs these when nothing runs beside them
    #[arg(long)]
    pub untimed: bool,
}

/// The scenarios, one after the other: none should disturb the next.
pub fn rack(context: &Context, rack: Rack) -> anyhow::Result<Verdict> {
    if let Some(why) = lacks(context)? {
        return Ok(Verdict::skipped(why));
    }
    // Of the workspace, as the tier `test` builds it.
    let scenarios = |chosen: &[&str]| {
        let command = context.cargo(&["test", "--workspace", "--no-fail-fast", "--test", "hosts"]);
        let command = if rack.untimed { command } else { command.env(limits::ALONE, "1") };
        command.args(&["--", "--test-threads", "1", "--show-output"]).args(chosen).tests()
    };
    let chosen: &[&str] = if rack.untimed { &["--skip", limits::TIMED] } else { &[] };
    scenarios(chosen)?.or_again(|name| scenarios(&["--exact", name]))
}

/// Why this machine cannot make such hosts, if so.
pub fn lacks(context: &Context) -> anyhow::Result<Option<&'static str>> {
    if !is_root(context)? {
        return Ok(Some("not root: hosts are network namespaces, which only root can make"));
    }
    match context.command("ip", &["-Version"]).capture() {
        Ok(done) if done.success => {}
        _ => return Ok(Some("no `ip`: on Debian, `apt-get install iproute2`")),
    }
    match context.command("nft", &["--version"]).capture() {
        Ok(done) if done.success => {}
        _ => return Ok(Some("no `nft`: on Debian, `apt-get install nftables`")),
    }
    let namespace = context.command("unshare", &["--net", "ip", "link", "add", "br0", "type", "bridge"]).capture();
    let is_made = namespace.is_ok_and(|done| done.success);
    let refused = "root may not make network namespaces with a bridge here (a container without CAP_SYS_ADMIN?)";
    Ok((!is_made).then_some(refused))
}

/// Whether the user is root.
pub fn is_root(context: &Context) -> anyhow::Result<bool> {
    Ok(context.command("id", &["-u"]).capture()?.stdout.trim() == "0")
}
