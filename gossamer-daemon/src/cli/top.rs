//! `gossamer-launch top`: activity of a program's workers each second, busiest first.

use comm::deadline::later;
use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use gossamer::view::rates::{Rates, rates};
use gossamer::view::{NamedTrust, Snapshot, Stack};
use rustix::termios::tcgetwinsize;
use serde_json::json;

use super::complain;
use super::console::{plain, print, write};
use super::movers::{living, tasks, threads};
use super::target::{Target, Watched};
use crate::outcome::FAILURE_STATUS;

#[derive(Debug, Args)]
pub(super) struct Top {
    #[command(flatten)]
    target: Target,

    /// Show it once, over one interval, and exit
    #[arg(long)]
    once: bool,

    /// Seconds between two samples
    #[arg(long, short = 'd', value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,
}

/// Line limit where the size of the terminal is unknown: none.
const ALL_LINES: usize = usize::MAX;
/// Most published names that the screen shows.
const NAMES_SHOWN: usize = 5;
/// Most tasks, and most threads, that a screen of limited size shows.
const MOVERS_SHOWN: usize = 5;
/// Most frames of a stack on a screen of limited size.
const FRAMES_SHOWN: usize = 6;
/// Time that `--once` waits for the stacks of stuck workers.
const STACKS_LIMIT: Duration = Duration::from_secs(2);
/// Interval of the looks meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Shortest interval for `--once`: a worker shows as stuck only once its probe has been under way for a second.
const ONCE_MIN: Duration = Duration::from_millis(1200);

