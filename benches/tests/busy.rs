//! Processes by which `gossamer-bench busy` takes cores end with it, however it ends.

use std::{
    fs,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The children of this process.
fn children(parent: u32) -> Vec<u32> {
    let of_stat = |stat: String| {
        let fields: Vec<String> = stat.rsplit(')').next()?.split_whitespace().map(str::to_owned).collect();
        // A process that has ended and is not yet waited for is none.
        (fields[0] != "Z" && fields[1].parse() == Ok(parent)).then_some(())
    };
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| fs::read_to_string(format!("/proc/{pid}/stat")).ok().and_then(of_stat).is_some()).collect()
}

#[test]
fn busy_leaves_no_hog_behind() {
    let until = |what: &str, is_so: &mut dyn FnMut() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(300);
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}");
            thread::sleep(Duration::from_millis(5));
        }
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_gossamer-bench"));
    command.args(["busy", "--conditions", "hog-pinned", "--workloads", "apply", "--contenders", "std-mutex"]);
    let mut bench = command.args(["--millis", "60000"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut hogs = Vec::new();
    let has_hog = |pid: &u32| {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        threads
            .filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok())
            .any(|name| name.trim() == "hog")
    };
    until("there is no hog", &mut || {
        hogs = children(bench.id());
        hogs.iter().any(has_hog)
    });
    bench.kill().unwrap();
    bench.wait().unwrap();
    until("a hog is left", &mut || !hogs.iter().any(has_hog));
}
