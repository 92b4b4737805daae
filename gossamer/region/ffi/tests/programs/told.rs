//! Messages: the report of a program at its end with `--region-stats`, and warnings of objects that each machine has
//! for itself.

use std::path::Path;
use std::process::Command;

use libtest_mimic::Failed;

use crate::{Place, TWO, TWO_EXPLICIT, WAYS, build, run, start, succeeded};

/// Returns the standard error of a program of `tests/c`.
fn told(place: &Place, name: &str, threads: &str, more: &[&str]) -> Result<String, Failed> {
    let built = build(place, WAYS[0], &place.root.join(format!("gossamer/region/ffi/tests/c/{name}.c")))?;
    let done = run(start(place, &[TWO, &["--region-stats"], more].concat(), &built).arg(threads))?;
    let stdout = succeeded(&done)?;
    match stdout == format!("{name}: ok\n") {
        true => Ok(String::from_utf8(done.stderr)?),
        false => Err(format!("{done:?}").into()),
    }
}

/// A page on which two machines count is named first, by its variable.
pub fn hottest_page_is_named(place: &Place) -> Result<(), Failed> {
    let told = told(place, "counters", "2", &[])?;
    let mut lines = told.lines().skip_while(|line| !line.contains("asked for most"));
    let first = lines.nth(1).unwrap_or_default();
    let is_named = first.ends_with("variable crowded_counters") && !told.contains("quiet");
    let has_counts = told.contains(" faults to read, ") && told.contains(" messages to other machines");
    if is_named && has_counts { Ok(()) } else { Err(told.into()) }
}

/// Threads of a machine at a barrier send one message together.
pub fn barriers_send_one_message_a_machine(place: &Place) -> Result<(), Failed> {
    const ROUNDS: u64 = 200;
    const THREADS: u64 = 16;
    // Where the machines have one memory they send none.
    let told = told(place, "barriers", &THREADS.to_string(), &["--pretend-hosts", "2"])?;
    let line = told.lines().find_map(|line| line.strip_prefix("gossamer: barriers: "));
    let messages = line.and_then(|line| line.split(' ').next()?.parse::<u64>().ok());
    let messages = messages.ok_or_else(|| told.clone())?;
    // Half of the threads are on the machine that is not the barrier's home; where threads wait for a processor, some
    // arrive late.
    let one_a_thread = ROUNDS * THREADS / 2;
    if messages >= ROUNDS && messages < one_a_thread / 2 { Ok(()) } else { Err(told.into()) }
}

/// A condition variable and a semaphore of which each machine has its own are named by each machine that waits there,
/// once.
pub fn own_condition_variables_are_told(place: &Place) -> Result<(), Failed> {
    let built = build(place, WAYS[0], &place.root.join("gossamer/region/ffi/tests/c/own_waits.c"))?;
    for (starter, machines) in [(TWO_EXPLICIT, 2), (TWO, 0)] {
        let done = run(start(place, starter, &built).arg("6"))?;
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        let count = |name: &str| told.lines().filter(|line| line.contains(name) && line.contains("has named")).count();
        let is_told = (count("a pthread_cond_t"), count("a sem_t")) == (machines, machines);
        if succeeded(&done)? != "own_waits: ok\n" || !is_told {
            return Err(told.into());
        }
    }
    Ok(())
}

/// A limit of addresses is named with its cure, where it lets the machines begin and no region.
pub fn few_addresses_are_told(place: &Place) -> Result<(), Failed> {
    for fabric in ["shm", "tcp"] {
        let starter = [TWO, &["--fabric", fabric]].concat();
        let starter = start(place, &starter, Path::new("true"));
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -v 200000000; exec \"$@\"", "sh"]).arg(starter.get_program());
        limited.args(starter.get_args()).envs(starter.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let done = run(&mut limited)?;
        let told = String::from_utf8_lossy(&done.stderr);
        let is_told = told.contains("machine 0 may have 204800000000 bytes of addresses (RLIMIT_AS)");
        if done.status.success() || !is_told || !told.contains("ulimit -v unlimited") || told.contains("panicked") {
            return Err(format!("over {fabric}: {}: {told}", done.status).into());
        }
    }
    Ok(())
}
