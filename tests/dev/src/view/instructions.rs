//! The cost of a request while the view is off, served, and looked at: callgrind counts the same instructions.
//!
//! Counted are the functions that send a request, serve its batch and take the answer (`FUNCTIONS`), of two workers of
//! one process; not the turns of idle workers, whose number is the system's to decide. Unoptimised programs are
//! counted, as these functions are calls of their own there: one instruction more a request is more, not fewer, of
//! them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context as _, ensure};

/// Requests of a longer and of a shorter run; their difference has nothing of start and end.
const REQUESTS: [u64; 2] = [20_000, 10_000];
const FUNCTIONS: [&str; 3] =
    ["trust::api::plain::*apply_then", "trust::local::trustee::serve_batch*", "*Outgoing*::resume"];
/// Counts differ by less than this from run to run, as batches do (0.2% were seen): seven instructions of 1,500, fewer
/// than a counter takes.
const NOISE: f64 = 0.005;
/// Interval of the looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Run of the program.
#[derive(Clone, Copy, Debug, PartialEq)]
enum View {
    Off,
    Served,
    LookedAt,
}

/// Counts with all views, and compares.
pub fn are_the_same(programs: &Path, folder: &Path) -> anyhow::Result<()> {
    let mut counts = vec![];
    for view in [View::Off, View::Served, View::LookedAt] {
        let [longer, shorter] = REQUESTS.map(|requests| count(programs, folder, view, requests));
        let each = (longer? - shorter?) as f64 / (REQUESTS[0] - REQUESTS[1]) as f64;
        println!("{view:?}: {each:.1} instructions a request (unoptimised)");
        counts.push(each);
    }
    let off = counts[0];
    ensure!(off > 100.0, "{off} instructions a request: what is counted has another name");
    for each in counts {
        ensure!((each - off).abs() < NOISE * off, "{each:.1} instructions a request, and {off:.1} with the view off");
    }
    Ok(())
}

/// Instructions of so many requests.
fn count(programs: &Path, folder: &Path, view: View, requests: u64) -> anyhow::Result<u64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--collect-atstart=no"]);
    command.arg(format!("--callgrind-out-file={}", folder.join("callgrind.out").display()));
    command.args(FUNCTIONS.map(|function| format!("--toggle-collect={function}")));
    command.arg(programs.join("gossamer-bench")).args(["operations-run", "requests", &requests.to_string()]);
    if view != View::Off {
        command.env("GOSSAMER_VIEW", "127.0.0.1:0");
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let (mut looker, mut collected, mut said) = (None, None, String::new());
    for line in BufReader::new(child.stderr.take().context("it was piped")?).lines() {
        let line = line?;
        if let (Some((_, url)), View::LookedAt) = (line.split_once("view at "), view) {
            looker = Some(look_at(url.to_owned()));
        }
        if let Some((_, number)) = line.split_once("Collected : ") {
            collected = Some(number.trim().parse()?);
        }
        said += &line;
        said += "\n";
    }
    ensure!(child.wait()?.success(), "{command:?}: {said}");
    if view == View::LookedAt {
        let looks = looker.with_context(|| format!("it has not said where its view is:\n{said}"))?.end()?;
        ensure!(looks > 0, "nobody has looked");
    }
    collected.with_context(|| format!("callgrind has counted nothing:\n{said}"))
}

/// A viewer that looks until it is told to end.
struct Looker {
    end: mpsc::Sender<()>,
    thread: std::thread::JoinHandle<u64>,
}

fn look_at(url: String) -> Looker {
    let (end, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut looks = 0;
        while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            looks += u64::from(super::get(&url, "metrics", "text/plain").is_ok());
        }
        looks
    });
    Looker { end, thread }
}

impl Looker {
    /// Returns the number of times it has seen something.
    fn end(self) -> anyhow::Result<u64> {
        drop(self.end);
        self.thread.join().map_err(|_| anyhow::anyhow!("who looks has panicked"))
    }
}
