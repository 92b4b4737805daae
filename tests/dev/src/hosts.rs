//! The tier on a rack of hosts, which are network namespaces.
//!
//! Here: whether this machine can make such hosts. Not here: the scenarios (`tests/tests/hosts`).
//!
//! Invariant: without root, iproute2 or nftables the tier is SKIPPED with the reason, before anything is built.

use crate::command::Context;
use crate::tier::Verdict;

/// The scenarios, one after the other: each measures times, and none should disturb the next.
pub fn rack(context: &Context) -> anyhow::Result<Verdict> {
    if !is_root(context)? {
        return Ok(Verdict::skipped("not root: hosts are network namespaces, which only root can make"));
    }
    match context.command("ip", &["-Version"]).capture() {
        Ok(done) if done.success => {}
        _ => return Ok(Verdict::skipped("no `ip`: on Debian, `apt-get install iproute2`")),
    }
    match context.command("nft", &["--version"]).capture() {
        Ok(done) if done.success => {}
        _ => return Ok(Verdict::skipped("no `nft`: on Debian, `apt-get install nftables`")),
    }
    let namespace = context.command("unshare", &["--net", "ip", "link", "add", "br0", "type", "bridge"]).capture();
    if !namespace.is_ok_and(|done| done.success) {
        return Ok(Verdict::skipped(
            "root may not make network namespaces with a bridge here (a container without CAP_SYS_ADMIN?)",
        ));
    }
    // Of the workspace, as the tier `test` builds it.
    let scenarios = |chosen: &[&str]| {
        let command = context.cargo(&["test", "--workspace", "--no-fail-fast", "--test", "hosts"]);
        command.args(&["--", "--test-threads", "1", "--show-output"]).args(chosen).tests()
    };
    scenarios(&[])?.or_again(|name| scenarios(&["--exact", name]))
}

/// Whether who runs this is root.
pub fn is_root(context: &Context) -> anyhow::Result<bool> {
    Ok(context.command("id", &["-u"]).capture()?.stdout.trim() == "0")
}
