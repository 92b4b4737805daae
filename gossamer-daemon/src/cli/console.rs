//! Output of the command lines. A line that cannot be written is an error: a message on standard error, and a status
//! other than 0. A closed pipe (`| head`) gets no message, only the status, as with `cat`.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;

use crate::outcome::{CLOSED_STATUS, FAILURE_STATUS};
use crate::output::{Unwritten, write_all};
use crate::wire::Stream;

/// Arguments of this process, or the exit status after `--help`, `--version` or wrong arguments.
pub(super) fn parse<P: Parser>(program: &str) -> Result<P, ExitCode> {
    P::try_parse().map_err(|error| {
        let written = error.print().and_then(|()| io::stdout().flush());
        match written {
            Err(trouble) if !error.use_stderr() => unwritten(program, trouble),
            // Wrong arguments: the status reports them even where standard error cannot.
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

/// Makes foreign text safe to print on one line: no control sequences for the terminal, and nothing that hides or
/// reorders its neighbours. All names, paths, causes and logs that this program prints pass through here; the output of
/// programs does not.
pub(super) fn plain(text: &str) -> String {
    let is_harmless = |letter: char| !letter.is_control() && !is_format(letter);
    text.chars().map(|letter| if is_harmless(letter) { letter } else { '?' }).collect()
}

/// Characters without a glyph: line separators, direction marks, joiners.
fn is_format(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Set when a line for standard error could not be written.
static HAS_LOST_A_LINE: AtomicBool = AtomicBool::new(false);

/// Writes a message to standard error. The further lines of a message are indented, so that none passes for another
/// message. On failure the exit status reports it ([`status`]).
pub(super) fn complain(message: impl std::fmt::Display) {
    let message = message.to_string();
    let mut lines = message.split('\n').map(plain);
    let mut line = format!("gossamer-launch: {}\n", lines.next().unwrap_or_default());
    lines.for_each(|more| line += &format!("  {}\n", more.trim_start()));
    if write_all(rustix::stdio::stderr(), line.as_bytes()).is_err() {
        HAS_LOST_A_LINE.store(true, Ordering::Relaxed); // a flag on its own
    }
}

/// Returns the exit status for `done`; 0 only if all output was written.
pub(super) fn status(program: &str, done: io::Result<ExitCode>) -> ExitCode {
    match done {
        Err(error) => unwritten(program, error),
        Ok(ExitCode::SUCCESS) if HAS_LOST_A_LINE.load(Ordering::Relaxed) => ExitCode::from(FAILURE_STATUS),
        Ok(code) => code,
    }
}

/// Returns the status of a command with an unwritable standard output.
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
