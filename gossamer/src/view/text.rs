//! Metrics of a snapshot: OpenMetrics 1.0, or Prometheus' text format 0.0.4.
//!
//! At most 40 series a worker, none for pairs of workers; those between machines are left to the page.

use std::fmt::Write;

use super::sample::{MachineSample, ROUND_TRIP_BOUNDS_NS, WorkerSample};
use super::snapshot::{SILENT_MS, Seen, Snapshot};
use super::tasks::TasksSample;
use super::threads::ThreadsSample;

/// Format of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Text004,
}

impl Format {
    /// Returns the format that suits this `Accept` of a request.
    ///
    /// ```
    /// use gossamer::view::text::Format;
    /// let prometheus = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    /// assert_eq!(Format::of(prometheus), Format::OpenMetrics);
    /// assert_eq!(Format::of("text/plain"), Format::Text004);
    /// assert_eq!(Format::of("application/openmetrics-text;q=0.1, text/plain"), Format::Text004);
    /// ```
    #[must_use]
    pub fn of(accept: &str) -> Format {
        let quality = |name: &str| {
            let of = |part: &str| {
                let mut fields = part.split(';').map(str::trim);
                let is_it = fields.next().is_some_and(|media| media.eq_ignore_ascii_case(name));
                let quality =
                    fields.find_map(|field| field.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse::<f32>().ok());
                is_it.then_some(quality).flatten()
            };
            accept.split(',').filter_map(of).fold(0.0, f32::max)
        };
        let open = quality("application/openmetrics-text");
        if open > 0.0 && open >= quality("text/plain") { Format::OpenMetrics } else { Format::Text004 }
    }

    /// Returns its `Content-Type`.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text004 => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Text written so far.
struct Text<'a> {
    out: String,
    format: Format,
    snapshot: &'a Snapshot,
    /// Labels of each machine, and of each of its workers.
    labels: Vec<(String, Vec<String>)>,
    digits: itoa::Buffer,
}

/// Values of each worker: its name here, its name in the metrics, its unit, its help text, and the divisor to that
/// unit.
const COUNTERS: [(&str, &str, &str, &str, f64); 23] = [
    ("requests_sent", "requests_sent", "", "Requests sent to other trustees.", 1.0),
    ("requests_sent_remote", "requests_sent_remote", "", "Those among them that went to another machine.", 1.0),
    ("requests_run_here", "requests_run_here", "", "Requests that the worker's own trustee ran at once.", 1.0),
    ("batches_sent", "batches_sent", "", "Batches in which requests were sent.", 1.0),
    ("requests_served", "requests_served", "", "Requests served for other clients.", 1.0),
    ("batches_served", "batches_served", "", "Batches in which they came.", 1.0),
    ("responses_overflowed", "responses_overflowed", "", "Batches whose responses did not fit their slot.", 1.0),
    ("requests_queued", "requests_queued", "", "Requests that found no free slot and were queued.", 1.0),
    ("fiber_switches", "fiber_switches", "", "Switches from one fiber to another or to the loop.", 1.0),
    ("fibers_spawned", "fibers_spawned", "", "Fibers started.", 1.0),
    ("polls", "idle_turns", "", "Turns of the loop that found nothing to do.", 1.0),
    ("polled_ns", "polled_seconds", "seconds", "Time polled without finding work.", 1e9),
    ("yields", "yields", "", "Times the core was given to another thread.", 1.0),
    ("parks", "parks", "", "Times the worker slept.", 1.0),
    ("parked_ns", "parked_seconds", "seconds", "Time slept.", 1e9),
    ("woken", "woken", "", "Sleeps that another thread ended, as far as that was measured.", 1.0),
    ("wake_up_ns", "wake_up_seconds", "seconds", "Time from there until the worker ran.", 1e9),
    ("wake_ups_sent", "wake_ups_sent", "", "Times the worker woke another thread.", 1.0),
    ("moves", "trustee_moves", "", "Moves of the trustee to another worker of its pool.", 1.0),
    ("moves_undone", "trustee_moves_undone", "", "Those among them that undid a trial.", 1.0),
    ("moves_refused", "trustee_moves_refused", "", "Moves that did not take place: the trustee is bound.", 1.0),
    ("properties_closed", "properties_closed", "", "Values dropped ahead of their properties.", 1.0),
    ("involuntary_switches", "involuntary_switches", "", "Times the kernel took the core from the worker.", 1.0),
];

