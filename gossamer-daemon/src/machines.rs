//! The machines of one program on one host: starts them, exchanges messages with them, ends them. Used by
//! `gossamer-launch run --local` for all machines of a program, and by a host's part for those of its host. The
//! consequences for the program are decided elsewhere ([`crate::supervisor`]); so is the handling of their standard
//! streams.
//!
//! One descriptor covers everything: a [`Group`] is readable (`AsFd`) when [`Group::events`] has something to return.
//!
//! Invariants: a machine inherits only its streams and the descriptors of its launch descriptor; the kernel kills it
//! when the thread that started the group ends, however that happens; its process group is killed while the dead
//! process still holds its number, so never a stranger's; the control channel is read to its end before an exit is
//! reported, so a last message always comes first; a machine that does not read never blocks the caller.

use comm::deadline::{deadline_after, later};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use comm::shm;
use gossamer::bootstrap::{LaunchDescriptor, Plan};
use gossamer::control::{Control, ControlError, Message};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid};

use crate::child_setup::signal_at_end_of_thread;
use crate::core_dump;
use crate::error::LaunchError;
use crate::options::RunOptions;
use crate::orphans;
pub use crate::supervisor::Event;

/// Time limit for a killed process to go when a group is dropped.
const AFTER_KILL: Duration = Duration::from_secs(5);
/// Interval of the checks for stopped machines.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Most messages that are read from one machine before the others get their turn.
const MESSAGES_AT_ONCE: usize = 16;

/// Number of messages waiting for a machine from which on questions of watchers are left out.
const UNSENT_MAX: usize = 1024;

/// Machines to start on this host.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// A path, or a name to be found in `PATH`.
    pub program: &'a OsStr,
    /// Its arguments.
    pub args: &'a [OsString],
    /// Its whole environment; `None`: that of this process.
    pub environment: Option<&'a [(OsString, OsString)]>,
    /// The folder it starts in; `None`: that of this process.
    pub folder: Option<&'a Path>,
    /// Options of the run.
    pub options: &'a RunOptions,
    /// The plan of the program.
    pub plan: &'a Plan,
    /// Number of this host in the plan: its machines are started.
    pub host: u16,
}

/// Standard streams of a new machine.
#[derive(Debug)]
pub struct Streams {
    /// Standard input.
    pub stdin: Stdio,
    /// Standard output.
    pub stdout: Stdio,
    /// Standard error.
    pub stderr: Stdio,
}

/// This side's ends of those streams of a machine that are pipes.
#[derive(Debug, Default)]
pub struct Pipes {
    /// Standard input.
    pub stdin: Option<ChildStdin>,
    /// Standard output.
    pub stdout: Option<ChildStdout>,
    /// Standard error.
    pub stderr: Option<ChildStderr>,
}

/// The machines of one program on one host. Killed when dropped alive.
#[derive(Debug)]
pub struct Group {
    epoll: OwnedFd,
    machines: Vec<Member>,
    /// Longest stop of a machine.
    stop_limit: Duration,
    look_at: Instant,
}

/// One machine: a child process and the channel to it.
#[derive(Debug)]
struct Member {
    number: u16,
    pid: Pid,
    child: Child,
    /// Readable when it has ended; `None` where the system has no such descriptors, or they are forbidden.
    process: Option<OwnedFd>,
    control: Option<Control>, // None: closed
    unsent: VecDeque<Message>,
    exit: Option<ExitStatus>,
    /// Time of the first look that saw it stopped; reported when that has been too long.
    stopped: Option<Instant>,
    is_reported: bool,
}

