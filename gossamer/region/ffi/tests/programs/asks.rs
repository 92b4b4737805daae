//! Threads that go to other machines as others wish: `gossamer-launch threads` and `move`, the policy (`--move self`),
//! and machines that are killed while threads are on their way.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use limits::wait_until;

use crate::killed::{PROMISE, children, is_running};
use crate::moves::build;
use crate::{LAUNCH, Place, RUN, TWO_ASKED, run, same, start, succeeded};

/// A start of two machines whose program has a page, with more options.
macro_rules! viewed {
    ($($option:literal),*) => {
        [LAUNCH, RUN, "--local", "2", "--no-prefix", "--region", "auto", "--view", $($option),*]
    };
}

/// Machines that act as those of two hosts, where all threads begin on the first one and may go by themselves.
const BY_THEMSELVES: &[&str] = &viewed!["--pretend-hosts", "2", "--threads-at", "4,0", "--move", "self"];
/// The same, where they go as they are asked, and the program has a page.
const VIEWED: &[&str] = &viewed!["--threads-at", "4,0", "--move", "asked"];

/// Machines that act as those of two hosts, each with two threads, which may go by themselves.
const PAIRS: &[&str] = &viewed!["--pretend-hosts", "2", "--threads-at", "2,2", "--move", "self"];

/// Machines of one host, on which threads that share a page begin apart, and may go by themselves.
const APART: &[&str] = &viewed!["--threads-at", "2,1", "--move", "self"];

pub fn trials(place: &Arc<Place>, is_ignored: bool) -> Vec<Trial> {
    let all: [(&str, crate::Test); 6] = [
        ("moves::from_outside", from_outside),
        ("moves::by_themselves", by_themselves),
        ("moves::once_untied", once_untied),
        ("moves::to_their_pages", to_their_pages),
        ("moves::change_places", change_places),
        ("moves::timed_killed_amid_moves", killed_amid_moves),
    ];
    let trial = |(name, test): (&'static str, crate::Test)| {
        let place = Arc::clone(place);
        Trial::test(name, move || test(&place)).with_ignored_flag(is_ignored)
    };
    all.into_iter().map(trial).collect()
}

/// All threads begin on one machine and end on both, with the answer of one process; the page says why.
fn by_themselves(place: &Place) -> Result<(), Failed> {
    let built = build(place, "spreads.c", "gcc")?;
    let running = Running::start(place, BY_THEMSELVES, &built, until_told("2"))?;
    running.wait_for("metrics", ",reason=\"idle core\"} ");
    running.wait_for("sample.json", "\"came_from\":[0,\"idle core\"],\"tie\":\"\"}");
    running.end(&built)
}

/// Threads that were tied when they were to go are tried again, and go once they no longer are.
fn once_untied(place: &Place) -> Result<(), Failed> {
    let built = build(place, "spreads.c", "gcc")?;
    let running = Running::start(place, BY_THEMSELVES, &built, ["2", "tied"])?;
    running.wait_for("metrics", ",reason=\"idle core\"} ");
    running.end(&built)
}

/// Threads that share a page meet, as `threads` says, and wait for it no more; they have the answer of one process.
fn to_their_pages(place: &Place) -> Result<(), Failed> {
    let built = build(place, "gathers.c", "gcc")?;
    for fabric in ["shm", "tcp"] {
        let starter = [APART, &["--fabric", fabric]].concat();
        let running = Running::start(place, &starter, &built, until_told("2"))?;
        // Mostly the one on machine 1; the two, if that begins late.
        let has_met = |listed: &Output| String::from_utf8_lossy(&listed.stdout).contains(": its pages");
        wait_until("a thread has gone to its pages", || {
            running.ask(place, &["threads"]).is_ok_and(|one| has_met(&one))
        });
        running.end(&built)?;
    }
    Ok(())
}

