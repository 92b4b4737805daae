//! Wishes: that a thread go to another machine, as another thread or the user asks (`--move asked`). A wish is put into
//! the thread's record (`record.rs`); the thread takes it at its next call that may wait, or amid its own code
//! (`anywhere.rs`), if nothing ties it, and goes. The asker is told the outcome, or after its time why there is none.
//!
//! A question goes to the machine that the thread's id names, which knows where it is, and from there to the thread's.
//! A thread that has moved meanwhile is asked again. Of two askers at the same time the first is told that another one
//! has come.
//!
//! Invariant: a wish that its thread has taken is answered when the thread has arrived, or is back.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use trust::link::wait_in_line;

use crate::reason::Reason;
use crate::record::{self, Answer, Ask, Record};
use crate::words::words;
use crate::{block, callers, host, ids, joins, mask, side, ties, timer, waits};

/// Longest time for which an asker waits.
pub(crate) const LIMIT: Duration = Duration::from_secs(2);
/// Interval at which it looks for a thread that is between two machines.
const LOOK: Duration = Duration::from_millis(1);

/// In a fiber of any machine: asks a thread to go to a machine, and waits until it is there, for [`LIMIT`] at most.
pub(crate) fn ask(id: u64, to: u16, reason: Reason) -> Answer {
    let begun = Instant::now();
    let first = ids::machine_of(id);
    if !ids::is_ours(id) || first >= side::machines() {
        return Answer::NoThread;
    }
    if to >= side::machines() {
        return Answer::NoMachine;
    }
    if !block::are_on() {
        return Answer::Never;
    }
    let mut was_there = false;
    loop {
        let Some(machine) = side::from_worker(first, move || joins::machine_of(id)) else {
            return if was_there { Answer::Ended } else { Answer::NoThread };
        };
        was_there = true;
        let left = LIMIT.saturating_sub(begun.elapsed());
        if let Some(answer) = side::from_worker(machine, move || ask_here(id, to, reason, left)) {
            return answer;
        }
        if left.is_zero() {
            return Answer::Late;
        }
        trust::sleep(LOOK);
    }
}

/// In a fiber of the machine where a thread is. None: it is not, or not any more.
fn ask_here(id: u64, to: u16, reason: Reason, limit: Duration) -> Option<Answer> {
    let may = timer::fits(to);
    let (record, asker, replaced) = {
        let mut all = record::all();
        let entry = all.get_mut(&id)?;
        if !entry.record.is_in_block {
            return Some(Answer::Tied(ties::MAIN));
        }
        if entry.ask.is_some() && entry.record.wish().is_none() {
            return None; // it has taken that wish, and is about to leave
        }
        if to == side::own_machine() {
            return Some(Answer::Done);
        }
        let (promise, asker) = trust::promise();
        (entry.record.clone(), asker, entry.ask(to, reason, promise, may))
    };
    if let Some(replaced) = replaced {
        replaced.answer(Answer::Replaced);
    }
    let give_up = |asker| {
        let ask = {
            let mut all = record::all();
            let entry = all.get_mut(&id).filter(|entry| entry.ask.as_ref().is_some_and(|ask| ask.asker() == asker));
            // One that it has taken is answered soon.
            entry.filter(|entry| entry.record.take_wish(to)).and_then(|entry| entry.ask.take())
        };
        ask.map(Ask::discard).is_some()
    };
    match wait_in_line(asker, limit, give_up) {
        Some(answer) => Some(answer.unwrap_or(Answer::Ended)),
        None => Some(late(id, &record)),
    }
}

/// Returns why a thread has not gone.
fn late(id: u64, record: &Record) -> Answer {
    match record.tie() {
        Some(tie) => Answer::Tied(tie as u8),
        None if record.is_held() => Answer::Tied(ties::HELD),
        None => waits::kind_of(id).map_or(Answer::Late, Answer::Waits),
    }
}

/// Returns an outcome as an error for a C program.
pub(crate) fn errno(answer: Answer) -> c_int {
    match answer {
        Answer::Done => 0,
        Answer::NoThread | Answer::Ended => libc::ESRCH,
        Answer::NoMachine => libc::EINVAL,
        Answer::NoRoom | Answer::Elsewhere(_) | Answer::Replaced => libc::EAGAIN,
        Answer::Tied(_) => libc::EBUSY,
        Answer::Waits(_) | Answer::Late => libc::ETIMEDOUT,
        Answer::Never => libc::ENOTSUP,
    }
}

