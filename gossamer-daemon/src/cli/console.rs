//! What the command lines print. A line that cannot be written is an error: it is told on standard error, and the
//! status is not 0. Where nobody reads any more (`| head`), it is not told: the status says it, as that of `cat` does.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;

use crate::outcome::{CLOSED_STATUS, FAILURE_STATUS};
use crate::output::{Unwritten, write_all};
use crate::wire::Stream;

/// The arguments of this process, or what to exit with: after `--help` and `--version`, and where they are wrong.
pub(super) fn parse<P: Parser>(program: &str) -> Result<P, ExitCode> {
    P::try_parse().map_err(|error| {
        let written = error.print().and_then(|()| io::stdout().flush());
        match written {
            Err(trouble) if !error.use_stderr() => unwritten(program, trouble),
            // Wrong arguments: the status tells, also where standard error cannot.
            _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(FAILURE_STATUS)),
        }
    })
}

/// Writes a line to standard output, at once.
pub(super) fn print(line: &str) -> io::Result<()> {
    write(&format!("{line}\n"))
}

/// Writes text to standard output, at once.
pub(super) fn write(text: &str) -> io::Result<()> {
    Ok(write_all(rustix::stdio::stdout(), text.as_bytes())?)
}

/// Text that others have written, on one line: without what a terminal would take for an order, or what would hide or
/// reorder what stands beside it. All that this program prints of names, paths, causes and logs goes through here; the
/// output of programs is theirs.
pub(super) fn plain(text: &str) -> String {
    let is_harmless = |letter: char| !letter.is_control() && !is_format(letter);
    text.chars().map(|letter| if is_harmless(letter) { letter } else { '?' }).collect()
}

/// Letters without a form of their own: separators of lines, marks of direction, joiners.
fn is_format(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Whether a line for standard error could not be written.
static HAS_LOST_A_LINE: AtomicBool = AtomicBool::new(false);

/// Writes a line to standard error; of a message of several lines the others are indented, so that none passes for
/// another message. Where that cannot be, the status will tell ([`status`]).
pub(super) fn complain(message: impl std::fmt::Display) {
    let message = message.to_string();
    let mut lines = message.split('\n').map(plain);
    let mut line = format!("gossamer-launch: {}\n", lines.next().unwrap_or_default());
    lines.for_each(|more| line += &format!("  {}\n", more.trim_start()));
    if write_all(rustix::stdio::stderr(), line.as_bytes()).is_err() {
        HAS_LOST_A_LINE.store(true, Ordering::Relaxed); // a flag alone
    }
}

/// What to exit with: as `done` says, but with 0 only if all was written.
pub(super) fn status(program: &str, done: io::Result<ExitCode>) -> ExitCode {
    match done {
        Err(error) => unwritten(program, error),
        Ok(ExitCode::SUCCESS) if HAS_LOST_A_LINE.load(Ordering::Relaxed) => ExitCode::from(FAILURE_STATUS),
        Ok(code) => code,
    }
}

/// The status of a command whose standard output cannot be written.
fn unwritten(program: &str, error: io::Error) -> ExitCode {
    let unwritten = Unwritten { stream: Stream::Out, error };
    if unwritten.is_closed() {
        return ExitCode::from(CLOSED_STATUS);
    }
    let _ = write_all(rustix::stdio::stderr(), format!("{program}: {unwritten}\n").as_bytes()); // as in `complain`
    ExitCode::from(FAILURE_STATUS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_one_line_without_orders() {
        for (text, shown) in [
            ("plain, été 東京 🦀", "plain, été 東京 🦀"),
            ("a\x1b]0;title\x07b", "a?]0;title?b"),
            ("one\ntwo\r\tthree", "one?two??three"),
            ("\u{9b}31m", "?31m"),
            ("\u{202e}gpj.exe\u{2066}", "?gpj.exe?"),
            ("\u{2028}\u{feff}\u{200b}\u{7f}", "????"),
        ] {
            assert_eq!(plain(text), shown);
        }
    }
}
