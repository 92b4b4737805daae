//! Trace: activity of workers over time, as Chrome's JSON, which Perfetto and chrome://tracing show.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use trust::link::{AnswerWait, TraceKind};

use super::sample::{moving_trustees, program_name, workers};
use super::source::Answer;
use crate::codec;
use crate::rack::try_program;

/// Activity of the workers of one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineTrace {
    /// Name of the program's file.
    pub program: String,
    /// Number of the machine.
    pub machine: u16,
    /// Its host.
    pub host: String,
    /// Microseconds since 1970 at its start, by its host's clock.
    pub began_us: u64,
    /// Activity of each worker, and of trustees that move.
    pub workers: Vec<WorkerTrace>,
    /// The reason why there is no trace, if there is none.
    pub refused: String,
}

/// Activity of one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerTrace {
    /// Its name, if its place in the list does not tell it.
    #[serde(default)]
    pub name: String,
    /// Kind (0 sleep, 1 batch, 2 fibers, 3 move), start in nanoseconds from the start of the trace, duration, and
    /// count.
    pub events: Vec<(u8, u64, u64, u64)>,
    /// Waits of its fibers for answers: the fiber's number, machine and worker of the trustee, start and duration in
    /// nanoseconds.
    pub waits: Vec<(u64, u16, u16, u64, u64)>,
    /// Waits that were not kept; 65,536 of each worker are kept.
    pub lost_waits: u64,
    /// Events that were not kept; 65,536 of each worker are kept.
    pub lost: u64,
}

impl MachineTrace {
    /// Takes a trace of this machine for `time`.
    pub(super) fn take(time: Duration) -> MachineTrace {
        let Some(program) = try_program() else {
            return MachineTrace { refused: "the program does not run yet".to_owned(), ..MachineTrace::default() };
        };
        let rack = &program.rack;
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut trace = MachineTrace {
            program: program_name(),
            machine: rack.machine(),
            host: rack.machines()[usize::from(rack.machine())].host.clone(),
            began_us: u64::try_from(began.as_micros()).unwrap_or(u64::MAX),
            ..MachineTrace::default()
        };
        let kind = |kind| match kind {
            TraceKind::Park => 0,
            TraceKind::Batch => 1,
            TraceKind::Fibers => 2,
            TraceKind::Move => 3,
        };
        let wait = |wait: &AnswerWait| {
            let worker = u16::try_from(wait.trustee.index()).unwrap_or(u16::MAX);
            (wait.fiber, wait.trustee.machine(), worker, wait.start_ns, wait.ns)
        };
        let (mut traced, moving) = (workers(), moving_trustees());
        let names = traced.iter().map(|_| String::new()).chain(moving.iter().map(|it| format!("{:?}", it.id())));
        let names: Vec<String> = names.collect();
        traced.extend(moving);
        match trust::link::trace(&traced, time) {
            None => trace.refused = "another trace is being made: try again when it is over".to_owned(),
            Some(workers) => {
                let worker = |(worker, name): (trust::link::Trace, String)| WorkerTrace {
                    name,
                    events: worker.events.iter().map(|it| (kind(it.kind), it.start_ns, it.ns, it.count)).collect(),
                    waits: worker.waits.iter().map(wait).collect(),
                    lost_waits: worker.lost_waits,
                    lost: worker.lost,
                };
                trace.workers = workers.into_iter().zip(names).map(worker).collect();
            }
        }
        trace
    }

    /// Encodes the trace, for [`MachineTrace::from_bytes`].
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Decodes the trace in these bytes, if it is one.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<MachineTrace> {
        codec::decode::<_, { 1 << 30 }>(bytes).ok()
    }
}

/// Returns the answers to `Look::Trace` as Chrome's JSON, and the missing parts, in words.
#[must_use]
pub fn of_answer(answer: &Answer) -> (String, Vec<String>) {
    let mut troubles = answer.troubles.clone();
    let mut traces = Vec::new();
    for (machine, bytes) in &answer.machines {
        match MachineTrace::from_bytes(bytes) {
            Some(trace) if trace.refused.is_empty() => traces.push(trace),
            Some(trace) => troubles.push(format!("machine {machine}: {}", trace.refused)),
            None => troubles.push(format!("machine {machine} has sent no trace")),
        }
    }
    let lost: u64 = traces.iter().flat_map(|trace| &trace.workers).map(|worker| worker.lost).sum();
    if lost > 0 {
        troubles.push(format!("{lost} events were lost: 65,536 of each worker are kept; trace for less time"));
    }
    (to_json(&traces), troubles)
}