/// Returns an outcome in words, after "thread .. ".
pub(crate) fn in_words(answer: Answer, to: u16) -> String {
    match answer {
        Answer::Done => format!("is on machine {to}"),
        Answer::NoThread => "is not there".to_owned(),
        Answer::NoMachine => format!("stays: the program has machines 0 to {}", side::machines().saturating_sub(1)),
        Answer::Ended => "has ended".to_owned(),
        Answer::Elsewhere(machine) => format!("has gone to machine {machine} by itself"),
        Answer::NoRoom => format!("stays: machine {to} has no room for a thread"),
        Answer::Replaced => "was asked by another one to go elsewhere".to_owned(),
        Answer::Tied(tie) => format!("stays: {}", ties::in_words(tie)),
        Answer::Waits(kind) => format!("waits ({kind:?}), and moves when it goes on: ask again then"),
        Answer::Late => {
            "has not come to a place where it can move: it is in a call, or in a library that is no part of the \
             program; ask again"
                .to_owned()
        }
        Answer::Never => "stays: start the program with --move asked".to_owned(),
    }
}

/// At a call that may wait (`safe_points.rs`), in the program's code: goes where the thread is wished, if the caller is
/// the program or C++'s library. Another library may have taken a lock of its own, for its memory on this machine.
pub(crate) fn at_call() {
    if words().is_in_program.get() && side::is_machine() && wish().is_some() && callers::is_called_by_program() {
        let _errno = side::KeptErrno::new();
        answer(false);
    }
}

/// In the program's code: where the calling thread is to go.
pub(crate) fn wish() -> Option<u16> {
    if host::is_in_block() { record::own()?.wish() } else { None }
}

/// In the program's code, where any function may be called: goes where the thread is wished, unless it is tied, or may
/// have pointers into tables of this machine (`has_tables`).
pub(crate) fn answer(has_tables: bool) {
    let Some(own) = record::own() else { return };
    let Some(to) = own.wish() else { return };
    // From before the look for ties until the thread is there: a handler could tie it, and take blocks of this machine.
    let before = mask::block();
    match has_tables.then_some(ties::TABLES).or_else(ties::found) {
        Some(tie) => own.note_tie(tie),
        None if host::may_cross() && own.take_wish(to) => follow(own, to),
        None => {}
    }
    mask::set_mask(before);
}

/// Goes where the thread was wished, with signals blocked.
fn follow(own: &Record, to: u16) {
    // Elsewhere, or back, the thread has another record.
    if ties::depart(to) == libc::EBUSY {
        own.set_wish(to); // nobody else does, after its question has been taken
    }
}

/// Asks another thread, in the program's code; see `gossamer_region.h`.
pub(crate) fn ask_other(id: u64, to: u16) -> Answer {
    side::at(side::own_machine(), move || ask(id, to, Reason::Asked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Past;
    use crate::waits::Kind;

    /// A thread that takes a wish, as its asker gives up: one of them has it.
    #[test]
    fn a_wish_is_taken_once() {
        let record = Record::new(Past::new(1), true, 0);
        assert_eq!(record.wish(), None);
        record.set_wish(3);
        assert!(record::are_wishes());
        assert!(!record.take_wish(2) && record.take_wish(3) && !record.take_wish(3));
        record.set_wish(3);
        record.note_tie(4);
        assert_eq!((record.wish(), record.tie()), (Some(3), Some(4)));
        record.set_wish(5); // the next question begins anew
        assert_eq!((record.wish(), record.tie()), (Some(5), None));
        assert!(record.take_wish(5) && record.wish().is_none());
    }

    #[test]
    fn each_outcome_has_words_and_an_error() {
        let all = [Answer::NoThread, Answer::Ended, Answer::Elsewhere(1), Answer::NoRoom, Answer::Replaced];
        let more = [Answer::Tied(ties::HELD), Answer::Waits(Kind::Mutex), Answer::Late, Answer::Never];
        assert!(all.iter().chain(&more).all(|answer| errno(*answer) != 0 && !in_words(*answer, 1).is_empty()));
        assert_eq!((errno(Answer::Done), in_words(Answer::Done, 2)), (0, "is on machine 2".to_owned()));
        assert!(in_words(Answer::Tied(ties::HELD), 1).contains("gsm_thread_hold"));
    }
}
