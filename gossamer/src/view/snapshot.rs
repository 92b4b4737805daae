//! Snapshot: the last sample of each machine of a program, and alerts.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::sample::MachineSample;
use super::source::Source;
use super::stacks::Stack;
use crate::control::Look;

/// Time without an answer to a probe after which a worker is reported.
pub const SILENT_MS: u64 = 1000;
/// Time in which the machines must answer.
pub const ANSWER_LIMIT: Duration = Duration::from_millis(1000);

/// Last known state of a program.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// State of each machine, in order.
    pub machines: Vec<Seen>,
    /// Problems, in words.
    pub alerts: Vec<String>,
}

/// Last known state of a machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    /// Age of the sample, in milliseconds.
    pub age_ms: u64,
    /// Whether the machine has answered the last question.
    pub answers: bool,
    /// Cause of its loss, if the program has lost it and goes on.
    #[serde(default)]
    pub lost: Option<String>,
    /// The sample.
    pub sample: MachineSample,
}

/// Takes snapshots, one at a time, and none before the last is too old.
#[derive(Default)]
pub struct Snapshots(Mutex<State>);

#[derive(Default)]
struct State {
    last: BTreeMap<u16, (Instant, MachineSample)>,
    troubles: Vec<String>,
    asked: Option<Instant>,
}

impl Snapshots {
    /// Returns the last one, taken anew if it is older than `at_most`.
    pub fn take(&self, source: &dyn Source, at_most: Duration) -> Snapshot {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.asked.is_none_or(|asked| asked.elapsed() >= at_most) {
            let answer = source.look(Look::Sample, ANSWER_LIMIT);
            let now = Instant::now();
            for (machine, bytes) in answer.machines {
                if let Some(sample) = MachineSample::from_bytes(&bytes).filter(|sample| sample.machine == machine) {
                    state.last.insert(machine, (now, sample));
                }
            }
            (state.troubles, state.asked) = (answer.troubles, Some(now));
        }
        let asked = state.asked;
        let seen = |(at, sample): &(Instant, MachineSample)| Seen {
            age_ms: u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX),
            answers: Some(*at) == asked,
            lost: None,
            sample: sample.clone(),
        };
        Snapshot::new(state.last.values().map(seen).collect(), &state.troubles)
    }
}

impl Snapshot {
    /// Makes a snapshot of these machines, with alerts for their problems.
    #[must_use]
    pub fn new(mut machines: Vec<Seen>, troubles: &[String]) -> Snapshot {
        let told_by = machines.iter().filter(|seen| seen.answers);
        let lost: BTreeMap<u16, String> = told_by.flat_map(|seen| seen.sample.lost.iter().cloned()).collect();
        machines.iter_mut().for_each(|seen| seen.lost = lost.get(&seen.sample.machine).cloned());
        let mut alerts: Vec<String> =
            lost.iter().map(|(machine, cause)| format!("m{machine} is lost: {cause}")).collect();
        for Seen { age_ms, answers, lost: _, sample } in machines.iter().filter(|seen| seen.lost.is_none()) {
            if !answers {
                let (machine, host) = (sample.machine, &sample.host);
                alerts.push(format!("m{machine} on {host} does not answer: this is of {} s ago", age_ms / 1000));
            }
            for (place, worker) in sample.workers.iter().enumerate() {
                let silent_ms = worker.silent_ms;
                if silent_ms >= SILENT_MS {
                    let doing = thread_state(&worker.state);
                    let what = if worker.kept_by.is_empty() { "a closure or fiber" } else { &worker.kept_by };
                    let (machine, host) = (sample.machine, &sample.host);
                    alerts.push(format!(
                        "m{machine}w{place} on {host} has not come to its loop for {}.{} s: {what} keeps it; its \
                         thread {doing}",
                        silent_ms / 1000,
                        silent_ms % 1000 / 100
                    ));
                }
            }
        }
        let told = |trouble: &&String| {
            let mut told = machines.iter().map(|seen| &seen.sample.machine).chain(lost.keys());
            !told.any(|machine| trouble.starts_with(&format!("machine {machine} ")))
        };
        alerts.extend(troubles.iter().filter(told).cloned());
        Snapshot { machines, alerts }
    }

