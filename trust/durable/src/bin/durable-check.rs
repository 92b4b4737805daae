//! `durable-check FOLDER..`: prints the contents of each pool's folder and checks that its files are intact. Fails if
//! one of them is not.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut folders = std::env::args_os().skip(1).peekable();
    if folders.peek().is_none_or(|first| first == "--help" || first == "-h") {
        eprintln!(
            "usage: durable-check FOLDER..\n\nChecks the files of durable trusts that no program has open, and prints \
             their contents."
        );
        return ExitCode::from(2);
    }
    let mut are_whole = true;
    for folder in folders {
        match trust_durable::inspect(&folder) {
            Ok(found) => print!("{}: a pool\n{found}", folder.display()),
            Err(error) => {
                eprintln!("durable-check: {error}");
                are_whole = false;
            }
        }
    }
    if are_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
