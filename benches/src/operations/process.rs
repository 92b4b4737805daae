//! A process that a sample is taken of: its first line, its end, and the view that it serves.

use crate::prelude::*;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A starter or a program, ended with this value.
pub struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
    began: Instant,
}

impl Process {
    pub fn start(program: &Program, variables: &[(&str, &str)]) -> Result<Process> {
        let words = program.words();
        let began = Instant::now();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).envs(variables.iter().copied());
        let stderr = if variables.is_empty() { Stdio::null() } else { Stdio::piped() };
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).spawn();
        let mut child = child.with_context(|| format!("{} cannot be started", words[0]))?;
        let lines = BufReader::new(child.stdout.take().context("its output is piped")?);
        Ok(Process { child, lines, began })
    }

    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let read = self.lines.read_line(&mut line).context("reading what it prints")?;
        ensure!(read > 0, "it ended without a line");
        Ok(line.trim().to_owned())
    }

    /// Since it was started.
    pub fn age_ms(&self) -> f64 {
        self.began.elapsed().as_secs_f64() * 1e3
    }

    /// Until it has ended; whether well.
    pub fn end(&mut self) -> Result<bool> {
        Ok(self.child.wait().context("waiting for its end")?.success())
    }

    /// The host and the path of the view that it serves.
    pub fn view(&mut self) -> Result<(String, String)> {
        let mut said = BufReader::new(self.child.stderr.take().context("its standard error is piped")?);
        let mut line = String::new();
        while said.read_line(&mut line)? > 0 {
            if let Some((_, at)) = line.split_once("view at http://") {
                let (host, path) = at.trim().split_once('/').context("the address has a path")?;
                let found = (host.to_owned(), format!("/{path}"));
                std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink())); // it ends with the process
                return Ok(found);
            }
            line.clear();
        }
        anyhow::bail!("it serves no view")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended already, unless a sample went wrong.
        let _ = self.child.kill();
        let _ = self.child.wait();
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
