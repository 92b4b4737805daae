//! Tools that watch memory while the tests of `trust` run: AddressSanitizer and miri.
//!
//! Here: whether each works on this machine, and its command. Not here: how to install them (`tools`).
//!
//! Invariant: a tool counts as working only after it caught a mistake that was planted for it.

use crate::command::Context;
use crate::left_out;
use crate::tier::Verdict;
use anyhow::Context as _;
use std::fs;
use std::path::Path;

/// The target named outright, so that build scripts and procedural macros stay without the sanitizer.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Tests of durable memory: lines, rooms, transactions that are undone, persistent types. Not the tests with random
/// input, nor files and threads.
const MIRI_DURABLE_TESTS: [&str; 9] = [
    "memory::",
    "transactions::trap",
    "transactions::an_undone_transaction",
    "types::boxes",
    "types::count",
    "types::a_volatile_pointer",
    "types::cells",
    "types::only_what_is_changed",
    "btree::trap",
];

/// The tests that miri can run: no stack switches, no threads in numbers, no system calls.
const MIRI_TESTS: [&str; 4] = ["slot", "request", "remote::frame", "remote::fault"];

/// Tests of `trust` that cannot hold under AddressSanitizer, and why; they are named and counted as skipped.
const NOT_UNDER_ASAN: [(&str, &str); 6] = [
    ("guard_is_protected_where_markers_are_refused", "the sanitizer turns mlockall off"),
    ("stress_memory_is_bounded", "the sanitizer keeps freed memory, which is what this measures"),
    ("memory_of_a_connection_is_bounded", "the sanitizer keeps freed memory, which is what this measures"),
    ("closures_that_hold_references_do_not_compile", "it runs the compiler, not `trust`"),
    ("without_mappings_the_error_names_the_setting", "the sanitizer itself dies without mappings"),
    ("a_value_comes_where_there_is_no_memory_for_a_fiber", "the sanitizer itself dies without memory"),
];

/// Settings that leave to `trust` its own: faults and the signal stack (it reports the overflow of a fiber's stack),
/// and no leak check, which knows the stacks of threads alone and would count as lost all that only a fiber's own stack
/// holds.
const ASAN_OPTIONS: &str = "detect_leaks=0:handle_segv=0:handle_sigbus=0:use_sigaltstack=0";

/// A read of freed memory; with the argument `sound` it leaves that out.
const PLANTED: &str = r#"fn main() {
    let boxed = Box::new(7u8);
    let pointer: *const u8 = &*boxed;
    drop(boxed);
    if std::env::args().nth(1).as_deref() != Some("sound") {
        println!("{}", unsafe { std::hint::black_box(pointer).read() });
    }
}
"#;

/// AddressSanitizer over the unit and integration tests of `trust`, or their build alone.
pub fn asan(context: &Context, no_run: bool) -> anyhow::Result<Verdict> {
    let folder = context.target.join("asan");
    if let Some(why) = asan_does_not_work(context, &folder)? {
        return Ok(Verdict::skipped(why));
    }
    let options = std::env::var("ASAN_OPTIONS").unwrap_or_else(|_| ASAN_OPTIONS.to_owned());
    let tests = context
        .cargo(&["test", "--no-fail-fast", "--package", "gossamer-trust", "--lib", "--tests"])
        .args(&["--target", TARGET, "--target-dir", &folder.to_string_lossy()])
        .rustflag("-Zsanitizer=address")
        .env("RUSTC_BOOTSTRAP", "1")
        .env("ASAN_OPTIONS", options);
    if no_run {
        return tests.build_only();
    }
    left_out::tests(context, tests, &["trust"], &NOT_UNDER_ASAN)
}

/// Why AddressSanitizer cannot be used here, if so: it has to build a program, let it run when it is
/// sound and stop it when it is not.
fn asan_does_not_work(context: &Context, folder: &Path) -> anyhow::Result<Option<String>> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let (source, program) = (folder.join("planted.rs"), folder.join("planted"));
    fs::write(&source, PLANTED)?;
    let built = context
        .command("rustc", &["-Zsanitizer=address", "--target", TARGET, "-o"])
        .args(&[&program.to_string_lossy(), &source.to_string_lossy()])
        .env("RUSTC_BOOTSTRAP", "1")
        .capture()?;
    if !built.success {
        return Ok(Some(format!("rustc cannot build with it: {}", built.first_error())));
    }
    let program = program.to_string_lossy();
    let sound = context.command(&program, &["sound"]).capture()?;
    if !sound.success {
        return Ok(Some(format!("a sound program dies under it: {}", sound.first_error())));
    }
    let caught = context.command(&program, &[]).capture()?;
    Ok(if caught.stderr.contains("heap-use-after-free") {
        None
    } else {
        Some(format!("it missed a planted use after free ({})", caught.status))
    })
}

/// Miri over the parts of `trust`, of durable memory and of the heap that it can run.
pub fn miri(context: &Context) -> anyhow::Result<Verdict> {
    let Some(toolchain) = toolchain_with_miri(context)? else {
        return Ok(Verdict::skipped(
            "no installed toolchain has miri: `rustup toolchain install nightly`, `cargo dev install-tools`",
        ));
    };
    let folder = context.target.join("miri");
    let prepared = context.command("rustup", &["run", &toolchain, "cargo", "miri", "setup"]).capture_aloud()?;
    if !prepared.success {
        let why = prepared.first_error();
        return Ok(Verdict::skipped(format!("miri of {toolchain} cannot be set up: {why}")));
    }
    let flags = std::env::var("MIRIFLAGS").unwrap_or_else(|_| "-Zmiri-disable-isolation".to_owned());
    let tests = |package: &str, names: &[&str]| {
        context
            .command("rustup", &["run", &toolchain, "cargo", "miri", "test", "--no-fail-fast"])
            .args(&["--package", package, "--lib", "--target-dir", &folder.to_string_lossy(), "--"])
            .env("MIRIFLAGS", &flags)
            .tests_named(names)
    };
    let durable = tests("gossamer-durable", &MIRI_DURABLE_TESTS)?;
    Ok(tests("gossamer-trust", &MIRI_TESTS)?.and(durable).and(tests("heap-model", &["page", "shelf", "name"])?))
}

/// The first installed toolchain with a working miri.
fn toolchain_with_miri(context: &Context) -> anyhow::Result<Option<String>> {
    let Ok(listed) = context.command("rustup", &["toolchain", "list", "--quiet"]).capture() else {
        return Ok(None);
    };
    for toolchain in crate::tools::toolchains(&listed.stdout) {
        let probe = ["run", &toolchain, "cargo", "miri", "--version"];
        if context.command("rustup", &probe).capture()?.success {
            return Ok(Some(toolchain));
        }
    }
    Ok(None)
}
