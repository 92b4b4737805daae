//! Kills a machine of a C program while its threads wait for pages: the whole program ends soon, and the machine is
//! named.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Failed;

use crate::{Place, TWO, WAYS, build, start};

/// Variable with the number of rounds, if not the default.
const ROUNDS: &str = "GOSSAMER_REGION_KILLS";
/// Time within which all machines must have ended.
pub const PROMISE: Duration = Duration::from_secs(5);
/// Time for the machines to begin.
const LIMIT: Duration = limits::HANG;

pub fn amid_faults(place: &Place) -> Result<(), Failed> {
    let rounds = std::env::var(ROUNDS).ok().map_or(Ok(4), |text| text.parse::<u64>())?;
    let built = build(place, WAYS[0], &place.root.join("examples/c/region/kmeans.c"))?;
    for round in 0..rounds {
        let mut command = start(place, TWO, &built);
        command.args(["--threads", "4", "--size", "4000000"]);
        killed(&mut command, round).map_err(|error| format!("round {round}: {error:?}"))?;
    }
    Ok(())
}

/// Kills a machine after it has had some faults, more with each round.
fn killed(command: &mut Command, round: u64) -> Result<(), Failed> {
    let mut launcher = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let victim = (round % 2) as usize;
    let machines = match victims(&mut launcher, round) {
        Ok(machines) => machines,
        Err(error) => {
            launcher.kill()?;
            launcher.wait()?;
            return Err(error);
        }
    };
    let killed = Command::new("kill").args(["-KILL", &machines[victim].to_string()]).status()?;
    let since = Instant::now();
    let mut told = String::new();
    if let Some(mut stderr) = launcher.stderr.take() {
        stderr.read_to_string(&mut told)?;
    }
    let status = launcher.wait()?;
    let took = since.elapsed();
    let left: Vec<&u32> = machines.iter().filter(|pid| is_running(**pid)).collect();
    let named = format!("machine {victim} (pid {}) was killed by signal 9 (SIGKILL)", machines[victim]);
    let is_right = killed.success() && status.code() == Some(137) && told.contains(&named);
    if is_right && took < limits::bound(PROMISE) && left.is_empty() {
        return Ok(());
    }
    Err(format!("after {took:?} {status}, left {left:?} of {machines:?}, and told: {told}").into())
}

/// Returns the machines of a launcher, machine 0 first, once machine 1 has had faults.
fn victims(launcher: &mut Child, round: u64) -> Result<Vec<u32>, Failed> {
    let begun = Instant::now();
    // From its start until its threads have most of the points: it has some 1,400 in all.
    let faults = 400 + 30 * (round * 9 % 28);
    while begun.elapsed() < LIMIT {
        if let Some(status) = launcher.try_wait()? {
            return Err(format!("the program has ended: {status}").into());
        }
        let machines = children(launcher.id());
        if machines.len() == 2 && faults_of(machines[1]) > faults {
            return Ok(machines);
        }
        std::thread::yield_now();
    }
    Err(format!("machine 1 has no {faults} faults after {LIMIT:?}").into())
}

/// Returns a process's children, in the order in which they were started.
pub fn children(process: u32) -> Vec<u32> {
    let of = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().filter_map(Result::ok);
    let mut found: Vec<u32> = tasks
        .flat_map(|task| of(task).split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    found.sort_unstable();
    found
}

/// Returns state and minor faults from /proc/PID/stat.
fn stat(process: u32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut words = text.rsplit(')').next()?.split_whitespace();
    let state = words.next()?.chars().next()?;
    Some((state, words.nth(6)?.parse().ok()?))
}

fn faults_of(process: u32) -> u64 {
    stat(process).map_or(0, |(_, faults)| faults)
}

pub fn is_running(process: u32) -> bool {
    stat(process).is_some_and(|(state, _)| state != 'Z')
}
