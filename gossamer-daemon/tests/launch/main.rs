//! Tests of `gossamer-launch` with real processes. This binary is also the program that it launches: called with
//! `machine ROLE …` it plays that role (`machine.rs`), otherwise it runs the tests. `rig.rs` starts and observes.
//!
//! Nothing waits for a fixed time, but for output, ends and conditions, up to a deadline. Processes are killed by their
//! own ids only.

mod any_host;
mod any_program;
mod core_dumps;
mod death;
mod descriptors;
mod dispositions;
mod drained;
mod endpoints;
mod help;
mod hosts;
mod kept;
mod keys;
mod links;
mod losses;
mod lost_values;
mod lost_waits;
mod machine;
mod memory;
mod normal;
mod orphans;
mod queue;
mod rack;
mod rack_ends;
mod rack_losses;
mod rig;
mod root;
mod stdin;
mod streams;
mod terminal;
mod troubles;
mod unwritten;
mod upgrades;
mod watched;

use libtest_mimic::{Arguments, Trial};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "machine") {
        machine::play(&args[1..]);
        return;
    }
    let local = [
        normal::TESTS,
        endpoints::TESTS,
        death::TESTS,
        losses::TESTS,
        lost_values::TESTS,
        lost_waits::TESTS,
        streams::TESTS,
        stdin::TESTS,
        terminal::TESTS,
        help::TESTS,
    ];
    let both = [
        unwritten::TESTS,
        any_program::TESTS,
        orphans::TESTS,
        descriptors::TESTS,
        dispositions::TESTS,
        core_dumps::TESTS,
    ];
    let racks = [
        rack::TESTS,
        rack_ends::TESTS,
        rack_losses::TESTS,
        troubles::TESTS,
        queue::TESTS,
        kept::TESTS,
        watched::TESTS,
        keys::TESTS,
        any_host::TESTS,
        memory::TESTS,
        drained::TESTS,
        upgrades::TESTS,
    ];
    let groups = local.into_iter().chain(both).chain(racks);
    let trial = |(name, test): &(&'static str, fn())| {
        let test = *test;
        Trial::test(*name, move || {
            test();
            Ok(())
        })
    };
    let is_possible = root::is_possible();
    let of_root = root::TESTS.iter().map(|test| trial(test).with_ignored_flag(!is_possible).with_kind("root"));
    let trials = groups.flatten().map(trial).chain(of_root).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Tests of a module, by their names.
#[macro_export]
macro_rules! tests {
    ($($name:ident),+ $(,)?) => {
        pub const TESTS: &[(&str, fn())] = &[$((concat!(module_path!(), "::", stringify!($name)), $name)),+];
    };
}
