//! `tune`: a tuned pool beside each static setting of one, and how long a trustee serves nobody while it moves.
//!
//! Settings are the number of workers that only serve, and how long workers poll; all fetch and add by `apply` from
//! many fibers. A run ends by the clock and includes the time in which a tuned pool makes its trials, so it takes
//! seconds. The best setting differs from machine to machine and from load to load: the target is to come close to it
//! unasked.

use crate::contenders::{Mode, apply};
use crate::options::FIBERS;
use crate::prelude::*;
use crate::report::{Field, Sample, Series, empty_histogram};
use trust::Threadpool;
use trust::link::{self, TraceKind};

/// Options of `tune`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(mut_arg("millis", |millis| millis.default_value("4000")))]
pub struct Tune {
    /// Workers, clients and trustees together.
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Counters; a table each.
    #[arg(long, value_delimiter = ',', default_value = "1,16,1000000")]
    pub objects: Vec<usize>,
    /// Options of runs by time.
    #[command(flatten)]
    #[serde(flatten)]
    pub timed: Timed,
}

const TUNED: &str = "tuned";
/// Counters of a smoke run, at most.
const SMOKE_OBJECTS: usize = 1000;

struct Setting {
    name: String,
    mode: Mode,
    dedicated: usize,
    spin: Option<Duration>,
}

/// All settings for so many workers: those that only serve double from setting to setting.
fn settings(threads: usize) -> Vec<Setting> {
    let serving = std::iter::successors(Some(1), |serving| Some(2 * serving)).take_while(|serving| *serving < threads);
    let mut settings = Vec::new();
    for dedicated in std::iter::once(0).chain(serving) {
        for (spin, words) in [(None, "polling"), (Some(Duration::ZERO), "no polling")] {
            let mode = if dedicated == 0 { Mode::Shared } else { Mode::Dedicated };
            settings.push(Setting { name: format!("{dedicated} dedicated, {words}"), mode, dedicated, spin });
        }
    }
    settings.push(Setting { name: TUNED.to_owned(), mode: Mode::Tuned, dedicated: 0, spin: None });
    settings
}

pub fn command(mut options: Tune) -> Result<()> {
    options.timed.prepare(60)?;
    let Tune { threads, timed, .. } = &mut options;
    ensure!(*threads > 1, "--threads {threads}: a tuned pool has two workers at least");
    let bench = Bench::begin("tune", &mut timed.comparison)?;
    let (mut all, mut targets) = (Vec::new(), Vec::new());
    for &objects in &options.objects {
        let objects = if options.timed.comparison.smoke { objects.min(SMOKE_OBJECTS) } else { objects };
        let group = format!("{objects} objects");
        let series = sweep(&bench, &options, objects, &group)?;
        let field = Field::of(&series, &group);
        let best = field.best(|one| one.contender != TUNED);
        let rows = field.0.iter().map(|Series { contender, median_mops, min_mops, max_mops, .. }| {
            row![contender, median_mops, min_mops, max_mops, best.map(|best| median_mops / best.median_mops)]
        });
        table(&format!("fetch-add, {group}"), &["Mops/s", "median", "min", "max", "/best static"], rows);
        let reached = ratio(field.get(TUNED).map(|tuned| tuned.median_mops), best.map(|best| best.median_mops));
        targets.push(at_least(format!("tuned over the best static setting, {group}"), 0.95, reached));
        all.extend(series);
    }
    let pauses = pauses(Duration::from_millis(options.timed.millis))?;
    let Quantiles { timed, p50_ns, p99_ns, max_ns, .. } = pauses;
    table(
        "pause by a move, us",
        &["", "moves", "p50", "p99", "max"],
        [row!["idle pool", timed, p50_ns / 1e3, p99_ns / 1e3, max_ns / 1e3]],
    );
    targets.push(at_most("pause by a move, p99, us", 100.0, Some(p99_ns / 1e3)));
    bench.conclude(&options, json!({"series": all, "pauses": pauses}), &targets)
}

/// All settings on so many counters, interleaved.
fn sweep(bench: &Bench, options: &Tune, objects: usize, group: &str) -> Result<Vec<Series>> {
    let settings = settings(options.threads);
    let picks = Picks::new(Dist::Uniform, objects, options.threads, 1);
    let lasts = Duration::from_millis(options.timed.millis);
    let samples = bench.rounds(
        &settings,
        |setting| format!("{group}, {}", setting.name),
        |setting, round| {
            let workload = Workload {
                dedicated: setting.dedicated,
                timed: Some(crate::contender::Timed { lasts, bursts: None }),
                fibers: FIBERS,
                spin: setting.spin,
                ..Workload::of(options.threads, objects, picks.clone())
            };
            let run = apply(setting.mode).run(&workload)?;
            run.verify(run.ops)?;
            Ok(Sample { round, mops: run.mops(run.ops) })
        },
    )?;
    let one = |(setting, samples): (Setting, Vec<Sample>)| {
        let mops = || samples.iter().map(|sample| sample.mops);
        let ((min_mops, max_mops), median_mops) = (spread(mops()), median(mops()));
        Series {
            group: group.to_owned(),
            contender: setting.name,
            kind: Kind::Trust,
            threads: options.threads,
            objects,
            median_mops,
            min_mops,
            max_mops,
            samples,
            ..Series::default()
        }
    };
    Ok(settings.into_iter().zip(samples).map(one).collect())
}

/// Moves the trustee of a pool that is idle otherwise to and fro for so long: the times from the end of its last turn
/// at one worker to the next worker's taking over.
fn pauses(lasts: Duration) -> Result<Quantiles> {
    let pool = Threadpool::builder().workers(2).trustees(1).build();
    let counter = pool.entrust(0u64);
    let (asked, trace) = thread::scope(|scope| -> Result<_> {
        let trace = scope.spawn(|| link::trace(pool.trustees(), lasts));
        let mut asked = 0;
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
        Ok((asked, trace.join().ok().flatten()))
    })?;
    let trace = trace.context("another trace is made")?;
    ensure!(counter.apply(|counter| *counter) == asked, "a request was lost");
    let mut histogram = empty_histogram();
    for event in trace.iter().flat_map(|trace| &trace.events).filter(|event| event.kind == TraceKind::Move) {
        histogram.saturating_record(event.ns);
    }
    ensure!(!histogram.is_empty() && histogram.len() <= asked, "{} moves of {asked}", histogram.len());
    Ok(Quantiles::of(&histogram))
}
