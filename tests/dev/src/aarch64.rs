//! The tests on another processor: the packages built for aarch64, and run by qemu.
//!
//! Here: whether this machine can, and which tests. Not here: the kernel's list of interpreters (`aarch64.sh`).
//!
//! Invariant: the tier runs only after a program that it built, and a child process of that program, have told that
//! their processor is an aarch64; a tier that silently tested this machine's own would be SKIPPED.

use crate::command::{Command, Context};
use crate::left_out;
use crate::tier::Verdict;
use anyhow::Context as _;
use std::fs;
use std::path::Path;

/// The target.
pub const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Linker: the C compiler of Debian's package gcc-aarch64-linux-gnu.
const LINKER: (&str, &str) = ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");

/// Folder in which the emulator finds the C library.
const LIBRARIES: (&str, &str) = ("QEMU_LD_PREFIX", "/usr/aarch64-linux-gnu");

/// Words in front of a command that have programs for aarch64 run, in this order: none, where the system's own list of
/// interpreters has an emulator, and the list of a user namespace.
const FRONTS: [&[&str]; 2] =
    [&[], &["unshare", "--user", "--map-root-user", "--mount", "sh", "tests/dev/src/aarch64.sh", "qemu-aarch64"]];

/// Debian's packages for all of it.
const PACKAGES: &str = "Debian's gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user";

/// Efforts of the tests, for a slow processor, and racks of the suite: three machines with shared memory that no
/// launcher starts, because launchers adopt orphans (`PR_SET_CHILD_SUBREAPER`), and the emulator refuses that.
const SMALL: [(&str, &str); 6] = [
    ("GOSSAMER_EFFORT", "small"),
    ("GOSSAMER_FUZZ", "50"),
    ("PROPTEST_CASES", "10"),
    ("STRESS_SECONDS", "1"),
    ("SUITE_EFFORT", "small"),
    ("SUITE_WAYS", "alone,plain3"),
];

/// Behaviours of the suite that the emulator cannot run, by the beginnings of their names, and why. The suite counts
/// them as skipped.
const WITHOUT: [(&str, &str); 3] = [
    ("heap_", "a heap maps a TiB, and the emulator takes 16 bytes for each page of it"),
    ("region_", "the emulator has no userfaultfd"),
    ("array_memory_goes_with_the_last_handle", "the emulator's own memory is part of what this measures"),
];

/// Tests that cannot hold under the emulator, or are too long and have nothing to do with the processor, and why; they
/// are named and counted as skipped.
const NOT_EMULATED: [(&str, &str); 15] = [
    ("closures_that_hold_references_do_not_compile", "it runs the compiler, not `trust`"),
    ("hundred_thousand_stacks_fit_in_a_gibibyte", "without guard markers a stack takes two mappings"),
    ("without_mappings_the_error_names_the_setting", "the emulator itself dies without mappings"),
    ("without_memory_there_is_an_error_with_a_cure", "the emulator does not limit memory"),
    ("a_value_comes_where_there_is_no_memory_for_a_fiber", "the emulator does not limit memory"),
    ("stacks_count_by_what_was_touched", "the emulator refuses `mincore` where a page is inaccessible"),
    ("stress_memory_is_bounded", "the emulator's own memory is part of what this measures"),
    ("damaged_frames_are_refused_or_in_range", "a long search, in code that knows no processor"),
    ("nothing_is_believed_that_is_not_so", "a long search, in code that knows no processor"),
    ("paths_make_the_circles_of_the_whole_graph", "a long search, in code that knows no processor"),
    ("random_graphs_have_the_circles_that_a_walk_finds", "a long search, in code that knows no processor"),
    ("a_long_region_can_have_huge_pages", "the emulator does not tell which pages are huge"),
    ("a_long_share_takes_what_is_committed", "the emulator takes 4 GiB for a mapping of 1 TiB"),
    ("keys_of_others_are_refused_with_what_helps", "in the emulator's user namespace there is one user"),
    ("a_file_is_replaced_in_one_step", "in the emulator's user namespace there is one user"),
];

/// Program that tells its processor, and has a child process tell its own.
const PROBE: &str = r#"fn main() {
    println!("{}", std::env::consts::ARCH);
    if std::env::args().len() == 1 {
        let own = std::env::current_exe().unwrap();
        assert!(std::process::Command::new(own).arg("child").status().unwrap().success());
    }
}
"#;

/// The tests of `trust` and `comm`, and the suite in one process and on three machines with shared memory.
pub fn check(context: &Context) -> anyhow::Result<Verdict> {
    if cfg!(target_arch = "aarch64") {
        return Ok(Verdict::skipped("this is such a machine: the other tiers test it"));
    }
    let folder = context.target.join("aarch64");
    let front = match probe(context, &folder)? {
        Ok(front) => front,
        Err(why) => return Ok(Verdict::skipped(why)),
    };
    let folder = folder.to_string_lossy();
    let tests = |words: &[&str]| {
        let cargo = ["cargo", "test", "--no-fail-fast", "--target", TARGET, "--target-dir", &folder];
        let command = behind(context, front, &[&cargo, words].concat()).env(LINKER.0, LINKER.1);
        SMALL.iter().fold(command, |command, (name, value)| command.env(name, *value))
    };
    let core = tests(&["--package", "gossamer-trust", "--package", "gossamer-comm", "--lib", "--tests"]);
    let core = left_out::tests(context, core, &["trust", "comm"], &NOT_EMULATED)?;
    WITHOUT.iter().for_each(|(start, why)| println!("SKIPPED: {start}…: {why}"));
    let suite = tests(&["--package", "gossamer-tests", "--test", "suite"]);
    Ok(core.and(suite.env("SUITE_WITHOUT", WITHOUT.map(|(start, _)| start).join(",")).tests()?))
}

/// Builds [`PROBE`] and runs it: the words in front with which that works, or the reason why it does not.
fn probe(context: &Context, folder: &Path) -> anyhow::Result<Result<&'static [&'static str], String>> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let (source, program) = (folder.join("probe.rs"), folder.join("probe"));
    fs::write(&source, PROBE)?;
    let (source, program) = (source.to_string_lossy(), program.to_string_lossy());
    let linker = format!("linker={}", LINKER.1);
    let built = context.command("rustc", &["--target", TARGET, "-C", &linker, "-o", &program, &source]).capture()?;
    if !built.success {
        let why = built.first_error();
        return Ok(Err(format!("nothing is built for {TARGET} (`cargo dev install-tools`; {PACKAGES}): {why}")));
    }
    let mut whys = Vec::new();
    for front in FRONTS {
        match behind(context, front, &[&program]).capture() {
            Ok(done) if done.success && done.stdout.lines().eq(["aarch64"; 2]) => return Ok(Ok(front)),
            Ok(done) => whys.push(done.first_error().to_owned()),
            Err(error) => whys.push(format!("{:#}", error.root_cause())),
        }
    }
    let whys = whys.join("; ");
    Ok(Err(format!("programs for aarch64 do not run ({PACKAGES}; before Linux 6.7 qemu-user-binfmt): {whys}")))
}

/// The command behind these words.
fn behind<'a>(context: &'a Context, front: &[&str], words: &[&str]) -> Command<'a> {
    let words = [front, words].concat();
    context.command(words[0], &words[1..]).env(LIBRARIES.0, LIBRARIES.1)
}
