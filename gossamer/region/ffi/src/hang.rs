//! Report of a program that hangs: each of its threads, on all machines, waits for another one, and none has gone on
//! for seconds. A thread of machine 0 looks at the waits (`waits.rs`) from time to time; it asks other machines only
//! while all threads of its own wait. The program goes on waiting, as one process would.
//!
//! Invariant: nothing is told while a thread waits for something else than a thread, or while a handler of a signal
//! could wake one.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::time::Duration;

use crate::waits::{self, Kind, Wait};
use crate::{barrier, end_of_program, ids, joins, line, mutex, objects, rwlock, side, signals, symbols};

/// Interval of the looks.
const LOOK: Duration = Duration::from_millis(500);
/// Looks that find the same as the one before, until it is told: some four seconds. They are counted, and not timed,
/// since a program may be stopped as a whole.
const LOOKS: u32 = 8;
/// Most threads that are named.
const NAMED_MAX: usize = 32;

/// On machine 0: starts the thread that looks, up to the end of the program. Without it nothing is told.
pub(crate) fn watch() {
    let _ = std::thread::Builder::new().name("gossamer-hang".to_owned()).spawn(look);
}

fn look() {
    let (mut last, mut same) = (None, 0_u32);
    while !end_of_program::has_begun() {
        std::thread::sleep(LOOK);
        let Ok(found) = (if waits::is_one_running() { Ok(None) } else { on_worker(of_all_machines) }) else { return };
        if found.is_none() || found != last {
            (last, same) = (found, 0);
            continue;
        }
        same = same.saturating_add(1);
        if same == LOOKS
            && let Some(waits) = last.clone()
            && let Ok(Some(text)) = on_worker(move || text_of(&waits))
        {
            eprint!("{text}");
        }
    }
}

/// Calls `f` in a fiber of this machine. An error: the worker has ended, with the program.
fn on_worker<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> Result<R, ()> {
    trust::spawn_on(&side::place(side::own_machine()).trustee(), f).join().map_err(drop)
}

/// In a fiber: the waits of all threads. `None`: one does not wait, or there is none.
fn of_all_machines() -> Option<Vec<Wait>> {
    let (mut all, mut running) = (Vec::new(), Vec::new());
    for machine in 0..side::machines() {
        let (waits, begun) = gossamer::spawn_with(side::place(machine), |()| waits::all(), ()).join().ok()??;
        all.extend(waits);
        running.extend(begun);
    }
    let waiting = all.iter().map(|wait: &Wait| wait.thread).collect();
    (!all.is_empty() && have_all_arrived(&waiting, &running)).then_some(all)
}

/// Whether none of the threads that run is between two machines: that one does not wait.
fn have_all_arrived(waiting: &HashSet<u64>, running: &[u64]) -> bool {
    running.iter().all(|thread| waiting.contains(thread))
}

/// In a fiber: names a thread, in words, with the machine where it is.
fn named(thread: u64) -> String {
    let first = ids::machine_of(thread);
    let machine = side::from_worker(first, move || joins::machine_of(thread));
    ids::in_words(thread, machine.unwrap_or(first))
}

/// In a fiber: the thread for which another one waits, by its id, where it is known.
fn awaited(wait: &Wait) -> Option<u64> {
    let at = wait.object as usize;
    let found = match wait.kind {
        Kind::Mutex => mutex::holder(at),
        Kind::Read | Kind::Write => side::from_worker(line::home_of(at), move || rwlock::holders(at)).0,
        Kind::Join => wait.object,
        _ => 0,
    };
    ids::is_ours(found).then_some(found)
}

/// Whether one of these threads waits for itself in the end.
fn has_cycle(awaited: &HashMap<u64, Option<u64>>) -> bool {
    let next = |thread: &u64| awaited.get(thread).copied().flatten();
    awaited
        .keys()
        .any(|first| std::iter::successors(next(first), next).take(awaited.len()).any(|thread| thread == *first))
}

/// In a fiber: the report. `None`: a handler of a signal may wake one of them.
fn text_of(waits: &[Wait]) -> Option<String> {
    let awaited: HashMap<u64, Option<u64>> = waits.iter().map(|wait| (wait.thread, awaited(wait))).collect();
    let has_cycle = has_cycle(&awaited);
    if !has_cycle && signals::has_handlers() {
        return None;
    }
    let cure = match has_cycle {
        true => "threads wait for one another in a circle: lock mutexes in the same order everywhere",
        false => "look for an unlock, a signal or a post that does not come, or comes before its thread waits",
    };
    let variables = symbols::variables(objects::bias());
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "gossamer: the program hangs, and goes on waiting as one process would: for more than {} s each of its \
         threads ({}) has waited for another one; {cure} (docs/region.md)",
        LOOK.saturating_mul(LOOKS).as_secs(),
        waits.len()
    );
    for wait in waits.iter().take(NAMED_MAX) {
        let of = awaited.get(&wait.thread).copied().flatten();
        let _ = writeln!(text, "gossamer: {} {}", named(wait.thread), in_words(wait, of, &variables));
    }
    if let Some(more) = waits.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
        let _ = writeln!(text, "gossamer: and {more} threads more");
    }
    Some(text)
}

/// In a fiber: a wait in words, after the name of the thread.
fn in_words(wait: &Wait, awaited: Option<u64>, variables: &[symbols::Variable]) -> String {
    let at = wait.object as usize;
    let name = symbols::name_of(variables, at).map_or_else(String::new, |name| format!(" ({name})"));
    let object = format!("{at:#x}{name}");
    let holder = awaited.map_or_else(|| "no thread that is known".to_owned(), named);
    match wait.kind {
        Kind::Mutex => format!("waits for the mutex {object}, held by {holder}"),
        Kind::Condvar => format!("waits at the condition variable {object}"),
        Kind::Semaphore => format!("waits for the semaphore {object}"),
        Kind::Read => format!("waits to read, for the read-write lock {object}, held by {holder}"),
        Kind::Write => match side::from_worker(line::home_of(at), move || rwlock::holders(at)).1 {
            0 => format!("waits to write, for the read-write lock {object}, held by {holder}"),
            readers => format!("waits to write, for the read-write lock {object}, held by {readers} that read"),
        },
        Kind::Barrier => format!("waits at the barrier {object}, for {} threads", barrier::count_of(at)),
        Kind::Join => format!("waits for the end of {holder}"),
        Kind::Futex => format!("waits by futex for a change of the word {object}"),
        Kind::Once => format!("waits for the end of another thread's pthread_once of {object}"),
        Kind::Leaving => format!("waits in pthread_cond_destroy of {object} for threads that are still there"),
        Kind::Others => "has ended main by pthread_exit, and waits for all others".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_not_arrived_runs() {
        let waiting = [7, 9].into();
        assert!(have_all_arrived(&waiting, &[9, 7]) && !have_all_arrived(&waiting, &[7, 8, 9]));
    }

    #[test]
    fn circles_are_found_and_lines_are_none() {
        let of = |pairs: &[(u64, u64)]| pairs.iter().map(|(one, other)| (*one, Some(*other))).collect();
        assert!(has_cycle(&of(&[(1, 2), (2, 3), (3, 2)])) && has_cycle(&of(&[(5, 5)])));
        assert!(!has_cycle(&of(&[(1, 2), (2, 3), (4, 3)])) && !has_cycle(&[(1, None)].into()));
    }
}
