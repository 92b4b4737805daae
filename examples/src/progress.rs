//! Progress bars of the larger examples: where they are drawn, if at all. The workers set their positions.
//!
//! A machine of a rack has a pipe as its standard error, which the launcher passes on line by line, so a bar cannot be
//! drawn there. The starter of the rack has the terminal and tells machine 0 its name ([`terminal`]).
//!
//! Invariant: without a terminal nothing is drawn, and nothing that fails here stops the work.

use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use console::Term;
use gossamer::{JoinHandle, Trust};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const DRAWS_A_SECOND: u8 = 10;
const DRAW_INTERVAL: Duration = Duration::from_millis(100);
/// Template of a bar that counts bytes.
pub const BYTES: &str = "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {msg}";
/// Template of a bar that counts other things.
pub const NUMBERS: &str = "{msg} {bar:40} {human_pos}/{human_len} {per_sec}";

/// The terminal behind this process's standard error, if there is one.
pub fn terminal() -> Option<PathBuf> {
    io::stderr().is_terminal().then(|| fs::read_link("/proc/self/fd/2").ok()).flatten()
}

/// A bar for so many units of its template, on the terminal given, or else on standard error if that is one.
pub fn bar(all: u64, template: &str, terminal: Option<&Path>) -> ProgressBar {
    let target = match terminal {
        Some(terminal) => open(terminal).unwrap_or_else(|_| ProgressDrawTarget::hidden()),
        None => ProgressDrawTarget::stderr_with_hz(DRAWS_A_SECOND), // hidden unless it is a terminal
    };
    let bar = ProgressBar::with_draw_target(Some(all), target);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar, // the plain one
    }
}

fn open(terminal: &Path) -> io::Result<ProgressDrawTarget> {
    let write = OpenOptions::new().write(true).open(terminal)?;
    if !write.is_terminal() {
        return Ok(ProgressDrawTarget::hidden());
    }
    let read = write.try_clone()?; // never read from
    Ok(ProgressDrawTarget::term(Term::read_write_pair(read, write), DRAWS_A_SECOND))
}

/// A bar that fibers of all machines move.
pub struct Meter {
    count: Trust<Count>,
    drawer: Option<JoinHandle<()>>,
}

/// Progress of the fibers.
pub struct Count {
    done: u64,
    is_over: bool,
}

impl Count {
    /// Adds to the completed work.
    pub fn add(&mut self, done: u64) {
        self.done += done;
    }
}

impl Meter {
    /// A fiber of this machine draws it until it is finished.
    pub fn new(bar: ProgressBar) -> Meter {
        let is_hidden = bar.is_hidden();
        let count = gossamer::entrust(Count { done: 0, is_over: false });
        let drawn = count.clone();
        let draw = move || {
            while let Some(done) = drawn.apply(|count| (!count.is_over).then_some(count.done)) {
                bar.set_position(done);
                gossamer::sleep(DRAW_INTERVAL);
            }
            bar.finish_and_clear();
        };
        Meter { count, drawer: (!is_hidden).then(|| gossamer::spawn(draw)) }
    }

    /// Progress of the fibers.
    pub fn count(&self) -> Trust<Count> {
        self.count.clone()
    }

    /// The work is over.
    ///
    /// # Errors
    /// The drawing has panicked.
    pub fn finish(self) -> anyhow::Result<()> {
        self.count.apply(|count| count.is_over = true);
        let ended = self.drawer.map_or(Ok(()), JoinHandle::join);
        ended.map_err(|_| anyhow::anyhow!("the progress bar has panicked"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_drawn_on_what_is_no_terminal() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for path in [file.path(), Path::new("/no/such/terminal")] {
            let bar = bar(10, BYTES, Some(path));
            bar.set_position(5);
            bar.finish_and_clear();
            assert!(bar.is_hidden());
        }
        assert_eq!(fs::read(file.path()).unwrap(), b"");
    }
}
