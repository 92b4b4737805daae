//! Names of other crates that most files of this program use. Files whose names are in the prelude have these alone.

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