/// The values that are no counts of work, likewise.
const GAUGES: [(&str, &str, &str, &str, f64); 1] =
    [("old_properties", "old_properties", "", "Values from before the loss of a machine that are there.", 1.0)];

/// Returns the metrics of a program.
#[must_use]
pub fn render(snapshot: &Snapshot, format: Format) -> String {
    let labels = snapshot.machines.iter().map(|seen| labels(&seen.sample)).collect();
    let mut text = Text { out: String::new(), format, snapshot, labels, digits: itoa::Buffer::new() };
    let counters = COUNTERS.iter().map(|counter| (counter, "counter", "_total"));
    for ((value, name, unit, help, divisor), kind, end) in
        counters.chain(GAUGES.iter().map(|gauge| (gauge, "gauge", "")))
    {
        let name = format!("gossamer_{name}");
        text.family(&name, kind, unit, help);
        let name = format!("{name}{end}");
        for (machine, seen) in snapshot.machines.iter().enumerate() {
            let Some(place) = seen.sample.names.iter().position(|known| known == value) else { continue };
            for (number, worker) in seen.sample.workers.iter().enumerate() {
                let value = worker.values.get(place).copied().unwrap_or(0);
                text.of_worker(&name, machine, number, value, *divisor);
            }
        }
    }
    text.round_trips();
    text.states();
    text.machines();
    text.that_move();
    if format == Format::OpenMetrics {
        text.out += "# EOF\n";
    }
    text.out
}

