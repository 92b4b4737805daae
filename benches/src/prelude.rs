//! Names that most files of this program use.

pub use std::cell::{Cell, RefCell};
pub use std::collections::BTreeMap;
pub use std::path::{Path, PathBuf};
pub use std::rc::Rc;
pub use std::sync::Arc;
pub use std::thread;
pub use std::time::{Duration, Instant};

pub use anyhow::{Context, Result, anyhow, bail, ensure};
pub use clap::{Args, ValueEnum};
pub use serde::{Deserialize, Serialize};
pub use serde_json::{Value, json};

pub(crate) use crate::budget::Budget;
pub(crate) use crate::contender::{ClientRun, Contender, Kind, Run, Tally, Workload, fold, fold_roles};
pub(crate) use crate::contenders::threads::together;
pub(crate) use crate::harness::{Entry, interleave};
pub(crate) use crate::machine::Machine;
pub(crate) use crate::options::{Common, Comparison, Timed, name_of};
pub(crate) use crate::pick::{Dist, MARK, Picks};
pub(crate) use crate::programs::{Found, Program, found};
pub(crate) use crate::report::{Figures, Quantiles, median, row, spread, table};
pub(crate) use crate::rounds::{Bench, Skipped, chosen, interleaved};
pub(crate) use crate::verdict::{Verdict, at_least, at_most, ratio};
