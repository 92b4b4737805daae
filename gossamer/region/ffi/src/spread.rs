//! Threads that go to idle cores, and to their pages, by themselves (`--move self`): a thread of machine 0 asks all
//! machines for their loads each 100 ms, and has threads go where `balance.rs` says, by wishes as of any other asker
//! (`wishes.rs`). Without the option nothing runs.
//!
//! Machines that do not answer in time are no reason for a move: then nothing is decided.

use std::collections::BTreeMap;
use std::fs;
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gossamer_region::link::{FaultsOfThread, take_faults};
use serde::{Deserialize, Serialize};

use crate::balance::{Balance, Load, Move, Pages, Seen};
use crate::record::{self, Answer};
use crate::{affinity, block, end_of_program, listed, side, ties, wishes};

/// Time between two looks.
const EVERY: Duration = Duration::from_millis(100);
/// Loads that took longer to come are too old.
const OLD: Duration = Duration::from_millis(300);

/// Load of a machine since the last report.
#[derive(Serialize, Deserialize)]
struct Report {
    /// Cores that it may use, those of them that were in use by all programs, and by this process.
    cores: f64,
    used: f64,
    own: f64,
    threads: Vec<Seen>,
}

/// Times of a machine at its last report.
struct Last {
    at: Instant,
    used: Duration,
    own: Duration,
    threads: BTreeMap<u64, (Duration, Duration)>,
}

static LAST: Mutex<Option<Last>> = Mutex::new(None);

/// On machine 0: starts the thread that looks, up to the end of the program, if threads are to go by themselves.
pub(crate) fn begin() {
    if block::go_by_themselves() && side::machines() > 1 {
        let begun = std::thread::Builder::new().name("gossamer-spread".to_owned()).spawn(look);
        if let Err(error) = begun {
            eprintln!("gossamer: threads do not go by themselves (--move self): there is no thread to look: {error}");
        }
    }
}

fn look() {
    let mut policy = Balance::default();
    let (tell, told) = mpsc::channel();
    let begun = Instant::now();
    while !end_of_program::has_begun() {
        std::thread::sleep(EVERY);
        let asked = Instant::now();
        let Ok(reports) = trust::spawn_on(&side::place(0).trustee(), reports).join() else { return };
        let now = begun.elapsed();
        while let Ok((thread, to)) = told.try_recv() {
            policy.has_stayed(now, thread, to);
        }
        if asked.elapsed() > OLD {
            continue;
        }
        for Move { thread, to, reason } in policy.decide(now, &loads(reports)) {
            let tell = Sender::clone(&tell);
            let ask = move || {
                if let Some(to) = stays_away(wishes::ask(thread, to, reason), to) {
                    let _ = tell.send((thread, to)); // the program has ended
                }
            };
            drop(trust::spawn_on(&side::place(0).trustee(), ask));
        }
    }
}

/// Returns the machine from which a thread that was to go there stays away for a while, if it is still where it was;
/// `None`: from all, as it was tied, or came to no place where it could move.
fn stays_away(answer: Answer, to: u16) -> Option<Option<u16>> {
    match answer {
        Answer::Done | Answer::NoThread | Answer::Ended | Answer::Elsewhere(_) => None,
        Answer::Tied(_) | Answer::Waits(_) | Answer::Late => Some(None),
        _ => Some(Some(to)),
    }
}

/// In a fiber of machine 0: the reports of all machines, in their order.
fn reports() -> Vec<Report> {
    let asked: Vec<_> =
        (0..side::machines()).map(|machine| gossamer::spawn_with(side::place(machine), |()| report(), ())).collect();
    asked.into_iter().filter_map(|asked| asked.join().ok()).collect()
}

/// Turns them into loads: machines of one host share its cores, of which other programs have at most a half.
fn loads(reports: Vec<Report>) -> Vec<Load> {
    let rack = gossamer::rack();
    let mut hosts: Vec<(&str, f64)> = Vec::new();
    let mut numbers = Vec::new();
    for (machine, report) in rack.machines().iter().zip(&reports) {
        let number = hosts.iter().position(|(host, _)| *host == machine.host).unwrap_or_else(|| {
            hosts.push((&machine.host, 0.0));
            hosts.len().saturating_sub(1)
        });
        hosts[number].1 += report.own;
        numbers.push(number);
    }
    let load = |(machine, (report, host)): (usize, (Report, usize))| {
        let others = (report.used - hosts[host].1).max(0.0);
        Load {
            machine: machine as u16,
            host,
            cores: (report.cores - others).clamp(report.cores / 2.0, report.cores),
            threads: report.threads,
        }
    };
    reports.into_iter().zip(numbers).enumerate().map(load).collect()
}

