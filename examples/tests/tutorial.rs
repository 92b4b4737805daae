//! The programs of the tutorial run to their end (each checks its own results) and print their results.

use std::process::Command;

fn run(program: &str) -> String {
    run_with(program, &[])
}

fn run_with(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{}: {stderr}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn counter() {
    let said = run(env!("CARGO_BIN_EXE_counter"));
    assert_eq!(said, "4 fibers have counted to 4000\nand, without waiting, on to 6000\n");
}

#[test]
fn table() {
    let said = run(env!("CARGO_BIN_EXE_table"));
    assert_eq!(said, "Ada is Some(37), Alan None\n1 age was replaced\ntogether they are 206\n");
}

#[test]
fn accounts() {
    let said = run(env!("CARGO_BIN_EXE_accounts"));
    assert!(said.starts_with("16 accounts hold 16000; "), "{said}");
    let said = run_with(env!("CARGO_BIN_EXE_accounts"), &["--seconds", "1", "--accounts", "5", "--fibers", "8"]);
    assert!(said.starts_with("5 accounts hold 5000; ") && said.contains(" at least of each fiber"), "{said}");
}

#[test]
fn launch() {
    let said = run(env!("CARGO_BIN_EXE_launch"));
    assert_eq!(said, "ten fibers have their squares, and the store was asked 3 times\n");
}

#[test]
fn echo() {
    let said = run(env!("CARGO_BIN_EXE_echo"));
    assert_eq!(said, "100 connections had 1000 lines sent back\n");
}

#[test]
fn pipeline() {
    let said = run(env!("CARGO_BIN_EXE_pipeline"));
    assert_eq!(said, "up to 1000 there are 168 primes, and 512 = 2·2·2·2·2·2·2·2·2 has the most factors\n");
}

#[test]
fn histogram() {
    let said = run(env!("CARGO_BIN_EXE_histogram"));
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("40000 throws of 10 dice, ") && last.ends_with(" of them make 35"), "{said}");
    let longest = said.lines().filter(|line| line.ends_with('#')).max_by_key(|line| line.len()).unwrap();
    assert!(longest.ends_with(&format!(" {}", "#".repeat(60))), "{said}");
}
