//! Generated C programs over several machines, each beside a plain run.
//!
//! Here: how many. Not here: the programs and the comparison (`gossamer/region/ffi/tests/programs/generated`).
//!
//! Invariant: the same seeds make the same programs.

use crate::command::Context;
use crate::tier::Verdict;

/// Selection of programs.
#[derive(clap::Args, Clone, PartialEq, Eq, Debug)]
pub struct Seeds {
    /// Seeds of the programs; before a release 0..1000
    #[arg(long, value_name = "A..B", default_value = "0..200")]
    seeds: String,
}

/// The programs of these seeds.
pub fn programs(context: &Context, seeds: &Seeds) -> anyhow::Result<Verdict> {
    let words = ["test", "--package", "gossamer-region-ffi", "--test", "programs", "--"];
    context.cargo(&words).env("GOSSAMER_SEEDS", &*seeds.seeds).tests_named(&["generated::"])
}