/// Returns the traces of a program's machines as Chrome's JSON: a process for each machine, a thread for each worker
/// and for each fiber that has waited for an answer, times from the first start.
///
/// ```
/// use gossamer::view::chrome::{MachineTrace, WorkerTrace, to_json};
/// let waits = vec![(9, 1, 3, 1_000, 4_500)];
/// let events = vec![(1, 2_000, 500, 7)];
/// let worker = WorkerTrace { events, waits, lost_waits: 5, lost: 3, ..WorkerTrace::default() };
/// let json = to_json(&[MachineTrace { workers: vec![worker], ..MachineTrace::default() }]);
/// assert!(json.contains(r#""name":"batch","ph":"X","pid":0,"tid":0,"ts":2.000,"dur":0.500,"args":{"requests":7}"#));
/// assert!(json.contains(r#""name":"waits for m1w3","ph":"X","pid":0,"tid":1000000,"ts":1.000,"dur":4.500,"#));
/// assert!(json.contains("m0w0 fiber 9") && json.contains("(3 events were lost) (5 waits were lost)"));
/// ```
#[must_use]
pub fn to_json(machines: &[MachineTrace]) -> String {
    const KINDS: [(&str, &str); 4] =
        [("sleep", "of"), ("batch", "requests"), ("fibers", "switches"), ("move", "to worker")];
    /// Threads of fibers, which come after those of the workers: so many for each worker.
    const FIBER_THREADS: usize = 1_000_000;
    let begin = machines.iter().map(|machine| machine.began_us).min().unwrap_or(0);
    let mut json = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    for machine in machines {
        let pid = machine.machine;
        let named = |what: &str, tid: usize, name: String| {
            let name = serde_json::Value::String(name);
            format!("{{\"name\":\"{what}\",\"ph\":\"M\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"name\":{name}}}}},\n")
        };
        let slice = |json: &mut String, name: &str, tid: usize, start_ns: u64, ns: u64, arguments: &str| {
            let ts_ns = u128::from(machine.began_us - begin) * 1000 + u128::from(start_ns);
            let _ = writeln!(
                json,
                "{{\"name\":\"{name}\",\"ph\":\"X\",\"pid\":{pid},\"tid\":{tid},\"ts\":{}.{:03},\"dur\":{}.{:03},\
                 \"args\":{{{arguments}}}}},",
                ts_ns / 1000,
                ts_ns % 1000,
                ns / 1000,
                ns % 1000
            );
        };
        json += &named("process_name", 0, format!("{} m{pid} on {}", machine.program, machine.host));
        for (tid, worker) in machine.workers.iter().enumerate() {
            let lost = |count, what| if count > 0 { format!(" ({count} {what} were lost)") } else { String::new() };
            let lost = lost(worker.lost, "events") + &lost(worker.lost_waits, "waits");
            let own = if worker.name.is_empty() { format!("m{pid}w{tid}") } else { worker.name.clone() };
            json += &named("thread_name", tid, format!("{own}{lost}"));
            for &(kind, start_ns, ns, count) in &worker.events {
                let (name, counted) = KINDS[usize::from(kind).min(KINDS.len() - 1)];
                slice(&mut json, name, tid, start_ns, ns, &format!("\"{counted}\":{count}"));
            }
            let worker_name = serde_json::Value::String(own.clone());
            let mut fibers = HashMap::new();
            for &(fiber, trustee_machine, trustee_worker, start_ns, ns) in &worker.waits {
                let next = (tid + 1) * FIBER_THREADS + fibers.len();
                let thread = *fibers.entry(fiber).or_insert_with(|| {
                    json += &named("thread_name", next, format!("{own} fiber {fiber}"));
                    next
                });
                let trustee = format!("m{trustee_machine}w{trustee_worker}");
                let arguments = format!("\"fiber\":{fiber},\"worker\":{worker_name},\"trustee\":\"{trustee}\"");
                slice(&mut json, &format!("waits for {trustee}"), thread, start_ns, ns, &arguments);
            }
        }
    }
    json += "{\"name\":\"end\",\"ph\":\"M\",\"pid\":0,\"args\":{}}\n]}\n";
    json
}
