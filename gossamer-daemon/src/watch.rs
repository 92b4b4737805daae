//! Watches the machines of a program until the last has gone, and sees to it that they share one fate.
//!
//! One thread, one `poll` over: the launcher's signals, each machine's process (pidfd) and control channel. What is
//! known is a handful of facts, each set at most once:
//!
//! - `finished`: machine 0 has sent Finished; the others were told to end
//! - `interrupted`: the launcher got a signal; it was passed on
//! - `death`: the first machine that died; the others were told to end. After an interruption a death is no news,
//!   only `broken` is set then
//! - `kill_at`: when all that is left gets SIGKILL; `killed`: it was sent
//!
//! Invariants: a machine's process group is killed while the dead process still holds its number, so never a
//! stranger's; the control channel is read to its end before an exit is judged, so a last word always counts.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use gossamer::control::{Control, ControlError, Message};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::launch::LaunchError;
use crate::outcome::{Cause, Death, Outcome};
use crate::signals::{Signals, describe};

/// How long ending may take before the rest is killed.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// After a machine has died, for the others to end by themselves. Well below a second, the promise of the whole.
    pub after_death: Duration,
    /// After a signal to the launcher.
    pub after_signal: Duration,
    /// After the program has finished, for the machines other than 0.
    pub after_finish: Duration,
}

impl Default for Bounds {
    /// 250 ms, 3 s, 5 s.
    fn default() -> Self {
        Bounds {
            after_death: Duration::from_millis(250),
            after_signal: Duration::from_secs(3),
            after_finish: Duration::from_secs(5),
        }
    }
}

/// How long a killed process may take to go before the launcher gives up on it.
const AFTER_KILL: Duration = Duration::from_secs(5);
/// The most messages that are read from one machine before the others get their turn.
const MESSAGES_AT_ONCE: usize = 16;

/// One machine: a child process and the channel to it. Killed when dropped alive.
pub(crate) struct Machine {
    index: u16,
    pid: Pid,
    child: Child,
    process: OwnedFd,
    control: Option<Control>, // None: the machine has closed its end
    ready: bool,
    failed: Option<String>,
    exit: Option<ExitStatus>,
}

impl Machine {
    pub(crate) fn new(index: u16, mut child: Child, control: Control) -> Result<Machine, LaunchError> {
        let opened = match i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            Some(pid) => pidfd_open(pid, PidfdFlags::empty()).map(|process| (pid, process)),
            None => Err(Errno::SRCH),
        };
        match opened {
            Ok((pid, process)) => {
                let (control, ready, failed, exit) = (Some(control), false, None, None);
                Ok(Machine { index, pid, child, process, control, ready, failed, exit })
            }
            Err(error) => {
                let _ = child.kill(); // the error to tell is that of pidfd_open
                let _ = child.wait();
                Err(LaunchError::system("watch a process (pidfd_open, Linux 5.3)")(error))
            }
        }
    }

    fn alive(&self) -> bool {
        self.exit.is_none()
    }

    /// Sends a signal to the machine and all it has started. Must not be called after the exit was collected.
    fn signal(&self, signal: Signal) {
        debug_assert!(self.alive());
        let _ = kill_process_group(self.pid, signal); // fails when the machine is gone already
    }

    fn tell_to_end(&self, reason: &str) {
        if let Some(control) = &self.control {
            let _ = control.send(&Message::End { reason: reason.to_owned() }); // fails when the machine is gone already
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if self.alive() {
            self.signal(Signal::KILL);
            let mut process = [PollFd::new(&self.process, PollFlags::IN)];
            let _ = poll(&mut process, Some(&timespec(AFTER_KILL)));
            let _ = self.child.try_wait(); // where even that fails there is nobody left to tell
        }
    }
}

/// What one `poll` has seen, by position in `Watch::machines`.
#[derive(Default)]
struct Events {
    signalled: bool,
    exited: Vec<usize>,
    talking: Vec<usize>,
}

pub(crate) struct Watch {
    machines: Vec<Machine>,
    bounds: Bounds,
    finished: Option<u8>,
    finish_by: Option<Instant>,
    interrupted: Option<Signal>,
    broken: bool,
    death: Option<Death>,
    kill_at: Option<Instant>,
    killed: bool,
}

