//! A control group's limit of memory is found by a process in it. The child of the test runs in a group that the test
//! makes, so this needs root and a mounted `memory` controller.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// The folder of the group that the child joins.
const CGROUP: &str = "TRUST_TEST_CGROUP";
const BYTES: u64 = 96 << 20;

/// A group and one in it, until this is dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new() -> io::Result<Cgroup> {
        let (one, two) = (Path::new("/sys/fs/cgroup/memory"), Path::new("/sys/fs/cgroup"));
        let is_one = one.join("memory.limit_in_bytes").exists();
        if !is_one {
            fs::write(two.join("cgroup.subtree_control"), "+memory")?;
        }
        let folder = if is_one { one } else { two }.join(format!("trust-test-memory-{}", std::process::id()));
        fs::create_dir(&folder)?;
        let made = Cgroup(folder);
        let limit = made.0.join(if is_one { "memory.limit_in_bytes" } else { "memory.max" });
        fs::write(limit, BYTES.to_string())?;
        fs::create_dir(made.0.join("inner"))?;
        Ok(made)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.0.join("inner"));
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_groups_limit_is_found_from_a_group_within() {
    let _watch = watchdog!();
    if let Ok(folder) = env::var(CGROUP) {
        fs::write(Path::new(&folder).join("inner/cgroup.procs"), std::process::id().to_string()).unwrap();
        let (limit, left) = (trust::memory::limit().unwrap(), trust::memory::left().unwrap());
        assert!(limit == BYTES && left <= BYTES && left > BYTES / 4, "{left} of {limit}");
        return;
    }
    let before = trust::memory::limit();
    let group = match Cgroup::new() {
        Ok(group) => group,
        Err(error) => return println!("SKIPPED: no group with the memory controller can be made here: {error}"),
    };
    let mut child = Command::new(env::current_exe().unwrap());
    let child = child.args(["--exact", "a_groups_limit_is_found_from_a_group_within"]).env(CGROUP, &group.0);
    let output = child.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(trust::memory::limit(), before, "outside of it nothing has changed");
}
