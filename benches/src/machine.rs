//! The machine of a measurement: CPU, cores, commit, toolchain; and pinning of threads to cores.
//!
//! Nothing here is on a measured path.

use crate::basics::*;
use std::process::Command;
use std::{env, fmt, fs};

/// Machine, commit and toolchain of a run: printed and written with every result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    /// `git rev-parse HEAD`, with `-dirty` where files differ from it; `unknown` outside a checkout.
    pub commit: String,
    /// `rustc --version` of the compiler that built this program.
    pub rustc: String,
    /// `release` or `debug`: figures of a debug build mean nothing.
    pub profile: String,
    /// Load average over one minute when the run began: the load of other programs.
    pub load_average: String,
}

impl Machine {
    pub fn here() -> Self {
        Self {
            cpu: cpu_model(),
            cores: cores().len(),
            commit: commit(),
            rustc: env!("GOSSAMER_BENCH_RUSTC").to_owned(),
            profile: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            load_average: fs::read_to_string("/proc/loadavg")
                .ok()
                .and_then(|text| text.split_whitespace().next().map(str::to_owned))
                .unwrap_or_else(|| "unknown".to_owned()),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} cores, load {} | commit {} | {} ({})",
            self.cpu, self.cores, self.load_average, self.commit, self.rustc, self.profile
        )
    }
}

fn cpu_model() -> String {
    fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            text.lines()
                .find_map(|line| line.strip_prefix("model name"))
                .map(|rest| rest.trim_start_matches([' ', '\t', ':']).trim().to_owned())
        })
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn commit() -> String {
    let Some(head) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    // Documents make no difference, and files of results are written into them while others are still measured.
    match git(&["status", "--porcelain", "--", ":/", ":(top,exclude)docs"]) {
        Some(changes) if changes.is_empty() => head,
        _ => format!("{head}-dirty"),
    }
}

/// The cores this thread may use; those of the process in a thread that is not pinned.
pub fn cores() -> Vec<core_affinity::CoreId> {
    core_affinity::get_core_ids().unwrap_or_default()
}

/// Pins the calling thread to the `index`-th core this process may use, where there are that many;
/// more threads than cores are left to the scheduler.
pub fn pin(index: usize) {
    if let Some(core) = cores().get(index) {
        core_affinity::set_for_current(*core);
    }
}