/// In a fiber: the report of this machine.
fn report() -> Report {
    let mut faults = take_faults();
    let cores: Vec<usize> = affinity::processors_here().collect();
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let own = listed::time_of_process();
    let records: Vec<_> = record::all().iter().map(|(id, entry)| (*id, entry.record.clone())).collect();
    let times = records.iter().filter_map(|(id, record)| {
        Some((*id, times(&fs::read_to_string(format!("/proc/self/task/{}/schedstat", record.host)).ok()?)?))
    });
    let now = Last { at: Instant::now(), used: used(&stat, &cores), own, threads: times.collect() };
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let before = last.get_or_insert_with(|| Last { at: now.at, used: now.used, own, threads: now.threads.clone() });
    let past = now.at.saturating_duration_since(before.at).as_secs_f64().max(1e-3);
    let part = |time: Duration, so_far: Duration| time.saturating_sub(so_far).as_secs_f64() / past;
    let thread = |(id, record): &(u64, std::sync::Arc<record::Record>)| {
        let (time, so_far) = (now.threads.get(id)?, before.threads.get(id)?);
        let (busy, waited) = (part(time.0, so_far.0).min(1.0), part(time.1, so_far.1).min(1.0));
        // Other ties pass, unseen here: the thread is tried again.
        let may_move = record.is_in_block && !record.is_held() && !record.tie().is_some_and(ties::lasts);
        let pages = pages(faults.remove(&record.host.cast_unsigned()).unwrap_or_default(), past);
        Some(Seen { id: *id, busy, wants: (busy + waited).min(1.0), pages, may_move })
    };
    let threads = records.iter().filter_map(thread).collect();
    let (used, own) = (part(now.used, before.used), part(own, before.own));
    *last = Some(now);
    Report { cores: cores.len().max(1) as f64, used, own, threads }
}

/// Returns the pages for which a thread waited in these seconds.
fn pages(FaultsOfThread { waited, from, sample }: FaultsOfThread, past: f64) -> Pages {
    Pages { waited: (waited.as_secs_f64() / past).min(1.0), from: from.into_iter().collect(), sample }
}

/// Returns the times for which a thread computed and waited for a core, of the text of its `schedstat`.
fn times(schedstat: &str) -> Option<(Duration, Duration)> {
    let mut numbers = schedstat.split_ascii_whitespace().map(str::parse);
    Some((Duration::from_nanos(numbers.next()?.ok()?), Duration::from_nanos(numbers.next()?.ok()?)))
}

/// Returns the time for which these cores were not idle, of the text of `/proc/stat`.
fn used(stat: &str, cores: &[usize]) -> Duration {
    /// Fields that are no work: idle, and waiting for a device.
    const IDLE: [usize; 2] = [3, 4];
    const FIELDS: usize = 8;
    // SAFETY: it asks.
    let ticks_hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    let of_core = |line: &str| {
        let (name, ticks) = line.strip_prefix("cpu")?.split_once(' ')?;
        cores.contains(&name.parse().ok()?).then_some(())?;
        let ticks = ticks.split_ascii_whitespace().take(FIELDS).enumerate().filter(|(at, _)| !IDLE.contains(at));
        ticks.map(|(_, ticks)| ticks.parse::<u64>().ok()).sum::<Option<u64>>()
    };
    Duration::from_secs_f64(stat.lines().filter_map(of_core).sum::<u64>() as f64 / ticks_hz)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::Kind;

    #[test]
    fn a_thread_that_is_tied_stays_away_from_all_machines() {
        for answer in [Answer::Done, Answer::NoThread, Answer::Ended, Answer::Elsewhere(2)] {
            assert_eq!(stays_away(answer, 1), None, "{answer:?}");
        }
        assert_eq!(stays_away(Answer::NoRoom, 1), Some(Some(1)));
        for answer in [Answer::Tied(7), Answer::Waits(Kind::Mutex), Answer::Late] {
            assert_eq!(stays_away(answer, 1), Some(None), "{answer:?}");
        }
    }

    #[test]
    fn pages_are_those_of_the_time_that_is_past() {
        let (from, sample) = ([(2, 8192)], [5]);
        let faults = |ms| {
            let waited = Duration::from_millis(ms);
            FaultsOfThread { waited, from: from.into(), sample: sample.into() }
        };
        assert_eq!(pages(faults(50), 0.1), Pages { waited: 0.5, from: from.into(), sample: sample.into() });
        assert_eq!(pages(faults(500), 0.1).waited, 1.0, "it began before");
        assert_eq!(pages(FaultsOfThread::default(), 0.1), Pages::default());
    }

    #[test]
    fn times_are_read_as_the_system_writes_them() {
        assert_eq!(times("1712 5000 9\n"), Some((Duration::from_nanos(1712), Duration::from_nanos(5000))));
        assert_eq!((times(""), times("5 x")), (None, None));
        let stat = "cpu  9 9 9 9\ncpu0 100 200 300 1000 50 0 0 0 1 1\ncpu1 10 0 0 7 0 0 0 0 0 0\ncpu10 900 0 0 7\n";
        let (first, both) = (used(stat, &[0]), used(stat, &[0, 1]));
        assert!(first > Duration::ZERO && both.as_secs_f64() / first.as_secs_f64() > 1.0);
        assert_eq!(used("no such text", &[0]), Duration::ZERO);
    }
}
