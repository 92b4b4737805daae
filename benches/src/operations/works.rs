//! One sample of each contender of `operations`, verified.

use crate::prelude::*;
use crate::process::Process;
use exchange::Point;
use gossamer::view::snapshot::Seen;
use gossamer::view::text::{Format, render};
use gossamer::view::{MachineSample, Snapshot, WorkerSample};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

/// Workers of the program that writes its metrics.
const WORKERS: usize = 128;
/// Times that the metrics are written in a sample.
const TIMES: usize = 20;
/// Questions a second to a view that is watched.
const LOOKS: u32 = 10;

pub enum Work {
    /// Milliseconds to the first line, which tells so many machines.
    FirstLine(Program, u16),
    /// Milliseconds from the kill -9 of the process that it tells until the starter has ended.
    Killed(Program),
    /// Million requests a second that it tells as a point.
    Echo(Program),
    /// Requests a second of a program with two workers while its view is so used.
    Rate(View),
    /// Requests a second of another program.
    Foreign(Program),
    /// Microseconds to write the metrics of 128 workers.
    Metrics,
    /// The same, of prometheus-client.
    ForeignMetrics(Program),
}

/// Use of a view.
#[derive(Clone, Copy)]
pub enum View {
    Off,
    Watched,
    Traced,
}

impl Work {
    /// Takes a sample; a rate's over so many milliseconds.
    pub fn sample(&self, millis: u64) -> Result<f64> {
        match self {
            Work::FirstLine(program, machines) => {
                let mut process = program.clone().quiet().start()?;
                let (line, age_ms) = (process.line()?, process.age_ms());
                ensure!(line == format!("{machines} machines"), "it says {line:?}");
                ensure!(process.end()?.success(), "it failed");
                Ok(age_ms)
            }
            Work::Killed(program) => {
                let mut process = program.clone().quiet().start()?;
                let line = process.line()?;
                let last = line.split(' ').next().unwrap_or_default();
                let others: Vec<PathBuf> =
                    line.split(' ').map(|process| PathBuf::from(format!("/proc/{process}"))).collect();
                let began = Instant::now();
                kill(last)?;
                ensure!(!process.end()?.success(), "it was a success although a process was killed");
                while others.iter().any(|process| lives(process)) {
                    ensure!(began.elapsed() < Duration::from_secs(10), "processes are left of {line}");
                    std::thread::sleep(Duration::from_millis(1)); // between looks
                }
                Ok(began.elapsed().as_secs_f64() * 1e3)
            }
            Work::Echo(program) => {
                let points = Point::read(&program.run()?).map_err(anyhow::Error::msg)?;
                Ok(points.first().context("it tells no point")?.mops())
            }
            Work::Rate(view) => rate(*view, millis),
            Work::Foreign(program) => number(&program.clone().with([millis.to_string()]), 0),
            Work::Metrics => metrics(),
            Work::ForeignMetrics(program) => {
                let series = series(&render(&snapshot(), Format::OpenMetrics)) / WORKERS;
                number(&program.clone().say(&format!("metrics {WORKERS} {series} {TIMES}")), 1)
            }
        }
    }
}

/// Whether the process of this folder of /proc runs; one that nobody has collected yet does not.
fn lives(process: &Path) -> bool {
    let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains(['Z', 'X']))
}

/// The best number at this place of the lines of a program that ends well.
fn number(program: &Program, place: usize) -> Result<f64> {
    let (output, mut best) = (program.run()?, f64::INFINITY);
    for line in output.lines() {
        let told = line.split(' ').nth(place).context("a number is missing")?;
        best = best.min(told.parse().with_context(|| format!("it says {line:?}"))?);
    }
    ensure!(best.is_finite(), "it tells no number");
    Ok(best)
}