impl Watch {
    pub(crate) fn new(machines: Vec<Machine>, bounds: Bounds) -> Watch {
        Watch {
            machines,
            bounds,
            finished: None,
            finish_by: None,
            interrupted: None,
            broken: false,
            death: None,
            kill_at: None,
            killed: false,
        }
    }

    /// Until no machine is left (or one cannot even be killed).
    pub(crate) fn run(mut self, signals: &Signals) -> Result<Outcome, LaunchError> {
        while self.machines.iter().any(Machine::alive) {
            let events = self.wait(signals).map_err(LaunchError::system("wait for the machines"))?;
            while events.signalled
                && let Some(signal) = signals.take()
            {
                self.on_signal(signal);
            }
            self.on_exits(&events.exited)?;
            for machine in events.talking {
                self.on_messages(machine, MESSAGES_AT_ONCE);
            }
            if self.on_time(Instant::now()) {
                break;
            }
        }
        Ok(self.outcome())
    }

    fn wait(&self, signals: &Signals) -> Result<Events, Errno> {
        let alive: Vec<(usize, &Machine)> =
            self.machines.iter().enumerate().filter(|(_, machine)| machine.alive()).collect();
        let talking: Vec<(usize, &Control)> =
            alive.iter().filter_map(|(index, machine)| Some((*index, machine.control.as_ref()?))).collect();
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds: Vec<PollFd<'_>> = alive.iter().map(|(_, m)| PollFd::new(&m.process, PollFlags::IN)).collect();
        fds.extend(talking.iter().map(|(_, control)| PollFd::new(*control, PollFlags::IN)));
        fds.extend(signals.descriptors().map(readable));

        let deadline = [self.kill_at, self.finish_by].into_iter().flatten().min();
        let timeout = deadline.map(|at| timespec(at.saturating_duration_since(Instant::now())));
        match poll(&mut fds, timeout.as_ref()) {
            Err(Errno::INTR) => return Ok(Events::default()),
            other => other?,
        };
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut seen = |index: usize| ready.next().unwrap_or(false).then_some(index);
        Ok(Events {
            exited: alive.iter().filter_map(|(index, _)| seen(*index)).collect(),
            talking: talking.iter().filter_map(|(index, _)| seen(*index)).collect(),
            signalled: ready.any(|ready| ready),
        })
    }

    /// The first signal is passed on; the second, or one while the program is being ended, kills.
    fn on_signal(&mut self, signal: Signal) {
        if self.interrupted.is_some() || self.death.is_some() {
            return self.kill();
        }
        self.interrupted = Some(signal);
        self.kill_at = Some(Instant::now() + self.bounds.after_signal);
        self.machines.iter().filter(|machine| machine.alive()).for_each(|machine| machine.signal(signal));
    }

    fn on_exits(&mut self, exited: &[usize]) -> Result<(), LaunchError> {
        let mut exits = Vec::new();
        for &index in exited {
            self.on_messages(index, usize::MAX); // its last words
            let machine = &mut self.machines[index];
            machine.signal(Signal::KILL); // what it has started and left behind; its number is still taken
            let exit = machine.child.try_wait().map_err(LaunchError::system("collect an exit status"))?;
            if let Some(exit) = exit {
                machine.exit = Some(exit);
                exits.push((index, exit));
            }
        }
        // Of several at once, one that was killed is the likelier cause, and one that exited with 0 the least.
        exits.sort_by_key(|(_, exit)| (exit.signal().is_none(), exit.success()));
        for (index, exit) in exits {
            self.on_exit(index, exit);
        }
        Ok(())
    }

    fn on_exit(&mut self, index: usize, status: ExitStatus) {
        let machine = &self.machines[index];
        if let Some(death) = self.death.as_mut().filter(|death| death.machine == machine.index) {
            death.exit = Some(status);
            return;
        }
        match (self.finished, status.code()) {
            // What main does after gossamer::main may still fail: its own affair, and its own status.
            (Some(announced), Some(code)) if machine.index == 0 => {
                self.finished = Some(if code == 0 { announced } else { u8::try_from(code).unwrap_or(announced) });
            }
            (Some(_), Some(0)) => {}
            _ => {
                let ready = machine.ready;
                let cause = match machine.failed.clone() {
                    Some(reason) => Cause::Failed(reason),
                    None => Cause::Exited { status, ready },
                };
                self.on_death(index, cause);
            }
        }
    }