/// Of threads that share pages crosswise two change places, as their hosts are full.
fn change_places(place: &Place) -> Result<(), Failed> {
    let built = build(place, "gathers.c", "gcc")?;
    let running = Running::of(on_two_processors(&start(place, PAIRS, &built))?, ["2", "pairs"])?;
    wait_until("two threads have changed places", || {
        let listed = running.ask(place, &["threads"]);
        let have = |listed: &str, machine| listed.matches(&format!("m{machine}: its pages")).count() == 1;
        listed.is_ok_and(|listed| {
            let listed = String::from_utf8_lossy(&listed.stdout);
            have(&listed, 0) && have(&listed, 1)
        })
    });
    running.end(&built)
}

/// The same command, on two processors at most: with more of them there is room for all threads on one host.
fn on_two_processors(command: &Command) -> Result<Command, Failed> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).ok_or("no processors")?;
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse().ok()?)
    };
    let two = allowed.trim().split(',').filter_map(range).flatten().take(2);
    let two: Vec<String> = two.map(|processor| processor.to_string()).collect();
    let mut pinned = Command::new("taskset");
    pinned.args(["-c", &two.join(",")]).arg(command.get_program()).args(command.get_args());
    pinned.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Ok(pinned)
}

/// Words of a program whose threads have to be seen on so many machines, and which computes until its input ends.
const fn until_told(machines: &str) -> [&str; 2] {
    [machines, "until-told"]
}

/// A program that computes until its standard input ends, with the address of its page.
struct Running(Child, String);

impl Running {
    /// Starts it with these words.
    fn start(place: &Place, starter: &[&str], built: &Path, words: [&str; 2]) -> Result<Running, Failed> {
        Running::of(start(place, starter, built), words)
    }

    /// Starts a command with these words.
    fn of(mut command: Command, words: [&str; 2]) -> Result<Running, Failed> {
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut lines = BufReader::new(child.stderr.take().ok_or("no standard error")?).lines();
        let url = lines.find_map(|line| Some(line.ok()?.split_once("view at ")?.1.trim().to_owned()));
        // The rest is read, so that nobody waits for room.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Running(child, url.ok_or("no address of a page")?))
    }

    /// Runs `gossamer-launch` about it.
    fn ask(&self, place: &Place, words: &[&str]) -> Result<Output, Failed> {
        let mut command = Command::new(&place.launcher);
        run(command.arg(words[0]).arg(&self.1).args(&words[1..]))
    }