impl Group {
    /// Starts the machines of `start.host`, each with the streams that `streams` gives for its number. To be called on
    /// a thread that lives as long as they shall: the kernel ties their lives to it. If one cannot be started, those
    /// before it are gone when this returns.
    ///
    /// # Errors
    /// [`LaunchError::Program`] when the program cannot be executed, [`LaunchError::Plan`], [`LaunchError::Memory`],
    /// [`LaunchError::System`].
    pub fn start(start: &Start<'_>, mut streams: impl FnMut(u16) -> Streams) -> Result<Group, LaunchError> {
        start.plan.check()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(LaunchError::system("watch processes"))?;
        // Detection and report lag by one look each, and both must fit into the silence that is allowed.
        let stop_limit = start.options.silence.saturating_sub(2 * LOOK_INTERVAL);
        let mut group = Group { epoll, machines: Vec::new(), stop_limit, look_at: Instant::now() };
        let numbers: Vec<u16> = start.plan.machines_of(start.host).collect();
        let members = numbers.first().map_or(0, |first| start.plan.memory_group(*first).len());
        let memory = match members {
            0 => None,
            // `check` has ensured at most 1024.
            members => Some(shm::create(members as u16)?),
        };
        for number in numbers {
            let member = Member::start(start, number, memory.as_ref(), streams(number))?;
            group.machines.push(member); // from here on it is killed on drop
            group.listen(group.machines.len() - 1).map_err(LaunchError::system("watch a process"))?;
        }
        Ok(group) // the memory lives and dies with the machines from here on
    }

    fn listen(&self, index: usize) -> Result<(), Errno> {
        let member = &self.machines[index];
        let Some(control) = &member.control else { return Ok(()) };
        if let Some(process) = &member.process {
            epoll::add(&self.epoll, process, data(index, PROCESS), epoll::EventFlags::IN)?;
        }
        epoll::add(&self.epoll, control, data(index, CONTROL), epoll::EventFlags::IN)
    }

    /// Returns the numbers of the machines.
    pub fn numbers(&self) -> impl Iterator<Item = u16> {
        self.machines.iter().map(|member| member.number)
    }

    /// Returns the number of live machines.
    #[must_use]
    pub fn alive(&self) -> usize {
        self.machines.iter().filter(|member| member.is_alive()).count()
    }

    /// Process id of a machine; 0 if it is none of this group.
    #[must_use]
    pub fn pid(&self, machine: u16) -> u32 {
        self.machines.iter().find(|member| member.number == machine).map_or(0, |member| member.child.id())
    }

    /// Takes this side's ends of a machine's pipes: once, later calls return none.
    pub fn take_pipes(&mut self, machine: u16) -> Pipes {
        let Some(member) = self.machines.iter_mut().find(|member| member.number == machine) else {
            return Pipes::default();
        };
        let child = &mut member.child;
        Pipes { stdin: child.stdin.take(), stdout: child.stdout.take(), stderr: child.stderr.take() }
    }

    /// Returns the events since the last call, maybe none; never waits. To be called when the group is readable, and
    /// each [`LOOK_INTERVAL`]: a stopped machine makes nothing readable. Of machines that ended at the same time, one
    /// that was killed comes first (it is the likelier cause), and one that exited with status 0 last.
    ///
    /// # Errors
    /// [`LaunchError::System`] when processes can no longer be watched.
    pub fn events(&mut self) -> Result<Vec<Event>, LaunchError> {
        let (exited, talking) = self.ready().map_err(LaunchError::system("wait for the machines"))?;
        let mut events = Vec::new();
        let mut exits = Vec::new();
        // Before the exits: what the others have sent by then, as that they are ready, may decide what an exit means.
        for index in talking.into_iter().filter(|index| !exited.contains(index)) {
            self.send_unsent(index);
            self.receive(index, MESSAGES_AT_ONCE, &mut events);
        }
        for index in exited {
            self.receive(index, usize::MAX, &mut events); // its last messages
            let member = &mut self.machines[index];
            member.signal(Signal::KILL); // its children and leftovers too; its number is still taken
            let exit =
                orphans::try_collect(&mut member.child).map_err(LaunchError::system("collect an exit status"))?;
            if let Some(status) = exit {
                if let Some(process) = &member.process {
                    let _ = epoll::delete(&self.epoll, process); // it is of no more use, registered or not
                }
                member.exit = Some(status);
                self.close(index);
                exits.push((self.machines[index].number, status));
            }
        }
        exits.sort_by_key(|(_, status)| (status.signal().is_none(), status.success()));
        events.extend(exits.into_iter().map(|(machine, status)| Event::Exited { machine, status }));
        let now = Instant::now();
        if now >= self.look_at {
            self.look_at = later(now, LOOK_INTERVAL);
            events.extend(self.machines.iter_mut().filter_map(|member| member.check_stopped(now, self.stop_limit)));
        }
        Ok(events)
    }

