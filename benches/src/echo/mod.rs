//! `echo`: the exchange between random peers (thesis 3.3.1) over threads, `shm` and `tcp`, beside MPI and gRPC.
//!
//! Each contender is a program of its own that measures the whole plan in one run. rack.rs is the program of `threads`,
//! `shm` and `tcp`; the others are packages with workspaces of their own, which are built when they are asked for. Not
//! here: the requests (the package `exchange`).

mod rack;

use crate::machines::WORKERS_MAX;
use crate::prelude::*;
use crate::programs::build;
use exchange::{Plan, Point};

pub use self::rack::{EchoRack, command as rack_command};

const CONTENDERS: &str = "threads,shm,tcp,mpi,mpi-aggregated,mpi-tcp-aggregated,tonic";
/// Contenders that run where they are asked for: over the ways that all workers of two machines share.
const BY_WAYS: &str = "shm-ways,tcp-ways";

/// Options of `echo`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(mut_arg("rounds", |rounds| rounds.default_value("5")))]
pub struct Echo {
    /// Numbers of processes, each with one worker; the contender `threads` has as many workers in one process.
    #[arg(long, value_delimiter = ',', default_value = "2,4")]
    pub processes: Vec<usize>,
    /// Contenders: threads, shm, tcp, mpi, mpi-aggregated, mpi-tcp-aggregated, tonic; shm-ways and tcp-ways, which have
    /// machine ways in place of rings.
    #[arg(long, value_delimiter = ',', default_value = CONTENDERS)]
    pub only: Vec<String>,
    #[command(flatten)]
    plan: Plan,
    /// Options of all measuring commands.
    #[command(flatten)]
    #[serde(flatten)]
    pub comparison: Comparison,
}

/// One contender at one point.
#[derive(Clone, Debug, Serialize)]
struct Series {
    contender: String,
    processes: usize,
    bytes: usize,
    outstanding: usize,
    median_mops: f64,
    p50_ns: f64,
    p99_ns: f64,
    p999_ns: f64,
    /// Of all processes together, where the program tells it.
    memory_mib: Option<f64>,
    /// In the order of their rounds.
    samples: Vec<Point>,
}

pub fn command(mut options: Echo) -> Result<()> {
    if options.comparison.smoke {
        options.plan.millis = options.plan.millis.min(10);
        options.plan.bytes.retain(|&bytes| bytes == 32 || bytes == 2048);
        options.plan.outstanding.retain(|&outstanding| outstanding == 1 || outstanding == 64);
        options.processes.truncate(1);
    }
    options.plan.check().map_err(anyhow::Error::msg)?;
    let mut bench = Bench::begin("echo", &mut options.comparison)?;
    let mut programs = Vec::new();
    for contender in &options.only {
        for &processes in &options.processes {
            ensure!((2..=WORKERS_MAX).contains(&processes), "--processes {processes}: 2 to {WORKERS_MAX} are possible");
            let program = bench.skipped.sort(contender, program(contender, processes, &options.plan)?);
            programs.extend(program.map(|program| (contender, processes, program)));
        }
    }
    let asked: Vec<_> = options.plan.points().collect();
    let name = |(contender, processes, _): &(&String, usize, Program)| format!("{contender} x{processes}");
    let runs = bench.rounds(&programs, name, |(.., program), _| {
        let points = Point::read(&program.run()?).map_err(anyhow::Error::msg)?;
        let given: Vec<_> = points.iter().map(|point| (point.bytes, point.outstanding)).collect();
        ensure!(asked == given, "{given:?} were measured where {asked:?} were asked for");
        Ok(points)
    })?;
    let mut series = Vec::new();
    for ((contender, processes, _), runs) in programs.into_iter().zip(runs) {
        for (at, &(bytes, outstanding)) in asked.iter().enumerate() {
            let samples: Vec<Point> = runs.iter().map(|points| points[at]).collect();
            let middle = |value: fn(&Point) -> f64| median(samples.iter().map(value));
            let (p50_ns, p99_ns) = (middle(|point| point.p50_ns), middle(|point| point.p99_ns));
            let (median_mops, p999_ns) = (middle(Point::mops), middle(|point| point.p999_ns));
            let memory = samples.iter().filter_map(|point| point.memory_bytes).max();
            let memory_mib = memory.map(|bytes| bytes as f64 / f64::from(1 << 20));
            let contender = contender.clone();
            series.push(Series {
                contender,
                processes,
                bytes,
                outstanding,
                median_mops,
                p50_ns,
                p99_ns,
                p999_ns,
                memory_mib,
                samples,
            });
        }
    }
    let rows = series.iter().map(|one| {
        let Series { contender, processes, bytes, outstanding, median_mops, p50_ns, p99_ns, p999_ns, .. } = one;
        let (megabytes, memory) = (median_mops * *bytes as f64, one.memory_mib);
        row![contender, processes, bytes, outstanding, median_mops, megabytes, p50_ns, p99_ns, p999_ns, memory]
    });
    table("medians", &["", "x", "bytes", "out", "Mreq/s", "MB/s", "p50 ns", "p99 ns", "p99.9 ns", "MiB"], rows);
    let targets = verdicts(&series);
    bench.conclude(&options, json!({"series": series}), &targets)
}

