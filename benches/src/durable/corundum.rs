//! Corundum itself: a program in a workspace of its own (`corundum/`), which a compiler of its time has to make:
//! Debian's rustc 1.63. Today's cargo fetches its dependencies, for that toolchain's way to crates.io no longer exists.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::basics::Basic;
use crate::echo::programs::{finish, own};
use crate::machine::program;

const VERSION: &str = "rustc 1.63.";
/// The folder with that compiler and its cargo.
const TOOLCHAIN: &str = "GOSSAMER_CORUNDUM_TOOLCHAIN";
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The program.
pub struct Corundum(PathBuf);

/// Returns the first line of the error if the command failed.
fn done(command: &mut Command) -> std::result::Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(text.lines().find(|line| line.trim_start().starts_with("error")).unwrap_or("it did not say why").to_owned())
}

impl Corundum {
    /// Makes it; or says why it cannot be had here.
    ///
    /// # Errors
    /// There is no folder to build in.
    pub fn prepare() -> Result<std::result::Result<Corundum, String>> {
        let tools = PathBuf::from(std::env::var_os(TOOLCHAIN).unwrap_or_else(|| "/usr/bin".into()));
        let version = Command::new(tools.join("rustc")).arg("--version").stdin(Stdio::null()).output();
        if !version.is_ok_and(|version| version.stdout.starts_with(VERSION.as_bytes())) {
            let why = format!(
                "no {VERSION}* in {} (on Debian 12: apt-get install rustc cargo, or {TOOLCHAIN})",
                tools.display()
            );
            return Ok(Err(why));
        }
        let Some(cargo) = program("cargo") else { return Ok(Err("there is no `cargo` to fetch it with".to_owned())) };
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("corundum/Cargo.toml");
        let target = own()?.parent().and_then(Path::parent).context("where builds go")?.join("corundum");
        Ok(Corundum::build(&tools, &cargo, &manifest, &target).map_err(|why| format!("it does not build: {why}")))
    }

    fn build(tools: &Path, cargo: &Path, manifest: &Path, target: &Path) -> std::result::Result<Corundum, String> {
        let packages = target.join("packages");
        let mut fetch = Command::new(cargo);
        fetch.args(["vendor", "--locked", "--manifest-path"]).arg(manifest).arg(&packages);
        done(&mut fetch)?;
        let mut build = Command::new(tools.join("cargo"));
        build.args(["build", "--release", "--locked", "--offline", "--manifest-path"]).arg(manifest);
        build.arg("--target-dir").arg(target);
        build.args(["--config", "source.crates-io.replace-with='fetched'", "--config"]);
        build.arg(
            [OsString::from("source.fetched.directory='"), packages.into(), "'".into()]
                .into_iter()
                .collect::<OsString>(),
        );
        build.env("RUSTC", tools.join("rustc")).env("RUSTC_BOOTSTRAP", "1").env_remove("RUSTUP_TOOLCHAIN");
        done(&mut build)?;
        Ok(Corundum(target.join("release/basics")))
    }

    /// Adds its times, in a file of this folder, to ours.
    ///
    /// # Errors
    /// Of a run that failed, or said something else.
    pub fn add_to(&self, all: &mut [Basic], folder: &Path) -> Result<()> {
        let mut asked = Command::new(&self.0);
        asked.arg(folder.join("corundum")).stdin(Stdio::null()).stdout(Stdio::piped());
        let said =
            finish(asked.spawn().with_context(|| format!("{} cannot be started", self.0.display()))?, TIME_LIMIT)?;
        let times: Vec<f64> = serde_json::from_str(&said).with_context(|| format!("it said {said:?}"))?;
        ensure!(times.len() == all.len(), "it said {said:?} for {} operations", all.len());
        all.iter_mut().zip(times).for_each(|(basic, ns)| basic.corundum_ns = Some(ns));
        Ok(())
    }
}
