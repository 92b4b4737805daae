//! A process that this program has started: the lines that it prints, and its end, each within a time limit. It is
//! killed when its value is dropped.
//!
//! Not here: which programs there are, and how they are found or built (programs.rs).

use crate::basics::*;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

/// Between two looks at a process that has closed its output.
const PAUSE: Duration = Duration::from_micros(200);

/// A process, and its output by lines.
pub struct Process {
    child: Child,
    lines: Receiver<io::Result<String>>,
    began: Instant,
    limit: Duration,
}

impl Process {
    /// Starts it; each wait for a line, for its whole output or for its end lasts for `limit` at most.
    pub fn start(command: &mut Command, limit: Duration) -> Result<Process> {
        let began = Instant::now();
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("{} cannot be started", command.get_program().display()))?;
        let stdout = child.stdout.take().context("its output is piped")?;
        let (send, lines) = mpsc::channel();
        // It ends with the output, or when nobody reads any more.
        thread::spawn(move || BufReader::new(stdout).lines().try_for_each(|line| send.send(line)));
        Ok(Process { child, lines, began, limit })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Since it was started.
    pub fn age_ms(&self) -> f64 {
        self.began.elapsed().as_secs_f64() * 1e3
    }

    /// Writes this to its input, which is piped, and closes that.
    pub fn tell(&mut self, input: &[u8]) -> Result<()> {
        let mut stdin = self.child.stdin.take().context("its input is piped")?;
        stdin.write_all(input).context("writing its input")
    }

    fn line_until(&mut self, deadline: Instant) -> Result<Option<String>> {
        match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => line.map(Some).context("the output of the child"),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => bail!("it was not done after {:?}", self.limit),
        }
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> Result<String> {
        self.line_until(Instant::now() + self.limit)?.context("it ended without a line")
    }

    /// Its output until it ends well.
    pub fn output(&mut self) -> Result<String> {
        let (deadline, mut output) = (Instant::now() + self.limit, String::new());
        while let Some(line) = self.line_until(deadline)? {
            output += &line;
            output.push('\n');
        }
        let status = self.end()?;
        ensure!(status.success(), "it ended with {status}: {output}");
        Ok(output)
    }

    /// How it ended, if it has.
    pub fn status(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("the end of the child")
    }

    /// Waits for its end.
    pub fn end(&mut self) -> Result<ExitStatus> {
        let deadline = Instant::now() + self.limit;
        while self.line_until(deadline)?.is_some() {}
        loop {
            if let Some(status) = self.status()? {
                return Ok(status);
            }
            ensure!(Instant::now() < deadline, "it has not ended after {:?}", self.limit);
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; nothing it holds is to be kept.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Process {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::piped());
        Process::start(&mut command, limit).unwrap()
    }

    #[test]
    fn a_process_is_heard_and_ends() {
        let mut process = shell("read word; echo $word; echo more", Duration::from_secs(60));
        process.tell(b"hello\n").unwrap();
        assert_eq!((process.line().unwrap(), process.output().unwrap()), ("hello".into(), "more\n".into()));
        let error = shell("echo why; exit 3", Duration::from_secs(60)).output().unwrap_err().to_string();
        assert!(error.contains('3') && error.contains("why"), "{error}");
    }

    #[test]
    fn a_process_that_hangs_is_told() {
        let mut process = shell("exec sleep 1000", Duration::from_millis(20));
        assert!(process.line().unwrap_err().to_string().contains("not done after 20ms"));
        assert!(process.end().is_err() && process.status().unwrap().is_none());
    }
}
