//! Answers of the workloads to wrong arguments and files: a message that names them and no output, with status 2 for an
//! argument and 1 for a file.

use std::path::Path;
use std::process::Command;

use libtest_mimic::Failed;

use crate::run;

/// Wrong arguments for all programs.
const ARGUMENTS: [(&[&str], &str); 9] = [
    (&["--threads", "0"], "--threads takes a number from 1 to 1024, not '0'"),
    (&["--threads", "1025"], "not '1025'"),
    (&["--threads", "-1"], "not '-1'"),
    (&["--threads", "4x"], "not '4x'"),
    (&["--threads", ""], "not ''"),
    (&["--size", "0"], "--size takes a number from "),
    (&["--size", "99999999999999999999999"], "not '99999999999999999999999'"),
    (&["--seed", "one"], "--seed takes a number from 0 to "),
    (&["--sizes", "4"], "unrecognized option '--sizes'"),
];

/// Wrong files for the programs that read files.
const FILES: [(&str, &[&str], &str); 4] = [
    ("histogram", &["BM"], "too short"),
    ("linear_regression", &["", "x"], "too short"),
    ("string_match", &[""], "too short"),
    ("word_count", &[""], "too short"),
];

pub fn arguments(program: &Path, name: &str) -> Result<(), Failed> {
    for (arguments, message) in ARGUMENTS {
        refused(Command::new(program).args(arguments), 2, message)?;
    }
    let help = run(Command::new(program).arg("--help"))?;
    let text = String::from_utf8_lossy(&help.stdout);
    if !help.status.success() || !["--threads=N", "--size=N", "--seed=N"].iter().all(|option| text.contains(option)) {
        return Err(format!("--help says: {help:?}").into());
    }
    let Some((_, contents, message)) = FILES.into_iter().find(|(of, ..)| *of == name) else {
        return refused(Command::new(program).arg("a.txt"), 2, "'a.txt' is one argument too many");
    };
    refused(Command::new(program).args(["a.txt", "b.txt"]), 2, "'b.txt' is one argument too many")?;
    refused(Command::new(program).args(["--size", "100", "a.txt"]), 2, "--size is for generated input")?;
    refused(Command::new(program).arg("/nowhere/at all"), 1, "/nowhere/at all: No such file or directory")?;
    refused(Command::new(program).arg("/"), 1, "/: not a regular file")?;
    let file = tempfile::NamedTempFile::new()?;
    for content in contents {
        std::fs::write(file.path(), content)?;
        refused(Command::new(program).arg(file.path()), 1, message)?;
    }
    if name == "histogram" {
        bitmaps(program, file.path())?;
    }
    Ok(())
}

/// Headers that are invalid, or claim more than the file holds.
fn bitmaps(program: &Path, file: &Path) -> Result<(), Failed> {
    let good = crate::oracle::bitmap(5, 3, 1);
    let (not_one, too_short) = ("not an uncompressed bitmap", "the file is shorter than its header says");
    let bad: [(usize, u8, &str); 7] = [
        (0, b'b', not_one),
        (28, 32, not_one),
        (30, 1, not_one),
        (13, 1, too_short),
        (18, 0, too_short),
        (19, 1, too_short),
        (22, 4, too_short),
    ];
    for (at, byte, message) in bad {
        let mut bytes = good.clone();
        bytes[at] = byte;
        std::fs::write(file, bytes)?;
        refused(Command::new(program).arg(file), 1, message)?;
    }
    std::fs::write(file, &good[..good.len() - 1])?;
    refused(Command::new(program).arg(file), 1, too_short)
}

fn refused(command: &mut Command, status: i32, message: &str) -> Result<(), Failed> {
    let done = run(command)?;
    let told = String::from_utf8_lossy(&done.stderr);
    if done.status.code() == Some(status) && told.contains(message) && done.stdout.is_empty() {
        return Ok(());
    }
    Err(format!("{command:?}: not status {status} and {message:?}, but {done:?}").into())
}
