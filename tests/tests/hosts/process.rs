//! A process on a host: start, output, end.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::network::Host;

/// Far longer than anything here takes, so that a hang fails instead of hanging.
pub const TIME_LIMIT: Duration = limits::HANG;

/// Output of a process on one of its streams so far.
#[derive(Debug, Default)]
struct Written {
    bytes: Vec<u8>,
    is_over: bool,
}

type Stream = Arc<(Mutex<Written>, Condvar)>;

/// A process that this test has started; killed on drop.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdout: Stream,
    stderr: Stream,
}

/// Status and output of an ended process.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Process {
    /// Starts a program on a host, in a process group of its own.
    pub fn start(host: &Host, mut command: Command) -> Process {
        use std::os::unix::process::CommandExt;
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("RUST_BACKTRACE", "0");
        let mut child = host.namespace.inside(|| command.spawn().unwrap());
        let stdout = collect(child.stdout.take().unwrap());
        let stderr = collect(child.stderr.take().unwrap());
        Process { child, stdout, stderr }
    }

    pub fn id(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits until the standard output of the process has this text; returns all of it.
    #[track_caller]
    pub fn wait_for_output(&self, text: &str) -> String {
        wait_for(&self.stdout, text).unwrap_or_else(|written| {
            panic!("no {text:?} in {written:?}, stderr: {:?}", written_to(&self.stderr));
        })
    }

    /// Same as `wait_for_output`, for the standard error.
    #[track_caller]
    pub fn wait_for_error(&self, text: &str) -> String {
        wait_for(&self.stderr, text).unwrap_or_else(|written| panic!("no {text:?} in {written:?}"))
    }

    pub fn signal(&self, signal: Signal) {
        send(self.id(), signal);
    }

    /// Waits for its end.
    #[track_caller]
    pub fn end(mut self) -> Ended {
        let left = Watched::new([self.id()]).wait(TIME_LIMIT);
        assert!(left.is_ok(), "not ended after {TIME_LIMIT:?}; stderr: {:?}", written_to(&self.stderr));
        let status = self.child.wait().unwrap();
        let whole = |stream: &Stream| {
            let (written, changed) = &**stream;
            let is_under_way = |written: &mut Written| !written.is_over;
            let (written, _) = changed.wait_timeout_while(written.lock().unwrap(), TIME_LIMIT, is_under_way).unwrap();
            assert!(written.is_over, "somebody holds the streams of an ended process open");
            String::from_utf8_lossy(&written.bytes).into_owned()
        };
        Ended { status, stdout: whole(&self.stdout), stderr: whole(&self.stderr) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It is gone already, or the test has failed, or it is a daemon.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut source: impl Read + Send + 'static) -> Stream {
    let stream = Stream::default();
    let target = Arc::clone(&stream);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = source.read(&mut buffer).unwrap_or(0);
            let mut written = target.0.lock().unwrap();
            written.bytes.extend_from_slice(&buffer[..count]);
            written.is_over = count == 0;
            target.1.notify_all();
            if count == 0 {
                return;
            }
        }
    });
    stream
}

fn written_to(stream: &Stream) -> String {
    String::from_utf8_lossy(&stream.0.lock().unwrap().bytes).into_owned()
}

/// Returns the output when `text` is in it, or at the end.
fn wait_for(stream: &Stream, text: &str) -> Result<String, String> {
    let (written, changed) = &**stream;
    let is_absent = |written: &mut Written| {
        !written.is_over && !written.bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    drop(changed.wait_timeout_while(written.lock().unwrap(), TIME_LIMIT, is_absent).unwrap());
    let all = written_to(stream);
    if all.contains(text) { Ok(all) } else { Err(all) }
}

/// Sends a signal to a process that may have ended.
pub fn send(pid: i32, signal: Signal) {
    match kill_process(Pid::from_raw(pid).unwrap(), signal) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => panic!("{signal:?} to {pid}: {error}"),
    }
}

/// Processes to wait for.
pub struct Watched(Vec<(i32, std::os::fd::OwnedFd)>);

impl Watched {
    /// Watches the living ones of these.
    pub fn new(pids: impl IntoIterator<Item = i32>) -> Watched {
        let open = |pid| pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).ok().map(|fd| (pid, fd));
        Watched(pids.into_iter().filter_map(open).collect())
    }

    /// Waits until all have ended, or returns those that have not.
    pub fn wait(mut self, limit: Duration) -> Result<(), Vec<i32>> {
        let deadline = Instant::now() + limit;
        while let Some((_, fd)) = self.0.last() {
            let left = deadline.saturating_duration_since(Instant::now());
            let left_spec = Timespec::try_from(left).unwrap();
            match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&left_spec)) {
                Ok(0) if left.is_zero() => return Err(self.0.into_iter().map(|(pid, _)| pid).collect()),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => drop(self.0.pop()),
                Err(error) => panic!("poll: {error}"),
            }
        }
        Ok(())
    }
}