impl Top {
    pub(super) fn main(&self) -> io::Result<ExitCode> {
        let watched = match self.target.find() {
            Ok(watched) => watched,
            Err(code) => return Ok(code),
        };
        let interval = Duration::try_from_secs_f64(self.interval.clamp(0.1, 3600.0)).unwrap_or(Duration::from_secs(1));
        let interval = if self.once { interval.max(ONCE_MIN) } else { interval };
        let mut before: Option<Snapshot> = None;
        let mut next = Instant::now();
        loop {
            let now = match watched.snapshot() {
                Ok(now) => now,
                Err(cause) => {
                    complain(cause);
                    // The program was there and has ended.
                    return Ok(ExitCode::from(if before.is_some() && !self.once { 0 } else { FAILURE_STATUS }));
                }
            };
            let now = if before.is_some() && self.once { with_stacks(&watched, now) } else { now };
            if before.is_some() || !self.once {
                let workers = rates(before.as_ref(), &now);
                if self.target.ask.json {
                    print(&object(&now, &workers).to_string())?;
                } else {
                    show(&now, workers, self.once)?;
                }
                if self.once {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            before = Some(now);
            next = later(next, interval);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            next = next.max(Instant::now());
        }
    }
}

/// Returns this snapshot, or a later one that has the stacks of all stuck workers, if it comes in time.
fn with_stacks(watched: &Watched, mut now: Snapshot) -> Snapshot {
    let start = Instant::now();
    while now.stacks().any(|(_, stack)| stack.is_none()) && start.elapsed() < STACKS_LIMIT {
        std::thread::sleep(LOOK_AGAIN);
        match watched.snapshot() {
            Ok(later) => now = later,
            Err(_) => return now,
        }
    }
    now
}

/// Returns the trusts that the program has published by name.
fn published(now: &Snapshot) -> impl Iterator<Item = &NamedTrust> {
    now.machines.iter().flat_map(|seen| &seen.sample.published)
}

fn object(now: &Snapshot, workers: &[Rates]) -> serde_json::Value {
    let machine = |seen: &gossamer::view::snapshot::Seen| {
        json!({"machine": seen.sample.machine, "host": seen.sample.host, "pid": seen.sample.pid,
               "answers": seen.answers, "lost": seen.lost, "age_ms": seen.age_ms, "up_ms": seen.sample.up_ms,
               "resident_bytes": seen.sample.resident_bytes, "shared_bytes": seen.sample.shared_bytes,
               "sent": seen.sample.sent, "tasks": seen.sample.tasks, "threads": seen.sample.threads})
    };
    let machines: Vec<_> = now.machines.iter().map(machine).collect();
    let published: Vec<_> = published(now).collect();
    let stack = |(worker, stack): (String, Option<&Stack>)| {
        let stack = stack?;
        Some(json!({"worker": worker, "frames": stack.frames, "missing": stack.missing}))
    };
    let stacks: Vec<_> = now.stacks().filter_map(stack).collect();
    json!({"program": now.program(), "alerts": now.alerts, "stacks": stacks, "machines": machines,
           "workers": workers, "published": published})
}

fn show(now: &Snapshot, workers: Vec<Rates>, is_once: bool) -> io::Result<()> {
    let stdout = io::stdout();
    let is_screen = stdout.is_terminal() && !is_once;
    let lines =
        if is_screen { tcgetwinsize(&stdout).map_or(ALL_LINES, |size| usize::from(size.ws_row)) } else { ALL_LINES };
    let text = screen(now, workers, lines);
    write(&if is_screen { format!("\x1b[H\x1b[2J{text}") } else { text })
}

/// Renders the screen, with at most `lines` lines.
fn screen(now: &Snapshot, mut workers: Vec<Rates>, lines: usize) -> String {
    workers.sort_by(|a, b| {
        let of =
            |rates: &Rates| (rates.silent_ms >= gossamer::view::snapshot::SILENT_MS, rates.served_per_s, rates.busy);
        of(b).partial_cmp(&of(a)).unwrap_or(std::cmp::Ordering::Equal)
    });
    let count = workers.len().max(1) as f64;
    let served: f64 = workers.iter().map(|worker| worker.served_per_s).sum();
    let busy: f64 = workers.iter().map(|worker| worker.busy).sum::<f64>() / count;
    let resident: u64 = living(now).map(|sample| sample.resident_bytes).sum();
    let mut text = String::new();
    let (machines, all) = (living(now).count(), workers.len());
    let _ = writeln!(
        text,
        "{}: {machines} machine(s), {all} worker(s), {} served/s, {:.0} % busy, {} MiB",
        plain(now.program()),
        short(served),
        busy * 100.0,
        resident >> 20
    );
    let stacks: Vec<_> = now.stacks().collect();
    let mut frame_lines = lines / 3;
    for alert in &now.alerts {
        let _ = writeln!(text, "ALERT {}", plain(alert));
        let is_its = |(worker, _): &(String, Option<&Stack>)| alert.starts_with(&format!("{worker} on "));
        let Some((_, Some(stack))) = stacks.iter().find(|stack| is_its(stack)) else { continue };
        let room = if lines == ALL_LINES { ALL_LINES } else { frame_lines.min(FRAMES_SHOWN) };
        let shown: Vec<&String> = stack.frames.iter().take(room).collect();
        frame_lines = frame_lines.saturating_sub(shown.len());
        shown.iter().for_each(|frame| text += &format!("  {}\n", plain(frame)));
        if !stack.missing.is_empty() {
            let _ = writeln!(text, "  no stack: {}", plain(&stack.missing));
        }
    }
    let _ = writeln!(
        text,
        "{:<10}{:<14}{:>10}{:>8}{:>7}{:>10}{:>10}{:>9}{:>12}{:>7}",
        "WORKER", "HOST", "SERVED/S", "BATCH", "BUSY", "QUEUED/S", "PARKS/S", "MEMORY", "ROUND TRIP", "STATE"
    );
    let most = if lines == ALL_LINES { ALL_LINES } else { MOVERS_SHOWN };
    let movers = tasks(now, most) + &threads(now, most);
    let names = published(now).count();
    let shown = names.min(NAMES_SHOWN);
    let name_lines = shown + usize::from(names > shown);
    let room = lines.saturating_sub(text.lines().count() + 2 + movers.lines().count() + name_lines).max(1);
    for worker in workers.iter().take(room) {
        let _ = writeln!(
            text,
            "{:<10}{:<14}{:>10}{:>8.1}{:>6.0}%{:>10}{:>10}{:>9}{:>12}{:>7}",
            worker.worker,
            plain(&worker.host).chars().take(13).collect::<String>(),
            short(worker.served_per_s),
            worker.batch,
            worker.busy * 100.0,
            short(worker.queued_per_s),
            short(worker.parks_per_s),
            bytes(worker.memory_bytes),
            format!("{:.1} us", worker.round_trip_ns as f64 / 1e3),
            if worker.silent_ms >= gossamer::view::snapshot::SILENT_MS { "STUCK" } else { &worker.state }
        );
    }
    if workers.len() > room {
        let _ = writeln!(text, "and {} more", workers.len() - room);
    }
    text += &movers;
    for named in published(now).take(shown) {
        let _ = writeln!(text, "`{}` is {} at {}", plain(&named.name), plain(&named.type_name), plain(&named.place));
    }
    if names > shown {
        let _ = writeln!(text, "and {} more names", names - shown);
    }
    text
}

fn bytes(count: u64) -> String {
    match count {
        count if count >= 10 << 30 => format!("{}G", count >> 30),
        count if count >= 10 << 20 => format!("{}M", count >> 20),
        count => format!("{}K", count >> 10),
    }
}

fn short(number: f64) -> String {
    match number {
        number if number >= 1e9 => format!("{:.2}G", number / 1e9),
        number if number >= 1e6 => format!("{:.2}M", number / 1e6),
        number if number >= 1e3 => format!("{:.1}k", number / 1e3),
        number => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gossamer::view::snapshot::Seen;
    use gossamer::view::{MachineSample, WorkerSample};

    #[test]
    fn the_stuck_come_first_and_names_are_harmless() {
        let kept_by = "the closure `find\x1b[2J` on a `Tree`".to_owned();
        let memory_bytes = 300 << 10;
        let worker = |silent_ms| WorkerSample {
            silent_ms,
            kept_by: kept_by.clone(),
            memory_bytes,
            state: "R".into(),
            ..WorkerSample::default()
        };
        let workers = (0..50).map(|number| worker(if number == 40 { 1500 } else { 0 })).collect();
        let sample = MachineSample { program: "p\x1b[2J\n".into(), up_ms: 1000, workers, ..MachineSample::default() };
        let now = Snapshot::new(vec![Seen { answers: true, sample, ..Seen::default() }], &[]);
        let text = screen(&now, rates(None, &now), 24);
        assert!(text.lines().count() <= 24 && text.ends_with(" more\n"), "{text}");
        assert!(text.starts_with("p?[2J?: 1 machine(s), 50 worker(s)"), "{text}");
        let first = text.lines().find(|line| line.starts_with("m0w")).unwrap();
        assert!(first.starts_with("m0w40") && first.ends_with("STUCK"), "{first}");
        let alert = text.lines().find(|line| line.starts_with("ALERT m0w40 on ")).unwrap();
        assert!(alert.contains("the closure `find?[2J` on a `Tree` keeps it"), "{alert}");
        assert!(first.contains("  300K "), "{first}");
    }

    #[test]
    fn frames_stand_below_their_alert_as_far_as_there_is_room() {
        let stuck = WorkerSample { silent_ms: 1500, state: "R".into(), ..WorkerSample::default() };
        let frames = (0..20).map(|number| format!("frame\x1b{number}")).collect();
        let stack = Stack { frames, missing: String::new() };
        let missing = Stack { frames: Vec::new(), missing: "the program handles SIGURG itself".into() };
        let (workers, stacks) = (vec![stuck; 3], vec![(0, stack), (1, missing)]);
        let sample = MachineSample { workers, stacks, ..MachineSample::default() };
        let now = Snapshot::new(vec![Seen { answers: true, sample, ..Seen::default() }], &[]);
        let text = screen(&now, rates(None, &now), 24);
        assert!(text.lines().count() <= 24, "{text}");
        let lines: Vec<&str> = text.lines().skip(1).take_while(|line| !line.starts_with("WORKER")).collect();
        assert!(lines[0].starts_with("ALERT m0w0 on ") && lines[7].starts_with("ALERT m0w1 on "), "{text}");
        assert_eq!((lines[1], lines[6]), ("  frame?0", "  frame?5"));
        assert_eq!(lines[8], "  no stack: the program handles SIGURG itself");
        assert!(lines[9].starts_with("ALERT m0w2 on ") && lines.len() == 10, "{text}");
        assert!(screen(&now, rates(None, &now), ALL_LINES).contains("  frame?19\n"));
        let told = object(&now, &[]);
        assert_eq!(
            (&told["stacks"][0]["worker"], &told["stacks"][0]["frames"][19]),
            (&json!("m0w0"), &json!("frame\x1b19"))
        );
        assert_eq!(told["stacks"].as_array().map(Vec::len), Some(2), "one is not known yet");
    }

    #[test]
    fn tasks_are_listed_with_their_moves() {
        use gossamer::view::tasks::{TaskSample, TasksSample};
        let task = |number: u16| TaskSample {
            name: format!("{number}\x1b"),
            busy: 10 * number,
            moves: 1,
            came_from: number.is_multiple_of(2).then(|| (1, "idle core".to_owned())),
            ..TaskSample::default()
        };
        let left = vec![("idle core".to_owned(), 3), ("its data".to_owned(), 1)];
        let tasks = TasksSample { count: 40, runnable: 7, left, busiest: (0..9).map(task).collect() };
        let (workers, sample) =
            (vec![WorkerSample::default(); 30], MachineSample { tasks, ..MachineSample::default() });
        let sample = MachineSample { workers, ..sample };
        let now = Snapshot::new(vec![Seen { answers: true, sample, ..Seen::default() }], &[]);
        let text = screen(&now, rates(None, &now), 24);
        let wanted = "40 task(s), 7 runnable, 4 move(s) (idle core: 3, its data: 1)\n\
                      task 8? at m0: 8 % busy, 1 move(s), came from m1: idle core\n\
                      task 7? at m0: 7 % busy, 1 move(s)\n";
        assert!(text.lines().count() <= 24 && text.contains(wanted), "{text}");
        assert_eq!(text.matches("\ntask ").count(), 5);
        assert_eq!(object(&now, &[])["machines"][0]["tasks"]["busiest"][8]["name"], "8\x1b");
        let none = Snapshot::new(vec![Seen { answers: true, ..Seen::default() }], &[]);
        assert!(!screen(&none, rates(None, &none), 24).contains("task"));
    }

    #[test]
    fn threads_are_listed_with_their_moves() {
        use gossamer::view::threads::{ThreadSample, ThreadsSample};
        let thread = |number: u16| ThreadSample {
            id: format!("{number:#x}"),
            function: "wo\x1brk".to_owned(),
            busy: 10 * number,
            moves: number.into(),
            came_from: (number == 8).then(|| (1, "idle\x1bcore".to_owned())),
            tie: String::new(),
        };
        let left = vec![("by itself".to_owned(), 2), ("asked".to_owned(), 1)];
        let threads = ThreadsSample { left, threads: (0..9).map(thread).collect() };
        let (workers, sample) =
            (vec![WorkerSample::default(); 30], MachineSample { threads, ..MachineSample::default() });
        let sample = MachineSample { workers, ..sample };
        let now = Snapshot::new(vec![Seen { answers: true, sample, ..Seen::default() }], &[]);
        let text = screen(&now, rates(None, &now), 24);
        let wanted = "9 thread(s), 3 move(s) (asked: 1, by itself: 2)\n\
                      thread 0x8 `wo?rk` at m0: 8 % busy, 8 move(s), came from m1: idle?core\n\
                      thread 0x7 `wo?rk` at m0: 7 % busy, 7 move(s)\n";
        assert!(text.lines().count() <= 24 && text.contains(wanted), "{text}");
        assert_eq!(text.matches("\nthread ").count(), 5);
        assert_eq!(object(&now, &[])["machines"][0]["threads"]["threads"][8]["id"], "0x8");
    }

    #[test]
    fn published_names_are_listed() {
        let named = |number: u32| NamedTrust {
            name: format!("na\x1bme-{number}"),
            type_name: "u64".into(),
            place: "m1w0".into(),
        };
        let workers = vec![WorkerSample::default(); 30];
        let sample = MachineSample { workers, published: (0..7).map(named).collect(), ..MachineSample::default() };
        let now = Snapshot::new(vec![Seen { answers: true, sample, ..Seen::default() }], &[]);
        let text = screen(&now, rates(None, &now), 24);
        assert!(text.lines().count() <= 24 && text.ends_with("`na?me-4` is u64 at m1w0\nand 2 more names\n"), "{text}");
        assert_eq!(object(&now, &[])["published"][6]["place"], "m1w0");
    }
}
