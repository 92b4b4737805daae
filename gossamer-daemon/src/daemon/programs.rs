//! Programs that run on this host, as its daemon knows them.
//!
//! Invariants: running programs and coming ones (their executable is on its way) are counted together, against one
//! limit, each once: the lock of the coming ones is held for the count, and for the step from coming to running. One
//! part at a time is started ([`Programs::starting`]).

use comm::deadline::deadline_after;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::cgroup::{Cgroup, CgroupState};
use super::handed::Handed;
use crate::orphans;
use crate::wire::{BEAT_MS, MachineStatus, ProgramId, ProgramStatus, Sender, ToPart, Wire};

/// Time limit for killed processes to go: there may be thousands, and each needs the processor for that.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Longest wait of a new program for one that is ending; well below the silence that its launcher allows.
const ROOM_LIMIT: Duration = Duration::from_secs(1);

/// A program, on this host.
pub struct Program {
    /// Its path on the launcher's host.
    pub path: String,
    /// User and host that started it.
    pub owner: String,
    /// Time of its start.
    pub since: Instant,
    /// Its part.
    pub session: Session,
    /// Cgroup of its processes, if this host has them.
    pub cgroup: Option<Cgroup>,
    /// Its machines.
    pub machines: BTreeMap<u16, Machine>,
    /// The reason, where the daemon ended it.
    pub ended_by: Option<String>,
    /// Whether it is about to be gone.
    pub is_ending: bool,
}

/// A program's part, as its session has it.
#[derive(Clone)]
pub struct Session {
    /// Its process, collected by the session alone.
    pub part: Pid,
    /// Channel to it.
    pub channel: Arc<Channel>,
    /// Longest silence of the launcher.
    pub silence: Duration,
}

/// The daemon's end of the socket to a part. Several threads write into it: one message at a time.
pub struct Channel {
    stream: UnixStream,
    writer: Mutex<UnixStream>,
}

impl Channel {
    /// # Errors
    /// When the process has no file descriptors left.
    pub fn new(stream: UnixStream) -> io::Result<Arc<Channel>> {
        let writer = Mutex::new(stream.try_clone()?);
        Ok(Arc::new(Channel { stream, writer }))
    }

    /// Returns the socket: to read from, to set timeouts of, and to be cut off.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Locks the socket for writing. A writer that fails cuts the channel off: half a message may be in it.
    pub fn writer(&self) -> MutexGuard<'_, UnixStream> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a message; false if it failed.
    pub fn send(&self, message: &[u8]) -> bool {
        let is_sent = self.writer().send_bytes(message).is_ok();
        if !is_sent {
            self.cut();
        }
        is_sent
    }

    /// Cuts both sides off.
    pub fn cut(&self) {
        let _ = self.stream.shutdown(Shutdown::Both); // gone already: as good
    }
}

/// A machine of a program on this host.
#[derive(Clone, Serialize, Deserialize)]
pub struct Machine {
    pid: u32,
    /// Bytes of its slots, as it reported them; `None` until it is ready.
    slots_bytes: Option<u64>,
}

/// All programs of this host.
#[derive(Default)]
pub struct Programs {
    list: Mutex<BTreeMap<ProgramId, Program>>,
    coming: Mutex<Coming>,
    /// Waited for with `coming`: a running or a coming program has gone.
    freed: Condvar,
    starting: Mutex<()>,
}

/// Programs that do not run yet.
#[derive(Default)]
struct Coming {
    /// Programs with room.
    reserved: BTreeSet<ProgramId>,
    /// Programs that wait for room, in order. They come before those that do not wait.
    queue: VecDeque<ProgramId>,
}

/// Room for a coming program; released when the program runs, or was refused.
pub struct Reserved<'a> {
    programs: &'a Programs,
    id: ProgramId,
}

impl Coming {
    fn has(&self, id: ProgramId) -> bool {
        self.reserved.contains(&id) || self.queue.contains(&id)
    }

    fn leave(&mut self, id: ProgramId) {
        self.queue.retain(|other| *other != id);
    }
}

/// A running program as the next daemon takes it over.
#[derive(Serialize, Deserialize)]
pub struct ProgramState {
    /// Its number.
    pub id: ProgramId,
    path: String,
    owner: String,
    age: Duration,
    part: i32,
    silence: Duration,
    cgroup: Option<CgroupState>,
    /// Its socket.
    pub(super) channel: Handed,
    machines: BTreeMap<u16, Machine>,
    ended_by: Option<String>,
}

impl Reserved<'_> {
    /// Enters the running program: its part was started under `starting`.
    pub fn enter(self, program: Program) {
        let mut coming = self.programs.coming();
        coming.reserved.remove(&self.id);
        self.programs.list().insert(self.id, program);
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.programs.coming().reserved.remove(&self.id);
        self.programs.freed.notify_all();
    }
}

