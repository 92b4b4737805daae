//! Threaded C programs with one memory on all hosts.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use limits::HANG;
use processes::send_signal;
use rustix::process::Signal;

use crate::rack::Rack;

/// Builds a workload of `examples/c/region`, if this machine has a compiler.
fn build(rack: &Rack, name: &str) -> Option<PathBuf> {
    if !Command::new("gcc").arg("--version").output().is_ok_and(|done| done.status.success()) {
        println!("SKIPPED: there is no gcc (on Debian, `apt-get install gcc`)");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/c/region").join(format!("{name}.c"));
    let built = rack.path(name);
    let mut compiler = Command::new("gcc");
    compiler.args(["-std=c11", "-O2", "-pthread"]).arg(source).arg("-o").arg(&built);
    let done = compiler.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let ended = rack.launcher(&region(Path::new("true"), &[])).end();
    if ended.stderr.contains("userfaultfd") {
        println!("SKIPPED: no memory over several machines: {}", ended.stderr);
        return None;
    }
    Some(built)
}

fn region<'a>(program: &'a Path, arguments: &[&'a str]) -> Vec<&'a str> {
    [&["run", "--no-prefix", "--region", "auto", program.to_str().unwrap()], arguments].concat()
}

/// Returns the page faults of each machine that runs a program, by the process.
fn faults(rack: &Rack, program: &Path) -> Vec<(u32, u64)> {
    let of = |pid: u32| {
        let executable = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let faults = stat.rsplit(')').next()?.split_whitespace().nth(7)?.parse().ok()?;
        (executable.file_name() == program.file_name()).then_some((pid, faults))
    };
    rack.processes().into_iter().filter_map(of).collect()
}

#[test]
fn a_threaded_program_prints_what_it_prints_as_one_process() {
    let rack = Rack::start(3);
    for (name, size) in [("kmeans", "20000"), ("word_count", "200000"), ("matrix_multiply", "120")] {
        let Some(program) = build(&rack, name) else { return };
        let alone = Command::new(&program).args(["--threads", "4", "--size", size]).output().unwrap();
        let ended = rack.launcher(&region(&program, &["--threads", "4", "--size", size])).end();
        assert!(ended.status.success() && alone.status.success(), "{name}: {ended:#?}");
        assert_eq!(ended.stdout, String::from_utf8(alone.stdout).unwrap(), "{name}");
        rack.assert_nothing_is_left();
    }
}

#[test]
fn a_threaded_program_ends_with_a_host_or_a_machine() {
    /// More faults than machine 1 has before it gets pages of the points (some 1,300), fewer than at its end (5,700).
    const FAULTS: u64 = 2000;
    let mut rack = Rack::start(2);
    let Some(program) = build(&rack, "kmeans") else { return };
    for is_cut in [false, true] {
        let launcher = rack.launcher(&region(&program, &["--threads", "2", "--size", "3000000"]));
        let start = Instant::now();
        let victim = loop {
            let machines = faults(&rack, &program);
            let on_second = rack.network.hosts[1].namespace.processes();
            let amid_faults = |(pid, faults): &&(u32, u64)| *faults > FAULTS && on_second.contains(pid);
            if let Some((pid, _)) = machines.iter().find(amid_faults) {
                break *pid;
            }
            assert!(start.elapsed() < HANG, "machine 1 waits for no pages: {machines:?}");
            std::thread::yield_now();
        };
        match is_cut {
            true => rack.ends_after("h1 cut off amid page faults", |rack| rack.network.cut(1)),
            false => rack.ends_after("machine 1 killed amid page faults", |_| send_signal(victim, Signal::KILL)),
        }
        let ended = launcher.end();
        assert!(!ended.status.success() && ended.stderr.contains("machine 1"), "{ended:#?}");
        if is_cut {
            rack.network.restore(1);
        }
        rack.assert_nothing_is_left();
    }
}
