//! Hangs are told: threads of several machines that wait for one another; and nothing is told of a program that waits
//! for something else.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};

use crate::compared::STARTERS;
use crate::{LIMIT, Place, WAYS, build, run_within, start};

/// A way to hang, and what is told of it. A message that comes before the program ends by itself is soon enough.
const HANGS: [(&str, &[&str]); 3] = [
    (
        "locks",
        &[
            "its threads (3) has waited",
            "threads wait for one another in a circle",
            "(variable first), held by thread 0x6753",
            "(variable second), held by thread 0x6753",
            "on machine 0 waits for the end of thread 0x6753",
        ],
    ),
    ("condvar", &["its threads (4) has waited", "waits at the condition variable 0x", "(variable never)"]),
    (
        "kinds",
        &[
            "its threads (7) has waited",
            "waits at the condition variable",
            "waits for the semaphore",
            "(variable none)",
            "waits to read, for the read-write lock",
            "(variable written), held by thread 0x6753000000000000 on machine 0",
            "(variable all), for 7 threads",
            "waits for the end of another thread's pthread_once of",
        ],
    ),
];

const WAITS: [&str; 5] = ["sleep", "input", "signal", "handler", "time"];

/// First words of the message.
const TOLD: &str = "gossamer: the program hangs";

pub fn trials(place: &Arc<Place>, has_machines: bool) -> Vec<Trial> {
    let hangs = HANGS.iter().flat_map(|(how, told)| STARTERS.iter().map(move |starter| (*how, *told, *starter)));
    let waits = WAITS.iter().map(|how| (*how, &[][..], STARTERS[0]));
    let trial = |(how, told, (name, starter)): (&'static str, &'static [&str], (&str, &'static [&str]))| {
        let place = Arc::clone(place);
        let test = move || is_told(&place, how, told, starter);
        Trial::test(format!("hangs::{name}::{how}"), test).with_ignored_flag(!has_machines)
    };
    hangs.chain(waits).map(trial).collect()
}

/// Runs the program in one way; with nothing to tell, it ends well.
fn is_told(place: &Place, how: &str, words: &[&str], starter: &[&str]) -> Result<(), Failed> {
    let built = build(place, WAYS[0], &place.root.join("gossamer/region/ffi/tests/c/hangs.c"))?;
    let done = run_within(start(place, starter, &built).arg(how), &[], LIMIT)?.ok_or("it does not end")?;
    let told = String::from_utf8_lossy(&done.stderr);
    let is_right = match words {
        [] => done.status.success() && done.stdout == b"right\n" && !told.contains(TOLD),
        words => {
            !done.status.success() && told.matches(TOLD).count() == 1 && words.iter().all(|word| told.contains(word))
        }
    };
    if is_right { Ok(()) } else { Err(format!("{}\n{told}", done.status).into()) }
}
