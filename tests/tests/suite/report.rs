//! Verdict on each behaviour on one kind of rack: one program runs them while all goes well; after each behaviour that
//! hangs or ends its program, a new program continues with the next one.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::ChildStdout;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use limits::Clock;
use rustix::process::Signal;

use crate::program::Started;

/// Most programs of one rack that may hang or die. Further failures there take too long to wait for, and have the same
/// cause.
const PROGRAMS: usize = 5;

/// Verdicts on the behaviours, so far.
pub struct Report {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// `None`: it holds.
    verdicts: HashMap<String, Option<String>>,
    /// Set when no more verdicts follow: `Ok` if the last program ended as it should, or the reason why not.
    end: Option<Result<(), String>>,
}

/// Progress of a program.
#[derive(Default)]
struct Course {
    /// The behaviour that has begun and has not ended.
    current: Option<String>,
    /// The one that ended last.
    last: Option<String>,
    has_failures: bool,
    /// It has nothing more to run.
    is_over: bool,
}

impl Report {
    /// Runs all behaviours, by programs that `start` starts behind the behaviour that it is given. Each may take this
    /// long on an idle machine.
    pub fn begin(start: impl Fn(Option<&str>) -> Started + Send + 'static, limit: Duration) -> Arc<Report> {
        let report = Arc::new(Report { state: Mutex::default(), changed: Condvar::new() });
        let runner = Runner(Arc::clone(&report));
        thread::spawn(move || runner.run_all(start, limit));
        report
    }

    /// Waits for the verdict on this behaviour; an error if it does not hold.
    pub fn verdict(&self, name: &str) -> Result<(), Failed> {
        let state = self.wait_for(|state| state.verdicts.contains_key(name));
        match (state.verdicts.get(name), &state.end) {
            (Some(None), _) => Ok(()),
            (Some(Some(why)), _) => Err(why.as_str().into()),
            (None, Some(Err(why))) => Err(format!("it was not reached: {why}").into()),
            (None, _) => Err("the program has no such behaviour".into()),
        }
    }

    /// Waits for the end of the last program; an error unless its exit status matches its output.
    pub fn end(&self) -> Result<(), Failed> {
        let state = self.wait_for(|_| false);
        state.end.clone().unwrap_or(Ok(())).map_err(Failed::from)
    }

    /// Waits until it is so, or nothing changes any more.
    fn wait_for(&self, is_so: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let state = self.state();
        let waits = |state: &mut State| state.end.is_none() && !is_so(state);
        self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }
}

/// Marks the report as ended on drop, also after a panic.
struct Runner(Arc<Report>);

impl Drop for Runner {
    fn drop(&mut self) {
        self.0.change(|state| _ = state.end.get_or_insert_with(|| Err("the harness has panicked".to_owned())));
    }
}

impl Runner {
    fn run_all(&self, start: impl Fn(Option<&str>) -> Started, limit: Duration) {
        let mut after = None;
        for number in 1.. {
            let (course, end) = self.run(start(after.as_deref()), limit);
            let why = end.clone().err().unwrap_or_default();
            if let Some(name) = &course.current {
                self.0.change(|state| _ = state.verdicts.insert(name.clone(), Some(why)));
            }
            after = course.current.or(course.last);
            let goes_on = !course.is_over && after.is_some();
            if !goes_on || number == PROGRAMS {
                let many = format!("{PROGRAMS} programs of this rack have hung or died, the last: ");
                let end = if goes_on { end.map_err(|why| many + &why) } else { end };
                return self.0.change(|state| state.end = Some(end));
            }
        }
    }

    /// Follows one program to its end.
    fn run(&self, started: Started, limit: Duration) -> (Course, Result<(), String>) {
        let mut course = Course::default();
        let end = self.follow(&lines_of(started.stdout), &mut course, limit);
        // No effect if it has ended; the launcher ends its machines.
        started.first.signal(Signal::KILL);
        let ended = started.first.end();
        let end = match end {
            Ok(()) if course.is_over && ended.status.success() != course.has_failures => Ok(()),
            Ok(()) => Err(format!("the program ended ({})", ended.status)),
            Err(why) => Err(why),
        };
        (course, end.map_err(|why| format!("{why}; it said:\n{}", ended.stderr)))
    }

    /// Reads a program's output until it ends, or hangs.
    fn follow(&self, lines: &Receiver<String>, course: &mut Course, limit: Duration) -> Result<(), String> {
        let mut since = Instant::now();
        let mut clock = Clock::start();
        let mut looked = since;
        loop {
            match lines.recv_timeout(clock.period()) {
                Ok(line) if self.read(&line, course) => {
                    since = Instant::now();
                    looked = since;
                    clock = Clock::start();
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if looked.elapsed() >= clock.period() {
                if clock.shown() > limit {
                    return Err(format!("it hung for {:.0?}, which are {limit:?} of an idle machine", since.elapsed()));
                }
                looked = Instant::now();
            }
        }
    }

    /// Reads a line; returns whether it is one of the suite.
    fn read(&self, line: &str, course: &mut Course) -> bool {
        // The launcher puts the machine's name before each line.
        let Some((_, words)) = line.split_once("suite: ") else { return false };
        let mut ended = |name: &str, why: Option<&str>| {
            course.current = None;
            course.last = Some(name.to_owned());
            course.has_failures |= why.is_some();
            self.0.change(|state| _ = state.verdicts.insert(name.to_owned(), why.map(str::to_owned)));
        };
        if let Some(name) = words.strip_prefix("begin ") {
            course.current = Some(name.to_owned());
        } else if let Some(name) = words.strip_prefix("ok ") {
            ended(name, None);
        } else if let Some((name, why)) = words.strip_prefix("failed ").and_then(|rest| rest.split_once(": ")) {
            ended(name, Some(why));
        } else if words == "end" {
            course.is_over = true;
        } else {
            return false;
        }
        true
    }
}

fn lines_of(stdout: ChildStdout) -> Receiver<String> {
    let (send, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    lines
}