impl Text<'_> {
    fn family(&mut self, name: &str, kind: &str, unit: &str, help: &str) {
        // In OpenMetrics a counter's family has the name without `_total`; before, it had the name of its series.
        let end = if kind == "counter" && self.format == Format::Text004 { "_total" } else { "" };
        let _ = writeln!(self.out, "# TYPE {name}{end} {kind}");
        if !unit.is_empty() && self.format == Format::OpenMetrics {
            let _ = writeln!(self.out, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.out, "# HELP {name}{end} {help}");
    }

    /// Writes a series of a worker.
    fn of_worker(&mut self, name: &str, machine: usize, worker: usize, value: u64, divisor: f64) {
        self.series(name, machine, worker, "");
        self.number(value, divisor);
    }

    /// Writes its line without the number.
    fn series(&mut self, name: &str, machine: usize, worker: usize, more: &str) {
        for part in [name, "{", &self.labels[machine].1[worker], more, "} "] {
            self.out.push_str(part);
        }
    }

    /// Writes the end of a line: the value in units of the divisor.
    fn number(&mut self, value: u64, divisor: f64) {
        // Most are whole numbers, which are written several times as fast.
        if divisor == 1.0 {
            self.out.push_str(self.digits.format(value));
        } else {
            let _ = write!(self.out, "{}", value as f64 / divisor);
        }
        self.out.push('\n');
    }

    fn round_trips(&mut self) {
        let name = "gossamer_probe_round_trip_seconds";
        let help = "Round trips of the empty requests that are sent while somebody watches.";
        self.family(name, "histogram", "seconds", help);
        let bounds = ROUND_TRIP_BOUNDS_NS.iter().map(|ns| (*ns as f64 / 1e9).to_string()).chain(["+Inf".to_owned()]);
        let bounds: Vec<String> = bounds.map(|bound| format!(",le=\"{bound}\"")).collect();
        let [bucket, all, seconds] = ["bucket", "count", "sum"].map(|end| format!("{name}_{end}"));
        for (machine, seen) in self.snapshot.machines.iter().enumerate() {
            for (number, worker) in seen.sample.workers.iter().enumerate() {
                let mut sum = 0;
                for (count, bound) in worker.round_trips.iter().zip(&bounds) {
                    sum += count;
                    self.series(&bucket, machine, number, bound);
                    self.number(sum, 1.0);
                }
                if !worker.round_trips.is_empty() {
                    self.of_worker(&all, machine, number, sum, 1.0);
                    self.of_worker(&seconds, machine, number, worker.round_trips_ns, 1e9);
                }
            }
        }
    }

    fn states(&mut self) {
        let help = "Stacks of its fibers, pages of its properties.";
        self.of_workers("gossamer_worker_memory_bytes", "bytes", help, |it| it.memory_bytes);
        let is_stuck = |worker: &WorkerSample| u64::from(worker.silent_ms >= SILENT_MS);
        let help = "1 if the worker has not come to its loop for a second.";
        self.of_workers("gossamer_worker_stuck", "", help, is_stuck);
    }

    /// Writes a value of each worker that may also fall.
    fn of_workers(&mut self, name: &str, unit: &str, help: &str, value: impl Fn(&WorkerSample) -> u64) {
        self.family(name, "gauge", unit, help);
        for (machine, seen) in self.snapshot.machines.iter().enumerate() {
            for (number, worker) in seen.sample.workers.iter().enumerate() {
                self.of_worker(name, machine, number, value(worker), 1.0);
            }
        }
    }

    /// Writes the tasks and threads of the machines, where there are or were any, and their moves.
    fn that_move(&mut self) {
        let count = |tasks: &TasksSample, value| (tasks.count > 0 || !tasks.left.is_empty()).then_some(value);
        self.of_machines("gossamer_tasks", "Tasks of the heap.", |sample| count(&sample.tasks, sample.tasks.count));
        let help = "Those among them that could run.";
        self.of_machines("gossamer_tasks_runnable", help, |sample| count(&sample.tasks, sample.tasks.runnable));
        let help = "Tasks that have left for another machine.";
        self.moves("gossamer_task_moves", help, |sample| &sample.tasks.left);
        let count = |ThreadsSample { left, threads }: &ThreadsSample| {
            (!threads.is_empty() || !left.is_empty()).then_some(threads.len() as u64)
        };
        self.of_machines("gossamer_threads", "Threads of a C program.", |sample| count(&sample.threads));
        let help = "Threads that have left for another machine.";
        self.moves("gossamer_thread_moves", help, |sample| &sample.threads.left);
    }

    /// Writes a value of each machine that has it.
    fn of_machines(&mut self, name: &str, help: &str, value: impl Fn(&MachineSample) -> Option<u64>) {
        let line = |(seen, (labels, _)): (&Seen, &(String, Vec<String>))| {
            Some(format!("{name}{{{labels}}} {}\n", value(&seen.sample)?))
        };
        let lines: String = self.snapshot.machines.iter().zip(&self.labels).filter_map(line).collect();
        self.gathered(name, "gauge", help, &lines);
    }

    /// Writes the moves from each machine, by their reasons.
    fn moves(&mut self, name: &str, help: &str, left: fn(&MachineSample) -> &[(String, u64)]) {
        let of_machine = |(seen, (labels, _)): (&Seen, &(String, Vec<String>))| {
            let line = |(reason, times): &(String, u64)| {
                format!("{name}_total{{{labels},reason=\"{}\"}} {times}\n", escaped(reason))
            };
            left(&seen.sample).iter().map(line).collect::<String>()
        };
        let lines: String = self.snapshot.machines.iter().zip(&self.labels).map(of_machine).collect();
        self.gathered(name, "counter", help, &lines);
    }

    /// Writes these lines with the name of their family, if there are any.
    fn gathered(&mut self, name: &str, kind: &str, help: &str, lines: &str) {
        if !lines.is_empty() {
            self.family(name, kind, "", help);
            self.out += lines;
        }
    }

    fn machines(&mut self) {
        type Value = (&'static str, &'static str, &'static str, &'static str, fn(&Seen) -> f64);
        let values: [Value; 6] = [
            ("machine_up", "gauge", "", "1 if the machine answers.", |seen| f64::from(u8::from(seen.answers))),
            ("resident_bytes", "gauge", "bytes", "Memory of the process in use.", |seen| {
                seen.sample.resident_bytes as f64
            }),
            ("shared_bytes", "gauge", "bytes", "How much of it is shared.", |seen| seen.sample.shared_bytes as f64),
            ("up_seconds", "gauge", "seconds", "Since the machine was ready.", |seen| seen.sample.up_ms as f64 / 1e3),
            ("batches_to_machines", "counter", "", "Batches sent to other machines.", |seen| {
                seen.sample.sent.iter().map(|sent| sent.0).sum::<u64>() as f64
            }),
            ("to_machines_bytes", "counter", "bytes", "Bytes in them.", |seen| {
                seen.sample.sent.iter().map(|sent| sent.1).sum::<u64>() as f64
            }),
        ];
        for (name, kind, unit, help, value) in values {
            let name = format!("gossamer_{name}");
            self.family(&name, kind, unit, help);
            let end = if kind == "counter" { "_total" } else { "" };
            for (seen, (labels, _)) in self.snapshot.machines.iter().zip(&self.labels) {
                let _ = writeln!(self.out, "{name}{end}{{{labels}}} {}", value(seen));
            }
        }
    }
}

