//! Activity of workers between two snapshots, in units for people.

use serde::Serialize;

use super::snapshot::{SILENT_MS, Seen, Snapshot};

/// Activity of one worker, a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// `m1w3`.
    pub worker: String,
    /// Its host.
    pub host: String,
    /// Requests that its trustee served, those of its own thread too.
    pub served_per_s: f64,
    /// Requests in each batch that it served.
    pub batch: f64,
    /// Share of the time in which it neither slept nor polled without work.
    pub busy: f64,
    /// Requests that found no free slot.
    pub queued_per_s: f64,
    /// Sleeps.
    pub parks_per_s: f64,
    /// Mean of the round trips of probes since it is watched, in nanoseconds.
    pub round_trip_ns: u64,
    /// Memory of its own, in bytes.
    pub memory_bytes: u64,
    /// Time since it last came to its loop; 0 unless that is long.
    pub silent_ms: u64,
    /// State of its thread: `R`, `S`, `D`, `T`.
    pub state: String,
}

/// Returns the rates of all workers in `now` whose machines are not lost, since `before` if that has them from the same
/// process, else since their start.
#[must_use]
pub fn rates(before: Option<&Snapshot>, now: &Snapshot) -> Vec<Rates> {
    let earlier = |seen: &Seen| {
        let same = |other: &&Seen| (other.sample.machine, other.sample.pid) == (seen.sample.machine, seen.sample.pid);
        before?.machines.iter().find(same).filter(|other| other.sample.at_ns < seen.sample.at_ns)
    };
    let of_machine = |seen: &Seen| {
        let earlier = earlier(seen);
        let ns = earlier.map_or(seen.sample.up_ms * 1_000_000, |other| seen.sample.at_ns - other.sample.at_ns).max(1);
        (0..seen.sample.workers.len()).map(|worker| of_worker(earlier, seen, worker, ns as f64)).collect::<Vec<_>>()
    };
    now.machines.iter().filter(|seen| seen.lost.is_none()).flat_map(of_machine).collect()
}

fn of_worker(earlier: Option<&Seen>, seen: &Seen, number: usize, ns: f64) -> Rates {
    let (sample, worker) = (&seen.sample, &seen.sample.workers[number]);
    let more = |name: &str| {
        let base = earlier.map_or(0, |earlier| earlier.sample.value(number, name));
        sample.value(number, name).saturating_sub(base) as f64
    };
    let (served, batches, parks) = (more("requests_served"), more("batches_served"), more("parks"));
    let all = served + more("requests_run_here");
    let idle = more("parked_ns") + more("polled_ns");
    // A sleep is added when it is over: a worker that has slept all the time has added nothing yet.
    let is_asleep = worker.state == "S" && parks + all + more("fiber_switches") == 0.0 && more("polls") < 2.0;
    let busy = match () {
        () if worker.silent_ms >= SILENT_MS => 1.0,
        () if is_asleep => 0.0,
        () => (1.0 - idle / ns).clamp(0.0, 1.0),
    };
    let trips: u64 = worker.round_trips.iter().sum();
    Rates {
        worker: format!("m{}w{number}", sample.machine),
        host: sample.host.clone(),
        served_per_s: all / ns * 1e9,
        batch: if batches > 0.0 { served / batches } else { 0.0 },
        busy,
        queued_per_s: more("requests_queued") / ns * 1e9,
        parks_per_s: parks / ns * 1e9,
        round_trip_ns: worker.round_trips_ns.checked_div(trips).unwrap_or(0),
        memory_bytes: worker.memory_bytes,
        silent_ms: worker.silent_ms,
        state: worker.state.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{MachineSample, WorkerSample};

    fn snapshot(at_ns: u64, served: u64, batches: u64, parked_ns: u64, silent_ms: u64) -> Snapshot {
        let names = ["requests_served", "batches_served", "parked_ns", "polls"].map(String::from).to_vec();
        let values = vec![served, batches, parked_ns, at_ns];
        let worker = WorkerSample { values, silent_ms, state: "S".into(), ..WorkerSample::default() };
        let sample = MachineSample { at_ns, up_ms: 10_000, names, workers: vec![worker], ..MachineSample::default() };
        Snapshot::new(vec![Seen { answers: true, sample, ..Seen::default() }], &[])
    }

    #[test]
    fn rates_are_of_the_time_between_two_samples() {
        let (first, second) =
            (snapshot(1_000_000_000, 1000, 100, 0, 0), snapshot(3_000_000_000, 5000, 300, 500_000_000, 0));
        let rates = super::rates(Some(&first), &second);
        assert_eq!(
            (rates[0].worker.as_str(), rates[0].served_per_s, rates[0].batch, rates[0].busy),
            ("m0w0", 2000.0, 20.0, 0.75)
        );
        assert_eq!(super::rates(None, &second)[0].served_per_s, 500.0, "since its start");
        assert_eq!(super::rates(Some(&second), &snapshot(4_000_000_000, 5000, 300, 500_000_000, 1200))[0].busy, 1.0);
        let still = Snapshot { machines: second.machines.clone(), alerts: Vec::new() };
        assert_eq!(super::rates(Some(&second), &still)[0].served_per_s, 500.0, "no time has passed");
    }
}
