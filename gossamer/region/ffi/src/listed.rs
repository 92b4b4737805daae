//! The program's threads as others see them: `gossamer-launch threads`, and questions of `gossamer-launch move`; and
//! how busy each is, for the view and for the policy.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gossamer::link::{DONE, ThreadSample, Threads, ThreadsSample};

use crate::reason::{self, Reason};
use crate::record::{self, Answer, Record};
use crate::{block, callers, ids, objects, side, symbols, ties, wishes};

/// Has the view of this machine list its threads, and ask them.
pub(crate) fn begin() {
    gossamer::link::show_threads(Threads { list, go });
}

/// Returns the time for which the thread with this id of the system, of this process, has computed.
pub(crate) fn time_of(host: i32) -> Option<Duration> {
    /// Bits of a clock: of one thread, and of all its time.
    const OF_THREAD: i32 = 4;
    const ALL: i32 = 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes the time.
    let done = unsafe { libc::clock_gettime(!host << 3 | OF_THREAD | ALL, &raw mut time) };
    (done == 0).then(|| Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32))
}

/// Returns the time for which this process has computed.
pub(crate) fn time_of_process() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes the time.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Part of the time since the last call about it for which each thread of this machine computed.
#[derive(Default)]
pub(crate) struct Meter(BTreeMap<u64, (Instant, Duration)>);

impl Meter {
    /// Returns this machine's threads with their parts; those that it has not seen have 0.
    pub(crate) fn measure(&mut self) -> Vec<(u64, Arc<Record>, f64)> {
        let records: Vec<_> = record::all().iter().map(|(id, entry)| (*id, Arc::clone(&entry.record))).collect();
        let before = std::mem::take(&mut self.0);
        let part = |(id, record): (u64, Arc<Record>)| {
            let (now, time) = (Instant::now(), time_of(record.host)?);
            self.0.insert(id, (now, time));
            let part = before.get(&id).map_or(0.0, |(then, so_far)| {
                let past = now.saturating_duration_since(*then).as_secs_f64();
                // Another host of the same machine begins anew.
                time.saturating_sub(*so_far).as_secs_f64() / past.max(1e-3)
            });
            Some((id, record, part.min(1.0)))
        };
        records.into_iter().filter_map(part).collect()
    }
}

/// Names a function of the program, or `main`, which ours runs.
fn name_of(function: usize) -> String {
    static FUNCTIONS: OnceLock<Vec<symbols::Variable>> = OnceLock::new();
    let functions = FUNCTIONS.get_or_init(|| symbols::functions(objects::bias()));
    if let Some((name, _)) = functions.iter().find(|(_, of)| of.start == function) {
        return name.clone();
    }
    if callers::is_own(function) { "main".to_owned() } else { format!("{function:#x}") }
}

/// Returns the reason for which a thread stays, as far as it is known without the thread.
pub(crate) fn tie_of(record: &Record) -> String {
    match record.tie() {
        _ if !block::are_on() => "the program was started without --move".to_owned(),
        _ if !record.is_in_block => ties::in_words(ties::MAIN),
        _ if record.is_held() => ties::in_words(ties::HELD),
        Some(tie) => ties::in_words(tie as u8),
        None => String::new(),
    }
}

/// Returns this machine's threads, on a thread of the view.
fn list() -> ThreadsSample {
    static METER: Mutex<Option<Meter>> = Mutex::new(None);
    let mut meter = METER.lock().unwrap_or_else(PoisonError::into_inner);
    let sample = |(id, record, part): (u64, Arc<Record>, f64)| ThreadSample {
        id: format!("{id:#x}"),
        function: name_of(record.past.function),
        busy: (part * 1000.0) as u16,
        moves: record.past.moves,
        came_from: record.past.came_from.map(|(machine, reason)| (machine, reason.name().to_owned())),
        tie: tie_of(&record),
    };
    let threads = meter.get_or_insert_default().measure().into_iter().map(sample).collect();
    ThreadsSample { left: reason::left(), threads }
}

/// Asks a thread to go to a machine, on a thread of the view of the machine that its id names; of an id that names
/// none, on machine 0.
fn go(id: u64, to: u16) -> String {
    let first = ids::machine_of(id);
    let is_known = ids::is_ours(id) && first < side::machines();
    if side::own_machine() != if is_known { first } else { 0 } {
        return String::new();
    }
    let asked =
        trust::spawn_on(&side::place(side::own_machine()).trustee(), move || wishes::ask(id, to, Reason::Asked)).join();
    match asked {
        Ok(Answer::Done) => DONE.to_owned(),
        Ok(answer) => format!("thread {id:#x} {}", wishes::in_words(answer, to)),
        Err(_) => "the program has ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_computes_takes_time_and_one_that_waits_does_not() {
        // SAFETY: it touches no memory.
        let own = unsafe { libc::gettid() };
        let before = time_of(own).unwrap();
        let begun = Instant::now();
        while time_of(own).unwrap().saturating_sub(before) < Duration::from_millis(5) {
            assert!(begun.elapsed() < limits::HANG);
        }
        assert_eq!(time_of(-5), None);
    }
}