    /// Returns the indices of the machines with an ended process, and of those with a ready channel.
    fn ready(&self) -> Result<(Vec<usize>, Vec<usize>), Errno> {
        let mut ready = Vec::with_capacity(2 * self.machines.len() + 1);
        let no_time = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), Some(&no_time)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let of = |kind| {
            let ready = ready.iter().map(|event: &epoll::Event| event.data.u64());
            let mut found: Vec<usize> = ready.filter(|data| data % 2 == kind).map(|data| (data / 2) as usize).collect();
            found.sort_unstable();
            found
        };
        let mut exited = of(PROCESS);
        let unwatched = |(_, member): &(usize, &Member)| member.process.is_none() && member.has_exited();
        exited.extend(self.machines.iter().enumerate().filter(unwatched).map(|(index, _)| index));
        Ok((exited, of(CONTROL)))
    }

    fn receive(&mut self, index: usize, most: usize, events: &mut Vec<Event>) {
        let machine = self.machines[index].number;
        for _ in 0..most {
            let Some(control) = &self.machines[index].control else { return };
            match control.try_receive() {
                Ok(Some(message)) => events.push(Event::Said { machine, message }),
                Ok(None) => return self.close(index), // its process is going; the exit says how
                Err(ControlError::Socket(error)) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    events.push(Event::Nonsense { machine, error });
                    return self.close(index);
                }
            }
        }
    }

    fn close(&mut self, index: usize) {
        let member = &mut self.machines[index];
        member.unsent.clear();
        if let Some(control) = member.control.take() {
            let _ = epoll::delete(&self.epoll, &control); // closing it has the same effect, where nobody else has it
        }
    }

    /// Sends a message to a machine, now or when its channel has room for it; nothing to one that is gone.
    pub fn send(&mut self, machine: u16, message: Message) {
        let Some(index) = self.machines.iter().position(|member| member.number == machine) else { return };
        let member = &mut self.machines[index];
        // A machine that does not read gets no further questions: their watcher hears that it has not answered.
        let is_refused = matches!(message, Message::Look { .. }) && member.unsent.len() >= UNSENT_MAX;
        if member.control.is_some() && !is_refused {
            member.unsent.push_back(message);
            self.send_unsent(index);
        }
    }

    /// Tells all machines to end, for this reason.
    pub fn tell_to_end(&mut self, reason: &str) {
        self.tell_all(&Message::End { reason: reason.to_owned() });
    }

    /// Sends a message to all machines.
    pub fn tell_all(&mut self, message: &Message) {
        let numbers: Vec<u16> = self.numbers().collect();
        for machine in numbers {
            self.send(machine, message.clone());
        }
    }

    fn send_unsent(&mut self, index: usize) {
        let member = &mut self.machines[index];
        let Some(control) = &member.control else { return };
        let waited = !member.unsent.is_empty();
        while let Some(message) = member.unsent.front() {
            match control.try_send(message) {
                Ok(()) => drop(member.unsent.pop_front()),
                Err(ControlError::Socket(error)) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => member.unsent.clear(), // it is gone, and its exit will report that
            }
        }
        if waited {
            let mut interest = epoll::EventFlags::IN;
            interest.set(epoll::EventFlags::OUT, !member.unsent.is_empty());
            // Fails only for want of kernel memory; then the unsent messages go with the next one.
            let _ = epoll::modify(&self.epoll, control, data(index, CONTROL), interest);
        }
    }

    /// Sends a signal to all live machines, and to all processes in their groups.
    pub fn signal(&self, signal: Signal) {
        self.machines.iter().filter(|member| member.is_alive()).for_each(|member| member.signal(signal));
    }

    /// Kills a machine, and all processes in its group.
    pub fn kill(&self, machine: u16) {
        let is_wanted = |member: &&Member| member.number == machine && member.is_alive();
        self.machines.iter().filter(is_wanted).for_each(|member| member.signal(Signal::KILL));
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL); // all at once, then wait for each
        for member in self.machines.iter_mut().filter(|member| member.is_alive()) {
            member.wait_for_exit(AFTER_KILL);
            if !matches!(orphans::try_collect(&mut member.child), Ok(Some(_))) {
                orphans::abandon(member.pid); // collected whenever it goes
            }
        }
    }
}

