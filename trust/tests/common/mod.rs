//! Shared parts of the tests: a watchdog, properties that note their drop, a child process of this very test binary,
//! and the process's use of resources. No test lives here.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::HashMap;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// Seconds, on an idle machine, after which a test counts as hung.
pub const LIMIT_S: u64 = 60;

/// Aborts the process, with the test's name, if the test is not over in [`LIMIT_S`] seconds.
#[macro_export]
macro_rules! watchdog {
    () => {
        $crate::watchdog!($crate::common::LIMIT_S)
    };
    ($limit_s:expr) => {{
        fn here() {}
        fn name_of<T>(_: T) -> &'static str {
            std::any::type_name::<T>()
        }
        $crate::common::Watch::start(name_of(here).trim_end_matches("::here"), $limit_s)
    }};
}

/// Amount of work of a test: `all` of it in the tier `stress`, which sets `STRESS_SECONDS`; `some` in `cargo test`,
/// which is to be quick.
pub fn effort<T>(some: T, all: T) -> T {
    if std::env::var_os("STRESS_SECONDS").is_some() { all } else { some }
}

/// A test that is being watched, until this is dropped.
pub struct Watch(u64);

/// State of a watched test.
struct Watched {
    name: &'static str,
    limit: Duration,
    clock: limits::Clock,
    /// Time of the next look at the clock: not before the test can be over, for a look takes processor time, which some
    /// tests measure.
    next: Instant,
    note: String,
}

impl Watched {
    fn hangs(&mut self) -> bool {
        if Instant::now() < self.next {
            return false;
        }
        let hangs = self.clock.shown() > self.limit;
        self.next = Instant::now() + self.clock.period();
        hangs
    }
}

fn watched() -> &'static Mutex<HashMap<u64, Watched>> {
    static WATCHED: OnceLock<Mutex<HashMap<u64, Watched>>> = OnceLock::new();
    WATCHED.get_or_init(|| {
        thread::spawn(|| {
            loop {
                thread::sleep(Duration::from_millis(250));
                for test in watched().lock().unwrap().values_mut() {
                    if test.hangs() {
                        // Past the harness's capture, so that it is seen.
                        loud(&format!("WATCHDOG: `{}` hangs; aborting. {}", test.name, test.note));
                        std::process::abort();
                    }
                }
            }
        });
        Mutex::default()
    })
}

impl Watch {
    pub fn start(name: &'static str, limit_s: u64) -> Watch {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let limit = Duration::from_secs(limit_s);
        let next = Instant::now() + limit;
        let test = Watched { name, limit, clock: limits::Clock::start(), next, note: String::new() };
        watched().lock().unwrap().insert(number, test);
        Watch(number)
    }
    /// Sets the text to print if the test hangs from here on, for instance the seed.
    pub fn note(&self, note: String) {
        if let Some(watched) = watched().lock().unwrap().get_mut(&self.0) {
            watched.note = note;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        watched().lock().unwrap().remove(&self.0);
    }
}

/// Writes a line that the test harness does not capture.
pub fn loud(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Serves this thread's trustee until `done`. The watchdog bounds it.
pub fn serve_until(done: impl Fn() -> bool) {
    while !done() {
        trust::yield_now();
        thread::yield_now();
    }
}

/// Joins a thread while this one serves: the end of that thread may have to wait for answers of this one. (It is not
/// over when `is_finished` says so, for its trustee ends with its thread-locals.)
pub fn join_and_serve<R: Send + 'static>(thread: thread::JoinHandle<R>) -> R {
    let joiner = thread::spawn(move || thread.join());
    serve_until(|| joiner.is_finished());
    joiner.join().unwrap().unwrap()
}

/// Waits in a plain loop, without serving. For closures that hold a trustee up. The watchdog bounds it.
pub fn stand_until(done: impl Fn() -> bool) {
    while !done() {
        thread::yield_now();
    }
}

/// The text of a panic.
pub fn text(payload: &(dyn std::any::Any + Send)) -> String {
    match payload.downcast_ref::<&str>() {
        Some(text) => (*text).to_owned(),
        None => payload.downcast_ref::<String>().cloned().unwrap_or_else(|| "not a text".to_owned()),
    }
}

/// Runs `f`, which must panic, and returns the text of the panic.
pub fn panic_of<R>(f: impl FnOnce() -> R) -> String {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)) {
        Ok(_) => panic!("a panic was expected"),
        Err(payload) => text(&*payload),
    }
}

/// Counter of the drops of some values.
#[derive(Clone, Default)]
pub struct Drops(Arc<(AtomicUsize, Mutex<Vec<ThreadId>>)>);

impl Drops {
    pub fn count(&self) -> usize {
        self.0.0.load(Ordering::SeqCst)
    }
    /// The threads on which the values were dropped, in order.
    pub fn threads(&self) -> Vec<ThreadId> {
        self.0.1.lock().unwrap().clone()
    }
    /// A value whose drop is counted here.
    pub fn value<T>(&self, value: T) -> Counted<T> {
        Counted { value, canary: ALIVE, drops: self.clone() }
    }
}

const ALIVE: u64 = 0x5EED_0F11_FE00_1234;

/// A value whose drop is counted, and that knows if it has been dropped.
pub struct Counted<T> {
    pub value: T,
    canary: u64,
    drops: Drops,
}

impl<T> Counted<T> {
    /// Panics if this memory is a dropped value's.
    pub fn check(&self) {
        assert_eq!(self.canary, ALIVE, "a dropped property was used");
    }
}

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        self.check();
        // Volatile: the store is meant to stay in memory that is freed next.
        #[allow(unsafe_code)]
        // SAFETY: the field is ours.
        unsafe {
            std::ptr::write_volatile(&raw mut self.canary, 0);
        }
        self.drops.0.1.lock().unwrap().push(thread::current().id());
        self.drops.0.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Panics when it is dropped, once it is armed.
pub struct PanicsOnDrop(pub bool);

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        if self.0 && !thread::panicking() {
            panic!("dropped PanicsOnDrop");
        }
    }
}

const CHILD: &str = "TRUST_TEST_CHILD";

/// Is this process the child that [`run_child`] started?
pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs one test of this binary in a process of its own, where [`is_child`] is true.
pub fn run_child(test: &str) -> Output {
    child(test).output().unwrap()
}

/// Same as [`run_child`], for a caller that starts it in another way and talks to it. Its outputs are pipes.
pub fn child(test: &str) -> Command {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture", "--include-ignored"]).env(CHILD, "1");
    child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    child
}

/// Standard error of a child, for messages.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Resident memory of this process, in bytes.
pub fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Mappings of this process.
pub fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

/// Open descriptors of this process.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// CPU time of this process's living threads so far.
pub fn cpu_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of_task = |task: std::io::Result<std::fs::DirEntry>| -> u64 {
        let stat = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap_or_default();
        stat.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
    };
    Duration::from_nanos(tasks.map(of_task).sum())
}

/// A thread that is a trustee and does nothing but serve, until it is told to end.
pub struct Server {
    pub trustee: trust::TrusteeReference,
    stop: Arc<std::sync::atomic::AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    pub fn start() -> Server {
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (send, receive) = std::sync::mpsc::channel();
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            send.send(trust::local_trustee()).unwrap();
            serve_until(|| stopped.load(Ordering::SeqCst));
        });
        Server { trustee: receive.recv().unwrap(), stop, thread: Some(thread) }
    }
    /// Lets the thread return; does not wait for its end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }
    /// Ends the thread. Serves this thread's trustee meanwhile.
    pub fn end(mut self) {
        self.stop();
        join_and_serve(self.thread.take().unwrap());
    }
}
