//! The report of a program at its end with `--region-stats`.

use libtest_mimic::Failed;

use crate::{Place, TWO, WAYS, build, run, start, succeeded};

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
    let told = told(place, "barriers", &THREADS.to_string(), &[])?;
    let line = told.lines().find_map(|line| line.strip_prefix("gossamer: barriers: "));
    let messages = line.and_then(|line| line.split(' ').next()?.parse::<u64>().ok());
    let messages = messages.ok_or_else(|| told.clone())?;
    // Half of the threads are on the machine that is not the barrier's home; where threads wait for a processor, some
    // arrive late.
    let one_a_thread = ROUNDS * THREADS / 2;
    if messages >= ROUNDS && messages < one_a_thread / 2 { Ok(()) } else { Err(told.into()) }
}