    /// Returns an answer of its page's server.
    fn get(&self, question: &str) -> Result<String, Failed> {
        let (host, path) = self.1.trim_start_matches("http://").split_once('/').ok_or("no path")?;
        let mut page = TcpStream::connect(host)?;
        write!(page, "GET /{path}{question} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        page.read_to_string(&mut text)?;
        Ok(text)
    }

    fn wait_for(&self, question: &str, part: &str) {
        wait_until(part, || self.get(question).is_ok_and(|text| text.contains(part)));
    }

    /// Ends it; it has the answer of one process.
    fn end(mut self, built: &Path) -> Result<(), Failed> {
        drop(self.0.stdin.take());
        let status = self.0.wait()?;
        let mut printed = String::new();
        self.0.stdout.take().ok_or("no output")?.read_to_string(&mut printed)?;
        if !status.success() {
            return Err(format!("{status}: {printed}").into());
        }
        same("the program", &printed, succeeded(&run(Command::new(built).arg("1"))?)?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Threads are listed with function, machine, moves and ties, and go where the user says; so they are in `top`, on the
/// page and in the metrics.
fn from_outside(place: &Place) -> Result<(), Failed> {
    let built = build(place, "spreads.c", "gcc")?;
    let running = Running::start(place, VIEWED, &built, until_told("1"))?;
    let begun = Instant::now();
    let table = loop {
        // While it starts no machine answers.
        let listed = running.ask(place, &["threads"])?;
        let table = String::from_utf8_lossy(&listed.stdout).into_owned();
        if table.matches(" computes ").count() == 4 {
            break table;
        }
        if begun.elapsed() > limits::HANG {
            return Err(format!("four threads are not listed: {listed:?}").into());
        }
    };
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = table.lines().map(words).collect();
    let is_main = |row: &&Vec<String>| row.get(1).is_some_and(|function| function == "main");
    let main = rows.iter().find(is_main).ok_or_else(|| format!("main is not listed: {table}"))?;
    let one = rows.iter().find(|row| row.get(1).is_some_and(|function| function == "computes")).ok_or("no thread")?;
    if !main.join(" ").contains("it is the main thread") || one[2] != "0" || one[4] != "0" {
        return Err(format!("not as it is: {table}").into());
    }
    let refused = running.ask(place, &["move", &main[0], "1"])?;
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    if refused.status.code() != Some(1) || !told.contains("stays: it is the main thread") {
        return Err(format!("main moves: {refused:?}").into());
    }
    let none = running.ask(place, &["move", &one[0], "7"])?;
    if none.status.code() != Some(1) || !String::from_utf8_lossy(&none.stderr).contains("machines 0 to 1") {
        return Err(format!("there is no machine 7: {none:?}").into());
    }
    for to in ["1", "0", "1"] {
        let moved = running.ask(place, &["move", &one[0], to])?;
        same("move", succeeded(&moved)?, &format!("thread {} is on machine {to}\n", one[0]))?;
    }
    let listed = running.ask(place, &["threads"])?;
    let rows: Vec<Vec<String>> = succeeded(&listed)?.lines().map(words).collect();
    let now = rows.iter().find(|row| row.first() == one.first()).ok_or("it is not listed any more")?;
    if now[2] != "1" || now[4] != "3" || now[5..] != ["m0:", "asked"] {
        return Err(format!("it has moved three times, and is on machine 1: {listed:?}").into());
    }
    let top = running.ask(place, &["top", "--once"])?;
    let of_one = format!("\nthread {} `computes` at m1: ", one[0]);
    let told = succeeded(&top)?;
    let is_told = |part: &str| told.contains(part);
    if !is_told(&of_one) || !is_told(" 3 move(s), came from m0: asked\n") || !is_told(", 3 move(s) (asked: 3)\n") {
        return Err(format!("not as it is: {told}").into());
    }
    running.wait_for("sample.json", &format!("\"threads\":[{{\"id\":\"{}\",\"function\":\"computes\"", one[0]));
    running.wait_for("sample.json", "\"moves\":3,\"came_from\":[0,\"asked\"],\"tie\":\"\"}");
    running.wait_for("sample.json", "\"came_from\":null,\"tie\":\"it is the main thread");
    running.wait_for("metrics", ",reason=\"asked\"} 2\n"); // from machine 0
    running.end(&built)
}

/// Threads move all the time, and a machine is killed: all ends in the usual time.
fn killed_amid_moves(place: &Place) -> Result<(), Failed> {
    let built = build(place, "moves.c", "gcc")?;
    for victim in 0..2 {
        let mut command = start(place, TWO_ASKED, &built);
        command.args(["2", "1000000"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut launcher = command.spawn()?;
        let begun = Instant::now();
        let machines = loop {
            let machines = children(launcher.id());
            if machines.len() == 2 && begun.elapsed() > Duration::from_millis(1500) {
                break machines;
            }
            if begun.elapsed() > limits::HANG {
                launcher.kill()?;
                return Err(format!("the machines have not begun: {machines:?}").into());
            }
            std::thread::yield_now();
        };
        let killed = Command::new("kill").args(["-KILL", &machines[victim].to_string()]).status()?;
        let since = Instant::now();
        let mut told = String::new();
        launcher.stderr.take().ok_or("no standard error")?.read_to_string(&mut told)?;
        let status = launcher.wait()?;
        let took = since.elapsed();
        let left: Vec<&u32> = machines.iter().filter(|pid| is_running(**pid)).collect();
        let named = told.contains(&format!("machine {victim} (pid {}) was killed by signal 9", machines[victim]));
        if !killed.success()
            || status.code() != Some(137)
            || !named
            || took >= limits::bound(PROMISE)
            || !left.is_empty()
        {
            return Err(format!("machine {victim}: {status} after {took:?}, left {left:?}, told: {told}").into());
        }
    }
    Ok(())
}