const PROCESS: u64 = 0;
const CONTROL: u64 = 1;

fn data(index: usize, kind: u64) -> epoll::EventData {
    epoll::EventData::new_u64(2 * index as u64 + kind)
}

impl Member {
    fn start(
        start: &Start<'_>,
        number: u16,
        memory: Option<&shm::Segments>,
        streams: Streams,
    ) -> Result<Member, LaunchError> {
        let mut command = Command::new(start.program);
        command.args(start.args).process_group(0);
        if let Some(environment) = start.environment {
            command.env_clear().envs(environment.iter().map(|(name, value)| (name, value)));
        }
        if let Some(folder) = start.folder {
            command.current_dir(folder);
        }
        command.stdin(streams.stdin).stdout(streams.stdout).stderr(streams.stderr);
        signal_at_end_of_thread(&mut command, Signal::KILL);
        core_dump::restore(&mut command);
        let launch = LaunchDescriptor { machine: number, plan: start.plan, memory };
        let control = launch.hand_to(&mut command).map_err(LaunchError::system("hand over a place in the program"))?;
        let child = orphans::spawn(&mut command);
        let mut child = child.map_err(|source| LaunchError::Program { program: start.program.to_owned(), source })?;
        let pid = Pid::from_child(&child);
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(error @ (Errno::PERM | Errno::NOSYS)) => {
                tell_of_refusal(error);
                Ok(None)
            }
            opened => opened.map(Some),
        };
        match process {
            Ok(process) => {
                let (control, unsent) = (Some(control), VecDeque::new());
                let (exit, stopped, is_reported) = (None, None, false);
                Ok(Member { number, pid, child, process, control, unsent, exit, stopped, is_reported })
            }
            Err(error) => {
                let _ = child.kill(); // the error to report is that of pidfd_open
                let _ = child.wait();
                orphans::abandon(Pid::from_child(&child));
                Err(LaunchError::system("watch a process (pidfd_open)")(error))
            }
        }
    }

    fn is_alive(&self) -> bool {
        self.exit.is_none()
    }

    /// Returns whether its process has ended, and still has its number: the exit status is left there.
    fn has_exited(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.is_alive() && matches!(waitid(WaitId::Pid(self.pid), options), Ok(Some(_)))
    }

    /// Waits until its process has ended, at most for `most`.
    fn wait_for_exit(&self, most: Duration) {
        let end = deadline_after(most);
        if let Some(process) = &self.process {
            let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], Timespec::try_from(most).ok().as_ref());
            return;
        }
        while !self.has_exited() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5)); // polls: there is no descriptor to wait for
        }
    }

    /// Reports a machine that has been stopped for too long, once. Its fibers do not run then, but its sockets stay
    /// open and its memory stays shared: others can only wait for it.
    fn check_stopped(&mut self, now: Instant, stop_limit: Duration) -> Option<Event> {
        if !self.is_alive() || self.is_reported {
            return None;
        }
        // The status stays there, and the exit status is not asked for.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let found = waitid(WaitId::Pid(self.pid), options).ok().flatten();
        let Some(signal) = found.and_then(|found| found.stopping_signal()) else {
            self.stopped = None;
            return None;
        };
        self.is_reported = now.duration_since(*self.stopped.get_or_insert(now)) >= stop_limit;
        self.is_reported.then_some(Event::Stood { machine: self.number, signal })
    }

    /// Sends a signal to the machine's process group. Must not be called after the exit was collected.
    fn signal(&self, signal: Signal) {
        debug_assert!(self.is_alive());
        let _ = kill_process_group(self.pid, signal); // fails when the machine is gone already
    }
}

/// Reports the error; programs start all the same.
fn tell_of_refusal(error: Errno) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        eprintln!(
            "gossamer: the ends of machines are seen up to half a second late, for this system refuses pidfd_open \
             ({error}): allow it in the container's seccomp profile (Linux 5.3 has it)"
        );
    });
}
