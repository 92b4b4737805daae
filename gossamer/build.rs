//! Checks whether this compiler gives `trust` its strict `NoRef`, without which nothing may travel between machines,
//! and sets `cfg(noref_auto)` if so. It compiles the same probe as `trust/build.rs`, so both crates agree.

use std::env;
use std::io::Write;
use std::process::{Command, Stdio};

const PROBE: &str = "#![feature(auto_traits, negative_impls)]\n\
    pub auto trait Probe {}\n\
    impl<T: ?Sized> !Probe for &T {}\n";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(noref_auto)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_BOOTSTRAP");
    if accepts_auto_traits() {
        println!("cargo::rustc-cfg=noref_auto");
    }
}

/// Compiles the probe under the crate name `trust`, one of the names in `RUSTC_BOOTSTRAP=trust,…`.
fn accepts_auto_traits() -> bool {
    let (Some(rustc), Some(out)) = (env::var_os("RUSTC"), env::var_os("OUT_DIR")) else {
        return false;
    };
    let child = Command::new(rustc)
        .args(["--crate-name", "trust", "--crate-type", "lib", "--emit", "metadata"])
        .args(["--edition", "2024", "--out-dir"])
        .arg(out)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else { return false };
    let written = child.stdin.take().is_some_and(|mut pipe| pipe.write_all(PROBE.as_bytes()).is_ok());
    written && child.wait().is_ok_and(|status| status.success())
}
