//! System calls, waits by `futex(2)` and by condition variables, and starts of threads, of a plain pthread program in C
//! (`benches/region/waits.c`): as one process, and on two machines, whose threads have those calls stopped.

use super::locks::{Library, machines};
use super::{Answer, Contender, line_of_json};
use crate::prelude::*;
use crate::programs::cc;

/// Modes of the program, with the number of times, and that of a smoke run.
const TIMED: [(&str, u64, u64); 4] =
    [("call", 1_000_000, 100), ("wake", 200_000, 50), ("futex", 10_000, 20), ("condvar", 10_000, 20)];

/// Threads that start, and those of a smoke run.
const THREADS: (u64, u64) = (1000, 10);
/// The variable that says how many threads start on each machine.
const THREADS_AT: &str = "GOSSAMER_REGION_THREADS_AT";
pub(super) const THREAD_THERE: &str = "thread: region, other machine";
pub(super) const THREAD_HERE: &str = "thread: region, same machine";

/// All of them; of those that cannot be had here, why.
pub(super) fn contenders(is_smoke: bool, library: &Library, skipped: &mut Skipped) -> Result<Vec<Contender>> {
    const SOURCE: &str = "region/waits.c";
    let mut all = vec![];
    let ways = [
        ("2 threads", cc(SOURCE, "waits-threads", &["-pthread"])?.map(Program::at)),
        ("region", machines("auto", SOURCE, "waits-region", &[], library)?),
    ];
    let mut add = |name: &str, program: Found<Program>, what: &str, (times, smoke_times): (u64, u64)| {
        let times = if is_smoke { smoke_times } else { times };
        if let Some(program) = skipped.sort(name, program) {
            let program = program.say(&format!("{what} {times}"));
            all.push(Contender { name: name.to_owned(), program, answer: Answer::Is(times), told: line_of_json });
        }
    };
    let [(_, plain), (_, region)] = &ways;
    let at = |shares: &str| region.clone().map(|program| program.set(THREADS_AT, shares));
    add("thread: one process", plain.clone(), "thread", THREADS);
    add(THREAD_THERE, at("0,1"), "thread", THREADS);
    add(THREAD_HERE, at("1,0"), "thread", THREADS);
    for (way, program) in ways {
        for (what, times, smoke_times) in TIMED {
            add(&format!("{what}: {way}"), program.clone(), what, (times, smoke_times));
        }
    }
    Ok(all)
}
