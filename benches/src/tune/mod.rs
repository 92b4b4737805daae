//! `tune`: a tuned pool beside each static setting of one, and how long a trustee serves nobody while it moves.
//!
//! Settings are the number of workers that serve, whether these only serve or are clients too, and how long workers
//! poll. The tuned pool may gather all trustees at some workers, whose own fibers then reach them at little cost: a
//! static pool with all values at some workers is the like of that. A run ends by the clock and includes the time in
//! which a tuned pool makes its trials, so it takes seconds. The best setting differs from machine to machine and from
//! load to load: the target is to come close to it unasked. The loads: `loads.rs`.

mod loads;

use self::loads::Load;
use crate::busy::conditions::Condition;
use crate::busy::strangers::Strangers;
use crate::contenders::{Mode, MutexCounter, shared};
use crate::options::{COMPACT_FROM_OBJECTS, FIBERS};
use crate::prelude::*;
use crate::report::{Field, Sample, Series, empty_histogram};
use trust::Threadpool;
use trust::link::{self, TraceKind};

/// Options of `tune`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(mut_arg("millis", |millis| millis.default_value("2500")))]
pub struct Tune {
    /// Workers, clients and trustees together.
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Only these loads.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub loads: Vec<Load>,
    /// Counters of `fetch-add`; a table each.
    #[arg(long, value_delimiter = ',', default_value = "1,16,1000000")]
    pub objects: Vec<usize>,
    /// Options of runs by time.
    #[command(flatten)]
    #[serde(flatten)]
    pub timed: Timed,
}

const TUNED: &str = "tuned";
const MUTEX: &str = "std-mutex";
/// Objects of a smoke run, at most.
const SMOKE_OBJECTS: usize = 1000;

struct Setting {
    name: String,
    mode: Mode,
    dedicated: usize,
    spin: Option<Duration>,
}

/// All static settings for so many workers: those that serve double from setting to setting, and only serve or are
/// clients too.
fn settings(threads: usize) -> Vec<Setting> {
    let serving = std::iter::successors(Some(1), |serving| Some(2 * serving)).take_while(|serving| *serving < threads);
    let of_number = |dedicated| [(Mode::Dedicated, dedicated), (Mode::Gathered, dedicated)];
    let mut settings = Vec::new();
    for (mode, dedicated) in std::iter::once((Mode::Shared, 0)).chain(serving.flat_map(of_number)) {
        for (spin, words) in [(None, "polling"), (Some(Duration::ZERO), "no polling")] {
            let name = match mode {
                Mode::Gathered => format!("all at {dedicated}, {words}"),
                _ => format!("{dedicated} dedicated, {words}"),
            };
            settings.push(Setting { name, mode, dedicated, spin });
        }
    }
    settings
}

fn tuned() -> Setting {
    Setting { name: TUNED.to_owned(), mode: Mode::Tuned, dedicated: 0, spin: None }
}

/// A setting on a load, or a lock.
struct One {
    name: String,
    kind: Kind,
    contender: Contender,
    workload: Workload,
}

pub fn command(mut options: Tune) -> Result<()> {
    options.timed.prepare(60)?;
    let Tune { threads, loads, timed, .. } = &mut options;
    ensure!(*threads > 1, "--threads {threads}: a tuned pool has two workers at least");
    if loads.is_empty() {
        loads.extend(Load::value_variants());
    }
    let bench = Bench::begin("tune", &mut timed.comparison)?;
    let (mut all, mut targets, mut measured) = (Vec::new(), Vec::new(), json!({}));
    for &load in &options.loads {
        if load == Load::Pauses {
            let pauses = pauses(Duration::from_millis(options.timed.millis))?;
            let Quantiles { timed, p50_ns, p99_ns, max_ns, .. } = pauses;
            table(
                "pause by a move, us",
                &["", "moves", "p50", "p99", "max"],
                [row!["idle pool", timed, p50_ns / 1e3, p99_ns / 1e3, max_ns / 1e3]],
            );
            targets.push(at_most("pause by a move, p99, us", 100.0, Some(p99_ns / 1e3)));
            measured["pauses"] = json!(pauses);
            continue;
        }
        let of_load = [load.objects()];
        for &objects in if load == Load::FetchAdd { &options.objects[..] } else { &of_load } {
            let (series, target) = compared(&bench, &options, load, objects)?;
            targets.push(target);
            all.extend(series);
        }
    }
    measured["series"] = json!(all);
    bench.conclude(&options, measured, &targets)
}

