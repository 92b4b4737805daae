//! Tells the program which compiler built it, so that every result names its toolchain.

use std::{env, process::Command};

fn main() {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc)
        .arg("--version")
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=GOSSAMER_BENCH_RUSTC={}", version.trim());
    println!("cargo::rerun-if-changed=build.rs");
}