    fn on_messages(&mut self, index: usize, most: usize) {
        for _ in 0..most {
            let machine = &mut self.machines[index];
            let Some(control) = &machine.control else {
                return;
            };
            match control.try_receive() {
                Ok(Some(message)) => self.on_message(index, message),
                Ok(None) => machine.control = None, // its process is going; the exit tells how
                Err(ControlError::Socket(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    return;
                }
                Err(error) => {
                    machine.control = None;
                    self.on_death(index, Cause::Protocol(error.to_string()));
                }
            }
        }
    }

    fn on_message(&mut self, index: usize, message: Message) {
        let machine = &mut self.machines[index];
        match message {
            Message::Ready { .. } if !machine.ready => machine.ready = true,
            Message::Ready { pid } => {
                let second = format!("process {pid} started gossamer as this machine, but another had done so before");
                self.on_death(index, Cause::Protocol(second));
            }
            Message::Finished { status } if machine.index == 0 && self.finished.is_none() => {
                self.finished = Some(status);
                self.finish_by = Some(Instant::now() + self.bounds.after_finish);
                self.tell_to_end("the program has finished");
            }
            Message::Failed { reason } => {
                machine.failed = Some(reason.clone());
                self.on_death(index, Cause::Failed(reason));
            }
            Message::Finished { .. } => {
                self.on_death(index, Cause::Protocol("only machine 0 can finish the program, and once".into()));
            }
            Message::Card { .. } => {}
            Message::Lost { machine: lost, reason } => {
                self.on_death(index, Cause::Failed(format!("it lost machine {lost}: {reason}")));
            }
            Message::End { .. } | Message::Secret { .. } | Message::Peer { .. } => {
                self.on_death(index, Cause::Protocol("it said what only the launcher says".into()));
            }
        }
    }

    /// The program cannot go on: remembers why (the first cause counts) and ends the others.
    fn on_death(&mut self, index: usize, cause: Cause) {
        let soon = Instant::now() + self.bounds.after_death;
        if !self.killed {
            self.kill_at = Some(self.kill_at.map_or(soon, |at| at.min(soon)));
        }
        if std::mem::replace(&mut self.broken, true) {
            return;
        }
        let machine = &self.machines[index];
        let death = Death { machine: machine.index, pid: machine.child.id(), cause, exit: machine.exit };
        match self.interrupted {
            Some(signal) => self.tell_to_end(&format!("the launcher got {}", describe(signal.as_raw()))),
            None => {
                self.tell_to_end(&death.to_string());
                self.death = Some(death);
            }
        }
    }

    fn tell_to_end(&self, reason: &str) {
        self.machines.iter().filter(|machine| machine.alive()).for_each(|machine| machine.tell_to_end(reason));
    }

    /// What the clock says; true when it is time to give up.
    fn on_time(&mut self, now: Instant) -> bool {
        if self.finish_by.is_some_and(|at| at <= now) {
            self.finish_by = None; // machine 0 itself may take as long as it likes
            let lingering = |machine: &Machine| machine.index != 0 && machine.alive();
            if let Some(index) = self.machines.iter().position(lingering) {
                self.on_death(index, Cause::Lingered(self.bounds.after_finish));
                self.kill();
            }
        }
        if self.kill_at.is_some_and(|at| at <= now) {
            if self.killed {
                return true;
            }
            self.kill();
        }
        false
    }

    fn kill(&mut self) {
        self.machines.iter().filter(|machine| machine.alive()).for_each(|machine| machine.signal(Signal::KILL));
        self.killed = true;
        self.kill_at = Some(Instant::now() + AFTER_KILL);
    }

    fn outcome(self) -> Outcome {
        match (self.death, self.interrupted, self.finished) {
            (Some(death), ..) => Outcome::Died(death),
            (None, None, Some(status)) => Outcome::Finished(status),
            (None, Some(_), Some(status)) if !self.broken => Outcome::Finished(status),
            (None, Some(signal), _) => Outcome::Interrupted(signal.as_raw()),
            // Every end but these sets one of them; said as a failure if not.
            (None, None, None) => Outcome::Finished(crate::outcome::FAILURE_STATUS),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec::try_from(duration).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
}
