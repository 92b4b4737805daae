//! `wordcount --durable`: killed again and again it counts each file once.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn wordcount(counts: Option<&Path>, folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wordcount"));
    match counts {
        Some(counts) => command.arg("--durable").arg(counts).args(["--threads", "2"]),
        None => command.arg("--single"),
    };
    command.args(["--json", "--top", "1000000"]).arg(folder).stdin(Stdio::null());
    command
}

fn ended(mut command: Command) -> (Value, String) {
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    (serde_json::from_slice(&output.stdout).unwrap(), said)
}

#[test]
fn each_file_counts_once_whenever_it_is_killed() {
    let (texts, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for file in 0..400_usize {
        let text: String = (0..400).map(|word| format!("word{} ", word * file % 997)).collect();
        fs::write(texts.path().join(format!("{file}.txt")), text).unwrap();
    }
    fs::write(texts.path().join("none.txt"), b"\0").unwrap();
    let (expected, _) = ended(wordcount(None, texts.path()));

    let counts = kept.path().join("counts");
    let mut kills = 0;
    // Each life is longer by a part of it, so that on a slow machine, too, one comes soon that is long enough.
    let lives = std::iter::successors(Some(10_u64), |life| Some(life + life / 8 + 5));
    for life in lives.map(Duration::from_millis) {
        let mut child = wordcount(Some(&counts), texts.path());
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let end = Instant::now() + life;
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if Instant::now() > end => break None,
                None => std::thread::yield_now(),
            }
        };
        if let Some(status) = status {
            assert!(status.success(), "{status}");
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        assert!(life < limits::HANG, "it comes to no end");
    }
    assert!(kills > 0);
    let (found, said) = ended(wordcount(Some(&counts), texts.path()));
    assert!(said.contains("401 files were counted before"), "{said}");
    for what in ["top", "words", "distinct", "files", "bytes", "no_texts"] {
        assert_eq!(found[what], expected[what], "{what}");
    }
}
