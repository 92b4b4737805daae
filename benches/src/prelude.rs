//! Names that most files of this program use.

pub use crate::basics::*;
pub(crate) use crate::budget::Budget;
pub(crate) use crate::contender::{ClientRun, Contender, Run, Tally, Workload, fold, fold_roles};
pub(crate) use crate::contenders::threads::together;
pub(crate) use crate::harness::{Entry, interleave};
pub(crate) use crate::machine::Machine;
pub(crate) use crate::names::name_of;
pub(crate) use crate::options::{Common, Comparison, Timed};
pub(crate) use crate::pick::{Dist, MARK, Picks};
pub(crate) use crate::programs::{Found, Program, found};
pub(crate) use crate::report::{Figures, Kind, Quantiles, median, ratio, row, spread, table};
pub(crate) use crate::rounds::{Bench, Skipped, chosen, interleaved};
pub(crate) use crate::verdict::{Verdict, at_least, at_most};