/// A contender, ready to run the plan; or why it cannot be had here.
fn program(contender: &str, count: usize, plan: &Plan) -> Result<Found<Program>> {
    let of_mpi = |transport, words| {
        let program = Program::mpi(transport, count, || build("mpi", "echo-mpi", ""))?;
        anyhow::Ok(program.map(|program| program.say(words)))
    };
    let program = match contender {
        "threads" => Ok(Program::own(&format!("echo-rack --processes 1 --workers {count}"))?),
        "shm" | "tcp" => Ok(of_rack(contender, count)?),
        "shm-ways" | "tcp-ways" => {
            Ok(of_rack(contender.trim_end_matches("-ways"), count)?.set("GOSSAMER_MACHINE_WAYS", "on"))
        }
        "mpi" => of_mpi("self,vader", "")?,
        "mpi-aggregated" => of_mpi("self,vader", "--aggregated")?,
        "mpi-tcp-aggregated" => of_mpi("self,tcp", "--aggregated")?,
        "tonic" => {
            build("tonic", "echo-tonic", "")?.map(|built| Program::at(built).say(&format!("--processes {count}")))
        }
        other => {
            let all = [CONTENDERS, BY_WAYS].join(",").replace(',', ", ");
            bail!("there is no contender {other:?}: it is one of {all}")
        }
    };
    let measured = plan.time() * u32::try_from(plan.points().count()).unwrap_or(u32::MAX);
    Ok(program.map(|program| program.with(plan.arguments()).within(measured * 4 + TIME_LIMIT)))
}

/// Processes of one worker each, by this fabric.
fn of_rack(fabric: &str, count: usize) -> Result<Program> {
    Program::own(&format!("echo-rack --fabric {fabric} --processes {count} --workers {count}"))
}

/// Longer than any run takes, start and end included, beyond the measured time.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// For each contender, number of processes and size, the number of outstanding requests that was fastest.
fn best_of_each(series: &[Series]) -> impl Iterator<Item = &Series> {
    let mut best: BTreeMap<_, &Series> = BTreeMap::new();
    for series in series {
        let known = best.entry((&series.contender, series.processes, series.bytes)).or_insert(series);
        if series.median_mops > known.median_mops {
            *known = series;
        }
    }
    best.into_values()
}

/// Bytes of the thesis' requests.
const THESIS_BYTES: usize = 32;
/// Processes of its figures 23 and 24.
const THESIS_PROCESSES: usize = 2;
/// Two neighbouring sizes across which bytes per second must not fall by more than this.
const CLIFF: f64 = 1.5;

/// The targets of the exchange, each at the best number of outstanding requests of either side.
fn verdicts(series: &[Series]) -> Vec<Verdict> {
    let best = |contender: &str, bytes: usize| {
        let is_it = |best: &&Series| {
            (best.contender.as_str(), best.processes, best.bytes) == (contender, THESIS_PROCESSES, bytes)
        };
        best_of_each(series).find(is_it).map(|best| best.median_mops)
    };
    let against = |of: &str, to: &str, wanted: f64| {
        let reached = ratio(best(of, THESIS_BYTES), best(to, THESIS_BYTES));
        at_least(format!("{of} over {to}, {THESIS_BYTES} bytes, 2 processes"), wanted, reached)
    };
    let mut verdicts = vec![
        against("shm", "threads", 0.5),
        against("shm", "mpi-aggregated", 2.0),
        against("shm", "mpi", 10.0),
        at_least("shm, 32 bytes, 2 processes, million a second", 34.0, best("shm", THESIS_BYTES)),
        against("tcp", "mpi-tcp-aggregated", 1.0),
        against("tcp", "tonic", 10.0),
    ];
    for contender in ["shm", "tcp"] {
        // Only between neighbours: all sizes have to be there.
        let speeds: Option<Vec<f64>> =
            exchange::SIZES.iter().map(|&bytes| Some(best(contender, bytes)? * bytes as f64)).collect();
        let steps = speeds.and_then(|speeds| speeds.windows(2).map(|pair| pair[1] / pair[0]).min_by(f64::total_cmp));
        let what = format!("{contender}: the worst step of bytes a second to the next size");
        verdicts.push(at_least(what, 1.0 / CLIFF, steps));
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(contender: &str, bytes: usize, outstanding: usize, median_mops: f64) -> Series {
        let (contender, [p50_ns, p99_ns, p999_ns], samples) = (contender.to_owned(), [1.0, 2.0, 3.0], Vec::new());
        let (processes, memory_mib) = (2, None);
        Series { contender, processes, bytes, outstanding, median_mops, p50_ns, p99_ns, p999_ns, memory_mib, samples }
    }

    #[test]
    fn targets_are_compared_at_the_best_of_either_side() {
        let mut series: Vec<Series> = exchange::SIZES.map(|bytes| at("shm", bytes, 64, 1280.0 / bytes as f64)).to_vec();
        series.extend([at("shm", 32, 1, 2.0), at("threads", 32, 64, 50.0)]);
        series[2].median_mops = 5.0;
        // Nothing is said of steps across sizes that are not there.
        series.extend([at("tcp", 8, 1, 4.0), at("tcp", 65_536, 1, 1.0)]);
        let verdicts = verdicts(&series);
        let reached = |what: &str| verdicts.iter().find(|verdict| verdict.target.contains(what)).unwrap().reached;
        assert_eq!(reached("shm over threads"), Some(0.8));
        assert_eq!(reached("million a second"), Some(40.0));
        assert_eq!(reached("shm: the worst step"), Some(0.5));
        assert_eq!((reached("tcp over tonic"), reached("tcp: the worst step")), (None, None));
    }
}
