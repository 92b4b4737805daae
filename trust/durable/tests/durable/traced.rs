//! System calls of the disk thread under strace: one `fdatasync` a group, and few more bytes than the changed lines.
//!
//! Without strace, or where tracing is not permitted, the test says SKIPPED.

use std::path::Path;
use std::process::Command;

use trust::Threadpool;

use super::faults::child_folder;
use super::{accounts, open};

const TEST: &str = "traced::one_sync_a_group_and_little_more_than_its_lines";
/// Bytes that the log is zeroed ahead, and zeroed at a time.
const AHEAD: u64 = 4 << 20;

/// Prints groups, lines and bytes, as the pool counts them.
fn work(folder: &Path) {
    let pool = Threadpool::new(1);
    let bank = open(&pool, folder).unwrap();
    for n in 1..=5000u64 {
        bank.apply_then(move |bank, tx| bank.accounts.push(n, tx), |()| ());
    }
    bank.sync().unwrap();
    (0..20).for_each(|_| bank.apply(|bank, _| bank.accounts[0] += 1));
    assert_eq!(accounts(&bank).0, 120);
    let stats = bank.stats().unwrap();
    println!("\nCOUNTED {} {} {}", stats.groups, stats.lines, stats.written_bytes);
    bank.close().unwrap();
}

#[test]
fn one_sync_a_group_and_little_more_than_its_lines() {
    if let Some(folder) = child_folder() {
        return work(&folder);
    }
    let folder = tempfile::tempdir().unwrap();
    let (pool, trace) = (folder.path().join("pool"), folder.path().join("trace"));
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-s", "8", "-e", "trace=pwrite64,pwritev,write,fdatasync,fsync", "-o"]).arg(&trace);
    strace.arg(std::env::current_exe().unwrap()).args(["--exact", TEST, "--nocapture"]);
    let output = match strace.env("DURABLE_TEST_FOLDER", &pool).output() {
        Ok(output) => output,
        Err(error) => return println!("SKIPPED: {TEST}: strace: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if said.contains("PTRACE") || said.contains("ptrace") {
        return println!("SKIPPED: {TEST}: nothing may be traced here: {said}");
    }
    assert!(output.status.success(), "{said}");
    let counted = said.lines().find_map(|line| line.strip_prefix("COUNTED ")).expect("the pool's own numbers");
    let counted: Vec<u64> = counted.split(' ').map(|number| number.parse().unwrap()).collect();
    let [groups, lines, written] = counted[..] else { panic!("{counted:?}") };

    let trace = std::fs::read_to_string(trace).unwrap();
    // By its final name; before it has that, the log is still being created.
    let of_log = |line: &&str| line.contains("/log-") && !line.contains(".tmp>") && !line.contains("resumed");
    let (mut syncs, mut records, mut bytes, mut zeroed) = (0, 0, 0, 0);
    for line in trace.lines().filter(of_log) {
        let call = line.split_whitespace().nth(1).unwrap_or("").split('(').next().unwrap_or("");
        match call {
            "fdatasync" => syncs += 1,
            "pwrite64" => {
                let (_, behind) = line.rsplit_once('"').expect("a string");
                let number = |word: &str| word.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().ok();
                let len = behind.split(',').find_map(number).expect("a length");
                if line.contains("\"trustrec\"") {
                    (records, bytes) = (records + 1, bytes + len);
                } else {
                    assert!(line.contains(r#""\0\0\0\0\0\0\0\0""#), "neither a record nor zeros: {line}");
                    zeroed += len;
                }
            }
            _ => panic!("the log is written by `pwrite64` and synced by `fdatasync` alone: {line}"),
        }
    }
    println!(
        "{groups} groups of {lines} lines: {syncs} syncs, {records} records of {bytes} bytes, {zeroed} bytes of zeros \
         ahead"
    );
    // And the end record, of a page.
    assert_eq!((syncs, records, bytes), (groups + 1, groups + 1, written + 4096), "{groups} groups");
    assert!(groups > 20 && bytes * 10 <= lines * 64 * 13 + groups * 40_960, "{bytes} bytes for {lines} lines");
    // Zeros that save the syncs from recording new blocks: written once ahead, independent of the records.
    assert!(zeroed <= bytes + 2 * AHEAD, "{zeroed} bytes of zeros");
}
