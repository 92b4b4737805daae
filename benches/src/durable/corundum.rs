//! Corundum itself: a program in a workspace of its own (`corundum/`), which a compiler of its time has to make:
//! Debian's rustc 1.63. Today's cargo fetches its dependencies, for that toolchain's way to crates.io no longer exists.

use super::basics::Basic;
use crate::prelude::*;
use crate::programs::{builds, here, in_path};

const VERSION: &str = "rustc 1.63.";
/// The folder with that compiler and its cargo.
const TOOLCHAIN: &str = "GOSSAMER_CORUNDUM_TOOLCHAIN";

/// Makes the program; or says why it cannot be had here.
pub fn prepare() -> Result<Found<Program>> {
    let tools = PathBuf::from(std::env::var_os(TOOLCHAIN).unwrap_or_else(|| "/usr/bin".into()));
    let version = Program::at(tools.join("rustc")).say("--version").quiet().run();
    if !version.is_ok_and(|version| version.starts_with(VERSION)) {
        let tools = tools.display();
        return Ok(Err(format!(
            "no {VERSION}* in {tools} (on Debian 12: apt-get install rustc cargo, or {TOOLCHAIN})"
        )));
    }
    let cargo = found!(in_path("cargo", "cargo"));
    let (manifest, target) = (here("corundum/Cargo.toml"), builds()?.join("corundum"));
    let packages = target.join("packages");
    let fetch = Program::at(cargo).say("vendor --locked --manifest-path").with([&manifest, &packages]);
    found!(fetch.compiles());
    let build = Program::at(tools.join("cargo")).say("build --release --locked --offline --manifest-path");
    let build = build.with([&manifest]).say("--target-dir").with([&target]);
    let build = build.say("--config source.crates-io.replace-with='fetched' --config");
    let build = build.with([format!("source.fetched.directory='{}'", packages.display())]);
    found!(build.set("RUSTC", tools.join("rustc")).set("RUSTC_BOOTSTRAP", "1").compiles());
    Ok(Ok(Program::at(target.join("release/basics"))))
}

/// Adds its times, in a file of this folder, to ours.
pub fn add(program: &Program, all: &mut [Basic], folder: &Path) -> Result<()> {
    let times: Vec<f64> = program.clone().with([folder.join("corundum")]).told()?;
    ensure!(times.len() == all.len(), "it has {times:?} for {} operations", all.len());
    all.iter_mut().zip(times).for_each(|(basic, ns)| basic.corundum_ns = Some(ns));
    Ok(())
}
