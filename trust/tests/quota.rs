//! Under a cgroup's CPU quota no worker is pinned or polls. The child of the test runs in a cgroup that the test makes,
//! so this needs root and a mounted `cpu` controller.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs, io, thread};

use trust::{Threadpool, local_trustee, stats};

/// The folder of the cgroup that the child is to join.
const CGROUP: &str = "TRUST_TEST_CGROUP";
const PERIOD_US: u32 = 100_000;

/// A cgroup, until it is dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    /// Makes a group that may use this many cores, in the hierarchy that has the controller.
    fn new(cores: u32) -> io::Result<Cgroup> {
        let name = format!("trust-test-{}", std::process::id());
        let quota = cores * PERIOD_US;
        let (one, two) = (Path::new("/sys/fs/cgroup/cpu"), Path::new("/sys/fs/cgroup"));
        if one.join("cpu.cfs_quota_us").exists() || one.join("cgroup.procs").exists() {
            fs::create_dir(one.join(&name))?;
            let made = Cgroup(one.join(name));
            fs::write(made.0.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
            fs::write(made.0.join("cpu.cfs_quota_us"), quota.to_string())?;
            return Ok(made);
        }
        fs::write(two.join("cgroup.subtree_control"), "+cpu")?;
        fs::create_dir(two.join(&name))?;
        let made = Cgroup(two.join(name));
        fs::write(made.0.join("cpu.max"), format!("{quota} {PERIOD_US}"))?;
        Ok(made)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A group whose last process has just ended may be busy for a moment; otherwise an empty folder would be left.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn under_a_quota_nobody_pins_or_polls() {
    let _watch = watchdog!();
    if let Some(cgroup) = env::var_os(CGROUP) {
        fs::write(Path::new(&cgroup).join("cgroup.procs"), std::process::id().to_string()).unwrap();
        return under_a_quota_of_one();
    }
    let pool = Threadpool::new(1);
    assert_eq!(pool.settings().workers, 1);
    if pool.settings().cores < 2 {
        return skipped("one core is no less than this machine has");
    }
    let cgroup = match Cgroup::new(1) {
        Ok(cgroup) => cgroup,
        Err(error) => return skipped(&format!("no cgroup with a quota can be made: {error}")),
    };
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", "under_a_quota_nobody_pins_or_polls", "--nocapture"]).env(CGROUP, &cgroup.0);
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn skipped(why: &str) {
    eprintln!("SKIPPED: under_a_quota_nobody_pins_or_polls: {why}");
}

fn under_a_quota_of_one() {
    let by_default = Threadpool::builder().build();
    let settings = by_default.settings();
    assert_eq!((settings.workers, settings.quota), (1, Some(1)), "{settings}");
    assert!(settings.cores > 1 && !settings.pinned && settings.spin.is_zero(), "{settings}");
    assert_eq!(by_default.spawn(cores_of_thread).join().unwrap(), settings.cores, "it may run on any core");

    let told = Threadpool::builder().workers(1).spin(Duration::from_millis(3)).pin(true).build();
    assert!(told.settings().pinned && told.settings().ignored.is_empty(), "{}", told.settings());
    assert_eq!(told.settings().spin, Duration::from_millis(3));
    assert_eq!(told.spawn(cores_of_thread).join().unwrap(), 1);

    let crowded = Threadpool::builder().workers(2).pin(true).build();
    assert_eq!(crowded.settings().ignored, ["pin"], "{}", crowded.settings());

    // Nor does a thread without a pool, nor a worker.
    let nap = || trust::sleep(Duration::from_millis(50));
    let polls = |trustee| stats(trustee).unwrap().polls;
    let (here, worker) = (local_trustee(), by_default.trustees()[0]);
    let before = (polls(here), polls(worker));
    by_default.spawn(nap).join().unwrap();
    let polls = (polls(here) - before.0, polls(worker) - before.1);
    assert!(polls.0 < 1000 && polls.1 < 1000, "they polled {polls:?} times in 50 ms");
}

/// Number of cores that the calling thread may run on.
fn cores_of_thread() -> usize {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).count()
}
