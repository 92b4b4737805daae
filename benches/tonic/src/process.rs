//! Processes that a program starts of itself, and leads by lines on their standard streams. Each ends when it finds its
//! input closed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

pub struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    fn start(own: usize) -> Result<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args_os().skip(1)).args(["--own", &own.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().ok_or("a process has no input")?;
        let stdout = child.stdout.take().ok_or("a process has no output")?;
        Ok(Process { child, stdin, stdout: BufReader::new(stdout) })
    }

    fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            return Err("a process has ended too early".into());
        }
        Ok(line.trim_end().to_owned())
    }
}

/// Starts this program so many times with its own words, each told which of them it is; each says its port, and is told
/// those of all.
pub fn start_all(count: usize) -> Result<Vec<Process>> {
    let mut processes: Vec<Process> = (0..count).map(Process::start).collect::<Result<_>>()?;
    let ports: Vec<String> = processes.iter_mut().map(Process::hear).collect::<Result<_>>()?;
    tell_all(&mut processes, &ports.join(" "))?;
    Ok(processes)
}

/// Sends all a line, and returns the answer of each.
pub fn tell_all(processes: &mut [Process], line: &str) -> Result<Vec<String>> {
    for process in processes.iter_mut() {
        writeln!(process.stdin, "{line}")?;
    }
    processes.iter_mut().map(Process::hear).collect()
}

/// Waits for the end of all.
pub fn end_all(processes: Vec<Process>) -> Result<()> {
    for Process { mut child, stdin, .. } in processes {
        drop(stdin);
        child.wait()?;
    }
    Ok(())
}
