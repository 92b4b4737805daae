//! The behavioural suite (`gossamer_tests::suite`) over every kind of rack: each behaviour on each rack is a test of its own,
//! `shm3::apply_then_keeps_order`. One program runs all behaviours of a rack, one after the other; it is started when the
//! first of its tests is. A behaviour that hangs is named, and fails alone with those behind it.
//!
//! `SUITE_WAYS` chooses racks by name, `SUITE_SEED` the random programs of `oracle`; with `SUITE_EFFORT=small`, for emulated
//! processors and on the racks that are much like others (`program::SMALL`), what is only repeated is repeated a tenth as often;
//! `SUITE_EFFORT=full` repeats it on all. `test-suite NAME`, alone or under the launcher, runs one behaviour.

mod program;

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use gossamer_tests::suite::ALL;
use libtest_mimic::{Arguments, Trial};

use program::{Deployment, Report};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for deployment in Deployment::chosen() {
        let report: Arc<OnceLock<Report>> = Arc::default();
        for behaviour in ALL {
            let report = Arc::clone(&report);
            let test = move || report.get_or_init(|| Report::of(deployment)).verdict(behaviour.name);
            trials.push(Trial::test(format!("{}::{}", deployment.name, behaviour.name), test));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