/// Measures a load, and judges it.
fn compared(bench: &Bench, options: &Tune, load: Load, objects: usize) -> Result<(Vec<Series>, Verdict)> {
    let objects = if options.timed.comparison.smoke { objects.min(SMOKE_OBJECTS) } else { objects };
    let group = match load {
        Load::FetchAdd => format!("{objects} objects"),
        _ => name_of(load),
    };
    let series = sweep(bench, options, load, objects, &group)?;
    let field = Field::of(&series, &group);
    let best = field.best(|one| one.contender != TUNED && one.contender != MUTEX);
    let (lock, tuned) = (field.get(MUTEX), field.get(TUNED));
    let rows = field.0.iter().map(|Series { contender, median_mops, min_mops, max_mops, .. }| {
        row![contender, median_mops, min_mops, max_mops, best.map(|best| median_mops / best.median_mops)]
    });
    table(&format!("Mops/s, {group}"), &["", "median", "min", "max", "/best static"], rows);
    let over = |other: Option<&Series>| ratio(tuned.map(|tuned| tuned.median_mops), other.map(|one| one.median_mops));
    let verdict = match load {
        Load::Hog => at_least(format!("tuned over a std Mutex, {group}"), 0.8, over(lock)),
        Load::Phases => at_least(format!("tuned over the best static setting, {group}"), 1.1, over(best)),
        _ => at_least(format!("tuned over the best static setting, {group}"), 0.95, over(best)),
    };
    Ok((series, verdict))
}

/// All settings on a load, interleaved.
fn sweep(bench: &Bench, options: &Tune, load: Load, objects: usize, group: &str) -> Result<Vec<Series>> {
    let picks = load.picks(objects, options.threads);
    let timed = crate::contender::Timed { lasts: Duration::from_millis(options.timed.millis), bursts: None };
    let workload = Workload {
        timed: Some(timed),
        fibers: FIBERS,
        padded: objects < COMPACT_FROM_OBJECTS,
        ..Workload::of(options.threads, objects, picks.clone())
    };
    let of_setting = |setting: Setting| One {
        contender: load.contender(setting.mode, &picks),
        kind: Kind::Trust,
        workload: Workload { dedicated: setting.dedicated, spin: setting.spin, ..workload.clone() },
        name: setting.name,
    };
    let mut all: Vec<One> = settings(options.threads).into_iter().chain([tuned()]).map(of_setting).collect();
    if load == Load::Hog {
        let (contender, workload) = (shared::<MutexCounter>(), workload.clone());
        all.push(One { name: MUTEX.to_owned(), kind: Kind::Lock, contender, workload });
    }
    let samples = bench.rounds(
        &all,
        |one| format!("{group}, {}", one.name),
        |one, round| {
            let condition = if load == Load::Hog { Condition::HogPinned } else { Condition::Quiet };
            let _strangers = Strangers::start(condition, round)?;
            let run = one.contender.run(&one.workload)?;
            run.verify(run.ops)?;
            let mops = if load == Load::Phases { run.rate_hz / 1e6 } else { run.mops(run.ops) };
            Ok(Sample { round, mops })
        },
    )?;
    for one in &all {
        one.contender.finish().with_context(|| format!("{group}, {} went wrong", one.name))?;
    }
    let series = |(One { name, kind, .. }, samples): (One, Vec<Sample>)| {
        let mops = || samples.iter().map(|sample| sample.mops);
        let ((min_mops, max_mops), median_mops) = (spread(mops()), median(mops()));
        Series {
            group: group.to_owned(),
            contender: name,
            kind,
            threads: options.threads,
            objects,
            median_mops,
            min_mops,
            max_mops,
            samples,
            ..Series::default()
        }
    };
    Ok(all.into_iter().zip(samples).map(series).collect())
}

/// Traces that are made before a pool that moves no trustee within one is given up: on a busy machine a thread may wait
/// for a core as long as a short trace lasts.
const TRACES_MAX: usize = 100;

/// Moves the trustee of a pool that is idle otherwise to and fro for so long: the times from the end of its last turn
/// at one worker to the next worker's taking over.
fn pauses(lasts: Duration) -> Result<Quantiles> {
    let pool = Threadpool::builder().workers(2).trustees(1).build();
    let counter = pool.entrust(0u64);
    let mut histogram = empty_histogram();
    let mut asked = 0;
    for _ in 0..TRACES_MAX {
        let trace = thread::scope(|scope| -> Result<_> {
            let trace = scope.spawn(|| link::trace(pool.trustees(), lasts));
            while !trace.is_finished() {
                let to = 1 - pool.tuning().trustees[0].worker;
                let move_to = link::ask_to_move(&pool, 0, to);
                while move_to.outcome().is_none() {
                    thread::yield_now();
                }
                ensure!(move_to.outcome() == Some(Ok(())), "it does not move: {:?}", move_to.outcome());
                asked += 1;
                counter.apply(|counter| *counter += 1);
            }
            Ok(trace.join().ok().flatten())
        })?;
        let trace = trace.context("another trace is made")?;
        for event in trace.iter().flat_map(|trace| &trace.events).filter(|event| event.kind == TraceKind::Move) {
            histogram.saturating_record(event.ns);
        }
        if histogram.len() > 1 {
            break;
        }
    }
    ensure!(counter.apply(|counter| *counter) == asked, "a request was lost");
    ensure!(!histogram.is_empty() && histogram.len() <= asked, "{} moves of {asked}", histogram.len());
    Ok(Quantiles::of(&histogram))
}