impl Programs {
    fn coming(&self) -> MutexGuard<'_, Coming> {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list(&self) -> MutexGuard<'_, BTreeMap<ProgramId, Program>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lock that is held while a process of the daemon starts: one at a time.
    pub fn starting(&self) -> MutexGuard<'_, ()> {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves room for one more program. Where there is none, it waits a moment for a program that is ending: the
    /// launcher of that one may have heard already that it has ended.
    ///
    /// # Errors
    /// The reason for a refusal, in words.
    pub fn reserve(&self, id: ProgramId, most: u16) -> Result<Reserved<'_>, String> {
        let end = deadline_after(ROOM_LIMIT);
        let mut coming = self.coming();
        loop {
            let running = self.list();
            if running.contains_key(&id) || coming.has(id) {
                return Err(format!("program {id} runs here already"));
            }
            if running.len() + coming.reserved.len() + coming.queue.len() < usize::from(most) {
                coming.reserved.insert(id);
                return Ok(Reserved { programs: self, id });
            }
            let is_one_ending = running.values().any(|program| program.is_ending);
            drop(running);
            let left = end.saturating_duration_since(Instant::now());
            if !is_one_ending || left.is_zero() {
                let cure = "wait for one to end (run --wait), or raise limits.programs in rack.yaml";
                return Err(format!("{most} programs run here or are coming, and no more may: {cure}"));
            }
            coming = self.freed.wait_timeout(coming, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Reserves room for one more program, once there is room for it and for all that wait before it. While it waits,
    /// it calls `tell` with the number of those before it: at once, on each change, and each [`BEAT_MS`]; when that
    /// returns false, the program leaves the queue. At most `most_waiting` wait.
    ///
    /// # Errors
    /// The reason for a refusal, in words.
    pub fn reserve_in_turn(
        &self,
        id: ProgramId,
        most: u16,
        most_waiting: usize,
        is_resumed: bool,
        mut tell: impl FnMut(u32) -> bool,
    ) -> Result<Reserved<'_>, String> {
        let mut coming = self.coming();
        // One that waited before an upgrade keeps its place.
        if !is_resumed {
            if self.list().contains_key(&id) || coming.has(id) {
                return Err(format!("program {id} runs here already"));
            }
            if coming.queue.len() >= most_waiting {
                return Err(format!("{most_waiting} programs wait here already: try again later"));
            }
            coming.queue.push_back(id);
        }
        let beat = Duration::from_millis(BEAT_MS);
        let mut told: Option<(usize, Instant)> = None;
        loop {
            let before = coming.queue.iter().position(|other| *other == id).unwrap_or(0);
            if before < usize::from(most).saturating_sub(self.list().len() + coming.reserved.len()) {
                coming.leave(id);
                coming.reserved.insert(id);
                self.freed.notify_all(); // those behind it have one less before them
                return Ok(Reserved { programs: self, id });
            }
            match told.filter(|(same, at)| *same == before && at.elapsed() < beat) {
                Some((_, at)) => {
                    let left = beat.saturating_sub(at.elapsed());
                    coming = self.freed.wait_timeout(coming, left).unwrap_or_else(PoisonError::into_inner).0;
                }
                None => {
                    drop(coming); // a slow launcher holds up nobody
                    let is_there = tell(u32::try_from(before).unwrap_or(u32::MAX));
                    coming = self.coming();
                    if !is_there {
                        coming.leave(id);
                        self.freed.notify_all();
                        return Err("its launcher has left the queue".to_owned());
                    }
                    told = Some((before, Instant::now()));
                }
            }
        }
    }

    /// Returns the states of the running programs, and the numbers of those that wait for room, in order. `None` where
    /// one is coming that does not wait, or ending.
    pub fn states(&self) -> Option<(Vec<ProgramState>, Vec<ProgramId>)> {
        let (coming, running) = (self.coming(), self.list());
        if !coming.reserved.is_empty() || running.values().any(|program| program.is_ending) {
            return None;
        }
        let state = |(id, program): (&ProgramId, &Program)| ProgramState {
            id: *id,
            path: program.path.clone(),
            owner: program.owner.clone(),
            age: program.since.elapsed(),
            part: program.session.part.as_raw_nonzero().get(),
            silence: program.session.silence,
            cgroup: program.cgroup.as_ref().map(Cgroup::state),
            channel: Handed::of(program.session.channel.stream()),
            machines: program.machines.clone(),
            ended_by: program.ended_by.clone(),
        };
        Some((running.iter().map(state).collect(), coming.queue.iter().copied().collect()))
    }

    /// Enters the programs that a former daemon has handed over, and those that wait for room.
    ///
    /// # Errors
    /// When the process has no file descriptors left, or the state is malformed.
    pub fn resume(&self, states: Vec<ProgramState>, queue: Vec<ProgramId>) -> io::Result<()> {
        self.coming().queue = queue.into();
        for state in states {
            let part = Pid::from_raw(state.part).ok_or_else(|| io::Error::other("a part without a number"))?;
            let now = Instant::now();
            let program = Program {
                path: state.path,
                owner: state.owner,
                since: now.checked_sub(state.age).unwrap_or(now),
                session: Session { part, channel: Channel::new(state.channel.take()?.into())?, silence: state.silence },
                cgroup: state.cgroup.map(Cgroup::resume),
                machines: state.machines,
                ended_by: state.ended_by,
                is_ending: false,
            };
            self.list().insert(state.id, program);
        }
        Ok(())
    }

    /// Returns the part's end of the session of a running program.
    pub fn session(&self, id: ProgramId) -> Option<Session> {
        self.list().get(&id).map(|program| program.session.clone())
    }

    /// Removes a program from those that wait for room.
    pub fn leave_queue(&self, id: ProgramId) {
        self.coming().leave(id);
        self.freed.notify_all();
    }

    /// Marks a program as about to be gone: a new one may wait for that.
    pub fn set_ending(&self, id: ProgramId) {
        if let Some(program) = self.list().get_mut(&id) {
            program.is_ending = true;
        }
    }

    /// Adds a started machine of a program.
    pub fn add_machine(&self, id: ProgramId, machine: u16, pid: u32) {
        if let Some(program) = self.list().get_mut(&id) {
            program.machines.insert(machine, Machine { pid, slots_bytes: None });
        }
    }

    /// Notes the size of a ready machine's slots.
    pub fn set_slots(&self, id: ProgramId, machine: u16, bytes: u64) {
        let mut list = self.list();
        if let Some(machine) = list.get_mut(&id).and_then(|program| program.machines.get_mut(&machine)) {
            machine.slots_bytes = Some(bytes);
        }
    }

    /// Ends a program: its part is cut off, kills its machines and goes. False when there is no such program.
    pub fn end(&self, id: ProgramId, reason: &str) -> bool {
        let mut list = self.list();
        let Some(program) = list.get_mut(&id) else { return false };
        program.ended_by.get_or_insert_with(|| reason.to_owned());
        program.is_ending = true;
        program.session.channel.cut();
        true
    }

    /// Sends a message to a program's part on this host. False when there is no such program, or its part is gone or
    /// hangs.
    pub fn tell(&self, id: ProgramId, what: &ToPart) -> bool {
        let session = self.session(id); // the list is free again
        session.is_some_and(|session| session.channel.send(&what.to_bytes()))
    }

    /// Returns the machines of a program on this host, if it runs here.
    pub fn machines(&self, id: ProgramId) -> Option<Vec<u16>> {
        self.list().get(&id).map(|program| program.machines.keys().copied().collect())
    }

    /// Ends all programs; returns their number.
    pub fn end_all(&self, reason: &str) -> usize {
        let ids: Vec<ProgramId> = self.list().keys().copied().collect();
        ids.iter().filter(|id| self.end(**id, reason)).count()
    }

    /// Returns why the daemon ended it, if it did.
    pub fn ended_by(&self, id: ProgramId) -> Option<String> {
        self.list().get(&id)?.ended_by.clone()
    }

    /// Returns whether processes of a program were killed for want of memory since the last call, and its limit.
    pub fn out_of_memory(&self, id: ProgramId) -> Option<Option<u64>> {
        self.list().get_mut(&id)?.cgroup.as_mut()?.out_of_memory()
    }

    /// Kills all processes of a program, where they are in a cgroup.
    pub fn kill(&self, id: ProgramId) {
        if let Some(cgroup) = self.list().get(&id).and_then(|program| program.cgroup.as_ref()) {
            cgroup.kill();
        }
    }

    /// Ends the leftovers of a program after its part has gone and was collected.
    pub fn remove(&self, id: ProgramId) {
        self.kill(id);
        let left = orphans::end(END_LIMIT);
        let cgroup = self.list().get_mut(&id).and_then(|program| program.cgroup.take());
        drop(cgroup);
        if left > 0 {
            tracing::warn!(program = %id, left, "processes of the program cannot be killed");
        }
        self.list().remove(&id); // last: a daemon that is told to end waits for this
        drop(self.coming()); // a counter has seen the removal, or waits by now
        self.freed.notify_all();
    }

    /// Returns the number of running programs.
    pub fn count(&self) -> usize {
        self.list().len()
    }

    /// Returns the number of programs that have room, or wait for it, and do not run yet.
    pub fn coming_count(&self) -> u32 {
        let coming = self.coming();
        u32::try_from(coming.reserved.len() + coming.queue.len()).unwrap_or(u32::MAX)
    }

    /// Returns the status of all programs.
    pub fn status(&self) -> Vec<ProgramStatus> {
        let machine = |(number, machine): (&u16, &Machine)| {
            let Machine { pid, slots_bytes } = *machine;
            let (resident_bytes, shared_bytes) = memory_of(pid);
            MachineStatus { machine: *number, pid, slots_bytes, resident_bytes, shared_bytes }
        };
        let program = |(id, program): (&ProgramId, &Program)| ProgramStatus {
            id: id.to_string(),
            path: program.path.clone(),
            owner: program.owner.clone(),
            seconds: program.since.elapsed().as_secs(),
            machines: program.machines.iter().map(machine).collect(),
        };
        self.list().iter().map(program).collect()
    }
}

/// Returns the resident and shared memory of a process, in bytes; 0 where it is gone.
fn memory_of(pid: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib * 1024)
    };
    (field("VmRSS:").unwrap_or(0), field("RssShmem:").unwrap_or(0))
}

#[cfg(test)]
mod tests;