/// Returns the labels of a machine, and of each of its workers.
fn labels(sample: &MachineSample) -> (String, Vec<String>) {
    let (program, host) = (escaped(&sample.program), escaped(&sample.host));
    let machine = format!("program=\"{program}\",machine=\"{}\",host=\"{host}\"", sample.machine);
    let workers = (0..sample.workers.len()).map(|worker| format!("{machine},worker=\"{worker}\"")).collect();
    (machine, workers)
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_escape_names_and_stay_within_40_series_a_worker() {
        let names: Vec<String> = trust::Stats::default().iter().map(|(name, _)| name.to_owned()).collect();
        let known: Vec<&str> = COUNTERS.iter().chain(&GAUGES).map(|value| value.0).collect();
        assert!(names.iter().all(|name| known.contains(&name.as_str())) && names.len() == known.len(), "{names:?}");
        let worker =
            WorkerSample { values: vec![3_000_000; names.len()], round_trips: vec![1; 11], ..WorkerSample::default() };
        let program = "a\"b\\c\nd".to_owned();
        let sample =
            MachineSample { program, host: "alpha".into(), names, workers: vec![worker], ..MachineSample::default() };
        let snapshot = Snapshot::new(vec![Seen { answers: true, sample, ..Seen::default() }], &[]);
        let open = render(&snapshot, Format::OpenMetrics);
        assert!(open.ends_with("# EOF\n"));
        let line = "gossamer_parked_seconds_total\
                    {program=\"a\\\"b\\\\c\\nd\",machine=\"0\",host=\"alpha\",worker=\"0\"} 0.003";
        assert!(open.lines().any(|it| it == line), "{open}");
        assert!(open.contains("le=\"+Inf\"} 11\n"));
        let old = render(&snapshot, Format::Text004);
        assert!(
            old.contains("# TYPE gossamer_parks_total counter\n") && !old.contains("# EOF") && !old.contains("# UNIT")
        );
        for text in [open, old] {
            let series = text.lines().filter(|line| line.contains("worker=\"0\"")).count();
            assert!(series <= 40, "{series}");
        }
    }
}