    /// Returns the stacks of the workers that are reported, by the worker's name; `None` while one is not known yet.
    pub fn stacks(&self) -> impl Iterator<Item = (String, Option<&Stack>)> {
        self.machines.iter().filter(|seen| seen.lost.is_none()).flat_map(|Seen { sample, .. }| {
            let silent = sample.workers.iter().enumerate().filter(|(_, worker)| worker.silent_ms >= SILENT_MS);
            silent.map(|(place, _)| {
                let stack = sample.stacks.iter().find(|(worker, _)| *worker == place);
                (format!("m{}w{place}", sample.machine), stack.map(|(_, stack)| stack))
            })
        })
    }

    /// Returns the program's name.
    #[must_use]
    pub fn program(&self) -> &str {
        self.machines.first().map_or("", |seen| &seen.sample.program)
    }
}

fn thread_state(state: &str) -> &'static str {
    match state {
        "R" => "runs",
        "S" => "sleeps in the kernel",
        "D" => "waits for a device",
        "T" | "t" => "was stopped",
        _ => "has ended",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::WorkerSample;
    use crate::view::source::Answer;

    struct Recorded(Mutex<Vec<Vec<u16>>>);

    impl Source for Recorded {
        fn look(&self, _: Look, _: Duration) -> Answer {
            let machines = self.0.lock().unwrap().remove(0);
            let sample = |machine| {
                let kept_by = "the closure `find` on a `Tree`".to_owned();
                let worker = |silent_ms| WorkerSample {
                    silent_ms,
                    kept_by: kept_by.clone(),
                    state: "R".into(),
                    ..WorkerSample::default()
                };
                let workers = vec![worker(0), worker(1300 * u64::from(machine))];
                let sample = MachineSample { machine, host: "alpha".into(), workers, ..MachineSample::default() };
                (machine, sample.to_bytes())
            };
            Answer { machines: machines.into_iter().map(sample).collect(), troubles: Vec::new() }
        }
    }

    #[test]
    fn who_is_silent_is_told_and_who_has_gone_leaves_its_last_sample() {
        let source = Recorded(Mutex::new(vec![vec![0, 1], vec![0]]));
        let snapshots = Snapshots::default();
        let first = snapshots.take(&source, Duration::ZERO);
        let stuck = "m1w1 on alpha has not come to its loop for 1.3 s: the closure `find` on a `Tree` keeps it; its \
                     thread runs";
        assert_eq!(first.alerts, [stuck]);
        let again = snapshots.take(&source, Duration::from_secs(60));
        assert_eq!(again.machines.len(), 2, "not asked again");
        let second = snapshots.take(&source, Duration::ZERO);
        assert_eq!(second.machines.iter().map(|seen| seen.answers).collect::<Vec<_>>(), [true, false]);
        assert!(second.alerts[0].starts_with("m1 on alpha does not answer"), "{:?}", second.alerts);
    }

    #[test]
    fn a_lost_machine_is_told_with_the_cause_and_not_as_silent() {
        let seen = |machine, answers, lost: &[(u16, &str)]| {
            let worker = WorkerSample { silent_ms: 5000 * u64::from(machine == 2), ..WorkerSample::default() };
            let lost = lost.iter().map(|(machine, cause)| (*machine, (*cause).to_owned())).collect();
            let sample = MachineSample { machine, lost, workers: vec![worker], ..MachineSample::default() };
            Seen { answers, sample, ..Seen::default() }
        };
        let (two, five) = ((2, "machine 2 (pid 7) was killed by signal 9 (SIGKILL)"), (5, "machine 5 was silent"));
        // Machine 1 has not been told of the second loss yet. No sample of machine 5 ever came.
        let machines = vec![seen(0, true, &[two, five]), seen(1, true, &[two]), seen(2, false, &[])];
        let troubles = [2, 4, 5].map(|machine| format!("machine {machine} has not answered in time"));
        let snapshot = Snapshot::new(machines, &troubles);
        let alerts = [
            format!("m2 is lost: {}", two.1),
            format!("m5 is lost: {}", five.1),
            "machine 4 has not answered in time".to_owned(),
        ];
        assert_eq!(snapshot.alerts, alerts);
        let lost: Vec<_> = snapshot.machines.iter().map(|seen| seen.lost.as_deref()).collect();
        assert_eq!(lost, [None, None, Some(two.1)]);
        assert_eq!(snapshot.stacks().count(), 0);
    }
}
