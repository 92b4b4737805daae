//! The programs of the tutorial run to their end (each checks its own results) and print their results.

use std::os::unix::ffi::OsStrExt;
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

/// The groups of files of every kind of line, beside those of one thread.
#[test]
fn groupby() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    std::os::unix::fs::symlink(".", folder.path().join("link")).unwrap(); // a circle
    let mut expected = std::collections::BTreeMap::<String, (u64, u64)>::new();
    for file in 0..20 {
        let mut text = String::new();
        for line in 0..500 {
            let word = ["", "a", "bb", "ccc"][line % 4].to_owned() + if line % 4 == 0 { "" } else { &"x"[..line % 2] };
            let text_of_line = format!("{word} {}", "y".repeat(line % 50));
            let first = text_of_line.split_whitespace().next().unwrap_or("").to_owned();
            let group = expected.entry(first).or_default();
            *group = (group.0 + 1, group.1 + text_of_line.len() as u64);
            text += &text_of_line;
            text.push('\n');
        }
        let folder = if file % 3 == 0 { &inner } else { folder.path() };
        // Names that are not UTF-8, too.
        let name = [if file % 2 == 0 { &b"\xff"[..] } else { b"" }, file.to_string().as_bytes()].concat();
        std::fs::write(folder.join(std::ffi::OsStr::from_bytes(&name)), text).unwrap();
    }
    let expected: String = expected.iter().map(|(word, (lines, bytes))| format!("{lines} {bytes} {word}\n")).collect();
    let path = folder.path().to_str().unwrap();
    assert_eq!(run_with(env!("CARGO_BIN_EXE_groupby"), &[path]), expected);
    assert_eq!(run_with(env!("CARGO_BIN_EXE_groupby"), &[path, "--single"]), expected);
    let wrong = Command::new(env!("CARGO_BIN_EXE_groupby")).arg("/no/such/folder").output().unwrap();
    assert_eq!(wrong.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&wrong.stderr);
    assert!(stderr.contains("/no/such/folder at m0w0 cannot be listed: No such file"), "{stderr}");
}