fn rate(view: View, millis: u64) -> Result<f64> {
    let program = Program::own(&format!("operations-run rate {millis}"))?;
    let mut process = match view {
        View::Off => program.quiet().start()?,
        View::Watched | View::Traced => program.set("GOSSAMER_VIEW", "127.0.0.1:0").with_stderr().start()?,
    };
    let is_over = Arc::new(AtomicBool::new(false));
    let looker = match view {
        View::Off => None,
        View::Watched => {
            let ((host, path), is_over) = (view_of(&mut process)?, Arc::clone(&is_over));
            Some(std::thread::spawn(move || {
                let mut looks = 0;
                // The view ends with the program: a question at its end finds nobody.
                while !is_over.load(Ordering::Relaxed) {
                    match get(&host, &format!("{path}metrics")) {
                        Ok(answer) if answer.contains("gossamer_parks_total{") => looks += 1,
                        _ => break,
                    }
                    std::thread::sleep(Duration::from_secs(1) / LOOKS); // the pace of a watcher
                }
                looks
            }))
        }
        View::Traced => {
            let (host, path) = view_of(&mut process)?;
            // It has to end well before the program, also on a busy machine.
            let seconds = (millis / 2000).max(1);
            Some(std::thread::spawn(move || {
                let told = get(&host, &format!("{path}trace.json?seconds={seconds}"));
                i32::from(told.is_ok_and(|trace| trace.contains("traceEvents")))
            }))
        }
    };
    let output = process.output()?;
    is_over.store(true, Ordering::Relaxed);
    let rate = output.lines().find_map(|line| line.parse().ok()).context("it tells a rate")?;
    let looks = looker.map(|looker| looker.join().unwrap_or(0));
    ensure!(looks != Some(0), "nobody has seen its view");
    Ok(rate)
}

/// The host and the path of the view that a process serves.
fn view_of(process: &mut Process) -> Result<(String, String)> {
    loop {
        let line = process.line().context("it serves no view")?;
        if let Some((_, at)) = line.split_once("view at http://") {
            let (host, path) = at.trim().split_once('/').context("the address has a path")?;
            return Ok((host.to_owned(), format!("/{path}")));
        }
    }
}

/// Sends SIGKILL to a process that a program of this command has said to be its own.
pub fn kill(process: &str) -> Result<()> {
    let pid = process.parse().ok().and_then(Pid::from_raw).context("it says which process it is")?;
    kill_process(pid, Signal::KILL).context("ending it")
}

/// Asks a view.
pub fn get(host: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(host).context("connecting to the view")?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("what the view answers")?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "the view answers {:?}", answer.lines().next());
    Ok(answer)
}

/// Of a program with 128 workers, numbers as long as they get in a day.
fn snapshot() -> Snapshot {
    let names: Vec<String> = trust::Stats::default().iter().map(|(name, _)| name.to_owned()).collect();
    let worker = |number: usize| WorkerSample {
        values: (0..names.len()).map(|value| number as u64 * 1_000_003 + value as u64).collect(),
        state: "R".to_owned(),
        round_trips: vec![1; 11],
        ..WorkerSample::default()
    };
    let workers = (0..WORKERS).map(worker).collect();
    let sample = MachineSample {
        program: "wordcount".to_owned(),
        host: "alpha".to_owned(),
        names: names.clone(),
        workers,
        ..MachineSample::default()
    };
    Snapshot::new(vec![Seen { answers: true, sample, ..Seen::default() }], &[])
}

fn series(text: &str) -> usize {
    text.lines().filter(|line| !line.starts_with('#')).count()
}

fn metrics() -> Result<f64> {
    let snapshot = snapshot();
    let mut best = f64::INFINITY;
    for _ in 0..TIMES {
        let began = Instant::now();
        let text = render(&snapshot, Format::OpenMetrics);
        best = best.min(began.elapsed().as_secs_f64() * 1e6);
        ensure!(text.ends_with("# EOF\n") && series(&text) >= WORKERS * 20, "the metrics are not whole");
    }
    Ok(best)
}
