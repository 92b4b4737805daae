//! The tier that kills a program with a durable trust again and again and checks its pool.
//!
//! Here: which folders. Not here: the killing and the checks (`examples/src/bank/torture.rs`).
//!
//! Invariant: each run begins with a folder of its own, which it leaves to be looked at if it fails.

use crate::command::Context;
use crate::tier::{State, Verdict};
use std::fs;
use std::path::Path;

/// Memory as a file system, where the machine has it: syncs cost nothing there, so other moments are hit.
const MEMORY: &str = "/dev/shm";

/// Options of the torture.
#[derive(clap::Args, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Torture {
    /// 24 kills unless DURABLE_KILLS says otherwise, as `ci` does
    #[arg(long)]
    pub quick: bool,
}

/// The bank on the file system of the target folder and on tmpfs, each with half of the kills; then a quarter of them
/// on two machines, of which one is killed.
pub fn torture(context: &Context, torture: &Torture) -> anyhow::Result<Verdict> {
    let usual = if torture.quick { 24 } else { 200 };
    let kills: u32 = std::env::var("DURABLE_KILLS").ok().map_or(Ok(usual), |kills| kills.parse())?;
    let built = crate::basic::programs(context)?;
    if built.state != State::Passed {
        return Ok(built);
    }
    let (here, memory) = (context.target.join("durable"), Path::new(MEMORY).join("trust-durable"));
    let mut verdict = Verdict::passed();
    for (place, kills, machines) in
        [(&here, kills.div_ceil(2), "1"), (&memory, kills.div_ceil(2), "1"), (&here, kills.div_ceil(4), "2")]
    {
        if place.starts_with(MEMORY) && !Path::new(MEMORY).is_dir() {
            verdict = verdict.and(Verdict::skipped(format!("the half on tmpfs: no {MEMORY}")));
            continue;
        }
        verdict = verdict.and(kill(context, place, kills, machines)?);
    }
    Ok(verdict)
}

/// The bank in a folder there, on so many machines, killed so many times.
fn kill(context: &Context, place: &Path, kills: u32, machines: &str) -> anyhow::Result<Verdict> {
    let seed = std::env::var("DURABLE_SEED").unwrap_or_else(|_| "1".into());
    fs::create_dir_all(place)?;
    let folder = place.join(format!("{}-{machines}", std::process::id())).to_string_lossy().into_owned();
    let done = context
        .command(&context.target.join("debug/bank").to_string_lossy(), &[&folder])
        .args(&["--torture", &kills.to_string(), "--seed", &seed, "--machines", machines])
        .capture_aloud()?;
    print!("{}{}", done.stdout, done.stderr);
    if done.success {
        fs::remove_dir_all(&folder)?;
        return Ok(Verdict::passed());
    }
    let said = done.stderr.lines().rfind(|line| !line.trim().is_empty());
    Ok(Verdict::failed(format!("{} ({}, {folder} is kept)", said.unwrap_or_default(), done.status)))
}
