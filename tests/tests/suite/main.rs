//! The behavioural suite (`gossamer_tests::suite`) over every kind of rack: each behaviour on each rack is a test of
//! its own, `shm3::apply_then_keeps_order`. One program runs all behaviours of a rack, one after the other; it is
//! started when the first of its tests is. A behaviour that hangs, or that ends the program, fails alone: a new program
//! runs those behind it. `shm3::the_program_ends` is about the last program's exit status.
//!
//! A trial of the harness has behaviours that are meant to hang, panic and abort (`harness::…`).
//!
//! `SUITE_WAYS` chooses racks by name, `SUITE_SEED` the random programs of `oracle`; with `SUITE_EFFORT=small`, for
//! emulated processors and on some racks (`program::SMALL`), repetitions go down to a tenth;
//! `SUITE_EFFORT=full` keeps them on all; `SUITE_WITHOUT=heap_,region_` leaves out behaviours by the beginnings of
//! their names. On some racks (`program::SAMPLED`) a sample of `SUITE_SAMPLE` behaviours runs, or `all`; of which,
//! `SUITE_SEED` decides. Tests that are named on the command line run on all racks. `test-suite NAME`, alone or under
//! the launcher, runs one behaviour.

mod losses;
mod program;
mod report;
mod sample;

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gossamer_tests::suite::{ALL, ONLY_VARIABLE, PLANTED, PLANTED_VARIABLE};
use libtest_mimic::{Arguments, Failed, Trial};

use program::Deployment;
use report::Report;

/// Time limit of a planted behaviour, in time of an idle machine: those that end take none.
const PLANTED_TIME_LIMIT: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let size = if arguments.filter.is_some() { usize::MAX } else { sample::size("SUITE_SAMPLE", SAMPLE) };
    let behaviours = |rack: Deployment| behaviours_on(rack, if rack.is_sampled() { size } else { usize::MAX });
    let mut trials: Vec<Trial> = Deployment::chosen().into_iter().flat_map(behaviours).collect();
    trials.extend(losses::trials(Deployment::lossy()));
    if std::env::var_os("SUITE_WAYS").is_none() {
        trials.extend(Deployment::tried().map(|deployment| {
            let name = format!("harness::what_hangs_or_dies_fails_alone_on_{}", deployment.name);
            Trial::test(name, move || what_hangs_or_dies_fails_alone(deployment))
        }));
        trials.push(Trial::test("harness::losses_are_judged", losses::are_judged));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Behaviours of a sample, if `SUITE_SAMPLE` does not say how many.
const SAMPLE: usize = 50;

/// Question of a test to the report.
type Check = Box<dyn Fn(&Report) -> Result<(), Failed> + Send>;

/// Returns so many behaviours on one kind of rack.
fn behaviours_on(deployment: Deployment, size: usize) -> Vec<Trial> {
    let names: Vec<&str> = ALL.iter().filter(|it| !it.is_left_out()).map(|it| it.name).collect();
    let chosen = sample::of(names, sample::seed(), size);
    let only: &'static str = chosen.join(",").leak();
    let report: Arc<OnceLock<Arc<Report>>> = Arc::default();
    let trial = |name: &str, check: Check| {
        let report = Arc::clone(&report);
        let begin = move || {
            let start = move |after: Option<&str>| deployment.start(Some((ONLY_VARIABLE, only)), after);
            Report::begin(start, Deployment::time_limit())
        };
        Trial::test(format!("{}::{name}", deployment.name), move || check(report.get_or_init(begin)))
    };
    let behaviours = ALL
        .iter()
        .filter(|it| it.is_left_out() || chosen.contains(&it.name))
        .map(|it| trial(it.name, Box::new(|report| report.verdict(it.name))).with_ignored_flag(it.is_left_out()));
    let mut trials: Vec<Trial> = behaviours.collect();
    trials.push(trial("the_program_ends", Box::new(Report::end)));
    trials
}

/// The planted behaviours that do not hold, and the words of each failure; all others hold.
const FAILURES: [(&str, &str); 4] = [
    ("waits_for_ever", "it hung for "),
    ("never_lets_its_worker_go", "it hung for "),
    ("panics", "as planted"),
    ("ends_the_program", "the program ended ("),
];

fn what_hangs_or_dies_fails_alone(deployment: Deployment) -> Result<(), Failed> {
    let start = move |after: Option<&str>| deployment.start(Some((PLANTED_VARIABLE, "1")), after);
    let report = Report::begin(start, PLANTED_TIME_LIMIT);
    for behaviour in PLANTED {
        let verdict = report.verdict(behaviour.name);
        let told = verdict.err().map(|failed| failed.message().unwrap_or_default().to_owned());
        let expected = FAILURES.iter().find(|(name, _)| *name == behaviour.name).map(|(_, said)| *said);
        let is_right = match (&told, expected) {
            (Some(told), Some(said)) => told.starts_with(said),
            (told, said) => told.is_none() && said.is_none(),
        };
        if !is_right {
            return Err(format!("{}: {told:?} instead of {expected:?}", behaviour.name).into());
        }
    }
    report.end()
}
